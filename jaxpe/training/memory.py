"""Will it fit? Asked before documents are read, and again once it is known how many words are."""

from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.training.config import TrainConfig

_FLOAT = 4
_STATES = 4  # parameters, gradients and the two moments of Adam
_FOLDS = 16  # that documents are counted in
_BUCKETS = 4  # batches are cut to this part of the length where their documents are short


def check_memory(
    config: TrainConfig, *, vocab_size: int = 2, training: bool = True, limit: int | None = None
) -> None:
    """Refuse sizes that do not fit, with the option to lower.

    Estimates are the least that is needed: what passes may still not fit.

    Args:
        config: of the run; the sizes of a pretrained model are not in it.
        vocab_size: words, as far as known.
        training: whether the model is trained, and not only looked at.
        limit: bytes that may be used; default: what is free on the devices.

    Raises:
        InputError: more is needed than there is.

    >>> from jaxpe.training import ModelConfig
    >>> check_memory(TrainConfig(model=ModelConfig(dim=10**9)))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jaxpe.InputError: a model of `model.dim=1000000000`, ... needs ...; pass ...
    """
    limit = device_bytes() if limit is None else limit
    model = config.model
    if config.pretrained is None:
        states = _STATES if training else 1
        needed = _FLOAT * states * parameters(config, vocab_size)
        sizes = f"`model.dim={model.dim}`, `model.layers={model.layers}`, `length={config.length}`"
        check_bytes(
            needed,
            what=f"a model of {sizes} and {vocab_size:,} words",
            remedy="pass smaller ones",
            limit=limit,
        )
    if not training:
        return
    check_bytes(
        activation_bytes(config),
        what=f"`batch_size={config.batch_size}` in {config.accumulate} parts, at {_length(config)}",
        remedy="pass a smaller `batch_size` or `length`, or `model.remat`",
        limit=limit,
    )
    if config.probe_at:
        check_bytes(
            _FLOAT * (_FOLDS * config.length * vocab_size + 2 * config.length**2),
            what=f"the geometry of {vocab_size:,} words at {_length(config)}",
            remedy="pass a smaller one, or leave the probe out: `probe_at=()`",
            limit=limit,
        )


def parameters(config: TrainConfig, vocab_size: int) -> int:
    """About how many numbers a new model has, its encoding apart.

    >>> from jaxpe.training import ModelConfig
    >>> parameters(TrainConfig(model=ModelConfig(dim=8, layers=1, hidden=16)), 100)
    1312
    """
    model = config.model
    hidden = 4 * model.dim if model.hidden is None else model.hidden
    gated = model.activation in ("swiglu", "geglu")
    keys = model.heads if model.kv_heads is None else model.kv_heads
    attention = 2 * model.dim * (model.dim + max(1, model.dim // model.heads) * keys)
    block = attention + (3 if gated else 2) * model.dim * hidden
    return vocab_size * model.dim + model.layers * block


def activation_bytes(config: TrainConfig) -> int:
    """The least that a step keeps for the way back, where all documents are short.

    >>> activation_bytes(TrainConfig(length=64)) < 10**6 < activation_bytes(TrainConfig(length=512))
    True
    """
    model, n = config.model, max(2, config.length // _BUCKETS)
    rows = config.batch_size // config.accumulate
    layers = 1 if model.remat else model.layers
    return _FLOAT * rows * layers * n * (model.dim + model.heads * n)


def _length(config: TrainConfig) -> str:
    return f"`length={config.length}`"

"""Will it fit? Asked before documents are read, and again once it is known how many words are."""

from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.training.config import TrainConfig

_FLOAT = 4
_STATES = 4  # parameters, gradients and the two moments of Adam
FOLDS = 16  # that documents are counted in
_BUCKETS = 4  # batches are cut to this part of the length where their documents are short


def check_memory(
    config: TrainConfig, *, vocab_size: int = 2, training: bool = True, limit: int | None = None
) -> None:
    """Refuse sizes that do not fit, with the option to lower.

    Estimates are the least that is needed: what passes may still not fit.

    Args:
        config: configuration of the run; the sizes of a pretrained model are not in it.
        vocab_size: words, as far as known.
        training: whether the model is trained, and not only looked at.
        limit: bytes that may be used; default: what is free on the devices.

    Raises:
        InputError: more is needed than there is.
    """
    limit = device_bytes() if limit is None else limit
    model = config.model
    length = f"`length={config.length}`"
    if config.pretrained is None:
        states = _STATES if training else 1
        needed = _FLOAT * states * parameters(config, vocab_size)
        sizes = f"`model.dim={model.dim}`, `model.layers={model.layers}`, {length}"
        what = f"a model of {sizes} and {vocab_size:,} words"
        check_bytes(needed, what=what, remedy="pass smaller ones", limit=limit)
    if not training:
        return
    what = f"`batch_size={config.batch_size}` in {config.accumulate} parts, at {length}"
    remedy = "pass a smaller `batch_size` or `length`, or `model.remat`"
    check_bytes(activation_bytes(config), what=what, remedy=remedy, limit=limit)
    if config.probe_at:
        needed = _FLOAT * (FOLDS * config.length * vocab_size + 2 * config.length**2)
        what = f"the geometry of {vocab_size:,} words at {length}"
        remedy = "pass a smaller one, or leave the probe out: `probe_at=()`"
        check_bytes(needed, what=what, remedy=remedy, limit=limit)


def parameters(config: TrainConfig, vocab_size: int) -> int:
    """About how many numbers a new model has, its encoding apart."""
    model = config.model
    hidden = 4 * model.dim if model.hidden is None else model.hidden
    gated = model.activation in ("swiglu", "geglu", "geglu_tanh")
    keys = model.heads if model.kv_heads is None else model.kv_heads
    attention = 2 * model.dim * (model.dim + max(1, model.dim // model.heads) * keys)
    block = attention + (3 if gated else 2) * model.dim * hidden
    decoder = 0
    if config.task == "translate":  # whose blocks attend twice
        decoder = (model.decoder_layers or model.layers) * (block + attention)
    return vocab_size * model.dim + model.layers * block + decoder


def activation_bytes(config: TrainConfig) -> int:
    """The least that a step keeps for the way back, where all documents are short."""
    model, n = config.model, max(2, config.length // _BUCKETS)
    rows = config.batch_size // config.accumulate
    layers = 1 if model.remat else model.layers
    return _FLOAT * rows * layers * n * (model.dim + model.heads * n)

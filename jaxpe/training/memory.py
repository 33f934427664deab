"""Memory that a run needs, checked before documents are read and with their vocabulary."""

from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.training.config import TrainConfig, resolved

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
    model, n = config.model, config.length
    length = f"`length={n}`"
    needs: list[tuple[int, str, str]] = []  # numbers of float32, of what, and the remedy
    if config.pretrained is None:
        sizes = f"`model.dim={model.dim}`, `model.layers={model.layers}`, {length}"
        count = parameters(config, vocab_size) * (_STATES if training else 1)
        needs.append((count, f"a model of {sizes} and {vocab_size:,} words", "pass smaller ones"))
    if training:
        step = f"`batch_size={config.batch_size}` in {config.accumulate} parts, at {length}"
        remedy = "pass a smaller `batch_size` or `length`, or `model.remat`"
        needs.append((activations(config), step, remedy))
    if training and config.probe_at:
        count = FOLDS * n * vocab_size + 2 * n**2
        remedy = "pass a smaller one, or leave the probe out: `probe_at=()`"
        needs.append((count, f"the geometry of {vocab_size:,} words at {length}", remedy))
    for count, what, remedy in needs:
        check_bytes(_FLOAT * count, what=what, remedy=remedy, limit=limit)


def parameters(config: TrainConfig, vocab_size: int) -> int:
    """About how many numbers a new model has, its encoding apart."""
    model = resolved(config).model
    gated = model.activation in ("swiglu", "geglu", "geglu_tanh")
    hidden, kv_heads = model.hidden or 0, model.kv_heads or 0
    attention = 2 * model.dim * (model.dim + max(1, model.dim // model.heads) * kv_heads)
    block = attention + (3 if gated else 2) * model.dim * hidden
    decoder = (model.decoder_layers or 0) * (block + attention)  # whose blocks attend twice
    return vocab_size * model.dim + model.layers * block + decoder


def activations(config: TrainConfig) -> int:
    """Least number of activations that a step keeps for the gradient, if documents are short."""
    model, n = config.model, max(2, config.length // _BUCKETS)
    rows = config.batch_size // config.accumulate
    layers = 1 if model.remat else model.layers
    return rows * layers * n * (model.dim + model.heads * n)

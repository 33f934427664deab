"""Memory that a run needs: a lower bound, checked before training."""

from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.encodings.implementations import SMALL
from jaxpe.training.config import TrainConfig, resolved

_FLOAT = 4
_STATES = 4  # parameters, gradients and the two moments of Adam
FOLDS = 16  # folds that documents are counted in
_BUCKETS = 4  # batches of short documents are cut to 1 / _BUCKETS of the length


def check_memory(
    config: TrainConfig, *, vocab_size: int = 2, training: bool = True, limit: int | None = None
) -> None:
    """Raise for sizes that do not fit into memory, and name the option to lower.

    Estimates are lower bounds, so a run that passes may still not fit.

    Args:
        config: configuration of the run; it lacks the sizes of a pretrained model.
        vocab_size: number of words, as far as known.
        training: whether the model is trained, rather than only evaluated.
        limit: bytes that may be used; default: the memory of the devices.

    Raises:
        InputError: more memory is needed than is available.
    """
    limit = device_bytes() if limit is None else limit
    model, n = config.model, config.length
    length = f"`length={n}`"
    needs: list[tuple[int, str, str]] = []  # number of float32 values, their use, the remedy
    if config.pretrained is None:
        copies = _STATES + (config.average is not None) if training else 1
        use = f"a model with `model.dim={model.dim}`, `model.layers={model.layers}`, {length} and "
        use += f"{vocab_size:,} words"
        needs.append((copies * parameters(config, vocab_size), use, "pass smaller sizes"))
    if training:
        use = f"`batch_size={config.batch_size}` in {config.accumulate} parts, at {length}"
        remedy = "pass a smaller `batch_size` or `length`, or `model.remat` and `model.scan`"
        needs.append((activations(config), use, remedy))
    if training and config.probe_at:
        use = f"the geometry of {vocab_size:,} words at {length}"
        remedy = "pass a smaller `length`, or leave the probe out: `probe_at=()`"
        needs.append((FOLDS * n * vocab_size + 2 * n**2, use, remedy))
    for count, what, remedy in needs:
        check_bytes(_FLOAT * count, what=what, remedy=remedy, limit=limit)


def parameters(config: TrainConfig, vocab_size: int) -> int:
    """Approximate number of parameters of a new model, without its encoding."""
    model = resolved(config).model
    gated = model.activation in ("swiglu", "geglu", "geglu_tanh")
    hidden, kv_heads = model.hidden or 0, model.kv_heads or 0
    attention = 2 * model.dim * (model.dim + max(1, model.dim // model.heads) * kv_heads)
    block = attention + (3 if gated else 2) * model.dim * hidden
    return vocab_size * model.dim + model.layers * block


def activations(config: TrainConfig) -> int:
    """Lower bound on the number of activations that a step keeps for the gradient."""
    model, n = config.model, max(2, config.length // _BUCKETS)
    rows = config.batch_size // config.accumulate
    layers = 1 if model.remat else model.layers
    weights = n if n * n <= SMALL else 1  # longer rows keep one sum of the softmax
    return rows * layers * n * (model.dim + model.heads * weights)

"""Fused attention for accelerators: tokamax's kernels, and JAX's splash attention for TPUs."""

import importlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.encodings.attention_mask import AttentionMask, Mask
from jaxpe.encodings.base import scaled

LANES = 128  # numbers in a vector register of a TPU: splash attention has blocks of multiples
# Below every logit and above splash attention's masked ones: as a sink, it gives 0 where no key is
# allowed, and nothing elsewhere.
NO_SINK = -1e38


def causal_offset(mask: AttentionMask) -> int | None:
    """Index of the first query minus the index of the first key; None unless both are `arange`s.

    Traced orders give None: a fused kernel fixes causality when it is compiled.

    >>> causal_offset(AttentionMask(q_order=np.arange(7, 9), k_order=np.arange(9)))
    7
    """
    orders = mask.q_order, mask.k_order
    if is_traced(*orders) or any(x is None for x in orders):
        return None
    q_order, k_order = (np.asarray(x) for x in orders)
    if any(x.ndim != 1 or not x.size or (np.diff(x) != 1).any() for x in (q_order, k_order)):
        return None
    return int(q_order[0]) - int(k_order[0])


def is_causality(mask: Mask | None) -> bool:
    """True if a mask is causality alone, of queries and keys that begin with the same token."""
    if not isinstance(mask, AttentionMask) or causal_offset(mask) != 0:
        return False
    return mask.k_valid is None and mask.q_segments is None


def tokamax_attention(*arrays: Array | None, **options: Any) -> Array:
    """`tokamax.dot_product_attention`, which chooses a kernel for the device.

    Raises:
        ImportError: tokamax is not installed.
    """
    try:
        tokamax = importlib.import_module("tokamax")
    except ModuleNotFoundError as error:
        if error.name != "tokamax":
            raise
        raise ImportError(
            "implementation 'tokamax' needs the package tokamax: pip install tokamax"
        ) from error
    return tokamax.dot_product_attention(*arrays, **options)


def splash_lacks(mask: Mask | None) -> str | None:
    """Reason why splash attention cannot compute with a mask or in the session; None if it can."""
    if jax.dtypes.canonicalize_dtype(np.int64) == np.int64:
        return "indices of 64 bits, which jax_enable_x64 makes"
    if mask is None:
        return None
    if not isinstance(mask, AttentionMask):
        return "a mask other than an `AttentionMask`"
    if mask.q_order is None or mask.k_order is None or causal_offset(mask) is not None:
        return None
    return "an order of tokens that is traced, or is not `np.arange`"


def splash_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: AttentionMask | None = None,
    *,
    scale: float | ArrayLike,
    cap: float | None = None,
    sink: ArrayLike | None = None,
    block_size: int = 256,
) -> Array:
    """Splash attention: blocks on a TPU, without those that causality masks as a whole.

    Other devices interpret the kernel, which is slow and only for tests. Arguments are as in
    `attend`. The order of the mask is None or has a `causal_offset`. Blocks have the next multiple
    of 128 tokens.
    """
    mask = AttentionMask() if mask is None else mask
    lead = jnp.broadcast_shapes(*(x.shape[:-3] for x in (q, k, v)))
    n_q, heads, n_k = *q.shape[-3:-1], k.shape[-3]
    offset = causal_offset(mask)
    before = offset is not None and offset <= -n_q  # all queries, of all keys
    if before or not (math.prod(lead) and n_q and n_k):
        return jnp.zeros((*lead, n_q, heads, v.shape[-1]), v.dtype)
    blocks = [min(_multiple(block_size, LANES), _multiple(n, LANES)) for n in (n_q, n_k)]
    lengths = _multiple(n_q, blocks[0]), _multiple(n_k, blocks[1])

    def rows(x: Array, size: int) -> Array:  # [rows, heads, tokens, head_dim]
        x = jnp.pad(x.swapaxes(-2, -3), [(0, 0)] * (x.ndim - 2) + [(0, size - x.shape[-3]), (0, 0)])
        return jnp.broadcast_to(x, (*lead, *x.shape[-3:])).reshape(-1, *x.shape[-3:])

    arrays = rows(scaled(q, scale), lengths[0]), rows(k, lengths[1]), rows(v, lengths[1])
    segments = _segment_ids(mask, lead, (n_q, n_k), lengths)
    sinks = jnp.broadcast_to(jnp.asarray(NO_SINK if sink is None else sink, jnp.float32), heads)
    kernel = _splash_kernel(heads, lengths, blocks, offset, cap)
    out = jax.vmap(kernel, in_axes=(0, 0, 0, 0, None))(*arrays, segments, sinks)[..., :n_q, :]
    return out.reshape(*lead, *out.shape[1:]).swapaxes(-2, -3).astype(v.dtype)


def _multiple(n: int, step: int) -> int:
    return -(-n // step) * step


def _segment_ids(mask: AttentionMask, lead: Any, sizes: Any, lengths: Any) -> Any:
    """Segments of padded queries and keys, `[rows, n]`; None where a query may attend to all.

    Keys that are not valid are in the segment of padding, where no query of the call is.
    """
    segments = mask.q_segments, mask.k_segments
    if segments[0] is None or segments[1] is None:
        segments = np.zeros(sizes[0], int), np.zeros(sizes[1], int)
        if mask.k_valid is None and sizes[1] == lengths[1]:
            return None
    outside = np.iinfo(np.int32).min
    of_queries, of_keys = (jnp.asarray(x, jnp.int32) for x in segments)
    if mask.k_valid is not None:
        of_keys = jnp.where(jnp.asarray(mask.k_valid), of_keys, outside)
    padded = []
    for x, n, length in zip((of_queries, of_keys), sizes, lengths, strict=True):
        x = jnp.broadcast_to(x, (*lead, n)).reshape(-1, n)
        padded.append(jnp.pad(x, [(0, 0), (0, length - n)], constant_values=outside))
    return _splash().SegmentIds(*padded)


def _splash_kernel(heads: int, lengths: Any, blocks: Any, offset: int | None, cap: Any) -> Any:
    """The kernel, of one row; queries are `offset` tokens after keys, or attend to all keys."""
    splash = _splash()
    mask = splash.FullMask(lengths) if offset is None else splash.CausalMask(lengths, offset)
    # Of the output, and of the gradients of keys and of queries; products in whole blocks.
    sizes = splash.BlockSizes(*blocks, None, *blocks, None, *blocks)
    return splash.make_splash_mha(
        splash.MultiHeadMask([mask] * heads), block_sizes=sizes, head_shards=1, q_seq_shards=1,
        attn_logits_soft_cap=cap, interpret=jax.default_backend() != "tpu",
    )  # fmt: skip


def _splash() -> Any:  # its import takes a third of a second
    return importlib.import_module("jax.experimental.pallas.ops.tpu.splash_attention")

"""NoPE Theorem 2: with absolute positions in a hidden state, attention can be relative."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import expand_rank
from jaxpe.geometry.distances.matrices import floating
from jaxpe.theory.audit import Audit, less_equal
from jaxpe.theory.kazemnejad2023.theorem_1_absolute_positions import check_row


@partial(jax.jit, static_argnames=("row", "tolerance"))
def nope_theorem_2(
    logits: Float[ArrayLike, "*batch n n"],
    content: Float[ArrayLike, "*batch n n"],
    hidden: Float[ArrayLike, "*batch2 n dim"],
    *,
    row: int = 2,
    tolerance: float = 0.5,
) -> Audit:
    """Compare attention logits with content − (t − i): "(36)", at keys i ≤ t.

    Kazemnejad et al. (2023), Appendix C.2; holds. Hypothesis "h_3 = t": the hidden state that
    enters the layer holds the positions 1 … n, the largest difference at most half of `tolerance`.
    Conclusion "(36)": the largest |logit − content + (t − i)|, at most `tolerance`; half an offset
    when not given. Measured: the largest `error by offset` t − i = 0 … n − 1, and the `size of
    content`, its largest absolute value.

    Args:
        logits: ⟨q_t, k_i⟩ of queries t and keys i, before the mask.
        content: f_cnt, the part of the logits from all other entries (`jaxpe.nn.content_logits`).
        hidden: input of the layer.
        row: row of the hidden state that holds the position, from 0.
        tolerance: tolerance of differences.

    Raises:
        ValueError: shapes that do not fit each other, or no such row.

    >>> t = jnp.arange(1.0, 4.0)
    >>> hidden = jnp.stack([t, t, t], axis=1)
    >>> alibi = -(t[:, None] - t[None, :])
    >>> nope_theorem_2(alibi, jnp.zeros((3, 3)), hidden).conclusions["(36)"].lhs.item()
    0.0
    """
    logits, content, hidden = floating(logits), floating(content), floating(hidden)
    n = logits.shape[-1]
    if logits.shape != content.shape or logits.shape[-2:] != (n, n) or hidden.shape[-2] != n:
        raise ValueError(
            f"logits have shape {logits.shape}, content {content.shape} and hidden {hidden.shape}: "
            "pass [..., n, n], the same, and [..., n, dim]"
        )
    check_row(hidden, row)
    t = jnp.arange(1, n + 1, dtype=logits.dtype)
    offsets = t[:, None] - t[None, :]
    error = jnp.abs(logits - content.astype(logits.dtype) + expand_rank(offsets, logits.ndim))
    worst = jnp.max(error.reshape(-1, n, n), axis=0)
    coordinate = hidden[..., row].reshape(-1, n).astype(t.dtype)
    return Audit(
        {"h_3 = t": less_equal(jnp.max(jnp.abs(coordinate - t[None, :])), tolerance / 2)},
        {"(36)": less_equal(jnp.max(jnp.tril(worst)), tolerance)},
        {"error by offset": _diagonal_maxima(worst), "size of content": jnp.max(jnp.abs(content))},
    )


def _diagonal_maxima(worst: Array) -> Array:
    """The largest entry of each diagonal on and below the main one, `[n]`."""
    n = worst.shape[-1]
    t, k = jnp.arange(n)[:, None], jnp.arange(n)[None, :]
    return jnp.max(jnp.where(k <= t, jnp.take_along_axis(worst, (t - k) % n, axis=1), 0.0), axis=0)

"""NoPE Theorem 1: a causal decoder without positional encoding recovers absolute positions."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.distances.matrices import floating
from jaxpe.theory.audit import Audit, less_equal


@partial(jax.jit, static_argnames=("bos", "row", "tolerance"))
def nope_theorem_1(
    hidden: Float[ArrayLike, "*batch n dim"],
    weights: Float[ArrayLike, "*batch n n"],
    ids: Int[ArrayLike, "*batch n"],
    *,
    bos: int = 0,
    row: int = 2,
    tolerance: float = 0.25,
) -> Audit:
    """Compare a row of the hidden state with the positions t = 1 … n: "h_3 = t".

    Kazemnejad et al. (2023), Appendix C.1; holds. Hypotheses: "<bos> first", the share of documents
    without a <bos> in front and nowhere else; "causal mask", the largest weight on a later key.
    Conclusions: "(25)", the largest |weight − 1/t| of keys i ≤ t, up to rounding; "h_3 = t", the
    largest |h_3 − t|, at most `tolerance`.

    Measured: the largest `error by position`; `positions told wrong` by rounding h_3 to integers,
    a share; `first told wrong`, the smallest such t, or n + 1 if all are right.

    Args:
        hidden: output of the first layer.
        weights: attention weights of its head with uniform attention.
        ids: ids of the tokens.
        bos: id of <bos>.
        row: row of the hidden state that should hold the position, from 0.
        tolerance: largest |h_3 − t|; with a quarter, differences of two positions are right within
            a half.

    Raises:
        ValueError: shapes that do not fit each other, or no such row.

    >>> t = jnp.arange(1.0, 4.0)
    >>> hidden = jnp.stack([t, t, t], axis=1)
    >>> weights = jnp.tril(1 / t[:, None] * jnp.ones((1, 3)))
    >>> audit = jax.jit(nope_theorem_1)(hidden, weights, jnp.array([0, 5, 7]))
    >>> audit.conclusions["h_3 = t"].holds.item(), audit.measured["first told wrong"].item()
    (True, 4)
    """
    hidden, weights, ids = floating(hidden), floating(weights), jnp.asarray(ids)
    n = ids.shape[-1]
    if hidden.shape[:-1] != ids.shape or weights.shape != (*ids.shape, n):
        raise ValueError(
            f"hidden has shape {hidden.shape}, weights {weights.shape} and ids {ids.shape}: pass "
            "[..., n, dim], the weights [..., n, n] of one head, and [..., n]"
        )
    check_row(hidden, row)
    t = jnp.arange(1, n + 1, dtype=jnp.int32)
    at = hidden[..., row].reshape(-1, n).astype(jnp.result_type(float))
    error = jnp.abs(at - t.astype(at.dtype)[None, :])
    wrong = jnp.round(at) != t.astype(at.dtype)[None, :]
    even = (1.0 / t.astype(weights.dtype))[None, :, None]
    uneven = jnp.abs(weights.reshape(-1, n, n) - even)
    hypotheses = {
        "<bos> first": less_equal(_violation_share(ids.reshape(-1, n), bos), 0.0),
        "causal mask": less_equal(jnp.max(jnp.triu(weights, 1), initial=0.0), 0.0),
    }
    conclusions = {
        # Of keys i ≤ t; "causal mask" is about later ones.
        "(25)": less_equal(jnp.max(jnp.tril(uneven)), 8 * float(jnp.finfo(weights.dtype).eps)),
        "h_3 = t": less_equal(jnp.max(error), tolerance),
    }
    measured = {
        "error by position": jnp.max(error, axis=0),
        "positions told wrong": jnp.mean(wrong.astype(at.dtype)),
        "first told wrong": jnp.min(jnp.where(wrong, t[None, :], n + 1)),
    }
    return Audit(hypotheses, conclusions, measured)


def _violation_share(ids: Array, bos: int) -> Array:
    """Share of documents that do not have a <bos> in front and nowhere else."""
    right = (ids == bos).sum(axis=1) == 1
    return jnp.mean(~(right & (ids[:, 0] == bos)), dtype=jnp.result_type(float))


def check_row(hidden: Array, row: int) -> None:
    """Raise for a number that is no row of the hidden state."""
    if not 0 <= row < hidden.shape[-1]:
        raise ValueError(f"row={row} is none of the {hidden.shape[-1]} rows of the hidden state")

"""Theorem 1: without positional signal a transformer commutes with permutations."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int

from jaxpe._core.arrays import ArrayLike
from jaxpe.theory.audit import Audit, less_equal


@partial(jax.jit, static_argnames=("f", "tolerance"))
def theorem_1(
    f: Callable[[Array], Array],
    ids: Int[ArrayLike, "rows n"],
    permutations: Int[ArrayLike, "count n"],
    *,
    tolerance: float | None = None,
) -> Audit:
    """Compare f of permuted tokens with permuted f of tokens: "equivariant".

    Cirrincione (2026), Section 3; reproduced under a stated reading. Its left side is the
    largest |f(t_σ)_i − f(t)_σ(i)| over rows and permutations, t_σ = (t_σ(1), …), as a share of the
    largest |f(t)|; 0 where f is 0. Measured: this `deviation` by permutation, the `deviation as
    printed` of f(t_σ)_σ(i) from f(t)_i, and `size`, the largest |f(t)|.

    Args:
        f: function from a row of tokens `[n]` to its outputs `[n, ...]`; compiled once for the same
            function.
        ids: rows of tokens.
        permutations: permutations of 0 … n − 1.
        tolerance: deviation allowed for rounding; 1000 eps of the outputs when None.

    Raises:
        ValueError: an f without an output for each position.

    >>> embeddings = jnp.array([[0.0], [1.0], [5.0]])
    >>> alone = lambda ids: embeddings[ids]
    >>> before = lambda ids: jnp.cumsum(embeddings[ids], axis=0)
    >>> ids, cycle = np.array([[0, 1, 2]]), np.array([[1, 2, 0]])
    >>> audits = [theorem_1(f, ids, cycle) for f in (alone, before)]
    >>> [audit.conclusions["equivariant"].holds.item() for audit in audits]
    [True, False]
    >>> theorem_1(alone, ids, cycle).measured["deviation as printed"].tolist()
    [1.0]
    """
    ids = jnp.asarray(ids)
    straight = jax.vmap(f)(ids)
    if straight.shape[:2] != ids.shape:
        raise ValueError(
            f"f gives {straight.shape[1:]} for {ids.shape[1]} tokens: pass a function with one "
            "output for each position, before any pooling"
        )
    size = jnp.max(jnp.abs(straight))
    over = jnp.where(size > 0, size, 1.0)

    def deviations(order: Array) -> tuple[Array, Array]:
        permuted = jax.vmap(f)(ids[:, order])
        right, printed = permuted - straight[:, order], permuted[:, order] - straight
        return jnp.max(jnp.abs(right)) / over, jnp.max(jnp.abs(printed)) / over

    deviation, printed = jax.lax.map(deviations, permutations)
    eps = float(jnp.finfo(straight.dtype).eps)
    allowed = 1000 * eps if tolerance is None else tolerance
    return Audit(
        {},
        {"equivariant": less_equal(jnp.max(deviation), allowed)},
        {"deviation": deviation, "deviation as printed": printed, "size": size},
    )

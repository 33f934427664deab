"""Remark 8: how many parameters does the positional matrix need, and does descent find them?"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry.distances.matrices import (
    Distances,
    as_distances,
    centre_rows,
    distances_from_gram,
    floating,
    gram_matrix,
    inner_products,
)
from jaxpe.geometry.distances.stress import stress
from jaxpe.geometry.mds.classical import classical_mds
from jaxpe.geometry.mds.smacof import smacof
from jaxpe.theory.audit import Audit, less, less_equal
from jaxpe.theory.lipschitz import share


class LowRankDescent(NamedTuple):
    """Factors A and B after gradient descent, and the criterion before each step.

    Attributes:
        A: float `[n, r]`.
        B: float `[d, r]`.
        losses: float `[steps]`, the criterion before each step.
    """

    A: Float[Array, "n r"]
    B: Float[Array, "d r"]
    losses: Float[Array, " steps"]


@partial(jax.jit, static_argnames=("width", "ranks", "max_iterations"))
def remark_8(
    D: Distances | Real[ArrayLike, "n n"],
    *,
    width: int,
    ranks: tuple[int, ...] = (1, 2, 3, 7),
    max_iterations: int = 1000,
) -> Audit:
    """Stress and parameters by rank, and the parameter count of Remark 8.

    Cirrincione (2026), Section 5.4; reproduced under a stated reading. With r = rank(B) and n the
    positions present. Hypothesis "r < d". Conclusions: "exact at r", the stress of P_MDS of rank r
    against n² eps, which holds for Euclidean distances; "over-parametrised", r(n + d − r) ≤ n d,
    since n d − r(n + d − r) = (n − r)(d − r). The published count r(n + d) includes r² numbers of
    the change A G, B G⁻ᵀ, and exceeds n d for r > nd/(n + d): see `parameters` and `saving`.

    Measured: `rank`, and by rank of `ranks`: `parameters` r(n + d), `degrees_of_freedom` r(n + d −
    r), `distance_degrees_of_freedom` n r − r(r + 1)/2, `saving` 1 − r(n + d)/(n d),
    `variance_share` (of the eigenvalues above 0), `stress_classical` and `stress_smacof`.

    Args:
        D: target distances (not squared).
        width: d, of the model.
        ranks: ranks, at most n each.
        max_iterations: largest number of iterations of SMACOF, which starts from P_MDS.

    >>> measured = remark_8(hellinger_distances(np.eye(4)), width=8, ranks=(1, 3)).measured
    >>> measured["parameters"].tolist(), measured["degrees_of_freedom"].tolist()
    ([12.0, 36.0], [11.0, 27.0])
    >>> measured["stress_classical"][1].round(6).item()     # rank(B) = 3
    0.0
    """
    D = as_distances(D)
    size = D.values.shape[0]
    if width < 1 or not all(1 <= r <= size for r in ranks):
        raise ValueError(f"width is {width} and ranks {ranks}: pass 1 or more, ranks ≤ {size}")
    dtype = D.values.dtype
    mds = classical_mds(D, dim=size)
    n, d, rank = jnp.sum(D.present).astype(dtype), float(width), mds.rank.astype(dtype)
    r = jnp.asarray(ranks, dtype)

    def stresses(rank: Array) -> tuple[Array, Array]:
        # Columns of 0 stay 0, so that one loop serves every rank.
        P = jnp.where((jnp.arange(size) < rank)[None, :], mds.coordinates, 0.0)
        fit = smacof(D, dim=size, init=P, max_iterations=max_iterations)
        return fit.initial_stress, fit.stress

    classical, best = jax.vmap(stresses)(jnp.asarray(ranks))
    carried = jnp.cumsum(jnp.maximum(mds.eigenvalues, 0.0))
    measured = {
        "rank": mds.rank,
        "parameters": r * (n + d),
        "degrees_of_freedom": r * (n + d - r),
        "distance_degrees_of_freedom": n * r - 0.5 * r * (r + 1.0),
        "saving": 1.0 - r * (n + d) / (n * d),
        "variance_share": share(carried[jnp.asarray(ranks) - 1], carried[-1]),
        "stress_classical": classical,
        "stress_smacof": best,
    }
    conclusions = {
        "exact at r": less_equal(stress(mds.coordinates, D), n**2 * jnp.finfo(dtype).eps),
        "over-parametrised": less_equal(rank * (n + d - rank), n * d),
    }
    return Audit({"r < d": less(rank, d)}, conclusions, measured)


@partial(jax.jit, static_argnames=("criterion", "steps", "momentum"))
def low_rank_descent(
    A: Float[ArrayLike, "n r"],
    B: Float[ArrayLike, "d r"],
    D: Distances | Real[ArrayLike, "n n"],
    *,
    criterion: Literal["stress", "strain"] = "stress",
    steps: int = 2000,
    momentum: float = 0.9,
) -> LowRankDescent:
    """Gradient descent with momentum on the stress, or the strain, of P = A Bᵀ.

    The step for P is the inverse of the criterion's curvature: Σd²/(2n) for the stress (as in
    SMACOF), ‖G‖²/(12 λ₁) for the strain, G the Gram matrix of D. The steps for A and B divide it by
    ‖AᵀA‖ + ‖BᵀB‖.

    >>> D = hellinger_distances(np.eye(3))
    >>> start = low_rank_factors(np.random.default_rng(0).normal(size=(3, 4)), rank=2)
    >>> bool(low_rank_descent(start.A, start.B, D, steps=200).losses[-1] < 1e-9)
    True
    """
    D = as_distances(D)
    start = tuple(floating(X).astype(D.values.dtype) for X in (A, B))
    loss, step = _criterion(criterion, D)

    def update(carry: tuple, _: None) -> tuple[tuple, Array]:
        factors, velocity = carry
        value, gradient = jax.value_and_grad(loss)(factors)
        size = sum(jnp.linalg.norm(inner_products(X.T)) for X in factors)
        rate = step / jnp.where(size > 0, size, 1.0)
        velocity = jax.tree.map(lambda v, g: momentum * v - rate * g, velocity, gradient)
        return (jax.tree.map(jnp.add, factors, velocity), velocity), value

    at_rest = jax.tree.map(jnp.zeros_like, start)
    ((A, B), _), losses = jax.lax.scan(update, (start, at_rest), length=steps)
    return LowRankDescent(A, B, losses)


def _criterion(name: str, D: Distances) -> tuple[Callable[[tuple], Array], Array]:
    """The loss as a function of (A, B), and the step for P = A Bᵀ that it allows."""
    G = gram_matrix(D)
    squares = jnp.sum(G**2)
    squares = jnp.where(squares == 0, 1.0, squares)

    def gram(factors: tuple) -> Array:
        return inner_products(centre_rows(dot(factors[0], factors[1].T), D.present))

    if name == "stress":
        # ∇ = 2(n P − B(P) P) / Σ_{i<j} d², and the sum over all entries has every pair twice.
        step = 0.25 * jnp.sum(D.values**2) / jnp.maximum(jnp.sum(D.present), 1).astype(G.dtype)
        return lambda pair: stress(distances_from_gram(gram(pair), present=D.present), D), step
    if name == "strain":
        step = squares / (12.0 * jnp.maximum(jnp.linalg.norm(G, ord=2), 1e-30))
        return lambda pair: jnp.sum((gram(pair) - G) ** 2) / squares, step
    raise ValueError(f"criterion is {name!r}: pass 'stress' or 'strain'")

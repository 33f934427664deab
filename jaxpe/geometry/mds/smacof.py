"""SMACOF: least-squares multidimensional scaling by majorisation, as a compiled loop."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Real

from jaxpe._core.arrays import ArrayLike, Scalar, checked_jit, dot
from jaxpe.geometry.checks import (
    as_weights,
    check_size,
    checked_counts,
    checked_distances,
    checked_weights,
    host_floats,
    sized,
)
from jaxpe.geometry.distances.matrices import (
    Distances,
    as_distances,
    centre_rows,
    euclidean_distances,
    pair_mask,
)
from jaxpe.geometry.distances.stress import ratio_of_sums
from jaxpe.geometry.mds.classical import classical_mds
from jaxpe.geometry.mds.krylov import krylov_basis, ritz

_MEMORY = 6  # steps from which the curvature is estimated
_PRODUCTS = 24  # products with the Hessian that look for a negative eigenvalue
_LENGTHS = 2.0 ** -np.arange(12)  # lengths of pushes, in units of the size of the targets
_LEAST = 1e-5  # share of the stress that a push must save


class Smacof(NamedTuple):
    """A local minimum of the stress, from SMACOF.

    Attributes:
        coordinates: rows of absent positions are 0.
        stress: Eq. (4) at the coordinates; never above the stress of the start.
        initial_stress: Eq. (4) at the start.
        iterations: evaluations of the stress after the start.
        converged: whether this is a minimum: a Guttman transform moves it by at most `tolerance` of
            its size (√eps where rounding hides less), and no push away from a saddle lowers the
            stress.
    """

    coordinates: Float[Array, "n dim"]
    stress: Float[Array, ""]
    initial_stress: Float[Array, ""]
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]


class _Problem(NamedTuple):
    """Functions of a configuration X, and the size ‖X‖ of one with the target distances.

    Attributes:
        evaluate: the stress, and its gradient G = V X − B(X) X in units of 2 / Σ w d².
        solve: V⁺ G; the Guttman transform is X − V⁺ G.
        coincident: mask of points that coincide with a point at a positive target distance.
    """

    evaluate: Callable[[Array], tuple[Array, Array]]
    solve: Callable[[Array], Array]
    coincident: Callable[[Array], Array]
    size: Array


class _State(NamedTuple):
    """The best configuration, the next trial, and recent differences of X and of G for L-BFGS."""

    X: Array
    stress: Array
    gradient: Array
    trial: Array
    guttman: Array  # whether the trial is a Guttman transform
    steps: Array
    changes: Array
    iterations: Array
    initial: Array
    stationary: Array
    stalled: Array


def _checked_init(init: Any) -> Any:
    """An array, or None for "classical", which is no argument of a jitted function."""
    if not isinstance(init, str):
        return host_floats(init)
    if init != "classical":
        raise ValueError(f"init is {init!r}: pass 'classical' or an array [n, dim]")
    return None


@checked_jit(
    "dim",
    D=checked_distances,
    init=_checked_init,
    weights=checked_weights,
    max_iterations=partial(checked_counts, name="max_iterations"),
    tolerance=partial(checked_counts, name="tolerance"),
)
def smacof(
    D: Distances | Real[ArrayLike, "n n"],
    *,
    dim: int,
    init: Literal["classical"] | Real[ArrayLike, "n dim"] = "classical",
    weights: Real[ArrayLike, "n n"] | None = None,
    max_iterations: int | Array = 1000,
    tolerance: Scalar = 1e-5,
) -> Smacof:
    """Minimise the stress of Eq. (4) by majorisation; the stress never rises.

    The Guttman transform X ← V⁺ B(X) X of De Leeuw (1977) is a step along the gradient that never
    raises the stress. V_ij = −w_ij and B_ij = −w_ij d_ij / δ_ij off the diagonal, and their rows
    sum to 0. Each step is an L-BFGS step (Nocedal 1980) in the metric V, or a Guttman transform
    where that would raise the stress. At a saddle, it pushes along the most negative curvature that
    24 Lanczos steps find; coincident points are pushed apart. The method is deterministic.

    The minimum is local; in one dimension there are many. It has no derivative (a `while_loop` has
    no reverse mode); at a minimum the gradient of `stress` is 0 anyway.

    Args:
        D: target distances (not squared), `Distances` or `[n, n]`.
        dim: number of columns.
        init: "classical" starts from `classical_mds`; or an array `[n, dim]`, whose columns of 0
            stay 0 unless all columns are 0.
        weights: symmetric pair weights w ≥ 0; positions must stay connected through them.
        max_iterations: largest number of evaluations; see `converged`.
        tolerance: stop where a Guttman transform moves the coordinates by less than this share of
            their norm: ‖V⁺ ∇σ‖ Σ w d² ≤ 2 · tolerance · ‖X‖.

    Raises:
        ValueError: distances that `as_distances` refuses, weights that are negative, asymmetric or
            all 0, or a start of another shape. Under `jit`, where numbers cannot be read, invalid
            ones end the loop at once, with a stress of NaN and `converged` False. NaN in the start
            does the same.

    >>> fit = smacof(jnp.sqrt(2.0) * (1 - jnp.eye(3)), dim=1)   # three one-hots on a line
    >>> round(fit.stress.item(), 6) == round(1 / 9, 6)
    True
    """
    check_size("dim", dim, each=10 * (_MEMORY + _PRODUCTS))
    D = as_distances(D)
    if init is None or isinstance(init, str):
        start = classical_mds(D, dim=dim).coordinates
        columns = jnp.ones(dim, bool)
    else:
        start = sized(init, "init", f"{len(D.present)} {dim}")
        start = jnp.where(D.present[:, None], start, 0.0)
        columns = jnp.any(start != 0, axis=0)
        columns |= ~jnp.any(columns)
    problem = _problem(D, weights, start.dtype)
    moves = (D.present[:, None] & columns[None, :]).astype(start.dtype)

    def unfinished(state: _State) -> Array:
        ended = state.stationary | state.stalled | jnp.isnan(state.stress)
        return (state.iterations < max_iterations) & ~ended

    def descend_and_push(state: _State) -> _State:
        state = jax.lax.while_loop(unfinished, partial(_step, problem, tolerance), state)
        return jax.lax.cond(
            state.stationary, partial(_escaped_state, problem, moves), lambda x: x, state
        )

    state = jax.lax.while_loop(unfinished, descend_and_push, _first_state(start))
    return Smacof(state.X, state.stress, state.initial, state.iterations, state.stationary)


def _first_state(X: Array) -> _State:
    """State whose first step evaluates X."""
    past, no = jnp.zeros((_MEMORY, *X.shape), X.dtype), jnp.zeros((), bool)
    unknown = jnp.full((), jnp.inf, X.dtype)
    before = jnp.full((), -1, jnp.int32)
    return _State(X, unknown, past[0], X, no, past, past, before, unknown, no, no)


def _step(problem: _Problem, tolerance: Scalar, state: _State) -> _State:
    """Evaluate the trial, take it unless the stress rises, and choose the next."""
    eps = float(jnp.finfo(state.X.dtype).eps)
    value, gradient = problem.evaluate(state.trial)
    initial = jnp.where(state.iterations < 0, value, state.initial)
    better = ~(value > state.stress * (1.0 + 8.0 * eps))  # NaN ends the loop
    step, change = state.trial - state.X, gradient - state.gradient
    convex = better & (jnp.sum(step * change) > 0)
    steps, changes = (
        jnp.where(convex, jnp.roll(past, -1, axis=0).at[-1].set(new), past)
        for past, new in ((state.steps, step), (state.changes, change))
    )
    X = jnp.where(better, state.trial, state.X)
    value = jnp.where(better, value, state.stress)
    gradient = jnp.where(better, gradient, state.gradient)
    plain = problem.solve(gradient)
    trial = X - jnp.where(better, _quasi_newton(problem, steps, changes, gradient), plain)
    # If not even a Guttman transform lowers the stress, the rest is rounding.
    stalled = state.guttman & ~better
    least = jnp.where(stalled, jnp.maximum(tolerance, eps**0.5), tolerance)
    # An exact fit has a stress of rounding errors only, which need not fall any more.
    exact = value <= len(X) * eps**2
    stationary = exact | (jnp.linalg.norm(plain) <= least * jnp.linalg.norm(X))
    counted = state.iterations + 1
    return _State(
        X, value, gradient, trial, ~better, steps, changes, counted, initial, stationary, stalled
    )


def _quasi_newton(problem: _Problem, steps: Array, changes: Array, gradient: Array) -> Array:
    """L-BFGS direction: the inverse Hessian times the gradient; V⁺ before any step."""
    products = jnp.sum(steps * changes, axis=(1, 2))
    convex_steps = products > 0
    inverse = jnp.where(convex_steps, 1.0 / jnp.where(convex_steps, products, 1.0), 0.0)
    past = (steps, changes, inverse)

    def back(rest: Array, pair: tuple[Array, ...]) -> tuple[Array, Array]:
        step, change, scale = pair
        share = scale * jnp.sum(step * rest)
        return rest - share * change, share

    def forth(move: Array, pair: tuple[Array, ...]) -> tuple[Array, None]:
        step, change, scale, share = pair
        return move + (share - scale * jnp.sum(change * move)) * step, None

    rest, shares = jax.lax.scan(back, gradient, past, reverse=True)
    # The scale of Liu and Nocedal (1989), sᵀy / yᵀ V⁺ y of the last step.
    curvature = jnp.sum(changes[-1] * problem.solve(changes[-1]))
    last = convex_steps[-1]
    scale = jnp.where(last, products[-1] / jnp.where(last, curvature, 1.0), 1.0)
    scale = jnp.minimum(scale, 2.0)  # twice the step of the Guttman transform never fails
    return jax.lax.scan(forth, scale * problem.solve(rest), (*past, shares))[0]


def _escaped_state(problem: _Problem, moves: Array, state: _State) -> _State:
    """State pushed off a saddle; unchanged where no push lowers the stress."""
    X = state.X
    random = jax.random.normal(jax.random.key(0), X.shape, X.dtype) * moves
    apart = random * problem.coincident(X)[:, None].astype(X.dtype)
    # The stress has no curvature where a distance is 0, but falls in every direction.
    direction = jnp.where(jnp.any(apart != 0), apart, _least_curved(problem, X, random, moves))
    length = jnp.linalg.norm(direction)
    direction = problem.size * direction / jnp.where(length > 0, length, 1.0)
    lengths = jnp.asarray(np.concatenate([_LENGTHS, -_LENGTHS]), X.dtype)
    values = jax.lax.map(lambda t: problem.evaluate(X + t * direction)[0], lengths)
    best = jnp.argmin(values)
    pushed = _first_state(X + lengths[best] * direction)._replace(
        stress=values[best], iterations=state.iterations, initial=state.initial
    )
    lower = values[best] < (1.0 - _LEAST) * state.stress
    return jax.tree.map(partial(jnp.where, lower), pushed, state)


def _least_curved(problem: _Problem, X: Array, start: Array, moves: Array) -> Array:
    """Direction of the least eigenvalue of the Hessian, by Lanczos' method."""

    def apply(v: Array) -> Array:
        _, image = jax.jvp(lambda X: problem.evaluate(X)[1], (X,), (v.reshape(X.shape),))
        return -(image * moves).reshape(-1, 1)

    steps = min(_PRODUCTS, X.size)
    basis = krylov_basis(apply, start.reshape(-1, 1), jax.random.key(0), steps)
    return ritz(*basis, 1)[0].reshape(X.shape) * moves


def _problem(D: Distances, weights: Real[ArrayLike, "n n"] | None, dtype) -> _Problem:
    """Problem of a matrix of targets."""
    w, inverse = pair_mask(D.present).astype(dtype), None
    if weights is not None:
        w = jnp.where(w > 0, as_weights(weights, w.shape, dtype=dtype), 0.0)
        inverse = _generalised_inverse(w)
    count = jnp.maximum(jnp.sum(D.present.astype(dtype)), 1.0)
    target = D.values.astype(dtype)
    squares = jnp.sum(w * target**2)

    def distances(X: Array) -> Array:
        return euclidean_distances(X, present=D.present).values

    def evaluate(X: Array) -> tuple[Array, Array]:
        delta = distances(X)
        apart = delta > 0
        pull = w - jnp.where(apart, w * target / jnp.where(apart, delta, 1.0), 0.0)
        gradient = jnp.sum(pull, axis=1)[:, None] * X - dot(pull, X)
        return ratio_of_sums(jnp.sum(w * (delta - target) ** 2), squares), gradient

    def solve(gradient: Array) -> Array:
        if inverse is None:
            return gradient / count
        return centre_rows(dot(inverse, gradient), D.present)

    def coincident(X: Array) -> Array:
        return jnp.any((distances(X) == 0) & (w * target > 0), axis=1)

    size = jnp.sqrt(jnp.sum(target**2) / (2.0 * count))
    return _Problem(evaluate, solve, coincident, size)


def _generalised_inverse(w: Array) -> Array:
    """S^−½ L⁺ S^−½ with L = S^−½ V S^−½, V the weights' Laplacian and S its diagonal."""
    # It differs from V⁺ by translations only, and keeps the digits of positions with tiny weights,
    # which V⁺ in float32 treats as disconnected.
    degree = jnp.sum(w, axis=1)
    root = jnp.where(degree > 0, 1.0 / jnp.sqrt(jnp.where(degree > 0, degree, 1.0)), 0.0)
    scale = root[:, None] * root[None, :]
    L = jnp.diag((degree > 0).astype(w.dtype)) - scale * w
    return scale * jnp.linalg.pinv(L, hermitian=True)

"""Gradient flow on positions: closed form, fixed point, and solution by an ODE solver."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxpe._core.arrays import ArrayLike, dot, is_traced
from jaxpe._core.errors import require
from jaxpe.geometry.distances.matrices import floating, safe_sqrt
from jaxpe.ntk._relaxation import relaxed
from jaxpe.ntk.linear import linearize


class FixedPoint(NamedTuple):
    """Fixed point of the flow: the solution of α P = b of least norm.

    Attributes:
        positions: α⁺ b, `[n, d]`: α⁻¹ b where α is regular.
        condition: largest over smallest eigenvalue of α in absolute value; inf for a singular α.
        rank: number of eigenvalues that count as nonzero.
        singular: whether any eigenvalue counts as zero.
        residual: ‖α P − b‖ / ‖b‖, 0 for b = 0. If it exceeds rounding, b is outside the range of α,
            and the flow grows without bound along its part outside.
        stable: whether no eigenvalue is negative; otherwise the flow leaves its fixed point.
    """

    positions: Float[Array, "n d"]
    condition: Float[Array, ""]
    rank: Int32[Array, ""]
    singular: Bool[Array, ""]
    residual: Float[Array, ""]
    stable: Bool[Array, ""]


class GradientFlow(NamedTuple):
    """The flow Ṗ = −α P + b from P_0, solved by the eigenvectors of α.

    Derivatives of `at` and of the positions of `fixed_point` are right where eigenvalues repeat;
    derivatives of `eigenvectors` are not.

    Attributes:
        eigenvalues: eigenvalues of α, ascending; m is n, or n·d for a kernel `[n, d, n, d]`.
        eigenvectors: eigenvectors in columns.
        kernel: α.
        start, forcing: P_0 and b in the shape `[m, k]`, k = d or 1.
        shape: zeros in the shape of the positions.
    """

    eigenvalues: Float[Array, " m"]
    eigenvectors: Float[Array, "m m"]
    kernel: Float[Array, "m m"]
    start: Float[Array, "m k"]
    forcing: Float[Array, "m k"]
    shape: Float[Array, "n d"]

    def at(self, time: Float[ArrayLike, ""] | float) -> Float[Array, "n d"]:
        """Positions at a time ≥ 0, finite for finite times even where α is singular.

        P(t) = P_0 + (1 − e^(−αt))α⁻¹ (b − αP_0), where (1 − e^(−λt))/λ is t for λ = 0. Inf or NaN
        where a negative λ makes e^(−λt) larger than floats reach.
        """
        every = jnp.ones(self.eigenvalues.shape, bool)
        velocity = self.forcing - dot(self.kernel, self.start)
        moved = self._relaxed(velocity, time, every)
        return (self.start + moved).reshape(self.shape.shape)

    def fixed_point(self, *, rtol: float | None = None) -> FixedPoint:
        """The limit of the flow; eigenvalues below `rtol` (m·eps) of the largest count as zero."""
        size = jnp.abs(self.eigenvalues)
        rtol = self._rtol() if rtol is None else rtol
        largest = jnp.max(size)
        nonzero = self.inverse_eigenvalues(rtol=rtol) != 0
        lost = jnp.where(nonzero[:, None], 0.0, dot(self.eigenvectors.T, self.forcing))
        singular = ~jnp.all(nonzero)
        least = jnp.min(jnp.where(nonzero, size, largest))
        return FixedPoint(
            positions=self._relaxed(self.forcing, jnp.inf, nonzero).reshape(self.shape.shape),
            condition=jnp.where(singular, jnp.inf, largest / least),
            rank=jnp.sum(nonzero, dtype=jnp.int32),
            singular=singular,
            residual=jnp.linalg.norm(lost) / _nonzero_norm(jnp.linalg.norm(self.forcing)),
            stable=jnp.all(self.eigenvalues >= -rtol * largest),
        )

    def inverse_eigenvalues(self, *, rtol: float | None = None) -> Float[Array, " m"]:
        """Eigenvalues of the pseudo-inverse: 1/λ, and 0 for eigenvalues that count as zero."""
        size = jnp.abs(self.eigenvalues)
        nonzero = size > (self._rtol() if rtol is None else rtol) * jnp.max(size)
        return jnp.where(nonzero, 1.0 / jnp.where(nonzero, self.eigenvalues, 1.0), 0.0)

    def _rtol(self) -> float:
        return self.eigenvalues.shape[0] * float(jnp.finfo(self.eigenvalues.dtype).eps)

    def _relaxed(self, velocity: Array, time: ArrayLike | float, nonzero: Array) -> Array:
        eigenpairs = lax.stop_gradient((self.eigenvalues, self.eigenvectors))
        time = jnp.asarray(time, self.eigenvalues.dtype)
        return relaxed(self.kernel, *eigenpairs, velocity, time, nonzero)


def gradient_flow(
    alpha: Float[ArrayLike, "..."], b: Float[ArrayLike, "..."], P_0: Float[ArrayLike, "..."]
) -> GradientFlow:
    """Solve Ṗ = −α P + b from P_0: Eq. (6) of Cirrincione (2026), in closed form.

    Args:
        alpha: symmetric, `[n, n]` (equal for every coordinate, as in the paper) or `[n, d, n, d]`,
            such as from `positional_ntk`. Its symmetric part is taken.
        b: `[n, d]`, `positional_forcing` at P_0 plus α P_0, so the flow starts along −∂loss/∂P. The
            paper's b, for P_0 ≈ 0, leaves the second term out.
        P_0: start of the flow, `[n, d]`.

    Raises:
        ValueError: shapes that do not fit each other.

    >>> alpha = jnp.diag(jnp.array([1.0, 0.0]))
    >>> flow = gradient_flow(alpha, jnp.ones((2, 1)), jnp.zeros((2, 1)))
    >>> [round(p, 3) for p in flow.at(3.0).ravel().tolist()]
    [0.95, 3.0]
    >>> end = flow.fixed_point()
    >>> end.positions.ravel().tolist(), end.singular.item(), round(end.residual.item(), 3)
    ([1.0, 0.0], True, 0.707)
    """
    alpha, b, P_0 = (floating(x, name) for x, name in ((alpha, "alpha"), (b, "b"), (P_0, "P_0")))
    if P_0.ndim != 2 or not P_0.size:
        raise ValueError(f"P_0 has shape {P_0.shape}: pass [n, d] of at least one number")
    full_shape = (*P_0.shape, *P_0.shape)
    if b.shape != P_0.shape or alpha.shape not in (full_shape, (P_0.shape[0],) * 2):
        raise ValueError(
            f"alpha has shape {alpha.shape}, b {b.shape} and P_0 {P_0.shape}: pass b and P_0 "
            "[n, d], and alpha [n, n] or [n, d, n, d]"
        )
    if alpha.ndim == 4:
        alpha = alpha.reshape(P_0.size, P_0.size)
        b, start = b.reshape(-1, 1), P_0.reshape(-1, 1)
    else:
        start = P_0
    kernel = (alpha + alpha.T) / 2
    eigenvalues, eigenvectors = jnp.linalg.eigh(kernel)
    return GradientFlow(eigenvalues, eigenvectors, kernel, start, b, jnp.zeros_like(P_0))


def solve_flow(
    velocity: Callable[[Array], Array],
    P_0: Float[ArrayLike, "n d"],
    times: Float[ArrayLike, " t"],
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    max_steps: int = 100_000,
) -> Float[Array, "t n d"]:
    """Follow Ṗ = velocity(P) by an adaptive Runge–Kutta method (diffrax, Tsitouras 5(4)).

    It is for nonlinear velocities, such as the gradient of the real loss, and for checks of
    `gradient_flow`.

    Args:
        velocity: `[n, d] -> [n, d]`.
        P_0: start of the flow, at time 0.
        times: ascending and not negative; other concrete times raise `ValueError`.
        rtol, atol: tolerances of the step size control.
        max_steps: largest number of steps; more raise an error.

    >>> jnp.round(solve_flow(lambda P: -P, jnp.ones((1, 1)), jnp.array([0.0, 1.0])), 4).tolist()
    [[[1.0]], [[0.3679]]]
    """
    diffrax = require("diffrax", extra="ntk")
    if not is_traced(times):
        _check_times(np.asarray(times))
    P_0, times = jnp.asarray(P_0), jnp.asarray(times)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(jax.tree_util.Partial(_velocity_at, velocity)),
            diffrax.Tsit5(),
            t0=0.0,
            t1=times[-1],
            dt0=None,
            y0=P_0,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
            max_steps=max_steps,
        )
    return solution.ys


# A separate function, so that diffrax compiles once for the same velocity.
def _velocity_at(velocity: Callable[[Array], Array], t: Array, P: Array, args: None) -> Array:
    return velocity(P)


def _check_times(times: np.ndarray) -> None:
    if times.size == 0:
        raise ValueError("times is empty: pass at least one time to see the flow at")
    if not times.min() >= 0:
        raise ValueError(f"times has {times.min()}: pass times from 0 on, where the flow starts")
    descents = np.flatnonzero(np.diff(times) < 0)
    if descents.size:
        first, second = times[descents[0] :][:2]
        raise ValueError(f"times has {first} before {second}: pass them ascending")


class TrainingGap(NamedTuple):
    """A model and its linearisation, trained side by side.

    Attributes:
        losses: losses of the model before each step and after the last, `[steps + 1]`.
        linear_losses: losses of the linearisation.
        output_distance: ‖f − f_lin‖ / ‖f_0‖ of the outputs, likewise; ‖f − f_lin‖ for f_0 = 0, as
            with a readout initialised to 0.
        moved: ‖params − params_0‖ / ‖params_0‖ of the model; ‖params‖ for params_0 = 0.
    """

    losses: Float[Array, " steps1"]
    linear_losses: Float[Array, " steps1"]
    output_distance: Float[Array, " steps1"]
    moved: Float[Array, " steps1"]


@partial(jax.jit, static_argnames=("f", "loss", "optimizer", "steps"))
def linearised_training(
    f: Callable[[Any, Any], Array],
    loss: Callable[[Array], Array],
    params: Any,
    x: Any,
    *,
    optimizer: Any,
    steps: int,
) -> TrainingGap:
    """Train a model and its linearisation with full batches, and measure how far they diverge.

    Args:
        f, loss: `(params, x) -> outputs` and `outputs -> scalar`.
        params: initial parameters of both, at which the model is linearised.
        x: the whole batch.
        optimizer: Optax optimizer; compiled once for the same f, loss and optimizer.
        steps: number of updates.

    >>> import optax
    >>> f = lambda w, x: jnp.tanh(x * w)
    >>> loss = lambda y: jnp.mean((y - 1) ** 2)
    >>> gap = linearised_training(
    ...     f, loss, jnp.array(0.5), jnp.ones(3), optimizer=optax.sgd(0.1), steps=5)
    >>> bool(gap.losses[-1] < gap.losses[0]), gap.output_distance[0].item()
    (True, 0.0)
    """
    models = (f, linearize(f, params))

    def one(model, state):
        def objective(params):
            outputs = model(params, x)
            return loss(outputs), outputs

        params, opt_state = state
        value_and_outputs, gradient = jax.value_and_grad(objective, has_aux=True)(params)
        with jax.numpy_dtype_promotion("standard"):  # Optax does not support strict promotion
            updates, opt_state = optimizer.update(gradient, opt_state, params)
        params = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates)
        return (params, opt_state), value_and_outputs

    def step(states, _):
        moved = _norm(jax.tree.map(jnp.subtract, states[0][0], params))
        states, values_and_outputs = zip(*map(one, models, states), strict=True)
        (value, y), (linear_value, y_linear) = values_and_outputs
        return states, (TrainingGap(value, linear_value, _norm(y - y_linear), moved), _norm(y))

    start = (params, optimizer.init(params))
    # One more step records the result of the last update, without another compilation.
    _, (gap, outputs) = lax.scan(step, (start, start), length=steps + 1)
    return gap._replace(
        output_distance=gap.output_distance / _nonzero_norm(outputs[0]),
        moved=gap.moved / _nonzero_norm(_norm(params)),
    )


def _norm(tree: Any) -> Array:
    return safe_sqrt(jnp.asarray(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))))


def _nonzero_norm(norm: Array) -> Array:
    return jnp.where(norm == 0, 1.0, norm)

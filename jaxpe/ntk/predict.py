"""Gradient flow on the mean squared error, in closed form, for a model linear in its parameters."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike, dot, is_traced
from jaxpe.geometry.distances.matrices import floating
from jaxpe.ntk._checks import Axes, output_axes
from jaxpe.ntk._relaxation import relaxed


class MsePrediction(NamedTuple):
    """Outputs at the requested times, with rank and condition of the kernel.

    Attributes:
        train: `[*times, *y_train.shape]`.
        test: `[*times, *test outputs]`; None without test inputs.
        singular: whether eigenvalues of the kernel (with the ridge) are 0 to rounding, at most
            size · eps · max λ. Nothing moves along these, as with the pseudo-inverse.
        rank: number of eigenvalues above that bound.
        condition: the largest over the smallest of these eigenvalues, 1 if there is none.
    """

    train: Float[Array, "..."]
    test: Float[Array, "..."] | None
    singular: Bool[Array, ""]
    rank: Int[Array, ""]
    condition: Float[Array, ""]


def predict_mse(
    kernel_train_train: Float[ArrayLike, "..."],
    y_train: Float[ArrayLike, "..."],
    *,
    learning_rate: float = 1.0,
    ridge: float = 0.0,
    trace_axes: Axes = (-1,),
) -> Callable[..., MsePrediction]:
    """Outputs of a linearised model under gradient flow on the mean squared error.

    The loss is ½‖f − y‖²/size + ½ρ‖θ − θ₀‖²/size, with size the numbers in y_train, as in
    neural-tangents' `gradient_descent_mse`; after time t outputs are

        f_t(x) = f_0(x) + Θ(x, X) (Θ + ρ)⁻¹ (1 − exp(−η t (Θ + ρ)/size)) (y − f_0(X)),

    Eqs. (10) and (11) of Lee et al. (2019) for ρ = 0. η t is time; t counts steps of gradient
    descent as long as η is well below `max_learning_rate`. Training outputs have x = X, also with a
    ridge (neural-tangents then requires k_test_train=k_train_train).

    Args:
        kernel_train_train: symmetric kernel from `empirical_ntk`, with each axis of y_train twice
            and traced axes left out, but no axis in `diagonal_axes`.
        y_train: targets `[n, ...]`.
        learning_rate: η.
        ridge: ρ ≥ 0, in the units of the kernel.
        trace_axes: traced axes of the kernel, along which its block is repeated; () for a kernel
            with all axes.

    Returns:
        `predict(t, fx_train_0, fx_test_0=None, kernel_test_train=None)`; t ≥ 0 is a number or an
        array, None or infinity for the end. fx_train_0 and fx_test_0 are outputs at time 0,
        kernel_test_train is `empirical_ntk(f, x_test, x_train, params)` with the same axes. Call it
        under the same `jit` as the kernel, which is decomposed once. Derivatives of the outputs are
        right where its eigenvalues repeat; `condition` has none.

    Raises:
        ValueError: shapes that do not fit, or a negative ridge; from `predict`, a negative t unless
            traced.

    >>> predict = predict_mse(2.0 * np.eye(2), np.array([[1.0], [2.0]]))
    >>> end = predict(None, np.zeros((2, 1)))
    >>> end.train.ravel().tolist(), end.condition.item()
    ([1.0, 2.0], 1.0)
    """
    y_train = floating(y_train, "y_train")
    kernel = floating(kernel_train_train, "kernel_train_train")
    if not y_train.size:
        raise ValueError(f"y_train has shape {y_train.shape}: pass at least one number")
    if ridge < 0:
        raise ValueError(f"ridge must be at least 0, not {ridge}")
    layout = _Layout.from_shape(y_train.shape, trace_axes)
    matrix = layout.matrix(kernel, "kernel_train_train", columns=y_train.shape)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"kernel_train_train has shape {kernel.shape}, which is not square")
    symmetric = 0.5 * (matrix + matrix.T) + ridge * jnp.eye(len(matrix), dtype=matrix.dtype)
    eigenvalues, V = jnp.linalg.eigh(jax.lax.stop_gradient(symmetric))
    rank, nonzero, condition = _conditioning(eigenvalues)
    size = y_train.size

    def predict(
        t: float | int | ArrayLike | None,
        fx_train_0: Float[ArrayLike, "..."],
        fx_test_0: Float[ArrayLike, "..."] | None = None,
        kernel_test_train: Float[ArrayLike, "..."] | None = None,
    ) -> MsePrediction:
        """Outputs at times t."""
        if t is not None and not is_traced(t) and not np.all(np.asarray(t) >= 0):
            raise ValueError(f"t must be at least 0, not {np.min(t)}: outputs start at t = 0")
        times = jnp.asarray(jnp.inf if t is None else t, matrix.dtype)
        start = jnp.asarray(fx_train_0, matrix.dtype)
        if start.shape != y_train.shape:
            raise ValueError(f"fx_train_0 has shape {start.shape}, but y_train {y_train.shape}")
        gap = layout.rows(y_train.astype(matrix.dtype) - start)
        solve = jax.vmap(partial(relaxed, symmetric, eigenvalues, V, gap), (0, None))
        solved = solve(learning_rate / size * times.reshape(-1), nonzero)

        def moved(outputs, to_train):
            change = layout.unrows(dot(to_train[None], solved), outputs.shape)
            change = change.reshape(*times.shape, *outputs.shape)
            return outputs.reshape((1,) * times.ndim + outputs.shape) + change

        test = None
        if fx_test_0 is not None:
            if kernel_test_train is None:
                raise ValueError("outputs on the test set need kernel_test_train")
            outputs = jnp.asarray(fx_test_0, matrix.dtype)
            across = jnp.asarray(kernel_test_train, matrix.dtype)
            columns = y_train.shape
            across = layout.matrix(across, "kernel_test_train", columns=columns, rows=outputs.shape)
            test = moved(outputs, across)
        return MsePrediction(moved(start, matrix), test, rank < len(nonzero), rank, condition)

    return predict


def max_learning_rate(
    kernel: Float[ArrayLike, "..."], *, y_train_size: int | None = None, momentum: float = 0.0
) -> Float[Array, ""]:
    """The learning rate above which gradient descent on the mean squared error diverges.

    2 (1 + momentum) size / λ_max for the loss ½‖f − y‖²/size of a linearised model, the convention
    of neural-tangents: η/size·Θ must have no eigenvalue above 2 (1 + momentum). Infinite for a
    kernel of 0.

    Args:
        kernel: kernel of the training set from `empirical_ntk`, each axis twice.
        y_train_size: numbers in y_train; rows of the kernel when None, which is right for
            trace_axes=().
        momentum: coefficient of heavy-ball momentum, in [0, 1).

    Raises:
        ValueError: a kernel that is not square, or momentum out of range.

    >>> max_learning_rate(np.diag([4.0, 1.0])).item()
    1.0
    """
    kernel = floating(kernel, "kernel")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must lie in [0, 1), not {momentum}")
    if kernel.ndim % 2 or kernel.shape[::2] != kernel.shape[1::2] or not kernel.size:
        raise ValueError(f"kernel has shape {kernel.shape}: pass each axis twice, [n, n, ...]")
    order = (*range(0, kernel.ndim, 2), *range(1, kernel.ndim, 2))
    rows = int(np.prod(kernel.shape[::2]))
    matrix = kernel.transpose(order).reshape(rows, rows)
    largest = jnp.maximum(jnp.linalg.eigvalsh(0.5 * (matrix + matrix.T))[-1], 0.0)
    bound = 2.0 * (1.0 + momentum) * (rows if y_train_size is None else y_train_size)
    return jnp.where(largest > 0, bound / jnp.where(largest > 0, largest, 1.0), jnp.inf)


class _Layout(NamedTuple):
    """Layout of outputs as rows of a matrix."""

    kernel_axes: tuple[int, ...]  # axes that the kernel has, the batch first
    traced: tuple[int, ...]  # axes over which it was traced

    @classmethod
    def from_shape(cls, shape: tuple[int, ...], trace_axes: Axes) -> "_Layout":
        axes = output_axes(shape, trace_axes, ())
        if axes.paired:
            raise ValueError("the batch cannot be among trace_axes here")
        return cls((0, *axes.free), axes.trace)

    def rows(self, outputs: Array) -> Array:
        """`[rows of the kernel, traced]`."""
        count = int(np.prod([outputs.shape[a] for a in self.kernel_axes]))
        return outputs.transpose(*self.kernel_axes, *self.traced).reshape(count, -1)

    def unrows(self, rows: Array, shape: tuple[int, ...]) -> Array:
        """Back from `[times, rows, traced]` to `[times, *shape]`."""
        order = (*self.kernel_axes, *self.traced)
        rows = rows.reshape(len(rows), *(shape[a] for a in order))
        return rows.transpose(0, *(order.index(a) + 1 for a in range(len(order))))

    def matrix(
        self,
        kernel: Array,
        name: str,
        *,
        columns: tuple[int, ...],
        rows: tuple[int, ...] | None = None,
    ) -> Array:
        """A kernel with each axis twice as a matrix; raises for a shape unlike the outputs'."""
        rows = columns if rows is None else rows
        fits = len(rows) == len(columns) and kernel.shape == tuple(
            size for a in self.kernel_axes for size in (rows[a], columns[a])
        )
        if not fits:
            raise ValueError(
                f"{name} has shape {kernel.shape}, which does not fit outputs {rows} and "
                f"{columns} traced over axes {self.traced}: pass each other axis twice, and the "
                "trace_axes of the kernel"
            )
        order = (*range(0, kernel.ndim, 2), *range(1, kernel.ndim, 2))
        count = int(np.prod([rows[a] for a in self.kernel_axes]))
        return kernel.transpose(order).reshape(count, -1)


def _conditioning(eigenvalues: Array) -> tuple[Array, Array, Array]:
    """Number and mask of eigenvalues above rounding, and the ratio of their extremes."""
    eps = jnp.finfo(eigenvalues.dtype).eps
    nonzero = eigenvalues > len(eigenvalues) * eps * jnp.max(jnp.abs(eigenvalues))
    least = jnp.min(jnp.where(nonzero, eigenvalues, jnp.inf))
    some = jnp.any(nonzero)
    condition = jnp.where(some, eigenvalues[-1] / jnp.where(some, least, 1.0), 1.0)
    return jnp.sum(nonzero), nonzero, condition

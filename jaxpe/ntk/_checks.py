"""Checks of parameters, inputs and outputs, for all functions of the kernel."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpy.lib.array_utils import normalize_axis_tuple

Params = Any
Inputs = Any
Apply = Callable[[Params, Inputs], Any]
Axes = int | Sequence[int]


class OutputAxes(NamedTuple):
    """The axes of an output by their role in the kernel; 0 is the batch."""

    shape: tuple[int, ...]  # shape of one example's output
    trace: tuple[int, ...]  # axes averaged over their diagonal, ascending
    diagonal: tuple[int, ...]  # axes of which only the diagonal is kept, ascending
    free: tuple[int, ...]  # all other axes except the batch

    @property
    def paired(self) -> bool:
        """Whether only examples of the same row meet."""
        return 0 in self.trace + self.diagonal

    def size(self, axes: Sequence[int]) -> int:
        """Product of the sizes of some axes, without the batch."""
        return math.prod(self.shape[axis - 1] for axis in axes if axis)

    @property
    def outputs(self) -> int:
        """Number of outputs of one example."""
        return math.prod(self.shape)


def check_floating(params: Params) -> None:
    """Raise where a leaf cannot be differentiated, naming its path."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError("params has no arrays: there is nothing to differentiate")
    for path, leaf in leaves:
        dtype = getattr(leaf, "dtype", jnp.result_type(leaf))
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(
                f"params{jax.tree_util.keystr(path)} is {dtype}, not floating: close over it in f, "
                "or cast it"
            )


def batch_size(x: Inputs, name: str) -> int:
    """Number of examples: the leading axis of every leaf."""
    leaves = jax.tree.leaves(x)
    sizes = {jnp.shape(leaf)[:1] for leaf in leaves}
    if len(sizes) != 1 or sizes == {()}:
        shapes = [jnp.shape(leaf) for leaf in leaves]
        raise ValueError(f"{name} has leaves of shapes {shapes}: pass one leading axis for all")
    (size,) = sizes.pop()
    if size == 0:
        raise ValueError(f"{name} has no examples")
    return size


def output_of(f: Apply, params: Params, x: Inputs) -> jax.ShapeDtypeStruct:
    """Shape and dtype of f's output, which must be one floating array with the batch in front."""
    out = jax.eval_shape(f, params, x)
    if not isinstance(out, jax.ShapeDtypeStruct):
        raise ValueError(
            f"f returns {type(out).__name__}, not one array: wrap it, as in "
            "lambda params, x: apply(params, x).logits"
        )
    n = batch_size(x, "x")
    if out.shape[:1] != (n,) or out.size == 0:
        raise ValueError(
            f"f maps {n} examples to shape {list(out.shape)}: its output must have the batch as "
            "leading axis, and at least one number"
        )
    return out


def output_axes(shape: tuple[int, ...], trace_axes: Axes, diagonal_axes: Axes) -> OutputAxes:
    """Sort the axes of an output `[batch, ...]`; negative ones count from the end."""
    if len(shape) == 1 and trace_axes in (-1, (-1,), [-1]):
        raise ValueError(
            f"outputs of shape {list(shape)} have no axis but the batch, which trace_axes="
            f"{trace_axes} would average over: pass trace_axes=() for a kernel [n1, n2], or (0,) "
            "if that is meant"
        )
    trace = tuple(sorted(normalize_axis_tuple(trace_axes, len(shape), "trace_axes")))
    diagonal = tuple(sorted(normalize_axis_tuple(diagonal_axes, len(shape), "diagonal_axes")))
    if set(trace) & set(diagonal):
        raise ValueError(
            f"trace_axes={trace} and diagonal_axes={diagonal} share an axis of an output of shape "
            f"{list(shape)}: choose one"
        )
    free = tuple(a for a in range(1, len(shape)) if a not in trace + diagonal)
    return OutputAxes(shape[1:], trace, diagonal, free)

"""The empirical neural tangent kernel of any function, in blocks of bounded memory."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float

from jaxpe._core.arrays import auto_mesh, is_traced
from jaxpe.geometry.checks import check_size
from jaxpe.ntk._blocks import along, between, jacobians, length
from jaxpe.ntk._checks import (
    Apply,
    Axes,
    Inputs,
    OutputAxes,
    Params,
    batch_size,
    check_floating,
    output_axes,
    output_of,
)
from jaxpe.ntk.sensitivity import warn_of_dead_parameters

# Bytes of two blocks of Jacobians, unless two examples take more. Blocks of x2 are computed again
# for each of x1: of 32 examples, 10 outputs and 1M parameters a kernel takes 9.9 CPU seconds and
# 1.1 GB with 2³⁰, 26.0 and 0.35 GB with 2²⁸.
_BUDGET = 2**30
_WARNED = 4  # examples that show whether parameters move the output


def empirical_ntk(
    f: Apply,
    x1: Inputs,
    x2: Inputs | None,
    params: Params,
    *,
    trace_axes: Axes = (-1,),
    diagonal_axes: Axes = (),
    block_size: int | None = None,
    mesh: Mesh | None = None,
    warn: bool = True,
) -> Float[Array, "..."]:
    """The neural tangent kernel Θ = J(x₁) J(x₂)ᵀ, J = ∂f/∂params, over all parameters.

    Jacot et al. (2018). Its axes are as in neural-tangents: the axes of the output in order, batch
    first, each twice in a row: `[n1, n2, a, a, b, b]` for an output `[n, a, b]` and trace_axes=().
    An axis in `diagonal_axes` occurs once. An axis in `trace_axes` is averaged over the diagonal
    and disappears. With the batch in `diagonal_axes` only examples of the same row are paired, `[n,
    ...]`.

    Examples must be independent in f (unlike in batch normalisation). f is traced with a batch of
    one and must accept any batch size. Memory is bounded by blocks of examples, of which two exist
    at a time; Jacobians of x2 are computed again for every block of x1. It is compiled once for the
    same f, has gradients, and `vmap` over params gives an ensemble.

    One `vmap` of `jax.jacrev` forms the Jacobians, and a matrix product the kernel. Each output of
    an example costs a backward pass: let f return those that you need, such as the last token's.

    Args:
        f: `(params, x) -> [batch, ...]`, one floating array. Of `apply =
            jaxpe.nn.functionalize(model)` take one result, as in `lambda p, x: apply(p, x).logits`.
        x1: inputs, an array or a pytree of arrays with a leading batch axis.
        x2: inputs; None means x1, at half the work.
        params: any pytree of floating arrays.
        trace_axes: axes of the output to average over; in the limit of infinite width all outputs
            share a kernel. Outputs `[n]` have no axis -1: pass () for a kernel `[n1, n2]`.
        diagonal_axes: axes of the output of which only the diagonal is computed.
        block_size: examples in a block, which are then differentiated all at once, as suits
            accelerators, and convolutions on a CPU: 16 examples take 0.03 s at once and 0.15 s one
            at a time. When None, two blocks of Jacobians take at most 1 GiB, and examples are
            differentiated one at a time, since backward passes of long rows take more than that.
        mesh: mesh with an axis "data", over which the rows of x1 are sharded; x2=None then saves
            nothing.
        warn: whether to warn, outside transformations, if only one layer has a nonzero Jacobian, as
            with a readout initialised to 0. It costs a gradient of four examples.

    Returns:
        The kernel, float32 or wider.

    Raises:
        ValueError: parameters that are not floating; an output that is empty or not one array with
            the batch in front; axes that do not exist, occur twice, or are the batch where x1 and
            x2 differ in number; invalid options.

    >>> f = lambda params, x: x @ params["w"] + params["b"]
    >>> params = {"w": jnp.ones((2, 3)), "b": jnp.zeros((1, 3))}
    >>> empirical_ntk(f, np.eye(2), None, params).tolist()  # x·xᵀ + 1
    [[2.0, 1.0], [1.0, 2.0]]
    """
    x1, x2, params = jax.tree.map(jnp.asarray, (x1, x2, params))
    axes = _checked_axes(f, x1, x2, params, trace_axes, diagonal_axes)
    if block_size is not None:
        check_size("block_size", block_size)
    if warn and not is_traced(*jax.tree.leaves((x1, params))):
        few = jax.tree.map(lambda x: x[:_WARNED], x1)  # the gradient of all may not fit in memory
        warn_of_dead_parameters(f, params, few)
    mesh = None if mesh is None else auto_mesh(mesh)
    return _compiled_kernel(params, x1, x2, f=f, axes=axes, block_size=block_size, mesh=mesh)


@partial(jax.jit, static_argnames=("f", "axes", "block_size", "mesh"))
def _compiled_kernel(
    params: Params, x1: Inputs, x2: Inputs | None, *, axes: OutputAxes, mesh: Mesh | None, **of: Any
) -> Array:
    kernel = partial(_kernel, axes=axes, **of)
    if mesh is None:
        return _ordered_axes(kernel(params, x1, x2), axes)
    return _ordered_axes(_sharded_kernel(kernel, mesh, params, x1, x2, axes), axes)


def _checked_axes(f, x1, x2, params, trace_axes, diagonal_axes) -> OutputAxes:
    """Axes of the output; raises for arguments that do not fit each other."""
    check_floating(params)
    n1 = batch_size(x1, "x1")
    axes = output_axes(output_of(f, params, x1).shape, trace_axes, diagonal_axes)
    if x2 is not None:
        n2 = batch_size(x2, "x2")
        if axes.paired and n1 != n2:
            raise ValueError(
                f"x1 has {n1} examples and x2 {n2}: a kernel without its off-diagonal in the batch "
                "needs as many; take 0 out of trace_axes and diagonal_axes"
            )
    return axes


def _kernel(
    params: Params,
    x1: Inputs,
    x2: Inputs | None,
    *,
    f: Apply,
    axes: OutputAxes,
    block_size: int | None,
) -> Array:
    """Means over traced outputs, `[n1, n2, diagonal, free, free]` or `[n, ...]`."""
    double = output_of(f, params, x1).dtype == jnp.float64
    dtype = jnp.dtype(jnp.float64 if double else jnp.float32)
    numbers = axes.outputs * sum(leaf.size for leaf in jax.tree.leaves(params))
    n = max(length(x) for x in (x1, x2) if x is not None)
    fits = max(1, _BUDGET // (2 * dtype.itemsize * max(numbers, 1)))
    if x2 is None and n <= 2 * fits:
        fits = n  # one block, which meets itself
    count = -(-n // (block_size or fits))
    size = -(-n // count)  # equal blocks
    prepare = partial(jacobians, f, params, axes=axes, at_once=block_size is not None, dtype=dtype)
    if axes.paired:
        values = along(prepare, x1, x1 if x2 is None else x2, size=size)
    else:
        values = between(prepare, x1, x2, size=size)
    return values / axes.size(axes.trace)


def _sharded_kernel(kernel, mesh, params, x1, x2, axes) -> Array:
    """The kernel with rows of x1 sharded over "data"; the last example fills the last shard."""
    if "data" not in mesh.axis_names:
        raise ValueError(f"the mesh has axes {mesh.axis_names}: name one of them 'data'")
    n, devices = batch_size(x1, "x1"), mesh.shape["data"]
    index = jnp.minimum(jnp.arange(-(-n // devices) * devices), n - 1)
    rows = jax.tree.map(lambda a: a[index], x1)
    others = x1 if x2 is None else x2
    others = jax.tree.map(lambda a: a[index], others) if axes.paired else others
    spread, same = PartitionSpec("data"), PartitionSpec()
    run = jax.shard_map(
        kernel,
        mesh=mesh,
        in_specs=(same, spread, spread if axes.paired else same),
        out_specs=spread,
        check_vma=False,
    )
    return run(params, rows, others)[:n]


def _ordered_axes(values: Array, axes: OutputAxes) -> Array:
    """Axes `[n1, n2, diagonal, free, free]` in the order of the output, each once or twice."""
    if axes.paired:
        values = values.mean(0, keepdims=True) if 0 in axes.trace else values
    lead = values.ndim - 3
    groups = [("batch", i) for i in range(lead)]
    diagonal = [a for a in axes.diagonal if a]
    groups += [(a, 0) for a in diagonal] + [(a, i) for i in range(2) for a in axes.free]
    sizes = [axes.shape[a - 1] for a in (*diagonal, *axes.free, *axes.free)]
    values = values.reshape(*values.shape[:lead], *sizes)
    ordered = sorted(groups[lead:])
    order = [*range(lead), *(groups.index(group) for group in ordered)]
    values = values.transpose(order)
    return values[0] if 0 in axes.trace else values

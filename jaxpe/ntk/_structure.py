"""Structured derivatives: weights used once, in a product or a lookup, have factored Jacobians.

Where y = a·W and W is used nowhere else, ∂f/∂W = Σ_s a_s ⊗ δ_s, with δ = ∂f/∂y and s the rows of
one example (Novak et al. 2022, Section 3.4): f is traced, and evaluated with a variable added to
each such y, by which it is differentiated.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from jaxpe._core.jaxprs import inner_jaxprs
from jaxpe.ntk._checks import Apply, Inputs, Params

# These only move the numbers of a weight, so inner products of its Jacobians do not change. A
# conversion must be to floats, because rounding to integers has no derivative.
ISOMETRIES = ("convert_element_type", "copy", "reshape", "squeeze", "transpose")
MOVES = (*ISOMETRIES, "broadcast_in_dim", "concatenate", "dynamic_slice", "gather", "slice")
CALLS = ("jit", "pjit")


class Use(NamedTuple):
    """Product of a weight with an input, in one example."""

    output: jax.ShapeDtypeStruct
    free: tuple[int, ...]  # axes of the output that come from the weight
    rows: int  # rows s of the input
    inputs: int  # width of a row; of a table, how many rows it has
    outputs: int  # width of a row of the product
    lookup: bool  # whether the weight is a table of which rows are read


class Example(NamedTuple):
    """f of a single example, `(leaves, x) -> output`, as a jaxpr, and the uses that factor."""

    jaxpr: ClosedJaxpr
    uses: dict[int, Use]


class _Leaf(NamedTuple):
    """A value that is a leaf of the parameters."""

    value: Any
    index: int


# (equation with a leaf, its operands, its results) to replacements of the results.
Visit = Callable[[JaxprEqn, Sequence[Any], list[Any]], list[Any]]


def trace_example(f: Apply, params: Params, x: Inputs) -> Example:
    """Trace f of one example of a batch x."""
    leaves, structure = jax.tree.flatten(params)

    def single(leaves, x):
        batch = jax.tree.map(lambda a: a[None], x)
        return f(jax.tree.unflatten(structure, leaves), batch)[0]

    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), x)
    jaxpr = jax.make_jaxpr(single)(leaves, one)
    return Example(jaxpr, _factoring_uses(jaxpr, leaves, one))


def evaluate(
    example: Example, leaves: Sequence[Array], x: Inputs, added: dict[int, Array]
) -> tuple[Array, dict[int, Array]]:
    """The output of one example with `added[leaf]` added to each leaf's product, and its inputs."""
    inputs: dict[int, Array] = {}

    def visit(eqn, values, outs):
        (out, *more) = outs
        for position, value in enumerate(values):
            if isinstance(value, _Leaf) and value.index in added:
                operands = [_plain(v) for v in values]
                if eqn.primitive.name == "conv_general_dilated":
                    out = _convolution(eqn, *operands)
                out = out + added[value.index]
                inputs[value.index] = _input_rows(eqn, operands, position)
        return [out, *more]

    return _plain(_walk_from_leaves(example.jaxpr, leaves, x, visit)), inputs


def forward_flops(jaxpr: Jaxpr) -> int:
    """FLOPs of a jaxpr: products in full, other equations one operation for each output number.

    Equations that only move numbers are free. A loop of unknown length counts once; of branches,
    the most expensive counts.
    """
    return _sum_over(jaxpr, _flops)


def result_numbers(jaxpr: Jaxpr) -> int:
    """Number of entries in all intermediate results of a jaxpr, counted as in `forward_flops`."""
    return _sum_over(jaxpr, _output_numbers)


def largest_result(jaxpr: Jaxpr) -> int:
    """Number of entries in the largest intermediate result."""
    inner = [largest_result(j) for eqn in jaxpr.eqns for j in inner_jaxprs(eqn)]
    return max([*inner, *map(_output_numbers, jaxpr.eqns)], default=0)


def _sum_over(jaxpr: Jaxpr, count: Callable[[JaxprEqn], int]) -> int:
    def total(eqn):
        inner = [_sum_over(j, count) for j in inner_jaxprs(eqn)]
        return max(inner) * eqn.params.get("length", 1) if inner else count(eqn)

    return sum(total(eqn) for eqn in jaxpr.eqns)


def _output_numbers(eqn: JaxprEqn) -> int:
    return sum(math.prod(_shape(v)) for v in eqn.outvars)


def _flops(eqn: JaxprEqn) -> int:
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * _output_numbers(eqn) * math.prod(_shape(eqn.invars[0])[i] for i in contracted)
    if eqn.primitive.name == "conv_general_dilated":
        kernel, spec = _shape(eqn.invars[1]), eqn.params["dimension_numbers"].rhs_spec
        return 2 * _output_numbers(eqn) * math.prod(kernel) // kernel[spec[0]]
    return 0 if eqn.primitive.name in MOVES else _output_numbers(eqn)


def _factoring_uses(jaxpr: ClosedJaxpr, leaves: Sequence[Array], x: Inputs) -> dict[int, Use]:
    """Leaves that are used once, in a product or as a lookup table."""
    uses: dict[int, list[Use | None]] = {}

    def visit(eqn, values, outs):
        for position, value in enumerate(values):
            if isinstance(value, _Leaf):
                uses.setdefault(value.index, []).append(_use(eqn, position))
        return outs

    def run(leaves, x):
        out = _walk_from_leaves(jaxpr, leaves, x, visit)
        if isinstance(out, _Leaf):
            uses.setdefault(out.index, []).append(None)
        return _plain(out)

    jax.eval_shape(run, leaves, x)
    return {leaf: used[0] for leaf, used in uses.items() if len(used) == 1 and used[0]}


def _walk_from_leaves(jaxpr: ClosedJaxpr, leaves: Sequence[Any], x: Inputs, visit: Visit) -> Any:
    marked = [_Leaf(leaf, i) for i, leaf in enumerate(leaves)]
    (out,) = _walk(jaxpr, [*marked, *jax.tree.leaves(x)], visit)
    return out


def _walk(jaxpr: ClosedJaxpr, args: Sequence[Any], visit: Visit) -> list[Any]:
    """Evaluate a jaxpr; `visit` may change the results of equations that a leaf enters."""
    inner = jaxpr.jaxpr
    env = dict(zip(inner.constvars, jaxpr.consts, strict=True))
    env |= dict(zip(inner.invars, args, strict=True))

    def read(v):
        return v.val if isinstance(v, Literal) else env[v]

    for eqn in inner.eqns:
        values = [read(v) for v in eqn.invars]
        leaves = [v for v in values if isinstance(v, _Leaf)]
        if eqn.primitive.name in CALLS:
            outs = _walk(eqn.params["jaxpr"], values, visit)
        else:
            outs = _bind(eqn, values, inner)
            if leaves and _is_isometry(eqn):
                outs = [_Leaf(outs[0], leaves[0].index)]
            elif leaves:
                outs = visit(eqn, values, outs)
        env |= dict(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in inner.outvars]


def _is_isometry(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name not in ISOMETRIES or len(eqn.invars) > 1:
        return False
    return jnp.issubdtype(getattr(eqn.outvars[0].aval, "dtype"), jnp.floating)  # noqa: B009


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Leaf) else value


def _bind(eqn: JaxprEqn, values: Sequence[Any], inside: Jaxpr) -> list[Any]:
    """Outputs of one equation of a jaxpr, evaluated as a jaxpr of its own."""
    pairs = zip(eqn.invars, values, strict=True)
    operands = {v: value for v, value in pairs if isinstance(v, Var)}  # a variable may occur twice
    parts = {"invars": list(operands), "outvars": eqn.outvars, "effects": eqn.effects}
    alone = ClosedJaxpr(inside.replace(constvars=[], eqns=[eqn], **parts), [])
    return jaxpr_as_fun(alone)(*map(_plain, operands.values()))


def _shape(v: Var | Literal) -> tuple[int, ...]:
    return getattr(v.aval, "shape", ())


def _use(eqn: JaxprEqn, position: int) -> Use | None:
    """Use of the operand at that position by an equation, if its Jacobian factors."""
    out, weight = _shape(eqn.outvars[0]), _shape(eqn.invars[position])
    lookup = position == 0 and _is_lookup(eqn)
    numbers: Any = eqn.params.get("dimension_numbers")
    if eqn.primitive.name == "dot_general" and not numbers[1][0]:
        inputs = math.prod(weight[i] for i in numbers[0][position])
        width, ndim = len(weight) - len(numbers[0][position]), len(out)
        free = range(width) if position == 0 else range(ndim - width, ndim)
    elif lookup:
        free, inputs = numbers.offset_dims, weight[0]
    elif position == 1 and _is_plain_convolution(eqn):
        free, inputs = numbers.out_spec[1:2], math.prod(weight) // weight[numbers.rhs_spec[0]]
    else:
        return None
    outputs = math.prod(out[i] for i in free)
    rows = math.prod(out) // max(outputs, 1)
    struct = jax.ShapeDtypeStruct(out, getattr(eqn.outvars[0].aval, "dtype"))  # noqa: B009
    return Use(struct, tuple(free), rows, inputs, outputs, lookup)


def _is_lookup(eqn: JaxprEqn) -> bool:
    """Whether whole rows of a table are gathered by one index each."""
    if eqn.primitive.name != "gather":
        return False
    numbers, shape = eqn.params["dimension_numbers"], _shape(eqn.invars[0])
    return (
        numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
        and not numbers.operand_batching_dims
        and eqn.params["slice_sizes"] == (1, *shape[1:])
    )


def _is_plain_convolution(eqn: JaxprEqn) -> bool:
    """Whether a convolution has no groups, and its output axes, except features, are in order."""
    if eqn.primitive.name != "conv_general_dilated":
        return False
    batch, _, *spatial = eqn.params["dimension_numbers"].out_spec
    return eqn.params["feature_group_count"] == eqn.params["batch_group_count"] == 1 and sorted(
        [batch, *spatial]
    ) == [batch, *spatial]


def _input_rows(eqn: JaxprEqn, values: Sequence[Array], position: int) -> Array:
    """Factor of the weight, `[rows, inputs]`, or the rows looked up, `[rows]`."""
    if eqn.primitive.name == "gather":
        return _table_rows(eqn, *values)
    if eqn.primitive.name == "conv_general_dilated":
        return _patches(eqn, *values)
    other = 1 - position
    contracted = eqn.params["dimension_numbers"][0][other]
    free = [i for i in range(values[other].ndim) if i not in contracted]
    rows = lax.transpose(values[other], (*free, *contracted))
    # The number of rows cannot be left to reshape where there are no inputs.
    return rows.reshape(*(math.prod(values[other].shape[i] for i in x) for x in (free, contracted)))


def _table_rows(eqn: JaxprEqn, table: Array, indices: Array) -> Array:
    """Rows of a table; −1 where an index is outside and nothing is read."""
    rows, last = indices.reshape(-1), table.shape[0] - 1
    if eqn.params["mode"] == lax.GatherScatterMode.CLIP:
        return jnp.clip(rows, 0, last)
    return jnp.where((rows >= 0) & (rows <= last), rows, -1)


def _patches(eqn: JaxprEqn, images: Array, kernel: Array) -> Array:
    """Image patches under the kernel, by a slice for each entry of the kernel."""
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    batch, feature, *spatial = numbers.lhs_spec
    images = lax.transpose(images, (batch, *spatial, feature))
    edges = zip(params["padding"], params["lhs_dilation"], strict=True)
    around = [(low, high, dilation - 1) for (low, high), dilation in edges]
    images = lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *around, (0, 0, 0)])
    strides, dilations = params["window_strides"], params["rhs_dilation"]
    extents = [_shape(eqn.outvars[0])[i] for i in numbers.out_spec[2:]]

    def under(entry):
        starts = [k * dilation for k, dilation in zip(entry, dilations, strict=True)]
        steps = zip(starts, extents, strides, strict=True)
        ends = [start + (count - 1) * stride + 1 for start, count, stride in steps]
        first, last = (0, *starts, 0), (len(images), *ends, images.shape[-1])
        return lax.slice(images, first, last, (1, *strides, 1))

    entries = itertools.product(*(range(kernel.shape[i]) for i in numbers.rhs_spec[2:]))
    stacked = jnp.stack([under(entry) for entry in entries], axis=-2)
    return stacked.reshape(-1, stacked.shape[-2] * stacked.shape[-1])


def _convolution(eqn: JaxprEqn, images: Array, kernel: Array) -> Array:
    """The convolution of an equation, with a transpose that is fast in loops."""
    # Inside loops on CPUs, XLA takes ten times as long for a convolution whose kernel has inputs
    # and outputs in an unusual order, as in JAX's transpose. So the derivative by the images is
    # written as this convolution with both exchanged, whose transpose has the usual order.
    numbers = eqn.params["dimension_numbers"]
    outputs, inputs, *spatial = numbers.rhs_spec
    exchanged = numbers._replace(rhs_spec=(inputs, outputs, *spatial))

    @jax.custom_jvp
    def convolved(images, kernel):
        return eqn.primitive.bind(images, kernel, **eqn.params)

    @convolved.defjvp
    def derivative(at, along):
        turned = jnp.swapaxes(at[1], inputs, outputs)
        params = eqn.params | {"dimension_numbers": exchanged}
        by_images = eqn.primitive.bind(along[0], turned, **params)
        return convolved(*at), by_images + convolved(at[0], along[1])

    return convolved(images, kernel)


def output_rows(use: Use, cotangents: Array) -> Array:
    """Cotangents of a product `[..., *output]` as `[..., rows, outputs]`."""
    lead = cotangents.ndim - len(use.output.shape)
    row_axes = [lead + i for i in range(len(use.output.shape)) if i not in use.free]
    rows = lax.transpose(cotangents, (*range(lead), *row_axes, *(lead + i for i in use.free)))
    return rows.reshape(*cotangents.shape[:lead], use.rows, use.outputs)

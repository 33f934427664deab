"""Cost of an empirical kernel, from sizes alone."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

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
from jaxpe.ntk._structure import (
    Example,
    Use,
    forward_flops,
    largest_result,
    result_numbers,
    trace_example,
)

# Bytes of all blocks of Jacobians together, unless one pair of examples takes more, and of all
# intermediate results of a piece of a block: about a core's cache. On CPUs larger sizes are slower
# and take memory (experiments/benchmarks/ntk.py).
BUDGET, WORKSPACE = 2**28, 2**22


class NtkCost(NamedTuple):
    """Estimated cost of an empirical kernel.

    Attributes:
        flops: FLOPs for the whole kernel.
        block_size: examples in a block, so that two blocks fit in 256 MiB; all examples if x2 is
            None and they fit.
        bytes: bytes of Jacobians and products of such blocks. The kernel, and the pieces of 4 MiB
            or one example that are differentiated at a time, come on top.
    """

    flops: float
    block_size: int
    bytes: float


def ntk_cost(
    f: Apply,
    x1: Inputs,
    x2: Inputs | None,
    params: Params,
    *,
    trace_axes: Axes = (-1,),
    diagonal_axes: Axes = (),
) -> NtkCost:
    """FLOPs and memory of `empirical_ntk`.

    There are N₁ and N₂ examples with O outputs each, and P parameters. The kernel needs Q pairs of
    outputs: O if all are traced or diagonal, O² if none is. FP are the FLOPs of one forward pass
    (of products, counted in the jaxpr). Then whole Jacobians take

        (N₁ + N₂)(1 + 2 O) FP + 2 N₁ N₂ Q P

    FLOPs (more where a table is read: s rows of it are multiplied out as if it were a weight). Let
    a weight of shape (i, k) multiply s rows of one example and nothing else (for a table of which s
    rows are read, i = 1). It then adds 2 s² (i + Q k) for a pair instead of 2 Q i k, and saves 2 O
    s i k for an example, where that is less. See Table 1 of Novak et al. (2022). Not counted: where
    x2 is None about half of the pairs are left out, and Jacobians of x2 are formed once for every
    block of x1.

    Arguments as for `empirical_ntk`.

    >>> f = lambda params, x: jnp.tanh(x @ params)
    >>> jaxpe.ntk.ntk_cost(f, jnp.ones((5, 8)), None, jnp.ones((8, 3))).block_size
    5
    """
    check_floating(params)
    axes = output_axes(output_of(f, params, x1).shape, trace_axes, diagonal_axes)
    n1 = batch_size(x1, "x1")
    n2 = n1 if x2 is None else batch_size(x2, "x2")
    example, leaves = trace_example(f, params, x1), jax.tree.leaves(params)
    return estimate(example, leaves, axes, n1, n2, symmetric=x2 is None)


def estimate(
    example: Example,
    leaves: Sequence[jax.Array],
    axes: OutputAxes,
    n1: int,
    n2: int,
    *,
    symmetric: bool,
) -> NtkCost:
    """The estimate of `ntk_cost` for a traced f."""
    forward, sizes = forward_flops(example.jaxpr.jaxpr), [leaf.size for leaf in leaves]
    outputs = axes.outputs
    factored = leaves_in_factors(example, leaves, axes, n1, n2)
    uses = [example.uses[leaf] for leaf in factored]
    # FLOPs of multiplying weights in the forward pass, and of multiplying out unfactored ones.
    inside = sum(2 * u.rows * sizes[i] for i, u in example.uses.items() if not u.lookup)
    formed = sum(2 * u.rows * sizes[i] for i, u in example.uses.items() if i not in factored)
    jacobian = forward * (1 + outputs) + outputs * (max(forward - inside, 0) + formed)
    unfactored = sum(sizes) - sum(sizes[leaf] for leaf in factored)
    products = axes.pairs * unfactored + sum(_factor_products(use, axes) for use in uses)
    pairs = n1 if axes.paired else n1 * n2
    flops = (n1 + n2) * jacobian + pairs * 2 * products
    per_example = outputs * unfactored + sum(_numbers_in_factors(use, axes) for use in uses)
    entries = axes.pairs / axes.size(axes.trace)
    per_pair = max((use.rows**2 * entries for use in uses), default=entries)
    itemsize = _itemsize(leaves)
    block, numbers = _block(per_example, per_pair, BUDGET / itemsize, n1, n2, symmetric=symmetric)
    return NtkCost(float(flops), block, numbers * itemsize)


def leaves_in_factors(
    example: Example, leaves: Sequence[jax.Array], axes: OutputAxes, n1: int, n2: int
) -> tuple[int, ...]:
    """Leaves whose Jacobians cost fewer multiplications factored than whole."""
    pairs = n1 if axes.paired else n1 * n2

    def cheaper(leaf: int, use: Use) -> bool:
        size = leaves[leaf].size
        unfactored = (n1 + n2) * axes.outputs * use.rows * size + pairs * axes.pairs * size
        return pairs * _factor_products(use, axes) < unfactored

    return tuple(leaf for leaf, use in example.uses.items() if cheaper(leaf, use))


def piece_size(example: Example, leaves: Sequence[jax.Array], axes: OutputAxes) -> int:
    """Examples that may be differentiated at a time."""
    results = result_numbers(example.jaxpr.jaxpr)
    rows = sum(use.rows * use.outputs for use in example.uses.values())
    # For every output, the backward pass stores the rows of products and a few results at a time.
    numbers = results + axes.outputs * (rows + 3 * largest_result(example.jaxpr.jaxpr))
    return max(1, int(WORKSPACE / (numbers * _itemsize(leaves) + 1)))


def _itemsize(leaves: Sequence[jax.Array]) -> int:
    return max(jnp.dtype(leaf.dtype).itemsize for leaf in leaves)


def _block(
    per_example: int, per_pair: float, room: float, n1: int, n2: int, *, symmetric: bool
) -> tuple[int, float]:
    """Examples in a block, and the numbers in two blocks; in one, if it has all examples."""
    alone = per_example * n1 + per_pair * n1**2
    if symmetric and alone <= room:
        return n1, float(alone)
    # 2·per_example·b + per_pair·b² numbers fit the budget, solved for b.
    fits = room / (per_example + math.sqrt(per_example**2 + per_pair * room))
    block = max(1, min(int(fits), max(n1, n2)))
    return block, float(2 * per_example * block + per_pair * block**2)


def _factor_products(use: Use, axes: OutputAxes) -> int:
    """Multiplications for two examples' factors."""
    inputs = 1 if use.lookup else use.inputs
    return use.rows**2 * (inputs + axes.pairs * use.outputs)


def _numbers_in_factors(use: Use, axes: OutputAxes) -> int:
    """Numbers in one example's factors."""
    return use.rows * ((1 if use.lookup else use.inputs) + axes.outputs * use.outputs)

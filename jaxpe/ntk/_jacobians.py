"""Jacobians of single examples, whole or factored, and their inner products."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import dot
from jaxpe.ntk._blocks import in_pieces
from jaxpe.ntk._checks import Inputs, OutputAxes
from jaxpe.ntk._structure import Example, Use, evaluate, output_rows


class Whole(NamedTuple):
    """A whole Jacobian `[n, diagonal, free, trace, parameters]`."""

    values: Array


class Factors(NamedTuple):
    """A factored Jacobian Σ_s a_s ⊗ δ_s."""

    inputs: Array  # a, [n, rows, inputs], or rows of a table [n, rows]
    cotangents: Array  # δ, [n, diagonal, free, trace, rows, outputs]


Jacobian = list[Whole | Factors]


def cotangent_basis(axes: OutputAxes, dtype: jnp.dtype) -> Array:
    """Unit cotangents `[outputs, *shape]` in the order of diagonal, free and traced axes."""
    order = [a - 1 for a in (*axes.diagonal, *axes.free, *axes.trace) if a]
    unit = jnp.eye(axes.outputs, dtype=dtype).reshape(*axes.shape, *axes.shape)
    rest = range(len(axes.shape), 2 * len(axes.shape))
    return unit.transpose(*order, *rest).reshape(axes.outputs, *axes.shape)


def grouped_sizes(axes: OutputAxes) -> tuple[int, int, int]:
    """Numbers of outputs along diagonal, free and traced axes."""
    return axes.size(axes.diagonal), axes.size(axes.free), axes.size(axes.trace)


def jacobians(
    example: Example,
    leaves: Sequence[Array],
    x: Inputs,
    *,
    axes: OutputAxes,
    factored: Sequence[int],
    piece: int,
    dtype: jnp.dtype,
) -> Jacobian:
    """Jacobians of a block of examples x, one for each leaf; leaves in `factored` stay factored.

    `piece` examples are differentiated at a time.
    """
    uses = example.uses
    basis = cotangent_basis(axes, example.jaxpr.out_avals[0].dtype)
    tapped = {leaf: jnp.zeros(use.output.shape, use.output.dtype) for leaf, use in uses.items()}
    unfactored = {leaf: value for leaf, value in enumerate(leaves) if leaf not in uses}
    groups = grouped_sizes(axes)

    def example_jacobian(x):
        def output(unfactored, tapped):
            merged = [unfactored.get(i, leaf) for i, leaf in enumerate(leaves)]
            return evaluate(example, merged, x, tapped)

        _, pull, inputs = jax.vjp(output, unfactored, tapped, has_aux=True)
        return jax.vmap(pull)(basis), inputs

    def piece_jacobians(x):
        (by_leaf, by_product), inputs = jax.vmap(example_jacobian)(x)
        by_index: dict[int, Whole | Factors] = {
            leaf: Whole(values.reshape(len(values), *groups, -1).astype(dtype))
            for leaf, values in by_leaf.items()
        }
        for leaf, cotangents in by_product.items():
            use, rows = uses[leaf], output_rows(uses[leaf], cotangents).astype(dtype)
            rows = rows.reshape(len(rows), *groups, *rows.shape[2:])
            factors = Factors(inputs[leaf] if use.lookup else inputs[leaf].astype(dtype), rows)
            by_index[leaf] = factors if leaf in factored else _full_jacobian(factors, use)
        return [by_index[leaf] for leaf in range(len(leaves))]

    return in_pieces(piece_jacobians, x, size=piece)


def _full_jacobian(factors: Factors, use: Use) -> Whole:
    """The whole Jacobian of a factored one, by a matrix product."""
    inputs, cotangents = factors
    if use.lookup:
        inputs = jax.nn.one_hot(inputs, use.inputs, dtype=cotangents.dtype)
    values = _einsum("nsi,ndftsk->ndftik", inputs, cotangents)
    return Whole(values.reshape(*values.shape[:4], -1))


def inner_products(left: Jacobian, right: Jacobian, *, paired: bool) -> Array:
    """Σ over leaves of J₁ J₂ᵀ: `[n1, n2, diagonal, free, free]`, or `[n, ...]` where paired."""
    products = (_product(a, b, paired) for a, b in zip(left, right, strict=True))
    return sum(products, start=next(products))


def _product(left: Whole | Factors, right: Whole | Factors, paired: bool) -> Array:
    if isinstance(left, Whole) or isinstance(right, Whole):
        assert isinstance(left, Whole) and isinstance(right, Whole)  # noqa: PT018
        return _inner(left.values, right.values, paired)
    dtype = left.cotangents.dtype
    near = _input_gram(left.inputs, right.inputs, paired, dtype)
    row_count = left.cotangents.shape[-2]
    if row_count == 1:
        return near * _inner(left.cotangents[..., 0, :], right.cotangents[..., 0, :], paired)
    # Rows are free axes of the cotangents' product: [..., diagonal, (free, s), (free, u)].
    rows = [jnp.moveaxis(side.cotangents, -2, 3) for side in (left, right)]
    first, second = (a.reshape(*a.shape[:2], -1, *a.shape[4:]) for a in rows)
    both = _inner(first, second, paired)
    both = both.reshape(*both.shape[:-2], *rows[0].shape[2:4], *rows[1].shape[2:4])
    return _einsum("...fsgu,...su->...fg", both, near)


def _inner(left: Array, right: Array, paired: bool) -> Array:
    """Σ over t and p of `[n, d, f, t, p]` and `[m, d, g, t, p]`: one matrix product for each d."""
    if paired:
        return _einsum("ndftp,ndgtp->ndfg", left, right)
    # Matrices with the sum along their rows: other layouts are slow on CPUs.
    (n, d, f), (m, _, g) = left.shape[:3], right.shape[:3]
    sides = (jnp.moveaxis(side, 1, 0) for side in (left, right))
    a, b = (side.reshape(d, side.shape[1] * side.shape[2], -1) for side in sides)
    out = dot(a[0], b[0].T)[None] if d == 1 else dot(a, b.mT)
    return out.reshape(d, n, f, m, g).transpose(1, 3, 0, 2, 4)


def _input_gram(left: Array, right: Array, paired: bool, dtype: jnp.dtype) -> Array:
    """⟨a_s, a_u⟩ of all pairs of rows, `[..., 1, s, u]`; of rows of a table whether they agree."""
    if left.ndim == 3:
        return _inner(left[:, None, :, None], right[:, None, :, None], paired)
    a, b = left[..., :, None], right[..., None, :]
    same = (a == b) & (a >= 0) if paired else (a[:, None] == b[None]) & (a[:, None] >= 0)
    return same[..., None, :, :].astype(dtype)


def _einsum(spec: str, *arrays: Array) -> Array:
    return jnp.einsum(spec, *arrays, precision="highest")

"""Vectors of the encodings that a report compares, made before the corpus is known."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.compiled import compiled
from jaxpe._core.errors import InputError

RANDOM_DRAWS = 8
ALIBI_HEADS = 8
FIXED_WIDTHS = (8, 32, 128)  # at which fixed encodings are compared, beside that of the report

Entries: TypeAlias = tuple[jaxpe.encodings.CatalogueEntry, ...]


class FixedVectors(NamedTuple):
    """Vectors of entries that are the same for every corpus: those without parameters.

    Attributes:
        fixed: bool `[entries]`, which these are.
        padded: `[fixed, widths, n, columns of the widest]`, with zeros beyond their own columns.
        columns: number of their own columns, `[fixed, widths]`.
    """

    fixed: ArrayLike
    padded: ArrayLike
    columns: ArrayLike


class DrawnVectors(NamedTuple):
    """Vectors of entries that are drawn.

    Attributes:
        vectors: of each entry `[draws, n, d]`; None where it is not drawn.
        trainable: masks by entry, for each leaf of its parameters, which numbers receive a
            gradient.
    """

    vectors: tuple[ArrayLike | None, ...]
    trainable: tuple[Sequence[ArrayLike], ...]


def scored_entries(
    names: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> list[jaxpe.encodings.CatalogueEntry]:
    """Encodings of the catalogue with vectors for text that owe nothing to the corpus, and others.

    Without those that are variants of another row, unless they are named.

    Raises `InputError` for a name that is unknown, or an encoding without such vectors.
    """
    suited = [e for e in jaxpe.catalogue() if e.vectors and e.coordinates == 1 and not e.fitted]
    known = [e for e in suited if not e.variant_of]
    further = [e for e in map(jaxpe.encodings.resolve, dict.fromkeys(names)) if e not in known]
    for entry in further:
        if not entry.vectors or entry.coordinates != 1 or entry.fitted:
            raise InputError(
                f"`encodings`: {entry.name} has no position vectors for text that owe nothing to a "
                "corpus, and cannot be scored: pass another"
            )
    return [*known, *further]


def widths_of(dim: int) -> tuple[int, ...]:
    """Widths at which fixed encodings are compared, that of the report among them."""
    return tuple(sorted({*FIXED_WIDTHS, dim}))


def sizes_of(dim: int, n: int) -> jaxpe.EncodingSizes:
    """Sizes of an encoding of n positions."""
    return jaxpe.EncodingSizes(dim=dim, num_heads=ALIBI_HEADS, head_dim=dim, length=n)


def columns(P: jax.Array, width: int) -> jax.Array:
    """The first columns of P, with zeros where it has fewer: distances stay what they are."""
    missing = max(width - P.shape[-1], 0)
    return jnp.pad(P[..., :width], [(0, 0)] * (P.ndim - 1) + [(0, missing)])


def vectors_at(
    key: jax.Array, n: int, dim: int, entries: Entries
) -> tuple[list[np.ndarray | None], list[list[np.ndarray]]]:
    """Vectors of each entry at width dim, and its trainable parameters as in `DrawnVectors`.

    Vectors are `[draws, n, d]`, one where they are not drawn; None for ALiBi, whose best slope
    depends on the corpus.
    """
    found = fixed_vectors(n, dim, entries)
    drawn = jax.device_get(_drawn(key, entries=entries, sizes=sizes_of(dim, n)))
    vectors, at = list(drawn.vectors), widths_of(dim).index(dim)
    for place, rows, count in zip(
        np.flatnonzero(found.fixed), found.padded[:, at], found.columns[:, at], strict=True
    ):
        vectors[place] = None if entries[place].name == "alibi" else rows[None, :, :count]
    return vectors, list(drawn.trainable)


def fixed_vectors(n: int, dim: int, entries: Entries) -> FixedVectors:
    """Vectors of the entries that are fixed, at the `widths_of` dim, in NumPy."""
    return jax.device_get(_fixed(entries=entries, widths=widths_of(dim), n=n))


@compiled(static=("entries", "widths", "n"))
def _fixed(*, entries: Entries, widths: tuple[int, ...], n: int) -> FixedVectors:
    """Made by one program."""
    positions = jnp.arange(n)
    fixed = [not _has_params(entry.first_layer(sizes_of(widths[0], n))) for entry in entries]

    def vectors(entry: jaxpe.encodings.CatalogueEntry, width: int) -> jax.Array:
        if entry.name == "alibi":  # of one head: the slope is a scale
            return jaxpe.encodings.alibi_line(positions, slope=1.0)
        return entry.first_layer(sizes_of(width, n)).vectors((), positions)

    made = [
        vectors(entry, width)
        for entry, is_fixed in zip(entries, fixed, strict=True)
        if is_fixed
        for width in widths
    ]
    own = [rows.shape[-1] for rows in made]
    widest = max(own, default=1)
    stacked = jnp.stack([columns(rows, widest) for rows in made]) if made else jnp.zeros((0, n, 1))
    shape, count = (sum(fixed), len(widths)), jnp.array(own, jnp.int32)
    return FixedVectors(jnp.array(fixed), stacked.reshape(*shape, n, widest), count.reshape(shape))


def _has_params(encoding: jaxpe.Encoding) -> bool:
    key = jax.eval_shape(lambda: jax.random.key(0))
    return bool(jax.tree.leaves(jax.eval_shape(encoding.init, key)))


@compiled(static=("entries", "sizes"))
def _drawn(key: jax.Array, *, entries: Entries, sizes: jaxpe.EncodingSizes) -> DrawnVectors:
    """Vectors of all entries that are drawn, made by one program."""
    positions = jnp.arange(sizes.length)
    found = [
        _draws(entry.first_layer(sizes), own, positions)
        for entry, own in zip(entries, jax.random.split(key, len(entries)), strict=True)
    ]
    return DrawnVectors(tuple(vectors for vectors, _ in found), tuple(own for _, own in found))


def _draws(
    encoding: jaxpe.Encoding, key: jax.Array, positions: jax.Array
) -> tuple[jax.Array | None, list[jax.Array]]:
    """Vectors `[draws, n, d]`, and the gradients of Σ vectors²; None without parameters."""
    if not _has_params(encoding):
        return None, []
    params = jax.lax.map(encoding.init, jax.random.split(key, RANDOM_DRAWS))  # compiles soonest
    vectors = jax.vmap(encoding.vectors, in_axes=(0, None))(params, positions)
    squares = jax.grad(lambda p: jnp.sum(encoding.vectors(p, positions) ** 2))
    return vectors, jax.tree.leaves(squares(jax.tree.map(lambda x: x[0], params)))

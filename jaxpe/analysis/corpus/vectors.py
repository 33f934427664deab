"""Vectors of the encodings in a report, which do not depend on the corpus."""

from collections.abc import Sequence
from functools import cache, partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError

RANDOM_DRAWS = 8
ALIBI_HEADS = 8
FIXED_WIDTHS = (8, 32, 128)  # widths of fixed encodings, besides the report's
# Encodings of one number for each position: width and scale change no distance but by a factor.
ONE_NUMBER = {
    "alibi": partial(jaxpe.encodings.alibi_line, slope=1.0),
    "log_position": lambda positions: jaxpe.encodings.power_positions(positions)[..., None],
}

Entries: TypeAlias = tuple[jaxpe.encodings.CatalogueEntry, ...]


def scored_entries(
    names: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> list[jaxpe.encodings.CatalogueEntry]:
    """Encodings of the catalogue with position vectors independent of the corpus, and further ones.

    Variants of another row are left out, unless they are named.

    Raises `InputError` for an unknown name, or an encoding without such vectors.
    """
    standard = [e for e in jaxpe.catalogue() if _is_scored(e) and not e.variant_of]
    further = map(jaxpe.encodings.resolve, dict.fromkeys(names))
    entries = [*standard, *(entry for entry in further if entry not in standard)]
    for entry in entries:
        if not _is_scored(entry):
            raise InputError(
                f"`encodings`: {entry.name} has no position vectors for text that owe nothing to a "
                "corpus, and cannot be scored: pass another"
            )
    return entries


@cache  # to build all encodings takes as long as the rest of a small report
def _is_scored(entry: jaxpe.encodings.CatalogueEntry) -> bool:
    described = bool(entry.vectors) and entry.coordinates == 1 and not entry.fitted
    # A module of one's own may describe vectors, as by "–", that its encoding lacks.
    return described and entry.first_layer(sizes_of(8, 8)).defines("vectors")


def widths_of(dim: int) -> tuple[int, ...]:
    """Widths at which fixed encodings are compared, including the report's."""
    return tuple(sorted({*FIXED_WIDTHS, dim}))


def sizes_of(dim: int, n: int) -> jaxpe.EncodingSizes:
    """Sizes of an encoding of n positions."""
    return jaxpe.EncodingSizes(dim=dim, num_heads=ALIBI_HEADS, head_dim=dim, length=n)


def columns(P: ArrayLike, width: int) -> np.ndarray:
    """The first columns of P, padded with zeros, which does not change distances."""
    P = np.asarray(P)[..., :width]
    return np.pad(P, [(0, 0)] * (P.ndim - 1) + [(0, width - P.shape[-1])])


def fixed_vectors(n: int, dim: int, entries: Entries) -> dict[str, list[np.ndarray]]:
    """Vectors `[n, d]` of the encodings without parameters, at each of the `widths_of` dim.

    Encodings of one number have one column: the slope of a head of ALiBi is a scale.
    """
    fixed = tuple(e for e in entries if not _has_params(e, sizes_of(dim, n)))
    vectors = jax.device_get(_fixed(entries=fixed, widths=widths_of(dim), n=n))
    return {entry.name: by_width for entry, by_width in zip(fixed, vectors, strict=True)}


@partial(jax.jit, static_argnames=("entries", "widths", "n"))
def _fixed(*, entries: Entries, widths: tuple[int, ...], n: int) -> list[list[jax.Array]]:
    positions = jnp.arange(n)

    def vectors(entry: jaxpe.encodings.CatalogueEntry, width: int) -> jax.Array:
        if entry.name in ONE_NUMBER:
            return ONE_NUMBER[entry.name](positions)
        return entry.first_layer(sizes_of(width, n)).vectors((), positions)

    return [[vectors(entry, width) for width in widths] for entry in entries]


@cache
def _has_params(entry: jaxpe.encodings.CatalogueEntry, sizes: jaxpe.EncodingSizes) -> bool:
    key = jax.eval_shape(lambda: jax.random.key(0))
    return bool(jax.tree.leaves(jax.eval_shape(entry.first_layer(sizes).init, key)))


@partial(jax.jit, static_argnames=("entries", "sizes"))
def random_vectors(
    key: jax.Array, *, entries: Entries, sizes: jaxpe.EncodingSizes
) -> dict[str, tuple[jax.Array, list[jax.Array]]]:
    """Vectors `[draws, n, d]` of each encoding with parameters, and gradients of Σ vectors².

    A parameter without a gradient is not trainable.
    """
    positions, keys = jnp.arange(sizes.length), jax.random.split(key, len(entries))
    encodings = [entry.first_layer(sizes) for entry in entries]
    return {
        entry.name: _draws(encoding, key, positions)
        for entry, encoding, key in zip(entries, encodings, keys, strict=True)
        if _has_params(entry, sizes)
    }


def _draws(
    encoding: jaxpe.Encoding, key: jax.Array, positions: jax.Array
) -> tuple[jax.Array, list[jax.Array]]:
    params = jax.lax.map(encoding.init, jax.random.split(key, RANDOM_DRAWS))  # compiles fastest
    vectors = jax.vmap(encoding.vectors, in_axes=(0, None))(params, positions)
    squares = jax.grad(lambda p: jnp.sum(encoding.vectors(p, positions) ** 2))
    return vectors, jax.tree.leaves(squares(jax.tree.map(lambda x: x[0], params)))


def entry_of_table(table: np.ndarray, name: str) -> jaxpe.encodings.CatalogueEntry:
    """A model's table of position vectors `[n, d]` as an encoding of its own width."""
    rows = jnp.asarray(table, jnp.result_type(float))
    encoding = jaxpe.encodings.from_vectors(lambda params, positions: rows[positions])
    return jaxpe.encodings.CatalogueEntry(
        name=name,
        family="model",
        make=lambda sizes: encoding,
        source="a model",
        vectors=f"its table, {table.shape[0]} rows of {table.shape[1]}",
    )

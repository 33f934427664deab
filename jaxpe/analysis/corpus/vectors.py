"""Vectors of the encodings in a report, which do not depend on the corpus."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.encodings.entries import resolve
from jaxpe.encodings.families.absolute import from_vectors
from jaxpe.encodings.registry import CatalogueEntry

RANDOM_DRAWS = 8
ALIBI_HEADS = 8
# Encodings of one number for each position: width and scale change no distance but by a factor.
ONE_NUMBER = {
    "alibi": partial(jaxpe.encodings.alibi_line, slope=1.0),
    "log_position": lambda positions: jaxpe.encodings.power_positions(positions)[..., None],
}

Entries: TypeAlias = tuple[CatalogueEntry, ...]


class EncodingVectors(NamedTuple):
    """Position vectors of one encoding.

    Attributes:
        entry: the encoding.
        vectors: float `[draws, n, d]`; one draw without parameters.
        parameters: number of trainable parameters.
    """

    entry: CatalogueEntry
    vectors: np.ndarray
    parameters: int


def scored_entries(
    names: Sequence[str | CatalogueEntry] = (),
) -> list[CatalogueEntry]:
    """Encodings of the catalogue with position vectors independent of the corpus, and further ones.

    Variants of another row are left out, unless they are named.

    Raises `InputError` for an unknown name, or an encoding without such vectors.
    """
    standard = [e for e in jaxpe.encodings.catalogue() if _is_described(e) and not e.variant_of]
    further = map(resolve, dict.fromkeys(names))
    own = [entry for entry in further if entry not in standard]
    for entry in own:
        # A module of one's own may describe vectors, as by "–", that its encoding lacks.
        if not (_is_described(entry) and entry.first_layer(_sizes_of(8, 8)).defines("vectors")):
            raise InputError(
                f"`encodings`: {entry.name} has no position vectors for text that owe nothing to a "
                "corpus, and cannot be scored: pass another"
            )
    return [*standard, *own]


def _is_described(entry: CatalogueEntry) -> bool:
    return bool(entry.vectors) and entry.coordinates == 1 and not entry.fitted


def columns(P: ArrayLike, width: int) -> np.ndarray:
    """The first columns of P, padded with zeros, which does not change distances."""
    P = np.asarray(P)[..., :width]
    return np.pad(P, [(0, 0)] * (P.ndim - 1) + [(0, width - P.shape[-1])])


def encoding_vectors(
    encodings: Sequence[str | CatalogueEntry] = (),
    *,
    n: int,
    dim: int,
    key: jax.Array,
) -> list[EncodingVectors]:
    """Vectors of n positions of every encoding of the catalogue, and of further ones.

    Encodings of one number have one column: the slope of a head of ALiBi is a scale.

    Args:
        encodings: encodings besides the catalogue.
        n: number of positions.
        dim: width.
        key: PRNG key of random encodings.
    """
    entries = tuple(scored_entries(encodings))
    drawn = jax.device_get(_drawn(key, entries=entries, sizes=_sizes_of(dim, n)))
    return [
        EncodingVectors(entry, vectors, sum(x.size for x in gradients if np.any(x)))
        for entry, (vectors, gradients) in zip(entries, drawn, strict=True)
    ]


@partial(jax.jit, static_argnames=("entries", "sizes"))
def _drawn(
    key: jax.Array, *, entries: Entries, sizes: jaxpe.encodings.EncodingSizes
) -> list[tuple[jax.Array, list[jax.Array]]]:
    """Vectors `[draws, n, d]` of each encoding, and gradients of Σ vectors² by its parameters.

    A parameter without a gradient is not trainable.
    """
    positions, keys = jnp.arange(sizes.length), jax.random.split(key, len(entries))

    def draws(entry: CatalogueEntry, key: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        encoding = entry.first_layer(sizes)
        if entry.name in ONE_NUMBER:
            return ONE_NUMBER[entry.name](positions)[None], []
        if not jax.tree.leaves(jax.eval_shape(encoding.init, key)):
            return encoding.vectors((), positions)[None], []
        params = jax.lax.map(encoding.init, jax.random.split(key, RANDOM_DRAWS))  # compiles fastest
        vectors = jax.vmap(encoding.vectors, in_axes=(0, None))(params, positions)
        squares = jax.grad(lambda p: jnp.sum(encoding.vectors(p, positions) ** 2))
        return vectors, jax.tree.leaves(squares(jax.tree.map(lambda x: x[0], params)))

    return [draws(*each) for each in zip(entries, keys, strict=True)]


def _sizes_of(dim: int, n: int) -> jaxpe.encodings.EncodingSizes:
    return jaxpe.encodings.EncodingSizes(dim=dim, num_heads=ALIBI_HEADS, head_dim=dim, length=n)


def entry_of_table(table: np.ndarray, name: str) -> CatalogueEntry:
    """A model's table of position vectors `[n, d]` as an encoding of its own width."""
    rows = jnp.asarray(table, jnp.result_type(float))
    encoding = from_vectors(lambda params, positions: rows[positions])
    return CatalogueEntry(
        name=name,
        family="model",
        make=lambda sizes: encoding,
        source="a model",
        vectors=f"its table, {table.shape[0]} rows of {table.shape[1]}",
    )

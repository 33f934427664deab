"""Corpora side by side, from their counts: how far apart their positional geometries are."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.files import short_names
from jaxpe._core.options import check_range, check_seed
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts import StoredCounts, read_counts
from jaxpe.analysis.counts.merge import aligned_tables
from jaxpe.geometry import (
    GeometryComparison,
    PositionCounts,
    compare_geometries,
    holm_adjusted,
    procrustes,
)
from jaxpe.geometry.mds.classical import principal_coordinates
from jaxpe.geometry.noise.two_samples import DEFAULT_PERMUTATIONS, MOST_NULLS

DEFAULT_DIM = 8
LEVEL = 0.05  # p-value below which a difference is significant


class ComparedCorpus(NamedTuple):
    """Corpus in a comparison.

    Attributes:
        name: the folder of its counts, without what all folders begin with.
        documents, tokens: how many were counted.
        coordinates: float `[n, 2]`, its geometry in two dimensions, turned onto the first corpus;
            NaN where a position has no tokens.
    """

    name: str
    documents: int
    tokens: int
    coordinates: np.ndarray


class ComparedPair(NamedTuple):
    """Two of the corpora.

    Attributes:
        first, second: their names.
        distance: between their Gram matrices (`compare_geometries`); `chance` that which 95 % of
            the deals at random stay below.
        p_value: of the permutation test.
        p_adjusted: the same, adjusted for the number of pairs (`holm_adjusted`).
        residual: of Procrustes in `dim` dimensions.
        angles: principal angles, ascending, in [0, π/2].
        overlap: of their distributions of tokens over all positions, Σ min(p, q), in [0, 1].
        positions: with tokens in every fold of both.
        folds: of each, once they were joined.
        tokens: of a fold, thinned to equally many at each position in both corpora.
        of_position: whether position alone is compared, by null corpora, and not also which
            documents reach late positions.
    """

    first: str
    second: str
    distance: float
    chance: float
    p_value: float
    p_adjusted: float
    residual: float
    angles: np.ndarray
    overlap: float
    positions: int
    folds: int
    tokens: int
    of_position: bool


class CorporaComparison(NamedTuple):
    """Result of `compare_counts`.

    Attributes:
        tokenizer: of all corpora.
        length: positions, or bins of them.
        dim, permutations, seed: as asked for.
        corpora: in the order asked for.
        pairs: all of them.
        warnings: what makes the corpora less comparable, in sentences.
    """

    tokenizer: str
    length: int
    dim: int
    permutations: int
    seed: int
    corpora: tuple[ComparedCorpus, ...]
    pairs: tuple[ComparedPair, ...]
    warnings: tuple[str, ...]


def compare_counts(
    counts: Sequence[str | os.PathLike[str] | StoredCounts],
    *,
    dim: int = DEFAULT_DIM,
    permutations: int = DEFAULT_PERMUTATIONS,
    seed: int = 0,
    names: Sequence[str] = (),
    progress: Progress = SILENT,
) -> CorporaComparison:
    """Compare the positional geometries of corpora by `jaxpe.geometry.compare_geometries`.

    Corpora may differ in size and in the lengths of their documents: counts are thinned to equally
    many tokens at each position. Null corpora that both were counted with, of 4 folds at least, are
    taken away, so that position alone is compared. Vocabularies of words and characters need not be
    the same; they are aligned by token.

    Args:
        counts: two or more, or the folders that hold them.
        dim: dimensions of the configurations that Procrustes and principal angles compare.
        permutations: of the folds of each pair.
        seed: of the permutations.
        names: of the corpora; default: the folders.
        progress: of the pairs.

    Raises:
        InputError: fewer than two, no counts in a folder, or counts of different tokenizers,
            lengths or bins.

    >>> compare_counts(["wikipedia", "code"]).pairs[0].p_value  # doctest: +SKIP
    0.001
    """
    check_range("dim", dim, least=1)
    check_range("permutations", permutations, least=1, most=10**6)
    check_seed("seed", seed)
    if len(counts) < 2:
        raise InputError(f"{len(counts)} counts to compare; pass two folders or more")
    stored = [each if isinstance(each, StoredCounts) else read_counts(each) for each in counts]
    names = list(names) or _names(counts)
    key, pairs, grams = jax.random.key(seed), [], {}
    places = list(itertools.combinations(range(len(stored)), 2))
    for i, j in progress.track(places, "pairs of corpora", total=len(places)):
        found, overlap = _compared(
            stored[i], stored[j], (names[i], names[j]), key, dim, permutations
        )
        grams |= {i: found.grams[0], j: found.grams[1]}
        pairs.append(_pair(names[i], names[j], found, overlap))
    adjusted = np.asarray(holm_adjusted(np.array([pair.p_value for pair in pairs])))
    pairs = [pair._replace(p_adjusted=float(p)) for pair, p in zip(pairs, adjusted, strict=True)]
    corpora = tuple(
        ComparedCorpus(name, each.documents, int(each.table.sum(dtype=np.int64)), coordinates)
        for name, each, coordinates in zip(names, stored, _turned(stored, grams), strict=True)
    )
    settings = stored[0].settings
    return CorporaComparison(
        settings.tokenizer,
        settings.rows,
        dim,
        permutations,
        seed,
        corpora,
        tuple(pairs),
        tuple(_warnings(stored, names, pairs)),
    )


def _compared(
    a: StoredCounts,
    b: StoredCounts,
    names: tuple[str, str],
    key: jax.Array,
    dim: int,
    permutations: int,
) -> tuple[GeometryComparison, float]:
    """The comparison of two corpora, and how much of their tokens they share."""
    tables = aligned_tables((a, b), names=names)
    used = np.logical_or(*(np.any(table, axis=(0, 1)) for table in tables))
    nulls: Any = None
    if len(a.nulls) and len(b.nulls):
        flat = aligned_tables([_as_folds(each) for each in (a, b)], names=names)
        shapes = [(-1, *each.nulls.shape[1:3], used.sum()) for each in (a, b)]
        nulls = [t[..., used].reshape(shape) for t, shape in zip(flat, shapes, strict=True)]
    parts = [
        each._replace(table=table[..., used]) for each, table in zip((a, b), tables, strict=True)
    ]
    totals = [part.table.sum(axis=(0, 1), dtype=np.int64) for part in parts]
    overlap = np.minimum(*(total / max(1, total.sum()) for total in totals)).sum()
    folded: list[PositionCounts] = [part.counts for part in parts]
    options = {"dim": dim, "permutations": permutations, "nulls": nulls and tuple(nulls)}
    return compare_geometries(*folded, key=key, **options), float(overlap)


def _as_folds(stored: StoredCounts) -> StoredCounts:
    """The first null corpora in place of the counts, all of their folds one after the other."""
    nulls = stored.nulls[:MOST_NULLS]
    return stored._replace(table=nulls.reshape(-1, *nulls.shape[2:]))


def _pair(one: str, other: str, found: GeometryComparison, overlap: float) -> ComparedPair:
    return ComparedPair(
        first=one,
        second=other,
        distance=float(found.distance),
        chance=float(np.quantile(np.asarray(found.null), 1 - LEVEL)),
        p_value=float(found.p_value),
        p_adjusted=float(found.p_value),
        residual=float(found.residual),
        angles=np.asarray(found.angles),
        overlap=overlap,
        positions=int(np.sum(np.asarray(found.present))),
        folds=found.folds,
        tokens=found.tokens,
        of_position=found.of_position,
    )


def _turned(stored: Sequence[StoredCounts], grams: dict[int, jax.Array]) -> list[np.ndarray]:
    """Configurations in two dimensions, each turned and scaled onto the first."""
    plane = [principal_coordinates(grams[place], 2)[0] for place in range(len(stored))]
    turned = [procrustes(each, plane[0], scale=True).aligned for each in plane]
    present = [np.any(each.table, axis=(0, 2)).reshape(-1, 1) for each in stored]
    return [
        np.where(there, np.asarray(each), np.nan)
        for each, there in zip(turned, present, strict=True)
    ]


def _warnings(
    stored: Sequence[StoredCounts], names: Sequence[str], pairs: Sequence[ComparedPair]
) -> list[str]:
    found = [
        f"{pair.first} and {pair.second} are compared without null corpora, so that a difference "
        "may be one of the documents that reach late positions: count both with `nulls` and at "
        "least 8 `folds`."
        for pair in pairs
        if not pair.of_position
    ]
    if alone := [
        name for each, name in zip(stored, names, strict=True) if each.settings.group_field is None
    ]:
        found.append(
            f"Documents of {', '.join(alone)} were counted without a `group_field`: near-copies "
            "and documents of one author make p-values too small."
        )
    for (a, one), (b, other) in itertools.combinations(zip(stored, names, strict=True), 2):
        same = {s.digest for s in a.shards if s.documents} & {s.digest for s in b.shards}
        if same:
            found.append(
                f"{one} and {other} share {len(same)} shards: they are no independent samples."
            )
    return found


def _names(counts: Sequence[str | os.PathLike[str] | StoredCounts]) -> list[str]:
    paths = [None if isinstance(each, StoredCounts) else Path(each).resolve() for each in counts]
    folders = [path for path in paths if path is not None]
    if len(folders) == len(paths):
        return short_names(folders)
    return [f"corpus {number}" for number in range(1, 1 + len(counts))]

"""Comparison of corpora by their counts: distances between their positional geometries."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError
from jaxpe._core.files import short_names
from jaxpe._core.options import check_range, check_seed
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts import read_counts
from jaxpe.analysis.counts.merge import refuse_differences
from jaxpe.analysis.counts.stored import StoredCounts
from jaxpe.data.tokens.vocabulary import sorted_vocabulary
from jaxpe.geometry import PositionCounts, compare_geometries, procrustes
from jaxpe.geometry.mds.classical import principal_coordinates
from jaxpe.geometry.noise.two_samples import DEFAULT_PERMUTATIONS, MOST_NULLS, holm_adjusted

DEFAULT_DIM = 8
LEVEL = 0.05  # p-value below which a difference is significant


class ComparedCorpus(NamedTuple):
    """A corpus in a comparison.

    Attributes:
        name: the folder of its counts, without the common beginning of all folders.
        documents, tokens: numbers of counted documents and tokens.
        coordinates: float `[n, 2]`, its geometry in two dimensions, rotated onto the first corpus;
            NaN at positions without tokens.
        grouped: whether documents of one group were kept together in a fold.
    """

    name: str
    documents: int
    tokens: int
    coordinates: np.ndarray
    grouped: bool


class ComparedPair(NamedTuple):
    """Two of the corpora.

    Attributes:
        first, second: their names.
        distance: distance between their Gram matrices (`compare_geometries`); `chance` is its 95 %
            quantile over random deals.
        p_value: p-value of the permutation test.
        p_adjusted: p-value adjusted for the number of pairs (`holm_adjusted`).
        residual: Procrustes residual in `dim` dimensions.
        angles: principal angles, ascending, in [0, π/2].
        overlap: overlap of their distributions of tokens over all positions, Σ min(p, q), in [0,
            1].
        positions: number of positions with tokens in every fold of both.
        folds: number of folds of each corpus, after joining.
        tokens: tokens of a fold, thinned to equally many at each position in both corpora.
        of_position: whether null corpora were subtracted, so that position alone is compared,
            without composition.
        shared: number of shards that both have, whose documents are no independent samples.
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
    shared: int

    @property
    def differ(self) -> bool:
        """Whether they differ by more than chance."""
        return self.p_adjusted <= LEVEL


class CorporaComparison(NamedTuple):
    """Result of `compare_counts`.

    Attributes:
        tokenizer: tokenizer of all corpora.
        length: number of positions, or of bins.
        dim, permutations, seed: options of the comparison.
        corpora: corpora in the order of the counts.
        pairs: all pairs of corpora.
    """

    tokenizer: str
    length: int
    dim: int
    permutations: int
    seed: int
    corpora: tuple[ComparedCorpus, ...]
    pairs: tuple[ComparedPair, ...]


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
    many tokens at each position. If both have null corpora of at least 4 folds, these are
    subtracted, so that position alone is compared. Vocabularies of words and characters may differ;
    they are aligned by token.

    Args:
        counts: two or more counts, or their folders.
        dim: dimensions of the configurations that Procrustes and principal angles compare.
        permutations: permutations of the folds of each pair.
        seed: random seed of the permutations.
        names: names of the corpora; the folders by default.
        progress: progress over the pairs.

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
    options = {"key": key, "dim": dim, "permutations": permutations}
    indices = list(itertools.combinations(range(len(stored)), 2))
    for i, j in progress.track(indices, "pairs of corpora", total=len(indices)):
        pair, (grams[i], grams[j]) = _pair(stored[i], stored[j], (names[i], names[j]), options)
        pairs.append(pair)
    adjusted = np.asarray(holm_adjusted(np.array([pair.p_value for pair in pairs])))
    pairs = [pair._replace(p_adjusted=float(p)) for pair, p in zip(pairs, adjusted, strict=True)]
    corpora = tuple(
        ComparedCorpus(
            name,
            each.header.documents,
            int(each.table.sum(dtype=np.int64)),
            coordinates,
            each.header.settings.group_field is not None,
        )
        for name, each, coordinates in zip(names, stored, _aligned(stored, grams), strict=True)
    )
    settings = stored[0].header.settings
    return CorporaComparison(
        settings.tokenizer, settings.rows, dim, permutations, seed, corpora, tuple(pairs)
    )


def _pair(
    a: StoredCounts, b: StoredCounts, names: tuple[str, str], options: dict[str, Any]
) -> tuple[ComparedPair, jax.Array]:
    """Comparison of two corpora, and their Gram matrices."""
    tables = _aligned_tables((a, b), names=names)
    used = np.logical_or(*(np.any(table, axis=(0, 1)) for table in tables))
    nulls: Any = None
    if len(a.nulls) and len(b.nulls):
        flat = _aligned_tables([_as_folds(each) for each in (a, b)], names=names)
        shapes = [(-1, *each.nulls.shape[1:3], used.sum()) for each in (a, b)]
        nulls = tuple(t[..., used].reshape(shape) for t, shape in zip(flat, shapes, strict=True))
    parts = [
        each._replace(table=table[..., used]) for each, table in zip((a, b), tables, strict=True)
    ]
    totals = [part.table.sum(axis=(0, 1), dtype=np.int64) for part in parts]
    folded: list[PositionCounts] = [part.counts for part in parts]
    result = compare_geometries(*folded, nulls=nulls, **options)
    digests = [{shard.digest for shard in x.header.shards if shard.documents} for x in (a, b)]
    pair = ComparedPair(
        first=names[0],
        second=names[1],
        distance=float(result.distance),
        chance=float(np.quantile(np.asarray(result.null), 1 - LEVEL)),
        p_value=float(result.p_value),
        p_adjusted=float(result.p_value),
        residual=float(result.residual),
        angles=np.asarray(result.angles),
        overlap=float(np.minimum(*(x / max(1, x.sum()) for x in totals)).sum()),
        positions=int(np.sum(np.asarray(result.present))),
        folds=result.folds,
        tokens=result.tokens,
        of_position=result.of_position,
        shared=len(digests[0] & digests[1]),
    )
    return pair, result.grams


def _aligned_tables(
    parts: Sequence[StoredCounts], *, names: Sequence[str]
) -> list[Int[np.ndarray, "folds rows vocab"]]:
    """Tables of counts that may share documents, over the union of their vocabularies."""
    first = parts[0].header
    ignored = ("folds", "nulls", "null_folds", "seed", "group_field")
    same = {name: getattr(first.settings, name) for name in ignored}
    for part, name in zip(parts, names, strict=True):
        settings = part.header.settings._replace(**same)
        refuse_differences(first, part.header._replace(settings=settings), (names[0], name))
    if all(part.header.tokens == first.tokens for part in parts):
        return [part.table for part in parts]
    tokens = sorted_vocabulary({token for part in parts for token in part.header.tokens})
    columns = {token: column for column, token in enumerate(tokens)}
    tables = []
    for part in parts:
        table = np.zeros((*part.table.shape[:2], len(tokens)), part.table.dtype)
        table[..., [columns[token] for token in part.header.tokens]] = part.table
        tables.append(table)
    return tables


def _as_folds(stored: StoredCounts) -> StoredCounts:
    """Counts replaced by the first null corpora, with all of their folds in a row."""
    nulls = stored.nulls[:MOST_NULLS]
    return stored._replace(table=nulls.reshape(-1, *nulls.shape[2:]))


def _aligned(stored: Sequence[StoredCounts], grams: dict[int, jax.Array]) -> list[np.ndarray]:
    """Configurations in two dimensions, each rotated and scaled onto the first."""
    planes = [principal_coordinates(grams[i], 2)[0] for i in range(len(stored))]
    turned = []
    for each, plane in zip(stored, planes, strict=True):
        present = np.any(each.table, axis=(0, 2)).reshape(-1, 1)
        aligned = np.asarray(procrustes(plane, planes[0], scale=True).aligned)
        turned.append(np.where(present, aligned, np.nan))
    return turned


def _names(counts: Sequence[str | os.PathLike[str] | StoredCounts]) -> list[str]:
    if any(isinstance(each, StoredCounts) for each in counts):
        return [f"corpus {number}" for number in range(1, 1 + len(counts))]
    return short_names([Path(each).resolve() for each in counts])  # pyrefly: ignore

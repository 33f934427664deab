"""Analysis of a corpus, or of its counts: `CorpusResult`."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.options import Choice
from jaxpe._core.progress import SILENT, Clock, Progress
from jaxpe.analysis.corpus.documents import (
    Counted,
    count_documents,
    prng_keys,
    read_documents,
    stored_counts,
)
from jaxpe.analysis.corpus.held_out import HALVINGS, SPLITS, WIDEST, held_out_scores
from jaxpe.analysis.corpus.noise import (
    ObservedGeometry,
    defined_intervals,
    observed_geometry,
    position_numbers,
    stored_observed,
    stored_position,
)
from jaxpe.analysis.corpus.options import (
    DEFAULT_EMPTY,
    CorpusOptions,
    check_numbers,
    check_options,
)
from jaxpe.analysis.corpus.result import (
    CorpusResult,
    TokenCount,
    TopTokens,
)
from jaxpe.analysis.corpus.scores import score_encodings
from jaxpe.analysis.corpus.sites import letter_information
from jaxpe.analysis.corpus.vectors import encoding_vectors
from jaxpe.analysis.corpus.where import where_position_tells
from jaxpe.data import TokenCorpus
from jaxpe.encodings.registry import CatalogueEntry
from jaxpe.geometry import PositionCounts, position_geometry_from_counts
from jaxpe.geometry.noise.cross_validation import DEFAULT_HALF_NULLS, disjoint_position_geometries

if TYPE_CHECKING:
    from jaxpe.analysis.counts.stored import StoredCounts

_DEFAULTS = CorpusOptions()
_STAGES = 7  # of `_measure`, and the counting before it


def analyse(options: CorpusOptions, *, progress: Progress = SILENT) -> CorpusResult:
    """Analysis of a corpus or of stored counts, as `jaxpe report` shows it.

    Args:
        options: options of the command.
        progress: progress of reading and of long computations.

    Raises:
        InputError: options out of range, or a source that cannot be read.

    >>> analyse(CorpusOptions(source="synthetic", dim=8, splits=4)).position.significant_rank
    2
    """
    check_options(options)
    clock = Clock(progress)
    if options.counts is None:
        corpus, origin = read_documents(options, progress)
        clock.lap("reading")
        result = analyse_tokens(corpus, options, origin=origin, progress=progress)
    else:
        from jaxpe.analysis.counts import read_counts

        stored = read_counts(options.counts)
        clock.lap("reading")
        result = analyse_counts(stored, options, progress=progress)
    # Without what a command adds, such as `out`.
    names = [field.name for field in dataclasses.fields(CorpusOptions)]
    options = CorpusOptions(**{name: getattr(options, name) for name in names})
    seconds = clock.laps | result.seconds | {"in all": clock.total()}
    return result._replace(options=options, seconds=seconds)


def analyse_tokens(
    corpus: TokenCorpus,
    options: CorpusOptions = _DEFAULTS,
    *,
    encodings: Sequence[CatalogueEntry] = (),
    origin: int = 0,
    progress: Progress = SILENT,
) -> CorpusResult:
    """Analysis of a corpus of token ids.

    The numbers equal the results of the public functions. With `keys =
    jax.random.split(jax.random.key(seed), 3)`, `groups = corpus.groups()` (for strings so short
    that some are equal by chance, `groups = range(documents)`) and `ended = ~corpus.cut` (none, if
    all documents have one length), the geometry of position is `position_geometry(..., key=keys[0],
    groups=groups, ended=ended)`, and the rank its `position_rank`. Encodings are fitted to halves
    and tested on the other halves, from `disjoint_position_geometries(..., key=keys[2], splits=8,
    halvings=2)`, which also give the intervals of `position_intervals`.

    Args:
        corpus: ids and mask `[documents, n]`, from `jaxpe.data.load_tokens`.
        options: options that do not say what is read: `dim`, `empty`, `splits`, `cohort`, `seed`
            and `encodings`.
        encodings: further encodings, such as vectors of one's own.
        origin: index of the position that the report calls 0, of documents aligned at a site.
        progress: progress of halvings and of rotated documents.

    Raises:
        InputError: options out of range, too many counts for memory, a cohort without a document
            that reaches the last position, or empty positions under the policy "error".

    A table of position vectors, such as a model's, is an encoding, too:

    >>> from jaxpe import encodings
    >>> from jaxpe.data import load_tokens
    >>> corpus, table = load_tokens("synthetic"), jnp.arange(64.0)[:, None]
    >>> mine = encodings.from_vectors(lambda params, positions: table[positions])
    >>> about = {"name": "mine", "family": "model", "source": "a table", "vectors": "a line"}
    >>> entry = CatalogueEntry(make=lambda sizes: mine, **about)
    >>> found = analyse_tokens(corpus, CorpusOptions(dim=8, splits=4), encodings=(entry,))
    >>> found.observed.rank, found.position.significant_rank, found.encodings[-1].name
    (31, 2, 'mine')
    """
    check_numbers(options, length=corpus.ids.shape[1])
    clock = Clock(progress, stages=_STAGES)
    with clock.stage("counting"):
        counted = count_documents(corpus, options, origin=origin)
    options = dataclasses.replace(options, source=corpus.name)
    return _measure(counted, options, clock, (*options.encodings, *encodings))


def analyse_counts(
    stored: "StoredCounts",
    options: CorpusOptions = _DEFAULTS,
    *,
    encodings: Sequence[CatalogueEntry] = (),
    progress: Progress = SILENT,
) -> CorpusResult:
    """Analysis of stored counts from `jaxpe.analysis.counts`, of any number of documents.

    It differs from `analyse_tokens` where documents are needed. A document counts as independent of
    all others but its copies, or its group with a `group_field`; pieces of longer documents are not
    found. One that fills all positions counts as cut, so that its last token moves in the null.
    Halves consist of the folds of the rotated documents, four by default, so intervals are wider.
    With bins, a position is a bin.

    Args:
        stored: counts from `jaxpe.analysis.counts.read_counts`.
        options, encodings, progress: arguments of `analyse_tokens`.

    Raises:
        InputError: as `analyse_tokens`; counts with fewer than 19 rotated corpora, or with fewer
            than four folds of them.

    >>> analyse_counts(read_counts("counts")).position.significant_rank  # doctest: +SKIP
    6
    """
    clock = Clock(progress, stages=_STAGES)
    with clock.stage("counting"):
        counted = stored_counts(stored)
    check_numbers(options, length=stored.header.settings.rows)
    return _measure(counted, options, clock, (*options.encodings, *encodings))


def _measure(
    counted: Counted,
    options: CorpusOptions,
    clock: Clock,
    encodings: Sequence[str | CatalogueEntry],
) -> CorpusResult:
    """The result, of documents and of stored counts alike."""
    keys, counts = prng_keys(options.seed), counted.counts
    with clock.stage("position"):
        geometry = position_geometry_from_counts(
            counts,
            counted.nulls,
            key=keys.halving,
            splits=options.splits,
            progress=clock.progress,
        )
    with clock.stage("observed distances"):
        observed = _observed(counted, options, geometry.present)
    with clock.stage("halves of the documents"):
        nulls = counted.nulls[:DEFAULT_HALF_NULLS]
        sizes = {"splits": SPLITS, "halvings": HALVINGS, "progress": clock.progress}
        halves = disjoint_position_geometries(counts, nulls, key=keys.held_out, **sizes)
        numbers = position_numbers(geometry, halves, observed.trace, dim=WIDEST)
    with clock.stage("where"):
        end_nulls = counted.end_nulls[:DEFAULT_HALF_NULLS]
        where = where_position_tells(
            counts, nulls, end_nulls=end_nulls, key=keys.held_out, cut=counted.cut
        )
    with clock.stage("encodings"):
        n, D = len(geometry.present), observed.distances
        vectors = encoding_vectors(encodings, n=n, dim=options.dim, key=keys.encodings)
        scores = score_encodings(D, numbers.distances, observed.mds, vectors, dim=options.dim)
    geometry, numbers, observed = jax.device_get((geometry, numbers, observed))
    with clock.stage("encodings, held out"):
        rank = max(int(numbers.rank.rank), 0)
        held_out = held_out_scores(halves.position, numbers.coordinates, vectors, rank=rank)
    judged = bool(geometry.present.any()) and observed.trace > 0
    intervals = defined_intervals(numbers.shares, numbers.intervals.nearness) if judged else {}
    tokens = np.asarray(counted.merged.tokens)
    result = CorpusResult(
        facts=counted.facts,
        options=options,
        choices=counted.choices,
        documents_per_position=tokens.sum(axis=1, dtype=np.int64),
        observed=stored_observed(observed, numbers),
        position=stored_position(geometry, numbers, observed.errors),
        intervals=intervals,
        encodings=scores,
        held_out=held_out,
        where=where,
        letters=letter_information(tokens, counted.words),
        standing_out=counted.standing_out,
        top_tokens=top_tokens(tokens, counted.words, counted.facts.origin),
        neighbours=counted.neighbours,
        seconds=clock.laps,
    )
    return result._replace(choices=(*counted.choices, *_choice_of_empty(result)))


def _choice_of_empty(result: CorpusResult) -> tuple[Choice, ...]:
    empty = result.empty_positions
    if not empty or result.options.empty is not None:
        return ()
    why = f"{empty:,} of {result.facts.length:,} positions have no token, and say nothing"
    return (Choice("empty positions", DEFAULT_EMPTY, why, "pass uniform or zero as `empty`"),)


def _observed(counted: Counted, options: CorpusOptions, present: jax.Array) -> ObservedGeometry:
    """Geometry of the observed frequencies.

    Raises:
        InputError: empty positions under the policy "error".
    """
    empty = options.empty or DEFAULT_EMPTY
    if empty == "error":  # raises where a position is empty, which jit cannot see
        jaxpe.geometry.positional_distributions(counted.merged, empty="error")
        empty = DEFAULT_EMPTY
    shown = _of_all_words(counted) if empty == "uniform" else counted.merged
    return observed_geometry(counted.merged, shown, present, empty=empty)


def _of_all_words(counted: Counted) -> PositionCounts:
    """Counts of all words of the vocabulary, among which empty positions are uniform."""
    used = counted.used
    tokens = np.zeros((counted.merged.tokens.shape[0], len(used)), np.int32)
    tokens[:, used] = counted.merged.tokens[:, : used.sum()]
    return counted.merged._replace(tokens=jnp.asarray(tokens))


def top_tokens(counts: np.ndarray, words: list[str], origin: int) -> list[TopTokens]:
    """Most frequent tokens at occupied positions near the origin, at wider steps, and the last."""
    occupied = np.flatnonzero(counts.any(axis=1))
    steps = [0, 1, 2, *(2**k - 1 for k in range(2, 12))]
    near = int(np.searchsorted(occupied, origin))
    ranks = {*(near + step for step in steps), *(near - step for step in steps), len(occupied) - 1}
    tops = []
    for position in sorted({int(occupied[rank]) for rank in ranks if 0 <= rank < len(occupied)}):
        row = counts[position]
        order = np.argsort(-row, kind="stable")[:8]
        tokens = [TokenCount(words[token], int(row[token])) for token in order if row[token]]
        tops.append(TopTokens(position, tokens))
    return tops

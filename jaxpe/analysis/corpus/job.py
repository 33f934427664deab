"""Analysis of a corpus, or of its counts: `CorpusAnalysis`."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.hub import local_model_options
from jaxpe._core.options import Choice
from jaxpe._core.progress import SILENT, Clock, Progress
from jaxpe.analysis.corpus.held_out import HALVINGS, SPLITS, WIDEST, held_out_scores
from jaxpe.analysis.corpus.noise import (
    compacted,
    defined_intervals,
    plug_in_trace,
    rare_positions,
    stored_position,
)
from jaxpe.analysis.corpus.options import (
    DEFAULT_DIM,
    DEFAULT_EMPTY,
    MAX_LENGTH,
    CorpusOptions,
    check_numbers,
    check_options,
    given_options,
    refuse_single_words,
    refuse_too_long,
)
from jaxpe.analysis.corpus.result import (
    CorpusAnalysis,
    EmptyPositions,
    PlugIn,
    TokenCount,
    TopTokens,
)
from jaxpe.analysis.corpus.scores import score_encodings, stress_by_dimension
from jaxpe.analysis.corpus.sites import (
    ambiguous_letters,
    document_groups,
    letter_information,
    positions_standing_out,
)
from jaxpe.analysis.corpus.where import where_position_tells
from jaxpe.data import NeighbourSimilarity, TokenCorpus, load_tokens, neighbour_similarity
from jaxpe.data.corpora.corpus import as_sources
from jaxpe.data.tokens.tokenizers import DEFAULT_LENGTH
from jaxpe.data.tokens.vocabulary import UNKNOWNS
from jaxpe.geometry import (
    EmptyPolicy,
    PositionCounts,
    PositionGeometry,
    PositionHalves,
    classical_mds_from_gram,
    cohort_of,
    disjoint_position_geometries,
    distances_from_gram,
    position_geometry,
    position_geometry_from_counts,
    position_intervals,
    position_rank,
    regroup_folds,
    token_lists,
    variance_shares,
)
from jaxpe.geometry.noise.cross_validation import DEFAULT_HALF_NULLS
from jaxpe.geometry.noise.position import null_keys
from jaxpe.geometry.noise.split_half import DEFAULT_FOLDS, DEFAULT_SPLITS

if TYPE_CHECKING:
    from jaxpe.analysis.counts import CountSettings, StoredCounts

# Options that say how the documents are read.
_READING = (
    "tokenizer", "length", "special", "text_field", "group_field", "skip_nulls", "data_dir",
    "limit", "seed",
)  # fmt: skip
LEAST_NULLS = 19  # least number of nulls that can show significance at 5 %
MAX_CELLS = 2**31 - 1  # 8.6 GB of counts, and as much again during the analysis


def analyse(options: CorpusOptions, *, progress: Progress = SILENT) -> CorpusAnalysis:
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
    clock, choices, given = Clock(), (), given_options(options)
    entries: tuple[jaxpe.encodings.CatalogueEntry, ...] = ()
    shared: dict[str, Any] = {
        "dim": options.dim,
        "empty": options.empty or DEFAULT_EMPTY,
        "splits": options.splits,
        "seed": options.seed,
        "progress": progress,
    }
    if options.counts is not None:
        from jaxpe.analysis.counts import read_counts

        stored = read_counts(options.counts)
        clock.lap("read")
        analysis = analyse_counts(stored, encodings=options.encodings, **shared)
    else:
        options, entries, choices = _model_options(options)
        reading = {name: getattr(options, name) for name in _READING}
        corpus = load_tokens(options.source, **reading, progress=progress)
        refuse_single_words(corpus, options)
        origin = 0
        if options.align is None:
            refuse_too_long(corpus, options)
        else:
            corpus, origin = _aligned(corpus, options, reading, progress)
        clock.lap("read")
        shared |= {"cohort": options.cohort, "encodings": (*options.encodings, *entries)}
        analysis = analyse_tokens(corpus, origin=origin, **shared)
        analysis = analysis._replace(group_field=options.group_field)
    choices = (*choices, *analysis.choices)
    if (empty := analysis.empty_positions.count) and options.empty is None:
        why = f"{empty:,} of {analysis.length:,} positions have no token, and say nothing"
        how = "pass uniform or zero as `empty`"
        choices = (*choices, Choice("empty positions", DEFAULT_EMPTY, why, how))
    seconds = clock.laps | analysis.seconds | {"in all": clock.total()}
    inputs = () if options.counts is not None else tuple(as_sources(options.source))
    return analysis._replace(choices=choices, inputs=inputs, given=given, seconds=seconds)


def _aligned(
    corpus: TokenCorpus, options: CorpusOptions, reading: dict[str, Any], progress: Progress
) -> tuple[TokenCorpus, int]:
    """The positions around the site, read again where documents are longer, and its index."""
    site: Any = corpus.longest // 2 if options.align == "middle" else options.align
    if not 0 <= site < corpus.longest:
        raise InputError(
            f"`align={site}` is outside the documents, of which the longest has {corpus.longest:,} "
            "tokens: pass the number of tokens before the site"
        )
    length = min(options.length or DEFAULT_LENGTH, corpus.longest)
    start = min(max(site - length // 2, 0), corpus.longest - length)
    if start + length != corpus.ids.shape[1]:
        read = reading | {"length": start + length}
        corpus = load_tokens(options.source, **read, progress=progress)
    sizes = corpus.mask.sum(axis=1)
    if options.align == "middle" and np.ptp(sizes):
        raise InputError(
            f"`align=middle` needs documents of one length; these have {sizes.min()} to "
            f"{sizes.max()} tokens: pass the number of tokens before the site as `align`"
        )
    inside = corpus._replace(ids=corpus.ids[:, start:], mask=corpus.mask[:, start:])
    return inside.chosen(np.flatnonzero(inside.mask.any(axis=1))), site - start


def _model_options(
    options: CorpusOptions,
) -> tuple[CorpusOptions, tuple[jaxpe.encodings.CatalogueEntry, ...], tuple[Choice, ...]]:
    """Options that read the corpus as a model does, its position vectors, and chosen settings."""
    options = local_model_options(options, "model")
    if options.model is None:
        return options, (), ()
    from jaxpe.analysis.corpus.model import model_positions  # imports Flax

    model = model_positions(options.model)
    length, how = options.length, "pass another `model`"
    special = ", with its special tokens" if model.special else ""
    chosen = [Choice("tokenizer", model.tokenizer, f"that of the model{special}", how)]
    if length is not None and length > model.positions:
        raise InputError(f"`length={length}` is more than the model's {model.positions} positions")
    if length is None and model.positions < DEFAULT_LENGTH:
        length = model.positions
        how = "pass a smaller number of positions as `length`"
        chosen.append(Choice("length", f"{length}", "all positions of the model", how))
    read = {"tokenizer": model.tokenizer, "special": model.special, "length": length}
    return dataclasses.replace(options, **read), (model.entry,), tuple(chosen)


def analyse_tokens(
    corpus: TokenCorpus,
    *,
    dim: int = DEFAULT_DIM,
    empty: EmptyPolicy = DEFAULT_EMPTY,
    splits: int = DEFAULT_SPLITS,
    cohort: bool = False,
    seed: int = 0,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
    origin: int = 0,
    progress: Progress = SILENT,
) -> CorpusAnalysis:
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
        dim, empty, splits, cohort, seed, encodings: fields of `CorpusOptions`.
        origin: index of the position that the report calls 0, of documents aligned at a site.
        progress: progress of halvings and of rotated documents.

    Raises:
        InputError: options out of range, too many counts for memory, a cohort without a document
            that reaches the last position, or empty positions under the policy "error".

    >>> from jaxpe.data import load_tokens
    >>> analysis = analyse_tokens(load_tokens("synthetic"), dim=8, splits=4)
    >>> analysis.plug_in.rank, analysis.position.significant_rank
    (31, 2)
    """
    check_numbers(length=corpus.ids.shape[1], dim=dim, splits=splits, seed=seed)
    compact, used = compacted(corpus)
    cut, ended = _cut_and_ended(corpus)
    if cohort:
        inside = _cohort(compact)
        compact, ended, cut = compact.chosen(inside), ended[inside], None
    _check_size(compact)
    clock, keys, groups = Clock(progress), _keys(seed), document_groups(compact)
    clock.lap("grouping")
    documents: dict[str, Any] = {"vocab_size": compact.vocab_size, "mask": compact.mask}
    counts = jaxpe.count_tokens(compact.ids, **documents)
    documents |= {"groups": groups, "folds": DEFAULT_FOLDS, "ended": ended}
    tokens = token_lists(compact.ids, **documents)
    clock.lap("counts")
    measured: dict[str, Any] = {"splits": splits, "progress": progress}
    with clock.stage("position"):
        geometry = position_geometry(compact.ids, key=keys[0], **measured, **documents)
    with clock.stage("held-out halves"):
        rotating = null_keys(keys[0])[1][:DEFAULT_HALF_NULLS]
        nulls = [tokens.rotated(key) for key in rotating]
        halving: dict[str, Any] = {"splits": SPLITS, "halvings": HALVINGS, "progress": progress}
        halves = disjoint_position_geometries(tokens, nulls, key=keys[2], **halving)
        end_nulls = [tokens.rotated(key, ends_move=True) for key in rotating]
    with clock.stage("where"):
        where = where_position_tells(tokens, nulls, end_nulls=end_nulls, key=keys[2], cut=cut)
    return _analysis(
        counts,
        geometry,
        halves,
        used=used,
        words=compact.tokens,
        empty=empty,
        encodings=encodings,
        clock=clock,
        source=corpus.name,
        tokenizer=corpus.tokenizer,
        **_document_fields(compact, groups),
        vocab_size=corpus.vocab_size,
        folds=DEFAULT_FOLDS,
        dim=dim,
        seed=seed,
        splits=splits,
        cohort=cohort,
        origin=origin,
        where=where,
        null_texts=corpus.null_texts,
        choices=compact.choices,
    )


def _cut_and_ended(corpus: TokenCorpus) -> tuple[np.ndarray, np.ndarray]:
    """Documents that were cut, and those whose last token ended them, bool `[documents]`."""
    cut = corpus.cut
    if cut is None:  # not stored with the ids
        cut = corpus.mask[:, -1] & (corpus.longest > corpus.ids.shape[1])
    # Documents of one length did not end because of their last token.
    return cut, ~cut & bool(np.ptp(corpus.mask.sum(axis=1)))


def _check_size(corpus: TokenCorpus) -> None:
    """Raise for counts in folds that do not fit in memory."""
    n, words = corpus.ids.shape[1], corpus.vocab_size
    if DEFAULT_FOLDS * n * words > MAX_CELLS:
        raise InputError(
            f"{n} positions x {words:,} words x {DEFAULT_FOLDS} folds are more than {MAX_CELLS:,} "
            "counts: pass a shorter `length`, or a `tokenizer` with a smaller vocabulary"
        )


def _document_fields(corpus: TokenCorpus, groups: np.ndarray) -> dict[str, Any]:
    """Fields of the result that need documents, not counts."""
    return {
        "documents": len(corpus.ids),
        "groups": len(np.unique(groups)),
        "neighbours": _neighbours(corpus, groups),
        "standing_out": positions_standing_out(corpus, groups),
    }


def _neighbours(corpus: TokenCorpus, groups: np.ndarray) -> NeighbourSimilarity | None:
    """Test whether neighbouring documents are related, unless groups are given."""
    if corpus.group_labels is not None or len(np.unique(groups[corpus.mask.any(axis=1)])) < 3:
        return None
    return neighbour_similarity(corpus.ids, corpus.mask, groups=groups, permutations=199)


def _cohort(corpus: TokenCorpus) -> np.ndarray:
    """Mask of the documents that have a token at every position where any document has one."""
    inside = np.asarray(cohort_of(corpus.mask))
    if not inside.any():
        raise InputError(
            f"no document has tokens at all {corpus.ids.shape[1]} positions: pass a smaller "
            "`length`, or leave `cohort` out"
        )
    return inside


def analyse_counts(
    stored: "StoredCounts",
    *,
    dim: int = DEFAULT_DIM,
    empty: EmptyPolicy = DEFAULT_EMPTY,
    splits: int = DEFAULT_SPLITS,
    seed: int = 0,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
    progress: Progress = SILENT,
) -> CorpusAnalysis:
    """Analysis of stored counts from `jaxpe.analysis.counts`, of any number of documents.

    It differs from `analyse_tokens` where documents are needed. A document counts as independent of
    all others but its copies, or its group with a `group_field`; pieces of longer documents are not
    found. One that fills all positions counts as cut, so that its last token moves in the null.
    Halves consist of the folds of the rotated documents, four by default, so intervals are wider.
    With bins, a position is a bin.

    Args:
        stored: counts from `jaxpe.analysis.counts.read_counts`.
        dim, empty, splits, seed, encodings, progress: arguments of `analyse_tokens`.

    Raises:
        InputError: as `analyse_tokens`; counts with fewer than 19 rotated corpora, or with fewer
            than four folds of them.

    >>> analyse_counts(read_counts("counts")).position.significant_rank  # doctest: +SKIP
    6
    """
    header = stored.header
    settings = header.settings
    _check_counts(settings)
    check_numbers(length=settings.rows, dim=dim, splits=splits, seed=seed)
    clock, keys = Clock(progress), _keys(seed)
    used = np.any(stored.table, axis=(0, 1)).reshape(-1)
    used &= ~ambiguous_letters(header.tokens, used)
    folded = stored._replace(table=stored.table[..., used]).counts
    grouped = regroup_folds(folded, folds=settings.null_folds)
    nulls = [grouped._replace(tokens=jnp.asarray(null[..., used])) for null in stored.nulls]
    with clock.stage("position"):
        geometry = position_geometry_from_counts(
            grouped, nulls, key=null_keys(keys[0])[0], splits=splits, progress=progress
        )
    with clock.stage("held-out halves"):
        nulls, key = nulls[:DEFAULT_HALF_NULLS], keys[2]
        halves = disjoint_position_geometries(
            grouped, nulls, key=key, splits=SPLITS, halvings=HALVINGS, progress=progress
        )
    with clock.stage("where"):
        where = where_position_tells(grouped, nulls, key=key)
    names = [shard.name for shard in header.shards if shard.documents]
    return _analysis(
        folded.merged(),
        geometry,
        halves,
        used=used,
        words=[header.tokens[word] for word in np.flatnonzero(used)],
        empty=empty,
        encodings=encodings,
        clock=clock,
        source=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
        tokenizer=settings.tokenizer,
        documents=header.documents,
        groups=int(folded.documents),
        vocab_size=settings.vocab_size,
        folds=settings.null_folds,
        dim=dim,
        seed=seed,
        splits=splits,
        from_counts=True,
        group_field=settings.group_field,
        edges=settings.edges,
        where=where,
        null_texts=header.null_texts,
        choices=header.choices,
    )


def _check_counts(settings: "CountSettings") -> None:
    """Counts of few enough positions, and of enough rotated corpora."""
    if settings.rows > MAX_LENGTH:
        raise InputError(
            f"{settings.rows:,} positions are more than the {MAX_LENGTH:,} of a report: count "
            "again with `bins`"
        )
    if settings.nulls < LEAST_NULLS or settings.null_folds < 4:
        raise InputError(
            f"the counts hold {settings.nulls} rotated corpora in {settings.null_folds} folds; a "
            f"report needs {LEAST_NULLS} in 4 to tell position from composition: count again, with "
            "20 nulls and 16 folds"
        )


def _keys(seed: int) -> jax.Array:
    """PRNG keys of halvings and rotations, of random encodings, and of held-out halves."""
    return jax.random.split(jax.random.key(np.uint32(seed)), 3)


def _analysis(
    counts: PositionCounts,
    geometry: PositionGeometry,
    halves: PositionHalves,
    *,
    used: np.ndarray,
    words: list[str],
    dim: int,
    empty: EmptyPolicy,
    seed: int,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry],
    clock: Clock,
    **fields: Any,
) -> CorpusAnalysis:
    """The result, from counts of the used words and the geometries of position."""
    tokens = np.asarray(counts.tokens)
    with clock.stage("geometry"):
        D, mds, plug_in = _plug_in(counts, empty, used)
    with clock.stage("dimensions"):
        by_dimension, refined = stress_by_dimension(D, mds, dim)
    with clock.stage("encodings"):
        key = _keys(seed)[1]
        scores = score_encodings(D, geometry, mds, refined, key, encodings)
    with clock.stage("held-out halves"):
        rank, trace = position_rank(geometry), plug_in_trace(counts, geometry.present)
        shares = variance_shares(geometry, halves, trace)
        intervals = position_intervals(geometry, halves)
        width = max(3, min(WIDEST, len(geometry.gram)))
        position_mds = classical_mds_from_gram(geometry.gram, dim=width, present=geometry.present)
        coordinates = np.asarray(position_mds.coordinates)
        held_out = held_out_scores(
            halves.position, coordinates, rank=max(int(rank.rank), 0), dim=dim, encodings=encodings
        )
    per_position, judged = tokens.sum(axis=1, dtype=np.int64), bool(geometry.present.any())
    error = np.asarray(jaxpe.noise_floor(counts).split_half_error)
    return CorpusAnalysis(
        **fields,
        dim=dim,
        seed=seed,
        tokens=int(per_position.sum()),
        length=len(per_position),
        empty_positions=EmptyPositions(empty, int(np.sum(per_position == 0))),
        documents_per_position=per_position,
        rare_positions=rare_positions(per_position, geometry, error, rank),
        top_tokens=_top_tokens(tokens, words, fields.get("origin", 0)),
        letters=letter_information(tokens, words),
        unknown_tokens=int(tokens[:, np.flatnonzero([word in UNKNOWNS for word in words])].sum()),
        plug_in=plug_in,
        split_half_trace=float(geometry.split_half.trace) if judged else math.nan,
        position=stored_position(geometry, halves, rank, coordinates, intervals.by_offset),
        intervals=defined_intervals(shares, intervals.nearness) if judged and trace > 0 else {},
        encodings=scores,
        stress_by_dimension=by_dimension,
        held_out=held_out,
        seconds=clock.laps,
    )


def _plug_in(
    counts: PositionCounts, empty: EmptyPolicy, used: np.ndarray
) -> tuple[jaxpe.Distances, jaxpe.ClassicalMDS, PlugIn]:
    """Distances of the observed frequencies, their MDS at full width, and the stored `PlugIn`."""
    mu = _distributions(counts, empty, used)
    gram = jaxpe.hellinger_gram(mu)
    D = distances_from_gram(gram, present=mu.present)
    mds = classical_mds_from_gram(gram, dim=len(gram), present=mu.present)
    eigenvalues = np.asarray(mds.eigenvalues)
    stored = PlugIn(
        rank=int(mds.rank),
        trace=float(np.sum(eigenvalues)),
        eigenvalues=eigenvalues,
        violation_rate=float(jaxpe.monotonicity_violation_rate(D)),
        present=np.asarray(D.present),
        distances=np.asarray(D.values),
    )
    return D, mds, stored


def _distributions(
    counts: PositionCounts, empty: EmptyPolicy, used: np.ndarray
) -> jaxpe.PositionalDistributions:
    """Distributions over the used words, bool `[vocab]`; under "uniform" over all words."""
    if empty == "uniform":
        tokens = np.zeros((counts.tokens.shape[0], len(used)), np.int32)
        tokens[:, used] = counts.tokens[:, : used.sum()]
        counts = counts._replace(tokens=jnp.asarray(tokens))
    return jaxpe.positional_distributions(counts, empty=empty)


def _top_tokens(counts: np.ndarray, words: list[str], origin: int) -> list[TopTokens]:
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

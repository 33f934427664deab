"""Analysis of a corpus, or of its counts: `CorpusAnalysis`."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.hub import local_model_options
from jaxpe._core.options import Choice
from jaxpe._core.progress import SILENT, Clock, Progress
from jaxpe.analysis.corpus.held_out import (
    HALVINGS,
    SPLITS,
    WIDEST,
    held_out_halves,
    held_out_scores,
)
from jaxpe.analysis.corpus.noise import (
    compacted,
    composition_correlation,
    defined_intervals,
    plug_in_trace,
    position_of,
    rare_positions,
)
from jaxpe.analysis.corpus.options import (
    DEFAULT_DIM,
    DEFAULT_EMPTY,
    MAX_LENGTH,
    CorpusOptions,
    check_numbers,
    check_options,
    refuse_too_long,
)
from jaxpe.analysis.corpus.result import (
    CorpusAnalysis,
    EmptyPositions,
    PlugIn,
    StressByDimension,
    TokenCount,
    TopTokens,
)
from jaxpe.analysis.corpus.scores import score_encodings, stress_by_dimension
from jaxpe.analysis.corpus.violations import violation_rate
from jaxpe.data import NeighbourSimilarity, TokenCorpus, load_tokens, neighbour_similarity
from jaxpe.data.tokens.token_ids import DEFAULT_LENGTH
from jaxpe.geometry import (
    EmptyPolicy,
    PositionCounts,
    PositionGeometry,
    PositionHalves,
    cohort_of,
    disjoint_position_geometries,
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
from jaxpe.geometry.noise.split_half import DEFAULT_FOLDS, DEFAULT_SPLITS, FoldedCounts

if TYPE_CHECKING:
    from jaxpe.analysis.counts import StoredCounts

LEAST_NULLS = 19  # that show significance at 5 %
MAX_CELLS = 2**31 - 1  # 8.6 GB of counts, and as much again at work


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
    clock, chosen = Clock(), ()
    common: dict[str, Any] = {
        "dim": options.dim,
        "empty": options.empty or DEFAULT_EMPTY,
        "splits": options.splits,
        "seed": options.seed,
        "encodings": options.encodings,
        "progress": progress,
    }
    if options.counts is not None:
        from jaxpe.analysis.counts import read_counts

        stored = read_counts(options.counts)
        clock.lap("read")
        found = analyse_counts(stored, **common)
    else:
        options, own, chosen = _with_model(options)
        common["encodings"] = (*options.encodings, *own)
        corpus = load_tokens(
            options.source,
            tokenizer=options.tokenizer,
            length=options.length,
            special=options.special,
            text_field=options.text_field,
            group_field=options.group_field,
            skip_nulls=options.skip_nulls,
            data_dir=options.data_dir,
            progress=progress,
        )
        refuse_too_long(corpus, options)
        clock.lap("read")
        found = analyse_tokens(corpus, cohort=options.cohort, **common)
        found = found._replace(group_field=options.group_field)
    return found._replace(
        choices=(*chosen, *found.choices, *_chosen_empty(options, found)),
        seconds=clock.laps | found.seconds | {"in all": clock.total()},
    )


def _chosen_empty(options: CorpusOptions, found: CorpusAnalysis) -> tuple[Choice, ...]:
    """The policy for empty positions, where there are some and none was passed."""
    count = found.empty_positions.count
    if options.empty is not None or not count:
        return ()
    why = f"{count:,} of {found.length:,} positions have no token, and say nothing of the corpus"
    return (Choice("empty positions", DEFAULT_EMPTY, why, "pass uniform or zero as `empty`"),)


def _with_model(
    options: CorpusOptions,
) -> tuple[CorpusOptions, tuple[jaxpe.encodings.CatalogueEntry, ...], tuple[Choice, ...]]:
    """Options that read the corpus as a model does, its position vectors, and what was chosen."""
    options = local_model_options(options, "model")
    if options.model is None:
        return options, (), ()
    from jaxpe.analysis.corpus.model import model_positions  # brings Flax

    model = model_positions(options.model)
    length, how = options.length, "pass another `model`"
    special = ", with its special tokens" if model.special else ""
    chosen = [Choice("tokenizer", model.tokenizer, f"that of the model{special}", how)]
    if length is not None and length > model.positions:
        raise InputError(
            f"`length={length}` is more than the {model.positions} positions of the model"
        )
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
    progress: Progress = SILENT,
) -> CorpusAnalysis:
    """Analysis of a corpus of token ids.

    The numbers are those of the public functions. With `keys = jax.random.split(jax.random.key(
    seed), 3)` and `groups = corpus.groups()`, the geometry of position is
    `position_geometry(..., key=keys[0], groups=groups)`, and the rank its `position_rank`.
    Encodings are fitted to halves and held against the others by
    `disjoint_position_geometries(..., key=keys[2], splits=8, halvings=2)`, of which
    `position_intervals` has the intervals.

    Args:
        corpus: ids and mask `[documents, n]`, from `jaxpe.data.load_tokens`.
        dim, empty, splits, cohort, seed, encodings: fields of `CorpusOptions`.
        progress: progress of halvings and of shuffled documents.

    Raises:
        InputError: options out of range, more counts than memory holds, no document that reaches
            the last position where a cohort is asked for, or empty positions under the policy
            "error".

    >>> from jaxpe.data import load_tokens
    >>> found = analyse_tokens(load_tokens("synthetic"), dim=8, splits=4)
    >>> found.plug_in.rank, found.position.significant_rank
    (31, 2)
    """
    check_numbers(length=corpus.ids.shape[1], dim=dim, splits=splits, seed=seed)
    compact, used = compacted(corpus)
    if cohort:
        compact = _cohort(compact)
    _check_size(compact)
    clock, keys = Clock(progress), _keys(seed)
    groups = compact.groups()
    clock.lap("grouping")
    counts = _counts(compact)
    clock.lap("counts")
    documents: dict[str, Any] = {
        "vocab_size": compact.vocab_size,
        "mask": compact.mask,
        "groups": groups,
        "folds": DEFAULT_FOLDS,
    }
    drawn: dict[str, Any] = {"key": keys.position, "splits": splits, "progress": progress}
    with clock.stage("position"):
        geometry = position_geometry(compact.ids, **documents, **drawn)
    with clock.stage("held-out halves"):
        tokens = token_lists(compact.ids, **documents)
        shuffling = null_keys(keys.position)[1][:DEFAULT_HALF_NULLS]
        halves = _halves(tokens, [tokens.shuffled(key) for key in shuffling], keys, progress)
    known = {
        "source": corpus.name,
        "tokenizer": corpus.tokenizer,
        "documents": len(compact.ids),
        "groups": len(np.unique(groups)),
        "vocab_size": corpus.vocab_size,
        "folds": DEFAULT_FOLDS,
        "cohort": cohort,
        "from_counts": False,
        "group_field": None,
        "neighbours": _neighbours(compact, groups),
        "edges": None,
        "null_texts": corpus.null_texts,
        "choices": corpus.choices,
        "top_tokens": _top_tokens(counts, compact.tokens),
    }
    options = _Options(dim, empty, splits, seed, encodings, progress)
    return _analysis(known, counts, used, geometry, halves, keys, options, clock=clock)


def _neighbours(corpus: TokenCorpus, groups: np.ndarray) -> NeighbourSimilarity | None:
    """Test of documents next to each other, where it is not known which belong together."""
    if corpus.group_labels is not None or len(np.unique(groups[corpus.mask.any(axis=1)])) < 3:
        return None
    return neighbour_similarity(corpus.ids, corpus.mask, groups=groups, permutations=199)


def _cohort(corpus: TokenCorpus) -> TokenCorpus:
    """The documents that have a token at every position where some document has one."""
    inside = cohort_of(corpus.mask)
    if not inside.any():
        raise InputError(
            f"no document has tokens at all {corpus.ids.shape[1]} positions: pass a smaller "
            "`length`, or leave `cohort` out"
        )
    return corpus.chosen(np.asarray(inside))


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
    """Analysis of counts that `jaxpe.analysis.counts` stored, however many documents they are of.

    What needs the documents themselves is different: a document counts as independent of all others
    but its copies, or with a `group_field` of all others but those of its group, where
    `analyse_tokens` also finds pieces of longer documents. Halves are made of the folds that
    shuffled documents were counted in, four by default, so intervals are wider. With bins, a
    position is a bin.

    Args:
        stored: counts from `jaxpe.analysis.counts.read_counts`.
        dim, empty, splits, seed, encodings, progress: arguments of `analyse_tokens`.

    Raises:
        InputError: as `analyse_tokens`; counts with fewer than 19 shuffled corpora, or with fewer
            than four folds of them.

    >>> analyse_counts(read_counts("counts")).position.significant_rank  # doctest: +SKIP
    6
    """
    settings = stored.settings
    if settings.rows > MAX_LENGTH:
        raise InputError(
            f"{settings.rows:,} positions are more than the {MAX_LENGTH:,} of a report: count "
            "again with `bins`"
        )
    if settings.nulls < LEAST_NULLS or settings.null_folds < 4:
        raise InputError(
            f"the counts hold {settings.nulls} shuffled corpora in {settings.null_folds} folds; a "
            f"report needs {LEAST_NULLS} in 4 to tell position from composition: count again, with "
            "20 nulls and 16 folds"
        )
    check_numbers(length=settings.rows, dim=dim, splits=splits, seed=seed)
    clock, keys = Clock(progress), _keys(seed)
    used = np.any(stored.table, axis=(0, 1)).reshape(-1)
    folded = stored._replace(table=stored.table[..., used]).counts
    counts = jax.tree.map(np.asarray, folded.merged())
    grouped = regroup_folds(folded, folds=settings.null_folds)
    nulls = [grouped._replace(tokens=jnp.asarray(null[..., used])) for null in stored.nulls]
    drawn: dict[str, Any] = {"splits": splits, "progress": progress}
    with clock.stage("position"):
        halving = null_keys(keys.position)[0]
        geometry = position_geometry_from_counts(grouped, nulls, key=halving, **drawn)
    with clock.stage("held-out halves"):
        halves = _halves(grouped, nulls[:DEFAULT_HALF_NULLS], keys, progress)
    known = {
        "source": _name_of(stored),
        "tokenizer": settings.tokenizer,
        "documents": stored.documents,
        "groups": int(folded.documents),
        "vocab_size": settings.vocab_size,
        "folds": settings.null_folds,
        "cohort": False,
        "from_counts": True,
        "group_field": settings.group_field,
        "neighbours": None,
        "edges": settings.edges,
        "null_texts": stored.null_texts,
        "top_tokens": _top_tokens(counts, [stored.tokens[i] for i in np.flatnonzero(used)]),
    }
    options = _Options(dim, empty, splits, seed, encodings, progress)
    return _analysis(known, counts, used, geometry, halves, keys, options, clock=clock)


class _Keys(NamedTuple):
    """PRNG keys of all that is drawn.

    Attributes:
        position: of halvings, and of the shuffled corpora.
        encodings: of encodings that are drawn.
        held_out: of held-out halves.
    """

    position: jax.Array
    encodings: jax.Array
    held_out: jax.Array


def _keys(seed: int) -> _Keys:
    return _Keys(*jax.random.split(jax.random.key(np.uint32(seed)), 3))


def _halves(
    counts: FoldedCounts, nulls: Sequence[FoldedCounts], keys: _Keys, progress: Progress
) -> PositionHalves:
    """Geometries of position of halves with no document in common."""
    drawn: dict[str, Any] = {"splits": SPLITS, "halvings": HALVINGS, "progress": progress}
    return disjoint_position_geometries(counts, nulls, key=keys.held_out, **drawn)


class _Options(NamedTuple):
    """Options of an analysis."""

    dim: int
    empty: EmptyPolicy
    splits: int
    seed: int
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry]
    progress: Progress


class _PlugIn(NamedTuple):
    """Plug-in geometry, and what is fitted to it."""

    D: jaxpe.Distances
    mds: jaxpe.ClassicalMDS  # at full width
    violation_rate: float
    by_dimension: StressByDimension
    refined: jax.Array  # coordinates of SMACOF
    seconds: dict[str, float]


def _plug_in(counts: PositionCounts, used: np.ndarray, options: _Options) -> _PlugIn:
    clock = Clock(options.progress)
    whole, policy = _all_words(counts, options.empty, used)
    with clock.stage("geometry"):
        D, mds = jax.block_until_ready(_plug_in_geometry(whole, empty=policy))
        rate = float(violation_rate(D))
    with clock.stage("dimensions"):
        by_dimension, refined = stress_by_dimension(D, mds, options.dim)
    return _PlugIn(D, mds, rate, by_dimension, refined, clock.laps)


def _all_words(
    counts: PositionCounts, empty: EmptyPolicy, used: np.ndarray
) -> tuple[PositionCounts, EmptyPolicy]:
    """Counts that the policy is for, and what it is once they are looked at.

    The counts are of the words used, bool `[vocab]`, and may have a few more.
    """
    whole = counts
    if empty == "uniform":  # over all words
        tokens = np.zeros((counts.tokens.shape[0], len(used)), np.int32)
        tokens[:, used] = counts.tokens[:, : used.sum()]
        whole = counts._replace(tokens=tokens)  # pyrefly: ignore (read by a program)
    if empty == "error":
        try:
            jaxpe.positional_distributions(counts, empty="error")
        except ValueError as error:
            raise InputError(str(error)) from error
        empty = "drop"
    return whole, empty


@partial(jax.jit, static_argnames="empty")
def _plug_in_geometry(
    whole: PositionCounts, *, empty: EmptyPolicy
) -> tuple[jaxpe.Distances, jaxpe.ClassicalMDS]:
    mu = jaxpe.positional_distributions(whole, empty=empty)
    gram = jaxpe.hellinger_gram(mu)
    mds = jaxpe.geometry.classical_mds_from_gram(gram, dim=len(gram), present=mu.present)
    return jaxpe.geometry.distances_from_gram(gram, present=mu.present), mds


@jax.jit
def _of_geometry(counts: PositionCounts, geometry: PositionGeometry) -> tuple[jax.Array, ...]:
    """Eigenvalues, MDS coordinates and more of the geometry of position; the plug-in trace."""
    width = max(3, min(WIDEST, len(geometry.gram)))
    coordinates = jaxpe.geometry.classical_mds_from_gram(
        geometry.gram, dim=width, present=geometry.present
    ).coordinates
    error = jaxpe.noise_floor(counts).split_half_error
    trace, correlation = plug_in_trace(counts, geometry.present), composition_correlation(geometry)
    return geometry.eigenvalues, coordinates, error, correlation, trace


def _counts(corpus: TokenCorpus) -> PositionCounts:
    """Counts of a corpus in one fold, counted on the host."""
    n, vocab_size = corpus.ids.shape[1], corpus.vocab_size
    document, position = np.nonzero(corpus.mask)
    cell = position * vocab_size + corpus.ids[document, position]
    tokens = np.bincount(cell, minlength=n * vocab_size).reshape(n, vocab_size)
    documents, dropped = np.int32(len(corpus.ids)), np.int32(0)
    return PositionCounts(tokens.astype(np.int32), documents, dropped)  # pyrefly: ignore


def _analysis(
    known: dict[str, Any],
    counts: PositionCounts,
    used: np.ndarray,
    geometry: PositionGeometry,
    halves: PositionHalves,
    keys: _Keys,
    options: _Options,
    *,
    clock: Clock,
) -> CorpusAnalysis:
    """The result, from counts and the geometries of position."""
    plug_in = _plug_in(counts, used, options)
    clock.lap("plug-in")
    with clock.stage("encodings"):
        encodings = score_encodings(
            plug_in.D, geometry, plug_in.mds, plug_in.refined, keys.encodings, options.encodings
        )
    with clock.stage("held-out halves"):
        rank = position_rank(geometry)
        eigenvalues, coordinates, error, correlation, trace = map(
            np.asarray, _of_geometry(counts, geometry)
        )
        shares, intervals = jax.device_get(
            (variance_shares(geometry, halves, trace), position_intervals(geometry, halves))
        )
        tested = held_out_halves(halves.position, options.dim, options.encodings)
        held_out = held_out_scores(
            tested, coordinates, rank=max(int(rank.rank), 0), dim=options.dim
        )
    per_position, judged = _per_position(counts), np.asarray(geometry.present).any()
    eigenvalues_of_all = np.asarray(plug_in.mds.eigenvalues)
    return CorpusAnalysis(
        **known,
        dim=options.dim,
        seed=options.seed,
        splits=options.splits,
        tokens=int(per_position.astype(np.int64).sum()),
        length=len(per_position),
        empty_positions=_empty_positions(counts, options.empty),
        documents_per_position=per_position,
        rare_positions=rare_positions(per_position, geometry, error, rank),
        plug_in=PlugIn(
            rank=int(plug_in.mds.rank),
            trace=float(np.sum(eigenvalues_of_all)),
            eigenvalues=eigenvalues_of_all,
            violation_rate=plug_in.violation_rate,
            present=np.asarray(plug_in.D.present),
            distances=np.asarray(plug_in.D.values),
        ),
        split_half_trace=float(np.trace(geometry.split_half.gram)) if judged else math.nan,
        position=position_of(
            geometry, rank, eigenvalues, coordinates, correlation, intervals.by_offset
        ),
        intervals=defined_intervals(shares, intervals.nearness) if judged and trace > 0 else {},
        encodings=encodings,
        stress_by_dimension=plug_in.by_dimension,
        held_out=held_out,
        seconds=clock.laps | plug_in.seconds,
    )


def _name_of(stored: "StoredCounts") -> str:
    names = [shard.name for shard in stored.shards if shard.documents]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _check_size(corpus: TokenCorpus) -> None:
    """The counts in folds must fit memory."""
    n, words = corpus.ids.shape[1], corpus.vocab_size
    if DEFAULT_FOLDS * n * words > MAX_CELLS:
        raise InputError(
            f"{n} positions x {words:,} words x {DEFAULT_FOLDS} folds are more than {MAX_CELLS:,} "
            "counts: pass a shorter `length`, or a `tokenizer` with a smaller vocabulary"
        )


def _per_position(counts: PositionCounts) -> np.ndarray:
    return np.asarray(counts.tokens).sum(axis=1, dtype=np.int64)


def _empty_positions(counts: PositionCounts, policy: EmptyPolicy) -> EmptyPositions:
    return EmptyPositions(policy, int(np.sum(_per_position(counts) == 0)))


def _top_tokens(counts: PositionCounts, tokens: list[str]) -> list[TopTokens]:
    """Most frequent tokens at the first four occupied positions, at wider steps, and the last."""
    occupied = np.flatnonzero(_per_position(counts))
    ranks = [0, 1, 2, *(2**k - 1 for k in range(2, 12)), len(occupied) - 1]
    shown = sorted({int(occupied[rank]) for rank in ranks if 0 <= rank < len(occupied)})
    return [_top_of(position, np.asarray(counts.tokens[position]), tokens) for position in shown]


def _top_of(position: int, row: np.ndarray, tokens: list[str]) -> TopTokens:
    order = np.argsort(-row, kind="stable")[:8]
    counted = [TokenCount(tokens[token], int(row[token])) for token in order if row[token]]
    return TopTokens(position, counted)

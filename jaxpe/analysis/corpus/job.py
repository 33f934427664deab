"""Analysis of a corpus, or of its counts: `CorpusAnalysis`."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.choices import Choice
from jaxpe._core.compiled import compiled
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Clock, Progress
from jaxpe._core.threads import side_by_side
from jaxpe.analysis.corpus.held_out import (
    SPLITS,
    WIDEST,
    held_out_halves,
    held_out_scores,
)
from jaxpe.analysis.corpus.noise import (
    Noise,
    compacted,
    noise_of_counts,
    noise_of_documents,
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
    EncodingScore,
    HeldOutScores,
    PlugIn,
    SlopeStress,
    SplitHalf,
    StressByDimension,
    TokenCount,
    TopTokens,
)
from jaxpe.analysis.corpus.scores import score_encodings, stress_by_dimension
from jaxpe.analysis.corpus.violations import violation_rate
from jaxpe.data import TokenCorpus, load_tokens
from jaxpe.data.ids import DEFAULT_LENGTH
from jaxpe.geometry import EmptyPolicy, PositionCounts, SplitHalfGeometry, disjoint_geometries
from jaxpe.geometry.cross_validation import disjoint_halves
from jaxpe.geometry.halving import drawn_halves, halvable_tokens, places_of, split_halves
from jaxpe.geometry.intervals import DEFAULT_SAMPLES
from jaxpe.geometry.noise import DEFAULT_FOLDS, DEFAULT_SPLITS
from jaxpe.geometry.significant_rank import null_keys

if TYPE_CHECKING:
    from jaxpe.analysis.counts import StoredCounts

MAX_CELLS = 2**31 - 1  # 8.6 GB of counts, and as much again at work


def analyse(options: CorpusOptions, *, progress: Progress = SILENT) -> CorpusAnalysis:
    """Analysis of a corpus or of stored counts, as `jaxpe report` shows it.

    Args:
        options: options of the command.
        progress: progress of reading and of long computations.

    Raises:
        InputError: options out of range, or a source that cannot be read.

    >>> options = CorpusOptions(source="synthetic", dim=8, splits=4, bootstrap=0)
    >>> analyse(options).split_half.significant_rank
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
        samples = DEFAULT_SAMPLES if options.bootstrap is None else options.bootstrap
        corpus = load_tokens(
            options.source,
            tokenizer=options.tokenizer,
            length=options.length,
            special=options.special,
            text_field=options.text_field,
            skip_nulls=options.skip_nulls,
            data_dir=options.data_dir,
            progress=progress,
        )
        refuse_too_long(corpus, options)
        clock.lap("read")
        given = {"dim": options.dim, "splits": options.splits, "seed": options.seed}
        check_numbers(length=corpus.ids.shape[1], bootstrap=samples, **given)
        found = _of_tokens(corpus, **common, bootstrap=samples)
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
    bootstrap: int = DEFAULT_SAMPLES,
    seed: int = 0,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
    progress: Progress = SILENT,
) -> CorpusAnalysis:
    """Analysis of a corpus of token ids.

    The numbers are those of the public functions. With `keys = jax.random.split(jax.random.key(
    seed), 5)` and `groups = corpus.groups()`, the split-half geometry is
    `split_half_geometry(counts, key=keys[0])` of `count_tokens(..., folds=16, groups=groups)`, the
    rank `significant_rank(..., key=keys[1], groups=groups)`, and encodings are held against halves
    of these counts by `disjoint_geometries(counts, key=keys[4], splits=8)`. Intervals have the half
    lengths of `bootstrap(..., key=keys[2], groups=groups)` with half of the splits.

    Args:
        corpus: ids and mask `[documents, n]`, from `jaxpe.data.load_tokens`.
        dim, empty, splits, bootstrap, seed, encodings: fields of `CorpusOptions`.
        progress: progress of halvings, null corpora and resamples.

    Raises:
        InputError: options out of range, more counts than memory holds, or empty positions under
            the policy "error".

    >>> from jaxpe.data import load_tokens
    >>> found = analyse_tokens(load_tokens("synthetic"), dim=8, splits=4, bootstrap=0)
    >>> found.plug_in.rank, found.split_half.significant_rank
    (31, 2)
    """
    options = {"dim": dim, "splits": splits, "bootstrap": bootstrap, "seed": seed}
    check_numbers(length=corpus.ids.shape[1], **options)
    return _of_tokens(corpus, empty=empty, encodings=encodings, progress=progress, **options)


def _of_tokens(
    corpus: TokenCorpus,
    *,
    dim: int,
    empty: EmptyPolicy,
    splits: int,
    bootstrap: int,
    seed: int,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry],
    progress: Progress,
) -> CorpusAnalysis:
    """`analyse_tokens` of options that are checked."""
    compact, used = compacted(corpus)
    _check_size(compact)
    clock = Clock()
    keys = _keys(seed, bootstrap)
    groups = compact.groups()
    clock.lap("grouping")
    counts = _counts(compact)
    sizes: dict[str, Any] = {"vocab_size": compact.vocab_size, "folds": DEFAULT_FOLDS}
    tokens = halvable_tokens(compact.ids, compact.mask, groups, **sizes)
    clock.lap("counts")
    parts = drawn_halves(keys.halves, folds=DEFAULT_FOLDS, splits=splits)
    shown: dict[str, Any] = {"splits": splits, "progress": progress}
    once, places = np.ones(len(groups), np.int32), places_of(compact.mask)
    held_out: dict[str, Any] = {"splits": SPLITS, "progress": progress}
    halved = functools.cache(lambda: split_halves(tokens, once, places, parts))
    halves = _Halves(
        lambda: halved().geometry,
        partial(disjoint_halves, tokens, compact.mask, key=keys.held_out, **held_out),
    )
    own = keys.encodings
    fitted, noise = side_by_side(
        partial(_fitted, counts, halves, empty, used, own, dim, encodings, progress=progress),
        partial(
            noise_of_documents,
            compact,
            groups,
            tokens,
            halved,
            parts,
            keys.nulls,
            keys.resamples,
            **shown,
        ),
    )
    known = {
        "source": corpus.name,
        "tokenizer": corpus.tokenizer,
        "documents": len(corpus.ids),
        "groups": len(np.unique(groups)),
        "vocab_size": corpus.vocab_size,
        "dim": dim,
        "seed": seed,
        "bootstrap": bootstrap,
        "folds": 0,
        "group_field": None,
        "edges": None,
        "null_texts": corpus.null_texts,
        "choices": corpus.choices,
        "empty_positions": _empty_positions(counts, empty),
        "top_tokens": _top_tokens(counts, compact.tokens),
    }
    return _analysis(known, counts, fitted, noise, splits=splits, clock=clock)


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
    """The same from counts that `jaxpe.analysis.counts` stored, however many documents they are of.

    What the documents themselves are needed for is different: intervals come from a jackknife over
    the folds; a document counts as independent of all others but its copies, or with a
    `group_field` of all others but those of its group, where `analyse_tokens` also finds pieces of
    longer documents; dimensions are judged against the null corpora that were counted, and are
    unknown (None) without. With bins, a position is a bin.

    Args:
        stored: counts from `jaxpe.analysis.counts.read_counts`.
        dim, empty, splits, seed, encodings, progress: arguments of `analyse_tokens`.

    Raises:
        InputError: as `analyse_tokens`.

    >>> analyse_counts(read_counts("counts")).split_half.significant_rank  # doctest: +SKIP
    6
    """
    settings = stored.settings
    if settings.rows > MAX_LENGTH:
        raise InputError(
            f"{settings.rows:,} positions are more than the {MAX_LENGTH:,} of a report: count "
            "again with `bins`"
        )
    check_numbers(length=settings.rows, dim=dim, splits=splits, bootstrap=0, seed=seed)
    shown: dict[str, Any] = {"splits": splits, "progress": progress}
    clock, keys = Clock(), _keys(seed, 0)
    used = np.any(stored.table, axis=(0, 1)).reshape(-1)
    folded = stored._replace(table=stored.table[..., used]).counts
    counts = jax.tree.map(np.asarray, folded.merged())
    halves = _Halves(
        partial(jaxpe.split_half_geometry, folded, key=keys.halves, splits=splits),
        partial(disjoint_geometries, folded, key=keys.held_out, splits=SPLITS, progress=progress),
    )
    own = keys.encodings
    fitted, noise = side_by_side(
        partial(_fitted, counts, halves, empty, used, own, dim, encodings, progress=progress),
        partial(noise_of_counts, folded, stored.nulls, used, keys.halves, **shown),
    )
    known = {
        "source": _name_of(stored),
        "tokenizer": settings.tokenizer,
        "documents": stored.documents,
        "groups": int(folded.documents),
        "vocab_size": settings.vocab_size,
        "dim": dim,
        "seed": seed,
        "bootstrap": 0,
        "folds": settings.folds,
        "group_field": settings.group_field,
        "edges": settings.edges,
        "null_texts": stored.null_texts,
        "empty_positions": _empty_positions(counts, empty),
        "top_tokens": _top_tokens(counts, [stored.tokens[i] for i in np.flatnonzero(used)]),
    }
    return _analysis(known, counts, fitted, noise, splits=splits, clock=clock)


class _Keys(NamedTuple):
    """PRNG keys of all that is drawn.

    Attributes:
        halves: of halvings.
        nulls: of the null corpora, from `null_keys`.
        resamples: of each resample.
        encodings: of encodings that are drawn.
        held_out: of held-out halves.
    """

    halves: jax.Array
    nulls: tuple[jax.Array, jax.Array]
    resamples: jax.Array
    encodings: jax.Array
    held_out: jax.Array


def _keys(seed: int, samples: int) -> _Keys:
    return _keys_of(np.uint32(seed), samples=samples)


@compiled(static=("samples",))
def _keys_of(seed: ArrayLike | np.uint32, *, samples: int) -> _Keys:
    halves, nulls, resamples, encodings, held_out = jax.random.split(jax.random.key(seed), 5)
    draws = jax.random.split(resamples, samples)
    return _Keys(halves, null_keys(nulls), draws, encodings, held_out)


class _Halves(NamedTuple):
    """Geometries of halves, made when they are asked for."""

    of_all: Callable[[], SplitHalfGeometry]  # noise-corrected, of all documents
    disjoint: Callable[[], SplitHalfGeometry]  # of halves with no document in common


class _Fitted(NamedTuple):
    """Geometries, and encodings held against them."""

    geometries: "_Geometries"
    violation_rate: float  # of the plug-in distances
    encodings: list[EncodingScore]
    slopes: list[SlopeStress]
    by_dimension: StressByDimension
    held_out: Callable[..., HeldOutScores | None]  # of the rank, which the null decides
    seconds: dict[str, float]


def _fitted(
    counts: PositionCounts,
    halves: _Halves,
    empty: EmptyPolicy,
    used: np.ndarray,
    key: jax.Array,
    dim: int,
    names: Sequence[str | jaxpe.encodings.CatalogueEntry],
    *,
    progress: Progress,
) -> _Fitted:
    clock = Clock(progress)
    whole, policy = _all_words(counts, empty, used)
    disjoint = halves.disjoint()
    clock.lap("held-out halves")
    with clock.stage("geometry"):
        geometry = halves.of_all()
        found = jax.block_until_ready(_geometries_of(whole, counts, geometry, empty=policy))
        rate = float(violation_rate(found.D))
    D, mds = found.D, found.mds
    with clock.stage("held-out halves"):
        halved = held_out_halves(disjoint, dim, names)
        held_out = partial(held_out_scores, halved, np.asarray(found.coordinates), dim=dim)
    with clock.stage("dimensions"):
        by_dimension, refined = stress_by_dimension(D, mds, dim)
    with clock.stage("encodings"):
        encodings, slopes = score_encodings(D, geometry, mds, refined, key, names)
    return _Fitted(found, rate, encodings, slopes, by_dimension, held_out, clock.laps)


class _Geometries(NamedTuple):
    """Plug-in geometry, that of split halves, and the noise of each position in it."""

    D: jaxpe.Distances
    mds: jaxpe.ClassicalMDS  # at full width
    split_half: SplitHalfGeometry
    split_half_error: jax.Array
    eigenvalues: jax.Array  # of split halves, as the next
    coordinates: jax.Array  # [n, min(n, WIDEST)], and 3 columns at least


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


@compiled(static=("empty",))
def _geometries_of(
    whole: PositionCounts,
    counts: PositionCounts,
    split_half: SplitHalfGeometry,
    *,
    empty: EmptyPolicy,
) -> _Geometries:
    mu = jaxpe.positional_distributions(whole, empty=empty)
    gram = jaxpe.hellinger_gram(mu)
    mds = jaxpe.geometry.classical_mds_from_gram(gram, dim=len(gram), present=mu.present)
    D = jaxpe.geometry.distances_from_gram(gram, present=mu.present)
    error = jaxpe.noise_floor(counts).split_half_error
    coordinates = jaxpe.geometry.classical_mds_from_gram(
        split_half.gram, dim=max(3, min(WIDEST, len(gram))), present=split_half.present
    ).coordinates
    return _Geometries(D, mds, split_half, error, split_half.eigenvalues, coordinates)


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
    fitted: _Fitted,
    noise: Noise,
    *,
    splits: int,
    clock: Clock,
) -> CorpusAnalysis:
    """The result, from its parts."""
    found = fitted.geometries
    D, mds, geometry = found.D, found.mds, found.split_half
    per_position = _per_position(counts)
    split_half = _split_half(found, noise)
    return CorpusAnalysis(
        **known,
        splits=splits,
        tokens=int(per_position.astype(np.int64).sum()),
        length=len(per_position),
        documents_per_position=per_position,
        rare_positions=rare_positions(
            per_position, geometry, np.asarray(found.split_half_error), noise.rank
        ),
        plug_in=PlugIn(
            rank=int(mds.rank),
            trace=float(np.sum(np.asarray(mds.eigenvalues))),
            eigenvalues=np.asarray(mds.eigenvalues),
            violation_rate=fitted.violation_rate,
            noise_share=float(noise.estimate["noise_share"]),
            present=np.asarray(D.present),
            distances=np.asarray(D.values),
        ),
        split_half=split_half,
        intervals=noise.intervals,
        encodings=fitted.encodings,
        alibi_slopes=fitted.slopes,
        stress_by_dimension=fitted.by_dimension,
        held_out=fitted.held_out(rank=split_half.significant_rank),
        seconds=clock.laps | fitted.seconds | noise.seconds,
    )


def _split_half(found: _Geometries, noise: Noise) -> SplitHalf:
    geometry, rank = found.split_half, noise.rank
    present = np.asarray(geometry.present)
    unknown = rank is None or int(rank.rank) < 0
    nothing = np.full(len(present), np.nan, np.float32)
    tested = nothing if rank is None else np.asarray(rank.eigenvalues)
    return SplitHalf(
        trace=float(np.trace(np.asarray(geometry.gram))) if present.any() else math.nan,
        eigenvalues=np.asarray(found.eigenvalues),
        significant_rank=None if unknown else int(rank.rank),
        violation_rate=float(noise.estimate["split_half_violation_rate"]),
        positions=int(present.sum()),
        rank_eigenvalues=tested,
        null_eigenvalue=math.nan if rank is None else float(rank.threshold) + 0.0,  # no −0
        present=present,
        squared_distances=np.asarray(geometry.squared_distances),
        coordinates=np.asarray(found.coordinates)[:, :3],
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

"""From a corpus to an `Analysis`."""

import math
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import LARGEST_SIZE, check_range, check_seed
from jaxpe._core.progress import Clock
from jaxpe.analysis.corpus.noise import (
    FOLDS,
    Noise,
    compacted,
    measure_noise,
    noise_of_counts,
    rare_positions,
)
from jaxpe.analysis.corpus.result import Analysis
from jaxpe.analysis.corpus.scores import score_encodings, stress_by_dimension
from jaxpe.data import Progress, TokenCorpus
from jaxpe.geometry import EmptyPolicy, PositionCounts

if TYPE_CHECKING:
    from jaxpe.analysis.counts import StoredCounts

MAX_LENGTH = 4096  # matrices of positions are dense
MAX_CELLS = 2**31 - 1  # 8.6 GB of counts, and as much again at work
MAX_SPLITS = 10_000  # beyond it only time is spent
MAX_RESAMPLES = 100_000
_VECTORS = 16  # tables [n, dim] at once: drawn ones, and the gradients of these


def analyse(
    corpus: TokenCorpus,
    *,
    dim: int = 64,
    empty: EmptyPolicy = "drop",
    splits: int = 8,
    bootstrap: int = 40,
    seed: int = 0,
    progress: Progress | None = None,
) -> Analysis:
    """Everything jaxpe can tell of how tokens depend on position in a corpus.

    Args:
        corpus: ids and mask `[documents, n]`, from `jaxpe.data.load_tokens`.
        dim: width at which encodings are compared; even, since frequencies come in pairs.
        empty: what positions without a token become, as in `positional_distributions`.
        splits: halvings of the corpus that the noise-corrected geometry averages over.
        bootstrap: resamples behind the intervals; 0 for none.
        seed: makes every number reproducible.
        progress: `progress(iterable, description, total=None)`, to show what takes time.

    Raises `InputError` for options out of range, and a `ValueError` under the policy "error".

    >>> from jaxpe.data import load_tokens
    >>> analysis = analyse(load_tokens("synthetic"), dim=8, splits=4, bootstrap=0)
    >>> analysis.plug_in_rank, analysis.effective_rank
    (31, 2)
    """
    check_options(
        length=corpus.ids.shape[1], dim=dim, splits=splits, bootstrap=bootstrap, seed=seed
    )
    compact = compacted(corpus)
    _check_size(compact)
    progress = progress or (lambda iterable, description, total=None: iterable)
    clock = Clock()
    keys = jax.random.split(jax.random.key(seed), 4)
    # The uniform distribution is over the whole vocabulary; else words never seen only cost time.
    counted = corpus if empty == "uniform" else compact
    counts = jaxpe.count_tokens(
        counted.ids, vocab_size=counted.vocab_size, mask=counted.mask, exclude=counted.exclude
    )
    D, mds, violation_rate = _plug_in(_distributions(counts, empty), clock)
    noise = measure_noise(compact, keys, splits, bootstrap, progress, clock)
    known = _Known(
        source=corpus.name,
        tokenizer=corpus.tokenizer,
        documents=len(corpus.ids),
        vocab_size=corpus.vocab_size,
        tokens=counted.tokens,
        dim=dim,
        seed=seed,
        splits=splits,
        bootstrap=bootstrap,
        empty_policy=empty,
    )
    return _analysis(known, counts, D, mds, violation_rate, noise, keys[3], progress, clock)


def analyse_counts(
    stored: "StoredCounts",
    *,
    dim: int = 64,
    empty: EmptyPolicy = "drop",
    splits: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> Analysis:
    """The same from counts that `jaxpe.analysis.counts` stored, however many documents they are of.

    What the documents themselves are needed for is different: intervals come from a jackknife over
    the folds; a document counts as independent of all others but its copies, or with a
    `group_field` of all others but those of its group, where `analyse` also finds pieces of longer
    documents; dimensions are judged against the null corpora that were counted, and are unknown
    (−1) without. With bins, a position is a bin.

    Args:
        stored: from `jaxpe.analysis.counts.read_counts`.
        dim, empty, splits, seed, progress: as in `analyse`.

    Raises `InputError` as `analyse`.
    """
    settings = stored.settings
    if settings.rows > MAX_LENGTH:
        raise InputError(
            f"{settings.rows:,} positions are more than the {MAX_LENGTH:,} of a report: count "
            "again with `bins`"
        )
    check_options(length=settings.rows, dim=dim, splits=splits, bootstrap=0, seed=seed)
    progress = progress or (lambda iterable, description, total=None: iterable)
    clock = Clock()
    keys = jax.random.split(jax.random.key(seed), 4)
    used = np.any(stored.table, axis=(0, 1)).reshape(-1)
    kept = np.ones_like(used) if empty == "uniform" else used
    folded = _of_words(stored, used)
    counts = _of_words(stored, kept).merged()
    D, mds, violation_rate = _plug_in(_distributions(counts, empty), clock)
    nulls = (folded._replace(tokens=jnp.asarray(null[..., used])) for null in stored.nulls)
    noise = noise_of_counts(folded, nulls, keys, splits, clock)
    known = _Known(
        source=_name_of(stored),
        tokenizer=settings.tokenizer,
        documents=stored.documents,
        vocab_size=settings.vocab_size,
        tokens=[stored.tokens[token] for token in np.flatnonzero(kept)],
        dim=dim,
        seed=seed,
        splits=splits,
        bootstrap=0,
        empty_policy=empty,
        edges=settings.edges,
        folds=settings.folds,
        group_field=settings.group_field,
    )
    return _analysis(known, counts, D, mds, violation_rate, noise, keys[3], progress, clock)


class _Known(NamedTuple):
    """What is known before anything is measured."""

    source: str
    tokenizer: str
    documents: int
    vocab_size: int
    tokens: list[str]  # of the counts
    dim: int
    seed: int
    splits: int
    bootstrap: int
    empty_policy: EmptyPolicy
    edges: tuple[int, ...] | None = None
    folds: int = 0  # that intervals come from; 0 where they come from a bootstrap
    group_field: str | None = None


def _analysis(
    known: _Known,
    counts: PositionCounts,
    D: jaxpe.Distances,
    mds: jaxpe.ClassicalMDS,
    violation_rate: jax.Array,
    noise: Noise,
    key: jax.Array,
    progress: Progress,
    clock: Clock,
) -> Analysis:
    """Encodings scored, and all of it together."""
    geometry, dim = noise.geometry, known.dim
    encodings, slopes = score_encodings(D, geometry, mds, dim, key)
    clock.lap("encodings")
    widths, raw, scaled = stress_by_dimension(D, geometry, mds, dim, progress)
    clock.lap("dimensions")
    per_position = np.asarray(counts.per_position)
    shown = _shown_positions(per_position)
    trace = float(geometry.trace) if bool(geometry.present.any()) else math.nan
    settings = {name: value for name, value in known._asdict().items() if name != "tokens"}
    return Analysis(
        **settings,
        groups=noise.groups,
        tokens=int(per_position.astype(np.int64).sum()),
        length=len(per_position),
        documents_per_position=per_position,
        present=np.asarray(D.present),
        judged=np.asarray(geometry.present),
        rare=rare_positions(counts, geometry, noise.rank.rank),
        top_tokens=[_top_tokens(counts, known.tokens, position) for position in shown],
        top_token_positions=shown,
        hellinger=np.asarray(D.values),
        split_half_squared=np.asarray(geometry.squared_distances),
        plug_in_eigenvalues=np.asarray(mds.eigenvalues),
        split_half_eigenvalues=np.asarray(geometry.eigenvalues),
        rank_eigenvalues=np.asarray(noise.rank.eigenvalues),
        null_eigenvalue=float(noise.rank.threshold) + 0.0,  # no −0
        plug_in_rank=int(mds.rank),
        plug_in_trace=float(jnp.sum(mds.eigenvalues)),
        plug_in_violation_rate=float(violation_rate),
        noise_share=float(noise.estimate["noise_share"]),
        split_half_trace=trace,
        effective_rank=int(noise.rank.rank),
        split_half_violation_rate=float(noise.estimate["split_half_violation_rate"]),
        intervals=noise.intervals,
        coordinates=np.asarray(
            jaxpe.geometry.classical_mds_from_gram(
                geometry.gram, dim=3, present=geometry.present
            ).coordinates
        ),
        encodings=encodings,
        alibi_slopes=slopes,
        stress_by_dimension=raw,
        scaled_stress_by_dimension=scaled,
        dimensions=widths,
        timings=clock.laps,
    )


def _of_words(stored: "StoredCounts", kept: np.ndarray) -> PositionCounts:
    """The counts of some words."""
    return stored._replace(table=stored.table[..., kept]).counts


def _name_of(stored: "StoredCounts") -> str:
    names = [shard.name for shard in stored.shards if shard.documents]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def check_options(
    *, length: int | None = None, dim: int, splits: int, bootstrap: int, seed: int
) -> None:
    """Refuse options that cannot work, before any time is spent; raises `InputError`."""
    check_range("length", length, least=1, most=MAX_LENGTH)
    check_range("dim", dim, most=LARGEST_SIZE)
    if dim <= 0 or dim % 2:
        raise InputError(f"`dim` must be a positive even number, not {dim}: try `dim=64`")
    needed = 4 * _VECTORS * (length or 2) * dim
    check_bytes(needed, what=f"`dim={dim}`", remedy="pass a smaller one, such as `dim=64`")
    check_range("splits", splits, least=1, most=MAX_SPLITS)
    if bootstrap < 0 or bootstrap == 1:
        raise InputError(f"`bootstrap` must be 0 (no intervals) or at least 2, not {bootstrap}")
    check_range("bootstrap", bootstrap, most=MAX_RESAMPLES)
    check_seed("seed", seed)


def _check_size(corpus: TokenCorpus) -> None:
    """The counts in folds must fit memory."""
    n, words = corpus.ids.shape[1], corpus.vocab_size
    if FOLDS * n * words > MAX_CELLS:
        raise InputError(
            f"{n} positions x {words:,} words x {FOLDS} folds are more than {MAX_CELLS:,} counts: "
            "pass a shorter `length`, or a `tokenizer` with a smaller vocabulary"
        )


def _plug_in(
    mu: jaxpe.PositionalDistributions, clock: Clock
) -> tuple[jaxpe.Distances, jaxpe.ClassicalMDS, jax.Array]:
    """Distances, classical MDS at full width, and the violation rate."""
    found = jax.block_until_ready(_plug_in_geometry(mu))
    clock.lap("plug-in geometry")
    return found


@jax.jit
def _plug_in_geometry(
    mu: jaxpe.PositionalDistributions,
) -> tuple[jaxpe.Distances, jaxpe.ClassicalMDS, jax.Array]:
    gram = jaxpe.hellinger_gram(mu)
    mds = jaxpe.geometry.classical_mds_from_gram(gram, dim=len(gram), present=mu.present)
    D = jaxpe.geometry.distances_from_gram(gram, present=mu.present)
    return D, mds, jaxpe.monotonicity_violation_rate(D)


def _distributions(counts: PositionCounts, empty: EmptyPolicy) -> jaxpe.PositionalDistributions:
    try:
        return jaxpe.positional_distributions(counts, empty=empty)
    except ValueError as error:
        raise InputError(str(error)) from error


def _shown_positions(per_position: np.ndarray) -> list[int]:
    """Up to eight occupied positions: the first four, then ever later ones."""
    occupied = np.flatnonzero(per_position)
    ranks = [r for r in (0, 1, 2, 3, 7, 15, 31, 63) if r < len(occupied)]
    return [int(occupied[r]) for r in ranks]


def _top_tokens(counts: PositionCounts, tokens: list[str], position: int) -> list[tuple[str, int]]:
    row = np.asarray(counts.tokens[position])
    order = np.argsort(-row, kind="stable")[:8]
    return [(tokens[token], int(row[token])) for token in order if row[token]]

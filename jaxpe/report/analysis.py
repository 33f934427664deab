"""What a report says, as numbers: one corpus in, one `Analysis` out. No figures, no files."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._errors import InputError
from jaxpe.data import Progress, TokenCorpus, containment_groups
from jaxpe.geometry import EmptyPolicy, PositionCounts, SplitHalfGeometry

FOLDS = 16
NULLS = 20
RANDOM_DRAWS = 8
ALIBI_HEADS = 8


class EncodingScore(NamedTuple):
    """How one encoding fits the corpus geometry (distances over the positions present)."""

    name: str  # "mds", "smacof", "sinusoidal", "rope", "alibi", "random"
    dim: int
    parameters: int  # trainable or corpus-fitted numbers
    stress: float  # Eq. (4), raw scale
    scaled_stress: float  # min over one scale factor, in [0, 1]
    kruskal_stress1: float
    split_half_scaled_stress: float  # against the noise-corrected distances
    violation_rate: float  # in [0, 1]; 0.5 is chance
    pearson_r: float
    min_separation: float
    distances: np.ndarray  # float [n, n], Euclidean, at the original positions
    note: str  # the map used, e.g. "orbit of a reference vector with equal pair norms"
    fitted: bool  # made from the very distances it is scored against


class Interval(NamedTuple):
    """An estimate with a bootstrap interval over documents."""

    estimate: float
    low: float
    high: float


class Analysis(NamedTuple):
    """Everything the page, the table and `report.json` show."""

    source: str
    tokenizer: str
    documents: int
    groups: int  # independent groups of documents; pieces of one text share a group
    tokens: int
    length: int
    vocab_size: int
    dim: int
    seed: int
    splits: int
    bootstrap: int
    empty_policy: str
    documents_per_position: np.ndarray  # int [n]
    present: np.ndarray  # bool [n], positions that take part (plug-in)
    judged: np.ndarray  # bool [n], positions present in both halves of every split
    rare: np.ndarray  # bool [n], present, but too few documents to judge
    top_tokens: list[list[tuple[str, int]]]  # per shown position: its most frequent tokens
    top_token_positions: list[int]
    hellinger: np.ndarray  # float [n, n] plug-in distances
    split_half_squared: np.ndarray  # float [n, n], may be negative
    plug_in_eigenvalues: np.ndarray  # float [n], descending
    split_half_eigenvalues: np.ndarray  # float [n], descending
    rank_eigenvalues: np.ndarray  # float [n], tested: weighted split-half Gram less the null's
    null_eigenvalue: float  # 95 % quantile of the largest of these under the permutation null
    plug_in_rank: int
    plug_in_trace: float
    plug_in_violation_rate: float
    noise_share: float  # of the plug-in trace, over the judged positions
    split_half_trace: float
    effective_rank: int
    split_half_violation_rate: float
    intervals: dict[str, Interval]  # "split_half_trace", "noise_share", "..._violation_rate"
    coordinates: np.ndarray  # float [n, 3], leading MDS coordinates of the split-half geometry
    encodings: list[EncodingScore]
    alibi_slopes: list[tuple[float, float]]  # (slope, stress): the standard ones, then the best
    stress_by_dimension: dict[str, np.ndarray]  # name -> float [len(dimensions)], Eq. (4)
    scaled_stress_by_dimension: dict[str, np.ndarray]
    dimensions: np.ndarray  # int, the widths of the two curves above
    timings: dict[str, float]  # seconds by stage

    def to_json(self) -> dict[str, Any]:
        """The machine-readable report: what `report.json` holds. Undefined numbers are null.

        Timings are left out, so that the same seed gives the same file.
        """
        scores = [
            {
                name: _plain(value)
                for name, value in score._asdict().items()
                if name not in ("distances",)
            }
            for score in self.encodings
        ]
        return {
            "source": self.source,
            "tokenizer": self.tokenizer,
            "documents": self.documents,
            "groups": self.groups,
            "tokens": self.tokens,
            "length": self.length,
            "vocab_size": self.vocab_size,
            "dim": self.dim,
            "seed": self.seed,
            "splits": self.splits,
            "bootstrap": self.bootstrap,
            "empty_positions": {
                "policy": self.empty_policy,
                "count": int(np.sum(self.documents_per_position == 0)),
            },
            "documents_per_position": _plain(self.documents_per_position),
            "rare_positions": _plain(np.flatnonzero(self.rare)),
            "plug_in": {
                "rank": self.plug_in_rank,
                "trace": _plain(self.plug_in_trace),
                "eigenvalues": _plain(self.plug_in_eigenvalues),
                "violation_rate": _plain(self.plug_in_violation_rate),
                "noise_share": _plain(self.noise_share),
            },
            "split_half": {
                "trace": _plain(self.split_half_trace),
                "eigenvalues": _plain(self.split_half_eigenvalues),
                "effective_rank": self.effective_rank,
                "violation_rate": _plain(self.split_half_violation_rate),
                "positions": int(np.sum(self.judged)),
                "rank_eigenvalues": _plain(self.rank_eigenvalues),
                "null_eigenvalue": _plain(self.null_eigenvalue),
            },
            "intervals": {name: _plain(list(i)) for name, i in self.intervals.items()},
            "encodings": scores,
            "alibi_slopes": [{"slope": s, "stress": _plain(v)} for s, v in self.alibi_slopes],
            "stress_by_dimension": {
                "dimensions": _plain(self.dimensions),
                "stress": {name: _plain(v) for name, v in self.stress_by_dimension.items()},
                "scaled_stress": {
                    name: _plain(v) for name, v in self.scaled_stress_by_dimension.items()
                },
            },
        }


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
    _check_options(dim, splits, bootstrap)
    progress = progress or (lambda iterable, description, total=None: iterable)
    clock = _Clock()
    keys = jax.random.split(jax.random.key(seed), 4)
    counts, mu, D, mds = _plug_in(corpus, empty)
    clock.lap("plug-in geometry")
    noise = _noise(corpus, keys, splits, bootstrap, progress, clock)
    geometry = noise.geometry
    encodings, slopes = _score_encodings(D, geometry, mds, dim, keys[3])
    clock.lap("encodings")
    widths, raw, scaled = _by_dimension(D, geometry, mds, dim, progress)
    clock.lap("dimensions")
    plug_in_trace = jnp.sum(mds.eigenvalues)
    shown = _shown_positions(np.asarray(counts.per_position))
    trace = float(geometry.trace) if bool(geometry.present.any()) else math.nan
    return Analysis(
        source=corpus.name,
        tokenizer=corpus.tokenizer,
        documents=len(corpus.ids),
        groups=noise.groups,
        tokens=int(np.asarray(counts.per_position, np.int64).sum()),
        length=corpus.ids.shape[1],
        vocab_size=corpus.vocab_size,
        dim=dim,
        seed=seed,
        splits=splits,
        bootstrap=bootstrap,
        empty_policy=empty,
        documents_per_position=np.asarray(counts.per_position),
        present=np.asarray(mu.present),
        judged=np.asarray(geometry.present),
        rare=_rare(counts, geometry, noise.rank.rank),
        top_tokens=[_top_tokens(counts, corpus.tokens, position) for position in shown],
        top_token_positions=shown,
        hellinger=np.asarray(D.values),
        split_half_squared=np.asarray(geometry.squared_distances),
        plug_in_eigenvalues=np.asarray(mds.eigenvalues),
        split_half_eigenvalues=np.asarray(geometry.eigenvalues),
        rank_eigenvalues=np.asarray(noise.rank.eigenvalues),
        null_eigenvalue=float(noise.rank.threshold),
        plug_in_rank=int(mds.rank),
        plug_in_trace=float(plug_in_trace),
        plug_in_violation_rate=float(_violation_rate(D)),
        noise_share=float(noise.estimate["noise_share"]),
        split_half_trace=trace,
        effective_rank=int(noise.rank.rank),
        split_half_violation_rate=float(noise.estimate["split_half_violation_rate"]),
        intervals=noise.intervals,
        coordinates=np.asarray(
            jaxpe.classical_mds_from_gram(
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


class _Clock:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


class _Noise(NamedTuple):
    geometry: SplitHalfGeometry
    groups: int
    rank: jaxpe.EffectiveRank
    estimate: dict[str, jax.Array]
    intervals: dict[str, Interval]


def _check_options(dim: int, splits: int, bootstrap: int) -> None:
    if dim <= 0 or dim % 2:
        raise InputError(f"--dim must be a positive even number, not {dim}: try --dim 64")
    if splits < 1:
        raise InputError(f"--splits must be at least 1, not {splits}")
    if bootstrap < 0 or bootstrap == 1:
        raise InputError(f"--bootstrap must be 0 (no intervals) or at least 2, not {bootstrap}")


def _plug_in(
    corpus: TokenCorpus, empty: EmptyPolicy
) -> tuple[PositionCounts, jaxpe.PositionalDistributions, jaxpe.Distances, jaxpe.ClassicalMDS]:
    """Counts, distributions, distances, and classical MDS at full width."""
    count = partial(jaxpe.count_tokens, vocab_size=corpus.vocab_size, exclude=corpus.exclude)
    counts = count(corpus.ids, mask=corpus.mask)
    try:
        mu = jaxpe.positional_distributions(counts, empty=empty)
    except ValueError as error:
        raise InputError(str(error)) from error

    @jax.jit
    def geometry(mu):
        gram = jaxpe.hellinger_gram(mu)
        mds = jaxpe.classical_mds_from_gram(gram, dim=len(gram), present=mu.present)
        return jaxpe.hellinger_distances(mu), mds

    return counts, mu, *geometry(mu)


def _noise(
    corpus: TokenCorpus,
    keys: jax.Array,
    splits: int,
    bootstrap: int,
    progress: Progress,
    clock: _Clock,
) -> _Noise:
    """Split-half geometry, its rank above the permutation null, and bootstrap intervals."""
    groups = containment_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    ids, mask, vocab_size = _compacted(corpus)
    clock.lap("grouping")
    # The corpus goes in as arguments: XLA would spend minutes folding it as a constant.
    count = partial(
        jax.jit(partial(jaxpe.count_tokens, vocab_size=vocab_size, folds=FOLDS)),
        mask=mask,
        groups=groups,
    )
    split = jax.jit(partial(jaxpe.split_half_geometry, key=keys[0], splits=splits))
    weighted = jax.jit(jaxpe.weighted_gram)
    permute = partial(jax.jit(jaxpe.permute_within_documents), mask=mask)
    counts = count(ids)
    geometry = split(counts)
    clock.lap("split halves")

    null = []
    for key in progress(jax.random.split(keys[1], NULLS), "permutation null", total=NULLS):
        permuted = count(permute(key, ids))
        null.append(weighted(split(permuted), permuted))
    rank = jaxpe.rank_above_null(weighted(geometry, counts), jnp.stack(null))
    clock.lap("permutation null")

    statistics = jax.jit(lambda counts: _statistics(counts, split(counts)))
    estimate = statistics(counts)
    draws = []
    for key in progress(jax.random.split(keys[2], bootstrap), "bootstrap", total=bootstrap):
        repeats = jaxpe.resample_documents(key, len(ids), groups=groups)
        draws.append(statistics(count(ids, repeats=repeats)))
    clock.lap("bootstrap")
    intervals = _intervals(estimate, draws)
    return _Noise(geometry, len(np.unique(groups)), rank, estimate, intervals)


def _statistics(counts: PositionCounts, geometry: SplitHalfGeometry) -> dict[str, jax.Array]:
    """What the intervals are about, plug-in and corrected on the same positions."""
    mu = jaxpe.positional_distributions(counts)._replace(present=geometry.present)
    plug_in_trace = jnp.trace(jaxpe.hellinger_gram(mu))
    return {
        "split_half_trace": geometry.trace,
        "noise_share": 1.0 - geometry.trace / plug_in_trace,
        "split_half_violation_rate": jaxpe.monotonicity_violation_rate(geometry.distances),
    }


def _intervals(estimate: dict, draws: list[dict]) -> dict[str, Interval]:
    """95 % intervals centred at the estimates; what the resamples add in noise is left out."""
    if not draws:
        return {}
    samples = jax.tree.map(lambda *values: jnp.stack(values), *draws)
    intervals = {}
    for name, value in estimate.items():
        error = 1.96 * float(jnp.std(samples[name]))
        intervals[name] = Interval(float(value), float(value) - error, float(value) + error)
    return intervals


def _compacted(corpus: TokenCorpus) -> tuple[np.ndarray, np.ndarray, int]:
    """Ids renumbered over the words that are counted; words never counted cost time alone."""
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    used = np.zeros(corpus.vocab_size, bool)
    used[corpus.ids[counted]] = True
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    ids = np.where(counted, renumbered[corpus.ids], 0).astype(np.int32)
    return ids, counted, int(used.sum())


_violation_rate = jax.jit(jaxpe.monotonicity_violation_rate)


@jax.jit
def _refined(D: jaxpe.Distances, start: jax.Array) -> jax.Array:
    """SMACOF from a start padded to n columns: zero columns stay zero, so one program serves."""
    n = D.values.shape[0]
    return jaxpe.smacof(D, dim=n, init=_columns(start, n), max_iterations=300).coordinates


def _score_encodings(
    D: jaxpe.Distances,
    geometry: SplitHalfGeometry,
    mds: jaxpe.ClassicalMDS,
    dim: int,
    key: jax.Array,
) -> tuple[list[EncodingScore], list[tuple[float, float]]]:
    """Every encoding at width dim, and ALiBi's stress by slope."""
    n = D.values.shape[0]
    positions = jnp.arange(n)
    measure = partial(_measure, D=D, corrected=geometry.distances, width=max(dim, n))
    score = partial(_score, measure=measure)
    start = _columns(mds.coordinates, dim)
    refined = _refined(D, start)
    slope, slopes = _alibi_slopes(positions, measure)
    draws = [
        score(
            "random", dim, jaxpe.random_vectors(draw, n, dim=dim), note="N(0, 1), mean of 8 draws"
        )
        for draw in jax.random.split(key, RANDOM_DRAWS)
    ]
    rank = min(dim, int(mds.rank))
    fitted = {"parameters": rank * (n + dim), "fitted": True}
    sinusoidal = jaxpe.sinusoidal_vectors(positions, dim=dim)
    orbit = jaxpe.rotary_orbit(positions, dim=dim)
    line = jaxpe.alibi_line(positions, slope=slope)
    return [
        score("mds", dim, start, note=f"classical MDS, rank {rank}", **fitted),
        score("smacof", dim, refined, note="stress minimised from MDS", **fitted),
        score("sinusoidal", dim, sinusoidal, note="its vectors, base 10,000"),
        score("rope", dim, orbit, note="orbit of a vector with unit pairs"),
        score("alibi", 1, line, note=f"line of slope {slope:.3g}, its best standard one"),
        _mean_score(draws),
    ], slopes


@jax.jit
def _measures(
    P: jax.Array, D: jaxpe.Distances, corrected: jaxpe.Distances
) -> tuple[dict[str, jax.Array], jax.Array]:
    """All scores of one encoding, and its distances."""
    delta = jaxpe.euclidean_distances(P, present=D.present)
    scaled = jaxpe.scaled_stress(P, D)
    return {
        "stress": jaxpe.stress(P, D),
        "scaled_stress": scaled.stress,
        "scale": scaled.scale,
        "kruskal_stress1": jaxpe.kruskal_stress1(P, D),
        "split_half_scaled_stress": jnp.where(
            corrected.present.any(), jaxpe.scaled_stress(P, corrected).stress, jnp.nan
        ),
        "violation_rate": jaxpe.monotonicity_violation_rate(delta),
        "pearson_r": jaxpe.distance_correlation_pearson(P, D),
        "min_separation": jaxpe.min_separation(P, present=D.present),
    }, delta.values


def _measure(
    P: jax.Array, *, D: jaxpe.Distances, corrected: jaxpe.Distances, width: int
) -> tuple[dict[str, float], np.ndarray]:
    """`_measures` of P padded with zeros to one width, so that it is compiled once."""
    values, delta = _measures(_columns(P, width), D, corrected)
    return {name: float(value) for name, value in values.items()}, np.asarray(delta)


def _columns(P: jax.Array, width: int) -> jax.Array:
    """The first columns of P, with zeros where it has fewer: distances stay what they are."""
    return jnp.pad(P[:, :width], ((0, 0), (0, max(width - P.shape[1], 0))))


def _score(
    name: str,
    dim: int,
    P: jax.Array,
    *,
    measure: Callable[[jax.Array], tuple[dict[str, float], np.ndarray]],
    note: str,
    parameters: int = 0,
    fitted: bool = False,
) -> EncodingScore:
    values, delta = measure(P)
    del values["scale"]
    return EncodingScore(
        name=name,
        dim=dim,
        parameters=parameters,
        distances=delta,
        note=note,
        fitted=fitted,
        **values,
    )


def _mean_score(draws: list[EncodingScore]) -> EncodingScore:
    """Scores averaged over draws; the distances are those of the first."""
    means = {
        name: float(np.mean([getattr(draw, name) for draw in draws]))
        for name, value in draws[0]._asdict().items()
        if isinstance(value, float)
    }
    return draws[0]._replace(**means)


def _alibi_slopes(positions: jax.Array, measure) -> tuple[float, list[tuple[float, float]]]:
    """The standard slope with the lowest stress, and (slope, stress) of all and of the best."""

    def stress_at(slope: float) -> float:
        return measure(jaxpe.alibi_line(positions, slope=slope))[0]["stress"]

    standard = [(float(m), stress_at(float(m))) for m in jaxpe.alibi_slopes(ALIBI_HEADS)]
    best = measure(jaxpe.alibi_line(positions))[0]
    slope, _ = min(standard, key=lambda pair: pair[1])
    return slope, [*standard, (best["scale"], best["scaled_stress"])]


def _by_dimension(
    D: jaxpe.Distances,
    geometry: SplitHalfGeometry,
    mds: jaxpe.ClassicalMDS,
    dim: int,
    progress: Progress,
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Stress and scaled stress of MDS, SMACOF and sinusoids at widths 2, 4, 8, ... (Figure 4)."""
    n = D.values.shape[0]
    widths = [2**k for k in range(1, 12) if 2**k <= max(dim, n)]
    raw: dict[str, list[float]] = {"mds": [], "smacof": [], "sinusoidal": []}
    scaled: dict[str, list[float]] = {"mds": [], "smacof": [], "sinusoidal": []}
    for width in progress(widths, "dimensions", total=len(widths)):
        start = _columns(mds.coordinates, width)
        encodings = {
            "mds": start,
            "smacof": _refined(D, start),
            "sinusoidal": jaxpe.sinusoidal_vectors(jnp.arange(n), dim=width),
        }
        for name, P in encodings.items():
            values, _ = _measure(P, D=D, corrected=geometry.distances, width=max(dim, n))
            raw[name].append(values["stress"])
            scaled[name].append(values["scaled_stress"])
    as_arrays = {name: np.array(values) for name, values in raw.items()}
    return np.array(widths), as_arrays, {name: np.array(v) for name, v in scaled.items()}


def _rare(counts: PositionCounts, geometry: SplitHalfGeometry, rank: jax.Array) -> np.ndarray:
    """Positions with tokens whose own noise hides a signal of typical size.

    Not judged at all, or with a standard error of the squared distance to the centroid above half
    of its mean over positions. Without any signal there is no size to compare with.
    """
    judged = np.asarray(geometry.present)
    occupied = np.asarray(counts.per_position) > 0
    error = np.asarray(jaxpe.noise_floor(counts).split_half_error)
    typical = float(geometry.trace) / max(judged.sum(), 1)
    hidden = (2.0 * error > typical) if int(rank) > 0 else np.zeros_like(judged)
    return occupied & (~judged | hidden)


def _shown_positions(per_position: np.ndarray) -> list[int]:
    """Up to eight occupied positions: the first four, then ever later ones."""
    occupied = np.flatnonzero(per_position)
    ranks = [r for r in (0, 1, 2, 3, 7, 15, 31, 63) if r < len(occupied)]
    return [int(occupied[r]) for r in ranks]


def _top_tokens(counts: PositionCounts, tokens: list[str], position: int) -> list[tuple[str, int]]:
    row = np.asarray(counts.tokens[position])
    order = np.argsort(-row, kind="stable")[:8]
    return [(tokens[token], int(row[token])) for token in order if row[token]]


def _plain(value: Any) -> Any:
    """NumPy as lists and numbers; what is not finite as None, which JSON writes as null."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""From a corpus to an `Analysis`."""

import math

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._errors import InputError
from jaxpe.data import Progress, TokenCorpus
from jaxpe.geometry import EmptyPolicy, PositionCounts
from jaxpe.report._clock import Clock
from jaxpe.report._noise import FOLDS, compacted, measure_noise, rare_positions
from jaxpe.report._scores import score_encodings, stress_by_dimension
from jaxpe.report.analysis import Analysis

MAX_LENGTH = 4096  # matrices of positions are dense
MAX_CELLS = 2**31 - 1  # 8.6 GB of counts, and as much again at work


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
    counts, mu = _distributions(counted, empty)
    D, mds, violation_rate = _plug_in(mu)
    clock.lap("plug-in geometry")
    noise = measure_noise(compact, keys, splits, bootstrap, progress, clock)
    geometry = noise.geometry
    encodings, slopes = score_encodings(D, geometry, mds, dim, keys[3])
    clock.lap("encodings")
    widths, raw, scaled = stress_by_dimension(D, geometry, mds, dim, progress)
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
        rare=rare_positions(counts, geometry, noise.rank.rank),
        top_tokens=[_top_tokens(counts, counted.tokens, position) for position in shown],
        top_token_positions=shown,
        hellinger=np.asarray(D.values),
        split_half_squared=np.asarray(geometry.squared_distances),
        plug_in_eigenvalues=np.asarray(mds.eigenvalues),
        split_half_eigenvalues=np.asarray(geometry.eigenvalues),
        rank_eigenvalues=np.asarray(noise.rank.eigenvalues),
        null_eigenvalue=float(noise.rank.threshold),
        plug_in_rank=int(mds.rank),
        plug_in_trace=float(plug_in_trace),
        plug_in_violation_rate=float(violation_rate),
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


def check_options(
    *, length: int | None = None, dim: int, splits: int, bootstrap: int, seed: int
) -> None:
    """Refuse options that cannot work, before any time is spent; raises `InputError`."""
    if length is not None and length > MAX_LENGTH:
        raise InputError(f"--length is at most {MAX_LENGTH:,}, not {length:,}")
    if dim <= 0 or dim % 2:
        raise InputError(f"--dim must be a positive even number, not {dim}: try --dim 64")
    if splits < 1:
        raise InputError(f"--splits must be at least 1, not {splits}")
    if bootstrap < 0 or bootstrap == 1:
        raise InputError(f"--bootstrap must be 0 (no intervals) or at least 2, not {bootstrap}")
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed must lie in [0, 2**32), not {seed}")


def _check_size(corpus: TokenCorpus) -> None:
    """The counts in folds must fit memory."""
    n, words = corpus.ids.shape[1], corpus.vocab_size
    if FOLDS * n * words > MAX_CELLS:
        raise InputError(
            f"{n} positions x {words:,} words x {FOLDS} folds are more than {MAX_CELLS:,} counts: "
            "pass a shorter --length, or a --tokenizer with a smaller vocabulary"
        )


@jax.jit
def _plug_in(
    mu: jaxpe.PositionalDistributions,
) -> tuple[jaxpe.Distances, jaxpe.ClassicalMDS, jax.Array]:
    """Distances, classical MDS at full width, and the violation rate."""
    gram = jaxpe.hellinger_gram(mu)
    mds = jaxpe.classical_mds_from_gram(gram, dim=len(gram), present=mu.present)
    D = jaxpe.distances_from_gram(gram, present=mu.present)
    return D, mds, jaxpe.monotonicity_violation_rate(D)


def _distributions(
    corpus: TokenCorpus, empty: EmptyPolicy
) -> tuple[PositionCounts, jaxpe.PositionalDistributions]:
    counts = jaxpe.count_tokens(
        corpus.ids, vocab_size=corpus.vocab_size, mask=corpus.mask, exclude=corpus.exclude
    )
    try:
        return counts, jaxpe.positional_distributions(counts, empty=empty)
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

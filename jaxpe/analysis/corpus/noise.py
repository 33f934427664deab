"""Noise, composition and position: their shares of the observed variance, with intervals."""

import math

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import rounded_size
from jaxpe._core.options import Choice
from jaxpe.analysis.corpus.result import Interval, Position
from jaxpe.analysis.corpus.sites import ambiguous_letters
from jaxpe.analysis.corpus.where import half_distance
from jaxpe.data import TokenCorpus
from jaxpe.geometry import (
    Estimate,
    PositionCounts,
    PositionGeometry,
    PositionHalves,
    SignificantRank,
    VarianceShares,
)
from jaxpe.geometry.distances.matrices import centre_rows, hellinger_roots


def defined_intervals(shares: VarianceShares, nearness: Estimate) -> dict[str, Interval]:
    """Defined intervals of shares and nearness, by name."""
    estimates = {f"{name}_share": share for name, share in shares._asdict().items()}
    intervals = {
        name: Interval(float(estimate.value), float(estimate.low), float(estimate.high))
        for name, estimate in (estimates | {"nearness": nearness}).items()
    }
    return {name: x for name, x in intervals.items() if math.isfinite(sum(x))}


@jax.jit
def plug_in_trace(counts: PositionCounts, present: jax.Array) -> jax.Array:
    """Trace of the plug-in Gram matrix of the positions that are present alone."""
    roots = hellinger_roots(jaxpe.positional_distributions(counts))[0]
    return jnp.sum(centre_rows(roots, present) ** 2)


def stored_position(
    geometry: PositionGeometry,
    halves: PositionHalves,
    rank: SignificantRank,
    coordinates: np.ndarray,
    by_offset: Estimate,
) -> Position:
    """The geometry of position as a report stores it."""
    present = np.asarray(geometry.present)
    return Position(
        trace=float(geometry.trace) if present.any() else math.nan,
        eigenvalues=np.asarray(geometry.eigenvalues),
        significant_rank=max(int(rank.rank), 0),
        p_value=float(rank.p_value),
        rank_eigenvalues=np.asarray(rank.eigenvalues),
        null_eigenvalue=float(rank.threshold) + 0.0,  # no −0
        present=present,
        squared_distances=np.asarray(geometry.squared_distances),
        coordinates=coordinates[:, :3],
        composition_correlation=float(composition_correlation(geometry)),
        by_offset=np.stack([by_offset.value, by_offset.low, by_offset.high]),
        half_distance=half_distance(by_offset, geometry, halves) if rank.rank > 0 else None,
    )


@jax.jit
def composition_correlation(geometry: PositionGeometry) -> jax.Array:
    """|r| of the first eigenvectors of position and of rotated documents; both are centred."""
    position = jnp.linalg.eigh(geometry.gram)[1][:, -1]
    composition = jnp.linalg.eigh(geometry.split_half.gram - geometry.gram)[1][:, -1]
    return jnp.where(geometry.present.any(), jnp.abs(position @ composition), jnp.nan)


def compacted(corpus: TokenCorpus) -> tuple[TokenCorpus, np.ndarray]:
    """The corpus over the counted words alone, and a mask of these words, bool `[vocab]`.

    Ambiguous letters of sequences, such as N, are not counted: they name no base or residue.
    """
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    used = np.zeros(corpus.vocab_size, bool)
    used[corpus.ids[counted]] = True
    ambiguous, choices = ambiguous_letters(corpus.tokens, used), corpus.choices
    if ambiguous.any():
        left_out = int(np.count_nonzero(counted & ambiguous[corpus.ids]))
        counted, used = counted & ~ambiguous[corpus.ids], used & ~ambiguous
        why = f"{left_out:,} tokens hold letters such as N or X, which name no base or residue"
        how = "write one sequence a line into a .txt, in lower case, to count them"
        choices = (*choices, Choice("ambiguous letters", "left out", why, how))
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    compact = corpus._replace(
        ids=np.where(counted, renumbered[corpus.ids], 0).astype(np.int32),
        mask=counted,
        vocab_size=rounded_size(int(used.sum())),  # words that never occur, few sizes of arrays
        exclude=(),
        tokens=[corpus.tokens[token] for token in np.flatnonzero(used)],
        choices=choices,
    )
    return compact, used


def rare_positions(
    per_position: np.ndarray, geometry: PositionGeometry, error: np.ndarray, rank: SignificantRank
) -> np.ndarray:
    """Positions with tokens whose own noise hides a signal of typical size, as indices.

    These positions are not judged at all, or have a standard error of the squared distance to the
    centroid above half of its mean over positions. Without any signal there are none.
    """
    judged = np.asarray(geometry.present)
    typical = float(geometry.trace) / max(judged.sum(), 1)
    hidden = (int(rank.rank) > 0) & (2.0 * error > typical)
    return np.flatnonzero((per_position > 0) & (~judged | hidden))

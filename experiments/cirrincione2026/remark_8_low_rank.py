"""Remark 8: does a low-rank A Bᵀ, trained by gradient descent, converge to P_MDS? Is B of rank 1?

Descent with momentum from random starts (as `jaxpe.encodings.low_rank` draws them) and from P_MDS,
at d = 128, on the stress of Eq. (4) and on the strain. A run counts as arrived at a solution where
its loss is within 0.1 % of it and what Procrustes leaves of the difference is below 0.1 % in
squares. Corpora: the synthetic one of Table 2, and SST-2 by plug-in distances and by distances of
position alone, each over the positions present. And the eigenvalues of B where distances depend
on the offset exactly: d² = 2(1 − exp(−|i − j|/s)), which the blocks of a random partition have, and
d = |i − j|.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import (
    Run,
    main,
    plug_in,
    real_corpus,
    real_counts,
)
from experiments.learning import position_of
from jaxpe import encodings, geometry
from jaxpe.geometry.distances.matrices import gram_matrix
from jaxpe.geometry.mds.procrustes import procrustes
from jaxpe.theory import remark_8
from jaxpe.theory.cirrincione2026.proposition_6_strain import strain
from jaxpe.theory.cirrincione2026.remark_7_stationarity import stationary_squared_distances
from jaxpe.theory.cirrincione2026.remark_8_low_rank import low_rank_descent

DIM, RANKS, STARTS, STEPS = 128, (1, 2, 3, 7), 8, 3000
PUBLISHED = {"sst2": (128, 64), "imdb": (256, 254)}  # n and r, at d = 768


def experiment(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = {"published_counts": published_counts(), "corpora": {}}
    result["shift_equivariant"] = shift_equivariant()
    for name, D in targets(run).items():
        result["corpora"][name] = {"positions": len(D), "table": table(D), "descent": []}
        for criterion in ("stress", "strain"):
            for rank in RANKS[1:2] if run.quick else RANKS:
                row = descended(D, criterion, rank, quick=run.quick)
                print(name, row, flush=True)
                result["corpora"][name]["descent"].append(row)
    return result


def published_counts() -> dict[str, dict[str, float]]:
    """The savings of Section 5.4 by both counts, at d = 768."""
    counts: dict[str, dict[str, float]] = {}
    for name, (n, r) in PUBLISHED.items():
        factors, freedom, free = r * (n + 768), r * (n + 768 - r), n * 768
        counts[name] = {"factors": factors, "degrees_of_freedom": freedom, "free": free}
        counts[name] |= {"saving": 1 - factors / free, "saving_by_freedom": 1 - freedom / free}
    return counts


def shift_equivariant(n: int = 32) -> dict[str, Any]:
    """The share of B's trace in its first eigenvalue, and how many have nine tenths of it."""
    scales = (n / 16, n / 4, n, 4 * n)
    squares = [np.asarray(stationary_squared_distances(n, scale=s)) for s in scales]
    squares.append(np.subtract.outer(np.arange(n), np.arange(n)) ** 2.0)
    grams = [np.asarray(gram_matrix(np.sqrt(d))) for d in squares]
    shares = [np.linalg.eigvalsh(B)[::-1] / np.trace(B) for B in grams]
    return {
        "positions": n,
        "first_share": [share[0] for share in shares[:-1]],
        "of_90": [1 + int(np.sum(np.cumsum(share) < 0.9)) for share in shares[:-1]],
        "line": shares[-1][0],
    }


def targets(run: Run) -> dict[str, np.ndarray]:
    """Distances between the positions present."""
    corpus = jaxpe.data.three_regimes()
    counts = geometry.count_tokens(corpus.ids, vocab_size=corpus.distributions.shape[1])
    found = {"three_regimes": plug_in(counts).D}
    if not run.quick:
        found["sst2_plug_in"] = plug_in(real_counts("sst2")).D
        found["sst2_position"] = position_of(real_corpus("sst2")).distances
    return {name: np.asarray(D.values)[np.ix_(D.present, D.present)] for name, D in found.items()}


def table(D: np.ndarray) -> dict[str, Any]:
    ranks = (*RANKS, len(D) - 1)
    audit = jax.jit(partial(remark_8, width=DIM, ranks=ranks))(D)
    return {"ranks": ranks, **audit.measured}


def descended(D: np.ndarray, criterion: Any, rank: int, *, quick: bool) -> dict[str, Any]:
    """Where descent from random starts, and from P_MDS, ends."""
    steps = 200 if quick else STEPS
    mds = geometry.classical_mds(D, dim=rank).coordinates
    smacof = geometry.smacof(D, dim=rank, max_iterations=5000, tolerance=1e-9).coordinates
    encoding = encodings.low_rank(length=len(D), dim=DIM, rank=rank)
    starts = jax.vmap(encoding.init)(jax.random.split(jax.random.key(rank), STARTS))
    fits = _descents(starts["A"], starts["B"], D, criterion=criterion, steps=steps)
    P = jnp.matmul(fits.A, jnp.swapaxes(fits.B, 1, 2))
    value = partial(_value, criterion=criterion)
    losses = np.asarray(jax.vmap(lambda X: value(X, D))(P))
    solutions = {"mds": mds, "smacof": smacof, "best": P[losses.argmin()]}
    from_mds = low_rank_descent(mds, jnp.eye(DIM, rank), D, criterion=criterion, steps=steps)
    row: dict[str, Any] = {
        "criterion": criterion,
        "rank": rank,
        "loss": np.sort(losses),
        "from_mds": value(from_mds.A @ from_mds.B.T, D),
    }
    for name, solution in solutions.items():
        target = float(value(solution, D))
        apart = np.asarray(jax.vmap(lambda X, Q=solution: procrustes(X, Q).residual)(P))
        arrived = (apart < 1e-3) & (abs(losses - target) < 1e-3 * target)
        row[name] = {"loss": target, "residual": np.sort(apart), "arrived": int(arrived.sum())}
    return row


@partial(jax.jit, static_argnames=("criterion", "steps"))
def _descents(A: jax.Array, B: jax.Array, D: np.ndarray, *, criterion: Any, steps: int) -> Any:
    return jax.vmap(lambda A, B: low_rank_descent(A, B, D, criterion=criterion, steps=steps))(A, B)


def _value(P: jax.Array, D: np.ndarray, *, criterion: str) -> jax.Array:
    if criterion == "stress":
        return geometry.stress(P, D)
    return strain(P - jnp.mean(P, axis=0, keepdims=True), gram_matrix(D))


if __name__ == "__main__":
    main(experiment, "remark_8_low_rank")

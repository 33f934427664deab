"""Remark 8: does a low-rank matrix A Bᵀ, trained by gradient descent, converge to P_MDS?

Theirs: "an open question". Ours: descent with momentum from random starts (as `jaxpe.low_rank`
initialises) and from P_MDS itself, at r = 1, 2, 3, 7 and d = 128, on two criteria: the stress of
Eq. (4) and the strain. A run counts as arrived at a solution where its loss is within 0.1 % of it
and what Procrustes leaves of the difference is below 0.1 % in squares. Corpora: the synthetic one
of Table 2 and SST-2, by plug-in distances and by those of position alone (copies and parts of a
sentence in one half), each over the positions present. The table beside it has r(n + d), degrees of
freedom r(n + d − r), and the stress by classical scaling and by SMACOF. The task's own loss is not
tried.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import (
    BLUE,
    GREY,
    VERMILION,
    DataMissingError,
    Run,
    log_ticks,
    main,
    new_figure,
    plug_in,
    real_corpus,
    real_counts,
    save_figure,
)
from experiments.learning import position_of
from jaxpe.geometry.mds.procrustes import procrustes
from jaxpe.theory.cirrincione2026.proposition_6_strain import strain
from jaxpe.theory.cirrincione2026.remark_8_low_rank import low_rank_descent, remark_8

DIM, RANKS, STARTS, STEPS = 128, (1, 2, 3, 7), 8, 3000
PUBLISHED = {"sst2": (128, 64), "imdb": (256, 254)}  # n and r, at d = 768
NAMES = {
    "three_regimes": "synthetic, plug-in",
    "sst2_plug_in": "SST-2, plug-in",
    "sst2_position": "SST-2, position",
}


def experiment(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = {"published_counts": published_counts(), "corpora": {}}
    for name, D in targets(run).items():
        result["corpora"][name] = {"positions": len(D), "table": table(D), "descent": []}
        for criterion in ("stress", "strain"):
            for rank in RANKS[1:2] if run.quick else RANKS:
                row = descended(D, criterion, rank, quick=run.quick)
                print(name, row, flush=True)
                result["corpora"][name]["descent"].append(row)
    draw(run, result["corpora"])
    return result


def published_counts() -> dict[str, dict[str, float]]:
    """The savings of Section 5.4 by both counts, at d = 768."""
    counts = {}
    for name, (n, r) in PUBLISHED.items():
        factors, freedom, free = r * (n + 768), r * (n + 768 - r), n * 768
        counts[name] = {
            "factors": factors,
            "degrees_of_freedom": freedom,
            "free": free,
            "saving": 1 - factors / free,
            "saving_by_freedom": 1 - freedom / free,
        }
    return counts


def targets(run: Run) -> dict[str, np.ndarray]:
    """Distances between the positions present."""
    corpus = jaxpe.data.three_regimes()
    counts = jaxpe.count_tokens(corpus.ids, vocab_size=corpus.distributions.shape[1])
    found = {"three_regimes": plug_in(counts).D}
    if not run.quick:
        try:
            found |= sst2()
        except DataMissingError as error:
            print(f"sst2: skipped, {error}")
    return {name: np.asarray(D.values)[np.ix_(D.present, D.present)] for name, D in found.items()}


def sst2() -> dict[str, jaxpe.Distances]:
    corpus = real_corpus("sst2")
    position = position_of(corpus)
    return {"sst2_plug_in": plug_in(real_counts("sst2")).D, "sst2_position": position.distances}


def table(D: np.ndarray) -> dict[str, Any]:
    ranks = (*RANKS, len(D) - 1)
    audit = jax.jit(partial(remark_8, width=DIM, ranks=ranks))(D)
    return {"ranks": ranks, **audit.measured}


def descended(D: np.ndarray, criterion: Any, rank: int, *, quick: bool) -> dict[str, Any]:
    """Where descent from random starts, and from P_MDS, ends."""
    steps = 200 if quick else STEPS
    mds = jaxpe.classical_mds(D, dim=rank).coordinates
    smacof = jaxpe.smacof(D, dim=rank, max_iterations=5000, tolerance=1e-9).coordinates
    encoding = jaxpe.low_rank(length=len(D), dim=DIM, rank=rank)
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
        return jaxpe.stress(P, D)
    return strain(P - jnp.mean(P, axis=0, keepdims=True), jaxpe.geometry.gram_matrix(D))


def draw(run: Run, corpora: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Descent on the stress of A Bᵀ goes where SMACOF goes, not to P_MDS",
        columns=len(corpora),
        width=3.1 * len(corpora) + 1.2,
        height=3.5,
    )
    for axis, (name, corpus) in zip(axes[0], corpora.items(), strict=True):
        rows = [row for row in corpus["descent"] if row["criterion"] == "stress"]
        ranks = [row["rank"] for row in rows]
        axis.plot(ranks, [row["mds"]["loss"] for row in rows], "s-", color=GREY, label="P_MDS")
        axis.plot(
            ranks, [row["smacof"]["loss"] for row in rows], "-", color=BLUE, label="SMACOF from it"
        )
        for row in rows:
            label = f"descent, {STARTS} starts" if row is rows[0] else None
            axis.plot([row["rank"]] * STARTS, row["loss"], "_", color=VERMILION, ms=11, label=label)
        axis.set(
            yscale="log", xlabel="rank r", title=f"{NAMES[name]}, {corpus['positions']} positions"
        )
        log_ticks(axis, ranks)
        axis.grid(axis="y", color=GREY, alpha=0.2)
    axes[0, 0].set_ylabel("stress, Eq. (4)")
    axes[0, 0].legend(fontsize=9)
    save_figure(run, "remark_8_low_rank", figure)


if __name__ == "__main__":
    main(experiment, "remark_8_low_rank")

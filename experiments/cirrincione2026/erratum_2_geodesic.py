"""Erratum 2 and the isometry of Table 4: Hellinger is the chord, Fisher–Rao the geodesic.

Theirs (Sec. 5.2): the Hellinger distance is the geodesic of a curved manifold, so that an exact
isometry is unattainable in general; the residual stress of Table 3 is "residual curvature"; yet
Table 4 finds exact isometry. Ours: the Hellinger B is H√μ(H√μ)ᵀ, positive semidefinite always, so
MDS is exact at d ≥ rank; the geodesic 2·arccos Σ√(μν) is what has negative eigenvalues. Negative
mass is Σ|λ < 0| / Σ|λ|, in float64, so that rounding is not mistaken for it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import DataMissingError, Run, main, real_counts
from jaxpe.data import load_tokens


def experiment(run: Run) -> dict[str, Any]:
    with jax.enable_x64(True):
        rows = {name: compared(mu) for name, mu in distributions(run).items()}
    for name, row in rows.items():
        print(name, row, flush=True)
    return rows


def distributions(run: Run) -> dict[str, jaxpe.PositionalDistributions]:
    """True and estimated distributions of the synthetic corpora, and the real ones."""
    three, drift = jaxpe.data.three_regimes(), jaxpe.data.zipf_drift(documents=2000)
    found = {
        "three_regimes_true": from_array(three.distributions),
        "three_regimes": estimated(three.ids, 200),
        "zipf_drift_true": from_array(drift.distributions),
        "zipf_drift": estimated(drift.ids, 20_000),
    }
    if run.quick:
        return found
    corpus = load_tokens("stdlib")
    counts = jaxpe.count_tokens(corpus.ids, vocab_size=corpus.vocab_size, mask=corpus.mask)
    found["stdlib"] = in_float64(counts)
    for name in ("sst2", "imdb"):
        try:
            found[name] = in_float64(real_counts(name))
        except DataMissingError as error:
            print(f"{name}: skipped, {error}")
    return found


def from_array(mu: np.ndarray) -> jaxpe.PositionalDistributions:
    return jaxpe.PositionalDistributions(jnp.asarray(mu), jnp.ones(len(mu), bool))


def estimated(ids: np.ndarray, vocab_size: int) -> jaxpe.PositionalDistributions:
    return in_float64(jaxpe.count_tokens(ids, vocab_size=vocab_size))


def in_float64(counts: jaxpe.PositionCounts) -> jaxpe.PositionalDistributions:
    return jaxpe.positional_distributions(np.asarray(counts.tokens))


def compared(mu: jaxpe.PositionalDistributions) -> dict[str, Any]:
    chord, geodesic = _both(mu)
    return {"positions": int(mu.present.sum()), "hellinger": chord, "fisher_rao": geodesic}


def _both(mu: jaxpe.PositionalDistributions) -> tuple[dict[str, Any], dict[str, Any]]:
    hellinger, fisher_rao, largest = _solved(mu)
    chord, geodesic = described(*hellinger), described(*fisher_rao)
    geodesic["largest_distance"] = float(largest)
    return chord, geodesic


@jax.jit
def _solved(mu: jaxpe.PositionalDistributions) -> Any:
    def scaled(D: jaxpe.Distances) -> tuple[jaxpe.ClassicalMDS, jax.Array]:
        mds = jaxpe.classical_mds(D, dim=len(D.present))
        return mds, jaxpe.stress(mds.coordinates, D)

    geodesics = jaxpe.fisher_rao_distances(mu)
    return scaled(jaxpe.hellinger_distances(mu)), scaled(geodesics), geodesics.values.max()


def described(mds: jaxpe.ClassicalMDS, stress: jax.Array) -> dict[str, Any]:
    eigenvalues = np.asarray(mds.eigenvalues)
    tolerance = len(eigenvalues) * np.finfo(float).eps * np.abs(eigenvalues).max() * 10
    return {
        "rank": int(mds.rank),
        "negative_eigenvalues": int(np.sum(eigenvalues < -tolerance)),
        "negative_mass": float(mds.negative_mass),
        "smallest_over_largest": float(eigenvalues.min() / eigenvalues.max()),
        "stress_at_full_width": float(stress),
    }


if __name__ == "__main__":
    main(experiment, "erratum_2_geodesic")

"""Erratum 2 and the isometry of Table 4: Hellinger is the chord, Fisher–Rao the geodesic.

The Hellinger B is H√μ(H√μ)ᵀ, positive semidefinite always, so that MDS is exact at d ≥ rank; the
geodesic 2·arccos Σ√(μν) is what has negative eigenvalues. Negative mass is Σ|λ < 0| / Σ|λ|, in
float64, so that rounding is not mistaken for it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments import common
from jaxpe import geometry
from jaxpe.data import load_tokens


def experiment(run: common.Run) -> dict[str, Any]:
    with jax.enable_x64(True):
        return {name: compared(mu) for name, mu in distributions(run).items()}


def distributions(run: common.Run) -> dict[str, geometry.PositionalDistributions]:
    """True and estimated distributions of the synthetic corpora, and the real ones."""
    found, counts = {}, {}
    for corpus in (jaxpe.data.three_regimes(), jaxpe.data.zipf_drift(documents=2000)):
        mu = corpus.distributions
        found[f"{corpus.name}_true"] = geometry.PositionalDistributions(
            jnp.asarray(mu), jnp.ones(len(mu), bool)
        )
        counts[corpus.name] = geometry.count_tokens(corpus.ids, vocab_size=mu.shape[1])
    if not run.quick:
        corpus = load_tokens("stdlib")
        counts["stdlib"] = geometry.count_tokens(
            corpus.ids, vocab_size=corpus.vocab_size, mask=corpus.mask
        )
        counts |= common.present(common.real_counts)
    for name, counted in counts.items():
        found[name] = geometry.positional_distributions(np.asarray(counted.tokens))
    return found


def compared(mu: geometry.PositionalDistributions) -> dict[str, Any]:
    geodesic = geometry.fisher_rao_distances(mu)
    largest = {"largest_distance": float(geodesic.values.max())}
    return {
        "positions": int(mu.present.sum()),
        "hellinger": described(geometry.hellinger_distances(mu)),
        "fisher_rao": described(geodesic) | largest,
    }


def described(D: geometry.Distances) -> dict[str, Any]:
    mds = geometry.classical_mds(D, dim=len(D.present))
    eigenvalues = np.asarray(mds.eigenvalues)
    tolerance = len(eigenvalues) * np.finfo(float).eps * np.abs(eigenvalues).max() * 10
    return {
        "rank": int(mds.rank),
        "negative_eigenvalues": int(np.sum(eigenvalues < -tolerance)),
        "negative_mass": float(mds.negative_mass),
        "stress_at_full_width": float(geometry.stress(mds.coordinates, D)),
    }


if __name__ == "__main__":
    common.main(experiment, "erratum_2_geodesic")

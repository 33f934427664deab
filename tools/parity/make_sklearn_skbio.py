"""Write `sklearn_skbio.npz`: what scikit-learn and scikit-bio make of two distance matrices.

Run by hand, in an environment of its own with NumPy, scikit-learn and scikit-bio (the file says
which versions it came from); the tests need neither:

    python tools/parity/make_sklearn_skbio.py
"""

import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

DIM = 3


def distance_matrices() -> dict[str, np.ndarray]:
    """Hellinger (Euclidean) and Fisher-Rao (not Euclidean) distances of some distributions."""
    mu = np.concatenate([np.eye(5), np.random.default_rng(0).dirichlet(np.ones(5), size=8)])
    overlap = np.clip(np.sqrt(mu) @ np.sqrt(mu).T, 0.0, 1.0)
    np.fill_diagonal(overlap, 1.0)
    return {"hellinger": np.sqrt(2.0 - 2.0 * overlap), "fisher_rao": 2.0 * np.arccos(overlap)}


def main() -> None:
    # Here, so that the tests can collect this file without them.
    import skbio
    import sklearn
    from skbio.stats.ordination import pcoa
    from sklearn.manifold import ClassicalMDS, smacof

    warnings.simplefilter("ignore")  # pcoa warns of negative eigenvalues, as it should
    out = {"versions": f"scikit-learn {sklearn.__version__}, scikit-bio {skbio.__version__}"}
    for name, D in distance_matrices().items():
        start = np.random.default_rng(1).standard_normal((len(D), DIM))
        embedding, _ = smacof(D, n_components=DIM, init=start, n_init=1, max_iter=3000, eps=1e-12)
        classical = ClassicalMDS(DIM, metric="precomputed").fit(D)
        ordination = pcoa(skbio.DistanceMatrix(D), dimensions=DIM)
        out[f"{name}_distances"] = D
        out[f"{name}_start"] = start
        out[f"{name}_smacof"] = embedding
        out[f"{name}_sklearn_classical"] = classical.embedding_
        out[f"{name}_sklearn_eigenvalues"] = classical.eigenvalues_
        out[f"{name}_skbio_pcoa"] = np.asarray(ordination.samples)
        out[f"{name}_skbio_eigenvalues"] = np.asarray(ordination.eigvals)
    np.savez_compressed(HERE / "sklearn_skbio.npz", **out)


if __name__ == "__main__":
    main()

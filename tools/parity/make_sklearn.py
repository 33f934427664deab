"""Write `minima.json` and `sklearn_skbio.npz`: MDS by SciPy, scikit-learn and scikit-bio.

The first has the least stress that random starts of SciPy and scikit-learn find, the second what
scikit-learn and scikit-bio make of two distance matrices. The tests need none of these packages.
"""

import itertools
import json
import warnings

import numpy as np

from tools.parity.goldens import HERE, versions, write_arrays

STARTS = 300


def between(X: np.ndarray) -> np.ndarray:
    return np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1))


def corners(dim: int) -> np.ndarray:
    return np.array(list(itertools.product([0.0, 1.0], repeat=dim)))


def problems() -> dict[str, tuple[np.ndarray, int]]:
    """Distances, and a number of dimensions that they do not fit into."""
    steps = {n: abs(np.arange(n)[:, None] - np.arange(n)) for n in (8, 12)}
    ring = {n: np.minimum(step, n - step).astype(float) for n, step in steps.items()}
    octahedron = np.concatenate([np.eye(3), -np.eye(3)])
    sides = np.arange(8) // 4
    parties = np.where(sides[:, None] == sides, 2.0, 1.0) * (1 - np.eye(8))
    normal = np.random.default_rng(0).standard_normal((12, 6))
    return {
        "square, 1": (between(corners(2)), 1),
        "cube, 1": (between(corners(3)), 1),
        "cube, 2": (between(corners(3)), 2),
        "tesseract, 2": (between(corners(4)), 2),
        "tesseract, 3": (between(corners(4)), 3),
        "octahedron, 2": (between(octahedron), 2),
        "3 one-hots, 1": (1 - np.eye(3), 1),
        "8 one-hots, 2": (1.3 * (1 - np.eye(8)), 2),
        "8 one-hots, 3": (1 - np.eye(8), 3),
        "16 one-hots, 4": (1 - np.eye(16), 4),
        "ring of 8, 1": (ring[8], 1),
        "ring of 12, 2": (ring[12], 2),
        "two parties, 2": (parties, 2),
        "normal, 2": (between(normal), 2),
    }


def least_stress(D: np.ndarray, dim: int) -> list[float]:
    """Eq. (4) at the least of many minima, by L-BFGS of SciPy and SMACOF of scikit-learn."""
    from scipy.optimize import minimize
    from sklearn.manifold import smacof

    n, size = len(D), (D**2).sum() / 2

    def stress(x: np.ndarray) -> tuple[float, np.ndarray]:
        X = x.reshape(n, dim)
        difference = X[:, None] - X[None]
        delta = np.sqrt((difference**2).sum(-1))
        pull = (delta - D) / np.where(delta > 0, delta, 1.0)
        gradient = 2 * (pull[:, :, None] * difference).sum(1)
        return ((delta - D) ** 2).sum() / 2 / size, gradient.ravel() / size

    rng = np.random.default_rng(0)
    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10}
    starts = D.max() * rng.standard_normal((STARTS, n * dim))
    fits = [minimize(stress, x, jac=True, method="L-BFGS-B", options=options) for x in starts]
    # Of scikit-learn the sum over pairs i < j.
    raw = smacof(
        D, n_components=dim, n_init=30, max_iter=3000, eps=1e-12, random_state=0,
        normalized_stress=False,
    )[1]  # fmt: skip
    return [float(min(fit.fun for fit in fits)), float(raw / size)]


DIM = 3


def distance_matrices() -> dict[str, np.ndarray]:
    """Hellinger (Euclidean) and Fisher-Rao (not Euclidean) distances of some distributions."""
    mu = np.concatenate([np.eye(5), np.random.default_rng(0).dirichlet(np.ones(5), size=8)])
    overlap = np.clip(np.sqrt(mu) @ np.sqrt(mu).T, 0.0, 1.0)
    np.fill_diagonal(overlap, 1.0)
    return {"hellinger": np.sqrt(2.0 - 2.0 * overlap), "fisher_rao": 2.0 * np.arccos(overlap)}


def ordinations() -> dict[str, np.ndarray]:
    """SMACOF from a start, classical MDS and PCoA of each matrix."""
    import skbio
    from skbio.stats.ordination import pcoa
    from sklearn.manifold import ClassicalMDS, smacof

    warnings.simplefilter("ignore")  # pcoa warns of negative eigenvalues, as it should
    out = {}
    for name, D in distance_matrices().items():
        start = np.random.default_rng(1).standard_normal((len(D), DIM))
        embedding, _ = smacof(D, n_components=DIM, init=start, n_init=1, max_iter=3000, eps=1e-12)
        classical = ClassicalMDS(DIM, metric="precomputed").fit(D)
        ordination = pcoa(skbio.DistanceMatrix(D), dimensions=DIM)
        out |= {f"{name}_distances": D, f"{name}_start": start, f"{name}_smacof": embedding}
        out[f"{name}_sklearn_classical"] = classical.embedding_
        out[f"{name}_sklearn_eigenvalues"] = classical.eigenvalues_
        out[f"{name}_skbio_pcoa"] = np.asarray(ordination.samples)
        out[f"{name}_skbio_eigenvalues"] = np.asarray(ordination.eigvals)
    return out


def main() -> None:
    minima = {name: least_stress(*problem) for name, problem in problems().items()}
    known = {"versions": versions("scipy", "scikit-learn")}
    (HERE / "minima.json").write_text(json.dumps(known | minima, indent=1) + "\n")
    write_arrays(HERE / "sklearn_skbio.npz", ordinations(), "scikit-learn", "scikit-bio")


if __name__ == "__main__":
    main()

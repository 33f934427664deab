"""Write `minima.json`: the least stress that random starts of two other packages find.

Run by hand, in an environment of its own with NumPy, SciPy and scikit-learn (the file says which
versions it came from); the tests need neither:

    python tools/parity/make_minima.py
"""

import itertools
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

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


def main() -> None:
    import scipy
    import sklearn

    out = {"versions": f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"}
    out |= {name: least_stress(*problem) for name, problem in problems().items()}
    HERE / "minima.json".write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Classical scaling of many positions: jaxpe against eigh, scikit-learn and scikit-bio.

    python -m experiments.benchmarks.mds [--rounds R] [--quick] [--save]

Simulated counts: a Zipf vocabulary whose words drift with position, with the sampling noise of
20,000 tokens a position, which gives the spectrum a flat tail. Given are the points √μ, or their
distances as a matrix. Every eigenvalue is compared with those of NumPy in float64. Whole
decompositions run once. A peer that is not installed is left out, and the result says so.
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import _contest as contest
from jaxpe.geometry.distances.matrices import gram_matrix
from jaxpe.geometry.mds.from_points import classical_mds_from_points
from jaxpe.geometry.mds.krylov import principal_eigenpairs

SIZES, QUICK = (8192, 12_000, 64), (512, 1_500, 16)  # positions, words, coordinates
PEERS = ("scikit-learn", "scikit-bio")


def points(n: int, vocab: int, *, tokens: int) -> np.ndarray:
    """√μ of words whose logarithms drift, slowly for most, fast at the first positions."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, n)[:, None]
    waves = [np.cos(np.pi * j * t) / j for j in range(1, 201)]
    shapes = np.concatenate([*waves, np.exp(-t * n / 3), np.exp(-t * n / 30)], axis=1)
    sizes = 0.7 * rng.standard_normal((shapes.shape[1], vocab))
    X = np.empty((n, vocab), np.float32)
    for at in range(0, n, 512):
        rows = slice(at, at + 512)
        mu = np.exp(shapes[rows] @ sizes) / (np.arange(vocab) + 2.7)
        mu = rng.poisson(tokens * mu / mu.sum(axis=1, keepdims=True)).astype(float)
        X[rows] = np.sqrt(mu / mu.sum(axis=1, keepdims=True))
    return X


def compare(X: np.ndarray, dim: int, rounds: int) -> dict[str, Any]:
    """Seconds and errors of every way, and how many times as fast ours are."""
    distances, seconds_of_distances = contest.timed(partial(numpy_distances, X))
    exact = exact_eigenvalues(X)
    D = jnp.asarray(distances, jnp.float32)
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "jaxpe from points": (from_points(X, dim), rounds),
        "jaxpe from distances": (lambda: top(D, dim=dim), rounds),
        "jnp.linalg.eigh": (partial(jax.jit(whole).lower(D).compile(), D), 0),
    }
    if contest.installed("scikit-bio"):
        for method, times in (("fsvd", rounds), ("eigh", 0)):
            run = partial(with_scikit_bio, distances, dim, method)
            ways[f"scikit-bio pcoa {method}"] = run, times
    if contest.installed("scikit-learn"):
        ways["scikit-learn ClassicalMDS"] = partial(with_scikit_learn, distances, dim), 0
    found: dict[str, Any] = {}
    for name, (run, times) in ways.items():
        if times:
            run()
        every = [contest.timed(run) for _ in range(max(times, 1))]
        seconds = float(np.median([took for _, took in every]))
        found[name] = {"seconds": seconds} | accuracy(every[-1][0], exact, dim)
        print(name, found[name], flush=True)
    for name in ("jaxpe from points", "jaxpe from distances"):
        assert found[name]["error_of_largest"] < 1e-5, f"{name}: eigenvalues are wrong"
        assert found[name]["converged"], f"{name} has not converged"
    ours, given_points = (found[f"jaxpe from {x}"]["seconds"] for x in ("distances", "points"))
    others = {name: of["seconds"] for name, of in found.items() if not name.startswith("jaxpe")}
    return {
        "seconds_of_distances_in_numpy": seconds_of_distances,
        "ways": found,
        "times_as_fast_from_distances": {name: took / ours for name, took in others.items()},
        "times_as_fast_from_points": {
            name: (took + seconds_of_distances) / given_points for name, took in others.items()
        },
    }


def accuracy(result: Any, exact: np.ndarray, dim: int) -> dict[str, Any]:
    error = np.abs(np.asarray(getattr(result, "eigenvalues", result), float)[:dim] - exact[:dim])
    found = {
        "error_of_largest": float(error.max() / exact[0]),
        "error_of_own": float(np.max(error / exact[:dim])),
    }
    if hasattr(result, "residuals"):
        found["largest_residual"] = float(np.max(result.residuals))
        found |= {"products": int(result.products), "converged": bool(result.converged)}
    return found


def from_points(X: np.ndarray, dim: int) -> Callable[[], Any]:
    on_device = jnp.asarray(X)
    return lambda: classical_mds_from_points(on_device, dim=dim, method="krylov")


@partial(jax.jit, static_argnames="dim")
def top(D: jax.Array, *, dim: int) -> Any:
    """The leading eigenpairs of −½ H D² H, from distances in memory."""
    squared = -0.5 * D**2

    def centred(Y: jax.Array) -> jax.Array:
        return Y - jnp.mean(Y, axis=0, keepdims=True)

    def apply(Y: jax.Array) -> jax.Array:
        return centred(jnp.matmul(squared, centred(Y), precision="highest"))

    return principal_eigenpairs(apply, len(D), dim=dim, dtype=D.dtype)


def whole(D: jax.Array) -> jax.Array:
    return jnp.linalg.eigh(gram_matrix(D))[0][::-1]


def exact_eigenvalues(X: np.ndarray) -> np.ndarray:
    centred = X.astype(np.float64)
    centred -= centred.mean(axis=0)
    return np.linalg.eigvalsh(centred @ centred.T)[::-1]


def numpy_distances(X: np.ndarray) -> np.ndarray:
    """By the inner products of centred points, in float64 as the peers take them."""
    X = X.astype(np.float64)
    X -= X.mean(axis=0)
    squared = X @ X.T
    norms = np.diagonal(squared).copy()
    squared *= -2
    squared += norms[:, None]
    squared += norms[None, :]
    np.fill_diagonal(squared, 0)
    return np.sqrt(np.maximum(squared + squared.T, 0) / 2)


def with_scikit_learn(distances: np.ndarray, dim: int) -> np.ndarray:
    manifold = importlib.import_module("sklearn.manifold")
    mds = manifold.ClassicalMDS(n_components=dim, metric="precomputed")
    mds.fit(distances)
    return mds.eigenvalues_


def with_scikit_bio(distances: np.ndarray, dim: int, method: str) -> np.ndarray:
    matrix = importlib.import_module("skbio").DistanceMatrix(distances, validate=False)
    pcoa = importlib.import_module("skbio.stats.ordination").pcoa
    found = pcoa(matrix, method=method, dimensions=dim, seed=0, warn_neg_eigval=False)
    return np.asarray(found.eigvals)


def main() -> None:
    options = contest.options_of(__doc__, rounds=3)
    n, vocab, dim = QUICK if options.quick else SIZES
    result: dict[str, Any] = {"machine": contest.machine(*PEERS)}
    result |= {"positions": n, "vocabulary": vocab, "dim": dim}
    X = points(n, vocab, tokens=20_000)
    result["corpora"] = {"sampled": compare(X, dim, options.rounds)}
    contest.finish("mds", options, result)


if __name__ == "__main__":
    main()

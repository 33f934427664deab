"""Classical scaling of many positions: jaxpe against eigh, scikit-learn and scikit-bio.

    python -m experiments.benchmarks.mds [--positions N] [--dim D] [--rounds R] [--quick] [--save]

Two simulated corpora: a Zipf vocabulary whose words drift with position, with the sampling noise of
so many tokens a position (a spectrum with a flat tail), and without (one that decays). Given are
the points √μ, or their distances as a matrix. Every eigenvalue is compared with those of NumPy in
float64. Whole decompositions, which no spectrum makes quicker, are timed on the first corpus alone.
The peers are optional: one that is not installed is left out, and the result says so.
"""

import argparse
import importlib
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.benchmarks._machine import CORES, write_result

OUT = Path(__file__).parent.parent / "results" / "benchmark_mds.json"
CORPORA = {"sampled": 20_000, "signal alone": None}  # tokens a position
PEERS = ("scikit-learn", "scikit-bio")


def main() -> None:
    args = arguments()
    if args.quick:
        args.positions, args.vocab, args.dim, args.rounds = 512, 1_500, 16, 1
    results: dict[str, Any] = {
        "device": f"{jax.devices()[0].device_kind}, {CORES} cores, {platform.machine()}",
        "versions": {name: installed(name) for name in ("jax", *PEERS)},
        "positions": args.positions,
        "vocabulary": args.vocab,
        "dim": args.dim,
        "corpora": {},
    }
    for number, (name, tokens) in enumerate(CORPORA.items()):
        X = points(args.positions, args.vocab, tokens=tokens)
        results["corpora"][name] = compare(X, args.dim, args.rounds, whole_too=number == 0)
        print(name, json.dumps(results["corpora"][name], indent=2), flush=True)
    if args.save:
        write_result(OUT, results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=8192)
    parser.add_argument("--vocab", type=int, default=12_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    return parser.parse_args()


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def points(n: int, vocab: int, *, tokens: int | None) -> np.ndarray:
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
        mu /= mu.sum(axis=1, keepdims=True)
        if tokens:
            mu = rng.poisson(tokens * mu).astype(float)
            mu /= mu.sum(axis=1, keepdims=True)
        X[rows] = np.sqrt(mu)
    return X


def compare(X: np.ndarray, dim: int, rounds: int, *, whole_too: bool) -> dict[str, Any]:
    """Seconds and errors of every way; whole decompositions take minutes, on any corpus."""
    distances, seconds_of_distances = timed(partial(numpy_distances, X), rounds=0)
    exact = exact_eigenvalues(X)
    D = jnp.asarray(distances, jnp.float32)
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "jaxpe from points": (from_points(X, dim), rounds),
        "jaxpe from distances": (lambda: top(D, dim=dim), rounds),
    }
    if installed("scikit-bio") != "not installed":
        ways["scikit-bio pcoa fsvd"] = (partial(with_scikit_bio, distances, dim, "fsvd"), rounds)
    if whole_too:
        ways |= {name: (run, 0) for name, run in whole_decompositions(D, distances, dim).items()}
    found: dict[str, Any] = {}
    for name, (run, times) in ways.items():
        result, seconds = timed(run, rounds=times)
        found[name] = {"seconds": seconds} | accuracy(result, exact, dim)
        print(name, found[name], flush=True)
    ours = found["jaxpe from distances"]["seconds"]
    given_points = found["jaxpe from points"]["seconds"]
    others = [name for name in found if not name.startswith("jaxpe")]
    for name in ("jaxpe from points", "jaxpe from distances"):
        assert found[name]["error_of_largest"] < 1e-5, f"{name}: eigenvalues are wrong"
        assert found[name]["converged"], f"{name} has not converged"
    return {
        "eigenvalues": (exact[: dim + 1] / exact[0]).tolist(),
        "share_of_dim": float(exact[:dim].sum() / exact.sum()),
        "seconds_of_distances_in_numpy": seconds_of_distances,
        "ways": found,
        "times_as_fast_from_distances": {n: found[n]["seconds"] / ours for n in others},
        "times_as_fast_from_points": {
            n: (found[n]["seconds"] + seconds_of_distances) / given_points for n in others
        },
    }


def whole_decompositions(
    D: jax.Array, distances: np.ndarray, dim: int
) -> dict[str, Callable[[], Any]]:
    """Full eigendecompositions: ours in float32, those of the peers in float64."""
    ways = {"jnp.linalg.eigh": partial(jax.jit(whole).lower(D).compile(), D)}
    if installed("scikit-learn") != "not installed":
        ways["scikit-learn ClassicalMDS"] = partial(with_scikit_learn, distances, dim)
    if installed("scikit-bio") != "not installed":
        ways["scikit-bio pcoa eigh"] = partial(with_scikit_bio, distances, dim, "eigh")
    return ways


def timed(run: Callable[[], Any], *, rounds: int) -> tuple[Any, float]:
    """The result and the median of seconds, after one more to warm up; 0 is once, without."""
    result, seconds = run() if rounds else None, []
    for _ in range(max(rounds, 1)):
        start = time.perf_counter()
        result = jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return result, float(np.median(seconds))


def accuracy(result: Any, exact: np.ndarray, dim: int) -> dict[str, Any]:
    values = np.asarray(getattr(result, "eigenvalues", result), float)[:dim]
    found = {
        "error_of_largest": float(np.max(np.abs(values - exact[:dim])) / exact[0]),
        "error_of_own": float(np.max(np.abs(values - exact[:dim]) / exact[:dim])),
    }
    if hasattr(result, "residuals"):
        found["largest_residual"] = float(np.max(result.residuals))
        found["products"] = int(result.products)
        found["converged"] = bool(result.converged)
    return found


def from_points(X: np.ndarray, dim: int) -> Callable[[], Any]:
    on_device = jnp.asarray(X)
    return lambda: jaxpe.geometry.classical_mds_from_points(on_device, dim=dim, method="krylov")


@partial(jax.jit, static_argnames="dim")
def top(D: jax.Array, *, dim: int) -> Any:
    """The leading eigenpairs of −½ H D² H, from distances in memory."""
    squared = -0.5 * D**2

    def centred(Y: jax.Array) -> jax.Array:
        return Y - jnp.mean(Y, axis=0, keepdims=True)

    def apply(Y: jax.Array) -> jax.Array:
        return centred(jnp.matmul(squared, centred(Y), precision="highest"))

    return jaxpe.geometry.principal_eigenpairs(apply, len(D), dim=dim, dtype=D.dtype)


def whole(D: jax.Array) -> jax.Array:
    return jnp.linalg.eigh(jaxpe.geometry.gram_matrix(D))[0][::-1]


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
    mds = importlib.import_module("sklearn.manifold").ClassicalMDS(
        n_components=dim, metric="precomputed"
    )
    mds.fit(distances)
    return mds.eigenvalues_


def with_scikit_bio(distances: np.ndarray, dim: int, method: str) -> np.ndarray:
    skbio = importlib.import_module("skbio")
    matrix = skbio.DistanceMatrix(distances, validate=False)
    found = importlib.import_module("skbio.stats.ordination").pcoa(
        matrix, method=method, dimensions=dim, seed=0, warn_neg_eigval=False
    )
    return np.asarray(found.eigvals)


if __name__ == "__main__":
    main()

"""How cost grows: counting, stress, MDS against documents, positions, words, dimensions.

Run `python -m experiments.benchmarks.scaling [--quick] [--save]`. Each case is compiled and timed
at several sizes, warmed up; the sizes take turns and the fastest round counts. Exponents b of
cost = a·size^b are fitted to the three largest sizes: of time, and of the temporary memory that the
compiler plans.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.benchmarks import _contest as contest
from jaxpe import geometry
from jaxpe.geometry.distances.matrices import gram_matrix
from jaxpe.geometry.distances.points import as_points
from jaxpe.geometry.mds.from_points import classical_mds_from_points

LARGEST_FITTED = 3
FEWEST_ROUNDS, BUDGET_S = 4, 15.0  # of a case: more rounds where they are cheap


# What is measured.


def counting(*, documents: int = 4096, n: int = 128, vocab: int = 8192) -> tuple[Callable, tuple]:
    ids = np.random.default_rng(0).zipf(1.3, (documents, n)) % vocab
    return partial(geometry.count_tokens, vocab_size=vocab), (jnp.asarray(ids, jnp.int32),)


def encoding_and_targets(n: int, d: int) -> tuple[Array, geometry.PointCloud]:
    P, X = jax.random.normal(jax.random.key(0), (2, n, d))
    return P, as_points(P + 0.3 * X)


def blockwise_stress(*, n: int = 4096, d: int = 64) -> tuple[Callable, tuple]:
    return jax.value_and_grad(geometry.stress), encoding_and_targets(n, d)


def dense_stress(*, n: int = 2048, d: int = 64) -> tuple[Callable, tuple]:
    P, X = encoding_and_targets(n, d)
    return jax.value_and_grad(geometry.stress), (
        P,
        geometry.euclidean_distances(X.points),
    )


def decaying_points(n: int, vocab: int) -> Array:
    """Points whose eigenvalues decay as 1/k², so that all sizes need about as many products."""
    return jax.random.normal(jax.random.key(0), (n, vocab)) / (1.0 + jnp.arange(vocab))


def krylov(*, n: int = 4096, vocab: int = 2048, dim: int = 16) -> tuple[Callable, tuple]:
    mds = partial(classical_mds_from_points, dim=dim, method="krylov")
    return mds, (decaying_points(n, vocab),)


def full_mds(*, n: int) -> tuple[Callable, tuple]:
    gram = gram_matrix(geometry.euclidean_distances(decaying_points(n, 256)))
    return partial(geometry.classical_mds_from_gram, dim=16), (gram,)


def gram(*, n: int = 1024, vocab: int = 8192) -> tuple[Callable, tuple]:
    table = jax.random.uniform(jax.random.key(0), (n, vocab))
    return geometry.hellinger_gram, (table / jnp.sum(table, axis=1, keepdims=True),)


# Name, function, what grows, the first of four sizes, exponents of time and memory expected.
CASES: list[tuple[str, Callable[..., tuple[Callable, tuple]], str, int, int, int | None]] = [
    ("count step", counting, "documents", 4096, 1, 1),
    ("count step", counting, "n", 128, 1, 1),
    ("count step", counting, "vocab", 4096, 0, None),
    ("stress, dense", dense_stress, "n", 512, 2, 2),
    ("stress, dense", dense_stress, "d", 64, 1, None),
    ("stress, blockwise", blockwise_stress, "n", 2048, 2, 1),
    ("stress, blockwise", blockwise_stress, "d", 64, 1, 1),
    ("Gram matrix", gram, "n", 256, 2, None),
    ("Gram matrix", gram, "vocab", 4096, 1, None),
    ("MDS, all eigenvalues", full_mds, "n", 256, 3, 2),
    ("MDS, Krylov", krylov, "n", 1024, 1, 1),
    ("MDS, Krylov", krylov, "vocab", 1024, 1, None),
    ("MDS, Krylov", krylov, "dim", 16, 1, 1),
]


# How it is measured.


def compiled(make: Callable, size: str, value: int) -> tuple[Callable[[], Any], int]:
    """A function that runs once and waits, and the temporary memory that it was compiled with."""
    function, arguments = make(**{size: value})
    run, mebibytes = contest.compiled(function, *arguments)
    return run, round(mebibytes * 2**20)


def fastest(runs: Sequence[Callable[[], Any]], *, quick: bool) -> list[float]:
    """Seconds of the fastest round of each; they take turns, after one that warms up."""
    fewest, budget = (1, 0.0) if quick else (FEWEST_ROUNDS, BUDGET_S)
    begin, rounds = time.perf_counter(), []
    while len(rounds) <= fewest or time.perf_counter() - begin < budget:
        rounds.append([contest.seconds_of(run) for run in runs])
    return np.min(rounds[1:], axis=0).tolist()


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """b of cost = a·size^b, by least squares on logarithms."""
    sizes, costs = sizes[-LARGEST_FITTED:], costs[-LARGEST_FITTED:]
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]) if min(costs) > 0 else None


def measure(
    name: str, make: Callable, size: str, first: int, time: int, memory: int | None, *, quick: bool
) -> dict[str, Any]:
    sizes = (first // 4, first // 2) if quick else tuple(first * 2**k for k in range(4))
    runs, allocated = zip(*(compiled(make, size, value) for value in sizes), strict=True)
    seconds = fastest(runs, quick=quick)
    row: dict[str, Any] = {
        "name": name,
        "size": size,
        "sizes": sizes,
        "seconds": seconds,
        "temporary_bytes": allocated,
        "time": {"fitted": exponent(sizes, seconds), "expected": time},
        "memory": {"fitted": exponent(sizes, allocated), "expected": memory},
    }
    if make is krylov:
        row["products"] = [int(run().products) for run in runs]
    print(name, size, row["time"], row["memory"], flush=True)
    return row


def main() -> None:
    options = contest.options_of(__doc__)
    contest.keep_freed_memory()
    result: dict[str, Any] = {"machine": contest.machine()}
    result["rows"] = [measure(*case, quick=options.quick) for case in CASES]
    contest.finish("scaling", options, result)


if __name__ == "__main__":
    main()

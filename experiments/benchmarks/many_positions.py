"""Stress, its gradient and the 64 leading MDS coordinates of 131,072 positions, from points alone.

Run `python -m experiments.benchmarks.many_positions [--quick] [--work FOLDER] [--save]`, on CPU,
GPU or TPU alike. Each stage of each size runs in a process of its own, which leaves its arrays and
numbers in the work folder; a run that was stopped goes on after the last of these.

- `points`: simulated √μ `[n, V]`, those of `mds.py`.
- `exact`: eigenvalues of Xᵀ H X in float64 by NumPy, which are those of H X Xᵀ H.
- `mds`: `classical_mds_from_points`, Krylov.
- `stress`: `stress` of these coordinates against the points.
- `gradient`: `stress` with its gradient, checked against rows in float64 by NumPy.

A stage on the device also times products of square matrices, before and after itself, at
`precision="highest"`: the rate that the device achieves. Its own rate counts the operations that
the result needs; what is formed a second time for the gradient is not counted.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

import jaxpe
from experiments.benchmarks import _contest as contest
from experiments.benchmarks.mds import points

SIZES, QUICK = (8_192, 16_384, 32_768, 131_072), (256, 512)
VOCAB, DIM, TOKENS = 2_048, 64, 20_000
ROWS = 8  # of the gradient, checked in float64
LONG_ENOUGH_S = 0.1
Found = dict[str, Any]


def square_rate() -> float:
    """Operations a second of a product of square matrices, of a size that takes long enough."""
    side, rate, seconds = 1024, 0.0, 0.0
    while seconds < LONG_ENOUGH_S and side <= 16_384:
        a = jnp.ones((side, side), jnp.float32)
        product, _ = contest.compiled(partial(jnp.matmul, precision="highest"), a, a)
        seconds = min(contest.seconds_of(product) for _ in range(3))
        rate, side = 2.0 * side**3 / seconds, 2 * side
    return rate


def on_device(operations: float, function: Callable, *arguments: jax.Array) -> tuple[Any, Found]:
    """What a function returns, its seconds, peak memory and share of what the device achieves."""
    program, _ = contest.compiled(function, *arguments)
    before = square_rate()
    result, seconds = contest.timed(program)
    memory = jax.local_devices()[0].memory_stats() or {}
    peak = memory.get("peak_bytes_in_use", contest.peak_bytes())
    found = {"seconds": seconds, "peak_gb": peak / 1e9, "operations": operations}
    return result, found | {"share": operations / seconds / np.mean([before, square_rate()])}


# The stages.


def make_points(folder: Path, n: int, vocab: int) -> Found:
    np.save(folder / "points.npy", points(n, vocab, tokens=TOKENS))
    return {}


def exact(folder: Path, n: int, vocab: int) -> Found:
    """Eigenvalues in float64, by NumPy on the CPU."""
    X = np.load(folder / "points.npy").astype(float)
    X -= X.mean(axis=0)
    values = np.linalg.eigvalsh(X.T @ X)[::-1]
    return {"eigenvalues": values[:DIM].tolist(), "trace": float(values.sum())}


def mds(folder: Path, n: int, vocab: int) -> Found:
    X = jnp.asarray(np.load(folder / "points.npy"))
    run = partial(jaxpe.geometry.classical_mds_from_points, dim=DIM, method="krylov")
    result, found = on_device(4.0 * n * vocab, run, X)
    products = int(result.products)
    found |= {name: found[name] * products for name in ("operations", "share")}
    np.save(folder / "coordinates.npy", np.asarray(result.coordinates))
    values = np.asarray(result.eigenvalues, float)
    exact = json.loads((folder / "exact.json").read_text())
    error = np.abs(values - exact["eigenvalues"])
    return found | {
        "products": products,
        "converged": bool(result.converged),
        "largest_residual": float(np.max(result.residuals)),
        "error_of_largest": float(error.max() / values[0]),
    }


def loss(P: jax.Array, X: jax.Array) -> jax.Array:
    return jaxpe.stress(P, jaxpe.geometry.as_points(X))


def loaded(folder: Path) -> tuple[jax.Array, jax.Array]:
    return tuple(jnp.asarray(np.load(folder / f"{x}.npy")) for x in ("coordinates", "points"))  # pyrefly: ignore


def stress(folder: Path, n: int, vocab: int) -> Found:
    value, found = on_device(float(n) ** 2 * (vocab + DIM), loss, *loaded(folder))
    return found | {"stress": float(value)}


def gradient(folder: Path, n: int, vocab: int) -> Found:
    """Value and gradient; the gradient's own products are two of each tile with P."""
    P, X = loaded(folder)
    operations = float(n) ** 2 * (vocab + DIM + 2 * DIM)
    (value, slope), found = on_device(operations, jax.value_and_grad(loss), P, X)
    own, slope = np.asarray(P, float), np.asarray(slope, float)
    del P, X
    total = n * json.loads((folder / "exact.json").read_text())["trace"]  # Σ d² over pairs i < j
    size = n * float(np.sum((own - own.mean(axis=0)) ** 2))  # Σ δ²
    points = np.load(folder / "points.npy", mmap_mode="r")
    rows = np.linspace(0, n - 1, ROWS).astype(int)
    exact_rows = rows_of_gradient(own, points, rows) / total
    error = np.linalg.norm(slope[rows] - exact_rows) / np.linalg.norm(exact_rows)
    return found | {
        "stress": float(value),
        # Euler: stress is the sum of terms of degree 2, 1 and 0 in P.
        "stress_by_gradient": 1.0 + float(np.sum(own * slope)) - size / total,
        "error_of_rows": float(error),
    }


def rows_of_gradient(P: np.ndarray, X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows Σ_j 2(δ_ij − d_ij)(p_i − p_j)/δ_ij in float64."""
    targets, delta = cdist(X[rows], X), cdist(P[rows], P)
    weights = np.where(delta > 0, 2 - 2 * targets / np.where(delta > 0, delta, 1.0), 0.0)
    return weights.sum(axis=1)[:, None] * P[rows] - weights @ P


STAGES: dict[str, Callable[[Path, int, int], Found]] = {
    "points": make_points, "exact": exact, "mds": mds, "stress": stress, "gradient": gradient,
}  # fmt: skip


def stages_of(work: Path, n: int, vocab: int) -> Found:
    """Results of all stages at n, those of an earlier run where they are."""
    folder = work / f"{n}x{vocab}"
    folder.mkdir(parents=True, exist_ok=True)
    found: Found = {}
    for stage in STAGES:
        path = folder / f"{stage}.json"
        if not path.exists():
            words = [f"--stage={stage}", f"--work={folder}", f"--positions={n}", f"--vocab={vocab}"]
            path.write_text(json.dumps(contest.in_fresh_process(__spec__.name, *words)))
        found[stage] = json.loads(path.read_text())
        print(n, stage, found[stage].get("seconds"), flush=True)
    return found


def main() -> None:
    more = {"work": Path("many-positions"), "stage": None, "positions": 0, "vocab": VOCAB}
    options = contest.options_of(__doc__, **more)
    if options.stage:
        stage = STAGES[options.stage](options.work, options.positions, options.vocab)
        print(json.dumps(stage, default=float))
        return
    vocab = 128 if options.quick else options.vocab
    sizes = {n: stages_of(options.work, n, vocab) for n in (QUICK if options.quick else SIZES)}
    result = {"machine": contest.machine(), "vocabulary": vocab, "dim": DIM, "sizes": sizes}
    contest.finish("many_positions", options, result)


if __name__ == "__main__":
    main()

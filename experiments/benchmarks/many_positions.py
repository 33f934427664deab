"""Stress, its gradient and the 64 leading MDS coordinates of 131,072 positions, from points alone.

Run `python -m experiments.benchmarks.many_positions [--positions N ...] [--vocab V] [--work FOLDER]
[--save]`, on CPU, GPU or TPU alike. Each stage of each size runs in a process of its own and leaves
a file in the work folder; a run that was stopped goes on after the last of these.

- `points`: simulated √μ `[n, V]`, those of `mds.py` with the sampling noise of 20,000 tokens.
- `exact`: eigenvalues of Xᵀ H X in float64 by NumPy, which are those of H X Xᵀ H.
- `mds`: `classical_mds_from_points`, Krylov.
- `stress`: `stress` of these coordinates against the points.
- `gradient`: `stress` with its gradient, checked against rows in float64 by NumPy.

A stage on the device also times products of square matrices, before and after itself, at
`precision="highest"`: the rate that the device achieves. Its own rate counts the operations that
the result needs; what is formed a second time for the gradient is not counted. The coordinates come
from products with few columns, which memory bounds, so that their rate is timed too.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.benchmarks._machine import CORES, peak_bytes, write_result
from experiments.benchmarks.mds import points

OUT = Path(__file__).parent.parent / "results" / "benchmark_many_positions.json"
SIZES = (8_192, 16_384, 32_768, 131_072)
VOCAB, DIM, TOKENS, COLUMNS = 2_048, 64, 20_000, 16
ROWS = 8  # of the gradient, checked in float64
LONG_ENOUGH_S = 0.1
Found = dict[str, Any]


# What the device achieves.


def square_rate() -> float:
    """Operations a second of a product of square matrices, of a size that takes long enough."""
    side, rate, seconds = 1024, 0.0, 0.0
    while seconds < LONG_ENOUGH_S and side <= 16_384:
        rate, seconds = rate_of(side, side, side)
        side *= 2
    return rate


def rate_of(rows: int, inner: int, columns: int) -> tuple[float, float]:
    """Operations a second of the fastest of three products, and its seconds."""
    a, b = jnp.ones((rows, inner), jnp.float32), jnp.ones((inner, columns), jnp.float32)
    product = jax.jit(partial(jnp.matmul, precision="highest")).lower(a, b).compile()
    seconds = min(timed(partial(product, a, b))[1] for _ in range(3))
    return 2.0 * rows * inner * columns / seconds, seconds


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    found = jax.block_until_ready(run())
    return found, time.perf_counter() - start


def on_device(function: Callable, *arguments: jax.Array) -> tuple[Any, Found]:
    """What a function returns, its seconds, peak memory and the rates before and after it."""
    program, compiling = timed(lambda: jax.jit(function).lower(*arguments).compile())
    before = square_rate()
    result, seconds = timed(partial(program, *arguments))
    memory = jax.local_devices()[0].memory_stats() or {}
    return result, {
        "seconds": seconds,
        "compiling_seconds": compiling,
        "peak_gb": memory.get("peak_bytes_in_use", peak_bytes()) / 1e9,
        "temporary_mb": program.memory_analysis().temp_size_in_bytes / 1e6,
        "square_rates": [before, square_rate()],
    }


def with_rate(found: Found, operations: float) -> Found:
    """The rate of so many operations, and its share of what the device achieves."""
    rate = operations / found["seconds"]
    return found | {"operations": operations, "share": rate / float(np.mean(found["square_rates"]))}


# The stages.


def make_points(folder: Path, n: int, vocab: int) -> Found:
    start = time.perf_counter()
    np.save(folder / "points.npy", points(n, vocab, tokens=TOKENS))
    return {"seconds": time.perf_counter() - start}


def exact(folder: Path, n: int, vocab: int) -> Found:
    """Eigenvalues in float64, by NumPy on the CPU."""
    start = time.perf_counter()
    X = np.load(folder / "points.npy", mmap_mode="r")
    mean, products = np.zeros(vocab), np.zeros((vocab, vocab))
    for at in range(0, n, 4096):
        rows = X[at : at + 4096].astype(float)
        mean += rows.sum(axis=0) / n
        products += rows.T @ rows
    values = np.linalg.eigvalsh(products - n * np.outer(mean, mean))[::-1]
    np.save(folder / "mean.npy", mean)
    return {
        "eigenvalues": values[: DIM + 1].tolist(),
        "trace": float(values.sum()),
        "seconds": time.perf_counter() - start,
    }


def mds(folder: Path, n: int, vocab: int) -> Found:
    X = jnp.asarray(np.load(folder / "points.npy"))
    run = partial(jaxpe.geometry.classical_mds_from_points, dim=DIM, method="krylov")
    result, found = on_device(run, X)
    np.save(folder / "coordinates.npy", np.asarray(result.coordinates))
    values = np.asarray(result.eigenvalues, float)
    reference = json.loads((folder / "exact.json").read_text())
    error = np.abs(values - reference["eigenvalues"][:DIM])
    thin, _ = rate_of(n, vocab, COLUMNS)
    found = with_rate(found, 4.0 * n * vocab * int(result.products))
    return found | {
        "products": int(result.products),
        "converged": bool(result.converged),
        "residuals": np.asarray(result.residuals).tolist(),
        "largest_residual": float(np.max(result.residuals)),
        "error_of_largest": float(error.max() / values[0]),
        "error_of_own": float(np.max(error / values)),
        "share_of_trace": float(values.sum() / reference["trace"]),
        "share_of_thin": found["operations"] / found["seconds"] / thin,
    }


def loss(P: jax.Array, X: jax.Array) -> jax.Array:
    return jaxpe.stress(P, jaxpe.geometry.as_points(X))


def loaded(folder: Path) -> tuple[jax.Array, jax.Array]:
    return tuple(jnp.asarray(np.load(folder / f"{x}.npy")) for x in ("coordinates", "points"))  # pyrefly: ignore


def stress(folder: Path, n: int, vocab: int) -> Found:
    value, found = on_device(loss, *loaded(folder))
    return with_rate(found, float(n) ** 2 * (vocab + DIM)) | {"stress": float(value)}


def gradient(folder: Path, n: int, vocab: int) -> Found:
    """Value and gradient; the gradient's own products are two of each tile with P."""
    P, X = loaded(folder)
    (value, slope), found = on_device(jax.value_and_grad(loss), P, X)
    # Before anything that needs memory of its own: what the stage took is measured already.
    found = with_rate(found, float(n) ** 2 * (vocab + DIM + 2 * DIM))
    own, slope = np.asarray(P, float), np.asarray(slope, float)
    del P, X
    total = n * json.loads((folder / "exact.json").read_text())["trace"]  # Σ d² over pairs i < j
    size = n * float(np.sum((own - own.mean(axis=0)) ** 2))  # Σ δ²
    # Euler: stress is the sum of terms of degree 2, 1 and 0 in P.
    by_gradient = 1.0 + float(np.sum(own * slope)) - size / total
    points = np.load(folder / "points.npy", mmap_mode="r")
    rows = np.linspace(0, n - 1, ROWS).astype(int)
    exact_rows = rows_of_gradient(own, points, rows) / total
    error = np.linalg.norm(slope[rows] - exact_rows) / np.linalg.norm(exact_rows)
    return found | {
        "stress": float(value),
        "norm": float(np.linalg.norm(slope)),
        "stress_by_gradient": by_gradient,
        "error_of_rows": float(error),
    }


def rows_of_gradient(P: np.ndarray, X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows Σ_j 2(δ_ij − d_ij)(p_i − p_j)/δ_ij in float64, by differences."""
    targets = np.empty((len(rows), len(P)))
    chosen = X[rows].astype(float)
    for at in range(0, len(P), 4096):
        block = X[at : at + 4096].astype(float)
        for number, x in enumerate(chosen):
            targets[number, at : at + 4096] = np.linalg.norm(block - x, axis=1)
    found = []
    for target, i in zip(targets, rows, strict=True):
        apart = P[i] - P
        delta = np.linalg.norm(apart, axis=1)
        error = np.where(delta > 0, (delta - target) / np.where(delta > 0, delta, 1.0), 0.0)
        found.append(2.0 * error @ apart)
    return np.stack(found)


STAGES: dict[str, Callable[[Path, int, int], Found]] = {
    "points": make_points,
    "exact": exact,
    "mds": mds,
    "stress": stress,
    "gradient": gradient,
}


# The whole.


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--positions", type=int, nargs="*", default=SIZES, help="sizes n")
    parser.add_argument("--vocab", type=int, default=VOCAB, help="columns of the points")
    parser.add_argument("--work", type=Path, default=Path("many-positions"), help="for the stages")
    parser.add_argument("--save", action="store_true", help="write results")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = {n: stages_of(options, n) for n in options.positions if not options.stage}
    if options.stage:
        (n,) = options.positions
        finish(options.stage, options.work, n, options.vocab)
        return
    result = {
        "device": f"{jax.devices()[0].device_kind}, {CORES} cores, {platform.machine()}",
        "vocabulary": options.vocab,
        "dim": DIM,
        "sizes": sizes,
        "exponents": {stage: exponent(sizes, stage) for stage in ("mds", "stress", "gradient")},
    }
    print(json.dumps(result["exponents"]))
    if options.save:
        write_result(OUT, result)


def stages_of(options: argparse.Namespace, n: int) -> Found:
    """Results of all stages at n, those of an earlier run where they are."""
    folder = options.work / f"{n}x{options.vocab}"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for stage in STAGES:
        place = folder / f"{stage}.json"
        if not place.exists():
            words = [f"--stage={stage}", "--positions", str(n), "--vocab", str(options.vocab)]
            words += ["--work", str(folder)]
            subprocess.run([sys.executable, "-m", __spec__.name, *words], check=True)
        found[stage] = json.loads(place.read_text())
        print(n, stage, json.dumps(short(found[stage])), flush=True)
    return found


def finish(stage: str, folder: Path, n: int, vocab: int) -> None:
    """Run a stage; its file appears when it is whole."""
    before = os.getloadavg()[0]
    found = STAGES[stage](folder, n, vocab) | {"load_average_before": before}
    partial_file = folder / f"{stage}.part"
    partial_file.write_text(json.dumps(found))
    partial_file.replace(folder / f"{stage}.json")


def short(found: Found) -> Found:
    return {name: value for name, value in found.items() if np.size(value) <= 2}


def exponent(sizes: dict[int, Found], stage: str) -> float | None:
    """b of seconds = a·n^b, by least squares on logarithms; None of one size."""
    if len(sizes) < 2:
        return None
    seconds = [found[stage]["seconds"] for found in sizes.values()]
    return float(np.polyfit(np.log(list(sizes)), np.log(seconds), 1)[0])


if __name__ == "__main__":
    main()

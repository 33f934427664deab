"""How cost grows: counting, stress, MDS against documents, positions, words, dimensions, devices.

Run `python -m experiments.benchmarks.scaling [--quick] [--save]`. Each case is compiled and timed
at several sizes, warmed up; the sizes take turns and the fastest round counts. Printed are
exponents b of cost = a·size^b, fitted to the three largest sizes, beside those expected: of time,
and of the temporary memory that the compiler plans. Then, in fresh processes, scaled stress and its
gradient at n = 65,536, and counting and stress on 1, 2, 4 and 8 virtual devices. Blockwise and
dense stress are compared at n = 2,048, on IMDB's bytes too where JAXPE_DATA_DIR has it. Linux.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh

import jaxpe
from experiments.benchmarks._machine import KEEP_FREED, keep_freed_memory, peak_bytes, write_result
from experiments.common import (
    BLUE,
    GREEN,
    ORANGE,
    RESULTS,
    VERMILION,
    Run,
    new_figure,
    save_figure,
)
from jaxpe.analysis.counts import count_mesh, count_settings, count_shards
from jaxpe.analysis.counts.state import batch_adder, zero_state
from jaxpe.data import find_shards, load_tokens, open_tokenizer
from jaxpe.data.corpora.corpus import TokenBatch

NAME = "benchmark_scaling"
DEVICES = (1, 2, 4, 8)
LARGE = 65_536
LARGEST_FITTED = 3
FEWEST_ROUNDS, BUDGET_S = 4, 15.0  # of a case: more rounds where they are cheap


class Case(NamedTuple):
    """A function whose cost is followed along one size.

    - `name`, `size`: what it is, and what grows.
    - `sizes`: the values, ascending.
    - `make`: a size to a function and its arguments.
    - `time`, `memory`: exponents expected; None where nothing is.
    - `in_place`: whether the first argument is given away and comes back.
    """

    name: str
    size: str
    sizes: tuple[int, ...]
    make: Callable[[int], tuple[Callable, tuple]]
    time: float
    memory: float | None
    in_place: bool = False


# What is measured.


def counting(*, documents: int = 4096, n: int = 128, vocab: int = 8192) -> tuple[Callable, tuple]:
    ids = np.random.default_rng(0).zipf(1.3, (documents, n)) % vocab
    empty = jaxpe.geometry.empty_counts(length=n, vocab_size=vocab)
    return jaxpe.geometry.add_documents, (empty, jnp.asarray(ids, jnp.int32))


def encoding_and_targets(n: int, d: int) -> tuple[Array, jaxpe.PointCloud]:
    P, X = jax.random.normal(jax.random.key(0), (2, n, d))
    return P, jaxpe.geometry.as_points(P + 0.3 * X)


def squared_loss(P: Array, D: Any) -> Array:
    return jaxpe.stress(P, D)


def blockwise_stress(*, n: int = 4096, d: int = 64) -> tuple[Callable, tuple]:
    return jax.value_and_grad(squared_loss), encoding_and_targets(n, d)


def dense_stress(*, n: int = 2048, d: int = 64) -> tuple[Callable, tuple]:
    P, X = encoding_and_targets(n, d)
    return jax.value_and_grad(squared_loss), (P, jaxpe.euclidean_distances(X.points))


def decaying_points(n: int, vocab: int) -> Array:
    """Points whose eigenvalues decay as 1/k², so that all sizes need about as many products."""
    return jax.random.normal(jax.random.key(0), (n, vocab)) / (1.0 + jnp.arange(vocab))


def krylov(*, n: int = 4096, vocab: int = 2048, dim: int = 16) -> tuple[Callable, tuple]:
    mds = partial(jaxpe.geometry.classical_mds_from_points, dim=dim, method="krylov")
    return mds, (decaying_points(n, vocab),)


def full_mds(*, n: int) -> tuple[Callable, tuple]:
    gram = jaxpe.geometry.gram_matrix(jaxpe.euclidean_distances(decaying_points(n, 256)))
    return partial(jaxpe.geometry.classical_mds_from_gram, dim=16), (gram,)


def gram(*, n: int = 1024, vocab: int = 8192) -> tuple[Callable, tuple]:
    table = jax.random.uniform(jax.random.key(0), (n, vocab))
    return jaxpe.hellinger_gram, (table / jnp.sum(table, axis=1, keepdims=True),)


def cases(*, quick: bool) -> list[Case]:
    def sizes(first: int) -> tuple[int, ...]:
        return (first // 4, first // 2) if quick else tuple(first * 2**k for k in range(4))

    def along(what: Callable, size: str) -> Callable[[int], tuple[Callable, tuple]]:
        return lambda value: what(**{size: value})

    rows = [
        ("count step", counting, "documents", sizes(4096), 1, 1),
        ("count step", counting, "n", sizes(128), 1, 1),
        ("count step", counting, "vocab", sizes(4096), 0, None),
        ("stress, dense", dense_stress, "n", sizes(512), 2, 2),
        ("stress, dense", dense_stress, "d", sizes(64), 1, None),
        ("stress, blockwise", blockwise_stress, "n", sizes(2048), 2, 1),
        ("stress, blockwise", blockwise_stress, "d", sizes(64), 1, 1),
        ("Gram matrix", gram, "n", sizes(256), 2, None),
        ("Gram matrix", gram, "vocab", sizes(4096), 1, None),
        ("MDS, all eigenvalues", full_mds, "n", sizes(256), 3, 2),
        ("MDS, Krylov", krylov, "n", sizes(1024), 1, 1),
        ("MDS, Krylov", krylov, "vocab", sizes(1024), 1, None),
        ("MDS, Krylov", krylov, "dim", sizes(16), 1, 1),
    ]
    return [
        Case(name, size, values, along(what, size), time, memory, what is counting)
        for name, what, size, values, time, memory in rows
    ]


# How it is measured.


def compiled(case: Case, size: int) -> tuple[Callable[[], Any], int]:
    """A function that runs once and waits, and the temporary memory that it was compiled with."""
    function, arguments = case.make(size)
    given = 0 if case.in_place else ()
    program = jax.jit(function, donate_argnums=given).lower(*arguments).compile()
    state = [*arguments]

    def run() -> Any:
        found = jax.block_until_ready(program(*state))
        if case.in_place:
            state[0] = found
        return found

    return run, temporary_bytes(program)


def temporary_bytes(program: Any) -> int:
    return program.memory_analysis().temp_size_in_bytes


def fastest(runs: Sequence[Callable[[], Any]], *, quick: bool) -> list[float]:
    """Seconds of the fastest round of each; they take turns, after one that warms up."""
    fewest, budget = (1, 0.0) if quick else (FEWEST_ROUNDS, BUDGET_S)
    begin, rounds = time.perf_counter(), []
    while len(rounds) <= fewest or time.perf_counter() - begin < budget:
        rounds.append([seconds_of(run) for run in runs])
    return np.min(rounds[1:], axis=0).tolist()


def seconds_of(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """The slope of log cost over log size, by least squares."""
    sizes, costs = sizes[-LARGEST_FITTED:], costs[-LARGEST_FITTED:]
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]) if min(costs) > 0 else None


def measure(case: Case, *, quick: bool) -> dict[str, Any]:
    runs, memory = zip(*(compiled(case, size) for size in case.sizes), strict=True)
    seconds = fastest(runs, quick=quick)
    row: dict[str, Any] = {
        "name": case.name,
        "size": case.size,
        "sizes": case.sizes,
        "seconds": seconds,
        "temporary_bytes": memory,
        "time": {"fitted": exponent(case.sizes, seconds), "expected": case.time},
        "memory": {"fitted": exponent(case.sizes, memory), "expected": case.memory},
    }
    if case.name == "MDS, Krylov":
        row["products"] = [int(run().products) for run in runs]
    print_row(row)
    return row


def print_row(row: dict[str, Any]) -> None:
    def both(kind: str) -> str:
        fitted, expected = row[kind]["fitted"], row[kind]["expected"]
        shown = " –  " if fitted is None else f"{fitted:4.2f}"
        return f"{shown} ({'–' if expected is None else f'{expected:g}'})"

    print(f"{row['name']:22} {row['size']:10} time {both('time')}   memory {both('memory')}")


# Counting from text to counts on disk, with reading and tokenizing.


def whole_counts(*, quick: bool) -> dict[str, Any]:
    """Seconds of `count_shards` against documents, with what compiling takes left out."""
    sizes = (4096, 8192, 16_384) if quick else (131_072, 262_144, 524_288, 1_048_576)
    tokenizer = open_tokenizer("bytes")
    settings = count_settings(tokenizer, length=48, folds=4, nulls=0)
    seconds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, documents in enumerate((sizes[0], *sizes)):  # the first one compiles
            text = folder / f"{documents}.txt"
            write_text(text, documents)
            start = time.perf_counter()
            out = folder / str(number)
            count_shards(find_shards([text]), out, tokenizer=tokenizer, settings=settings)
            seconds.append(time.perf_counter() - start)
    row = {
        "name": "count, from text to disk",
        "size": "documents",
        "sizes": sizes,
        "seconds": seconds[1:],
        "time": {"fitted": exponent(sizes, seconds[1:]), "expected": 1},
        "memory": {"fitted": None, "expected": None},
        "documents_a_second": sizes[-1] / seconds[-1],
    }
    print_row(row)
    return row


def write_text(path: Path, documents: int) -> None:
    letters = np.random.default_rng(0).integers(97, 123, (documents, 48), np.uint8)
    letters[:, 5::6], letters[:, -1] = ord(" "), ord("\n")
    path.write_bytes(letters.tobytes())


# Devices, each number of them in a process of its own.


def on_devices(number: int, *, quick: bool) -> dict[str, float]:
    """Seconds of a count step and of blockwise stress on so many virtual devices."""
    assert jax.device_count() == number
    documents, n = (512, 1024) if quick else (4096, 4096)
    mesh = jax.make_mesh((number,), ("positions",), axis_types=(AxisType.Auto,))
    P, X = encoding_and_targets(n, 64)
    stress = jax.jit(jax.value_and_grad(partial(stress_on, mesh=mesh)))
    runs = [
        lambda: jax.block_until_ready(stress(P, X.points)),
        count_on(count_mesh(), documents),
        count_on(count_mesh(parts=number), documents),
    ]
    names = ("stress", "count, words dealt out", "count, documents dealt out")
    return dict(zip(names, fastest(runs, quick=quick), strict=True))


def stress_on(P: Array, X: Array, *, mesh: Mesh) -> Array:
    def both(delta: Array, d: Array) -> tuple[Array, Array]:
        return (delta - d) ** 2, d**2

    residual, size = jaxpe.geometry.sum_over_pairs(both, P, X, mesh=mesh)
    return residual / size


def count_on(mesh: Mesh, documents: int) -> Callable[[], Any]:
    tokenizer = open_tokenizer("words", vocabulary=[str(word) for word in range(8192)])
    settings = count_settings(tokenizer, length=128, folds=4, nulls=0)
    ids = np.random.default_rng(0).zipf(1.3, (documents, 128)) % 8192
    present = np.ones(ids.shape, bool)
    batch = TokenBatch(ids.astype(np.int32), present, present[:, 0], {})
    adder, state = batch_adder(settings, mesh, tokenizer.tokens), [zero_state(settings, mesh)]

    def run() -> None:
        state[0], _ = adder(state[0], batch)
        jax.block_until_ready(state[0])

    return run


def devices(*, quick: bool) -> dict[str, Any]:
    flag = "--xla_force_host_platform_device_count"
    rows = {
        k: in_fresh_process(f"devices={k}", quick, XLA_FLAGS=f"{flag}={k}", **KEEP_FREED)
        for k in DEVICES
    }
    result: dict[str, Any] = {"devices": DEVICES}
    for name in rows[1]:
        seconds = [row[name] for row in rows.values()]
        over_one = [value / seconds[0] for value in seconds]
        result[name] = {"seconds": seconds, "over_one_device": over_one}
        print(f"{name:28} on 1, 2, 4, 8 devices:", *(f"{ratio:.2f}" for ratio in over_one))
    return result


# Many positions.


def large(n: int) -> dict[str, Any]:
    """Scaled stress and its gradient: seconds and the peak memory of this process."""
    P, X = encoding_and_targets(n, 64)

    def loss(P: Array, X: jaxpe.PointCloud) -> Array:
        return jaxpe.scaled_stress(P, X).stress

    program = jax.jit(jax.value_and_grad(loss)).lower(P, X).compile()
    start = time.perf_counter()
    value, gradient = jax.block_until_ready(program(P, X))
    return {
        "n": n,
        "d": P.shape[1],
        "seconds": time.perf_counter() - start,
        "peak_gb": peak_bytes() / 1e9,
        "temporary_mb": temporary_bytes(program) / 1e6,
        "matrix_gb": 4 * n**2 / 1e9,
        "scaled_stress": float(value),
        "gradient_norm": float(jnp.linalg.norm(gradient)),
    }


def against_dense() -> dict[str, Any]:
    """Relative errors of stress and its gradient at n = 2,048 in float32, from float64."""
    cloud = jax.random.normal(jax.random.key(1), (2048, 64))
    result = {"random": errors_of(cloud, jaxpe.geometry.as_points(cloud[:, ::2]))}
    if (Path(os.environ.get("JAXPE_DATA_DIR", "-")) / "imdb").is_dir():
        corpus = load_tokens("imdb", tokenizer="bytes", length=2048)
        counts = jaxpe.count_tokens(corpus.ids, vocab_size=256, mask=corpus.mask)
        targets = jaxpe.geometry.hellinger_points(jaxpe.positional_distributions(counts))
        result["IMDB, bytes"] = errors_of(cloud, targets)
    return result


def errors_of(P: Array, X: jaxpe.PointCloud) -> dict[str, Any]:
    graded = jax.jit(jax.value_and_grad(squared_loss))
    found = {"blockwise": graded(P, X), "dense": graded(P, distances_of(X))}
    exact = [np.asarray(x, float) for x in (P, X.points)]
    with jax.enable_x64(True):
        P, points = map(jnp.asarray, exact)
        truth = graded(P, distances_of(jaxpe.PointCloud(points, X.present)))
        truth, slope = map(np.asarray, truth)
    return {"stress": float(truth)} | {
        name: {
            "error": float(abs(np.asarray(value) - truth) / truth),
            "error_of_gradient": float(np.linalg.norm(own - slope) / np.linalg.norm(slope)),
        }
        for name, (value, own) in found.items()
    }


def distances_of(X: jaxpe.PointCloud) -> jaxpe.Distances:
    return jaxpe.euclidean_distances(X.points, present=X.present)


# The whole.


def in_fresh_process(part: str, quick: bool, **more: str) -> dict[str, Any]:
    """A part of this script, with its devices and memory to itself, given back as by default."""
    command = [sys.executable, "-m", __spec__.name, "--part", part, *(["--quick"] if quick else [])]
    own = {name: value for name, value in os.environ.items() if name not in KEEP_FREED}
    done = subprocess.run(command, capture_output=True, text=True, env=own | more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def draw(run: Run, rows: Sequence[dict[str, Any]]) -> None:
    """Time and memory against the positions."""
    figure, axes = new_figure(
        "Blockwise stress takes the time of the matrix, not its memory; Krylov MDS neither",
        columns=2,
        width=8.6,
        height=4.0,
    )
    names = ("stress, dense", "stress, blockwise", "MDS, all eigenvalues", "MDS, Krylov")
    colours = dict(zip(names, (BLUE, ORANGE, GREEN, VERMILION), strict=True))
    for row in rows:
        if row["name"] in colours and row["size"] == "n":
            label = f"{row['name']}: {row['time']['fitted']:.1f} and {row['memory']['fitted']:.1f}"
            style = {"color": colours[row["name"]], "marker": "o", "label": label}
            axes[0, 0].loglog(row["sizes"], row["seconds"], **style)
            axes[0, 1].loglog(row["sizes"], np.asarray(row["temporary_bytes"]) / 1e6, **style)
    for axis, title in zip(axes[0], ("seconds", "temporary MB"), strict=True):
        axis.set_xlabel("positions")
        axis.set_title(title)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        title="exponents of time and memory",
        loc="outside lower center",
        ncols=2,
    )
    save_figure(run, NAME, figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--save", action="store_true", help="write results and figure")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for them")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    quick = options.quick
    n = 4096 if quick else LARGE
    if options.part:
        kind, _, number = options.part.partition("=")
        print(json.dumps(large(n) if kind == "large" else on_devices(int(number), quick=quick)))
        return
    keep_freed_memory()
    rows = [measure(case, quick=quick) for case in cases(quick=quick)]
    result = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jax.default_backend()}",
        "rows": [*rows, whole_counts(quick=quick)],
        "devices": devices(quick=quick),
        "large": in_fresh_process("large", quick),
        "against_dense": against_dense(),
    }
    print(json.dumps({name: result[name] for name in ("large", "against_dense")}, indent=1))
    if options.save:
        write_result(options.out / f"{NAME}.json", result)
        draw(Run(options.out, quick), result["rows"])


if __name__ == "__main__":
    main()

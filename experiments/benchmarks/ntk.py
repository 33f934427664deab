"""Time and memory of an empirical kernel, against neural-tangents and against our own estimate.

    python -m experiments.benchmarks.ntk [--peer PYTHON] [--rounds N] [--quick] [--save]

An MLP of three layers of 512, a convolutional network and a transformer block, with ten outputs,
traced, in float32: the same parameters and inputs on both sides (`tools/parity/ntk_networks.py`).
The peer is the faster of neural-tangents' implementations that run, under a Python that has it
(`--peer`; this one by default). Each contestant is a process of its own; they take turns, round by
round, after a warm-up, and both have glibc keep freed memory (see `_machine.py`). Memory is how far
the peak resident set of the first run, once compiled, is above what was resident before, in a fresh
process that has glibc as it is (Linux only). The growth of our own cost with batch and width is set
beside the estimate of `jaxpe.ntk.ntk_cost`; that of `positional_ntk` with the number n of
positions and their width d beside E ((1 + 2 O) FP + 2 O n² d): E examples, O outputs, FP FLOPs of
a forward pass, and the products of the block trace.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks._machine import CORES, KEEP_FREED, keep_freed_memory, write_result

HERE = Path(__file__).parent
OUT = HERE.parent / "results" / "benchmark_ntk.json"
sys.path.insert(0, str(HERE.parents[1] / "tools" / "parity"))


class Problem(NamedTuple):
    """A network of `ntk_networks.py`, its sizes, and examples."""

    network: str
    sizes: dict[str, int]
    batch: int


PROBLEMS = [
    Problem("mlp", {"inputs": 784, "width": 512, "outputs": 10}, 64),
    Problem("cnn", {"side": 16, "channels": 32, "outputs": 10}, 64),
    Problem(
        "transformer", {"vocab": 1000, "length": 32, "width": 64, "heads": 4, "outputs": 10}, 64
    ),
]
QUICK = [
    Problem("mlp", {"inputs": 16, "width": 32, "outputs": 3}, 8),
    Problem("cnn", {"side": 6, "channels": 4, "outputs": 3}, 8),
    Problem("transformer", {"vocab": 50, "length": 6, "width": 8, "heads": 2, "outputs": 3}, 8),
]
IMPLEMENTATIONS = {
    "jaxpe": ("auto",),
    "neural-tangents": ("1", "2", "3"),
}


def main() -> None:
    args = arguments()
    if args.child:
        child(args.child, Problem(*json.loads(args.problem)), args.implementation)
        return
    keep_freed_memory()
    results: dict[str, Any] = {
        "device": f"{jax.devices()[0].device_kind}, {CORES} cores, {platform.machine()}",
        "versions": {"jax": version("jax")},
        "problems": [],
    }
    for problem in QUICK if args.quick else PROBLEMS:
        results["problems"].append(compare(problem, args.peer, args.rounds))
        print(json.dumps(results["problems"][-1], indent=2), flush=True)
    results["growth"] = growth(args.rounds, quick=args.quick)
    results["positional_growth"] = positional_growth(args.rounds, quick=args.quick)
    print(json.dumps({name: results[name] for name in ("growth", "positional_growth")}, indent=2))
    if args.save:
        write_result(OUT, results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=sys.executable, help='its Python, or "none"')
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    for name in ("--child", "--problem", "--implementation"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser.parse_args()


class Contestant:
    """One implementation in a process of its own, a kernel a line; no `about` if it cannot."""

    def __init__(
        self, python: str, who: str, problem: Problem, implementation: str, *, keep_freed: bool
    ):
        own = {name: value for name, value in os.environ.items() if name not in KEEP_FREED}
        flags = ["--child", who, "--problem", json.dumps(problem), "--implementation"]
        self.process = subprocess.Popen(
            [python, "-m", "experiments.benchmarks.ntk", *flags, implementation],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=own | (KEEP_FREED if keep_freed else {}),
        )
        line = self._line()
        self.about: dict[str, Any] = json.loads(line) if line else {}

    def __call__(self) -> float:
        """Seconds of one kernel; infinitely many where the process has died, as without memory."""
        assert self.process.stdin is not None
        if self.process.poll() is None:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        return json.loads(self._line() or "Infinity")

    def close(self) -> None:
        self.process.communicate("quit\n" if self.process.poll() is None else None)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def compare(problem: Problem, peer: str, rounds: int) -> dict[str, Any]:
    """Times in turns, then memory in fresh processes, of all that run; ratios of the best."""
    pythons = {"jaxpe": sys.executable} | ({"neural-tangents": peer} if peer != "none" else {})
    entries = [(who, name) for who in pythons for name in IMPLEMENTATIONS[who]]
    make = lambda entry, keep: Contestant(  # noqa: E731
        pythons[entry[0]], entry[0], problem, entry[1], keep_freed=keep
    )
    running = {entry: one for entry in entries if (one := make(entry, True)).about}
    times = take_turns(running, rounds)
    seconds = {entry: float(np.median(values)) for entry, values in times.items()}
    seconds = {entry: value for entry, value in seconds.items() if np.isfinite(value)}
    for one in running.values():
        one.close()
    memory, versions = {}, {}
    for entry in seconds:
        fresh = make(entry, False)
        memory[entry], versions[entry[0]] = fresh.about["megabytes"], fresh.about["version"]
        fresh.close()
    result: dict[str, Any] = {
        **problem._asdict(),
        "versions": versions,
        "seconds": {" ".join(entry): value for entry, value in seconds.items()},
        "megabytes": {" ".join(entry): value for entry, value in memory.items()},
    }
    theirs = [entry for entry in seconds if entry[0] != "jaxpe"]
    if theirs:
        ours, best = ("jaxpe", "auto"), min(theirs, key=seconds.__getitem__)
        paired = np.array(times[best]) / np.array(times[ours])
        result |= {
            "peer": " ".join(best),
            "speed_over_peer": seconds[best] / seconds[ours],
            "speed_by_round": np.quantile(paired, [0.25, 0.5, 0.75]).round(3).tolist(),
            "memory_of_peer": memory[ours] / memory[best],
            "memory_of_thriftiest": memory[ours] / min(memory[entry] for entry in theirs),
        }
    return result


def take_turns(
    contestants: Mapping[Any, Callable[[], float]], rounds: int
) -> dict[Any, list[float]]:
    """Seconds of each, in random order within a round."""
    rng = np.random.default_rng(0)
    times: dict[Any, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for _ in range(rounds):
        for i in rng.permutation(len(names)):
            times[names[i]].append(contestants[names[i]]())
    return times


def growth(rounds: int, *, quick: bool) -> list[dict[str, Any]]:
    """Fastest times as batch and width grow, and the FLOPs estimated for them."""
    from jaxpe.ntk import ntk_cost

    changes = [("batch", 1), ("batch", 2), ("batch", 4), ("width", 2), ("width", 4)]
    rows: list[dict[str, Any]] = []
    for what, factor in changes[:2] if quick else changes:
        problem = QUICK[0] if quick else PROBLEMS[0]
        if what == "batch":
            problem = problem._replace(batch=problem.batch * factor)
        else:
            problem = problem._replace(sizes=problem.sizes | {"width": 512 * factor})
        f, params, x = arrays(problem)
        flops = ntk_cost(f, x, None, params).flops
        seconds = fastest(our_kernel(f, "auto"), params, x, rounds=rounds)
        rows.append({"changed": what, "factor": factor, "seconds": seconds, "flops": flops})
    return relative(rows)


def positional_growth(rounds: int, *, quick: bool) -> list[dict[str, Any]]:
    """Fastest times of `positional_ntk` as positions and width grow, and the FLOPs expected."""
    from jaxpe.ntk import positional_ntk
    from jaxpe.ntk._structure import forward_flops

    changes = [("n", 32, 64), ("n", 64, 64), ("n", 128, 64), ("d", 32, 128), ("d", 32, 256)]
    rows: list[dict[str, Any]] = []
    for what, n, d in changes[:2] if quick else changes:
        sizes = PROBLEMS[2].sizes | {"length": n, "width": d}
        apply, params, ids = arrays(Problem("transformer", sizes, 8))
        P, outputs = params.pop("positions"), sizes["outputs"]

        def f(P: jax.Array, row: jax.Array, apply=apply, params=params) -> jax.Array:
            return apply(params | {"positions": P}, row[None])[0]

        def loss(y: jax.Array, row: jax.Array) -> jax.Array:
            return -jax.nn.log_softmax(y)[0]

        forward = forward_flops(jax.make_jaxpr(f)(P, ids[0]).jaxpr)
        kernel = jax.jit(lambda P, ids, f=f, loss=loss: positional_ntk(f, loss, P, ids))
        rows.append(
            {
                "changed": what,
                "n": n,
                "d": d,
                "seconds": fastest(kernel, P, ids, rounds=rounds),
                "flops": len(ids) * ((1 + 2 * outputs) * forward + 2 * outputs * n**2 * d),
            }
        )
    return relative(rows)


def fastest(run: Callable, *args: Any, rounds: int) -> float:
    jax.block_until_ready(run(*args))
    return min(timed(run, *args) for _ in range(rounds))


def relative(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Times and FLOPs as multiples of those of the first row."""
    first = rows[0]
    return [
        row
        | {
            "time_ratio": row["seconds"] / first["seconds"],
            "estimated_ratio": row["flops"] / first["flops"],
        }
        for row in rows
    ]


def child(who: str, problem: Problem, implementation: str) -> None:
    """Compile and run once, say what memory the run took, and run again for every line."""
    f, params, x = arrays(problem)
    make = our_kernel if who == "jaxpe" else their_kernel
    run = make(f, implementation).lower(params, x).compile()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident
    before = peak_megabytes()
    jax.block_until_ready(run(params, x))
    about = {"megabytes": peak_megabytes() - before, "version": version(who)}
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            return
        print(json.dumps(timed(run, params, x)), flush=True)


def arrays(problem: Problem) -> tuple[Callable, dict[str, jax.Array], jax.Array]:
    from ntk_networks import build  # pyrefly: ignore

    f, params, (x,) = build(problem.network, batches=(problem.batch,), **problem.sizes)
    return f, jax.tree.map(jnp.asarray, params), jnp.asarray(x)


def our_kernel(f: Callable, implementation: Any) -> Any:
    from jaxpe.ntk import empirical_ntk

    return jax.jit(lambda params, x: empirical_ntk(f, x, None, params))


def their_kernel(f: Callable, implementation: str) -> Any:
    import neural_tangents as nt  # pyrefly: ignore

    number = int(implementation)
    kernel = nt.empirical_ntk_fn(f, trace_axes=(-1,), vmap_axes=0, implementation=number)
    return jax.jit(lambda params, x: kernel(x, None, params))


def timed(run: Callable, *args: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run(*args))
    return time.perf_counter() - start


def peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


if __name__ == "__main__":
    main()

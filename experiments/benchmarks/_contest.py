"""What benchmarks share: rounds in turn, ratios, processes of their own, options, results."""

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.provenance import KEY, write_result

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
Contestants = dict[str, Callable[[], Any]]

# glibc gives big arrays back to the system when they are freed, and the page faults of the next
# ones cost ten times a multiplication, in some rounds and not in others. It is told to keep them.
KEEP_FREED = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


def keep_freed_memory() -> None:
    """Start the process again with these settings, which are read when it starts."""
    if not KEEP_FREED.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, os.environ | KEEP_FREED)


def peak_bytes() -> int:
    """The most memory that this process has held, since it was started: Linux alone tells."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def options_of(doc: str | None, rounds: int | None = None, **more: Any) -> argparse.Namespace:
    """`--quick`, `--save`, `--rounds` where there are any, and others with their defaults."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--save", action="store_true", help="write the file of results")
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds)
    for name, value in more.items():
        many = "*" if isinstance(value, tuple) else None
        kind = type(value[0] if many else value) if value is not None else str
        parser.add_argument(f"--{name}", type=kind, default=value, nargs=many)
    return parser.parse_args()


def machine(*packages: str) -> dict[str, Any]:
    """The device, its load as the benchmark starts, and versions."""
    return {
        "device": f"{jax.devices()[0].device_kind}, {CORES} cores, {platform.machine()}",
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in ("jax", "numpy", *packages)},
    }


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def earlier(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What earlier runs have saved, to which this one adds parts; nothing without `--save`."""
    path = RESULTS / f"benchmark_{name}.json"
    found = json.loads(path.read_text()) if options.save and path.exists() else {}
    return {name: part for name, part in found.items() if name != KEY}


def finish(name: str, options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print the result, and write it to `benchmark_NAME.json` if asked to."""
    text = json.dumps(result, indent=1, default=float)
    print(text)
    if options.save:
        write_result(RESULTS / f"benchmark_{name}.json", json.loads(text))


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and its seconds by the clock."""
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    return result, time.perf_counter() - start


def seconds_of(run: Callable[[], Any]) -> float:
    return timed(run)[1]


def cost(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU of this process and of those that it has waited for."""
    cpu = cpu_seconds()
    return seconds_of(run), cpu_seconds() - cpu


def cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def take_turns(contestants: Contestants, rounds: int, warm_up: int = 0) -> dict[str, np.ndarray]:
    """What each returns, `[rounds, …]`, in a new order every round, after rounds to warm up."""
    rng = np.random.default_rng(0)
    found: dict[str, list[Any]] = {name: [] for name in contestants}
    for _ in range(warm_up + rounds):
        for name in rng.permutation(list(contestants)).tolist():
            time.sleep(0.01)  # threads of the one before go to sleep
            found[name].append(contestants[name]())
    return {name: np.asarray(values[warm_up:]) for name, values in found.items()}


def measure(contestants: Contestants, rounds: int, warm_up: int = 2) -> dict[str, np.ndarray]:
    """Seconds `[rounds]` of each, in turns."""
    runs = {name: partial(seconds_of, run) for name, run in contestants.items()}
    return take_turns(runs, rounds, warm_up)


def medians(seconds: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(np.median(values)) for name, values in seconds.items()}


def medians_over(rounds: Iterable[Any]) -> Any:
    """Medians over rounds of dictionaries of numbers."""
    return jax.tree.map(lambda *values: float(np.median(values)), *rounds)


def ratios(seconds: Mapping[str, np.ndarray], reference: str) -> dict[str, dict[str, float]]:
    """Time over that of a reference: medians, the fastest rounds, and the range of the rounds."""
    base = seconds[reference]
    return {
        name: {
            "median": float(np.median(times) / np.median(base)),
            "fastest": float(times.min() / base.min()),
            "least": float(np.min(times / base)),
            "largest": float(np.max(times / base)),
        }
        for name, times in seconds.items()
        if name != reference
    }


def quartiles(ratio: np.ndarray) -> list[float]:
    return np.quantile(ratio, [0.25, 0.5, 0.75]).round(3).tolist()


def largest_error(found: Any, wanted: Any) -> float:
    """Largest difference in any array of two trees, over the array's largest number or 1."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    arrays = [(np.asarray(a, float), np.asarray(b, float)) for a, b in pairs]
    return max(float(np.abs(a - b).max() / max(1.0, np.abs(b).max())) for a, b in arrays if b.size)


def compiled(function: Callable, *arguments: Any) -> tuple[Callable[[], Any], float]:
    """A program with its arguments, and the MiB that it allocates besides them and its results."""
    program = jax.jit(function).lower(*arguments).compile()
    allocated = getattr(program.memory_analysis(), "temp_size_in_bytes", 0)
    return lambda: jax.block_until_ready(program(*arguments)), allocated / 2**20


def by_default() -> dict[str, str]:
    """The environment, in which memory that is freed is given back."""
    return {name: value for name, value in os.environ.items() if name not in KEEP_FREED}


# A command of jaxpe that tells its peak memory as it ends (Linux alone).
COMMAND = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read()))
from jaxpe.cli.main import main
main()
"""


def command(words: str | list[str], cache: Path, *, checkout: Path = ROOT) -> dict[str, float]:
    """Seconds, peak memory and programs of a command of jaxpe, as most users start it.

    `words` are those after `jaxpe`; "{out}" becomes an empty folder. Compiled programs are kept in
    `cache`. A program is lowered each time, and then compiled or loaded from there. CPU seconds are
    of all processes, memory is of the first: `ru_maxrss` would include what this process holds.
    """
    words = words.split() if isinstance(words, str) else words
    not_set = ("JAX_", "XLA_", "PYTHONDONTWRITEBYTECODE")  # by most users
    own = {name: value for name, value in by_default().items() if not name.startswith(not_set)}
    own |= {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(cache), "JAX_LOG_COMPILES": "1"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        words = [word.format(out=f"{folder}/out") for word in words]
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words],
            env=own,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, used = os.wait4(process.pid, 0)
        clock = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        log = errors.read()
    if status:
        raise SystemExit(f"jaxpe {' '.join(words)} of {checkout}: {log[-2000:]}")
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", log, re.MULTILINE)
    loaded = log.count("Persistent compilation cache hit")
    return {
        "clock": clock,
        "cpu": used.ru_utime + used.ru_stime,
        "peak_mb": int(peak) / 1024,
        "lowered": log.count("Finished jaxpr to MLIR module conversion"),
        "compiled": log.count("Finished XLA compilation") - loaded,
        "loaded": loaded,
    }


class Worker:
    """A process that prints what it is, and a line of JSON for each line "go" of its input."""

    def __init__(self, python: str, module: str, *words: str, keep_freed: bool = True):
        self.process = subprocess.Popen(
            [python, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=by_default() | (KEEP_FREED if keep_freed else {}),
        )
        self.about: Any = self._answer()  # None where it cannot run

    def __call__(self) -> Any:
        """One round; None where the process has died, as without memory."""
        assert self.process.stdin is not None
        if self.process.poll() is None:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.process.communicate("quit\n" if self.process.poll() is None else None)

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None


def torch_worker(python: str, module: str, sizes: dict[str, Any]) -> Worker:
    """A worker of `_torch_worker`; `about` has an error where torch cannot do what it is told."""
    words = json.dumps(sizes | {"threads": CORES})
    worker = Worker(python, f"experiments.benchmarks.{module}", words)
    if worker.about is None:
        sys.exit(f"{python} cannot run {module}: pass --peer PYTHON that has torch, transformers")
    return worker


def answer(about: dict[str, Any], run: Callable[[], Any]) -> None:
    """The other side of a `Worker`."""
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            return
        print(json.dumps(run()), flush=True)

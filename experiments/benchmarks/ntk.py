"""Time and memory of an empirical kernel, against neural-tangents.

    python -m experiments.benchmarks.ntk [--peer PYTHON] [--rounds N] [--quick] [--save]

An MLP of three layers of 512, a convolutional network and a transformer block, with ten outputs,
traced, in float32: the same parameters and inputs on both sides (`tools/parity/ntk_networks.py`),
of 4, 16 and 64 examples. The transformer has 2, 4 and 8, since structured derivatives of 16 take
17 GB. --save keeps the networks that --only leaves out. The peer is the fastest of neural-tangents'
implementations that run, under a Python that has it (`--peer`; this one by default, "none" for
none). Its structured derivatives (3) run with neural-tangents 0.6.5 and JAX 0.4.25, and no longer
with JAX 0.4.30. Each contestant is a process of its own, and has glibc keep freed memory. Memory is
how far the peak resident set of the first run, once compiled, is above what was resident before, in
a fresh process that has glibc as it is (Linux only).
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import _contest as contest

sys.path.insert(0, str(contest.ROOT / "tools" / "parity"))


Problem = tuple[str, dict[str, int]]
# Sizes and batches of each network of `ntk_networks.py`.
NETWORKS: dict[str, tuple[dict[str, int], tuple[int, ...]]] = {
    "mlp": ({"inputs": 784, "width": 512, "outputs": 10}, (4, 16, 64)),
    "cnn": ({"side": 16, "channels": 32, "outputs": 10}, (4, 16, 64)),
    "transformer": (
        {"vocab": 1000, "length": 32, "width": 64, "heads": 4, "outputs": 10}, (2, 4, 8),
    ),
}  # fmt: skip
OURS = "jaxpe"
PEERS = tuple(f"neural-tangents {number}" for number in (1, 2, 3))


def compare(problem: Problem, batch: int, peer: str, rounds: int) -> dict[str, Any]:
    """Times in turns, then memory in fresh processes, of all that run; ratios of the quickest."""

    def worker(name: str, *, keep_freed: bool) -> contest.Worker:
        words = [f"--child={name}", f"--problem={json.dumps([*problem, batch])}"]
        python = sys.executable if name == OURS else peer
        return contest.Worker(python, "experiments.benchmarks.ntk", *words, keep_freed=keep_freed)

    names = [OURS, *(PEERS if peer != "none" else ())]
    workers = {name: worker(name, keep_freed=True) for name in names}
    running = {name: own for name, own in workers.items() if own.about}
    runs = {name: partial(seconds_of, own) for name, own in running.items()}
    times = contest.take_turns(runs, rounds)  # [rounds, clock and CPU]
    for own in running.values():
        own.close()
    medians = {name: np.median(each, axis=0).tolist() for name, each in times.items()}
    seconds = {name: pair for name, pair in medians.items() if np.isfinite(pair).all()}
    fresh = {name: worker(name, keep_freed=False) for name in seconds}
    for own in fresh.values():
        own.close()
    memory = {name: own.about["megabytes"] for name, own in fresh.items()}
    result: dict[str, Any] = {
        "batch": batch,
        "versions": {name: own.about["versions"] for name, own in fresh.items()},
        "seconds": seconds,
        "megabytes": memory,
    }
    if len(seconds) > 1:
        best = min((name for name in seconds if name != OURS), key=seconds.__getitem__)
        clock, cpu = (times[best] / times[OURS]).T
        result |= {
            "peer": best,
            "speed_by_round": contest.quartiles(clock),
            "cpu_by_round": contest.quartiles(cpu),
            "memory_of_peer": memory[OURS] / memory[best],
        }
    return result


def seconds_of(worker: contest.Worker) -> list[float]:
    return worker() or [np.inf, np.inf]


def child(name: str, problem: tuple[str, dict[str, int], int]) -> None:
    """Compile and run once, say what memory the run took, and run again for every line."""
    from ntk_networks import build  # pyrefly: ignore

    network, sizes, batch = problem
    f, params, (x,) = build(network, batches=(batch,), **sizes)
    params, x = jax.tree.map(jnp.asarray, (params, x))
    kernel = our_kernel(f) if name == OURS else their_kernel(f, int(name.split()[1]))
    run = jax.jit(kernel).lower(params, x).compile()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident
    before = contest.peak_bytes()
    jax.block_until_ready(run(params, x))
    about: dict[str, Any] = {"megabytes": (contest.peak_bytes() - before) / 2**20}
    about |= {"versions": {who: contest.installed(who) for who in (name.split()[0], "jax")}}
    contest.answer(about, lambda: contest.cost(lambda: run(params, x)))


def our_kernel(f: Callable) -> Callable:
    from jaxpe.ntk import empirical_ntk

    return lambda params, x: empirical_ntk(f, x, None, params)


def their_kernel(f: Callable, implementation: int) -> Callable:
    import neural_tangents as nt  # pyrefly: ignore

    kernel = nt.empirical_ntk_fn(f, trace_axes=(-1,), vmap_axes=0, implementation=implementation)
    return lambda params, x: kernel(x, None, params)


def main() -> None:
    more = {"peer": sys.executable, "child": None, "problem": None, "only": tuple(NETWORKS)}
    options = contest.options_of(__doc__, rounds=15, **more)
    if options.child:
        child(options.child, json.loads(options.problem))
        return
    networks = contest.earlier("ntk", options).get("networks", {})
    for name in options.only:
        sizes, batches = NETWORKS[name]
        chosen = batches[:2] if options.quick else batches
        rows = [compare((name, sizes), batch, options.peer, options.rounds) for batch in chosen]
        networks[name] = rows
        print(name, json.dumps(rows), flush=True)
    result = {"machine": contest.machine(), "rounds": options.rounds, "networks": networks}
    contest.finish("ntk", options, result)


if __name__ == "__main__":
    main()

"""Contestants that take turns in one process, and ratios of their times."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

Run = Callable[[], Any]
Contestants = dict[str, Run]


def finished(compiled: Callable, *args: Any) -> Run:
    return lambda: jax.block_until_ready(compiled(*args))


def measure(contestants: Contestants, rounds: int) -> dict[str, np.ndarray]:
    """Seconds `[rounds]` of each, in a new order every round; two rounds before warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    rng = np.random.default_rng(0)
    for number in range(rounds + 2):
        for name in rng.permutation(list(contestants)).tolist():
            time.sleep(0.01)  # threads of the one before go to sleep
            start = time.perf_counter()
            result = contestants[name]()
            elapsed = time.perf_counter() - start
            del result
            if number > 1:
                seconds[name].append(elapsed)
    return {name: np.asarray(times) for name, times in seconds.items()}


def ratios(seconds: Mapping[str, np.ndarray], reference: str) -> dict[str, dict[str, float]]:
    """Time over that of a reference: medians, and the fastest rounds."""
    base = seconds[reference]
    return {
        name: {
            "median": float(np.median(times) / np.median(base)),
            "fastest": float(times.min() / base.min()),
        }
        for name, times in seconds.items()
        if name != reference
    }


def show(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    print(f"\n{title}")
    for name, ratio in rows.items():
        print(f"  {name:32} {ratio['median']:7.2f}  ({ratio['fastest']:.2f})")

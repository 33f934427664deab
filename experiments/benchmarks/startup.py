"""Where the time of each command goes, beside an earlier checkout: programs, stages, memory.

Run `python -m experiments.benchmarks.startup --before FOLDER [--save] [--rounds 3] [--only NAME]`,
FOLDER a checkout (`git worktree add FOLDER COMMIT`) whose package runs in this environment. Each
round runs every command of both, in turn: cold, with an empty folder for compiled programs, and
warm, with the folder that the cold run left. Numbers are medians over rounds, ratios before/after
of the same round. Seconds of tracing, lowering and compiling are JAX's own (`jax.monitoring`),
drawing is the time in `Figure.savefig`, of the process that waits for it; the rest is running and
host work. CPU seconds are of all processes. Of reports the numbers of `report.json` are compared,
but for intervals. IMDB is read where JAXPE_DATA_DIR names it.
`--save` leaves the results of commands that are not run.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
OUT = ROOT / "experiments" / "results" / "benchmark_startup.json"
DATA = Path(os.environ.get("JAXPE_DATA_DIR", "."))
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
# `{out}` is an empty folder, `{strings}` 3,000 lines of 60 letters in a tab-separated file.
COMMANDS = {
    "help": ("--help",),
    "report stdlib": ("report", "stdlib", "--out", "{out}"),
    "report strings": ("report", "{strings}", "--text-field", "text", "--tokenizer", "bytes",
                       "--length", "60", "--out", "{out}"),
    "report imdb": ("report", "imdb", "--tokenizer", str(DATA / "bert-base-uncased/vocab.txt"),
                    "--length", "256", "--out", "{out}"),
    "encodings": ("encodings",),
    "count": ("count", "stdlib", "--out", "{out}"),
    "audit": ("audit", "stdlib", "--out", "{out}"),
    "spectral": ("spectral", "stdlib", "--examples", "64", "--out", "{out}"),
    "extrapolate": ("extrapolate", "--preset", "smoke", "--out", "{out}"),
    "train": ("train", "stdlib", "--steps", "30", "--out", "{out}"),
}  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
        return
    from experiments.benchmarks._machine import write_result  # pyrefly: ignore  # not in the process that is measured

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=tuple(COMMANDS))
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve(), "after": ROOT}
    known = [name for name in COMMANDS if name != "report imdb" or (DATA / "imdb").is_dir()]
    runs: dict[str, Any] = {name: [] for name in options.only or known}
    for _ in range(options.rounds):
        for name, rounds in runs.items():
            rounds.append({which: cold_and_warm(name, path) for which, path in checkouts.items()})
            print(name, line(rounds[-1]), flush=True)
    result = {
        "processors": os.cpu_count(),
        "rounds": options.rounds,
        "commands": {name: summary(rounds) for name, rounds in runs.items()},
    }
    print(json.dumps({name: row["ratio"] for name, row in result["commands"].items()}, indent=1))
    if options.save:
        measured_before = json.loads(OUT.read_text())["commands"] if OUT.is_file() else {}
        every = measured_before | result["commands"]  # of commands that are not run, what is there
        result["commands"] = {name: every[name] for name in COMMANDS if name in every}
        write_result(OUT, result)
        draw(result)


def cold_and_warm(name: str, checkout: Path) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        return {when: measured(name, checkout, Path(folder), when) for when in ("cold", "warm")}


def measured(name: str, checkout: Path, folder: Path, when: str) -> dict[str, float]:
    """One run of a command in a process of its own."""
    strings = folder / "strings.tsv"
    write_strings(strings)
    places = {"{out}": str(folder / f"out_{when}"), "{strings}": str(strings)}
    words = [places.get(word, word) for word in COMMANDS[name]]
    others = ("JAX_", "XLA_", "PYTHONDONTWRITEBYTECODE")  # which most users do not set
    kept = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, HERE, "--child", str(folder / f"{when}.json"), *words],
        env={**kept, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{name} of {checkout} failed:\n{done.stderr[-2000:]}")
    report = folder / f"out_{when}" / "report.json"
    numbers = numbers_of(json.loads(report.read_text())) if report.is_file() else {}
    return {"wall": wall, "numbers": numbers} | json.loads((folder / f"{when}.json").read_text())


LEFT_OUT = ("seconds", "intervals", "bootstrap")


def numbers_of(value: Any, place: str = "") -> dict[str, list[float]]:
    """Numbers of a report by their place in it, those of a list together."""
    if isinstance(value, dict):
        parts = {f"{place}/{name}": part for name, part in value.items() if name not in LEFT_OUT}
    elif isinstance(value, list) and not all(isinstance(part, int | float) for part in value):
        parts = {f"{place}/{at}": part for at, part in enumerate(value)}
    else:
        own = value if isinstance(value, list) else [value]
        return {place: own} if all(isinstance(part, int | float) for part in own) else {}
    return {k: v for name, part in parts.items() for k, v in numbers_of(part, name).items()}


def difference(old: dict[str, list[float]], new: dict[str, list[float]]) -> float | None:
    """Largest difference of numbers that both reports have, relative to the largest beside it."""
    both = [(old[name], new[name]) for name in old if len(new.get(name, [])) == len(old[name])]
    apart = [
        max(abs(a - b) for a, b in zip(*pair, strict=True)) / max(map(abs, (*pair[0], 1e-12)))
        for pair in both
        if pair[0]
    ]
    return max(apart, default=None)


def write_strings(path: Path) -> None:
    """Letters of an alphabet of four, the second half of the lines with a motif in the middle."""
    import numpy as np

    letters = np.random.default_rng(0).choice(list("acgt"), (3000, 60))
    letters[1500:, 28:34] = list("tataat")
    lines = ["".join(row) for row in letters]
    path.write_text("text\n" + "\n".join(lines) + "\n")


def child(target: str, words: list[str]) -> None:
    """Run a command in this process and write what was measured."""
    seconds = dict.fromkeys(("tracing", "lowering", "compiling", "drawing"), 0.0)
    programs = {"lowered": 0, "compiled": 0}
    sys.argv = ["jaxpe", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        from jaxpe.cli.main import main as command

        watch(seconds, programs)
        command()
    own, helpers = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(used.ru_utime + used.ru_stime for used in (own, helpers))
    found = {"cpu": cpu, "peak_mb": own.ru_maxrss / 1024, **seconds, **programs}
    Path(target).write_text(json.dumps(found))


def watch(seconds: dict[str, float], programs: dict[str, int]) -> None:
    """Have compiling and drawing add to these; what is never imported is not imported for it."""
    import importlib.abc
    import importlib.util

    class Watcher(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            if name not in ("jax", "matplotlib.figure"):
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            sys.meta_path.insert(0, self)
            if spec is None or spec.loader is None:
                return None
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                (watch_jax if name == "jax" else watch_figures)(module, seconds, programs)

            spec.loader.exec_module = exec_module  # pyrefly: ignore
            return spec

    if "jax" in sys.modules:
        watch_jax(sys.modules["jax"], seconds, programs)
    sys.meta_path.insert(0, Watcher())


def watch_jax(jax: Any, seconds: dict[str, float], programs: dict[str, int]) -> None:
    import jax.monitoring

    def listen(event: str, duration: float, **_: Any) -> None:
        if stage := EVENTS.get(event):
            seconds[stage] += duration
            if stage != "tracing":
                programs["lowered" if stage == "lowering" else "compiled"] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)  # pyrefly: ignore


def watch_figures(module: Any, seconds: dict[str, float], programs: dict[str, int]) -> None:
    save = module.Figure.savefig

    def savefig(*args: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        try:
            return save(*args, **options)
        finally:
            seconds["drawing"] += time.perf_counter() - begun

    module.Figure.savefig = savefig


def line(run: dict[str, Any]) -> str:
    return ", ".join(
        f"{when}: {run['before'][when]['wall']:.1f} s to {run['after'][when]['wall']:.1f} s, "
        f"{run['before'][when]['lowered']} to {run['after'][when]['lowered']} programs"
        for when in ("cold", "warm")
    )


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds, and the ratios of each round."""

    def median(which: str, when: str) -> dict[str, float]:
        names = [name for name in rounds[0][which][when] if name != "numbers"]
        return {n: statistics.median(run[which][when][n] for run in rounds) for n in names}

    found: dict[str, Any] = {
        which: {when: median(which, when) for when in ("cold", "warm")}
        for which in ("before", "after")
    }
    return found | {
        "ratio": {
            when: [run["before"][when]["wall"] / run["after"][when]["wall"] for run in rounds]
            for when in ("cold", "warm")
        },
        "difference": difference(*(rounds[0][which]["warm"]["numbers"] for which in rounds[0])),
    }


def draw(result: dict[str, Any]) -> None:
    """Seconds of each command before and after, cold and warm."""
    from jaxpe.report.style import CHANCE, POSITION, new_figure

    names = [name for name in result["commands"] if name != "help"]
    height = 1.2 + 0.45 * len(names)
    title = "Seconds of each command, before and after"
    figure, axes = new_figure(title, height=height, width=8, columns=2, sharey=True)
    for axis, when in zip(axes, ("cold", "warm"), strict=True):
        for which, shift, colour in (("before", -0.2, CHANCE), ("after", 0.2, POSITION)):
            seconds = [result["commands"][name][which][when]["wall"] for name in names]
            places = [place + shift for place in range(len(names))]
            bars = axis.barh(places, seconds, height=0.38, color=colour, label=which)
            axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
        axis.set(title=when, xlabel="seconds")
        axis.margins(x=0.15)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    axes[1].legend(loc="lower right")
    figure.savefig(OUT.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()

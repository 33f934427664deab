"""What XLA's options cost and gain on a CPU: compiling and running each program of a report.

Run `python experiments/benchmarks/compile_options.py [--save]`. Every program that `jaxpe report`
keeps, of the built-in corpus, is compiled with the options of XLA's defaults, of small programs and
of brief ones, and run with each of the three as often as the report runs it. CPU seconds of the
process, one program at a time.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from _machine import write_result  # pyrefly: ignore

from jaxpe._core import stored
from jaxpe.analysis.corpus import analyse_tokens
from jaxpe.data import load_tokens

OUT = Path(__file__).resolve().parents[1] / "results" / "benchmark_compile_options.json"
OPTIONS = {"default": None, "small": stored._QUICK, "brief": stored._BRIEF}


class Watch:
    """Compiling and running with all options, and what each took."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self._compile = jax.stages.Lowered.compile
        self._one_at_a_time = threading.Lock()

    def compile(self, lowered: Any, compiler_options: Any = None) -> Callable[..., Any]:
        """In place of `Lowered.compile`: a function that runs the programs of all options."""
        name = str(lowered.compiler_ir().operation.attributes["sym_name"]).strip('"')
        name = name.removeprefix("jit_").rpartition("_")[0]
        chosen = next(n for n, options in OPTIONS.items() if options == compiler_options)
        with self._one_at_a_time:
            new = {"chosen": chosen, "calls": 0, "compile": {}, "run": {}}
            row = self.rows.setdefault(name, new)
            programs = {
                n: self._timed(row["compile"], n, self._compile, lowered, options)
                for n, options in OPTIONS.items()
            }

        def run(*args: Any, **kwargs: Any) -> Any:
            with self._one_at_a_time:
                row["calls"] += 1
                found = {
                    n: self._timed(row["run"], n, _run, program, args, kwargs)
                    for n, program in programs.items()
                }
            return found["default"]

        return run

    @staticmethod
    def _timed(seconds: dict[str, float], name: str, f: Callable[..., Any], *args: Any) -> Any:
        begun = time.process_time()
        found = f(*args)
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - begun
        return found


def _run(program: Any, args: Any, kwargs: Any) -> Any:
    return jax.block_until_ready(program(*args, **kwargs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    jax.jit(jax.numpy.sin).lower(1.0).compile()  # the first program takes longer
    watch = Watch()
    os.cpu_count = lambda: 1  # stages one after another
    jax.stages.Lowered.compile = lambda *args, **given: watch.compile(*args, **given)  # pyrefly: ignore
    corpus = load_tokens("stdlib")
    with tempfile.TemporaryDirectory() as folder:
        stored.keep_programs(Path(folder))
        analyse_tokens(corpus)
    rows = {name: row for name, row in watch.rows.items() if row["run"]}
    result = {
        "programs": rows,
        "total": {
            what: {n: sum(row[what][n] for row in rows.values()) for n in OPTIONS}
            for what in ("compile", "run")
        },
        "as chosen": {
            what: sum(row[what][row["chosen"]] for row in rows.values())
            for what in ("compile", "run")
        },
    }
    print(json.dumps(result, indent=1))
    if options.save:
        write_result(OUT, result)


if __name__ == "__main__":
    main()

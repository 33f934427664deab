"""Table 5 of Li (2025) and the tasks of Kazemnejad et al. (2023), beyond the training length.

The preset `paper` of `jaxpe extrapolate`, and what decides the order in Table 5: errors by place.
Options beside `--out` and `--quick`: `--runs FOLDER` keeps models and cells there, and resumes from
them.
"""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxpe.analysis.extrapolation.cells import trained_models

from experiments.common import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.learning import take_options
from jaxpe._core.progress import Silent
from jaxpe.analysis import to_json
from jaxpe.analysis.extrapolation import (
    ExtrapolationCell,
    Suite,
    extrapolate_suites,
    preset,
    reciprocal_ranks,
    seed_mean,
    streams,
    variant,
)
from jaxpe.analysis.extrapolation.models import encoding_sizes, functional_model
from jaxpe.data import sequence_task

PUBLISHED = {
    "sinusoidal": (0.0021, 0.0158, 0.0423),
    "alibi": (0.0023, 0.0055, 0.0127),
    "wavelet": (0.0024, 0.0049, 0.0108),
    "legendre": (0.0022, 0.0078, 0.0215),
}
ORDER = ("wavelet", "alibi", "legendre", "sinusoidal")  # published, best first, at 2T and 4T
MASKS = {"running_sum": "bidirectional", "running_sum_causal": "causal"}
COLOURS = {
    "wavelet": GREEN, "alibi": VERMILION, "alibi_over_length": ORANGE, "legendre": SKY,
    "sinusoidal": BLUE, "none": GREY, "learned": PINK,
}  # fmt: skip
QUICK = {"steps": 10, "tests": 8, "seeds": 2, "batch": 4, "dim": 8, "hidden": 8, "factors": (1, 2)}

OPTIONS = take_options(folders=("runs",))


class Printed(Silent):
    """Progress as lines on standard output."""

    def say(self, line: str) -> None:
        print(line, flush=True)


def experiment(run: Run, options: Any = OPTIONS) -> dict[str, Any]:
    suites = [quick(suite) for suite in preset("paper")] if run.quick else preset("paper")
    with tempfile.TemporaryDirectory() as nowhere:
        folder = Path(options.runs or nowhere)
        found = extrapolate_suites(suites, folder, progress=Printed())
        by_place = {task: error_by_place(suites[0], task, folder) for task in suites[0].tasks}
    cells = [found.cells_of(suite) for suite in suites]
    result = {
        "suites": to_json(found.suites),
        "table_5": {task: table_5(cells[0], task) for task in suites[0].tasks},
        "by_place": by_place,
        "source": {
            task: {c.encoding: numbers(c) for c in cells[1] if c.task == task}
            for task in suites[1].tasks
        },
        "mean_reciprocal_rank": {
            suite.name: {
                name: seed_mean(shares.mean(axis=(0, 2)))._asdict()
                for name, shares in reciprocal_ranks(own).items()
            }
            for suite, own in zip(suites, cells, strict=True)
        },
    }  # fmt: skip
    draw(run, result)
    return result


def quick(suite: Suite) -> Suite:
    rows = None if suite.rows is None else 20
    few = dataclasses.replace(suite, **QUICK, rows=rows, tasks=suite.tasks[:2])
    return dataclasses.replace(few, encodings=suite.encodings[:2], length=4)


def numbers(cell: ExtrapolationCell) -> dict[str, Any]:
    """Every metric at every length: mean, half of its 95 % interval, and the seeds."""
    found = {
        metric: seed_mean(values)._asdict() | {"seeds": values}
        for metric, values in cell.scores.items()
    }
    fields = ("lengths", "defined", "rate", "tuning", "loss")
    return found | {name: getattr(cell, name) for name in fields}


def table_5(cells: list[ExtrapolationCell], task: str) -> dict[str, Any]:
    """Errors by encoding, and whether they come in the published order."""
    own = {cell.encoding: cell for cell in cells if cell.task == task}
    named = [name for name in ORDER if name in own]
    order = {}
    for column, length in enumerate(own[named[0]].lengths):
        seeds = np.stack([own[name].scores["mse"][:, column] for name in named])  # [4, seeds]
        ordered = np.all(np.diff(seeds, axis=0) > 0, axis=0)
        order[f"at_{length}"] = {"seeds_in_published_order": int(ordered.sum())}
    return {"cells": {name: numbers(cell) for name, cell in own.items()}, "order": order}


def error_by_place(suite: Suite, task: str, folder: Path) -> dict[str, Any]:
    """Mean squared error at places up to T and beyond, of rows of 4T (2T when quick).

    Errors at places up to T are the same question as in training but for what stands behind, which
    a causal model cannot see.
    """
    data = streams(suite, sequence_task(task))
    length = suite.lengths[min(2, len(suite.lengths) - 1)]
    seeds = np.arange(suite.seeds)
    batches = {name: rows[0] for name, rows in data.tests(seeds, (length,)).items()}
    sizes = encoding_sizes(suite, data.task)
    found: dict[str, Any] = {}
    for name in suite.encodings:
        if name == "learned":
            continue
        models = trained_models(suite, data, name, folder)
        apply, _ = functional_model(
            suite, data.task, variant(name).at(sizes, length, causal=data.task.causal)
        )

        @jax.jit
        def errors(params, batches, apply=apply):
            def part(batch):
                said = jax.vmap(apply)(params, batch)
                return jnp.mean((said - batch["labels"])[..., 0] ** 2, axis=1)

            return jnp.mean(jax.lax.map(part, batches), axis=0)

        by_place = np.asarray(errors(models.params, batches))  # [seeds, length]
        inside, outside = by_place[:, : suite.length], by_place[:, suite.length :]
        found[name] = {
            "up_to_T": seed_mean(inside.mean(axis=1))._asdict(),
            "beyond_T": seed_mean(outside.mean(axis=1))._asdict(),
            "by_place": by_place.mean(axis=0),
        }
    return {"length": length, "encodings": found}


def draw(run: Run, result: dict[str, Any]) -> None:
    title = "Running sums beyond the training length; dotted: published"
    figure, axes = new_figure(title, columns=2, width=9, height=3.8)
    for axis, (task, table) in zip(axes[0], result["table_5"].items(), strict=True):
        lengths = np.array(table["cells"]["sinusoidal"]["lengths"])
        for name, cell in table["cells"].items():
            look = {"color": COLOURS[name], "marker": "o"}
            mean, half = cell["mse"]["mean"], cell["mse"]["half"]
            axis.errorbar(lengths, mean, yerr=half, ms=4, capsize=2, label=name, **look)
            if name in PUBLISHED:
                published = PUBLISHED[name][: len(lengths)]
                axis.plot(lengths[:3], published, ls=":", alpha=0.35, ms=5, **look)
        axis.plot(lengths, (lengths + 1) / 6, "--", color="#999999", label="saying 0")
        axis.set(xscale="log", yscale="log", title=MASKS[task], xlabel="length tested")
        axis.set_xticks(lengths, [str(n) for n in lengths])
        axis.minorticks_off()
    axes[0, 0].set_ylabel("mean squared error")
    axes[0, 1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(run, "length_extrapolation_table_5", figure)


if __name__ == "__main__":
    main(experiment, "length_extrapolation")

"""Table 5 of Li (2025) and the tasks of Kazemnejad et al. (2023), beyond the training length.

The preset `paper` of `jaxpe extrapolate`, and what decides the order in Table 5: errors by place.
Options beside `--out` and `--quick`: `--runs FOLDER` keeps models and cells there, and resumes from
them.
"""

import dataclasses
import itertools
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
from jaxpe.analysis.extrapolation.cells import trained_models
from jaxpe.analysis.extrapolation.models import encoding_sizes, functional_model
from jaxpe.data import sequence_task
from jaxpe.report.extrapolation.figures import lengths_figure

PUBLISHED = {
    "sinusoidal": (0.0021, 0.0158, 0.0423),
    "alibi": (0.0023, 0.0055, 0.0127),
    "wavelet": (0.0024, 0.0049, 0.0108),
    "legendre": (0.0022, 0.0078, 0.0215),
}
ORDER = ("wavelet", "alibi", "legendre", "sinusoidal")  # published, best first, at 2T and 4T
MASKS = {"running_sum": "bidirectional", "running_sum_causal": "causal"}
LOOK = {
    "wavelet": (GREEN, "s"), "alibi": (VERMILION, "o"), "alibi_over_length": (ORANGE, "o"),
    "legendre": (SKY, "D"), "sinusoidal": (BLUE, "^"), "none": (GREY, "x"), "learned": (PINK, "v"),
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
        "training_seconds": {suite.name: sum(c.seconds["training"] for c in own)
                             for suite, own in zip(suites, cells, strict=True)},
    }  # fmt: skip
    draw_table_5(run, result)
    draw_places(run, suites[0], result)
    save_figure(run, "length_extrapolation_source", lengths_figure(cells[1]))
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
    for column, factor in enumerate(own[named[0]].lengths):
        seeds = np.stack([own[name].scores["mse"][:, column] for name in named])  # [4, seeds]
        logs = np.log(seeds)
        order[f"at_{factor}"] = {
            "ours": [named[i] for i in np.argsort(seeds.mean(axis=1))],
            "published": list(ORDER),
            "seeds_in_published_order": int(np.all(np.diff(seeds, axis=0) > 0, axis=0).sum()),
            # Of each neighbouring pair: log of the ratio of errors, over seeds.
            "log_ratio_of_neighbours": {
                f"{a}/{b}": seed_mean(logs[i] - logs[i + 1])._asdict()
                for i, (a, b) in enumerate(itertools.pairwise(named))
            },
        }
    return {"cells": {name: numbers(cell) for name, cell in own.items()}, "order": order}


def error_by_place(suite: Suite, task: str, folder: Path) -> dict[str, Any]:
    """Mean squared error at each place of rows of 4T (2T when quick), and what constants get.

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
            "by_place": by_place.mean(axis=0),
            "up_to_T": seed_mean(inside.mean(axis=1))._asdict(),
            "beyond_T": seed_mean(outside.mean(axis=1))._asdict(),
        }
    return {"length": length, "of_zero": variance_of_sums(length), "encodings": found}


def variance_of_sums(length: int) -> np.ndarray:
    """E y_t² = t/3 for numbers from U(−1, 1): what saying 0 costs at each place."""
    return np.arange(1, length + 1) / 3.0


def draw_table_5(run: Run, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Running sums beyond the training length", columns=2, width=9, height=3.8
    )
    for axis, (task, table) in zip(axes[0], result["table_5"].items(), strict=True):
        for name, cell in table["cells"].items():
            colour, marker = LOOK[name]
            mean, half = np.array(cell["mse"]["mean"]), np.array(cell["mse"]["half"])
            axis.errorbar(cell["lengths"], mean, yerr=half, color=colour, marker=marker,
                          markersize=4, capsize=2, label=name)  # fmt: skip
        lengths = np.array(next(iter(table["cells"].values()))["lengths"])
        axis.plot(lengths, (lengths + 1) / 6, "--", color="#999999", label="saying 0")
        for name, published in PUBLISHED.items():
            axis.plot(lengths[:3], published[: len(lengths)], LOOK[name][1], color=LOOK[name][0],
                      alpha=0.35, markersize=5, linestyle=":")  # fmt: skip
        axis.set(xscale="log", yscale="log", title=MASKS[task], xlabel="length tested",
                 ylabel="mean squared error")  # fmt: skip
        axis.set_xticks(lengths, [str(n) for n in lengths])
        axis.minorticks_off()
    axes[0, 1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.text(0.01, 0.005, "dotted: published", fontsize=8, color="#777777")
    save_figure(run, "length_extrapolation_table_5", figure)


def draw_places(run: Run, suite: Suite, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Where in a row of four lengths the error is", columns=2, width=9, height=3.8
    )
    for axis, (task, found) in zip(axes[0], result["by_place"].items(), strict=True):
        places = np.arange(1, found["length"] + 1)
        for name, errors in found["encodings"].items():
            axis.plot(places, errors["by_place"], color=LOOK[name][0], label=name, linewidth=1.3)
        axis.plot(places, found["of_zero"], "--", color="#999999", label="saying 0")
        axis.axvline(suite.length, color="#bbbbbb", linewidth=1)
        axis.set(yscale="log", title=MASKS[task], xlabel="place", ylabel="mean squared error")
    axes[0, 1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(run, "length_extrapolation_places", figure)


if __name__ == "__main__":
    main(experiment, "length_extrapolation")

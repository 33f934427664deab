"""Table 5 of Li (2025) and the tasks of Kazemnejad et al. (2023), beyond the training length.

Also what decides the order in Table 5: errors by place.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import (
    Run,
    main,
)
from jaxpe import encodings
from jaxpe.analysis.extrapolation import ExtrapolationOptions
from jaxpe.analysis.extrapolation.encodings import stretched_encoding
from jaxpe.analysis.extrapolation.job import chance_score, scored_cell, trained_models
from jaxpe.analysis.extrapolation.models import (
    Streams,
    encoding_sizes,
    functional_model,
    seed_keys,
    streams,
)
from jaxpe.analysis.extrapolation.result import ExtrapolationCell, reciprocal_ranks
from jaxpe.analysis.intervals import seed_mean
from jaxpe.data import sequence_task
from jaxpe.encodings import EncodingSizes

MODULE = "experiments.kazemnejad2023.length_extrapolation"


def alibi_over_length(sizes: EncodingSizes) -> encodings.Encoding:
    """ALiBi with the slope 1/T: Section 5.3 of Li (2025)."""
    return encodings.alibi(num_heads=sizes.num_heads, slopes=1.0 / sizes.length)


# Section 7 of Li (2025), as far as it is stated: 2 layers, one head, ReLU, no norm, 10,000 rows, 20
# epochs, 1,000 tests. T, widths, batch, rate and the law of the inputs are lost.
TABLE_5 = ExtrapolationOptions(
    tasks=("running_sum", "running_sum_causal"),
    encodings=(
        "sinusoidal", "alibi", f"{MODULE}:alibi_over_length", "wavelet", "legendre", "none",
    ),
    length=16, factors=(1, 2, 4, 8), seeds=5, steps=2000, batch=100, rates=(1e-3, 3e-3, 1e-2),
    tests=1000, dim=32, heads=1, hidden=64, norm="none",
)  # fmt: skip
ROWS = 10_000  # of the training set of Table 5, all of length T
# The tasks and encodings of Kazemnejad et al. (2023), with small models.
SOURCE = ExtrapolationOptions(
    tasks=(
        "copy", "reverse", "addition", "sort", "parity", "summation", "composition", "scan",
    ),
    encodings=("none", "sinusoidal", "t5", "alibi", "rope"),
    length=6, factors=(1, 2, 4, 8), seeds=3, steps=600, dim=64, hidden=128,
)  # fmt: skip
ORDER = ("wavelet", "alibi", "legendre", "sinusoidal")  # published, best first, at 2T and 4T
QUICK = {"steps": 10, "tests": 8, "seeds": 2, "batch": 4, "dim": 8, "hidden": 8, "factors": (1, 2)}


def experiment(run: Run) -> dict[str, Any]:
    table, source = (quick(x) if run.quick else x for x in (TABLE_5, SOURCE))
    table_cells, by_place = {}, {}
    for task in table.tasks:
        table_cells[task], by_place[task] = sums_learned(table, task, 20 if run.quick else ROWS)
    source_cells = {
        task: list(cells_of(source, streams(source, sequence_task(task)))) for task in source.tasks
    }
    suites = {"table 5": (table, table_cells), "source suite": (source, source_cells)}
    return {
        "suites": [{"name": name} | vars(options) for name, (options, _) in suites.items()],
        "table_5": {task: table_5(cells, table.lengths) for task, cells in table_cells.items()},
        "by_place": by_place,
        "source": {
            task: {title(c): numbers(c, source.lengths) for c in cells}
            for task, cells in source_cells.items()
        },
        "mean_reciprocal_rank": {
            name: {
                encoding.rpartition(":")[2]: seed_mean(shares.mean(axis=(0, 2)))._asdict()
                for encoding, shares in reciprocal_ranks(
                    [cell for group in cells.values() for cell in group]
                ).items()
            }
            for name, (_, cells) in suites.items()
        },
    }


def title(cell: ExtrapolationCell) -> str:
    return cell.encoding.rpartition(":")[2]


def cells_of(options: ExtrapolationOptions, data: Streams) -> Iterator[ExtrapolationCell]:
    """Cells of a task, as `jaxpe extrapolate` makes them."""
    for name in options.encodings:
        models = trained_models(options, data, name)
        yield scored_cell(options, data, name, models, chance_score(options, data))
        print(data.task.name, name, flush=True)


def sums_learned(
    options: ExtrapolationOptions, name: str, rows: int
) -> tuple[list[ExtrapolationCell], dict[str, Any]]:
    """Cells of running sums from a training set, and their errors by place."""
    task, cells, places = sequence_task(name), [], {}
    data = from_rows(options, streams(options, task), rows)
    length = options.lengths[min(2, len(options.lengths) - 1)]
    for encoding in options.encodings:
        models = trained_models(options, data, encoding)
        cells.append(scored_cell(options, data, encoding, models, 1.0))
        places[title(cells[-1])] = error_by_place(options, data, encoding, models.params, length)
        print(name, title(cells[-1]), flush=True)
    return cells, {"length": length, "encodings": places}


def from_rows(options: ExtrapolationOptions, data: Streams, rows: int) -> Streams:
    """The streams, with training rows from a set of inputs of length T, shuffled each epoch."""

    @jax.jit
    def batches(chosen: jax.Array, seeds: jax.Array) -> dict[str, jax.Array]:
        keys = seed_keys(options, data.task, seeds, 1)
        sample = partial(data.task.sample, rows=rows, length=options.length, exact=True)
        return jax.tree.map(lambda x: jnp.moveaxis(x[:, chosen], 0, 1), jax.vmap(sample)(keys))

    def training(seeds: np.ndarray, steps: np.ndarray) -> dict[str, jax.Array]:
        chosen, batch = [], options.batch
        for step in steps.tolist():
            epoch, number = divmod(step, rows // batch)
            order = np.random.default_rng([options.seed, epoch]).permutation(rows)
            chosen.append(order[number * batch : (number + 1) * batch])
        return batches(np.stack(chosen).astype(np.int32), seeds)

    return data._replace(training=training)


def quick(options: ExtrapolationOptions) -> ExtrapolationOptions:
    few = dataclasses.replace(options, **QUICK, tasks=options.tasks[:2])
    return dataclasses.replace(few, encodings=options.encodings[:2], length=4)


def numbers(cell: ExtrapolationCell, lengths: tuple[int, ...]) -> dict[str, Any]:
    """Every metric at every length: mean, half of its 95 % interval, and the seeds."""
    found = {
        metric: seed_mean(values)._asdict() | {"seeds": values}
        for metric, values in cell.scores.items()
    }
    scores = cell.scores[cell.metric]
    return found | {
        "lengths": lengths,
        "defined": np.isfinite(scores).any(axis=0),
        **{name: getattr(cell, name) for name in ("rate", "tuning", "loss")},
    }


def table_5(cells: list[ExtrapolationCell], lengths: tuple[int, ...]) -> dict[str, Any]:
    """Errors by encoding, and whether they come in the published order."""
    own = {title(cell): cell for cell in cells}
    named = [name for name in ORDER if name in own]
    order = {}
    for column, length in enumerate(lengths):
        seeds = np.stack([own[name].scores["mse"][:, column] for name in named])  # [4, seeds]
        ordered = np.all(np.diff(seeds, axis=0) > 0, axis=0)
        order[f"at_{length}"] = {"seeds_in_published_order": int(ordered.sum())}
    return {"cells": {name: numbers(cell, lengths) for name, cell in own.items()}, "order": order}


def error_by_place(
    options: ExtrapolationOptions, data: Streams, name: str, params: Any, length: int
) -> dict[str, Any]:
    """Mean squared error at places up to T and beyond, of rows of 4T (2T when quick).

    Errors at places up to T are the same question as in training but for what stands behind, which
    a causal model cannot see.
    """
    sizes, causal = encoding_sizes(options, data.task), data.task.causal
    encoding = stretched_encoding(name, sizes, length, causal=causal)
    apply, _ = functional_model(options, data.task, encoding)

    @jax.jit
    def errors(params, batches):
        def part(batch):
            said = jax.vmap(apply)(params, batch)
            return jnp.mean((said - batch["labels"])[..., 0] ** 2, axis=1)

        return jnp.mean(jax.lax.map(part, batches), axis=0)

    batches = data.tests(np.arange(options.seeds), length)
    by_place = np.asarray(errors(params, batches))  # [seeds, length]
    inside, outside = by_place[:, : options.length], by_place[:, options.length :]
    return {
        "up_to_T": seed_mean(inside.mean(axis=1))._asdict(),
        "beyond_T": seed_mean(outside.mean(axis=1))._asdict(),
        "by_place": by_place.mean(axis=0),
    }


if __name__ == "__main__":
    main(experiment, "length_extrapolation")

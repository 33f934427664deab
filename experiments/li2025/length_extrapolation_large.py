"""Table 5 of Li (2025) at d = 64 and T = 64, and tasks on strings at twice their size.

A study that grows: each model is a row of `results/length_extrapolation_large.json`, written when
it is done. A run trains those that are not there, in an order in which it may be stopped.
Options beside `--out` and `--quick`: `--only WORDS`, again and again, takes the models whose name,
such as "table 5/uniform/running_sum/alibi/0", has one of these words in it; `--minutes N` starts
no model later than that.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from experiments.common import Run, main, plain
from experiments.kazemnejad2023.length_extrapolation import ROWS, SOURCE, from_rows
from experiments.kazemnejad2023.length_extrapolation import TABLE_5 as SMALL_TABLE_5
from experiments.learning import take_options
from experiments.rows import add_row, cost, inside, read_rows, row_of
from jaxpe.analysis.extrapolation import ExtrapolationOptions
from jaxpe.analysis.extrapolation.encodings import trained_encoding
from jaxpe.analysis.extrapolation.models import (
    Streams,
    encoding_sizes,
    functional_model,
    score_models,
    streams,
    trainer,
)
from jaxpe.analysis.extrapolation.result import reciprocal_ranks
from jaxpe.analysis.intervals import seed_mean
from jaxpe.data import sequence_task

# The width is the text's ("top 64 basis functions"). Everything else is that of the small study.
TABLE_5 = dataclasses.replace(
    SMALL_TABLE_5,
    encodings=tuple(name for name in SMALL_TABLE_5.encodings if name != "alibi"),
    length=64, factors=(1, 2, 4), dim=64, hidden=64, seeds=3,
)  # fmt: skip
STRINGS = dataclasses.replace(
    SOURCE,
    tasks=("copy", "reverse", "sort"),
    length=12, factors=(1, 2, 4), dim=128, hidden=256, steps=1200, seeds=3,
)  # fmt: skip
# What is not learned at T in these steps has four times as many.
LONGER = dataclasses.replace(
    STRINGS, tasks=("copy", "reverse"), encodings=("none", "t5"), steps=4 * STRINGS.steps
)
LAWS = ("uniform", "signs")
STUDIES = ("table 5", "strings")
TUNING_SEED = 1_000_000  # of no model that is tested
SIZES = ("length", "dim", "hidden", "layers", "heads", "steps", "batch", "tests")
QUICK = {"steps": 10, "tests": 8, "batch": 4, "dim": 8, "hidden": 8, "length": 4, "factors": (1, 2)}
OPTIONS = take_options(repeated=("only",), minutes=True)


class Model(NamedTuple):
    """One model of the study; its names are those of its row."""

    suite: ExtrapolationOptions
    law: str  # of numbers; "words" or "words, longer" for strings
    task: str
    encoding: str
    seed: int

    @property
    def cell(self) -> tuple[str, ...]:
        name = self.encoding.rpartition(":")[2]
        return (STUDIES[self.law not in LAWS], self.law, self.task, name)

    @property
    def rows(self) -> int | None:
        """Size of the training set; None for fresh rows at each step."""
        if self.law not in LAWS:
            return None
        return 20 if self.suite.batch == QUICK["batch"] else ROWS

    @property
    def tuning_steps(self) -> int:
        return max(2, round((0.1 if self.law in LAWS else 0.15) * self.suite.steps))

    @property
    def name(self) -> str:
        return "/".join((*self.cell, str(self.seed)))


def models(*, quick: bool = False) -> Iterator[Model]:
    """All models, one seed of everything before the next."""
    suites = dict.fromkeys(LAWS, TABLE_5) | {"words": STRINGS, "words, longer": LONGER}
    if quick:
        suites = {law: dataclasses.replace(suite, **QUICK) for law, suite in suites.items()}
    for seed in range(TABLE_5.seeds):
        for law, suite in suites.items():
            for task in reversed(suite.tasks):
                for encoding in suite.encodings:
                    yield Model(suite, law, task, encoding, seed)


def experiment(run: Run, options: Any = OPTIONS) -> dict[str, Any]:
    path = run.out / f"{Path(__file__).stem}.json"
    begun = time.perf_counter()
    wanted = [
        model
        for model in models(quick=run.quick)
        if any(word in model.name for word in options.only or [""])
    ]
    for model in wanted[: 3 if run.quick else None]:
        if time.perf_counter() - begun > 60 * options.minutes:
            break
        if row_of(read_rows(path), (*model.cell, "seeds", str(model.seed))) is None:
            finish(model, path)
    rows = read_rows(path)
    studies = {name: rows.get(name, {}) for name in STUDIES}
    costs = {name: cost(study) for name, study in studies.items()}
    words = studies["strings"].get("words", {})
    return studies | {"cost": costs, "mean_reciprocal_rank": mean_ranks(words)}


def mean_ranks(tasks: dict[str, Any]) -> dict[str, Any]:
    """Mean of 1/rank beyond T by encoding, over tasks and lengths; intervals over seeds.

    Empty until all encodings have the same seeds, two at least, of all tasks.
    """
    seeds = {tuple(row.get("seeds", ())) for rows in tasks.values() for row in rows.values()}
    if len(seeds) != 1 or len(seeds.pop()) < 2 or len({tuple(rows) for rows in tasks.values()}) > 1:
        return {}
    cells: Any = [
        SimpleNamespace(
            task=task,
            encoding=name,
            metric="accuracy",
            is_share=True,
            scores={"accuracy": np.array([own["accuracy"] for own in row["seeds"].values()])},
        )
        for task, rows in tasks.items()
        for name, row in rows.items()
    ]
    return {
        name: seed_mean(shares.mean(axis=(0, 2)))._asdict()
        for name, shares in reciprocal_ranks(cells).items()
    }


def finish(model: Model, path: Path) -> None:
    """Train and test a model, and write its row."""
    data, train = prepared(model)
    first = rated(model)
    chosen = row_of(read_rows(path), (*first.cell, "rate"))
    if chosen is None:
        chosen = plain(tuned(first))
        add_row(path, (*first.cell, "rate"), chosen)
    begun = time.process_time()
    seeds = np.array([model.seed])
    lanes = train(seeds=seeds, rates=np.array([chosen["rate"]]), steps=model.suite.steps)
    took = time.process_time() - begun
    apply, _ = functional_model(model.suite, data.task, encoding_of(model, data))
    tested = [
        score_models(data.task, apply, lanes.params, data.tests(seeds, length))
        for length in model.suite.lengths
    ]
    scores = {metric: np.stack([one[metric] for one in tested]) for metric in tested[0]}
    curve = lanes.losses[:, 0]
    row = {
        "lengths": model.suite.lengths,
        **{metric: values[:, 0] for metric, values in scores.items()},
        "loss": [float(part.mean()) for part in np.array_split(curve, min(20, len(curve)))],
        "cpu_seconds": took,
        "sizes": {name: getattr(model.suite, name) for name in SIZES} | {"rows": model.rows},
    }
    add_row(path, (*model.cell, "seeds", str(model.seed)), plain(row))
    metric, values = next(iter(scores.items()))
    print(model.name, metric, np.round(values[:, 0], 5), f"{took:.0f} s", flush=True)


def rated(model: Model) -> Model:
    """The model whose rate it has: laws of numbers share one, and strings however long trained."""
    if model.law in LAWS:
        return model._replace(law=LAWS[0])
    return model._replace(law="words", suite=dataclasses.replace(model.suite, steps=STRINGS.steps))


def prepared(model: Model) -> tuple[Streams, Callable[..., Any]]:
    sizes = {"law": model.law} if model.law in LAWS else {}
    data = streams(model.suite, sequence_task(model.task, **sizes))
    if model.rows is not None:
        data = from_rows(model.suite, data, model.rows)
    return data, trainer(model.suite, data, encoding_of(model, data))


def encoding_of(model: Model, data: Streams) -> Any:
    sizes = encoding_sizes(model.suite, data.task)
    return trained_encoding(model.encoding, sizes, causal=data.task.causal)


def tuned(model: Model) -> dict[str, Any]:
    """The rate of the least loss after a share of the steps, on a seed of its own.

    Rates are 10^(k/2); the grid grows until both neighbours of the best one have been tried.
    """
    begun, (_, train) = time.process_time(), prepared(model)

    def loss_at(k: int) -> float:
        lanes = train(
            seeds=np.array([TUNING_SEED]), rates=np.array([10 ** (k / 2)]), steps=model.tuning_steps
        )
        last = lanes.losses[-max(1, model.tuning_steps // 10) :, 0].mean()
        return float(last) if np.isfinite(last) else np.inf

    losses = inside(loss_at, first=-5)
    best = min(losses, key=losses.__getitem__)
    tried = {f"{10 ** (k / 2):.2e}": losses[k] for k in sorted(losses)}
    return {"rate": 10 ** (best / 2), "tried": tried, "cpu_seconds": time.process_time() - begun}


if __name__ == "__main__":
    main(experiment, Path(__file__).stem, grows=True)

"""Job of `jaxpe extrapolate`: every task under every encoding."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.extrapolation.cost import measure_costs
from jaxpe.analysis.extrapolation.encodings import stretched_encoding, trained_as, trained_encoding
from jaxpe.analysis.extrapolation.models import (
    AT_ONCE,
    ModelFactory,
    Params,
    Streams,
    TrainedModels,
    build,
    encoding_sizes,
    functional_model,
    score_models,
    streams,
    trainer,
)
from jaxpe.analysis.extrapolation.options import ExtrapolationOptions
from jaxpe.analysis.extrapolation.result import ExtrapolationCell, ExtrapolationResult
from jaxpe.data import sequence_task
from jaxpe.encodings.entries import own_encoding_errors

_TUNING_SEED = 1_000_000  # added to seeds; no tested model has such a seed
_TUNING = 0.25  # share of the steps after which rates are compared
_LAST = 0.1  # share of the steps whose losses are averaged


class ChosenModels(NamedTuple):
    """Models of a task under an encoding, one a seed.

    Attributes:
        params: `[seeds, ...]`.
        rate: chosen learning rate.
        tuning: training loss of each rate, on a separate seed; NaN for a single rate.
        losses: `[steps, seeds]`.
    """

    params: Params
    rate: float
    tuning: np.ndarray
    losses: np.ndarray


def extrapolate(
    options: ExtrapolationOptions, *, model: ModelFactory = build, progress: Progress = SILENT
) -> ExtrapolationResult:
    """Train and test every task under every encoding.

    A model of your own is a function `(options, task, encoding, key) -> nnx.Module`. The module is
    called as `model(inputs, mask=mask)`, with ids `[rows, n]` or numbers `[rows, n, 1]`, and mask
    `[rows, n]`, false on padding. It returns logits `[rows, n, task.vocab_size]`, or `[rows, n, 1]`
    for numbers, or an object with these `logits`. It is causal where `task.causal`. Encodings are
    made for `options.dim` and `options.heads`. All `nnx.Param` are trained, and parameters of equal
    path and shape start equal under all encodings.

    Args:
        options: options of the comparison.
        model: function that makes a model; by default a transformer of the options' sizes, of
            which the costs are in any case.
        progress: receives a line for every cell.

    Raises:
        InputError: too little memory, an encoding of one's own that fails, or logits of another
            shape.

    >>> options = ExtrapolationOptions(
    ...     tasks=("parity",), encodings=("none",), length=2, factors=(1, 2), steps=2, batch=4,
    ...     tests=4, rates=(1e-3,), seeds=2, dim=8, heads=1, layers=1)
    >>> extrapolate(options).cells[0].scores["accuracy"].shape
    (2, 2)
    """
    began, cells = time.perf_counter(), list[ExtrapolationCell]()
    check_bytes(
        _needed_bytes(options),
        what=f"`length` {options.length}, `factors` up to {options.factors[-1]} and `batch` "
        f"{options.batch} with `seeds` {options.seeds} and `steps` {options.steps}",
        remedy="pass smaller ones",
        limit=device_bytes(),
    )
    costs = measure_costs(options, progress=progress)
    for task in map(sequence_task, options.tasks):
        data, trained = streams(options, task, model=model), dict[str, ChosenModels]()
        chance = chance_score(options, data)
        for name in options.encodings:
            started, shared = time.perf_counter(), trained_as(name)
            with own_encoding_errors(name):
                if shared not in trained:
                    trained[shared] = trained_models(options, data, shared, model=model)
                cell = scored_cell(options, data, name, trained[shared], chance, model=model)
            cells.append(cell)
            left = len(options.tasks) * len(options.encodings) - len(cells)
            seconds = time.perf_counter() - started
            progress.say(f"{task.name}, {name}: {seconds:.0f} s, {left} to go")
    seconds = {"whole": time.perf_counter() - began}
    return ExtrapolationResult(options, tuple(cells), costs, seconds)


def _needed_bytes(options: ExtrapolationOptions) -> int:
    """Lower bound of the bytes of attention weights and hidden states, in training and tests."""
    tasks = [sequence_task(name) for name in options.tasks]

    def numbers(length: int) -> int:
        tokens = max(task.tokens(length) for task in tasks)
        return tokens * (options.heads * tokens + options.dim + options.hidden)

    training = options.batch * options.layers * numbers(options.length) + options.steps
    tests = min(options.tests, AT_ONCE) * numbers(options.lengths[-1])
    return 4 * options.seeds * max(training, tests)


def trained_models(
    options: ExtrapolationOptions, data: Streams, name: str, *, model: ModelFactory = build
) -> ChosenModels:
    """Models of all seeds, at the rate of the lowest loss of a separate seed."""
    task = data.task
    encoding = trained_encoding(name, encoding_sizes(options, task), causal=task.causal)
    train = trainer(options, data, encoding, model=model)
    rate, tuning = _best_rate(options, train)
    seeds = np.arange(options.seeds)
    models = train(seeds=seeds, rates=np.full(options.seeds, rate), steps=options.steps)
    return ChosenModels(models.params, rate, tuning, models.losses)


def _best_rate(
    options: ExtrapolationOptions, train: Callable[..., TrainedModels]
) -> tuple[float, np.ndarray]:
    """The rate of the lowest loss after a quarter of the steps; NaN is worst.

    It trains as many models as the later training, so nothing is compiled twice.
    """
    if len(options.rates) == 1:
        return options.rates[0], np.array([np.nan])
    rates = np.resize(np.array(options.rates), max(options.seeds, len(options.rates)))
    steps = max(2, round(_TUNING * options.steps))
    models = train(seeds=np.full(len(rates), _TUNING_SEED), rates=rates, steps=steps)
    losses = _last(models.losses)[: len(options.rates)]
    return float(rates[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]), losses


def _last(losses: np.ndarray) -> np.ndarray:
    """Mean loss of the last steps, `[models]`, of losses `[steps, models]`."""
    return losses[-max(1, round(_LAST * len(losses))) :].mean(axis=0).astype(float)


def scored_cell(
    options: ExtrapolationOptions,
    data: Streams,
    name: str,
    trained: ChosenModels,
    chance: float,
    *,
    model: ModelFactory = build,
) -> ExtrapolationCell:
    """Scores of models at every length; NaN where the encoding gives no finite output."""
    sizes, seeds = encoding_sizes(options, data.task), np.arange(options.seeds)
    scores: dict[str, np.ndarray] = {}
    for column, length in enumerate(options.lengths):
        encoding = stretched_encoding(
            name, sizes, data.task.tokens(length), causal=data.task.causal
        )
        apply, _ = functional_model(options, data.task, encoding, model)
        try:
            tested = score_models(data.task, apply, trained.params, data.tests(seeds, length))
        except ValueError:
            if length == options.length:
                raise
            continue  # such as a learned table, which ends at T
        for metric, values in tested.items():
            empty = np.full((options.seeds, len(options.lengths)), np.nan)
            scores.setdefault(metric, empty)[:, column] = values
    failed = ~np.isfinite(trained.losses[-1])  # these have the last finite parameters
    scores = {metric: np.where(failed[:, None], np.nan, x) for metric, x in scores.items()}
    return ExtrapolationCell(
        data.task.name, name, scores, trained.rate, trained.tuning, _last(trained.losses),
        options.tests, chance,
    )  # fmt: skip


def chance_score(options: ExtrapolationOptions, data: Streams) -> float:
    """Score at T of the best answer that ignores the input, over the test rows of all seeds.

    For tokens this answer says at each place the token that is most frequent there; for numbers it
    says 0, whose relative squared error is 1.
    """
    if data.task.kind != "tokens":
        return 1.0
    batch = jax.device_get(data.tests(np.arange(options.seeds), options.length))
    scored, labels = (batch[k].reshape(-1, batch[k].shape[-1]) for k in ("scored", "labels"))
    places = np.cumsum(scored, axis=1)[scored]
    counts = np.zeros((places.max() + 1, data.task.vocab_size), int)
    np.add.at(counts, (places, labels[scored]), 1)
    return float(counts.max(axis=1).sum() / counts.sum())

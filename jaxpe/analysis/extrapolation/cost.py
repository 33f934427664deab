"""Cost of encodings in a model, without training it."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.extrapolation.encodings import trained_encoding
from jaxpe.analysis.extrapolation.models import encoding_sizes, functional_model, loss_function
from jaxpe.analysis.extrapolation.options import ExtrapolationOptions
from jaxpe.data import sequence_task
from jaxpe.encodings.entries import own_encoding_errors

COST_TASK, COST_LENGTH, COST_ROWS = "copy", 128, 4  # of the model whose cost is measured
_ROUNDS = 20  # timed updates of each encoding, in turn


class EncodingCost(NamedTuple):
    """Cost of an encoding in one update, a forward and backward pass.

    Attributes:
        encoding: name of the encoding.
        parameters: number of parameters that it adds to the model.
        memory: peak bytes of temporary arrays of an update, as the compiler plans them; NaN from a
            backend that does not report them.
        relative_time: time of an update by the time without an encoding; processor time on CPUs,
            which other work affects less. Both times are the shortest over rounds in which all
            encodings take turns.
    """

    encoding: str
    parameters: int
    memory: float
    relative_time: float


def measure_costs(
    options: ExtrapolationOptions, *, progress: Progress = SILENT
) -> tuple[EncodingCost, ...]:
    """Cost of encodings, in a decoder of the options' sizes.

    The update is of 4 rows of 259 tokens for `copy`.

    Raises:
        InputError: an encoding of one's own that fails.

    >>> options = ExtrapolationOptions(encodings=("alibi",), dim=8, heads=2, hidden=8, layers=1)
    >>> alibi, = measure_costs(options)
    >>> alibi.parameters, alibi.relative_time > 0
    (0, True)
    """
    programs = {}
    for name in progress.track(dict.fromkeys(("none", *options.encodings)), "cost of encodings"):
        with own_encoding_errors(name):
            programs[name] = _update_program(options, name)
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    for _ in range(_ROUNDS):
        for name, (update, params, batch) in programs.items():
            began = clock()
            jax.block_until_ready(update(params, batch))
            seconds[name].append(clock() - began)
    sizes = {name: sum(map(np.size, jax.tree.leaves(x[1]))) for name, x in programs.items()}
    return tuple(
        EncodingCost(
            name,
            sizes[name] - sizes["none"],
            float(getattr(programs[name][0].memory_analysis(), "temp_size_in_bytes", "nan")),
            min(seconds[name]) / min(seconds["none"]),
        )
        for name in options.encodings
    )


def _update_program(options: ExtrapolationOptions, name: str) -> tuple[Any, Any, Any]:
    """Compiled forward and backward pass of the model at `COST_LENGTH`, and its arguments."""
    task = sequence_task(COST_TASK)
    options = dataclasses.replace(options, length=COST_LENGTH)
    encoding = trained_encoding(name, encoding_sizes(options, task))
    apply, initial_params = functional_model(options, task, encoding)
    loss, key, rng = loss_function(task, apply), jax.random.key(0), np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: initial_params(key, ()))
    params = jax.tree.map(lambda x: rng.normal(0, 0.1, x.shape).astype(x.dtype), shapes)
    batch = task.sample(key, rows=COST_ROWS, length=COST_LENGTH)
    update = jax.grad(lambda params, batch: loss(params, batch, key)[0].mean)
    return jax.jit(update).lower(params, batch).compile(), params, batch

"""Measures of encodings without training: properties, cost of an update, and stress."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.extrapolation import Suite, variant
from jaxpe.analysis.extrapolation.forecast import ProgramSeconds
from jaxpe.analysis.extrapolation.models import build_loss, encoding_sizes, functional_model
from jaxpe.data import sequence_task, three_regimes
from jaxpe.encodings import CatalogueEntry, EncodingProperties, EncodingSizes
from jaxpe.encodings.entries import own_encoding_errors

COST_TASK, COST_LENGTH, COST_ROWS = "copy", 128, 4  # of the model whose cost is measured
_ROUNDS = 20  # timed updates of each encoding, in turn
_DRAWS = 4  # of the parameters of position vectors


class EncodingMeasures(NamedTuple):
    """Measures of an encoding that need no training.

    Attributes:
        name: name of the encoding.
        properties: computed properties, with FLOPs and bytes of its hooks as the compiler counts
            them.
        parameters: number of parameters that it adds to the model.
        memory: peak bytes of temporary arrays of an update, as the compiler plans them; NaN from a
            backend that does not report them.
        token_seconds: seconds of an update (forward and backward) by token.
        relative_time: time of an update by the time without an encoding; processor time on CPUs,
            which other work affects less. Both times are the shortest over rounds in which all
            encodings take turns.
        stress: scaled stress of its position vectors against the distances of `three_regimes`, in
            [0, 1]; NaN without vectors.
        program: seconds of making the program of an update.
    """

    name: str
    properties: EncodingProperties
    parameters: int
    memory: float
    token_seconds: float
    relative_time: float
    stress: float
    program: ProgramSeconds


class _Update(NamedTuple):
    """Compiled forward and backward pass, its arguments, and the seconds of making it."""

    run: Any
    params: Any
    batch: Any
    program: ProgramSeconds


def measure_encodings(
    suite: Suite, names: Sequence[str], *, progress: Progress = SILENT
) -> tuple[EncodingMeasures, ...]:
    """Properties, cost and stress of encodings in the model of a suite.

    The cost is of one update of a decoder for `copy`, 4 rows of 259 tokens.

    Args:
        suite: sizes of the model.
        names: names of encodings, as in `Suite.encodings`.
        progress: receives a bar over encodings.

    Raises:
        InputError: an encoding of one's own that fails.

    >>> suite = Suite(name="tiny", tasks=("copy",), encodings=("alibi",), length=4, dim=8, heads=2,
    ...               hidden=8, layers=1)
    >>> alibi, = measure_encodings(suite, ("alibi",))
    >>> alibi.parameters, alibi.properties.beyond, alibi.relative_time > 0
    (0, 'yes', True)
    """
    longer = dataclasses.replace(suite, length=COST_LENGTH)
    sizes = encoding_sizes(longer, sequence_task(COST_TASK))
    updates, properties, stresses = {}, {}, {}
    everything = dict.fromkeys(("none", *names))
    baseline = "" if "none" in names else " and of none, the baseline"
    for name in progress.track(everything, f"cost of encodings{baseline}"):
        with own_encoding_errors(name):
            updates[name] = update_program(suite, name)
            if name in names:
                entry = _entry(name)
                properties[name] = jaxpe.encoding_properties(entry, sizes=sizes)
                stresses[name] = vector_stress(entry, sizes)
    seconds = _timed(updates)
    sizes_of = {name: sum(map(np.size, jax.tree.leaves(x.params))) for name, x in updates.items()}
    tokens = updates["none"].batch["ids"].size
    return tuple(
        EncodingMeasures(
            name,
            properties[name],
            sizes_of[name] - sizes_of["none"],
            float(getattr(updates[name].run.memory_analysis(), "temp_size_in_bytes", "nan")),
            float(seconds[name][0] / tokens),
            float(seconds[name][1] / seconds["none"][1]),
            stresses[name],
            updates[name].program,
        )
        for name in names
    )


def update_program(suite: Suite, name: str) -> _Update:
    """Program of one forward and backward pass of the suite's model at `COST_LENGTH`."""
    suite, task = dataclasses.replace(suite, length=COST_LENGTH), sequence_task(COST_TASK)
    encoding = variant(name).trained(encoding_sizes(suite, task), True)
    apply, initial_params = functional_model(suite, task, encoding)
    loss, key, rng = build_loss(task, apply), jax.random.key(0), np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: initial_params(key, ()))
    params = jax.tree.map(lambda x: rng.normal(0, 0.1, x.shape).astype(x.dtype), shapes)
    batch = task.sample(key, rows=COST_ROWS, length=COST_LENGTH)

    def update(params: Any, batch: Any) -> Any:
        return jax.grad(lambda p: loss(p, batch, key)[0].mean)(params)

    began = time.perf_counter()
    lowered = jax.jit(update).lower(params, batch)
    traced = time.perf_counter()
    compiled = lowered.compile()
    return _Update(
        compiled, params, batch, ProgramSeconds(traced - began, time.perf_counter() - traced)
    )


def _timed(updates: dict[str, _Update]) -> dict[str, np.ndarray]:
    """Seconds of each update, and of processors on CPUs; the shortest of rounds in turns."""
    seconds: dict[str, list[np.ndarray]] = {name: [] for name in updates}
    cost = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    for _ in range(_ROUNDS):
        for name, update in updates.items():
            began = np.array([time.perf_counter(), cost()])
            jax.block_until_ready(update.run(update.params, update.batch))
            seconds[name].append(np.array([time.perf_counter(), cost()]) - began)
    return {name: np.min(values, axis=0) for name, values in seconds.items()}


def _entry(name: str) -> CatalogueEntry:
    """Entry of a variant as it is trained; variants need not be in the catalogue."""
    known = {entry.name: entry for entry in jaxpe.catalogue()}
    entry = jaxpe.encodings.resolve(name) if ":" in name else known.get(name)
    make = variant(name).trained
    found = entry or CatalogueEntry(name, family="", make=lambda sizes: make(sizes, True))
    return found._replace(name=name, make=lambda sizes: make(sizes, True))


def vector_stress(entry: CatalogueEntry, sizes: EncodingSizes) -> float:
    """Mean scaled stress of position vectors against the exact distances of `three_regimes`."""
    distributions = three_regimes(documents=1).distributions
    n = len(distributions)
    encoding = entry.first_layer(sizes._replace(length=n))
    if not encoding.defines("vectors"):
        return float("nan")
    D, positions = jaxpe.hellinger_distances(distributions), jnp.arange(n)

    @jax.jit
    @jax.vmap
    def stresses(key: jax.Array) -> jax.Array:
        return jaxpe.scaled_stress(encoding.vectors(encoding.init(key), positions), D).stress

    return float(stresses(jax.random.split(jax.random.key(0), _DRAWS)).mean())

"""Memory check of suites, before the first model is trained."""

from collections.abc import Sequence

from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.streams import AT_ONCE
from jaxpe.data import sequence_task

_FLOAT = 4
_STATES = 4  # parameters, gradients and the two moments of Adam


def check_memory(suites: Sequence[Suite], *, limit: int | None = None) -> None:
    """Raise for suites that do not fit in memory, and name the settings to lower.

    Args:
        suites: suites, such as `preset("smoke")`.
        limit: bytes that may be used; free memory by default.

    Raises:
        InputError: too little memory.

    >>> suite = Suite(name="long", tasks=("copy",), encodings=("rope",), length=10**6)
    >>> check_memory([suite])
    Traceback (most recent call last):
    jaxpe.InputError: long, of T = 1000000 up to 8 times as long, ... needs ...; pass ...
    """
    for suite in suites:
        check_bytes(
            needed_bytes(suite),
            what=(
                f"{suite.name}, of T = {suite.length} up to {suite.factors[-1]} times as long, "
                f"{suite.batch} rows, {suite.seeds} seeds and {suite.steps} steps,"
            ),
            remedy="pass a smaller `length`, `factors`, `batch`, `seeds` or `steps`",
            limit=device_bytes() if limit is None else limit,
        )


def needed_bytes(suite: Suite) -> int:
    """Lower bound of the bytes of training and testing: attention weights, rows, models, losses."""
    tasks = [sequence_task(task) for task in suite.tasks]
    tokens = max(task.tokens(suite.length) for task in tasks)
    longest = max(task.tokens(suite.lengths[-1]) for task in tasks)
    lanes = max(suite.seeds, len(suite.rates))
    rows = min(suite.tests, AT_ONCE)
    training = lanes * suite.batch * suite.layers * _layer_numbers(suite, tokens)
    testing = suite.seeds * rows * _layer_numbers(suite, longest)
    rows_held = lanes * tokens * max(suite.batch, suite.rows or 0)
    block = suite.dim * (4 * suite.dim + 2 * suite.hidden)
    models = lanes * suite.layers * block * _STATES
    return _FLOAT * (max(training, testing) + rows_held + models + lanes * suite.steps)


def _layer_numbers(suite: Suite, tokens: int) -> int:
    """Numbers that a layer computes from a row: attention weights and hidden states."""
    return tokens * (suite.heads * tokens + suite.dim + suite.hidden)

"""Suites of tasks and encodings, and presets of suites."""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any, Literal

from jaxpe._core.errors import InputError, unknown
from jaxpe._core.options import LARGEST_SIZE, check_range, check_seed
from jaxpe.analysis.extrapolation.variants import variant, variant_names
from jaxpe.data import SEQUENCE_TASKS, sequence_task

# Largest sizes; each layer adds to the compiled program.
_MOST = dict.fromkeys(
    ("length", "tests", "steps", "batch", "seeds", "dim", "heads", "hidden"), LARGEST_SIZE
) | {"layers": 10_000}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """Every task under every encoding, with equal data, seeds, steps and rates to choose from.

    Attributes:
        name: name of the comparison.
        tasks: names of `jaxpe.data.SEQUENCE_TASKS`.
        encodings: names of `jaxpe.analysis.extrapolation.variant_names()`, or
            my_module:my_encoding.
        length: length T of the training inputs.
        factors: multiples of T at which models are tested.
        exact: whether to train at length T alone, instead of lengths drawn from 1 to T.
        rows: size of the training set of all epochs; None for fresh rows at every step.
        tests: number of test rows at each length; above 100 a multiple of 100.
        steps: number of updates.
        batch: rows of an update.
        rates: peak learning rates; each encoding gets its best one, chosen on a separate seed.
        tuning: share of the steps that are used to choose the rate.
        seeds: number of models of each task and encoding.
        dim, layers, heads, hidden: sizes of the model.
        norm: "layer", or "none" as in Li (2025).
        init_scale: standard deviation of dense kernels; dim^(−1/2) when None.
        seed: random seed of all draws.
    """

    name: str
    tasks: tuple[str, ...]
    encodings: tuple[str, ...]
    length: int
    factors: tuple[int, ...] = (1, 2, 4, 8)
    exact: bool = False
    rows: int | None = None
    tests: int = 1000
    steps: int = 1000
    batch: int = 64
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    tuning: float = 0.25
    seeds: int = 3
    dim: int = 64
    layers: int = 2
    heads: int = 4
    hidden: int = 128
    norm: Literal["layer", "none"] = "layer"
    init_scale: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            check_range(name, getattr(self, name), least=1, most=most)
        check_range("factors", self.factors[-1] if self.factors else 1, most=LARGEST_SIZE)
        check_seed("seed", self.seed)
        for task in self.tasks:
            if task not in SEQUENCE_TASKS:
                raise InputError(unknown("task", task, SEQUENCE_TASKS))
        for name in self.encodings:
            variant(name)  # raises where there is none
        for refused, message in self._faults():
            if refused:
                raise InputError(message)

    def _faults(self) -> Iterator[tuple[bool, str]]:
        """Conditions that a suite must not meet, with their error messages."""
        named = re.fullmatch(r"[A-Za-z0-9 ]+", self.name)
        yield not named, f"`name={self.name!r}` is to name files: pass letters, digits and spaces"
        for kind, names in (("tasks", self.tasks), ("encodings", self.encodings)):
            listed = ", ".join(names) or "none"
            yield len(set(names)) < max(1, len(names)), f"`{kind}` are {listed}: pass each one once"
        kinds = sorted({sequence_task(task).kind for task in self.tasks})
        listed = f"{', '.join(self.tasks)} are tasks of {' and of '.join(kinds)}"
        yield len(kinds) > 1, f"{listed}: pass a suite for each kind"
        split = f"`dim={self.dim}` does not split into {self.heads} heads of even width"
        yield self.dim % (2 * self.heads) != 0, split
        yield self.steps < 2, "`steps` is 1; the first step of the warm-up has the rate 0: pass 2"
        odd = self.tests > 100 and self.tests % 100 != 0
        yield odd, f"`tests={self.tests}`: pass 100 or less, or a multiple of 100"
        few = (self.rows or self.batch) < self.batch
        yield few, f"`rows={self.rows}` are less than a batch of {self.batch}"
        ascending = self.factors[:1] == (1,) and list(self.factors) == sorted(set(self.factors))
        yield not ascending, f"`factors` are {self.factors}: pass 1 and then larger ones, in order"
        positive = bool(self.rates) and all(0 < rate < math.inf for rate in self.rates)
        share = 0 < self.tuning <= 1
        yield not (positive and share), "pass positive `rates`, and a share of the steps `tuning`"
        scale = self.init_scale or 0
        yield not 0 <= scale < math.inf, f"`init_scale` is {scale}; pass a number of at least 0"

    @property
    def tuning_steps(self) -> int:
        """Number of steps after which rates are compared."""
        return max(2, round(self.tuning * self.steps))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tested lengths."""
        return tuple(factor * self.length for factor in self.factors)


# Section 7 of Li (2025), as far as it is stated: 2 layers, one head, ReLU, no norm, 10,000 rows,
# 20 epochs, 1,000 tests. T, widths, batch, rate and the law of the inputs are lost.
_TABLE_5 = Suite(
    name="table 5",
    tasks=("running_sum", "running_sum_causal"),
    encodings=(
        "sinusoidal", "alibi", "alibi_over_length", "wavelet", "legendre", "none",
    ),
    length=16,
    exact=True,
    rows=10_000,
    steps=2000,
    batch=100,
    rates=(1e-3, 3e-3, 1e-2),
    seeds=5,
    dim=32,
    heads=1,
    hidden=64,
    norm="none",
)  # fmt: skip

# The tasks and encodings of Kazemnejad et al. (2023), with small models.
_SOURCE = Suite(
    name="source suite",
    tasks=(
        "copy", "reverse", "addition", "sort", "parity", "summation", "composition", "scan",
    ),
    encodings=("none", "sinusoidal", "t5", "alibi", "rope"),
    length=6,
    steps=600,
    batch=32,
    rates=(3e-3, 1e-2),
    tests=200,
    seeds=3,
)  # fmt: skip

# Suites by the name of their preset.
PRESETS: dict[str, tuple[Suite, ...]] = {
    # Every encoding learns sorting at T, but only some keep it beyond T.
    "quick": (
        dataclasses.replace(
            _SOURCE,
            name="strings",
            tasks=("sort",),
            encodings=("none", "alibi", "rope", "sinusoidal"),
            factors=(1, 2, 4), steps=300, seeds=5, dim=32, hidden=64,
        ),
    ),
    "smoke": (
        dataclasses.replace(
            _TABLE_5,
            name="running sums",
            tasks=("running_sum_causal",),
            encodings=("sinusoidal", "alibi", "learned"),
            length=8, rows=None, steps=200, tests=100, batch=32, rates=(3e-3, 1e-2, 3e-2),
            seeds=3,
            dim=16, hidden=32,
        ),
        dataclasses.replace(
            _SOURCE,
            name="strings",
            tasks=("copy",),
            encodings=("none", "alibi", "rope"),
            length=4, steps=200, tests=100, rates=(3e-3, 1e-2, 3e-2), seeds=3, dim=32, layers=1,
        ),
    ),
    "paper": (_TABLE_5, _SOURCE),
    "full": (
        dataclasses.replace(_TABLE_5, encodings=variant_names(), seeds=10, tuning=1.0),
        dataclasses.replace(
            _SOURCE,
            encodings=variant_names(),
            length=20, steps=20_000, tests=1000, rates=(1e-4, 3e-4, 1e-3), seeds=5,
            dim=256, layers=6, heads=8, hidden=1024,
        ),
    ),
}  # fmt: skip


def preset(name: str) -> tuple[Suite, ...]:
    """The suites of a preset: "quick", "smoke", "paper" or "full".

    Raises:
        InputError: an unknown name.

    >>> [suite.name for suite in preset("paper")]
    ['table 5', 'source suite']
    """
    if name not in PRESETS:
        raise InputError(unknown("preset", name, tuple(PRESETS)))
    return PRESETS[name]


def preset_suites(
    name: str, *, tasks: tuple[str, ...] = (), encodings: tuple[str, ...] = (), **settings: Any
) -> tuple[Suite, ...]:
    """The suites of a preset with some of their settings replaced, None for no replacement.

    Each task goes to the suites that contain it, else to the first suite of its kind, numbers or
    tokens, in the preset or in smoke. Suites without a task are left out.

    >>> suite, = preset_suites("paper", tasks=("parity",), length=4, steps=None)
    >>> suite.name, suite.tasks, suite.lengths, suite.steps
    ('source suite', ('parity',), (4, 8, 16, 32), 600)
    """
    changes = {field: value for field, value in settings.items() if value is not None}
    changes |= {"encodings": encodings} if encodings else {}
    suites = preset(name)
    if not tasks:
        return tuple(dataclasses.replace(suite, **changes) for suite in suites)
    shares: dict[Suite, list[str]] = {suite: [] for suite in (*suites, *PRESETS["smoke"])}
    for task in tasks:
        if task not in SEQUENCE_TASKS:
            raise InputError(unknown("task", task, SEQUENCE_TASKS))
        kind = sequence_task(task).kind
        alike = [suite for suite in shares if sequence_task(suite.tasks[0]).kind == kind]
        for suite in [suite for suite in suites if task in suite.tasks] or alike[:1]:
            shares[suite].append(task)
    return tuple(
        dataclasses.replace(suite, tasks=tuple(share), **changes)
        for suite, share in shares.items()
        if share
    )

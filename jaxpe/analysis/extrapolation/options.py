"""Options of a comparison beyond the training length."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

from jaxpe._core.errors import InputError, unknown
from jaxpe._core.options import LARGEST_SIZE, check_range, check_seed
from jaxpe.analysis.extrapolation.encodings import entry_of
from jaxpe.data import SEQUENCE_TASKS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtrapolationOptions:
    """Train on short inputs, test on longer ones, and rank encodings under equal budgets.

    The defaults take about three minutes on two cores.

    Attributes:
        tasks: tasks to compare: copy, reverse, sort, addition, parity, summation, composition or
            scan, of tokens; running_sum or running_sum_causal, of numbers.
        encodings: encodings to compare, of those that `jaxpe encodings` lists;
            my_module:my_encoding is one of your own, which is judged against the others.
        length: length T; training inputs have any length up to it.
        factors: multiples of T at which models are tested, 1 and larger ones.
        seeds: number of models of each task and encoding.
        steps: number of updates of each model.
        batch: rows of an update.
        rates: peak learning rates; each encoding gets its best one, chosen on a separate seed.
        tests: number of test rows at each length; above 100 a multiple of 100.
        dim: width of the models.
        layers: number of layers.
        heads: attention heads of a layer.
        hidden: width of the feed-forward layers.
        norm: normalisation; none as in Li (2025).
        seed: random seed of all draws.
    """

    tasks: tuple[str, ...] = ("sort",)
    encodings: tuple[str, ...] = ("none", "alibi", "rope", "sinusoidal")
    length: int = 6
    factors: tuple[int, ...] = (1, 2, 4)
    seeds: int = 5
    steps: int = 300
    batch: int = 32
    rates: tuple[float, ...] = (3e-3, 1e-2)
    tests: int = 200
    dim: int = 32
    layers: int = 2
    heads: int = 4
    hidden: int = 64
    norm: Literal["layer", "none"] = "layer"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("length", "seeds", "batch", "tests", "dim", "layers", "heads", "hidden"):
            check_range(name, getattr(self, name), least=1, most=LARGEST_SIZE)
        # The first step of the warm-up has the rate 0.
        check_range("steps", self.steps, least=2, most=LARGEST_SIZE)
        check_range("layers", self.layers, most=10_000)  # each adds to the compiled program
        check_range("factors", self.factors[-1] if self.factors else 1, most=LARGEST_SIZE)
        check_seed("seed", self.seed)
        for task in self.tasks:
            if task not in SEQUENCE_TASKS:
                raise InputError(unknown("task", task, SEQUENCE_TASKS))
        for name in self.encodings:
            entry_of(name)  # raises where there is none
        for refused, message in self._faults():
            if refused:
                raise InputError(message)

    def _faults(self) -> Iterator[tuple[bool, str]]:
        """Conditions that options must not meet, with their error messages."""
        for kind, names in (("tasks", self.tasks), ("encodings", self.encodings)):
            listed = ", ".join(names) or "none"
            yield len(set(names)) < max(1, len(names)), f"`{kind}` are {listed}: pass each one once"
        split = f"`dim={self.dim}` does not split into {self.heads} heads of even width"
        yield self.dim % (2 * self.heads) != 0, split
        odd = self.tests > 100 and self.tests % 100 != 0
        yield odd, f"`tests={self.tests}`: pass 100 or less, or a multiple of 100"
        ascending = self.factors[:1] == (1,) and list(self.factors) == sorted(set(self.factors))
        yield not ascending, f"`factors` are {self.factors}: pass 1 and then larger ones, in order"
        positive = bool(self.rates) and all(0 < rate < math.inf for rate in self.rates)
        yield not positive, f"`rates` are {self.rates}: pass positive ones"

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tested lengths.

        >>> ExtrapolationOptions(length=4).lengths
        (4, 8, 16)
        """
        return tuple(factor * self.length for factor in self.factors)

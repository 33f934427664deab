"""Options of a comparison beyond the training length."""

import dataclasses
from collections.abc import Iterator
from typing import Literal

from jaxpe._core.errors import InputError, unknown
from jaxpe._core.options import LARGEST_SEED, check_ranges, option


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
    length: int = option(6, least=1)
    factors: tuple[int, ...] = option((1, 2, 4), least=1)
    seeds: int = option(5, least=1)
    steps: int = option(300, least=2)  # the first step of the warm-up has the rate 0
    batch: int = option(32, least=1)
    rates: tuple[float, ...] = option((3e-3, 1e-2), above=0)
    tests: int = option(200, least=1)
    dim: int = option(32, least=1)
    layers: int = option(2, least=1, most=10_000)  # each adds to the compiled program
    heads: int = option(4, least=1)
    hidden: int = option(64, least=1)
    norm: Literal["layer", "none"] = "layer"
    seed: int = option(0, least=0, most=LARGEST_SEED)

    def __post_init__(self) -> None:
        from jaxpe.analysis.extrapolation.encodings import entry_of  # late: a help needs no JAX
        from jaxpe.data.tasks.sequences import SEQUENCE_TASKS

        check_ranges(self)
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
        yield not self.rates, "`rates` are none: pass a positive one"

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tested lengths.

        >>> ExtrapolationOptions(length=4).lengths
        (4, 8, 16)
        """
        return tuple(factor * self.length for factor in self.factors)

"""Diagnosis: the hypothesis about an implementation that predicts what it returned."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.conformance.arrays import to_numpy
from jaxpe.conformance.result import Check, Conformance, Fault

Convert = Callable[[np.ndarray], Any]

# Largest rounding error of an output of order 1, by floating-point type.
ROUNDING = {"bfloat16": 0.05, "float16": 0.01, "float32": 3e-5, "float64": 3e-5}


class Trial(NamedTuple):
    """One call of an implementation, and what the reference returns.

    Attributes:
        check: name of the check.
        inputs: arguments of the reference.
        wanted: output of the reference.
        got: output of the implementation, of the same shape; NaN without one.
        tolerance: largest error of a right implementation, broadcast to `wanted`.
        counted: entries that are compared, broadcast to `wanted`.
        problem: reason why there is no output.
        measure: property of outputs that is compared, such as the norm of heads.
        probe: small part of the trial, which most hypotheses fail already; or empty.
        path: way of the implementation, such as its cache; empty for the one that is checked first.
    """

    check: str
    inputs: Any
    wanted: np.ndarray
    got: np.ndarray
    tolerance: np.ndarray
    counted: np.ndarray = np.array(True)
    problem: str = ""
    measure: Callable[[np.ndarray], np.ndarray] = np.asarray
    probe: "tuple[Trial, ...]" = ()
    path: str = ""

    def error(self, output: np.ndarray) -> np.ndarray:
        """Error of `got` against an output, 0 where not counted; infinite for NaN."""
        error = np.abs(self.measure(self.got) - self.measure(output))
        return np.where(self.counted, np.where(np.isnan(error), np.inf, error), 0.0)

    def excess(self, output: np.ndarray) -> np.ndarray:
        """Error against an output, relative to the tolerance."""
        return self.error(output) / self.tolerance

    @property
    def failed(self) -> bool:
        """Whether the implementation differs from the reference."""
        return bool(self.problem) or bool((self.excess(self.wanted) > 1).any())

    @property
    def first(self) -> int:
        """First token that differs from the reference."""
        return int(np.argmax((self.excess(self.wanted) > 1).any(axis=(0, 2, 3))))

    def late(self) -> "Trial":
        """Trial of the tokens from the first that differs on."""
        after = np.arange(self.measure(self.wanted).shape[1])[:, None, None] >= self.first
        return self._replace(counted=self.counted & after, probe=())

    def nan(self) -> np.ndarray:
        """Entries that are NaN, though there is an output."""
        return self.counted & np.isnan(self.measure(self.got)) & (not self.problem)

    def numbers(self) -> "Trial":
        """Trial of the entries that are numbers."""
        if not self.nan().any():
            return self
        return self._replace(counted=self.counted & ~self.nan(), probe=())

    def example(self) -> str:
        """First place where the outputs differ, in the order of positions."""
        excess = np.moveaxis(self.excess(self.wanted), 1, 0)
        column, row, head, entry = np.argwhere(excess > 1)[0]
        start = 4 * (entry // 4)
        wanted, got = (
            np.array2string(self.measure(x)[row, column, head, start : start + 4], precision=4)
            for x in (self.wanted, self.got)
        )
        position = self.inputs.positions[row, column]
        place = (
            f"row {row}, token {column} (position {position}), head {head}, entries from {start}"
        )
        return f"{self.check}, {place}\nwanted {wanted}\ngot    {got}"


class Hypothesis(NamedTuple):
    """Fault that an implementation may have.

    Attributes:
        name: name of the fault.
        text: sentence for it.
        predict: output of the reference with the fault, from the inputs of a trial.
        within: name and sentence instead, by the check that alone shows the fault.
    """

    name: str
    text: str
    predict: Callable[[Any], np.ndarray]
    within: Mapping[str, tuple[str, str]] = {}


def call_implementation(
    function: Callable[..., Any], arguments: Sequence[Any], shape: tuple[int, ...],
    dtype: str | None, **keywords: Any,
) -> tuple[np.ndarray, float, str]:  # fmt: skip
    """Output of an implementation, its rounding error, and the reason for no output.

    Args:
        function: implementation.
        arguments: arguments.
        shape: shape that the output must have.
        dtype: floating-point type of the computation; None for the type of the output.
        **keywords: keyword arguments.
    """
    nothing = np.full(shape, np.nan)
    try:
        output = function(*arguments, **keywords)
        kind = str(getattr(output, "dtype", "float32")).removeprefix("torch.")
        got = to_numpy(output)
    except Exception as error:  # whatever an implementation raises is a finding about it
        return nothing, 1.0, f"it raises {type(error).__name__}: {error}"
    if got.shape != shape:
        return nothing, 1.0, f"it returns the shape {got.shape}; wanted {shape}"
    return got.astype(np.float64), ROUNDING.get(dtype or kind, ROUNDING["float32"]), ""


def asked(only: Collection[str] | None, names: Collection[str]) -> set[str]:
    """Names of the checks that run, all by default; `InputError` for a name of no check."""
    only = only or ()
    if unknown := sorted({*only} - {*names}):
        raise InputError(f"no check {', '.join(unknown)}; the checks are {', '.join(names)}")
    return {*(only or names)}


def diagnose(trials: Sequence[Trial], hypotheses: Iterable[Hypothesis]) -> list[Fault]:
    """Faults that predict what failed trials returned; what none predicts is "unexplained".

    Of the hypotheses that predict the smallest failed trial, the one that predicts the most failed
    trials is taken; among equals, the one that also predicts the most passed ones; then the first.
    If none does, one that predicts all tokens from the first wrong one on.
    """
    failed = [trial for trial in trials if trial.failed]
    faults = []
    for kind in dict.fromkeys(one.problem.split(":")[0] for one in failed if one.problem):
        same = [one for one in failed if one.problem.split(":")[0] == kind]
        checks = ", ".join(dict.fromkeys(one.check for one in same))
        faults.append(Fault("no output", same[0].problem, same[0].check, f"in {checks}"))
    with_numbers = [one.numbers() for one in failed if not one.problem]
    left = sorted((one for one in with_numbers if one.failed), key=lambda one: one.wanted.size)
    passed, unexplained = [trial for trial in trials if not trial.failed], list[Trial]()
    known, rest = list[Hypothesis](), iter(hypotheses)

    def every() -> Iterator[Hypothesis]:
        """All hypotheses; those that no fault needed are not even made."""
        yield from known
        for one in rest:
            known.append(one)
            yield one

    while left:
        best, indices, everywhere = _best(left, passed, every())
        begins = ""
        if best is None and left[0].first > 0:
            best, indices, _ = _best([one.late() for one in left], (), every())
            begins, everywhere = f", from token {left[0].first} on", True
        if best is None:
            unexplained.append(left.pop(0))
            continue
        found = [left[k] for k in indices]
        faults.append(_fault(best, found, begins, everywhere=everywhere))
        left = [trial for k, trial in enumerate(left) if k not in indices]
    faults += [_nan(one) for one in failed if one.nan().any()][:1]
    return [*faults, *([_unexplained(unexplained)] if unexplained else [])]


def _best(
    left: Sequence[Trial], passed: Sequence[Trial], hypotheses: Iterable[Hypothesis]
) -> tuple[Hypothesis | None, list[int], bool]:
    """Best hypothesis, the failed trials that it predicts, and whether it predicts all others."""
    best, found, most = None, list[int](), (0, 0)
    for one in hypotheses:
        if not _predicts(one, left[0]):
            continue
        partly = {trial.check for trial in left if not _predicts(one, trial)}
        also = [k for k, trial in enumerate(left) if trial.check not in partly]
        count = len(also), sum(_predicts(one, trial) for trial in passed)
        if also and count > most:
            best, found, most = one, also, count
        if count == (len(left), len(passed)):
            break  # no other hypothesis can be better
    return best, found, most[1] == len(passed)


def _predicts(hypothesis: Hypothesis, trial: Trial) -> bool:
    """Whether a hypothesis predicts an output, a wrong one three times as well as the reference.

    In low precision many hypotheses are within the tolerance of an output just outside it. A number
    between two values of a type may be rounded to either: one of a thousand may differ, and a
    quarter in long texts, whose phases in float32 are less exact than that type.
    """
    for one in (*trial.probe, trial):
        right = one.excess(one.wanted)
        most = right.max(initial=0.0)
        limit = min(1.0, most / 3) if most > 1 else 1.0
        with np.errstate(all="ignore"):
            wrong = one.excess(hypothesis.predict(one.inputs)) > limit
        share = 4 if one.wanted.shape[1] > 1000 else 1000
        few = (right > 1).sum() // share if hypothesis.name == "precision" else 0
        if wrong.sum() > few:
            return False
    return True


def _fault(
    hypothesis: Hypothesis, found: Sequence[Trial], begins: str, *, everywhere: bool
) -> Fault:
    checks = list(dict.fromkeys(trial.check for trial in found))
    alone = hypothesis.within.get(checks[0]) if len(checks) == 1 else None
    name, text = alone or (hypothesis.name, hypothesis.text)
    if not everywhere and alone is None:
        text = f"{text} (only in: {', '.join(checks)})"
    smallest = min(found, key=lambda trial: trial.wanted.size)
    return Fault(name, text + begins, checks[0], smallest.example())


def _nan(trial: Trial) -> Fault:
    """Fault of outputs that are no numbers."""
    nan = trial.nan()
    text = f"{nan.sum():,} of {nan.size:,} outputs are NaN: {_where(nan)}"
    return Fault("NaN", text, trial.check, trial.example())


def _unexplained(trials: Sequence[Trial]) -> Fault:
    """Fault without a name: the rows, heads and tokens that differ."""
    trial = min(trials, key=lambda trial: trial.wanted.size)
    wrong = trial.excess(trial.wanted) > 1
    first = trial.inputs.positions[np.nonzero(wrong)[:2]].min()
    largest = float(trial.error(trial.wanted).max())
    where = f"{_where(wrong)} differ, from position {first} on"
    text = f"no known fault explains the output: {where}, by up to {largest:.3g}"
    if largest < 2 * ROUNDING["bfloat16"]:
        text += '; if it computes in bfloat16, pass dtype="bfloat16"'
    return Fault("unexplained", text, trial.check, trial.example())


def _where(entries: np.ndarray) -> str:
    """Rows, tokens, heads and entries, of a mask `[batch, n, heads, head_dim]`."""
    parts = []
    for axis, name in enumerate(("rows", "tokens", "heads", "entries")):
        which = np.flatnonzero(entries.any(axis=tuple({0, 1, 2, 3} - {axis})))
        size = entries.shape[axis]
        listed = f"{which[0]} to {which[-1]}" if len(which) > 1 else f"{which[0]}"
        parts.append(f"{name} {listed} of {size}" if len(which) < size else f"all {name}")
    return ", ".join(parts)


def conformance(
    subject: str, trials: Sequence[Trial],
    hypotheses: Callable[[Sequence[Trial]], Iterable[Hypothesis]], skipped: Mapping[str, str],
) -> Conformance:  # fmt: skip
    """Result of all trials.

    Args:
        subject: what was checked.
        trials: trials, in the order of their checks.
        hypotheses: known faults, from the trials of one path; asked for only if one fails.
        skipped: reason for each check without a trial.
    """
    checks, faults = list[Check](), list[Fault]()
    for name in dict.fromkeys(one.path or one.check for one in trials):
        own = [one for one in trials if name == (one.path or one.check)]
        problem = next((one.problem for one in own if one.problem), "")
        error = max(float(one.numbers().error(one.wanted).max(initial=0.0)) for one in own)
        allowed = max(float(np.max(one.tolerance)) for one in own)
        nan = sum(int(one.nan().sum()) for one in own)
        text = problem or f"largest error {error:.2g}, allowed {allowed:.2g}"
        text += f"; {nan:,} outputs are NaN" * (nan > 0)
        checks.append(Check(name, "failed" if any(one.failed for one in own) else "passed", text))
    for path in dict.fromkeys(one.path for one in trials):
        own = [one for one in trials if path == one.path]
        found = diagnose(own, hypotheses(own)) if any(one.failed for one in own) else ()
        known = {(fault.name, fault.text) for fault in faults}
        new = [fault for fault in found if (fault.name, fault.text) not in known]
        prefix = f"{path}: " if path else ""
        faults += [one._replace(check=path or one.check, text=prefix + one.text) for one in new]
    checks += [Check(name, "not checked", reason) for name, reason in skipped.items()]
    faults.sort(key=lambda fault: fault.name == "unexplained")
    return Conformance(subject, tuple(checks), tuple(faults), "Faults of positions")

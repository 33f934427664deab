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

    def differs(self, output: np.ndarray) -> bool:
        """Whether the implementation differs from an output."""
        return float(self.excess(output).max(initial=0.0)) > 1

    @property
    def failed(self) -> bool:
        """Whether the implementation differs from the reference."""
        return bool(self.problem) or self.differs(self.wanted)

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
    """
    failed = [trial for trial in trials if trial.failed]
    faults = []
    for kind in dict.fromkeys(one.problem.split(":")[0] for one in failed if one.problem):
        same = [one for one in failed if one.problem.split(":")[0] == kind]
        checks = ", ".join(dict.fromkeys(one.check for one in same))
        faults.append(Fault("no output", same[0].problem, same[0].check, f"in {checks}"))
    left = sorted((one for one in failed if not one.problem), key=lambda one: one.wanted.size)
    passed, unexplained = [trial for trial in trials if not trial.failed], list[Trial]()
    known, rest = list[Hypothesis](), iter(hypotheses)

    def every() -> Iterator[Hypothesis]:
        """All hypotheses; those that no fault needed are not even made."""
        yield from known
        for one in rest:
            known.append(one)
            yield one

    while left:
        best, found, most = None, list[Trial](), (0, 0)
        for one in every():
            if not _predicted(one, left[:1]):
                continue
            also = _whole_checks(_predicted(one, left), left)
            count = len(also), len(_predicted(one, passed))
            if count > most:
                best, found, most = one, also, count
            if count == (len(left), len(passed)):
                break  # no other hypothesis can be better
        if best is None:
            unexplained.append(left.pop(0))
            continue
        faults.append(_fault(best, found, everywhere=most[1] == len(passed)))
        left = [trial for trial in left if all(trial is not one for one in found)]
    return [*faults, *([_unexplained(unexplained)] if unexplained else [])]


def _whole_checks(found: list[Trial], left: Sequence[Trial]) -> list[Trial]:
    """Trials of the checks that are explained in all their failed trials."""
    ids = {id(one) for one in found}
    partly = {one.check for one in left if id(one) not in ids}
    return [one for one in found if one.check not in partly]


def _predicted(hypothesis: Hypothesis, trials: Sequence[Trial]) -> list[Trial]:
    """Trials whose output a hypothesis predicts, failed ones three times as well as the reference.

    In low precision many hypotheses are within the tolerance of an output just outside it.
    """

    def predicts(one: Trial) -> bool:
        most = one.excess(one.wanted).max(initial=0.0)
        error = one.excess(hypothesis.predict(one.inputs)).max(initial=0.0)
        return bool(error <= (min(1.0, most / 3) if most > 1 else 1.0))

    with np.errstate(all="ignore"):
        return [one for one in trials if all(map(predicts, (*one.probe, one)))]


def _fault(hypothesis: Hypothesis, found: Sequence[Trial], *, everywhere: bool) -> Fault:
    checks = list(dict.fromkeys(trial.check for trial in found))
    alone = hypothesis.within.get(checks[0]) if len(checks) == 1 else None
    name, text = alone or (hypothesis.name, hypothesis.text)
    if not everywhere and alone is None:
        text = f"{text} (only in: {', '.join(checks)})"
    smallest = min(found, key=lambda trial: trial.wanted.size)
    return Fault(name, text, checks[0], smallest.example())


def _unexplained(trials: Sequence[Trial]) -> Fault:
    """Fault without a name: the rows, heads and tokens that differ."""
    trial = min(trials, key=lambda trial: trial.wanted.size)
    wrong = trial.excess(trial.wanted) > 1
    parts = []
    for axis, name in ((0, "rows"), (1, "tokens"), (2, "heads"), (3, "entries")):
        which = np.flatnonzero(wrong.any(axis=tuple({0, 1, 2, 3} - {axis})))
        size = wrong.shape[axis]
        listed = f"{which[0]} to {which[-1]}" if len(which) > 1 else f"{which[0]}"
        parts.append(f"{name} {listed} of {size}" if len(which) < size else f"all {name}")
    first = trial.inputs.positions[np.nonzero(wrong)[:2]].min()
    largest = float(trial.error(trial.wanted).max())
    where = f"{', '.join(parts)} differ, from position {first} on"
    text = f"no known fault explains the output: {where}, by up to {largest:.3g}"
    if largest < 2 * ROUNDING["bfloat16"]:
        text += '; if it computes in bfloat16, pass dtype="bfloat16"'
    return Fault("unexplained", text, trial.check, trial.example())


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
        error = max(float(one.error(one.wanted).max(initial=0.0)) for one in own)
        allowed = max(float(np.max(one.tolerance)) for one in own)
        text = problem or f"largest error {error:.2g}, allowed {allowed:.2g}"
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
    return Conformance(subject, tuple(checks), tuple(faults), "docs/checks/index.md")

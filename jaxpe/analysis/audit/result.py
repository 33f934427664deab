"""Results of an audit of a model and a corpus."""

from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpe._core.results import LargeArray, Seconds
from jaxpe.theory import STATEMENTS, verdict
from jaxpe.theory.audit import Audit, Comparison
from jaxpe.theory.statements import Statement, Status

# A statement is refuted where its hypotheses hold and a conclusion fails, is not decided where a
# hypothesis is unchecked instead, and claims nothing of a model where a hypothesis fails.
Outcome = Literal["holds", "refuted", "not decided", "does not apply"]


class AuditFacts(NamedTuple):
    """Sizes and settings of an audit.

    Attributes:
        positions: n of the matrices.
        positions_with_text: number of positions with text, to which the statements apply.
        width: width of the position vectors.
        examples: number of documents to average over.
        loss: family of the loss, "classification" or "masked".
        temperature: τ of its softmax.
        trained: whether the weights differ from their initial values.
        seed: random seed of the draws.
    """

    positions: int
    positions_with_text: int
    width: int
    examples: int
    loss: str
    temperature: float
    trained: bool
    seed: int


class Sides(NamedTuple):
    """A `Comparison` of two numbers.

    Attributes:
        lhs: left side.
        rhs: right side.
        slack: right side less the left.
        holds: whether the comparison holds.
    """

    lhs: float
    rhs: float
    slack: float
    holds: bool


class AuditedStatement(NamedTuple):
    """The evaluation of a published statement on a model and a corpus.

    Attributes:
        name: name of the statement.
        status: verdict on it in general, of `Statement`.
        verdict: verdict of the evaluation, in words.
        hypotheses, conclusions, instead, measured: fields of `Audit`, as plain values.
        unchecked: names of hypotheses that numbers cannot decide.
    """

    name: str
    status: Status
    verdict: str
    hypotheses: dict[str, Sides]
    conclusions: dict[str, Sides]
    instead: dict[str, Sides]
    measured: dict[str, bool | int | float | np.ndarray]
    unchecked: tuple[str, ...] = ()

    @property
    def published(self) -> Statement:
        """The statement, with its words."""
        return next(entry for entry in STATEMENTS if entry.name == self.name)

    @property
    def outcome(self) -> Outcome:
        """Verdict of the evaluation on this model and corpus."""
        if not all(sides.holds for sides in self.hypotheses.values()):
            return "does not apply"
        if all(sides.holds for sides in self.conclusions.values()):
            return "holds"
        return "not decided" if self.unchecked else "refuted"


class KernelPairs(NamedTuple):
    """The kernel of positions and the bound of Lemma 18, pair by pair.

    Attributes:
        distances: Hellinger distances d_ij of m pairs i < j of positions with text.
        alpha: α_ij.
        increasing: the best increasing function of d_ij.
        decreasing: the best decreasing function of d_ij.
        explained: shares of the variance of α_ij that they explain.
        by_chance: 95 % quantiles of these shares with positions in random order.
        eigenvalues: eigenvalues of α, descending.
        reached: ‖p*_i − p*_j‖ at the fixed point.
        bound: the right side of (13).
    """

    distances: LargeArray
    alpha: LargeArray
    increasing: LargeArray
    decreasing: LargeArray
    explained: tuple[float, float]
    by_chance: tuple[float, float]
    eigenvalues: np.ndarray
    reached: LargeArray
    bound: LargeArray


class Training(NamedTuple):
    """Positions trained with the model and with its linearisation.

    Attributes:
        losses: losses of the model, before each step and after the last.
        linear_losses: losses of the linearisation.
        output_distance: ‖f − f_lin‖ / ‖f_0‖.
    """

    losses: np.ndarray
    linear_losses: np.ndarray
    output_distance: np.ndarray


class AuditResult(NamedTuple):
    """Result of an audit.

    Attributes:
        source: the corpus, in words.
        model: description of the audited model.
        facts: sizes and settings.
        statements: results in the order of the paper.
        kernel: kernel of positions, pair by pair.
        training: training of positions, real and linearised.
        inputs: sources as they were given, for commands to paste; empty for tokens of a script.
        seconds: duration by stage.
    """

    source: str
    model: str
    facts: AuditFacts
    statements: list[AuditedStatement]
    kernel: KernelPairs
    training: Training
    inputs: tuple[str, ...] = ()
    seconds: Seconds = {}  # noqa: RUF012  # nobody adds to it


def audited(statement: Statement, audit: Audit) -> AuditedStatement:
    """A statement and its evaluation as plain values."""
    return AuditedStatement(
        statement.name,
        statement.status,
        verdict=verdict(audit),
        hypotheses=_sides(audit.hypotheses),
        conclusions=_sides(audit.conclusions),
        instead=_sides(audit.instead),
        measured={name: _plain(value) for name, value in audit.measured.items()},
        unchecked=tuple(audit.unchecked),
    )


def _sides(comparisons: dict[str, Comparison]) -> dict[str, Sides]:
    return {name: Sides(*map(_plain, sides)) for name, sides in comparisons.items()}


def _plain(value: object) -> Any:
    array = np.asarray(value)
    return array if array.ndim else array.item()

"""What `jaxpe audit` found, as named tuples."""

from typing import Any, NamedTuple

import numpy as np

from jaxpe.theory import Audit, Statement


class Audited(NamedTuple):
    """A statement and its evaluation."""

    statement: Statement
    audit: Audit


class KernelPairs(NamedTuple):
    """The kernel of positions, and the bound that Lemma 18 draws from it, pair by pair.

    Attributes:
        distances: Hellinger distances d_ij of m pairs i < j of positions with text.
        alpha: α_ij.
        increasing: the best increasing function of d_ij.
        decreasing: the best decreasing one.
        explained: shares of the variance of α_ij that they explain.
        by_chance: 95 % quantiles of these shares with positions in random order.
        eigenvalues: of α, descending.
        reached: ‖p*_i − p*_j‖ at the fixed point.
        bound: the right side of (13).
    """

    distances: np.ndarray
    alpha: np.ndarray
    increasing: np.ndarray
    decreasing: np.ndarray
    explained: tuple[float, float]
    by_chance: tuple[float, float]
    eigenvalues: np.ndarray
    reached: np.ndarray
    bound: np.ndarray


class Training(NamedTuple):
    """Positions trained with the model and with its linearisation.

    Attributes:
        losses: of the model, before each step and after the last.
        linear_losses: of the linearised one.
        output_distance: ‖f − f_lin‖ / ‖f_0‖.
    """

    losses: np.ndarray
    linear_losses: np.ndarray
    output_distance: np.ndarray


class AuditReport(NamedTuple):
    """All that `jaxpe audit` found.

    Attributes:
        source: the corpus.
        model: what was audited, in words.
        facts: sizes and settings, by name.
        audited: statements in the order of the paper.
        kernel: for the figures.
        training: likewise.
        seconds: by stage.
    """

    source: str
    model: str
    facts: dict[str, Any]
    audited: list[Audited]
    kernel: KernelPairs
    training: Training
    seconds: dict[str, float]

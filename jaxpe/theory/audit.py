"""Audits of published statements: both sides of every inequality, as numbers."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike, checked_jit


class Comparison(NamedTuple):
    """The two sides of an inequality in a hypothesis or conclusion.

    Attributes:
        lhs: left side, claimed to be at most rhs.
        rhs: right side.
        slack: rhs − lhs; 0 between equal infinities.
        holds: lhs ≤ rhs, up to the tolerance of the comparison; false where either is NaN.
    """

    lhs: Float[Array, "*batch"]
    rhs: Float[Array, "*batch"]
    slack: Float[Array, "*batch"]
    holds: Bool[Array, "*batch"]


class Audit(NamedTuple):
    """A statement evaluated on numbers; a pytree, so it passes through `jit` and `vmap`.

    Attributes:
        hypotheses: hypotheses by name.
        conclusions: conclusions by name; for statements about all pairs or triples, the worst one.
        measured: further measured numbers.
        instead: true comparisons that replace a conclusion, or a step of its proof.
        unchecked: names of hypotheses that numbers cannot decide, each with None. A statement with
            one is never refuted.
    """

    hypotheses: dict[str, Comparison]
    conclusions: dict[str, Comparison]
    measured: dict[str, Array]
    instead: dict[str, Comparison] = {}  # noqa: RUF012  # never modified
    unchecked: dict[str, None] = {}  # noqa: RUF012  # no leaves, so it passes through `jit`

    def add_hypotheses(
        self, hypotheses: dict[str, Comparison], *, unchecked: tuple[str, ...] = ()
    ) -> "Audit":
        """The audit with further hypotheses before its own, and with unchecked ones."""
        return self._replace(
            hypotheses=hypotheses | self.hypotheses,
            unchecked=self.unchecked | dict.fromkeys(unchecked),
        )


def within(matrix: ArrayLike, present: ArrayLike) -> np.ndarray:
    """Rows and columns of the positions with text.

    >>> within(np.arange(9.0).reshape(3, 3), np.array([True, False, True])).tolist()
    [[0.0, 2.0], [6.0, 8.0]]
    """
    rows = np.flatnonzero(present)
    return np.asarray(matrix)[rows[:, None], rows]


@checked_jit()
def less_equal(
    lhs: Float[ArrayLike, "..."] | float,
    rhs: Float[ArrayLike, "..."] | float,
    *,
    tolerance: Float[ArrayLike, ""] | float = 0.0,
    noise: Float[ArrayLike, ""] | float = 0.0,
) -> Comparison:
    """Comparison lhs ≤ rhs of two numbers, up to `tolerance` times the larger of |lhs| and |rhs|.

    `noise` is the rounding error of their difference where they should be equal.

    >>> less_equal(1.0, 3.0).slack.item(), less_equal(1.0, 3.0).holds.item()
    (2.0, True)
    """
    lhs, rhs = (jnp.asarray(x, jnp.result_type(float)) for x in (lhs, rhs))
    size = jnp.maximum(jnp.abs(lhs), jnp.abs(rhs))
    allowed = jnp.where(jnp.isinf(size), 0.0, tolerance * size)
    close = lhs - rhs <= allowed + jnp.asarray(noise, allowed.dtype)
    slack = jnp.where(lhs == rhs, 0.0, rhs - lhs)
    return Comparison(lhs, rhs, slack, (lhs <= rhs) | close)


@checked_jit()
def less(
    lhs: Float[ArrayLike, ""] | float,
    rhs: Float[ArrayLike, ""] | float,
    *,
    noise: Float[ArrayLike, ""] | float = 0.0,
) -> Comparison:
    """Comparison lhs < rhs, where rhs must be above lhs by more than `noise`.

    >>> less(1.0, 1.0).holds.item(), less(0.0, 1.0, noise=0.5).holds.item()
    (False, True)
    """
    lhs, rhs = (jnp.asarray(x, jnp.result_type(float)) for x in (lhs, rhs))
    slack = jnp.where(lhs == rhs, 0.0, rhs - lhs)  # of two infinities, too
    return Comparison(lhs, rhs, slack, lhs + jnp.asarray(noise, lhs.dtype) < rhs)


def finite(x: Float[Array, ""]) -> Comparison:
    """Comparison of a number with the largest one of its type.

    >>> finite(jnp.array(jnp.inf)).holds.item()
    False
    """
    return less_equal(x, float(jnp.finfo(x.dtype).max))


def boolean(condition: Bool[ArrayLike, "*batch"] | bool) -> Comparison:
    """Comparison for a condition without numbers: 0 ≤ 0 where it is true, 1 ≤ 0 where it is not.

    >>> boolean(True).holds.item(), boolean(False).slack.item()
    (True, -1.0)
    """
    return less_equal(jnp.where(jnp.asarray(condition), 0.0, 1.0), 0.0)


@checked_jit()
def all_less_equal(
    lhs: Float[ArrayLike, "*cases"],
    rhs: Float[ArrayLike, "..."] | float,
    *,
    where: Bool[ArrayLike, "*cases"] | None = None,
    tolerance: Float[ArrayLike, ""] | float = 0.0,
    noise: Float[ArrayLike, ""] | float = 0.0,
) -> Comparison:
    """Comparison lhs ≤ rhs of many pairs: the pair with the least slack; 0 ≤ 0 without pairs.

    `rhs` broadcasts to `lhs`.

    >>> worst = all_less_equal(jnp.array([1.0, 5.0]), jnp.array([3.0, 4.0]))
    >>> worst.lhs.item(), worst.rhs.item(), worst.holds.item()
    (5.0, 4.0, False)
    """
    if jnp.size(lhs) == 0:
        return boolean(True)
    rhs = jnp.broadcast_to(jnp.asarray(rhs), jnp.shape(lhs))
    pairs = less_equal(lhs, rhs, tolerance=tolerance, noise=noise)
    counts = jnp.ones(pairs.lhs.shape, bool) if where is None else jnp.asarray(where)
    worst = jnp.argmin(jnp.where(counts, jnp.nan_to_num(pairs.slack, nan=-jnp.inf), jnp.inf))
    lhs, rhs, slack = (jnp.where(jnp.any(counts), jnp.ravel(x)[worst], 0.0) for x in pairs[:3])
    return Comparison(lhs, rhs, slack, jnp.all(pairs.holds | ~counts))


def verdict(audit: Audit) -> str:
    """Verdict of an audit in words (not under `jit`).

    The statement is refuted if its hypotheses hold and a conclusion fails; with an unchecked
    hypothesis it is not decided. Comparisons of `instead` are named only if they fail.

    Args:
        audit: evaluated statement; over a batch, a comparison holds if it holds everywhere.

    >>> no = less_equal(2.0, 1.0)
    >>> verdict(Audit({"A1": no}, {"(13)": no}, {}))
    'does not apply: A1 fails; (13) fails'
    """
    failed, false, beside = (
        [name for name, comparison in part.items() if not np.all(comparison.holds)]
        for part in (audit.hypotheses, audit.conclusions, audit.instead)
    )
    outcome = _fail(false) if false else "holds"
    if failed:
        outcome = f"does not apply: {_fail(failed)}; {outcome}"
    elif audit.unchecked:
        prefix = "not decided: " if false else ""
        outcome = f"{prefix}{outcome}; not checked: {', '.join(audit.unchecked)}"
    elif false:
        outcome = f"refuted: {outcome}"
    return f"{outcome}; of what holds instead {_fail(beside)}" if beside else outcome


def _fail(names: list[str]) -> str:
    return f"{', '.join(names)} fail{'s' if len(names) == 1 else ''}"

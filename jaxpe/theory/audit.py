"""Result of an audit of a published statement: both sides of every inequality, as numbers."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike

Status = Literal[
    "holds", "holds with sharper constant", "false as stated", "hypothesis unsatisfiable"
]


class Statement(NamedTuple):
    """A published statement and what became of it.

    Attributes:
        name: name in its paper, such as "Lemma 16".
        title: subject, in a few words.
        source: paper and place.
        claim: the statement.
        status: whether it holds, in general, whatever a model or corpus says.
        finding: why, and what is true instead.
    """

    name: str
    title: str
    source: str
    claim: str
    status: Status
    finding: str


class Comparison(NamedTuple):
    """Two numbers that a hypothesis or conclusion puts in order.

    Attributes:
        lhs: left side, to be at most rhs.
        rhs: right side.
        slack: rhs − lhs; 0 between equal infinities.
        holds: lhs ≤ rhs, up to the tolerance it was made with; false where either is NaN.
    """

    lhs: Float[Array, "*batch"]
    rhs: Float[Array, "*batch"]
    slack: Float[Array, "*batch"]
    holds: Bool[Array, "*batch"]


class Audit(NamedTuple):
    """A statement evaluated on numbers; a pytree, so it passes through `jit` and `vmap`.

    Attributes:
        hypotheses: hypotheses by name.
        conclusions: conclusions by name; of a statement for all pairs or triples, the worst one.
        measured: further measured numbers.
        instead: comparisons that hold in place of the conclusions, or of a step to them.
    """

    hypotheses: dict[str, Comparison]
    conclusions: dict[str, Comparison]
    measured: dict[str, Array]
    instead: dict[str, Comparison] = {}  # noqa: RUF012  # nobody adds to it


def less_equal(
    lhs: Float[ArrayLike, "*batch"] | float,
    rhs: Float[ArrayLike, "*batch"] | float,
    *,
    tolerance: float = 0.0,
    noise: Float[ArrayLike, ""] | float = 0.0,
) -> Comparison:
    """Compare two numbers: lhs ≤ rhs, up to `tolerance` times the larger of |lhs| and |rhs|.

    And up to `noise`, what rounding makes of both where they should be equal.

    >>> less_equal(1.0, 3.0).slack.item(), less_equal(1.0, 3.0).holds.item()
    (2.0, True)
    """
    lhs, rhs = (jnp.asarray(x, jnp.result_type(float)) for x in (lhs, rhs))
    size = jnp.maximum(jnp.abs(lhs), jnp.abs(rhs))
    allowed = jnp.where(jnp.isinf(size), 0.0, tolerance * size)
    close = lhs - rhs <= allowed + jnp.asarray(noise, allowed.dtype)
    slack = jnp.where(lhs == rhs, 0.0, rhs - lhs)
    return Comparison(lhs, rhs, slack, (lhs <= rhs) | close)


def boolean(condition: Bool[ArrayLike, "*batch"] | bool) -> Comparison:
    """A hypothesis without numbers: 0 ≤ 0 where it is met, 1 ≤ 0 where it is not.

    >>> boolean(True).holds.item(), boolean(False).slack.item()
    (True, -1.0)
    """
    return less_equal(jnp.where(jnp.asarray(condition), 0.0, 1.0), 0.0)


def all_less_equal(
    lhs: Float[ArrayLike, "*cases"],
    rhs: Float[ArrayLike, "..."] | float,
    *,
    where: Bool[ArrayLike, "*cases"] | None = None,
    tolerance: float = 0.0,
    noise: Float[ArrayLike, ""] | float = 0.0,
) -> Comparison:
    """Compare many pairs of numbers by the one with the least slack; 0 ≤ 0 where there is none.

    `rhs` broadcasts to `lhs`.

    >>> worst = all_less_equal(jnp.array([1.0, 5.0]), jnp.array([3.0, 4.0]))
    >>> worst.lhs.item(), worst.rhs.item(), worst.holds.item()
    (5.0, 4.0, False)
    """
    if jnp.size(lhs) == 0:
        return boolean(True)
    rhs = jnp.broadcast_to(jnp.asarray(rhs), jnp.shape(lhs))
    each = less_equal(lhs, rhs, tolerance=tolerance, noise=noise)
    looked_at = jnp.ones(each.lhs.shape, bool) if where is None else jnp.asarray(where)
    worst = jnp.argmin(jnp.where(looked_at, jnp.nan_to_num(each.slack, nan=-jnp.inf), jnp.inf))
    lhs, rhs, slack = (jnp.where(jnp.any(looked_at), jnp.ravel(x)[worst], 0.0) for x in each[:3])
    return Comparison(lhs, rhs, slack, jnp.all(each.holds | ~looked_at))


def verdict(audit: Audit) -> str:
    """Verdict of an audit on this model and corpus, in words (not under `jit`).

    The statement is refuted where its hypotheses hold and a conclusion fails. What holds instead is
    named only where it does not.

    >>> no = less_equal(2.0, 1.0)
    >>> verdict(Audit({"A1": no}, {"(13)": no}, {}))
    'not claimed: A1 fails; (13) fails'
    """
    failed, false, beside = (
        [name for name, comparison in part.items() if not np.all(comparison.holds)]
        for part in (audit.hypotheses, audit.conclusions, audit.instead)
    )
    outcome = _fail(false) if false else "holds"
    if failed:
        outcome = f"not claimed: {_fail(failed)}; {outcome}"
    elif false:
        outcome = f"refuted: {outcome}"
    return f"{outcome}; of what holds instead {_fail(beside)}" if beside else outcome


def _fail(names: list[str]) -> str:
    return f"{', '.join(names)} fail{'s' if len(names) == 1 else ''}"

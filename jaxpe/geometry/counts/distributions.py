"""Counts to positional distributions μ_i(v) = Pr[token at position i is v]."""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._core import options
from jaxpe._core.arrays import ArrayLike, Scalar, checked_jit, is_traced
from jaxpe._core.errors import InputError
from jaxpe.geometry.checks import (
    as_present,
    check_distributions,
    checked_counts,
    host_floats,
    nan_unless_distributions,
    sized,
)
from jaxpe.geometry.counts.position_counts import PositionCounts

# What a position without tokens becomes.
EmptyPolicy = options.EmptyPolicy


class PositionalDistributions(NamedTuple):
    """Distributions over the vocabulary, one for each position, with a mask of positions present.

    Rows are on the simplex. They are zeros at absent positions and at empty ones under the policy
    "zero". A position that is not present takes no part in any mean, centring, rank, stress or rate
    downstream.

    Attributes:
        probabilities: float `[..., n, vocab]`, a distribution for each position.
        present: bool `[..., n]`, positions that take part.
    """

    probabilities: Float[Array, "*batch n vocab"]
    present: Bool[Array, "*batch n"]


def _checked_cells(counts: Any, empty: Any) -> Any:
    """The cells of counts, folds summed; raises for wrong numbers, and for a refused position."""
    if isinstance(counts, PositionCounts):
        cells = counts.merged().tokens
    else:
        cells = sized(counts, "counts", "n vocab")
    if empty == "error":
        if is_traced(cells):
            raise ValueError("empty='error' needs concrete counts: use another policy under jit")
        empties = np.flatnonzero(~(np.asarray(cells) > 0).any(axis=-1))
        if empties.size:
            raise InputError(
                f"{len(empties)} of {len(cells)} positions hold no token (the first is "
                f"{empties[0]}): shorten the length, or pass empty='drop', 'uniform' or 'zero'"
            )
    return checked_counts(cells)


_smoothing = partial(checked_counts, name="smoothing")


@checked_jit("empty", counts=(_checked_cells, "empty"), smoothing=_smoothing)
def positional_distributions(
    counts: PositionCounts | Real[ArrayLike, "n vocab"],
    *,
    empty: EmptyPolicy = "drop",
    smoothing: Scalar = 0.0,
) -> PositionalDistributions:
    """Relative frequencies (c + α) / (N + α·vocab) of the tokens at each position.

    Args:
        counts: `PositionCounts` (folds are summed) or an array `[n, vocab]`.
        empty: treatment of a position without a single token. "drop": absent, by a mask, so that
            shapes stay static. "uniform": the uniform distribution, as in Cirrincione (2026); it
            counts as structure. "zero": a row of zeros that takes part. "error": refused; not
            available under `jit`, where counts cannot be looked at.
        smoothing: α ≥ 0 added to every cell (Lidstone).

    >>> mu = positional_distributions(np.array([[3, 1], [0, 0]]))
    >>> mu.probabilities.tolist(), mu.present.tolist()
    ([[0.75, 0.25], [0.0, 0.0]], [True, False])
    """
    if empty not in ("drop", "uniform", "zero", "error"):
        raise ValueError(f"empty is {empty!r}: pass 'drop', 'uniform', 'zero' or 'error'")
    table: Any = counts  # the check has made an array of them
    occupied = jnp.any(table > 0, axis=-1)
    cells = table.astype(float) + smoothing
    total = jnp.sum(cells, axis=-1, keepdims=True)
    frequencies = cells / jnp.where(total > 0, total, 1.0)
    fill = 1.0 / cells.shape[-1] if empty == "uniform" else 0.0
    probabilities = jnp.where(occupied[..., None], frequencies, fill)
    present = occupied if empty == "drop" else jnp.ones_like(occupied)
    return PositionalDistributions(probabilities, present)


def checked_distributions(mu: Any) -> Any:
    """Distributions; raises for rows that are none, and for another result."""
    check_distributions(mu)
    if hasattr(mu, "_fields") and not isinstance(mu, PositionalDistributions):
        raise InputError(
            f"mu is {type(mu).__name__}: pass positional_distributions(counts), or an array of "
            "distributions [n, vocab]"
        )
    return host_floats(mu)


def as_distributions(mu: PositionalDistributions | ArrayLike) -> PositionalDistributions:
    """Positional distributions from an array `[n, vocab]`, in which every position is present.

    Rows of present positions must be at least 0 and sum to 1 within 1 %. Rows of zeros pass, as the
    policy "zero" makes them. Other rows raise an error, and become NaN inside `jit`.
    """
    mu = checked_distributions(mu)
    probabilities, present = mu if isinstance(mu, PositionalDistributions) else (mu, None)
    probabilities = sized(probabilities, "mu", "n vocab")
    present = as_present(present, len(probabilities))
    if is_traced(probabilities, present):
        probabilities = nan_unless_distributions(probabilities)
    return PositionalDistributions(probabilities, present)

"""Conjecture 5: does a monotone corpus have monotone position vectors?"""

import statistics
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.stats import binom
from jaxtyping import Bool, Float, Int, Real

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry.counts.position_counts import PositionCounts
from jaxpe.geometry.distances.matrices import Distances, as_distances, euclidean_distances, floating
from jaxpe.geometry.distances.monotonicity import monotonicity_violation_rate
from jaxpe.theory.audit import Audit, Comparison, all_less_equal


class MonotonicityTest(NamedTuple):
    """Shares of triples (i, j, k), |i − j| < |i − k|, all distinct and present.

    Attributes:
        violated: mask of triples whose estimated d²_ij exceeds d²_ik.
        significant: mask of triples that exceed it by more than the sampling error; if all triples
            were ties, a share `level` would by chance, and fewer if the truth is monotone.
        upheld: mask of triples where d²_ik exceeds d²_ij by more than its sampling error.
        present: bool `[n]`, positions with a token in every fold.
    """

    violated: Float[Array, ""]
    significant: Float[Array, ""]
    upheld: Float[Array, ""]
    present: Bool[Array, " n"]


@partial(jax.jit, static_argnames="tolerance")
def conjecture_5(
    D: Distances | Real[ArrayLike, "n n"],
    P: Distances | Real[ArrayLike, "n d"],
    *,
    tolerance: float = 1e-5,
) -> Audit:
    """Evaluate hypothesis and conclusion of Conjecture 5 on distances D and positions P.

    Cirrincione (2026), Section 4; false as stated (`outer_words_loss`). Hypotheses on D and
    conclusions on P have two forms, each reported by its worst triple. "strict" compares δ_ij with
    δ_ik for |i − j| < |i − k|, all distinct. "ties" compares the larger with the smaller of δ_ij
    and δ_ik for |i − j| = |i − k|, where the statement requires equality.

    Ties are a strong requirement: d(i, i + m) = d(i, i − m) by the tie around i, and this equals
    d(i − m, i) by symmetry. So d(i, i + m) is constant along i, i + m, i + 2m, ...: it depends on m
    and on i modulo m alone. With m = 1 all neighbours are equally far. It need not depend on |i −
    j| alone: d(0, 2) and d(1, 3) may differ.

    Measured: `violation_rate_D`, `violation_rate_P` (shares of strict triples), `asymmetry_D`,
    `asymmetry_P` (the largest |δ_ij − δ_ik| over ties, as a share of the largest distance).
    Sampling noise violates the hypothesis for any truth: see `monotonicity_test`.

    Args:
        D: Hellinger distances.
        P: positions `[n, d]`, or their `Distances`.
        tolerance: share of the largest distance that counts as equal.

    >>> audit = conjecture_5(np.zeros((4, 4)), np.array([[1.0], [0.0], [1.0], [0.0]]))
    >>> all(h.holds for h in audit.hypotheses.values())
    True
    >>> worst = audit.conclusions["strict"]
    >>> worst.lhs.item(), worst.rhs.item(), worst.holds.item()
    (1.0, 0.0, False)
    """
    D = as_distances(D)
    P = P if isinstance(P, Distances) else euclidean_distances(P, present=D.present)
    P = as_distances(Distances(P.values, P.present & D.present))
    hypotheses, rate_D, asymmetry_D = _both_forms(D, tolerance)
    conclusions, rate_P, asymmetry_P = _both_forms(P, tolerance)
    rates = {"violation_rate_D": rate_D, "violation_rate_P": rate_P}
    asymmetries = {"asymmetry_D": asymmetry_D, "asymmetry_P": asymmetry_P}
    return Audit(hypotheses, conclusions, rates | asymmetries)


def outer_words_loss(P: Float[ArrayLike, "3 2"], *, ridge: float = 1e-3) -> Float[Array, ""]:
    """Mean squared error of attention that learns 0.5 x_0 + 0.1 x_1 + 0.4 x_2, plus a ridge.

    The counterexample. Words x_j = ±1 at three positions are independent, with √μ_j at the angles
    0.70, 0.75 and 0.80, so d_H grows with the offset and neighbours are equally far. Eq. (1) has
    E(±1) = (±1, 0), M the identity and one pooling query (0, √2); values are first coordinates: ŷ =
    Σ_j softmax_j(p_j2) (x_j + p_j1). Mean embeddings (cos 2θ_j, 0) differ (H1), as do their images
    under M (H3). At the minimiser each swap of two tokens raises the error (H2). The ridge makes
    the loss coercive.

    >>> P = np.array([[0.0, 0.587], [0.0, -0.950], [0.0, 0.363]])    # the minimiser, rounded
    >>> outer_words_loss(P).round(4).item()
    0.0014
    """
    P = floating(P)
    mean = jnp.cos(2.0 * jnp.array([0.70, 0.75, 0.80], P.dtype))
    weights = jax.nn.softmax(P[:, 1])
    error = weights - jnp.array([0.5, 0.1, 0.4], P.dtype)
    bias = jnp.sum(error * mean + weights * P[:, 0])
    return jnp.sum((1.0 - mean**2) * error**2) + bias**2 + ridge * jnp.sum(P**2)


def monotonicity_test(
    counts: PositionCounts,
    nulls: Sequence[PositionCounts] = (),
    *,
    level: float = 0.05,
    least: float = 0.25,
) -> MonotonicityTest:
    """Monotonicity test: triples that violate the strict Conjecture 5 beyond sampling error.

    For a triple, h_fg = K_fg(i, j) − K_fg(i, k), where K_fg(i, j) = ⟨√μ̂_i − √μ̂_j in fold f, the
    same in fold g⟩. Folds are independent, so noise cancels in the mean of K_fg, and in the mean U
    of h over the pairs of F folds. The variance of U is estimated without bias as U² less the mean
    of h_ab h_cd over four different folds, because each such product has mean (E U)². It is at
    least 2 mean(h²)/(F(F − 1)), its value without signal. A violation is significant if U > z
    √variance, one-sided. (A jackknife over folds has twice that variance where there is no signal.)
    Of ties, 3 to 6 % were significant at the level 5 % on synthetic corpora.

    E√μ̂ depends on the number of documents at a position, which would make thin positions look far
    from all others. So every position is thinned to the size of the smallest one; roots are
    replaced by their expectation over the thinning, without random draws. As in
    `split_half_geometry`, contrasts in rare words are understated, at the size of one fold. Late
    positions come from long documents, which have other words; this is no noise. Pass nulls to
    remove it: K_fg then has the mean K_fg of the rotated documents subtracted.

    Args:
        counts: counts in at least four folds; 16 are a good number. Documents that are not
            independent must share a fold (`count_tokens(..., groups=...)`; copies always do).
        nulls: counts of rotated documents (`rotate_within_documents`) in the same folds.
        level: one-sided level of each triple's test, in (0, 0.5).
        least: positions with fewer tokens than this share of the fullest position take no part, in
            (0, 1].

    >>> rng = np.random.default_rng(0)
    >>> counts = count_tokens(rng.integers(0, 50, (4000, 8)), vocab_size=50, folds=16)
    >>> test = monotonicity_test(counts)                     # no signal
    >>> bool(test.violated > 0.4), bool(test.significant < 0.1)
    (True, True)
    """
    if counts.tokens.ndim != 3 or counts.tokens.shape[0] < 4:
        raise ValueError(
            f"counts have shape {counts.tokens.shape}: the test needs at least four folds; "
            "pass count_tokens(..., folds=16)"
        )
    if not (0.0 < level < 0.5 and 0.0 < least <= 1.0):
        raise ValueError(f"level is {level} and least {least}: pass values in (0, 0.5) and (0, 1]")
    size = counts.merged().per_position.astype(float)
    present = jnp.all(counts.per_position > 0, axis=0) & (size >= least * jnp.max(size))
    smallest = jnp.min(jnp.where(present, size, jnp.inf))
    rates = jnp.where(present, smallest / size, 1.0)
    K = _cross_fold_squares(counts.tokens, rates)
    for null in nulls:
        K = K - _cross_fold_squares(null.tokens, rates) / len(nulls)
    z = statistics.NormalDist().inv_cdf(1.0 - level)
    sums = jnp.sum(_row_events(K, present, z, folds=counts.tokens.shape[0]), axis=0)
    violated, significant, upheld = sums[:3] / jnp.maximum(sums[3], 1.0)
    return MonotonicityTest(violated, significant, upheld, present)


@partial(jax.jit, static_argnames="folds")
def _row_events(
    K: Float[Array, "pairs n n"], present: Bool[Array, " n"], z: float | Array, *, folds: int
) -> Float[Array, "n 4"]:
    """Counts of triples around i: violated, significantly violated, upheld, and all."""
    n = len(present)

    def events_around(i: Array) -> Array:
        U, error = _row_triples(K[:, i, :], folds)
        offset = jnp.abs(jnp.arange(n) - i)
        others = present & (offset > 0) & present[i]
        compared = others[:, None] & others[None, :] & (offset[:, None] < offset[None, :])
        events = (U > 0, z * error < U, z * error < -U, jnp.ones_like(compared))
        return jnp.stack([jnp.sum(compared & event) for event in events]).astype(U.dtype)

    return jax.lax.map(events_around, jnp.arange(n))


def _both_forms(D: Distances, tolerance: float) -> tuple[dict[str, Comparison], Array, Array]:
    """The worst strict triple and the worst tie, the violation rate and the asymmetry."""
    delta, present = D
    n = delta.shape[0]
    i, offset = jnp.arange(n)[None, :, None], jnp.arange(1, n)[None, None, :]
    j = jnp.concatenate([i - offset, i + offset])
    inside = jnp.clip(j, 0, n - 1)
    exists = (j == inside) & present[i] & present[inside]
    either, both = jnp.any(exists, axis=0), jnp.all(exists, axis=0)
    largest = jnp.max(delta[i, inside], axis=0, where=exists, initial=0.0)
    smallest = jnp.min(delta[i, inside], axis=0, where=exists, initial=jnp.inf)
    # Around i, the largest distance at any nearer offset against the smallest at this one.
    reached = jax.lax.cummax(largest, axis=1)[:, :-1]
    some_nearer = jax.lax.cummax(either.astype(jnp.int32), axis=1)[:, :-1] > 0
    rate = monotonicity_violation_rate(D, tolerance=tolerance)
    strict = all_less_equal(reached, smallest[:, 1:], where=some_nearer & either[:, 1:])
    ties = all_less_equal(largest, smallest, where=both)
    size = jnp.max(delta)
    asymmetry = -ties.slack.astype(delta.dtype) / jnp.where(size == 0, 1.0, size)
    forms = {
        "strict": strict._replace(holds=rate == 0),
        "ties": ties._replace(holds=asymmetry <= tolerance),
    }
    return forms, rate, asymmetry


@jax.jit
def _cross_fold_squares(
    cells: Int[Array, "folds n vocab"], rates: Float[Array, " n"]
) -> Float[Array, "pairs n n"]:
    """K_fg(i, j), symmetrised, for every pair of folds f < g, with tokens kept at these rates."""
    table = _root_table(rates)

    def roots(fold_counts: Array) -> Array:
        size = rates * jnp.sum(fold_counts, axis=1).astype(rates.dtype)
        root = jnp.sqrt(jnp.maximum(size, 1.0))
        return _expected_roots(fold_counts, rates, table) / root[:, None]

    every = jax.lax.map(roots, cells)
    # As in `split_half_geometry`: differences from any fixed vector keep the digits.
    every = every - jnp.mean(every, axis=(0, 1), keepdims=True)

    def squares(pair: Array) -> Array:
        product = dot(every[pair[0]], every[pair[1]].T)
        diagonal = jnp.diagonal(product)
        return diagonal[:, None] + diagonal[None, :] - product - product.T

    return jax.lax.map(squares, jnp.stack(jnp.triu_indices(cells.shape[0], 1), axis=1))


def _expected_roots(
    cells: Int[Array, "n vocab"], rates: Float[Array, " n"], table: Float[Array, "n small"]
) -> Float[Array, "n vocab"]:
    """E√X for X ~ Binomial(c, q): from the table for small c, by moments of X for large c.

    √λ E(1 + (X − λ)/λ)^½ to fourth order, λ = c q; the next term is of order λ⁻³.
    """
    small = table.shape[1]
    low = jnp.take_along_axis(table, jnp.minimum(cells, small - 1), axis=1)
    q = rates[:, None]
    mean = jnp.maximum(cells, small).astype(rates.dtype) * q
    lost = 1.0 - q
    second, third, fourth = lost / 8.0, lost * (1.0 - 2.0 * q) / 16.0, 15.0 * lost**2 / 128.0
    high = jnp.sqrt(mean) * (1.0 - second / mean + (third - fourth) / mean**2)
    return jnp.where(cells < small, low, high)


def _root_table(rates: Float[Array, " n"], *, small: int = 64) -> Float[Array, "n small"]:
    """E√X for X ~ Binomial(c, q) and c < `small`, at each position's rate q."""
    x = jnp.arange(small).astype(rates.dtype)
    c = x[:, None]

    def expected_root(q: Array) -> Array:
        # 0 where x > c, where pmf computes exp(−∞).
        return jnp.sum(jnp.sqrt(x)[None, :] * binom.pmf(x[None, :], c, q), axis=1)

    return jax.lax.map(expected_root, rates)


def _row_triples(K: Float[Array, "pairs n"], folds: int) -> tuple[Array, Array]:
    """U and its standard error for all (j, k), as inner products over pairs of folds.

    With sums over ordered pairs, T = Σ h, A = Σ h², R_f = Σ_g h_fg: of the products h_ab h_cd in
    T², 2A have the same two folds and 4(Σ R_f² − A) share one; the rest have four.
    """
    incidence = np.zeros((folds, len(K)))
    incidence[np.triu_indices(folds, 1), np.arange(len(K))] = 1.0
    R = dot(jnp.asarray(incidence, K.dtype), K)
    A, R2 = 2.0 * _squared_differences(K), _squared_differences(R)
    total = 2.0 * jnp.sum(K, axis=0)
    T = total[:, None] - total[None, :]
    ordered = folds * (folds - 1)
    U = T / ordered
    four = (T**2 - 4.0 * R2 + 2.0 * A) / (ordered * (folds - 2) * (folds - 3))
    floor = 2.0 * A / ordered**2
    return U, jnp.sqrt(jnp.maximum(U**2 - four, floor))


def _squared_differences(X: Float[Array, "m n"]) -> Float[Array, "n n"]:
    """Σ_m (X_mj − X_mk)² for all (j, k)."""
    product = dot(X.T, X)
    diagonal = jnp.diagonal(product)  # summed as the product is, so that j = k gives 0 exactly
    return jnp.maximum(diagonal[:, None] + diagonal[None, :] - 2.0 * product, 0.0)

"""Mutual information between positions: of tokens, with its bias, and of hidden states."""

from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma
from jaxtyping import Bool, Float, Int, Integer, Num

from jaxpe._core.arrays import ArrayLike, checked_jit, dot, is_traced
from jaxpe._core.errors import InputError
from jaxpe.geometry.checks import check_size, checked_counts, floating, sized
from jaxpe.geometry.counts.position_counts import check_labels, content_labels, ids_and_mask
from jaxpe.geometry.distances.matrices import gram_from_squared
from jaxpe.geometry.mds.classical import ClassicalMDS, classical_mds_from_gram
from jaxpe.geometry.noise.two_samples import holm_adjusted

EntropyEstimator = Literal["plug-in", "miller-madow", "grassberger"]
_EQUAL = 0.1  # expected pairs of documents that are equal by chance, in the whole corpus


class PositionalInformation(NamedTuple):
    """Mutual information of the tokens at two positions, over the documents that reach both.

    Attributes:
        values: estimates in nats, the diagonal 0; NaN where fewer than two documents reach both.
        null: mean of the estimates with the second token from another document, which leaves no
            information: the bias for independent positions. 0 without permutations, NaN where the
            value is.
        null_deviation: standard deviation of these estimates; 0 below two permutations, NaN where
            the value is.
        documents: number of documents that reach both positions, one of each group.
        p_values: (b + 1)/(m + 1), for m permutations of which b have as much information; 1 on the
            diagonal, NaN without permutations or a value.
    """

    values: Float[Array, "n n"]
    null: Float[Array, "n n"]
    null_deviation: Float[Array, "n n"]
    documents: Int[Array, "n n"]
    p_values: Float[Array, "n n"]

    @property
    def p_adjusted(self) -> Float[Array, "n n"]:
        """p-values with Holm's correction for the number of pairs of positions (`holm_adjusted`).

        With fewer than 20 permutations for each pair of positions, none can be below 0.05.
        """
        rows, columns = np.triu_indices(len(self.values), 1)
        adjusted = holm_adjusted(self.p_values[rows, columns])
        upper = jnp.ones_like(self.p_values).at[rows, columns].set(adjusted)
        return upper.at[columns, rows].set(adjusted)

    @property
    def corrected(self) -> Float[Array, "n n"]:
        """Estimates less the null: the excess over independent positions.

        Dependent tokens fill fewer cells than independent ones, so the null subtracts too much
        where text is sparse. `p_adjusted` tells whether there is any information.
        """
        return self.values - self.null


@checked_jit("estimator", counts=checked_counts)
def entropy(
    counts: Num[ArrayLike, "... k"], *, estimator: EntropyEstimator = "grassberger"
) -> Float[Array, "..."]:
    """Entropy in nats, estimated from counts over k outcomes.

    With N = Σ n and K outcomes seen:

    - plug-in: log N − (1/N) Σ n log n, too small by about (K − 1)/2N;
    - miller-madow: plug-in + (K − 1)/2N (Miller 1955);
    - grassberger: log N − (1/N) Σ n G(n), G(n) = ψ(n) + (−1)ⁿ(ψ((n + 1)/2) − ψ(n/2))/2
      (Grassberger 2003), of less bias where most outcomes are seen a few times.

    It is 0 without counts. Derivatives are taken at fixed K, and are 0 for outcomes not seen.

    Args:
        counts: finite counts, at least 0; others raise an error, and give NaN inside `jit`.
            Fractions are valid for plug-in and miller-madow, and give NaN for grassberger.
        estimator: one of the three.

    Raises:
        ValueError: an unknown estimator.

    >>> [round(entropy(np.array([2, 1, 1]), estimator=e).item(), 4)
    ...  for e in ("plug-in", "miller-madow", "grassberger")]
    [1.0397, 1.2897, 1.6567]
    """
    if estimator not in get_args(EntropyEstimator):
        raise ValueError(f"estimator is {estimator!r}: pass one of {get_args(EntropyEstimator)}")
    n = floating(counts, "counts")
    if not n.ndim:
        raise InputError("counts are a single number: pass the counts of all outcomes, [..., k]")
    counted = jnp.all((n >= 0) & (n < jnp.inf), axis=-1)
    if estimator == "grassberger":
        counted &= jnp.all(n == jnp.round(n), axis=-1)
    occurs = n > 0
    n = jnp.where(occurs, n, 1.0)  # avoids log and ψ of 0
    total = jnp.sum(jnp.where(occurs, n, 0.0), axis=-1)
    some = jnp.where(total > 0, total, 1.0)
    if estimator == "grassberger":
        sign = 1.0 - 2.0 * (jnp.round(n) % 2)
        term = n * (digamma(n) + sign * (digamma((n + 1) / 2) - digamma(n / 2)) / 2)
    else:
        term = n * jnp.log(n)
    estimate = jnp.log(some) - jnp.sum(jnp.where(occurs, term, 0.0), axis=-1) / some
    if estimator == "miller-madow":
        estimate += (jnp.sum(occurs, axis=-1, dtype=n.dtype) - 1) / (2 * some)
    estimate = jnp.where(total > 0, estimate, 0.0)
    return jnp.where(counted, estimate, jnp.nan)


@checked_jit("estimator", joint=checked_counts)
def mutual_information(
    joint: Num[ArrayLike, "... a b"], *, estimator: EntropyEstimator = "grassberger"
) -> Float[Array, "..."]:
    """I(X; Y) = H(X) + H(Y) − H(X, Y) in nats of a table of joint counts.

    Plug-in estimates of independent variables are about (a − 1)(b − 1)/2N too large. The other
    estimators remove most of this bias and may be negative.

    Args:
        joint: number of times that the outcomes met; plug-in takes probabilities as well.
        estimator: estimator of the three entropies, see `entropy`.

    Raises:
        ValueError: a table without two axes, or an argument that `entropy` refuses.

    >>> table = np.array([[10.0, 0.0], [0.0, 10.0]])
    >>> round(mutual_information(table, estimator="plug-in").item(), 4)  # log 2
    0.6931
    """
    joint = floating(joint)
    if joint.ndim < 2:
        raise ValueError(f"a table of joint counts has two axes, not shape {joint.shape}")
    parts = (jnp.sum(joint, -1), jnp.sum(joint, -2), joint.reshape(*joint.shape[:-2], -1))
    x, y, both = (entropy(part, estimator=estimator) for part in parts)
    return x + y - both


def positional_information(
    ids: Integer[ArrayLike, "documents n"],
    *,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    estimator: EntropyEstimator = "grassberger",
    permutations: int = 0,
    key: Array | None = None,
    groups: Integer[ArrayLike, " documents"] | None = None,
) -> PositionalInformation:
    """Mutual information of the tokens at every two positions, over documents.

    I_ij = I(X_i; X_j), X_i the token at position i of a document drawn at random. A vocabulary has
    far more pairs than there are documents, so every estimator has a bias. The null shows the bias
    for independent positions. Dependent positions have less of it, so `corrected`, which subtracts
    the null, underestimates their information. Copies of a document would look like information, so
    only the document with the most tokens of each group takes part. Time grows with n² · documents:
    cut the documents to the positions you need.

    Args:
        ids: tokens, at least two documents.
        mask: positions with text; all when None.
        estimator: estimator of entropies, see `entropy`.
        permutations: permutations of documents for the null; each takes as long as the estimate.
        key: PRNG key of the permutations; required where there are any.
        groups: labels of documents that are not independent, such as from
            `jaxpe.data.dependent_groups`. By default equal documents are a group, unless they are
            so short that some are equal by chance. Inside `jit` every document is its own group.

    Raises:
        ValueError: ids that are no matrix of integers, groups that are traced or not one integer
            for each document, a mask of another shape, an unknown estimator, or permutations
            without a key.

    >>> ids = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]] * 8)
    >>> np.asarray(positional_information(ids, estimator="plug-in").values).round(2).tolist()
    [[0.0, 0.69, 0.0], [0.69, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    ids, mask = ids_and_mask(ids, mask)
    if len(ids) < 2 or not ids.shape[1]:
        raise ValueError(f"ids have shape {ids.shape}: pass two documents and one position or more")
    check_size("permutations", permutations, least=0, each=4)
    if permutations and key is None:
        raise ValueError(f"permutations is {permutations}: pass a key that draws them")
    key = jax.random.key(0) if key is None else key
    if groups is not None or not is_traced(ids, mask):
        if is_traced(ids, mask, groups):
            raise ValueError("groups are traced, and shapes depend on them: pass them outside jit")
        ids, mask = np.asarray(ids), np.asarray(mask)
        rows = longest_documents(ids, mask, groups)
        ids, mask = ids[rows], mask[rows]
    return _pairwise_information(ids, mask, key, estimator=estimator, permutations=permutations)


def longest_documents(ids: np.ndarray, mask: np.ndarray, groups: ArrayLike | None) -> np.ndarray:
    """Indices of the document with the most tokens of each group."""
    if groups is None:
        with jax.ensure_compile_time_eval():  # numbers also where only the key is traced
            groups = np.asarray(content_labels(ids, mask)).astype(np.int64)
        groups = np.where(chance_copies(ids, mask), -1 - np.arange(len(ids)), groups)
    check_labels("groups", groups, len(ids))
    groups = np.asarray(groups)
    order = np.argsort(-mask.sum(axis=1), kind="stable")
    _, first = np.unique(groups[order], return_index=True)
    return np.sort(order[first])


def chance_copies(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Documents so short, or of so few words, that some two would be equal without being copies."""
    log_equal = np.zeros(ids.shape[1])
    for position, (column, counted) in enumerate(zip(ids.T, mask.T, strict=True)):
        _, counts = np.unique(column[counted], return_counts=True)
        log_equal[position] = np.log(max(np.sum((counts / max(counted.sum(), 1)) ** 2), 1e-30))
    return 2 * np.log(len(ids)) + mask @ log_equal > np.log(_EQUAL)


@partial(jax.jit, static_argnames=("estimator", "permutations"))
def _pairwise_information(
    ids: Array, mask: Array, key: Array, *, estimator: EntropyEstimator, permutations: int
) -> PositionalInformation:
    """Information of all pairs i < j, one by one, with a null of permuted documents."""
    n = ids.shape[1]
    rows, columns = np.triu_indices(n, 1)

    def pair_information(pair: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        i, j, number = pair
        both = mask[:, i] & mask[:, j]
        value = _column_information(ids[:, i], ids[:, j], both, estimator)
        if not permutations:
            zero = jnp.zeros_like(value)
            return value, zero, zero, jnp.sum(both), zero + jnp.nan
        first = jnp.argsort(~both, stable=True)  # documents that reach both, then the others

        def shuffled(key: Array) -> Array:
            bits = jax.random.bits(key, both.shape, jnp.uint32)
            order = jnp.lexsort((bits, ~both))  # the same documents first, in random order
            return _column_information(ids[first, i], ids[order, j], both[first], estimator)

        keys = jax.random.split(jax.random.fold_in(key, number), permutations)
        null = jax.lax.map(shuffled, keys)
        deviation = jnp.std(null, ddof=1) if permutations > 1 else jnp.zeros_like(value)
        # Estimates of equal tables differ in their last digits.
        rounding = 100 * jnp.finfo(value.dtype).eps * jnp.maximum(jnp.abs(value), 1.0)
        as_large = jnp.sum(null >= value - rounding, dtype=value.dtype)
        p_value = jnp.where(jnp.isnan(value), jnp.nan, (1 + as_large) / (1 + permutations))
        return value, jnp.mean(null), deviation, jnp.sum(both), p_value

    values = jax.lax.map(pair_information, (rows, columns, np.arange(len(rows))))
    matrices = (jnp.zeros((n, n), x.dtype).at[rows, columns].set(x) for x in values)
    value, null, deviation, documents, p_values = (x + x.T for x in matrices)
    reached = jnp.diag(jnp.sum(mask, axis=0, dtype=documents.dtype))
    return PositionalInformation(
        value, null, deviation, documents + reached, p_values + jnp.eye(n, dtype=p_values.dtype)
    )


def _column_information(x: Array, y: Array, both: Array, estimator: EntropyEstimator) -> Array:
    """Mutual information of two columns of ids where `both` is true."""
    counts = (_run_lengths(columns, both) for columns in ((x,), (y,), (x, y)))
    entropy_x, entropy_y, joint_entropy = (entropy(c, estimator=estimator) for c in counts)
    return jnp.where(jnp.sum(both) > 1, entropy_x + entropy_y - joint_entropy, jnp.nan)


def _run_lengths(columns: tuple[Array, ...], chosen: Array) -> Array:
    """Number of occurrences of each different row of the columns, `[documents]`, then zeros."""
    absent, *ordered = jax.lax.sort((~chosen, *columns), num_keys=1 + len(columns))
    changed = [x[1:] != x[:-1] for x in (absent, *ordered)]
    number = jnp.cumsum(jnp.any(jnp.stack(changed), axis=0))
    number = jnp.concatenate([jnp.zeros(1, number.dtype), number])
    return jax.ops.segment_sum(
        (~absent).astype(jnp.int32), number, num_segments=len(absent), indices_are_sorted=True
    )


def mutual_information_encoding(
    information: Float[ArrayLike, "n n"], *, dim: int, present: Bool[ArrayLike, " n"] | None = None
) -> ClassicalMDS:
    """Position vectors whose inner products align best with mutual information between positions.

    J = H I H is the off-diagonal information less the means of rows and columns. The encoding is P
    = U √λ, from the largest positive eigenvalues of J. Among centred P `[n, dim]` whose Gram matrix
    has these eigenvalues, it maximises Σ_ij J_ij ⟨p_i, p_j⟩ (von Neumann's trace inequality). A
    pair of present positions without information (NaN) counts as 0. Li (2025), contribution 4,
    names the criterion without a definition; this is ours. For stationary text I depends on j − i
    alone and the vectors are near sines and cosines.

    Args:
        information: symmetric, such as `PositionalInformation.corrected`; its diagonal is not read.
        dim: width of the vectors; columns beyond the positive eigenvalues are 0.
        present: positions that take part; those with finite information when None.

    Returns:
        `coordinates` `[n, dim]`, and all eigenvalues of J; negative ones give no coordinate.

    >>> i = np.arange(8)
    >>> falling = np.exp(-np.abs(i[:, None] - i) / 2.0)
    >>> P = mutual_information_encoding(falling, dim=2).coordinates
    >>> P.shape, bool(P[0] @ P[1] > P[0] @ P[7])
    ((8, 2), True)
    """
    J = sized(information, "the information", "n n")
    informed = jnp.isfinite(J) & ~np.eye(len(J), dtype=bool)
    used = jnp.any(informed, axis=1) if present is None else jnp.asarray(present)
    J = jnp.where(informed & used[:, None] & used[None, :], J, 0.0)
    return classical_mds_from_gram(gram_from_squared(-2.0 * J, used), dim=dim, present=used)


@partial(jax.jit, static_argnames="corrected")
def gaussian_information(
    X: Float[ArrayLike, "samples a"], Y: Float[ArrayLike, "samples b"], *, corrected: bool = True
) -> Float[Array, ""]:
    """Mutual information in nats of two Gaussian vectors, −½ log |Σ|/(|Σ_X| |Σ_Y|).

    The bias of the plug-in estimate follows from the mean log-determinant of a Wishart matrix,
    Σ_k ψ((N − k)/2) over its dimensions, which is exact for Gaussians; `corrected` subtracts it.
    For other vectors the result is the information of Gaussians with their covariances. Samples
    must outnumber dimensions: cut hidden states to a few principal components first.

    Args:
        X: samples `[samples, a]`, of more samples than a + b + 1.
        Y: the same samples.
        corrected: whether the bias is subtracted; the estimate may then be negative.

    Constant entries are left out. Where one entry is a linear function of others, to the precision
    of the dtype, the estimate is inf or NaN.

    Raises:
        ValueError: different numbers of samples, or too few.

    >>> x = np.random.default_rng(0).normal(size=(4000, 1))
    >>> y = 0.6 * x + 0.8 * np.random.default_rng(1).normal(size=(4000, 1))
    >>> round(gaussian_information(x, y).item(), 2)  # −½ log(1 − 0.6²) = 0.223
    0.22
    """
    X, Y = sized(X, "X", "samples dimensions"), sized(Y, "Y", "samples dimensions")
    samples, a, b = X.shape[0], X.shape[1], Y.shape[1]
    if len(Y) != samples or not a or not b:
        raise ValueError(
            f"X has shape {X.shape} and Y {Y.shape}: pass the same samples, in 1 dimension or more"
        )
    if samples < a + b + 2:
        raise ValueError(
            f"{samples} samples are too few for {a} + {b} dimensions: pass at least {a + b + 2}, "
            "or fewer principal components"
        )
    # Correlations, so that the scale of an entry does not affect rounding.
    raw = jnp.concatenate([X, Y], axis=1)
    Z = raw - jnp.mean(raw, axis=0, keepdims=True)
    spread = jnp.mean(Z**2, axis=0, keepdims=True)
    rounding = (jnp.finfo(Z.dtype).eps * samples) ** 2 * jnp.max(raw**2, axis=0, keepdims=True)
    constant = spread <= rounding
    Z = jnp.where(constant, 0.0, Z / jnp.sqrt(jnp.where(constant, 1.0, spread)))
    R = dot(Z.T, Z) / samples
    R = R + jnp.diag(constant[0].astype(R.dtype))  # constant entries carry no information
    varying = jnp.cumsum(~constant[0])
    a, b = varying[a - 1], varying[-1] - varying[a - 1]
    cut = X.shape[1]
    parts = (R[:cut, :cut], R[cut:, cut:], R)
    x, y, both = (jnp.linalg.slogdet(part)[1] for part in parts)
    estimate = (x + y - both) / 2
    if not corrected:
        return estimate
    # Σ_k ψ((N − k)/2), k = 1 ... dim: mean log-determinant of a Wishart matrix, up to terms that
    # cancel.
    k = np.arange(1, R.shape[0] + 1)
    terms = digamma(jnp.asarray((samples - k) / 2, estimate.dtype))
    bias_x, bias_y, joint_bias = (jnp.sum(jnp.where(k <= d, terms, 0.0)) for d in (a, b, a + b))
    return estimate - (bias_x + bias_y - joint_bias) / 2

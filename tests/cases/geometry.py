"""Rows of `jaxpe.geometry` and `jaxpe.encodings`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import encodings, geometry
from jaxpe.encodings.attention_terms import attention_output
from jaxpe.encodings.families.bias import t5_buckets
from jaxpe.encodings.families.orthogonal import chebyshev_polynomials, legendre_polynomials
from jaxpe.geometry.counts.cohorts import cohort_of
from jaxpe.geometry.counts.position_counts import content_labels, fold_of_documents, regroup_folds
from jaxpe.geometry.distances.matrices import as_distances, distances_from_gram, gram_matrix
from jaxpe.geometry.distances.monotonicity import is_monotone
from jaxpe.geometry.distances.mutual_information import (
    entropy,
    gaussian_information,
    mutual_information,
    mutual_information_encoding,
)
from jaxpe.geometry.distances.nearness import PositionStatistics
from jaxpe.geometry.distances.pairs import sum_over_pairs
from jaxpe.geometry.distances.points import as_points, hellinger_points
from jaxpe.geometry.distances.stress import pair_weights
from jaxpe.geometry.distances.toeplitz import (
    circulant_projection,
    circulant_residual,
    toeplitz_projection,
)
from jaxpe.geometry.mds.classical import low_rank_factors
from jaxpe.geometry.mds.from_points import classical_mds_from_points
from jaxpe.geometry.mds.krylov import principal_eigenpairs
from jaxpe.geometry.noise.cross_validation import (
    PositionHalves,
    cross_validated_choice,
    disjoint_geometries,
    disjoint_position_geometries,
    half_sample_interval,
)
from jaxpe.geometry.noise.position import PositionGeometry
from jaxpe.geometry.noise.significant_rank import rank_above_null, weighted_gram
from jaxpe.geometry.noise.split_half import SplitHalfGeometry
from jaxpe.geometry.noise.two_samples import holm_adjusted, principal_angles
from tests.cases.base import Case, N, cubed, total

VOCAB = 7


def rotation_invariant(mds: Any) -> jax.Array:
    """What rotations of the coordinates leave alone, and the spectrum."""
    P = mds.coordinates
    return jnp.sum((P @ P.T) ** 3) + jnp.sum(mds.eigenvalues**2)


def product(factors: Any) -> jax.Array:
    return jnp.sum((factors.A @ factors.B.T) ** 3) + factors.relative_error


def _ids(rng):
    return (rng.integers(0, VOCAB, (24, N), dtype=np.int32),)


def _masked_ids(rng):
    return (*_ids(rng), rng.random((24, N)) < 0.8)


def _two_points(rng):
    return rng.normal(size=(N, 3)), rng.normal(size=(N, 3))


def _square(rng):
    return (rng.normal(size=(N, N)),)


def _weights(rng):
    half = rng.random((N, N))
    return (half + half.T,)


def _mu(rng):
    return (rng.dirichlet(np.full(VOCAB, 5.0), size=N),)


def _points(rng):
    return (rng.standard_normal((N, 3)),)


def _targets(rng):
    X = rng.standard_normal((N, N))
    return (np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1)),)


def _between_positions(rng):
    return (rng.uniform(0, 8, N),)


def _in_interval(rng):
    return (rng.uniform(-1, 1, N),)


def _gram(rng):
    X = rng.standard_normal((N, N))
    X = X - X.mean(0)
    return (X @ X.T,)


def _present(points):
    return geometry.PointCloud(points, jnp.arange(N) != 2)


def _points_and_targets(rng):
    return (*_points(rng), *_targets(rng))


def _attention(rng):
    q, k, v = (rng.standard_normal((N, heads, 4)) for heads in (2, 1, 1))
    return q, k, v, rng.integers(0, 99, N, dtype=np.int32)


XPOS = encodings.xpos(head_dim=4)
ROPE_AND_ALIBI = encodings.chain(encodings.rope(head_dim=4), encodings.alibi(num_heads=2))


def _logits(q, k, i):
    where = {"q_positions": i, "k_positions": i}
    return encodings.attention_logits(ROPE_AND_ALIBI, ((), ()), q, k, **where)


def _attend(q, k, v, i):
    where = {"q_positions": i, "k_positions": i, "mask": np.tri(N, dtype=bool)}
    return encodings.attend(ROPE_AND_ALIBI, ((), ()), q, k, v, **where)


def _induced(i):
    return encodings.encoding_distances(XPOS, (), i, num_heads=1, head_dim=4)


def _counts(ids, **kwargs):
    return geometry.count_tokens(ids, vocab_size=VOCAB, **kwargs)


def _folded(ids):
    return _counts(ids, folds=4)


def _nulls(ids):
    """Counts in folds of documents, and of two rotations."""
    keys = jax.random.split(jax.random.key(1), 2)
    rotated = [geometry.rotate_within_documents(key, ids) for key in keys]
    groups = np.arange(24)
    return [_counts(each, folds=4, groups=groups) for each in (ids, *rotated)]


def _split_half(counts):
    return geometry.split_half_geometry(counts, key=jax.random.key(0), splits=3)


def _halves(counts):
    return disjoint_geometries(counts, key=jax.random.key(0), splits=2, halvings=2)


def _folded_halves(ids):
    return _halves(_folded(ids))


def _position(counts, *nulls):
    return geometry.position_geometry_from_counts(counts, nulls, key=jax.random.key(0), splits=2)


def _position_halves(counts, *nulls):
    drawn = {"key": jax.random.key(0), "splits": 2, "halvings": 2}
    return disjoint_position_geometries(counts, nulls, **drawn)


def _position_and_halves(ids):
    corpora = _nulls(ids)
    return _position(*corpora), _position_halves(*corpora)


def _of_counts(function):
    """A function of the arrays of one table of counts or of several."""
    return lambda *leaves: function(
        *(geometry.PositionCounts(*leaves[k : k + 3]) for k in range(0, len(leaves), 3))
    )


def _as_position(leaves):
    split_half = SplitHalfGeometry(*leaves[3:6])
    return PositionGeometry(*leaves[:3], split_half, *leaves[6:8])


def _as_halves(leaves):
    statistics = (PositionStatistics(*leaves[k : k + 4]) for k in (3, 7))
    return PositionHalves(SplitHalfGeometry(*leaves[:3]), *statistics)


def _squared_distances(rng):
    return (_targets(rng)[0] ** 2,)


@functools.cache
def _arrays(make, ids):
    """NumPy arrays of what is made of ids given as bytes, so that a case need not compile it."""
    return jax.tree.map(np.asarray, make(np.frombuffer(ids, np.int32).reshape(-1, N)))


def _made_of(make):
    """Arguments of a case: the leaves of what is made of ids."""
    return lambda rng: tuple(jax.tree.leaves(_arrays(make, _ids(rng)[0].tobytes())))


def _same_halves():
    """Halves of the same ids each time, as floats of this session."""
    ids = np.random.default_rng(0).integers(0, VOCAB, (24, N), dtype=np.int32)
    *fields, present = _arrays(_folded_halves, ids.tobytes())
    float_ = jnp.result_type(float)
    return SplitHalfGeometry(*(field.astype(float_) for field in fields), present)


def _points_for_halves(rng):
    _same_halves()  # here, since functions are traced
    return _points(rng)


GEOMETRY: dict[str, Case] = {
    "count_tokens": Case(lambda ids, mask: _counts(ids, mask=mask, exclude=(3,)), _masked_ids),
    "content_labels": Case(content_labels, _ids),
    "fold_of_documents": Case(lambda ids, mask: fold_of_documents(ids, mask, folds=3), _masked_ids),
    "rotate_within_documents": Case(
        lambda ids, mask: geometry.rotate_within_documents(
            jax.random.key(0), ids, mask, exclude=(1,)
        ),
        _masked_ids,
    ),
    "positional_distributions": Case(
        _of_counts(lambda c: geometry.positional_distributions(c, smoothing=0.5)), _made_of(_folded)
    ),
    "as_distances": Case(as_distances, _targets, total),
    "euclidean_distances": Case(geometry.euclidean_distances, _points, total),
    "hellinger_distances": Case(geometry.hellinger_distances, _mu, total),
    "fisher_rao_distances": Case(geometry.fisher_rao_distances, _mu, total),
    "distances_from_gram": Case(distances_from_gram, _gram, total),
    "gram_matrix": Case(gram_matrix, _targets, total),
    "hellinger_gram": Case(geometry.hellinger_gram, _mu, total),
    "classical_mds": Case(lambda D: geometry.classical_mds(D, dim=2), _targets, rotation_invariant),
    "classical_mds_from_gram": Case(
        lambda B: geometry.classical_mds_from_gram(B, dim=2), _gram, rotation_invariant
    ),
    "classical_mds_from_points": Case(
        lambda X: classical_mds_from_points(X, dim=2), _points, rotation_invariant
    ),
    "classical_mds_from_points_by_krylov": Case(
        lambda X: classical_mds_from_points(X, dim=2, method="krylov", tolerance=1e-9),
        _points,
        rotation_invariant,
    ),
    "principal_eigenpairs": Case(
        lambda B: (
            principal_eigenpairs(
                lambda Y: B @ Y, N, dim=2, dtype=B.dtype, tolerance=1e-9
            ).eigenvalues
        ),
        _gram,
    ),
    "information_optimal_encoding": Case(
        lambda ids, mask: geometry.information_optimal_encoding(
            ids, mask=mask, vocab_size=VOCAB, dim=2
        ),
        _masked_ids,
    ),
    "low_rank_factors": Case(lambda P: low_rank_factors(P, rank=2), _points, product),
    "entropy_rank": Case(geometry.entropy_rank, _points, total),
    "entropy": Case(
        lambda n: entropy(n, estimator="plug-in"), lambda rng: (rng.random((2, 5)),), total
    ),
    "mutual_information": Case(
        lambda n: mutual_information(n, estimator="miller-madow"), _weights, total
    ),
    "positional_information": Case(
        lambda ids, mask: geometry.positional_information(
            ids, mask=mask, permutations=2, key=jax.random.key(0)
        ),
        _masked_ids,
    ),
    "mutual_information_encoding": Case(
        lambda B: mutual_information_encoding(B, dim=2), _gram, rotation_invariant
    ),
    "gaussian_information": Case(
        gaussian_information, lambda rng: tuple(rng.standard_normal((2, 12, 2))), total
    ),
    "smacof": Case(
        lambda D, init: geometry.smacof(D, dim=2, init=init, tolerance=1e-3),
        lambda rng: (*_targets(rng), rng.standard_normal((N, 2))),
    ),
    "stress": Case(geometry.stress, _points_and_targets, total),
    "stress_of_points": Case(
        lambda P, X: geometry.stress(P, _present(X), weights=jnp.arange(N)), _two_points, total
    ),
    "scaled_stress": Case(geometry.scaled_stress, _points_and_targets, total),
    "scaled_stress_of_points": Case(
        lambda P, X: geometry.scaled_stress(P, _present(X)), _two_points, total
    ),
    "kruskal_stress1": Case(geometry.kruskal_stress1, _points_and_targets, total),
    "stress_per_position": Case(geometry.stress_per_position, _points_and_targets, total),
    "mantel_correlation": Case(geometry.mantel_correlation, _points_and_targets, total),
    "min_separation": Case(geometry.min_separation, _points, total),
    "min_separation_of_points": Case(
        lambda P: geometry.min_separation(_present(P)), _points, total
    ),
    "sum_over_pairs": Case(
        lambda P, X: sum_over_pairs(
            lambda delta, d: (delta - d) ** 2, P, X, block=2, per_position=True
        ),
        _two_points,
        total,
    ),
    "as_points": Case(as_points, _points, total),
    "hellinger_points": Case(hellinger_points, _mu, lambda cloud: cubed(cloud.points)),
    "procrustes": Case(geometry.procrustes, _two_points, total),
    "principal_angles": Case(principal_angles, _two_points, total),
    "holm_adjusted": Case(holm_adjusted, lambda rng: (0.1 * rng.random(5),), total),
    "toeplitz_projection": Case(toeplitz_projection, _square, total),
    "toeplitz_residual": Case(geometry.toeplitz_residual, _square, total),
    "circulant_projection": Case(circulant_projection, _square, total),
    "circulant_residual": Case(circulant_residual, _square, total),
    "pair_weights": Case(
        _of_counts(pair_weights), _made_of(lambda ids: _counts(ids, mask=ids > 0))
    ),
    "position_decodability": Case(
        geometry.position_decodability, lambda rng: (rng.standard_normal((4, N, 3)),), total
    ),
    "monotonicity_violation_rate": Case(geometry.monotonicity_violation_rate, _points),
    "monotonicity_violation_rate_of_points": Case(
        lambda P: geometry.monotonicity_violation_rate(_present(P)), _points
    ),
    "is_monotone": Case(is_monotone, _points),
    "split_half_geometry": Case(_of_counts(_split_half), _made_of(_folded)),
    "disjoint_geometries": Case(_of_counts(_halves), _made_of(_folded)),
    "position_geometry": Case(
        lambda ids: geometry.position_geometry(
            ids, vocab_size=VOCAB, key=jax.random.key(0), splits=2, nulls=2
        ),
        _ids,
    ),
    "position_geometry_from_counts": Case(_of_counts(_position), _made_of(_nulls)),
    "position_rank": Case(
        lambda *leaves: geometry.position_rank(_as_position(leaves[:8]), level=0.5),
        _made_of(_position_and_halves),
    ),
    "disjoint_position_geometries": Case(_of_counts(_position_halves), _made_of(_nulls)),
    "position_intervals": Case(
        lambda *leaves: geometry.position_intervals(_as_position(leaves), _as_halves(leaves[8:])),
        _made_of(_position_and_halves),
    ),
    "variance_shares": Case(
        lambda *leaves: geometry.variance_shares(
            _as_position(leaves), _as_halves(leaves[8:]), 9 * jnp.linalg.norm(leaves[0])
        ),
        _made_of(_position_and_halves),
    ),
    "nearness": Case(geometry.nearness, _squared_distances, total),
    "cohort_of": Case(cohort_of, lambda rng: (rng.random((24, N)) < 0.9,)),
    "regroup_folds": Case(_of_counts(lambda c: regroup_folds(c, folds=1)), _made_of(_folded)),
    "held_out_stress": Case(
        lambda P: geometry.held_out_stress(P, _same_halves()), _points_for_halves, total
    ),
    "cross_validated_mds": Case(
        lambda *halves: geometry.cross_validated_mds(SplitHalfGeometry(*halves), dim=2),
        _made_of(_folded_halves),
    ),
    "cross_validated_choice": Case(
        cross_validated_choice, lambda rng: (rng.random((3, 2, 4)),), total
    ),
    "half_sample_interval": Case(half_sample_interval, lambda rng: (rng.random((3, 2, 4)),), total),
    "weighted_gram": Case(
        _of_counts(lambda c: weighted_gram(_split_half(c), c)), _made_of(_folded)
    ),
    "noise_floor": Case(_of_counts(geometry.noise_floor), _made_of(_counts)),
    "rank_above_null": Case(
        lambda gram, nulls: rank_above_null(gram, nulls, level=0.5),
        lambda rng: (_gram(rng)[0], np.stack([_gram(rng)[0] for _ in range(4)])),
    ),
    "sinusoidal_vectors": Case(
        lambda i: encodings.sinusoidal_vectors(i, dim=4),
        lambda rng: (rng.integers(0, 99, N, dtype=np.int32),),
    ),
    "power_positions": Case(
        lambda i: encodings.power_positions(i, tau=0.5, power=0.2), _between_positions, total
    ),
    "legendre_vectors": Case(
        lambda i: encodings.legendre_vectors(i, dim=4, length=9), _between_positions, total
    ),
    "legendre_polynomials": Case(
        lambda x: legendre_polynomials(x, dim=4, normalized=True), _in_interval, total
    ),
    "chebyshev_vectors": Case(
        lambda i: encodings.chebyshev_vectors(i, dim=4, length=9, position_map="log"),
        _between_positions,
        total,
    ),
    "chebyshev_polynomials": Case(lambda x: chebyshev_polynomials(x, dim=4), _in_interval, total),
    "cosine_vectors": Case(
        lambda i: encodings.cosine_vectors(i, dim=4, length=9), _between_positions, total
    ),
    "wavelet_vectors": Case(
        lambda i: encodings.wavelet_vectors(i, dim=4, length=9), _between_positions, cubed
    ),
    "spherical_harmonic_vectors": Case(
        lambda i: encodings.spherical_harmonic_vectors(i, dim=6, rows=5, columns=7),
        lambda rng: (5 * rng.random((N, 2)),),
        cubed,
    ),
    "rotary_orbit": Case(
        lambda i, q: encodings.rotary_orbit(i, dim=4, reference=q),
        lambda rng: (rng.integers(0, 99, N, dtype=np.int32), rng.standard_normal(4)),
        total,
    ),
    "convert_rotary_layout": Case(
        lambda w: encodings.convert_rotary_layout(
            w, num_heads=2, source="interleaved", target="half"
        ),
        lambda rng: (rng.standard_normal((3, 8)),),
        cubed,
    ),
    "attention_logits": Case(
        _logits, lambda rng: tuple(_attention(rng)[k] for k in (0, 1, 3)), total
    ),
    "attention_weights": Case(
        encodings.attention_weights,
        lambda rng: (rng.standard_normal((2, N, N)), rng.random((N, N)) < 0.7),
        cubed,
    ),
    "attention_output": Case(
        lambda w, v, i: attention_output(
            ROPE_AND_ALIBI, ((), ()), w, v, q_positions=i, k_positions=i
        ),
        lambda rng: (rng.random((2, N, N)), *_attention(rng)[2:]),
        total,
    ),
    "attend": Case(_attend, _attention, total),
    "rotate_by": Case(
        lambda k, i: encodings.rotate_by(XPOS, (), k, i),
        lambda rng: _attention(rng)[1::2],
        cubed,
    ),
    "encoding_distances": Case(_induced, lambda rng: (rng.integers(0, 99, N, dtype=np.int32),)),
    "position_offsets": Case(
        lambda q, i, j: encodings.position_offsets(q, q, i, j),
        lambda rng: (
            rng.standard_normal((N, 1, 2)),
            *(rng.integers(-99, 99, N, dtype=np.int32) for _ in range(2)),
        ),
    ),
    "alibi_line": Case(
        lambda i, slope: encodings.alibi_line(i, slope=slope),
        lambda rng: (rng.integers(0, 99, N, dtype=np.int32), np.asarray(rng.random())),
        total,
    ),
    "t5_buckets": Case(
        lambda offsets: t5_buckets(offsets, num_buckets=8, max_distance=20),
        lambda rng: (rng.integers(-50, 50, (N, N), dtype=np.int32),),
    ),
    "random_vectors": Case(
        lambda seed: encodings.random_vectors(jax.random.key(seed), N, dim=2),
        lambda rng: (rng.integers(0, 99, (), dtype=np.int32),),
    ),
}

"""The counts of Remark 8, and where descent on a low-rank matrix ends."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings import low_rank
from jaxpe.geometry import Distances, classical_mds, hellinger_distances, smacof, stress
from jaxpe.geometry.distances.matrices import gram_matrix
from jaxpe.geometry.mds.procrustes import procrustes
from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.proposition_6_strain import strain
from jaxpe.theory.cirrincione2026.remark_8_low_rank import low_rank_descent, remark_8

RNG = np.random.default_rng(0)
N, DIM, RANKS = 8, 6, (1, 2, 8)
D = np.asarray(hellinger_distances(RNG.dirichlet(np.full(9, 0.5), N)).values)


@partial(jax.jit, static_argnames=("criterion", "steps"))
def descend(A, B, D, criterion, steps):
    return jax.vmap(lambda A, B: low_rank_descent(A, B, D, criterion=criterion, steps=steps))(A, B)


def starts(count=6):
    keys = jax.random.split(jax.random.key(0), count)
    drawn = jax.vmap(low_rank(length=N, dim=DIM, rank=2).init)(keys)
    return drawn["A"], drawn["B"]


def test_parameters_of_table_2():
    measured = remark_8(np.zeros((32, 32)), width=128, ranks=(1, 2, 3, 7, 31)).measured
    assert measured["parameters"].tolist() == [160, 320, 480, 1120, 4960]
    assert measured["degrees_of_freedom"].tolist() == [159, 316, 471, 1071, 3999]
    np.testing.assert_allclose(measured["saving"][-1], -0.211, atol=5e-4)


def test_degrees_of_freedom_are_the_rank_of_the_parametrisation():
    """The derivative of A Bᵀ by A and B loses the r² directions A G, −B Gᵀ."""
    n, d, r = 5, 4, 2
    A, B = RNG.standard_normal((n, r)), RNG.standard_normal((d, r))
    measured = remark_8(np.zeros((n, n)), width=d, ranks=(r,)).measured
    by_A = np.einsum("il,jk->ijlk", np.eye(n), B).reshape(n * d, n * r)
    by_B = np.einsum("ik,jl->ijlk", A, np.eye(d)).reshape(n * d, d * r)
    rank = np.linalg.matrix_rank(np.hstack([by_A, by_B]))
    assert measured["degrees_of_freedom"].item() == rank == 14
    # Of A Aᵀ rotations are lost, of distances translations too.
    products = np.einsum("il,jk->ijlk", np.eye(n), A)
    rank = np.linalg.matrix_rank((products + products.swapaxes(0, 1)).reshape(n * n, -1))
    assert measured["distance_degrees_of_freedom"].item() == rank - r == 7


def test_it_holds_by_degrees_of_freedom():
    """Where r(n + d) exceeds n d, as on IMDB: 168 numbers for 128."""
    audit = remark_8(D, width=16, ranks=RANKS)
    assert audit.measured["rank"] == N - 1
    assert verdict(audit) == "holds"
    count = audit.conclusions["over-parametrised"]
    assert (count.lhs, count.rhs) == (7 * (24 - 7), 8 * 16)
    narrow = remark_8(D, width=7, ranks=RANKS)
    assert verdict(narrow) == "does not apply: r < d fails; holds"
    # One negative eigenvalue: no Euclidean distances, and no rank is exact.
    bent = remark_8(np.where(D.max() == D, 3 * D, D), width=16, ranks=RANKS)
    assert verdict(bent) == "refuted: exact at r fails"
    measured = audit.measured
    coordinates = classical_mds(D, dim=2).coordinates
    for k, rank in enumerate((1, 2)):
        np.testing.assert_allclose(
            measured["stress_classical"][k], stress(coordinates[:, :rank], D)
        )
        best = smacof(D, dim=rank).stress
        np.testing.assert_allclose(measured["stress_smacof"][k], best, rtol=1e-3)
    np.testing.assert_allclose(measured["variance_share"][-1], 1)
    holed = np.insert(np.insert(D, 3, np.nan, axis=0), 3, np.nan, axis=1)
    holed = remark_8(Distances(holed, np.arange(N + 1) != 3), width=16, ranks=RANKS).measured
    for name in measured:
        np.testing.assert_allclose(holed[name], measured[name], rtol=1e-6, atol=1e-12)


def test_descent_on_the_strain_ends_at_p_mds_and_on_the_stress_leaves_it():
    mds = classical_mds(D, dim=2).coordinates
    A, B = starts()
    fits = descend(A, B, D, "strain", steps=400)
    for one, other in zip(fits.A, fits.B, strict=True):
        assert procrustes(one @ other.T, mds).residual < 1e-6
    np.testing.assert_allclose(fits.losses[:, -1], strain(mds, gram_matrix(D)), rtol=1e-6)
    A, B = A.at[0].set(mds), B.at[0].set(np.eye(DIM, 2))
    fits = descend(A, B, D, "stress", steps=1500)
    np.testing.assert_allclose(fits.losses[0, 0], stress(mds, D))
    assert fits.losses[0, -1] < 0.9 * stress(mds, D)
    P = jnp.matmul(fits.A, jnp.swapaxes(fits.B, 1, 2))
    slopes = jax.jit(jax.vmap(lambda P: jnp.abs(jax.grad(stress)(P, D)).max()))(P)
    assert jnp.min(fits.losses[:, -1]) <= smacof(D, dim=2).stress * (1 + 1e-3)
    assert jnp.median(slopes) < 1e-4
    for X in P:
        assert procrustes(X, mds).residual > 0.01


def test_absent_positions_do_not_move():
    present = np.arange(N) != 2
    holed = Distances(
        jnp.asarray(np.where(np.outer(present, present), D, 0.0)), jnp.asarray(present)
    )
    A, B = starts(1)
    fits = descend(A, B, holed, "stress", steps=20)
    np.testing.assert_array_equal(fits.A[:, 2], A[:, 2])
    assert fits.losses[0, -1] < fits.losses[0, 0]

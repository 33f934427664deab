"""The counts of Remark 8, and where descent on a low-rank matrix ends."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import Distances, classical_mds, hellinger_distances, low_rank, smacof, stress
from jaxpe.geometry import gram_matrix
from jaxpe.geometry.mds.procrustes import procrustes
from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.proposition_6_strain import strain
from jaxpe.theory.cirrincione2026.remark_8_low_rank import low_rank_descent, remark_8

RNG = np.random.default_rng(0)
N, DIM, RANKS = 8, 6, (1, 2, 8)
D = np.asarray(hellinger_distances(RNG.dirichlet(np.full(9, 0.5), N)).values)
audit_of = jax.jit(remark_8, static_argnames=("width", "ranks"))


@partial(jax.jit, static_argnames=("criterion", "steps"))
def descend(A, B, D, criterion, steps=400):
    return jax.vmap(lambda A, B: low_rank_descent(A, B, D, criterion=criterion, steps=steps))(A, B)


def starts(rank, count=6):
    drawn = jax.vmap(low_rank(length=N, dim=DIM, rank=rank).init)(
        jax.random.split(jax.random.key(0), count)
    )
    return drawn["A"], drawn["B"]


def test_parameters_of_table_2():
    measured = audit_of(np.zeros((32, 32)), width=128, ranks=(1, 2, 3, 7, 31)).measured
    assert measured["parameters"].tolist() == [160, 320, 480, 1120, 4960]
    assert measured["degrees_of_freedom"].tolist() == [159, 316, 471, 1071, 3999]
    np.testing.assert_allclose(measured["saving"][-1], -0.211, atol=5e-4)


def test_degrees_of_freedom_are_the_rank_of_the_parametrisation():
    """The derivative of A Bᵀ by A and B loses the r² directions A G, −B Gᵀ."""
    n, d, r = 5, 4, 2
    A, B = RNG.standard_normal((n, r)), RNG.standard_normal((d, r))
    jacobian = jax.jacobian(
        lambda x: (x[: n * r].reshape(n, r) @ x[n * r :].reshape(d, r).T).ravel()
    )
    x = jnp.concatenate([A.ravel(), B.ravel()])
    assert len(x) == r * (n + d) == 18
    assert np.linalg.matrix_rank(jacobian(x)) == r * (n + d - r) == 14
    distances = jax.jacobian(lambda A: (A @ A.T).ravel()[:, None] * 1.0)  # rotations lost
    assert np.linalg.matrix_rank(distances(jnp.asarray(A)).reshape(n * n, -1)) == n * r - 1
    measured = audit_of(np.zeros((n, n)), width=d, ranks=(r,)).measured
    assert measured["degrees_of_freedom"] == 14
    assert measured["distance_degrees_of_freedom"] == n * r - r * (r - 1) // 2 - r == 7


def test_it_holds_by_degrees_of_freedom():
    """Where r(n + d) exceeds n d, as on IMDB: 168 numbers for 128."""
    audit = audit_of(D, width=16, ranks=RANKS)
    assert audit.measured["rank"] == N - 1
    assert verdict(audit) == "holds"
    count = audit.conclusions["over-parametrised"]
    assert (count.lhs, count.rhs) == (7 * (24 - 7), 8 * 16)
    assert 7 * 24 > 8 * 16
    narrow = audit_of(D, width=7, ranks=RANKS)
    assert verdict(narrow) == "not claimed: r < d fails; holds"
    # One negative eigenvalue: no Euclidean distances, and no rank is exact.
    bent = audit_of(np.where(D.max() == D, 3 * D, D), width=16, ranks=RANKS)
    assert verdict(bent) == "refuted: exact at r fails"


def test_the_table_is_that_of_each_rank():
    measured = audit_of(D, width=16, ranks=RANKS).measured
    coordinates = classical_mds(D, dim=2).coordinates
    for k, rank in enumerate((1, 2)):
        mds = coordinates[:, :rank]
        np.testing.assert_allclose(measured["stress_classical"][k], stress(mds, D))
        np.testing.assert_allclose(
            measured["stress_smacof"][k], smacof(D, dim=rank).stress, rtol=1e-3
        )
    np.testing.assert_allclose(measured["variance_share"][-1], 1)


def test_absent_positions_and_float32_change_nothing():
    present = np.arange(N) != 2
    keep = np.flatnonzero(present)
    holed = Distances(np.where(np.outer(present, present), D, np.nan), present)
    whole = audit_of(holed, width=16, ranks=(1, 2)).measured
    part = audit_of(D[np.ix_(keep, keep)].astype(np.float32), width=16, ranks=(1, 2)).measured
    for name in whole:
        np.testing.assert_allclose(whole[name], part[name], rtol=2e-3)


def test_descent_on_the_strain_ends_at_p_mds():
    fits = descend(*starts(2), D, "strain")
    mds = classical_mds(D, dim=2).coordinates
    for A, B in zip(fits.A, fits.B, strict=True):
        assert procrustes(A @ B.T, mds).residual < 1e-6
    np.testing.assert_allclose(fits.losses[:, -1], strain(mds, gram_matrix(D)), rtol=1e-6)


def test_descent_on_the_stress_leaves_p_mds_and_ends_at_a_minimum():
    mds = classical_mds(D, dim=2).coordinates
    A, B = starts(2)
    A, B = A.at[0].set(mds), B.at[0].set(np.eye(DIM, 2))
    fits = descend(A, B, D, "stress", steps=1500)
    np.testing.assert_allclose(fits.losses[0, 0], stress(mds, D))
    assert fits.losses[0, -1] < 0.9 * stress(mds, D)
    P = jnp.matmul(fits.A, jnp.swapaxes(fits.B, 1, 2))
    slopes = jax.vmap(lambda P: jnp.abs(jax.grad(stress)(P, D)).max())(P)
    assert jnp.min(fits.losses[:, -1]) <= smacof(D, dim=2).stress * (1 + 1e-3)
    assert jnp.median(slopes) < 1e-4
    for X in P:
        assert procrustes(X, mds).residual > 0.01


def test_descent_falls_in_float32_too():
    A, B = (jnp.asarray(X, jnp.float32) for X in starts(2))
    for criterion in ("stress", "strain"):
        fits = descend(A, B, D.astype(np.float32), criterion)
        assert fits.losses.dtype == jnp.float32
        assert (fits.losses[:, -1] < 0.5 * fits.losses[:, 0]).all()


def test_absent_positions_do_not_move():
    present = np.arange(N) != 2
    holed = Distances(
        jnp.asarray(np.where(np.outer(present, present), D, 0.0)), jnp.asarray(present)
    )
    A, B = starts(1)
    fits = descend(A, B, holed, "stress", steps=20)
    assert (fits.A[:, 2] == A[:, 2]).all()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"width is 0 and ranks \(1,\)"):
        inspect.unwrap(remark_8)(D, width=0, ranks=(1,))
    with pytest.raises(ValueError, match="ranks ≤ 8"):
        inspect.unwrap(remark_8)(D, width=4, ranks=(9,))
    with pytest.raises(ValueError, match="criterion is 'loss': pass 'stress' or 'strain'"):
        inspect.unwrap(low_rank_descent)(D, D, D, criterion="loss")

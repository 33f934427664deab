"""Classical scaling is optimal in the strain and not in the stress."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxpe import Distances, classical_mds, hellinger_distances, stress
from jaxpe.geometry import gram_matrix
from jaxpe.theory.cirrincione2026.proposition_6_strain import proposition_6, strain

RNG = np.random.default_rng(0)
audit_of = jax.jit(proposition_6, static_argnames=("dim", "tolerance", "max_iterations"))
D = np.asarray(hellinger_distances(RNG.dirichlet(np.full(6, 0.5), 8)).values)


def test_three_one_hots_refute_it():
    audit = audit_of(np.asarray(hellinger_distances(np.eye(3)).values), dim=1)
    minimal = audit.conclusions["minimal stress"]
    np.testing.assert_allclose(minimal.lhs, 1 / 6, rtol=1e-9)
    np.testing.assert_allclose(minimal.rhs, 1 / 9, rtol=1e-6)
    assert not minimal.holds
    np.testing.assert_allclose(audit.measured["strain_classical"], 1 / 2)
    assert audit.measured["strain_smacof"] > 0.51
    # No classical solution does better: the eigenvalue is double, so every direction of the plane
    # is one, and at their best scale the least of their stresses is above 1/9 too.
    plane = classical_mds(hellinger_distances(np.eye(3)), dim=2).coordinates
    angles = np.linspace(0, np.pi, 181)
    lines = np.stack([np.cos(angles), np.sin(angles)], 1)
    values = jax.vmap(lambda u: stress(plane @ u[:, None], hellinger_distances(np.eye(3))))(lines)
    np.testing.assert_allclose(values.min(), 1 / 6)


@pytest.mark.parametrize("dim", [1, 2])
def test_each_solution_wins_by_its_own_criterion(dim):
    audit = audit_of(D, dim=dim)
    measured = audit.measured
    assert measured["stress_smacof"] < measured["stress_classical"]
    assert measured["strain_classical"] < measured["strain_smacof"]
    assert measured["scaled_stress_classical"] <= measured["stress_classical"]
    assert not audit.conclusions["minimal stress"].holds
    # Eckart and Young: the strain of the classical solution is the dropped share of the spectrum.
    values = np.linalg.eigvalsh(gram_matrix(D))[::-1]
    np.testing.assert_allclose(
        measured["strain_classical"], (values[dim:] ** 2).sum() / (values**2).sum(), atol=1e-12
    )


def test_at_full_rank_both_are_exact():
    for targets in (D, D.astype(np.float32)):
        audit = audit_of(targets, dim=8)
        assert audit.conclusions["minimal stress"].holds
        assert audit.measured["stress_classical"] < 1e-9
        assert audit.measured["rank"] <= 7


def test_absent_positions_take_no_part():
    present = np.arange(8) != 3
    keep = np.flatnonzero(present)
    whole = audit_of(Distances(np.where(np.outer(present, present), D, np.nan), present), dim=1)
    part = audit_of(D[np.ix_(keep, keep)], dim=1)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7)


def test_vmap_is_each():
    many = jax.jit(jax.vmap(partial(proposition_6, dim=1)))(np.stack([D, 2 * D]))
    np.testing.assert_allclose(many.measured["stress_smacof"][0], many.measured["stress_smacof"][1])
    np.testing.assert_allclose(
        many.conclusions["minimal stress"].lhs[0],
        audit_of(D, dim=1).conclusions["minimal stress"].lhs,
    )


def test_strain_of_nothing():
    assert strain(np.zeros((3, 1)), np.zeros((3, 3))) == 0

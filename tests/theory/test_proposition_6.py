"""Classical scaling is optimal in the strain and not in the stress."""

import numpy as np
import pytest

from jaxpe.geometry import Distances, classical_mds, hellinger_distances, stress
from jaxpe.geometry.distances.matrices import gram_matrix
from jaxpe.theory.cirrincione2026.proposition_6_strain import proposition_6, strain

RNG = np.random.default_rng(0)
D = np.asarray(hellinger_distances(RNG.dirichlet(np.full(6, 0.5), 8)).values)


def test_three_one_hots_refute_it():
    one_hots = hellinger_distances(np.eye(3))
    audit = proposition_6(one_hots, dim=1)
    minimal = audit.conclusions["minimal stress"]
    np.testing.assert_allclose([minimal.lhs, minimal.rhs], [1 / 6, 1 / 9], rtol=1e-6)
    assert not minimal.holds
    np.testing.assert_allclose(audit.measured["strain_classical"], 1 / 2)
    assert audit.measured["strain_smacof"] > 0.51


@pytest.mark.parametrize("dim", [1, 2])
def test_each_solution_wins_by_its_own_criterion(dim):
    """Positions that are absent take no part."""
    holed = np.insert(np.insert(D, 3, np.nan, axis=0), 3, np.nan, axis=1)
    audit = proposition_6(Distances(holed, np.arange(9) != 3), dim=dim)
    measured = audit.measured
    np.testing.assert_allclose(
        measured["stress_classical"], stress(classical_mds(D, dim=dim).coordinates, D)
    )
    assert measured["stress_smacof"] < measured["stress_classical"]
    assert measured["strain_classical"] < measured["strain_smacof"]
    assert measured["scaled_stress_classical"] <= measured["stress_classical"]
    assert not audit.conclusions["minimal stress"].holds
    # Eckart and Young: the strain of the classical solution is the dropped share of the spectrum.
    values = np.linalg.eigvalsh(gram_matrix(D))[::-1]
    dropped = (values[dim:] ** 2).sum() / (values**2).sum()
    np.testing.assert_allclose(measured["strain_classical"], dropped, atol=1e-12)


def test_at_full_rank_both_are_exact():
    audit = proposition_6(D.astype(np.float32), dim=8)
    assert audit.conclusions["minimal stress"].holds
    assert audit.measured["stress_classical"] < 1e-9
    assert audit.measured["rank"] <= 7
    assert strain(np.zeros((3, 1)), np.zeros((3, 3))) == 0

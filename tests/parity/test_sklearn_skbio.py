"""Against scikit-learn and scikit-bio, from the file that `make_sklearn.py` writes."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe.geometry import classical_mds, euclidean_distances, smacof, stress

PEER = dict(np.load(Path(__file__).with_name("sklearn_skbio.npz")))


@pytest.mark.parametrize("name", ["hellinger", "fisher_rao"])
@pytest.mark.parametrize("peer", ["sklearn", "skbio"])
def test_classical_scaling(name, peer):
    D = PEER[f"{name}_distances"]
    theirs = PEER[f"{name}_{'sklearn_classical' if peer == 'sklearn' else 'skbio_pcoa'}"]
    ours = jax.jit(classical_mds, static_argnames="dim")(D, dim=3)
    signs = np.sign((theirs * np.asarray(ours.coordinates)).sum(0))
    np.testing.assert_allclose(ours.coordinates, theirs * signs, atol=1e-10)
    np.testing.assert_allclose(ours.eigenvalues[:3], PEER[f"{name}_{peer}_eigenvalues"])


@pytest.mark.parametrize("name", ["hellinger", "fisher_rao"])
def test_smacof_is_no_worse_from_the_same_start(name):
    D, theirs = PEER[f"{name}_distances"], PEER[f"{name}_smacof"]
    fit = jax.jit(
        lambda D, X: smacof(D, dim=3, init=X, max_iterations=3000, tolerance=1e-12)
    )(D, PEER[f"{name}_start"])  # fmt: skip
    assert fit.stress <= stress(theirs, D) * (1 + 1e-6)
    assert (classical_mds(D, dim=3).negative_mass > 0.01) == (name == "fisher_rao")
    ours = euclidean_distances(fit.coordinates).values
    np.testing.assert_allclose(ours, euclidean_distances(theirs).values, atol=1e-3)

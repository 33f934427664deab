"""What scores take in place of vectors and matrices, and what they refuse."""

import inspect

import jax
import numpy as np
import pytest

import jaxpe
from tests.unchecked import unchecked


def test_results_with_coordinates_are_encodings():
    D = jaxpe.euclidean_distances(np.random.default_rng(0).normal(size=(6, 3)))
    mds = jaxpe.classical_mds(D, dim=2)
    for result in (mds, jaxpe.smacof(D, dim=2)):
        for score in (jaxpe.stress, jaxpe.kruskal_stress1):
            np.testing.assert_allclose(score(result, D), score(result.coordinates, D), rtol=1e-6)
    half = mds._replace(present=np.arange(6) < 4)
    few = jaxpe.Distances(D.values, np.arange(6) < 4)
    expected = jaxpe.stress(mds.coordinates, few)
    np.testing.assert_allclose(jaxpe.stress(half, D), expected, rtol=1e-6)


SCORES = (
    jaxpe.stress,
    jaxpe.scaled_stress,
    jaxpe.kruskal_stress1,
    jaxpe.geometry.stress_per_position,
    jaxpe.mantel_correlation,
)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("change", "words"), [(lambda D: D - 0.5, "negative"), (np.triu, "symmetric")]
)
def test_what_cannot_be_distances_is_refused(score, change, words):
    P = np.random.default_rng(0).normal(size=(6, 3))
    D = np.asarray(jaxpe.euclidean_distances(P))
    with pytest.raises(ValueError, match=words):
        score(P, change(D))
    score(P, D)  # rounding is no asymmetry
    score(P, D + 1e-6 * np.triu(D))


def test_other_results_in_place_of_distances_say_what_to_pass():
    stress = inspect.unwrap(jaxpe.stress)
    rng = np.random.default_rng(0)
    counts = jaxpe.count_tokens(rng.integers(0, 9, (50, 6)), vocab_size=9, folds=4)
    mu = jaxpe.positional_distributions(counts.merged())
    geometry = jaxpe.split_half_geometry(counts, key=jax.random.key(0))
    P = rng.normal(size=(6, 3))
    wrong = (
        (P, mu, "hellinger_distances"),
        (P, geometry, r"\.distances"),
        (mu, geometry.distances, "hellinger_points"),
    )
    for vectors, targets, words in wrong:
        with unchecked(), pytest.raises(ValueError, match=words):
            stress(vectors, targets)


def test_distances_are_differentiated_in_their_values():
    P = np.random.default_rng(0).normal(size=(6, 3))
    D = jaxpe.euclidean_distances(P)
    slope = jax.grad(lambda d: jaxpe.stress(1.1 * P, D._replace(values=d)))(D.values)
    assert np.isfinite(slope).all()
    assert np.abs(slope).max() > 0

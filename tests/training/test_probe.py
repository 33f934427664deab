"""The probe of geometry: laws of its scores, its three references, transforms."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import encodings
from jaxpe.data import three_regimes
from jaxpe.geometry import Distances
from jaxpe.geometry.distances.matrices import as_distances
from jaxpe.training.probe import (
    ReferenceGeometry,
    as_record,
    encoding_probe,
    probe_geometry,
    reference_geometry,
)

N, D, KEY = 8, 5, jax.random.key(0)
probe = jax.jit(probe_geometry)
make = jax.jit(reference_geometry, static_argnames="empty")
RNG = np.random.default_rng(0)
P = RNG.standard_normal((N, D))
OCCUPIED = np.arange(N) < 6


def documents_of(corpus, mask=None):
    """Counts and the geometry of position of the same documents."""
    options = {"vocab_size": corpus.distributions.shape[1], "mask": mask}
    drawn = {"key": KEY, "folds": 8, "splits": 4, "nulls": 4}
    counts = jaxpe.geometry.count_tokens(corpus.ids, **options)
    return counts, jaxpe.geometry.position_geometry(corpus.ids, **options, **drawn)


@pytest.fixture(scope="module")
def corpus():
    return three_regimes(documents=400, length=N, vocab_size=60)


@pytest.fixture(scope="module")
def counts(corpus):
    """Two positions at the end hold nothing."""
    return documents_of(corpus, np.broadcast_to(OCCUPIED, corpus.ids.shape))


@pytest.fixture(scope="module")
def reference(counts):
    return make(*counts)


def close(actual, expected, rtol=1e-9, atol=1e-9):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


def test_a_reference_holds_the_geometry_of_the_counts(counts, reference):
    counts, geometry = counts
    mu = jaxpe.geometry.positional_distributions(counts, empty="uniform")
    close(reference.plug_in, jaxpe.geometry.hellinger_distances(mu))
    close(reference.position, geometry.distances)
    np.testing.assert_array_equal(reference.occupied, OCCUPIED)
    np.testing.assert_array_equal(reference.position.present, OCCUPIED)
    assert reference.plug_in.present.all()
    assert reference.plug_in.values[6, 7] == 0  # the same uniform distribution


def test_the_truth_is_nearer_to_the_geometry_without_noise(corpus):
    truth = jaxpe.geometry.hellinger_distances(corpus.distributions)
    scores = probe(truth, make(*documents_of(corpus)))
    assert scores.position.scaled_stress < 0.5 * scores.all_positions.scaled_stress
    assert scores.position.stress < 0.5 * scores.all_positions.stress


def test_isometries_change_nothing(reference):
    rotation = np.linalg.qr(RNG.standard_normal((D, D)))[0]
    close(probe(P @ rotation + 3.0, reference), probe(P, reference))


def test_mds_of_the_plug_in_distances_is_perfect(reference):
    mds = jaxpe.geometry.classical_mds(reference.plug_in, dim=N)
    scores = probe(mds.coordinates, reference)
    for part in (scores.all_positions, scores.occupied):
        np.testing.assert_allclose(part.correlation, 1.0)
        np.testing.assert_allclose((part.stress, part.scaled_stress), 0.0, atol=1e-20)
    assert scores.position.scaled_stress > 0.01
    s = np.sqrt(np.maximum(mds.eigenvalues, 0))
    share = s[s > 1e-6] / s[s > 1e-6].sum()
    expected = np.exp(-(share * np.log(share)).sum())
    np.testing.assert_allclose(scores.all_positions.entropy_rank, expected, rtol=1e-6)


def test_occupied_positions_alone_equal_the_part_of_the_matrix(reference):
    def part(distances):
        return as_distances(np.asarray(distances.values)[:6, :6])

    small = ReferenceGeometry(part(reference.plug_in), part(reference.position), jnp.ones(6, bool))
    points = P.copy()
    points[~OCCUPIED] = 1e3
    whole, alone = probe(points, reference), probe(points[:6], small)
    close(whole.occupied, alone.all_positions)
    close(whole.occupied, alone.occupied)
    close(whole.position, alone.position)
    assert whole.all_positions.stress > 100 * whole.occupied.stress


def test_narrow_points_are_scored_in_float32(reference):
    narrow = jnp.asarray(P, jnp.bfloat16)
    scores = probe(narrow, reference)
    assert {leaf.dtype for leaf in jax.tree.leaves(scores)} == {jnp.dtype(jnp.float32)}
    close(scores, probe(np.asarray(narrow, np.float64), reference), rtol=1e-4, atol=1e-5)


def test_an_encoding_with_vectors_is_probed_by_them(reference):
    encoding, positions = encodings.learned(length=N, dim=D), jnp.arange(N)
    params = encoding.init(KEY)
    run = jax.jit(lambda params, i: encoding_probe(encoding, params, i, reference))
    expected = probe(encoding.vectors(params, positions), reference)
    close(run(params, positions), expected)


def test_an_encoding_without_is_probed_by_its_logits(reference):
    encoding, positions = encodings.kerple(num_heads=2), jnp.arange(N)
    params = encoding.init(KEY)
    sizes = {"num_heads": 2, "head_dim": 4}
    run = jax.jit(lambda params, i: encoding_probe(encoding, params, i, reference, **sizes))
    D = encodings.encoding_distances(encoding, params, positions, **sizes)
    close(run(params, positions), probe(D, reference))
    with pytest.raises(ValueError, match="num_heads"):
        encoding_probe(encoding, params, positions, reference)


@pytest.mark.parametrize("encoded", [P[:6], jaxpe.geometry.euclidean_distances(P[:6])])
def test_other_positions_are_refused(reference, encoded):
    with pytest.raises(ValueError, match="6 positions"):
        probe_geometry(encoded, reference)


def test_counts_that_make_no_reference(corpus):
    nothing = documents_of(corpus, np.zeros(corpus.ids.shape, bool))
    with pytest.raises(ValueError, match="more documents"):
        reference_geometry(*nothing)


def test_a_record_is_flat_and_ready_for_json(reference):
    scores = probe(P, reference)
    record = as_record(scores)
    assert json.loads(json.dumps(record)) == record
    assert len(record) == len(jax.tree.leaves(scores))
    assert record["position/correlation"] == float(scores.position.correlation)


def test_absent_positions_of_distances_stay_absent(reference):
    half = Distances(jaxpe.geometry.euclidean_distances(P).values, jnp.arange(N) < 4)
    scores = probe(half, reference)
    close(scores.all_positions, scores.occupied)
    nobody = probe(half._replace(present=jnp.zeros(N, bool)), reference)
    assert nobody.all_positions.min_separation == np.inf
    assert nobody.all_positions.entropy_rank == 0

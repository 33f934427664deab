"""Where position tells about tokens: planted effects are found where they are, and no others."""

import jax
import numpy as np
import pytest

from jaxpe.analysis.corpus import CorpusResult
from jaxpe.analysis.corpus.result import Position
from jaxpe.analysis.corpus.where import half_distance, over_half_of_mean, where_position_tells
from jaxpe.geometry import count_tokens, rotate_within_documents
from jaxpe.geometry.counts.token_lists import token_lists
from jaxpe.geometry.distances.mutual_information import mutual_information
from jaxpe.geometry.distances.nearness import position_statistics
from jaxpe.geometry.noise.cross_validation import PositionHalves
from jaxpe.geometry.noise.position import PositionGeometry
from jaxpe.geometry.noise.split_half import SplitHalfGeometry

N, WORDS, DOCUMENTS = 12, 30, 600
KEYS = jax.random.split(jax.random.key(0), 4)


def documents(planted):
    """Documents of 6 to 12 words; half of the tokens at planted positions are of few words."""
    rng = np.random.default_rng(0)
    ids, lengths = rng.integers(0, WORDS, (DOCUMENTS, N)), rng.integers(6, N + 1, (DOCUMENTS, 1))
    at = np.arange(N)[None, :]
    marked = np.isin(np.where(at < lengths, at, N), planted) | np.isin(at - lengths, planted)
    marked &= rng.random(ids.shape) < 0.5
    return np.where(marked, rng.integers(0, 5, ids.shape), ids), at < lengths


@pytest.mark.parametrize("planted", [(), (0, 1, 2), (-1, -2)])
def test_planted_effects_are_found_where_they_are(planted):
    ids, mask = documents(planted)
    ids[0, 0] = WORDS  # a word of a single fold
    tokens = token_lists(ids, vocab_size=WORDS + 1, folds=16, mask=mask, groups=np.arange(len(ids)))
    nulls, end_nulls = ([tokens.rotated(k, ends_move=x) for k in KEYS] for x in (False, True))
    cut = mask[:, -1] & (np.arange(len(ids)) % 2 == 1)  # half of the longest
    options = {"end_nulls": end_nulls, "cut": cut}
    found = where_position_tells(tokens, nulls, key=KEYS[0], **options)
    assert (found.words, found.tokens) == (WORDS, mask.sum() - 1)
    if not planted:
        assert all(reach.bits.low < 0 < reach.bits.high for reach in found[:2])
        assert found.start.half is found.end.most is None
        return
    reach = found.start if planted[0] == 0 else found.end
    assert reach.bits.low > 0
    assert reach.half.low <= reach.half.estimate <= len(planted) <= reach.most.high
    assert reach.most.low <= len(planted)
    assert reach.curve[0, len(planted) - 1] > 0.8 * reach.bits.estimate


def test_the_bits_are_mutual_information_less_that_of_rotated_documents():
    ids, mask = documents((0, 1, 2))
    counted = {"vocab_size": WORDS, "mask": mask, "folds": 4, "groups": np.arange(len(ids))}
    rotated = [rotate_within_documents(key, ids, mask) for key in KEYS]
    counts, *nulls = [count_tokens(each, **counted) for each in (ids, *rotated)]
    found = where_position_tells(counts, nulls, key=KEYS[0])
    bits, *null = (
        mutual_information(x.merged().tokens, estimator="miller-madow") / np.log(2)
        for x in (counts, *nulls)
    )
    np.testing.assert_allclose(found.start.bits.estimate, bits - np.mean(null), atol=1e-5)
    assert found.end is None


def test_noise_hides_positions_from_half_of_their_mean_square_on():
    """The mean squared distance to the centroid is 4; the last position is not judged."""
    error = np.array([1.9, 2.1, *[0.0] * 6])
    for rank, hidden in ((1, [1, 7]), (0, [7])):
        position = Position(*[None] * 12)._replace(
            trace=28.0, present=np.arange(8) < 7, standard_errors=error, significant_rank=rank
        )
        result = CorpusResult(*[None] * 13)._replace(
            position=position, documents_per_position=np.ones(8)
        )
        assert result.rare_positions.tolist() == hidden


def test_half_of_the_mean_distance_is_that_over_all_pairs():
    """On a line of 7 positions half of the mean square is 14/3, between 2² and 3²."""
    x, present = np.arange(8.0), np.arange(8) < 7  # the last is absent
    squared, centred = (x[:, None] - x) ** 2, np.where(present, x - 3, 0)
    matrices = SplitHalfGeometry(np.outer(centred, centred), squared, present)
    geometry = PositionGeometry(*matrices, matrices, squared[None], present)
    statistics = position_statistics(geometry.squared_distances, geometry.present)
    # Scales that rotated documents share with the documents, split by split, widen nothing.
    scales = np.array([[1.0, 2.0], [3.0, 1.5]])
    documents = jax.tree.map(lambda x: np.multiply.outer(scales, x), statistics)
    null = jax.tree.map(lambda x: np.stack([x, x]), documents)
    matrices = jax.tree.map(lambda x: np.broadcast_to(x, (2, 2, *np.shape(x))), matrices)
    halves = PositionHalves(matrices, documents, null)
    over_half = over_half_of_mean(statistics.by_offset, geometry, halves)
    assert half_distance(np.asarray(over_half)) == (3, 3, 3)

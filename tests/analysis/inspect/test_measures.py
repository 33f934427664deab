"""Measures of an inspection on arrays and models whose truth is known, nulls first."""

from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe.analysis.inspect import position_probe, token_loss
from jaxpe.analysis.inspect.attention_statistics import (
    _jackknife,
    _statistics,
)
from jaxpe.analysis.inspect.documents import Sample
from jaxpe.analysis.inspect.flax_model import FlaxModel, ModelSizes, Trace
from jaxpe.analysis.inspect.offset_baseline import baseline_share, even_spread
from jaxpe.analysis.inspect.position_ablation import ablate_positions
from jaxpe.analysis.inspect.position_probe import probe_layers
from jaxpe.analysis.inspect.reach import context_reach, embedding_reach, gain_bounds
from jaxpe.analysis.inspect.rotary_bands import rotary_bands
from jaxpe.analysis.inspect.sinks import SinkSums, attention_sinks, sink_sums
from jaxpe.analysis.inspect.token_loss import _bin_means, _edges, loss_by_position, text_windows
from jaxpe.analysis.inspect.variance import MeanAndSpread, Spread
from jaxpe.geometry import position_decodability
from jaxpe.plans import RopeOptions, explain_rope

N, DOCUMENTS = 24, 16


class Fake(FlaxModel):
    """A model without a module: its losses and hidden states are given functions."""

    kind, causal, encodings, bounded, table_length = "causal", True, ("rotary",), False, None
    sizes, left_out = ModelSizes(1, 1, 8, 8, 10, 1000), ""

    def __init__(self, function=None, **fields):
        super().__init__(None)
        self.function = function
        vars(self).update(fields)

    def losses(self):
        return lambda ids, at, frequencies=None: self.function(np.asarray(ids), at, frequencies)

    def hidden(self):
        return lambda ids, at: self.function(np.asarray(ids))

    def unscaled_reason(self, context, rope):
        return ""


@pytest.fixture(scope="module")
def decoder():
    config = nn.TransformerConfig(
        vocab_size=12, dim=8, num_layers=1, num_heads=2, head_dim=8, init_scale=0.3
    )
    encoding = jaxpe.encodings.chain(
        jaxpe.encodings.rope(head_dim=8, base=50.0), jaxpe.encodings.sliding_window(size=8)
    )
    decoder = nn.Decoder(config, encoding=encoding, rngs=nnx.Rngs(1))
    return nn.CausalLM(decoder, rngs=nnx.Rngs(2))


@pytest.mark.parametrize("causal", [True, False])
def test_the_baseline_explains_offsets_alone(causal):
    rng = np.random.default_rng(0)
    offset = np.arange(N) - np.arange(N)[:, None]
    visible = np.tri(N, dtype=bool) if causal else np.ones((N, N), bool)

    def share(logits):
        weights = np.exp(logits) * visible
        weights /= weights.sum(axis=-1, keepdims=True)
        halves = [
            MeanAndSpread(one.mean(axis=1), even_spread(one, causal=causal))
            for one in (weights[:, ::2], weights[:, 1::2])
        ]
        return baseline_share(tuple(halves), causal=causal)[0]

    noise = rng.normal(size=(1, DOCUMENTS, 20, N, N))
    assert abs(share(noise).mean()) < 0.003  # null
    by_offset = np.sin(offset) - 0.1 * np.abs(offset)
    np.testing.assert_allclose(share(by_offset + 0 * noise), 1, atol=1e-6)
    assert 0.2 < share(by_offset + noise).mean() < 0.8
    by_key = 4.0 * (np.arange(N) == 5)
    assert share(by_key + 0 * noise).max() < 0.1  # a sink is at no offset


def test_sinks_are_found_where_they_are():
    even = np.tri(N) / np.arange(1, N + 1)[:, None]
    weights = np.broadcast_to(even, (1, DOCUMENTS, 2, N, N)).astype(np.float32).copy()
    hidden = np.ones((2, DOCUMENTS, N, 4), np.float32)
    ids = np.tile(np.arange(N), (DOCUMENTS, 1))
    tokens = [f"t{k}" for k in range(N)]

    def found(weights):
        sums = jax.jit(lambda *x: sink_sums(Trace(*x), causal=True))(weights, weights, hidden)
        sums = SinkSums(*(np.asarray(one, float) for one in sums))
        weight = sums.weight[..., 1:].mean(axis=-1)
        return attention_sinks(sums._replace(weight=weight), ids, tokens)

    for key, sinks in ((N - 1 - N // 4, 1), (N - N // 4, 0)):  # a quarter of the queries are later
        late = np.zeros_like(weights)
        late[..., key:, key] = 1.0
        assert found(late).rate.min() == found(late).rate.max() == sinks
    late[:, 1:, :, N // 2 :, 0] = 2.0  # of all documents but one
    most = found(late)
    for overall in (most.rate_overall, most.weight_overall):
        assert 0 < overall.low < overall.estimate < overall.high <= 1
    assert most.rate_overall.estimate == 1 - 1 / DOCUMENTS
    assert most.norm.mean.tolist() == [1, 1]
    null = found(weights)
    assert null.rate.max() == 0
    assert null.tokens == []
    assert np.isnan(null.norm.mean).all()
    weights[:, :, 1, 4:] = 0  # queries after key 3 give it half, and a learned sink the rest
    weights[:, :, 1, 4:, 3] = 0.5
    hidden[1, :, 3] = 100
    one = found(weights)
    assert one.rate.tolist() == [[0, 1]]
    assert (one.positions.tolist(), one.tokens) == ([3], ["t3"])
    assert one.weight[0, 1] == pytest.approx((0.5 * (N - 4) + 1 / 4) / (N - 1))
    assert one.norm.mean.tolist() == [1, 100]


def test_attention_is_averaged_over_the_queries_of_the_text_but_its_first():
    even = np.broadcast_to(np.tri(N) / np.arange(1, N + 1)[:, None], (1, 4, 1, N, N))
    ids, text = np.zeros((4, N), np.int32), slice(2, N - 1)
    statistics = jax.jit(partial(_statistics, text=text, special=(0,), causal=True))
    found = statistics(Trace(even, even, np.ones((2, 4, N, 3))), ids, even[:, :1]).documents
    first = np.mean(1 / np.arange(4, N))
    for name, value in (("first", first), ("special", 1), ("dummy", 1), ("other", 1)):
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


def test_each_group_is_left_out_of_its_half():
    """Share: the first half plus ten times the second, of groups 0, 2 and 1, 3."""
    groups = [MeanAndSpread(np.full((1, 1), x), Spread(*np.ones(3))) for x in (1.0, 2.0, 5.0, 8.0)]
    share = lambda halves: halves[0].mean + 10 * halves[1].mean  # noqa: E731
    by_layer, overall = _jackknife(groups, share)
    left_out = np.array([55, 83, 51, 23])  # 5 + 50, 3 + 80, 1 + 50, 3 + 20
    half = 3.182446305284263 * np.sqrt(3 * left_out.var())  # Student's t with three degrees
    assert overall.estimate == by_layer.mean[0] == 3 + 50
    assert overall.high == pytest.approx(53 + half)
    assert by_layer.low[0] == pytest.approx(53 - half)
    assert np.isnan(_jackknife(groups[:3], share)[1].low)


def test_bands_are_of_the_queries_and_keys_that_rotate(decoder):
    model = FlaxModel(decoder)
    rotation, run = model.rotations(None)
    ids = np.random.default_rng(0).integers(0, 12, (2, 6)).astype(np.int32)
    q, k = map(np.asarray, run(ids))
    logits = model.traced(lambda trace, ids: trace.logits)(ids)
    first = np.einsum("ldhw,ldhw->ldh", q[:, :, 0], k[:, :, 0]) / 8**0.5
    np.testing.assert_allclose(first, logits[..., 0, 0], atol=1e-5)
    q = q * np.isin(np.arange(8), (3, 7))  # the last pair alone
    found = rotary_bands(q, k, rotation, context=200)
    wavelengths = 2 * np.pi / rotation.angles
    assert wavelengths.tolist() == pytest.approx(2 * np.pi * 50 ** (np.arange(4) / 4))
    assert found.share.tolist() == [[[0, 1, 0]] * 2]


def test_bins_hold_the_losses_of_their_tokens_in_windows_that_do_not_overlap():
    of_tokens, edges = np.arange(1.0, 10.0), np.array([1, 5, 10])
    means = _bin_means(np.stack([of_tokens, -of_tokens]), edges)
    np.testing.assert_array_equal(means, np.outer([1, -1], [2.5, 7]))
    assert _edges(40, 24).tolist() == [1, 16, 24, 32, 40]
    assert text_windows(np.arange(7), count=5, length=3).tolist() == [[0, 1, 2], [4, 5, 6]]


def passage_losses(ids, at, frequencies):
    """The position, a share of it that is the smallest frequency, the id, and 100 times the row."""
    slowest = 0.0 if frequencies is None else frequencies.inverse[-1]
    return (at + slowest * at + ids + 100 * np.arange(len(ids))[:, None])[:, 1:]


def test_the_gain_from_far_context_is_against_the_passage_alone():
    """Alone, the tokens of a passage but its first have positions 1 to m − 1, with mean m/2.

    After another passage they have m more, and the distance. All of their ids are 7.
    """
    n, m = 140, 64
    texts = np.where(np.arange(n) < m, 0, 7) * np.ones((8, 1), np.int32)
    rope = explain_rope(RopeOptions(head_dim=8, context=n))
    found = loss_by_position(Fake(passage_losses), texts, context=n, rope=rope)
    slowest, after = 10_000.0 ** (-6 / 8), 1.5 * m
    assert (found.texts, found.passage) == (8, m)
    assert [one.name for one in found.scaled] == [token_loss.OWN]
    assert found.distances.tolist() == [0, round(n / 8), n, 2 * n, 4 * n]
    assert [one.name for one in found.far] == [token_loss.OWN, "linear ×4", "NTK ×4", "YaRN ×4"]
    own, linear = (one.gain.mean for one in found.far[:2])
    at = after + found.distances
    np.testing.assert_allclose(own, m / 2 - at * (1 + slowest))
    np.testing.assert_allclose(linear, m / 2 - at * (1 + slowest / 4))
    assert [one.multiple for one in found.scalings] == [2.0] * 3 + [4.0] * 3
    for change in found.scalings[::3]:
        by = slowest / change.multiple - slowest
        assert change.near.estimate == pytest.approx(after * by)
        assert change.far.estimate == pytest.approx((after + n * change.multiple) * by)


def test_context_beyond_a_window_never_counts(decoder):
    texts = np.random.default_rng(0).integers(0, 12, (4, 64)).astype(np.int32)
    assert context_reach(decoder, texts, parts=False).effective == 16

    def rounding(rows, *_):  # a longer context gains 5e-5 nats in every text
        return np.full((len(rows), rows.shape[1] - 1), 1 - 2.5e-5 * np.log2(rows.shape[1]))

    assert context_reach(Fake(rounding), texts, parts=False).effective == 16

    def noise(rows, *_):  # means over texts exceed 0 by chance alone
        return rng.normal(size=(len(rows), rows.shape[1] - 1))

    rng = np.random.default_rng(0)
    model, texts = Fake(noise), np.zeros((6, 128), np.int32)
    found = [context_reach(model, texts, parts=False) for _ in range(200)]
    said = [one.effective > 16 for one in found]
    decided = [gain_bounds(one).low[1] > 1e-4 for one in found]  # the table's interval
    assert decided == said
    assert [one.gain.low[1] > 1e-4 for one in found] != said
    assert np.mean(said) < 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


def test_the_effective_length_and_a_copy_lost_in_the_middle():
    def losses(rows, *_):
        """Copies from 48 tokens back; of repeated passages, all but those in the middle."""
        loss = np.where(np.arange(rows.shape[1]) < 48, 1.0, 0.1) * np.ones((len(rows), 1))
        for row, values in zip(rows, loss, strict=True):
            ends = (1, len(row) - 64)
            copies = [k for k in range(len(row) - 32) if (row[k : k + 32] == row[-32:]).all()]
            values[-32:] -= sum(0.5 if k in ends else 0.2 for k in copies)
        return loss[:, 1:]

    texts = np.random.default_rng(0).integers(0, 9999, (6, 256)).astype(np.int32)
    found = context_reach(Fake(losses), texts)
    np.testing.assert_allclose(found.parts.mean, [0.5, 0.2, 0.5])
    assert found.lost_in_the_middle
    assert (found.effective, found.low, found.high) == (64, 32, 128)


def test_parts_of_an_embedding_are_its_shares_of_the_tokens():
    """Each token is a direction of its own beside a common one, so a share k/n is missed by k/n."""
    rows = np.arange(3 * 8).reshape(3, 8)

    def hidden(ids):
        return np.insert(np.eye(24)[ids], 0, 1.0, axis=-1)

    found = embedding_reach(Fake(hidden, kind="encoder"), rows, text=slice(1, 8))
    np.testing.assert_allclose(found.parts.mean, [3 / 8, 2 / 8, 2 / 8])  # 7 tokens in thirds
    np.testing.assert_allclose(found.middle.mean, [-1 / 8, 0], atol=1e-12)
    assert found.lengths.tolist() == [7]


@pytest.mark.parametrize(("seen", "effective"), [(20, 32), (64, 64)])
def test_an_embedding_of_the_first_tokens(seen, effective):
    table = np.random.default_rng(0).normal(size=(50, 16))
    rows = np.random.default_rng(1).integers(0, 50, (5, 64))

    def hidden(rows):
        return np.where(np.arange(rows.shape[1])[:, None] < seen, table[rows], 0)

    found = embedding_reach(Fake(hidden), rows, text=slice(0, 64))
    assert found.effective == found.high == effective
    assert found.parts.mean[0] > 0.1
    assert (found.parts.mean[2] > 0.1) == (seen == 64)


def test_an_encoder_is_judged_by_its_mean_and_by_its_tokens():
    """A token is a direction in a plane: a tenth of its position, and half of its document."""

    def hidden(ids, at):
        angle = ids / 2 + at / 10
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32)

    rows = np.arange(4, dtype=np.int32)[:, None] * np.ones((1, 3), np.int32)
    model = Fake(kind="encoder")
    model.hidden = lambda: hidden
    found = ablate_positions(Sample(model, "embedding", rows, slice(0, 3), {}, 0))
    assert (found.shift, found.documents) == (1000, 4)
    moved = {one.name: one for one in found.moved}
    for change in (moved["shifted"].change.estimate, moved["shifted"].tokens.estimate - 1):
        assert change == pytest.approx(np.cos(100) - 1, abs=1e-4)
    assert moved["reversed"].change.estimate == pytest.approx(0, abs=1e-6)  # of its mean
    assert moved["reversed"].tokens.estimate == pytest.approx((1 + 2 * np.cos(0.2)) / 3)
    pairs = 3 * np.cos(0.5) + 2 * np.cos(1) + np.cos(1.5)
    assert found.reference == pytest.approx(pairs / 6)


def test_the_probe_chooses_its_ridge_where_it_is_fitted():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 8, 16, 40)).astype(np.float32)
    noise[1, ..., 0] += 3 * np.arange(16)
    found = probe_layers(noise)
    assert found.r2.mean[0] > -0.5  # with as many entries as tokens
    assert found.r2.mean[1] > 0.9
    assert (found.r2.low <= found.r2.high).all()
    assert found.by_chance == 4.0


def test_the_jackknife_of_the_probe_is_that_of_fits_without_each_group():
    layer = np.random.default_rng(0).normal(size=(18, 6, 3)) + np.arange(6)[:, None]
    pairs = np.arange(18) // 2  # of a fitted document and one judged; the last is in the first
    expected = [position_decodability(layer[pairs % 8 != k], ridge=0.1).r2 for k in range(8)]
    np.testing.assert_allclose(position_probe._jackknife(layer, 0.1), expected, rtol=1e-5)

"""Measures of an inspection on arrays and models whose truth is known, nulls first."""

from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe.analysis.attention.logit_sums import Rotation
from jaxpe.analysis.attention.variance import MeanAndSpread
from jaxpe.analysis.inspect import FlaxModel, Trace, context_reach, embedding_reach
from jaxpe.analysis.inspect.attention_statistics import _statistics
from jaxpe.analysis.inspect.offset_baseline import baseline_share, even_spread
from jaxpe.analysis.inspect.reach import gain_bounds
from jaxpe.analysis.inspect.rotary_bands import rotary_bands
from jaxpe.analysis.inspect.sinks import SinkSums, attention_sinks, sink_sums

N, DOCUMENTS = 24, 16


@pytest.fixture(scope="module")
def decoder():
    config = nn.TransformerConfig(
        vocab_size=12, dim=8, num_layers=1, num_heads=2, head_dim=8, init_scale=0.3
    )
    encoding = jaxpe.chain(
        jaxpe.rope(head_dim=8, base=50.0), jaxpe.encodings.sliding_window(size=8)
    )
    decoder = nn.Decoder(config, encoding=encoding, rngs=nnx.Rngs(1))
    return nn.CausalLM(decoder, rngs=nnx.Rngs(2))


class _Known(FlaxModel):
    """Stands for a model with given losses or hidden states."""

    def __init__(self, module, function):
        super().__init__(module)
        self.function = function

    def losses(self):
        return lambda ids, at, frequencies=None: self.function(np.asarray(ids))

    hidden = losses


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
        weight, outside = (x[..., 1:].mean(axis=-1) for x in (sums.weight, sums.outside))
        return attention_sinks(sums._replace(weight=weight, outside=outside), ids, tokens)

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
    assert one.outside[0].tolist() == pytest.approx([0, 0.5 * (N - 4) / (N - 1)], abs=1e-6)
    assert one.norm.mean.tolist() == [1, 100]


def test_a_sink_of_an_encoder_has_a_mean_over_the_other_queries():
    """Key 0 gets just more, or less, than 0.3 of each later query, and all of its own."""
    run = jax.jit(lambda weights, hidden: sink_sums(Trace(weights, weights, hidden), causal=False))
    for weight, sinks in ((0.301, 1), (0.299, 0)):
        weights = np.zeros((1, 1, 1, N, N), np.float32)
        weights[..., 0], weights[..., 0, 0] = weight, 1
        found = run(weights, np.ones((2, 1, N, 3), np.float32))
        assert found.heads[0, 0].tolist() == [sinks] + [0] * (N - 1)


def test_attention_is_averaged_over_the_queries_of_the_text_but_its_first():
    even = np.broadcast_to(np.tri(N) / np.arange(1, N + 1)[:, None], (1, 4, 1, N, N))
    ids, text = np.zeros((4, N), np.int32), slice(2, N - 1)
    statistics = jax.jit(partial(_statistics, text=text, special=(0,), causal=True))
    found = statistics(Trace(even, even, np.ones((2, 4, N, 3))), ids, even[:, :1]).documents
    first = np.mean(1 / np.arange(4, N))
    for name, value in (("first", first), ("special", 1), ("dummy", 1), ("other", 1)):
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


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
    assert found.wavelengths.tolist() == pytest.approx(2 * np.pi * 50 ** (np.arange(4) / 4))
    assert found.share.tolist() == [[[0, 1, 0]] * 2]


def test_bands_end_with_their_longest_wavelengths_and_heads_use_their_own_keys():
    rotation = Rotation(2 * np.pi / np.array([32, 33, 1000, 1001]), 8, "interleaved")
    pairs = np.eye(8).reshape(4, 2, 8).sum(axis=1)  # of entries of one wavelength
    k = pairs[[0, 3]]
    for head, band in enumerate((0, 0, 2, 2)):
        q = np.zeros((4, 8))
        q[head] = 1
        found = rotary_bands(q[None, None, None], k[None, None, None], rotation, context=1000)
        assert found.share[0, head].tolist() == np.eye(3)[band].tolist()
    q, k = pairs[None, None, None], np.ones((1, 1, 1, 1, 8))
    found = rotary_bands(q, k, rotation, context=1000)
    assert found.share[0].argmax(axis=-1).tolist() == [0, 1, 1, 2]


def test_context_beyond_a_window_never_counts(decoder):
    texts = np.random.default_rng(0).integers(0, 12, (4, 64)).astype(np.int32)
    assert context_reach(decoder, texts, parts=False).effective == 16

    def rounding(rows):  # a longer context gains 5e-5 nats in every text
        return np.full((len(rows), rows.shape[1] - 1), 1 - 2.5e-5 * np.log2(rows.shape[1]))

    assert context_reach(_Known(decoder, rounding), texts, parts=False).effective == 16

    def noise(rows):  # means over texts exceed 0 by chance alone
        return rng.normal(size=(len(rows), rows.shape[1] - 1))

    rng = np.random.default_rng(0)
    model, texts = _Known(decoder, noise), np.zeros((6, 128), np.int32)
    found = [context_reach(model, texts, parts=False) for _ in range(200)]
    said = [one.effective > 16 for one in found]
    decided = [gain_bounds(one).low[1] > 1e-4 for one in found]  # the table's interval
    assert decided == said
    assert [one.gain.low[1] > 1e-4 for one in found] != said
    assert np.mean(said) < 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


def test_the_effective_length_and_a_copy_lost_in_the_middle(decoder):
    def losses(rows):
        """Copies from 48 tokens back; of repeated passages, all but those in the middle."""
        loss = np.where(np.arange(rows.shape[1]) < 48, 1.0, 0.1) * np.ones((len(rows), 1))
        for row, values in zip(rows, loss, strict=True):
            ends = (1, len(row) - 64)
            copies = [k for k in range(len(row) - 32) if (row[k : k + 32] == row[-32:]).all()]
            values[-32:] -= sum(0.5 if k in ends else 0.2 for k in copies)
        return loss[:, 1:]

    texts = np.random.default_rng(0).integers(0, 9999, (6, 256)).astype(np.int32)
    found = context_reach(_Known(decoder, losses), texts)
    np.testing.assert_allclose(found.parts.mean, [0.5, 0.2, 0.5])
    assert found.lost_in_the_middle
    assert (found.effective, found.low, found.high) == (64, 32, 128)


@pytest.mark.parametrize(("seen", "effective"), [(20, 32), (64, 64)])
def test_an_embedding_of_the_first_tokens(decoder, seen, effective):
    table = np.random.default_rng(0).normal(size=(50, 16))
    rows = np.random.default_rng(1).integers(0, 50, (5, 64))

    def hidden(rows):
        return np.where(np.arange(rows.shape[1])[:, None] < seen, table[rows], 0)

    found = embedding_reach(_Known(decoder, hidden), rows, text=slice(0, 64))
    assert found.effective == found.high == effective
    assert found.parts.mean[0] > 0.1
    assert (found.parts.mean[2] > 0.1) == (seen == 64)


def test_the_ends_of_an_embedding_contain_its_length(decoder):
    """Each second text is settled by its first half, so its interval begins there."""
    table = np.random.default_rng(0).normal(size=(50, 16))
    rows = np.random.default_rng(1).integers(2, 50, (6, 64))
    rows[:, 0] = np.arange(6) % 2

    def hidden(rows):
        return np.where(
            np.arange(rows.shape[1])[:, None] < 32 + 32 * rows[:, :1, None], table[rows], 0
        )

    found = embedding_reach(_Known(decoder, hidden), rows, text=slice(0, 64), parts=False)
    assert (found.low, found.effective, found.high) == (32, 64, 64)

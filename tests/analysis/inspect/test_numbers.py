"""Numbers of the stages of an inspection, computed by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import jaxpe
from jaxpe.analysis.attention.documents import Sample
from jaxpe.analysis.attention.logit_sums import Rotation, Spread
from jaxpe.analysis.attention.variance import MeanAndSpread
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import (
    InspectOptions,
    ablate_positions,
    context_reach,
    embedding_reach,
    flax_model,
    job,
    loss_by_position,
    subject,
    token_loss,
    weights,
)
from jaxpe.analysis.inspect.attention_statistics import (
    _bands,
    _Batch,
    _dummies,
    _groups,
    _jackknife,
    _offset_weights,
)
from jaxpe.analysis.inspect.flax_model import FlaxModel
from jaxpe.analysis.inspect.model import ModelSizes
from jaxpe.analysis.inspect.sinks import SinkSums, _most_frequent, attention_sinks
from jaxpe.analysis.inspect.token_loss import _edges, text_windows
from jaxpe.data import tokens_from_ids
from jaxpe.plans import RopeOptions, explain_rope
from tests.report import factory


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


@pytest.mark.parametrize(
    ("n", "context", "edges"),
    [
        (40, 24, [1, 16, 24, 32, 40]),
        (40, 40, [1, 16, 32, 40]),
        (33, 0, [1, 16, 32, 33]),
        (32, 2, [1, 2, 16, 32]),
        (16, 1, [1, 16]),
    ],
)
def test_bins_double_and_one_begins_at_the_context(n, context, edges):
    assert _edges(n, context).tolist() == edges


def test_windows_do_not_overlap():
    assert text_windows(np.arange(7), count=5, length=3).tolist() == [[0, 1, 2], [4, 5, 6]]


def passage_losses(ids, at, frequencies):
    """The position, a share of it that is the smallest frequency, the id, and 100 times the row."""
    slowest = 0.0 if frequencies is None else frequencies.inverse[-1]
    return (at + slowest * at + ids + 100 * np.arange(len(ids))[:, None])[:, 1:]


@pytest.mark.parametrize(("n", "m"), [(40, 20), (140, 64)])
def test_the_gain_from_far_context_is_against_the_passage_alone(n, m):
    """Alone, the tokens of a passage but its first have positions 1 to m − 1, with mean m/2.

    After another passage they have m more, and the distance. All of their ids are 7.
    """
    texts = np.where(np.arange(n) < m, 0, 7) * np.ones((8, 1), np.int32)
    rope = explain_rope(RopeOptions(head_dim=8, context=n))
    found = loss_by_position(Fake(passage_losses), texts, context=n, rope=rope)
    slowest, after, rows = 10_000.0 ** (-6 / 8), 1.5 * m, 7 + 250  # of six texts
    assert (found.texts, found.passage, found.reach is None) == (8, m, n < 64)
    assert [one.name for one in found.scaled] == [token_loss.OWN]
    assert found.distances.tolist() == [0, round(n / 8), n, 2 * n, 4 * n]
    assert found.floor.estimate == pytest.approx(m / 2 + rows)
    assert found.near.estimate == pytest.approx(after * (1 + slowest) + rows)
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


def test_scalings_are_by_the_length_over_the_context():
    rope, texts = explain_rope(RopeOptions(head_dim=8, context=24)), np.zeros((2, 36), np.int32)
    found = loss_by_position(Fake(passage_losses), texts, context=24, rope=rope, far=False)
    assert [one.name for one in found.scaled][1:] == ["linear ×1.5", "NTK ×1.5", "YaRN ×1.5"]


def test_contexts_have_targets_in_common_and_parts_a_passage_of_another_text():
    read = []

    def losses(ids, at, frequencies):
        read.append(ids)
        return np.zeros((len(ids), len(at) - 1))

    context_reach(Fake(losses), np.zeros((7, 512), np.int32))
    # 128 targets in windows of 16 to 128 tokens, of six texts; then parts of their last 256 tokens.
    windows = [(6 * 128 // L, 2 * L) for L in (16, 32, 64, 128)]
    assert [ids.shape for ids in read] == [(6, 512), *windows, *[(6, 256)] * 4]
    read.clear()
    context_reach(Fake(losses), np.arange(128).reshape(2, 64))
    alone, start, middle, end = (ids[0].tolist() for ids in read[-4:])
    passage, text = [*range(112, 128)], [*range(32)]  # a quarter of the row each
    assert alone == [*range(48), *passage]
    assert start == [0, *passage, *text[1:], *passage]
    assert middle == [*text[:16], *passage, *text[16:], *passage]
    assert end == [*text, *passage, *passage]


@pytest.mark.parametrize(("spread", "high"), [(0.0176, 64), (0.0172, 32)])
def test_a_gain_counts_from_a_hundredth_of_a_nat(spread, high):
    """Three texts gain half of the spread and three lose it, so no context is significant.

    The interval ends at 2.5706 · √(6/5) / √6 of it, 0.0101 or 0.0099.
    """

    def losses(ids, at, frequencies):
        sign = np.where(ids[:, :1] % 2, 1, -1)
        return 1 - sign * spread / 2 * (len(at) > 32) + np.zeros((1, len(at) - 1))

    texts = np.broadcast_to(np.arange(8)[:, None], (8, 64)).astype(np.int32)
    found = context_reach(Fake(losses), texts, parts=False)
    assert (found.lengths.tolist(), found.effective, found.low) == ([16, 32], 16, 0)
    assert (found.texts, found.high) == (6, high)


def test_parts_of_an_embedding_are_its_shares_of_the_tokens():
    """Each token is a direction of its own beside a common one, so a share k/n is missed by k/n."""
    rows = np.arange(3 * 8).reshape(3, 8)

    def hidden(ids):
        return np.insert(np.eye(24)[ids], 0, 1.0, axis=-1)

    found = embedding_reach(Fake(hidden, kind="encoder"), rows, text=slice(1, 8))
    np.testing.assert_allclose(found.parts.mean, [3 / 8, 2 / 8, 2 / 8])  # 7 tokens in thirds
    np.testing.assert_allclose(found.middle.mean, [-1 / 8, 0], atol=1e-12)
    assert found.lengths.tolist() == [7]


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


def test_sinks_are_means_over_documents_and_shares_of_all():
    """One layer of two heads in two documents; sinks are in the first and second position."""
    by_head = np.array([[[1.0, 0], [1, 1]]])
    heads = np.array([[[0.5, 0, 0], [0.5, 0.25, 0]]])
    norm = np.array([[[3.0, 1, 1], [5, 1, 1]]] * 2)
    sums = SinkSums(by_head, 0.4 * by_head, 0.2 * by_head, heads, norm)
    found = attention_sinks(sums, np.array([[2, 1, 0], [1, 1, 0]]), ["a", "b", "c"])
    assert (found.rate.tolist(), found.rate_overall.estimate) == ([[1, 0.5]], 0.75)
    assert found.weight_overall.estimate == pytest.approx(0.3)
    np.testing.assert_allclose((found.weight, found.outside), [[[0.4, 0.2]], [[0.2, 0.1]]])
    assert (found.positions.tolist(), found.tokens) == ([0, 1], ["b", "c"])
    np.testing.assert_allclose((found.position_share, found.token_share), [[0.8, 0.2], [0.6, 0.4]])
    assert found.norm.mean.tolist() == [4, 4]


def test_the_most_frequent_have_shares_of_all():
    order, shares = _most_frequent(np.array([0.0, 1, 1, 3, 1, 1, 1]))
    assert (order.tolist(), shares.tolist()) == ([3, 1, 2, 4, 5], [3 / 8, *[1 / 8] * 4])


def batch(logits, count=2.0):
    """Sums over two documents of one head, `[1, 1, n, n]`."""
    logits = np.asarray(logits, float)[None, None]
    spread = Spread(*np.array([count, 0.0, 1.0]))
    fields = {"logits": logits, "weights": 10 * logits, "spread": spread, "weight_spread": spread}
    return _Batch(**dict.fromkeys(_Batch._fields) | fields)


def test_weights_by_offset_are_means_of_diagonals():
    parts = [batch(np.arange(9.0).reshape(3, 3) / 10)] * 2
    offsets = _offset_weights(parts, documents=4)
    np.testing.assert_allclose(offsets[0, 0], np.array([6, 5, 4, 3, 2]) / 2)


def test_groups_are_of_every_kth_batch():
    """Five batches of two documents: four groups, the first of batches 0 and 4."""
    batches = [batch([[k]]) for k in (2, 4, 6, 8, 14)]
    for of_weights, scale in ((False, 1), (True, 10)):
        groups = _groups(batches, 2, of_weights=of_weights)
        means = [x.mean.item() / scale for x in groups]
        assert means == [(2 + 14) / 4, 4 / 2, 6 / 2, 8 / 2]
        assert [float(x.spread.count) for x in groups] == [4, 2, 2, 2]
    assert [len(_groups(batches[:1] * k, 2)) for k in (3, 7, 16)] == [2, 6, 8]


def test_bands_are_of_the_first_groups_and_of_contexts_of_a_wavelength():
    rows, read = np.zeros((12, 3), np.int32), []
    rotation, model = Rotation(np.array([1.0, 0.001]), 4, "half_split"), Fake()
    ones = np.ones((1, 2, 3, 1, 4))
    model.rotations = lambda rope: (rotation, lambda ids: read.append(len(ids)) or (ones, ones))
    sample = Sample(model, "causal", rows, slice(0, 3), {}, 0)
    assert _bands(sample, 2, None, 32).edges.tolist() == [32, 32]
    assert read == [2] * 4
    assert _bands(sample, 2, None, 31) is None


def test_dummies_are_tokens_of_text_between_the_special_tokens():
    ids = np.arange(40, dtype=np.int32).reshape(4, 10)
    corpus = tokens_from_ids(ids)._replace(mask=ids < 36, exclude=tuple(range(26)))
    sample = Sample(None, "causal", ids, slice(1, 9), {}, 0)
    rows, tokens = _dummies(sample, corpus, np.random.default_rng(0))
    assert rows.shape == (4, 10)
    assert rows[:, [0, 9]].tolist() == [[0, 9]] * 4
    assert (rows[:, 1:9] == rows[:, 1:2]).all()
    assert {*rows[:, 1].tolist()} <= {*range(26, 36)}
    assert len({*tokens}) == 4


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


def test_the_geometry_of_a_table_is_that_of_its_row_of_a_report(monkeypatch):
    score = factory.score("model", family="model", stress=1.5, scaled_stress=0.25, mantel_r=0.7,
                          position_scaled_stress=0.35, violation_rate=0.2)  # fmt: skip
    own = [Interval(x / 10, 0, 1) for x in range(5)]
    ends = [Interval(x, x, x) for x in (1, 2, 3, 4)]
    analysis = factory.analysis(encodings=[factory.score("alibi"), score])
    held_out = analysis.held_out._replace(
        dim=2, own=own, fixed={"model": ends, "sinusoidal": ends[::-1]}
    )
    found = []
    monkeypatch.setattr(weights, "analyse_tokens", lambda *_, **__: analysis._replace(
        held_out=held_out
    ))  # fmt: skip
    monkeypatch.setattr(
        weights, "_random_order_stress", lambda table, *_, **__: found.append(table) or ends[0]
    )
    n = factory.N
    corpus = SimpleNamespace(ids=np.zeros((1, n)))
    geometry = getattr(weights.table_geometry, "__wrapped__", weights.table_geometry)
    stage = geometry(np.ones((n, 3)), corpus)
    assert found[0].shape == (n, 3)
    assert (stage.stress, stage.scaled_stress, stage.corrected) == (1.5, 0.25, 0.35)
    assert (stage.correlation, stage.violation_rate, stage.significant) == (0.7, 0.2, 2)
    # The widths are 8, 32, 64 and 128; the table is padded to the last.
    assert (stage.held_out, stage.sinusoidal, stage.own) == (ends[3], ends[0], own[1])
    assert (stage.positions, stage.documents) == (analysis.position.positions, 12_480)


def test_random_orders_have_a_mean_and_quantiles():
    """1 − (Σ δd)² / Σ δ² Σ d² for distances δ of the table in each order, and d of position."""
    analysis = factory.analysis()
    present = np.flatnonzero(analysis.position.present)
    table = np.random.default_rng(0).normal(size=(factory.N, 3))
    rng = np.random.default_rng([7, 5])
    d = np.sqrt(np.maximum(analysis.position.squared_distances[np.ix_(present, present)], 0))
    stresses = []
    for _ in range(200):
        rows = table[present][rng.permutation(len(present))]
        own = np.linalg.norm(rows[:, None] - rows, axis=-1)
        stresses.append(1 - (own * d).sum() ** 2 / ((own**2).sum() * (d**2).sum()))
    found = weights._random_order_stress(table, analysis, seed=7)
    expected = np.mean(stresses), *np.quantile(stresses, (0.025, 0.975))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_tables_and_biases_of_a_model(monkeypatch):
    rows = np.array([[3.0, 4, 0], [0, 1, 0], [3, 4, 0], [0, 1, 0], [3, 4, 0]])
    below = SimpleNamespace(
        tokens=SimpleNamespace(embedding=SimpleNamespace(get_value=lambda: rows[:2])),
        encoding=jaxpe.alibi(num_heads=2),
        encoding_params=SimpleNamespace(get_value=lambda: ()),
        layers=SimpleNamespace(attention=SimpleNamespace(encoding=jaxpe.identity())),
        pattern=SimpleNamespace(encodings=()),
        config=SimpleNamespace(num_heads=2, head_width=4),
        causal=True,
    )
    monkeypatch.setattr(weights, "trunk", lambda _: below)
    monkeypatch.setattr(weights, "position_table", lambda _, *, length: rows[:length])
    found = weights.describe_encoding(None, length=3, most=5)
    assert (found.table.norms.tolist(), found.table.token_norm) == ([5, 1, 5, 1, 5], 3)
    np.testing.assert_allclose(found.table.cosine, [1, -1, 1, -1, 1])  # rows about their mean
    np.testing.assert_allclose(found.bias[0], [-0.125, -0.0625, 0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("module", "context"), [(SimpleNamespace(length=512), 512), (SimpleNamespace(), 77)]
)
def test_the_context_is_of_the_table_or_of_the_file(module, context, tmp_path, monkeypatch):
    monkeypatch.setattr(flax_model, "trunk", lambda _: module)
    fields = {"model_type": "llama", "max_position_embeddings": 77}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert FlaxModel(None).context(tmp_path) == context


def test_positions_end_with_a_table_alone():
    fields = {"context": 40, "tokenizer": SimpleNamespace(prefix=(7, 2), suffix=(2,))}
    of = subject.InspectSubject(**dict.fromkeys(subject.InspectSubject._fields) | fields)
    for bounded, most in ((True, 40), (False, None)):
        one = of._replace(subject=SimpleNamespace(module=Fake(bounded=bounded)))
        assert (one.most, one._replace(context=0).most) == (most, None)
    assert of.special_ids == (2, 7)


SMALL, LARGE = ModelSizes(1, 1, 8, 100, 100, 110_000), ModelSizes(1, 1, 8, 100, 100, 10**9)


@pytest.mark.parametrize(
    ("options", "sizes", "context", "bounded", "longest"),
    [
        ({}, LARGE, 512, False, 1024),  # twice a small context
        ({}, LARGE, 513, False, 512),
        ({}, SMALL, 513, False, 1024),  # a small model has time for more
        ({"quick": True}, SMALL, 513, False, 256),
        ({}, SMALL, 0, False, 1024),
        ({}, SMALL, 600, True, 512),
        ({}, SMALL, 40, True, 40),
        ({"quick": True}, SMALL, 600, True, 256),
        ({"longest": 99}, SMALL, 40, True, 99),
        # 2e8 and 1.2e8 operations a token: 5e3 and 8.3e3 tokens in four passes of 1e12 · ¼.
        ({}, LARGE._replace(parameters=61_045_156), 513, False, 2048 // 2),
        ({}, LARGE._replace(parameters=61_045_157), 513, False, 512),
    ],
)
def test_texts_are_as_long_as_the_context_and_the_time_allow(
    options, sizes, context, bounded, longest
):
    """1e12 / (2 · (61,045,156 − 100²) · 4) is 2048.0000; one parameter more leaves less."""
    model = Fake(sizes=sizes, bounded=bounded)
    assert subject._longest(InspectOptions(model="m", **options), model, context) == longest


@pytest.mark.parametrize(
    ("options", "parameters", "examples"),
    [
        ({}, 20_000, 64),
        ({}, 10**9, 32),
        ({}, 76_768_446, 48),  # 1e12 / (2 · (76,768,446 − 100²) · 128) = 50.9
        ({"quick": True}, 20_000, 16),
        ({"examples": 9}, 20_000, 9),
    ],
)
def test_documents_are_as_many_as_time_allows(options, parameters, examples):
    model = Fake(sizes=SMALL._replace(parameters=parameters))
    assert subject._examples(InspectOptions(model="m", **options), model) == examples


def test_a_stream_ends_with_the_documents_that_suffice():
    texts, read = ["ab"] * 130, []
    tokenizer = SimpleNamespace(rows=lambda rows, _: [read.append(1) or [1, 2] for _ in rows])
    stream = getattr(subject._token_stream, "__wrapped__", subject._token_stream)
    for needed, count in ((1, 64), (128, 64), (129, 128), (9999, 130)):
        assert len(stream(tokenizer, texts, needed=needed)) == 2 * count
    assert stream(tokenizer, [], needed=1).shape == (0,)


@pytest.mark.parametrize(
    ("longest", "context", "quick", "lengths", "texts"),
    [
        (512, 0, False, (128, 256, 512), 8),
        (512, 511, True, (128, 256), 4),
        (100, 0, False, (100,), 8),
        (1024, 64, False, (64,), 8),
    ],
)
def test_needles_lie_in_texts_within_the_context(
    monkeypatch, longest, context, quick, lengths, texts
):
    found = {}
    monkeypatch.setattr(job, "needle_retrieval", lambda *_, **options: found.update(options))
    fields = {"longest": longest, "context": context, "quick": quick}
    of = subject.InspectSubject(**dict.fromkeys(subject.InspectSubject._fields) | fields)
    of = of._replace(subject=SimpleNamespace(module=None), sample=SimpleNamespace(seed=3))
    getattr(job._needles, "__wrapped__", job._needles)(of, None)
    assert (found["lengths"], found["texts"], found["seed"]) == (lengths, texts, 3)

"""Laws of an analysis of attention, on models whose logits are known; the obvious paths."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.attention import (
    AttentionAnalysis,
    AttentionOptions,
    Subject,
    analyse,
    head_ablation,
    logit_sums,
)
from jaxpe.analysis.attention import documents as attention_documents
from jaxpe.analysis.attention import job as spectra
from jaxpe.data import LabelledTokens, tokens_from_ids
from jaxpe.training.documents import Vocabulary

# As many layers, heads and positions as in tests of the command: what is compiled serves both.
LENGTH, LAYERS, HEADS, WIDTH, DOCUMENTS = 6, 2, 4, 8, 24


def documents(*, rows=DOCUMENTS, length=LENGTH, seed=0):
    ids = np.random.default_rng(seed).integers(0, 12, (rows, length)).astype(np.int32)
    labels = np.arange(rows, dtype=np.int32) % 2
    return LabelledTokens(tokens_from_ids(ids), labels, ("a", "b"), "ids")


def config(**options):
    sizes = {
        "vocab_size": 12,
        "dim": 8,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "head_dim": WIDTH,
    }
    scales = {"init_scale": 0.3, "embedding_scale": 1.0}
    return nn.TransformerConfig(**sizes | scales | options)


def subject(module, *, task="causal", **options):
    data = documents(**options)
    return Subject(module, data, Vocabulary(task, data.corpus.tokens))


def sample(module, *, examples=12, **options):
    return attention_documents.draw_sample(subject(module, **options), examples=examples)


@pytest.fixture(scope="module")
def biased():
    """Queries are 0, so that the logits are ALiBi's."""
    encoder = nn.Encoder(config(), encoding=jaxpe.alibi(num_heads=HEADS), rngs=nnx.Rngs(0))
    query = encoder.layers.attention.query
    query.kernel[...] = jnp.zeros_like(query.kernel[...])
    return analyse(AttentionOptions(examples=12, ablate=False), subject=subject(encoder))


@pytest.fixture(scope="module")
def rotary():
    """In the first head nothing turns but the first pair of entries."""
    decoder = nn.Decoder(config(), encoding=jaxpe.rope(head_dim=WIDTH, base=4.0), rngs=nnx.Rngs(1))
    model = nn.CausalLM(decoder, rngs=nnx.Rngs(2))
    kernel, pairs = decoder.layers.attention.query.kernel, WIDTH // 2
    others = jnp.array([k for k in range(WIDTH) if k % pairs])
    kernel[...] = kernel[...].at[0, :, others].set(0)
    return sample(model), analyse(AttentionOptions(examples=12), subject=subject(model))


@pytest.fixture(scope="module")
def traced(rotary):
    """Logits of the rows, and what heads give on the documents."""
    of, _ = rotary
    apply, params = nn.functionalize(of.transformer)
    trace = jax.jit(lambda ids: apply(params, ids, trace=True))  # both have one shape
    logits = np.asarray(trace(of.rows).logits, np.float64)
    return logits, trace(of.documents["ids"]).heads


def test_logits_of_the_offset_alone_are_said_to_be(biased):
    variance, parts = biased.variance, biased.parts
    np.testing.assert_allclose(variance.offset, 1, atol=1e-5)
    np.testing.assert_allclose(variance.place, 0, atol=1e-5)
    np.testing.assert_allclose(biased.means.toeplitz, 0, atol=1e-6)
    np.testing.assert_allclose(biased.single.toeplitz, 0, atol=1e-6)
    np.testing.assert_allclose(parts.share[..., -1], 1, atol=1e-5)
    np.testing.assert_allclose(parts.cross, 0, atol=1e-5)
    slopes = jaxpe.attention_logits(
        jaxpe.alibi(num_heads=HEADS), (), *(jnp.zeros((LENGTH, HEADS, WIDTH)),) * 2,
        q_positions=jnp.arange(LENGTH), k_positions=jnp.arange(LENGTH),
    )  # fmt: skip
    np.testing.assert_allclose(biased.means.logits[1], slopes, atol=1e-6)
    assert biased.pairs is None
    assert biased.ablations == []


def test_logits_without_position_are_those_of_the_tokens():
    encoder = nn.Encoder(config(), rngs=nnx.Rngs(0))
    of = sample(encoder, rows=400, examples=200)
    sums = logit_sums.sum_logits(of)
    both = sums.halves[0] + sums.halves[1]
    variance = spectra._variance(sums, causal=False)
    assert np.abs(variance.position).max() < 0.02
    assert np.abs(variance.shuffled).max() < 0.02
    assert variance.position.min() < 0 or variance.offset.min() < 0  # not clipped
    embedded = spectra._part_shares(both.embedded)
    assert embedded.share[..., 0] == pytest.approx(1)


def test_words_with_a_place_of_their_own_are_told_by_random_order():
    encoder = nn.Encoder(config(), rngs=nnx.Rngs(0))
    of = sample(encoder, rows=400, examples=200)
    usual = np.arange(LENGTH, dtype=np.int32)
    of = of._replace(rows=np.where(of.rows < 10, usual[None], of.rows))
    variance = spectra._variance(logit_sums.sum_logits(of), causal=False)
    assert (variance.position > 0.15).all()
    assert np.abs(variance.shuffled).max() < 0.03


def test_a_small_variance_survives_a_large_level():
    rng = np.random.default_rng(0)
    logits = 1e3 + rng.normal(0, 0.1, (6, HEADS, LENGTH, LENGTH))
    logits = jnp.asarray(logits, jnp.float32)
    spread = functools.partial(logit_sums.logit_spread, causal=True)
    found = spread(logits[:2]) + spread(logits[2:])
    kept = np.asarray(logits, np.float64)[..., np.tri(LENGTH, k=-1, dtype=bool)]
    assert found.variance.dtype == np.float32
    np.testing.assert_allclose(found.variance, kept.var(axis=(0, 2)), rtol=1e-3)
    np.testing.assert_allclose(found.mean, kept.mean(axis=(0, 2)), rtol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_a_level_does_not_make_the_distance_of_the_symbol_small(causal):
    mean = np.random.default_rng(0).normal(size=(LAYERS, HEADS, LENGTH, LENGTH))
    one, other = (
        spectra._spectra(jnp.asarray(x, jnp.float32), causal=causal)["szego"]
        for x in (mean, mean + 100)
    )
    assert one.min() > 0.01
    np.testing.assert_allclose(one, other, rtol=0.01)


def test_heads_without_logits_have_no_shares():
    encoder = nn.Encoder(config(), rngs=nnx.Rngs(0))
    query = encoder.layers.attention.query
    query.kernel[...] = query.kernel[...].at[:, :, WIDTH : 2 * WIDTH].set(0)
    one, other = logit_sums.sum_logits(sample(encoder)).halves
    both = one + other
    found = spectra._part_shares(both.parts)
    assert np.isnan(found.cross[:, 1]).all()
    assert np.isnan(found.share[:, 1]).all()
    assert np.isnan(found.residual[..., -1]).all()  # there is no bias
    assert np.isfinite(found.cross[:, 2]).all()


def test_means_are_those_of_traced_logits(rotary, traced):
    (_, found), (logits, _) = rotary, traced
    seen = np.tri(LENGTH, dtype=bool)
    mean = found.means.logits
    np.testing.assert_allclose(mean[..., seen], logits.mean(axis=1)[..., seen], atol=1e-5)
    assert np.isnan(mean[..., ~seen]).all()
    assert np.isnan(found.means.circulant).all()
    kept = logits[..., np.tri(LENGTH, k=-1, dtype=bool)]  # i ≠ j
    np.testing.assert_allclose(found.variance.level, kept.mean(axis=(1, 3)), atol=1e-5)
    np.testing.assert_allclose(found.variance.total, kept.var(axis=(1, 3)), rtol=1e-3)


def test_variance_is_split_as_by_hand(rotary, traced):
    (_, found), (logits, _) = rotary, traced
    seen = np.tri(LENGTH, k=-1, dtype=bool)
    halves = [logits[0, half::2, 1].mean(axis=0) for half in (0, 1)]
    a, b = (half - half[seen].mean() for half in halves)
    total = found.variance.total[0, 1]
    assert found.variance.position[0, 1] == pytest.approx((a * b)[seen].mean() / total, rel=1e-3)
    by_offset = sum(
        np.diagonal(a, -k).mean() * np.diagonal(b, -k).mean() * (LENGTH - k)
        for k in range(1, LENGTH)
    )
    expected = by_offset / seen.sum() / total
    assert found.variance.offset[0, 1] == pytest.approx(expected, rel=1e-3)


def test_pairs_are_those_of_the_encoding(rotary):
    _, found = rotary
    np.testing.assert_allclose(found.pairs.angles, 4.0 ** -np.arange(0, 1, 2 / WIDTH), rtol=1e-5)
    assert found.pairs.share.shape == (LAYERS, HEADS, WIDTH // 2)
    assert (found.pairs.share[:, 1:] > 0).all()
    # One pair alone is the whole.
    np.testing.assert_allclose(found.pairs.share[0, 0], [1, 0, 0, 0], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("encoding", "dim", "layout"),
    [
        (jaxpe.rope(head_dim=WIDTH, fraction=0.5), 4, "half_split"),
        (jaxpe.rope(head_dim=WIDTH, layout="interleaved"), 8, "interleaved"),
        (jaxpe.xpos(head_dim=WIDTH), 8, "half_split"),
        (jaxpe.alibi(num_heads=HEADS), None, None),
        (
            jaxpe.per_head([jaxpe.rope(head_dim=WIDTH), *[jaxpe.identity()] * (HEADS - 1)]),
            None,
            None,
        ),
    ],
)
def test_entries_that_turn_are_found(encoding, dim, layout):
    encoder = nn.Encoder(config(), encoding=encoding, rngs=nnx.Rngs(0))
    found = logit_sums.find_rotation(encoder)
    assert (found is None) == (dim is None)
    if found is not None:
        assert (found.rotary_dim, found.layout) == (dim, layout)
        np.testing.assert_allclose(found.angles, 10_000.0 ** (-2 * np.arange(dim // 2) / dim),
                                   rtol=1e-4)  # fmt: skip


def test_drops_are_those_of_closed_gates(rotary, traced):
    (of, found), (_, heads) = rotary, traced
    zero, mean = found.ablations
    assert (zero.kind, mean.kind) == ("zero", "mean")
    ids, mask = of.documents["ids"], of.documents["mask"]
    apply, params = nn.functionalize(of.module)

    @jax.jit
    def scores(gates, fill):
        """Of the model as it is, without the head, and with its mean instead."""
        runs = ({}, {"gates": gates}, {"gates": gates, "gate_fill": fill})
        logits = jnp.stack([apply(params, ids, mask=mask, **run).logits[:, :-1] for run in runs])
        targets = jax.nn.one_hot(ids[:, 1:], 12, dtype=logits.dtype)
        return (jax.nn.log_softmax(logits) * targets[None]).sum(axis=-1).mean(axis=(1, 2))

    gates = np.ones((LAYERS, HEADS), np.float32)
    gates[1, 0] = 0
    whole, without, filled = scores(gates, heads.mean(axis=(1, 2))).tolist()
    assert zero.score == pytest.approx(whole, rel=1e-5)
    assert zero.drop[1, 0] == pytest.approx(whole - without, abs=1e-5)
    assert mean.drop[1, 0] == pytest.approx(whole - filled, abs=1e-5)
    assert (zero.low <= zero.drop).all()
    assert (zero.drop <= zero.high).all()
    layer, head = zero.head
    assert zero.drop[layer, head] == zero.drop.max()


def test_a_deposit_is_told_from_chance():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 4, 50))
    spread = head_ablation._drops("zero", np.zeros(50), noise, rng)
    noise[1, 2] += 5
    one = head_ablation._drops("zero", np.zeros(50), noise, rng)
    assert spread.largest_share[0] < spread.share_by_chance
    assert one.head == (1, 2)
    assert one.largest_share[1] > one.share_by_chance
    assert one.entropy < spread.entropy
    assert one.p_value[1, 2] == pytest.approx(0.001)
    assert one.certain.sum() == 1
    assert np.isnan(
        head_ablation._drops("zero", np.zeros(50), noise, rng, tested=False).p_value
    ).all()


def test_answers_that_no_head_changes_have_intervals_with_a_width():
    rng = np.random.default_rng(0)
    for more, less in ((0.0, 0.0), (0.01, 0.01), (0.03, 0.005), (0.3, 0.1)):
        drop = rng.choice([1.0, -1.0, 0.0], p=[more, less, 1 - more - less], size=(1, 4000, 200))
        low, high = head_ablation._paired_shares(drop)
        assert (high - low).min() > 1 / 200
        assert np.mean((low <= more - less) & (more - less <= high)) > 0.92


def test_the_largest_is_found_where_every_head_does_harm():
    drop = np.full((2, 4, 8), -0.19)
    drop[1, 3] = -0.045
    found = head_ablation._drops("zero", np.zeros(8), drop, np.random.default_rng(0))
    assert found.head == (1, 3)
    assert found.p_value.min() > 0.5


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, size: rng.normal(size=size),
        lambda rng, size: rng.normal(size=size) + 3 * rng.normal(size=(1, 1, size[-1])),
        lambda rng, size: 1 - rng.exponential(size=size),
        lambda rng, size: rng.choice([-1.0, 0.0, 1.0], p=[0.03, 0.94, 0.03], size=size),
    ],
    ids=["normal", "in common", "skewed", "right or wrong"],
)
def test_noise_is_seldom_taken_for_a_loss_however_many_heads_there_are(draw):
    rng = np.random.default_rng(0)
    for heads in (12, 144):
        trials = (draw(rng, (heads // 12, 12, 64)) for _ in range(40))
        found = [head_ablation._p_values(drop, rng).min() <= 0.05 for drop in trials]
        assert np.mean(found) <= 0.13


def test_a_statistic_that_rounding_lifts_above_its_ties_is_a_tie():
    found = head_ablation._exceedance(np.array([1 + 1e-12, 1.1]), np.ones(9))
    np.testing.assert_allclose(found, [1.0, 0.1])


def test_a_loss_is_found_among_many_heads():
    rng = np.random.default_rng(0)
    drop = rng.normal(size=(12, 12, 64))
    drop[3, 7] += 1
    drop[5] = 0
    found = head_ablation._p_values(drop, rng)
    assert found[3, 7] <= 0.01
    np.testing.assert_array_equal(found[5], 1)


def test_rows_are_full_different_and_end_as_they_did():
    ids = np.full((12, 8), 3, np.int32)
    ids[:, 1:7] = np.random.default_rng(0).integers(4, 50, (12, 6))
    lengths = np.array([8, 8, 8, 8, 8, 8, 7, 5, 5, 5, 4, 4])
    mask = np.arange(8) < lengths[:, None]
    ids[:, 0], ids[np.arange(12), lengths - 1] = 1, 2  # [CLS] and [SEP]
    ids[1] = ids[0]
    corpus = tokens_from_ids(ids)._replace(mask=mask, exclude=(1, 2), ids=np.where(mask, ids, 0))
    rows = attention_documents._full_rows(corpus, examples=6, seed=0)
    assert rows.shape == (4, 8)  # half of the eleven that differ, as a multiple of four
    assert (rows[:, -1] == 2).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    short = attention_documents._full_rows(
        corpus._replace(mask=mask & (np.arange(8) < 5)), examples=6, seed=0
    )
    assert short.shape[1] == 5


def test_documents_are_as_many_as_there_is_time_for():
    lengths = np.array([3, 20, 9, 30, 5, 12])
    data = {"ids": np.zeros((6, 32), np.int32), "mask": np.arange(32) < lengths[:, None]}
    every = head_ablation._chunks(data, tokens=10_000)
    assert sum(len(chunk["ids"]) for chunk in every) == 6
    few = head_ablation._chunks(data, tokens=70)
    assert sum(len(chunk["ids"]) for chunk in few) == 4  # those that came first, and no fewer
    assert max(chunk["ids"].shape[1] for chunk in few) == 16


def test_a_saved_analysis_is_read_back(rotary, tmp_path):
    _, found = rotary
    for name, content in result_files(found, "spectral").items():
        (tmp_path / name).write_bytes(content)
    back = load_result(AttentionAnalysis, tmp_path / "spectral.json")
    assert back.facts == found.facts
    assert [drops.head for drops in back.ablations] == [drops.head for drops in found.ablations]
    jax.tree.map(np.testing.assert_array_equal, back._replace(seconds=found.seconds), found)


def test_scores_follow_from_the_model_and_its_task(rotary):
    of, _ = rotary
    encoder = nn.Encoder(config(), rngs=nnx.Rngs(0))
    score = attention_documents.ablation_score
    assert score(subject(of.module)) == "causal"
    assert score(subject(encoder, task="mlm")) == "embedding"
    assert score(subject(nn.Classifier(encoder, num_classes=2, rngs=nnx.Rngs(0)),
                         task="classify")) == "accuracy"  # fmt: skip


def test_what_cannot_be_looked_at_is_said():
    encoder = nn.Encoder(config(), rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="Linear has no transformer"):
        analyse(AttentionOptions(), subject=subject(nnx.Linear(3, 2, rngs=nnx.Rngs(0))))
    with pytest.raises(InputError, match="`length` is 3; pass at least 4"):
        analyse(AttentionOptions(), subject=subject(encoder, length=3))
    with pytest.raises(InputError, match="documents are too few to compare positions"):
        analyse(AttentionOptions(), subject=subject(encoder, rows=5))
    with pytest.raises(InputError, match="`examples` is 3; pass at least 4"):
        analyse(AttentionOptions(examples=3), subject=subject(encoder))
    masked = nn.MaskedLM(nn.Encoder(config(tie_embeddings=True), rngs=nnx.Rngs(0)),
                         rngs=nnx.Rngs(1))  # fmt: skip
    with pytest.raises(InputError, match=r"no \[MASK\]"):
        analyse(AttentionOptions(), subject=subject(masked, task="mlm"))
    with pytest.raises(InputError, match="`length` is 3; pass at least 4"):
        analyse(AttentionOptions(source="nowhere.txt", length=3))  # before anything is read


def test_more_than_memory_holds_is_refused_before_anything_is_read():
    with pytest.raises(InputError, match="`length=1000000` needs"):
        analyse(AttentionOptions(source="nowhere.txt", length=1_000_000))

"""Laws of what `jaxpe spectral` computes, on models whose logits are known; the obvious paths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import auditing, nn
from jaxpe._errors import InputError
from jaxpe.auditing import spectra
from jaxpe.data import LabelledTokens, tokens_from_ids
from jaxpe.training.documents import Vocabulary

LENGTH, HEADS, DOCUMENTS = 6, 2, 24


def documents(*, rows=DOCUMENTS, length=LENGTH, seed=0):
    ids = np.random.default_rng(seed).integers(0, 12, (rows, length)).astype(np.int32)
    labels = np.arange(rows, dtype=np.int32) % 2
    return LabelledTokens(tokens_from_ids(ids), labels, ("a", "b"), "ids")


def config(**options):
    sizes = {"vocab_size": 12, "dim": 8, "num_layers": 2, "num_heads": HEADS, "init_scale": 0.3}
    return nn.TransformerConfig(**sizes | {"embedding_scale": 1.0} | options)


def subject(module, score, *, examples=12, seed=0, **options):
    data = documents(**options)
    vocabulary = Vocabulary("causal", data.corpus.tokens)
    return auditing.spectral_subject(
        module, data, vocabulary, score=score, examples=examples, seed=seed
    )


@pytest.fixture(scope="module")
def biased():
    """Queries are 0, so that the logits are ALiBi's."""
    encoder = nn.Encoder(config(), encoding=jaxpe.alibi(num_heads=HEADS), rngs=nnx.Rngs(0))
    query = encoder.layers.attention.query
    query.kernel[...] = jnp.zeros_like(query.kernel[...])
    return auditing.spectra_of(subject(encoder, "embedding"), ablate=False)


@pytest.fixture(scope="module")
def rotary():
    decoder = nn.Decoder(config(), encoding=jaxpe.rope(head_dim=4, base=4.0), rngs=nnx.Rngs(1))
    model = nn.CausalLM(decoder, rngs=nnx.Rngs(2))
    of = subject(model, "causal")
    return of, auditing.spectra_of(of)


def test_logits_of_the_offset_alone_are_said_to_be(biased):
    variance, parts = biased.variance, biased.parts
    np.testing.assert_allclose(variance.offset, 1, atol=1e-5)
    np.testing.assert_allclose(variance.place, 0, atol=1e-5)
    np.testing.assert_allclose(biased.means.toeplitz, 0, atol=1e-6)
    np.testing.assert_allclose(biased.single["toeplitz"], 0, atol=1e-6)
    np.testing.assert_allclose(parts.share[..., -1], 1, atol=1e-5)
    np.testing.assert_allclose(parts.cross, 0, atol=1e-5)
    slopes = jaxpe.attention_logits(
        jaxpe.alibi(num_heads=HEADS), (), *(jnp.zeros((LENGTH, HEADS, 4)),) * 2,
        q_positions=jnp.arange(LENGTH), k_positions=jnp.arange(LENGTH),
    )  # fmt: skip
    np.testing.assert_allclose(biased.means.logits[1], slopes, atol=1e-6)
    assert biased.pairs is None
    assert biased.ablations == []


def test_logits_without_position_are_those_of_the_tokens():
    encoder = nn.Encoder(config(num_layers=1), rngs=nnx.Rngs(0))
    found = auditing.spectra_of(subject(encoder, "embedding", rows=400, examples=200), ablate=False)
    assert np.abs(found.variance.position).max() < 0.02
    assert found.variance.position.min() < 0 or found.variance.offset.min() < 0  # not clipped
    assert found.embedded.share[..., 0] == pytest.approx(1)


def test_means_are_those_of_traced_logits(rotary):
    of, found = rotary
    seen = np.tri(LENGTH, dtype=bool)
    logits = np.asarray(of.transformer(jnp.asarray(of.rows), trace=True).logits, np.float64)
    mean = found.means.logits
    np.testing.assert_allclose(mean[..., seen], logits.mean(axis=1)[..., seen], atol=1e-5)
    assert np.isnan(mean[..., ~seen]).all()
    assert np.isnan(found.means.circulant).all()
    kept = logits[..., np.tri(LENGTH, k=-1, dtype=bool)]  # i ≠ j
    np.testing.assert_allclose(found.variance.level, kept.mean(axis=(1, 3)), atol=1e-5)
    np.testing.assert_allclose(found.variance.total, kept.var(axis=(1, 3)), rtol=1e-3)


def test_variance_is_split_as_by_hand(rotary):
    of, found = rotary
    seen = np.tri(LENGTH, k=-1, dtype=bool)
    logits = np.asarray(of.transformer(jnp.asarray(of.rows), trace=True).logits, np.float64)
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
    np.testing.assert_allclose(found.pairs.angles, [1, 0.5], rtol=1e-5)
    assert found.pairs.share.shape == (2, HEADS, 2)
    # One pair alone is the whole.
    small = nn.Decoder(
        config(num_layers=1, head_dim=2), encoding=jaxpe.rope(head_dim=2), rngs=nnx.Rngs(1)
    )
    sums, turning = spectra._sums(subject(small, "embedding"))
    alone = spectra._pairs(sums[0], sums[0].parts.means(), turning)
    np.testing.assert_allclose(alone.share, 1, rtol=1e-4)


@pytest.mark.parametrize(
    ("encoding", "dim", "layout"),
    [
        (jaxpe.rope(head_dim=8, fraction=0.5), 4, "half_split"),
        (jaxpe.rope(head_dim=8, layout="interleaved"), 8, "interleaved"),
        (jaxpe.xpos(head_dim=8), 8, "half_split"),
        (jaxpe.alibi(num_heads=HEADS), None, None),
        (jaxpe.per_head([jaxpe.rope(head_dim=8), jaxpe.identity()]), None, None),
    ],
)
def test_entries_that_turn_are_found(encoding, dim, layout):
    encoder = nn.Encoder(config(num_layers=1, head_dim=8), encoding=encoding, rngs=nnx.Rngs(0))
    found = spectra._turning(encoder)
    assert (found is None) == (dim is None)
    if found is not None:
        assert (found.rotary_dim, found.layout) == (dim, layout)
        np.testing.assert_allclose(found.angles, 10_000.0 ** (-2 * np.arange(dim // 2) / dim),
                                   rtol=1e-4)  # fmt: skip


def test_drops_are_those_of_closed_gates(rotary):
    of, found = rotary
    zero, mean = found.ablations
    assert (zero.kind, mean.kind) == ("zero", "mean")
    chosen = of.documents

    def score(**gating):
        logits = of.module(chosen["ids"], mask=chosen["mask"], **gating).logits[:, :-1]
        targets = jax.nn.one_hot(chosen["ids"][:, 1:], 12, dtype=logits.dtype)
        return float((jax.nn.log_softmax(logits) * targets).sum(axis=-1).mean())

    gates = jnp.ones((2, HEADS)).at[1, 0].set(0)
    assert zero.score == pytest.approx(score(), rel=1e-5)
    assert zero.drop[1, 0] == pytest.approx(score() - score(gates=gates), abs=1e-5)
    heads = of.transformer(chosen["ids"], mask=chosen["mask"], trace=True).heads
    fill = heads.mean(axis=(1, 2))
    filled = score() - score(gates=gates, gate_fill=fill)
    assert mean.drop[1, 0] == pytest.approx(filled, abs=1e-5)
    assert (zero.low <= zero.drop).all()
    assert (zero.drop <= zero.high).all()
    layer, head = zero.head
    assert zero.drop[layer, head] == zero.drop.max()


def test_a_deposit_is_told_from_chance():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 4, 50))
    spread = spectra._drops("zero", np.zeros(50), noise, rng)
    noise[1, 2] += 5
    one = spectra._drops("zero", np.zeros(50), noise, rng)
    assert spread.largest_share[0] < spread.share_by_chance
    assert one.head == (1, 2)
    assert one.largest_share[1] > one.share_by_chance
    assert one.entropy < spread.entropy


def test_rows_are_full_different_and_end_as_they_did():
    ids = np.full((12, 8), 3, np.int32)
    ids[:, 1:7] = np.random.default_rng(0).integers(4, 50, (12, 6))
    lengths = np.array([8, 8, 8, 8, 8, 8, 7, 5, 5, 5, 4, 4])
    mask = np.arange(8) < lengths[:, None]
    ids[:, 0], ids[np.arange(12), lengths - 1] = 1, 2  # [CLS] and [SEP]
    ids[1] = ids[0]
    corpus = tokens_from_ids(ids)._replace(mask=mask, exclude=(1, 2), ids=np.where(mask, ids, 0))
    rows = spectra._full_rows(corpus, examples=6, seed=0)
    assert rows.shape == (4, 8)  # half of the eleven that differ, as an even number
    assert (rows[:, -1] == 2).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    short = spectra._full_rows(corpus._replace(mask=mask & (np.arange(8) < 5)), examples=6, seed=0)
    assert short.shape[1] == 5


def test_documents_are_as_many_as_there_is_time_for():
    lengths = np.array([3, 20, 9, 30, 5, 12])
    data = {"ids": np.zeros((6, 32), np.int32), "mask": np.arange(32) < lengths[:, None]}
    every = spectra._chunks(data, tokens=10_000)
    assert sum(len(chunk["ids"]) for chunk in every) == 6
    few = spectra._chunks(data, tokens=70)
    assert sum(len(chunk["ids"]) for chunk in few) == 4  # those that came first, and no fewer
    assert max(chunk["ids"].shape[1] for chunk in few) == 16


def test_what_cannot_be_looked_at_is_said():
    encoder = nn.Encoder(config(num_layers=1), rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="Linear has no attention heads"):
        subject(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), "embedding")
    with pytest.raises(InputError, match="only 3 positions of text in common, and 4"):
        subject(encoder, "embedding", length=3)
    with pytest.raises(InputError, match="documents are too few to compare positions"):
        subject(encoder, "embedding", rows=5)
    with pytest.raises(InputError, match="--examples is 3: pass at least 4"):
        subject(encoder, "embedding", examples=3)
    with pytest.raises(InputError, match=r"no \[MASK\]"):
        subject(encoder, "masked")

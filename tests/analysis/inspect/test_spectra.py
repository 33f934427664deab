"""Laws of spectra and parts of logits, and of ablated heads, on models whose logits are known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn
from jaxpe._core.errors import InputError
from jaxpe.analysis.inspect import documents as drawn
from jaxpe.analysis.inspect import head_ablation
from jaxpe.analysis.inspect.attention_statistics import inspect_attention
from jaxpe.analysis.inspect.head_ablation import head_drops
from jaxpe.analysis.inspect.head_spectra import logit_spectra as of_sample
from jaxpe.analysis.inspect.rotary_bands import find_rotation
from jaxpe.analysis.inspect.variance import logit_spread
from jaxpe.analysis.subject import Subject
from jaxpe.data import tokens_from_ids
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.nn.heads import trunk
from jaxpe.training.documents import Vocabulary

LENGTH, LAYERS, HEADS, WIDTH, DOCUMENTS = 6, 2, 4, 8, 24


def config(**options):
    sizes = {"vocab_size": 12, "dim": 8, "num_layers": LAYERS, "num_heads": HEADS}
    scales = {"head_dim": WIDTH, "init_scale": 0.3, "embedding_scale": 1.0}
    return nn.TransformerConfig(**sizes | scales | options)


def sample(module, *, examples=12, rows=DOCUMENTS, shortest=LENGTH):
    rng = np.random.default_rng(0)
    corpus = tokens_from_ids(rng.integers(0, 12, (rows, LENGTH)).astype(np.int32))
    lengths = np.where(np.arange(rows) % 2, LENGTH, rng.integers(shortest, LENGTH + 1, rows))
    corpus = corpus._replace(mask=np.arange(LENGTH) < lengths[:, None])
    data = LabelledTokens(corpus, np.arange(rows, dtype=np.int32) % 2, ("a", "b"), "ids")
    subject = Subject(module, data, Vocabulary("causal", corpus.tokens))
    return drawn.draw_sample(subject, examples=examples, score="causal"), corpus


@pytest.fixture(scope="module")
def rotary():
    decoder = nn.Decoder(
        config(), encoding=encodings.rope(head_dim=WIDTH, base=4.0), rngs=nnx.Rngs(1)
    )
    model = nn.CausalLM(decoder, rngs=nnx.Rngs(2))
    of, corpus = sample(model)
    return of, of_sample(of), inspect_attention(of, corpus=corpus)


@pytest.fixture(scope="module")
def traced(rotary):
    """Logits of the rows."""
    apply, params = nn.functionalize(trunk(rotary[0].module))
    trace = jax.jit(lambda ids: apply(params, ids, trace=True))
    return np.asarray(trace(rotary[0].rows).logits, np.float64)


def test_logits_of_the_offset_alone_are_said_to_be():
    """Queries are 0, so that the logits are ALiBi's."""
    encoder = nn.Encoder(config(), encoding=encodings.alibi(num_heads=HEADS), rngs=nnx.Rngs(0))
    query = encoder.layers.attention.query
    query.kernel[...] = jnp.zeros_like(query.kernel[...])
    of, corpus = sample(encoder)
    found, attention = of_sample(of), inspect_attention(of, corpus=corpus)
    for share in (attention.variance.offset, found.parts.share[..., -1]):
        np.testing.assert_allclose(share, 1, atol=1e-5)
    for rest in (attention.variance.place, found.toeplitz, found.parts.cross):
        np.testing.assert_allclose(rest, 0, atol=1e-5)
    # The steepest head looks at neighbours most; without content all documents are alike.
    assert attention.at_offset(-1)[0, 0] > attention.at_offset(-1)[0, -1]
    for overall in (attention.overall, attention.dummy, attention.other):
        assert overall.estimate == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("usual", [False, True])
def test_positions_explain_words_with_a_place_of_their_own_alone(usual):
    of, corpus = sample(nn.Encoder(config(), rngs=nnx.Rngs(0)), rows=400, examples=200)
    if usual:
        places = np.arange(LENGTH, dtype=np.int32)
        of = of._replace(rows=np.where(of.rows < 10, places[None], of.rows))
    variance = inspect_attention(of, corpus=corpus).variance
    assert np.abs(variance.shuffled).max() < 0.03
    if usual:
        assert (variance.position > 0.15).all()
        return
    assert np.abs(variance.position).max() < 0.02
    assert variance.position.min() < 0 or variance.offset.min() < 0  # not clipped


def test_a_small_variance_survives_a_large_level():
    rng = np.random.default_rng(0)
    logits = 1e3 + rng.normal(0, 0.1, (6, HEADS, LENGTH, LENGTH))
    logits = jnp.asarray(logits, jnp.float32)
    spread = functools.partial(logit_spread, causal=True)
    found = spread(logits[:2]) + spread(logits[2:])
    kept = np.asarray(logits, np.float64)[..., np.tri(LENGTH, k=-1, dtype=bool)]
    np.testing.assert_allclose(found.variance, kept.var(axis=(0, 2)), rtol=1e-3)
    np.testing.assert_allclose(found.mean, kept.mean(axis=(0, 2)), rtol=1e-6)


def test_means_are_those_of_traced_logits(rotary, traced):
    (_, found, attention), logits = rotary, traced
    seen = np.tri(LENGTH, dtype=bool)
    mean = logits.mean(axis=1) * seen
    singular = np.linalg.svd(mean, compute_uv=False)
    p = singular / singular.sum(axis=-1, keepdims=True)
    rank = np.exp(-(p * np.log(p)).sum(axis=-1))
    np.testing.assert_allclose(found.effective_rank, rank, rtol=1e-3)
    kept = logits[..., np.tri(LENGTH, k=-1, dtype=bool)]  # i ≠ j
    np.testing.assert_allclose(attention.variance.level, kept.mean(axis=(1, 3)), atol=1e-5)
    np.testing.assert_allclose(attention.variance.total, kept.var(axis=(1, 3)), rtol=1e-3)


@pytest.mark.parametrize(
    ("encoding", "dim", "layout"),
    [
        (encodings.rope(head_dim=WIDTH, fraction=0.5), 4, "half"),
        (encodings.rope(head_dim=WIDTH, layout="interleaved"), 8, "interleaved"),
        (encodings.alibi(num_heads=HEADS), None, None),
        (
            encodings.per_head(
                [encodings.rope(head_dim=WIDTH), *[encodings.identity()] * (HEADS - 1)]
            ),
            None,
            None,
        ),
    ],
)
def test_entries_that_turn_are_found(encoding, dim, layout):
    encoder = nn.Encoder(config(), encoding=encoding, rngs=nnx.Rngs(0))
    found = find_rotation(encoder)
    assert (found is None) == (dim is None)
    if found is not None:
        assert (found.rotary_dim, found.pairing) == (dim, layout)
        np.testing.assert_allclose(found.angles, 10_000.0 ** (-2 * np.arange(dim // 2) / dim),
                                   rtol=1e-4)  # fmt: skip


def test_drops_are_those_of_closed_gates(rotary):
    """Of documents of several lengths, each with the mean over its own tokens."""
    of = sample(rotary[0].module, shortest=3)[0]
    found, ids, mask = head_drops(of), of.documents["ids"], of.documents["mask"]
    apply, params = nn.functionalize(of.module)
    logits = jax.jit(lambda gates: apply(params, ids, mask=mask, gates=gates).logits[:, :-1])
    gates = np.ones((LAYERS, HEADS), np.float32)

    def score(gates):
        likelihood = np.asarray(jax.nn.log_softmax(logits(gates)))
        likelihood = np.take_along_axis(likelihood, ids[:, 1:, None], axis=-1)[..., 0]
        return np.ma.masked_array(likelihood, ~mask[:, 1:]).mean(axis=1).mean()

    whole = score(gates)
    gates[1, 0] = 0
    assert found.score == pytest.approx(whole, rel=1e-5)
    assert found.drop[1, 0] == pytest.approx(whole - score(gates), abs=1e-5)
    assert ((found.low <= found.drop) & (found.drop <= found.high)).all()
    assert found.drop[found.head] == found.drop.max()


def test_a_deposit_is_told_from_chance():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 4, 50))
    spread = head_ablation._drops("causal", np.zeros(50), noise, rng)
    noise[1, 2] += 5
    one = head_ablation._drops("causal", np.zeros(50), noise, rng)
    assert spread.largest_share.estimate < spread.share_by_chance
    assert (one.head, one.certain.sum()) == ((1, 2), 1)
    assert one.largest_share.low > one.share_by_chance
    assert one.p_value[1, 2] == pytest.approx(0.001)
    untested = head_ablation._drops("embedding", np.zeros(50), noise, rng)
    assert (one.tested, untested.tested) == (True, False)
    all_harm = np.full((2, 4, 8), -0.19)
    all_harm[1, 3] = -0.045
    found = head_ablation._drops("causal", np.zeros(8), all_harm, rng)
    assert found.head == (1, 3)
    assert found.p_value.min() > 0.5


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, size: rng.normal(size=size) + 3 * rng.normal(size=(1, 1, size[-1])),
        lambda rng, size: rng.choice([-1.0, 0.0, 1.0], p=[0.03, 0.94, 0.03], size=size),
    ],
    ids=["in common", "right or wrong"],
)
def test_noise_is_seldom_taken_for_a_loss_however_many_heads_there_are(draw):
    rng = np.random.default_rng(0)
    for heads in (12, 144):
        trials = (draw(rng, (heads // 12, 12, 64)) for _ in range(40))
        found = [head_ablation._p_values(drop, rng).min() <= 0.05 for drop in trials]
        assert np.mean(found) <= 0.13


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
    rows = drawn._full_rows(corpus, examples=6, seed=0)
    assert rows.shape == (4, 8)  # half of the eleven that differ, as a multiple of four
    assert (rows[:, -1] == 2).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    short = corpus._replace(mask=mask & (np.arange(8) < 5))
    assert drawn._full_rows(short, examples=6, seed=0).shape[1] == 5
    with pytest.raises(InputError, match="too few"):
        sample(None, rows=5)

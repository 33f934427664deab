"""T5 of Hugging Face: as transformers computes it, saved again, and refused."""

import json
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe._core.errors import InputError
from tests.nn.stored import PARITY, change, tensors, write
from tools.parity.make_t5 import ANSWERS, CASES, DECODER_MASK, IDS, MASK, SHORT

STORED = dict(np.load(PARITY / "t5.npz"))
PLACES = np.asarray(nn.padded_positions(MASK))
close = partial(np.testing.assert_allclose, rtol=0, atol=1e-5)


class Loaded:
    """One of the tiny models in float64, and its outputs."""

    def __init__(self, case):
        wide = {"dtype": jnp.float64, "param_dtype": jnp.float64}
        self.model = nn.load_seq2seq_lm(PARITY / case, **wide)
        self.stored = {
            name.removeprefix(f"{case}_"): array
            for name, array in STORED.items()
            if name.rpartition("_")[0] == case
        }
        graphdef, self.params = nnx.split(self.model)

        def whole(params, ids, answers, **options):
            return nnx.merge(graphdef, params)(ids, answers, **options)

        def cached(params, ids, answers, mask, decoder_mask, positions, decoder_positions):
            model = nnx.merge(graphdef, params)
            memory = model.transformer.encode(ids, mask=mask, positions=positions)
            cache = model.transformer.decoder.empty_cache(batch=3, slots=SHORT, memory=memory)
            logits = []
            for part in (slice(None, 3), slice(3, None)):
                where = {"mask": decoder_mask[:, part], "positions": decoder_positions[:, part]}
                out = model.decode(answers[:, part], cache=cache, **where)
                cache = out.transformer.cache
                logits.append(out.logits)
            return jnp.concatenate(logits, axis=1)

        self.whole = partial(jax.jit(whole), self.params)
        self.cached = partial(jax.jit(cached), self.params)


@pytest.fixture(scope="module", params=CASES)
def loaded(request):
    return Loaded(request.param)


@pytest.fixture(params=CASES)
def tiny(request, tmp_path):
    """A copy of a directory."""
    shutil.copytree(PARITY / request.param, tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def gated(tmp_path):
    shutil.copytree(PARITY / "tiny_t5_gated", tmp_path / "gated")
    return tmp_path / "gated"


def same(one, other):
    leaves = [jax.tree.leaves(nnx.state(model, nnx.Param)) for model in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


def test_hidden_states_and_logits_are_those_of_transformers(loaded):
    """Rows without padding, with padding on the right and on the left of both sides."""
    out = loaded.whole(IDS, ANSWERS, mask=MASK, decoder_mask=DECODER_MASK)
    found = {"encoder": out.encoder.hidden, "decoder": out.decoder.hidden, "logits": out.logits}
    for name, array in found.items():
        kept = MASK if name == "encoder" else DECODER_MASK
        close(np.asarray(array)[kept], loaded.stored[name][kept])
        assert np.abs(loaded.stored[name][kept]).max() > 0.5


def test_cached_decoding_equals_the_whole(loaded):
    """Positions count what is not padding, on both sides; offsets stay what they were."""
    places = np.asarray(nn.padded_positions(DECODER_MASK))
    found = loaded.cached(IDS, ANSWERS, MASK, DECODER_MASK, PLACES, places)
    close(np.asarray(found)[DECODER_MASK], loaded.stored["logits"][DECODER_MASK])


def test_greedy_tokens_are_those_of_transformers(loaded):
    found = nn.generate(loaded.model, IDS, steps=SHORT, start_id=0, mask=MASK)
    np.testing.assert_array_equal(found, loaded.stored["greedy"])


def test_heads_and_sizes_are_those_of_the_configuration():
    plain, gated = (nn.load_seq2seq_lm(PARITY / case) for case in CASES)
    assert plain.output is None
    assert plain.transformer.decoder.config.logit_scale == 32**-0.5
    assert gated.output is not None
    assert gated.transformer.decoder.config.logit_scale == 1.0
    assert gated.transformer.decoder.config.num_layers == 3
    assert gated.transformer.encoder.layers.attention.query.kernel.shape == (2, 32, 24)
    sizes = [sum(x.size for x in tensors(PARITY / case).values()) for case in CASES]
    assert [nn.parameter_count(model) for model in (plain, gated)] == sizes


def test_saved_and_loaded_again_it_is_the_same(tiny, tmp_path):
    model = nn.load_seq2seq_lm(tiny)
    nn.save_huggingface(model, tmp_path / "again", source=tiny)
    assert same(nn.load_seq2seq_lm(tmp_path / "again"), model)
    before, after = (
        json.loads((d / "config.json").read_text()) for d in (tiny, tmp_path / "again")
    )
    assert after == before
    stored, written = tensors(tiny), tensors(tmp_path / "again")
    assert stored.keys() == written.keys()
    assert all(np.array_equal(stored[name], written[name]) for name in stored)


def test_a_config_of_transformers_5_says_of_the_head_whether_it_is_scaled(gated):
    """It has tie_word_embeddings true in every T5, and heads of their own all the same."""
    before = nn.load_seq2seq_lm(gated)
    change(gated, tie_word_embeddings=True, scale_decoder_outputs=False)
    after = nn.load_seq2seq_lm(gated)
    assert same(before, after)
    assert after.transformer.decoder.config.logit_scale == 1.0


@pytest.mark.parametrize("changes", [{"dense_act_fn": "relu"}, {"is_gated_act": False}])
def test_fields_that_contradict_the_feed_forward_layer_are_refused(gated, changes):
    change(gated, dense_act_fn="gelu_new", is_gated_act=True)
    nn.load_seq2seq_lm(gated)
    change(gated, **changes)
    with pytest.raises(InputError, match=f"{next(iter(changes))} is .*, which changes"):
        nn.load_seq2seq_lm(gated)


def test_copies_of_the_table_are_left_alone(tiny):
    found = tensors(tiny)
    whole = found | {f"{side}.embed_tokens.weight": found["shared.weight"] for side in SIDES}
    write(tiny, whole | {UNUSED: np.zeros((8, 4), np.float32)})
    model = nn.load_seq2seq_lm(tiny)
    write(tiny, found)
    assert same(nn.load_seq2seq_lm(tiny), model)


SIDES = ("encoder", "decoder")
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def test_other_encodings_take_the_place_of_the_bias(gated, tmp_path):
    rope = jaxpe.rope(head_dim=6)
    model = nn.load_seq2seq_lm(gated)
    own = model(IDS[:1], ANSWERS[:1]).logits
    for side in SIDES:
        swapped = nnx.clone(model)
        below = nn.with_encoding(getattr(model.transformer, side), rope, key=jax.random.key(0))
        setattr(swapped.transformer, side, below)
        logits = swapped(IDS[:1], ANSWERS[:1]).logits
        assert logits.shape == (1, SHORT, 40)
        assert np.abs(logits - own).max() > 1e-3
        with pytest.raises(ValueError, match="checkpoint"):
            nn.save_huggingface(swapped, tmp_path / "no")


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"model_type": "umt5"}, "umt5.*; t5, mt5 are"),
        ({"feed_forward_proj": "gated-relu"}, "feed_forward_proj"),
        ({"num_decoder_layers": 4}, "block.3"),
        ({"num_decoder_layers": 2}, "decoder.block.2"),
        ({"d_kv": 8}, "shape"),
        ({"d_model": 10**9}, "d_model"),
        ({"num_layers": 10**6}, "num_layers"),
        ({"d_ff": "many"}, "d_ff"),
        ({"relative_attention_num_buckets": 3}, "relative_attention_num_buckets"),
        ({"relative_attention_num_buckets": 16}, "relative_attention_bias"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"is_decoder": True}, "is_decoder"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_config_that_contradicts_its_weights_is_refused(gated, changes, wrong):
    change(gated, **changes)
    with pytest.raises(InputError, match=wrong):
        nn.load_seq2seq_lm(gated)


@pytest.mark.parametrize("case", ["head", "layer", "unknown", "tables", "whole"])
def test_files_that_lack_or_add_tensors_are_refused(gated, case):
    found = tensors(gated)
    name = "decoder.block.1.layer.1.EncDecAttention.k.weight"
    if case == "head":
        del found["lm_head.weight"]
    elif case == "layer":
        del found[name]
    elif case == "unknown":
        found[name.replace("k.w", "g.w")] = found[name]
    elif case == "tables":
        found["encoder.embed_tokens.weight"] = 2 * found["shared.weight"]
    wrong = {"head": "lm_head", "layer": name, "unknown": "g.weight", "tables": "embed_tokens"}
    if case == "whole":
        path = gated / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    else:
        write(gated, found)
    with pytest.raises(InputError, match=wrong.get(case, "complete safetensors")):
        nn.load_seq2seq_lm(gated)


def test_another_encoder_decoder_is_not_written(tmp_path):
    sizes = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    encoder = nn.Encoder(sizes, rngs=nnx.Rngs(0))
    decoder = nn.Decoder(sizes, cross_encoding=jaxpe.identity(), rngs=nnx.Rngs(0))
    model = nn.Seq2SeqLM(nn.EncoderDecoder(encoder, decoder), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="no class for this Seq2SeqLM"):
        nn.save_huggingface(model, tmp_path)

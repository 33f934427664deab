"""T5 of Hugging Face: as transformers computes it, saved again, and refused."""

import json
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import nn
from jaxpe._core.errors import InputError
from tests.nn.stored import PARITY, change, tensors, write
from tools.parity.make_transformers_models import ANSWERS, DECODER_MASK, IDS, MASK, SHORT
from tools.parity.make_transformers_models import T5_CASES as CASES

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


def test_saved_and_loaded_again_it_is_the_same(tiny, tmp_path):
    model = nn.load_seq2seq_lm(tiny)
    nn.save_huggingface(model, tmp_path / "again", source=tiny)
    assert same(nn.load_seq2seq_lm(tmp_path / "again"), model)
    fields = (json.loads((d / "config.json").read_text()) for d in (tiny, tmp_path / "again"))
    assert next(fields) == next(fields)
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


def test_a_config_that_contradicts_its_weights_is_refused(gated):
    original = (gated / "config.json").read_text()
    for name, value in (
        ("model_type", "umt5"),
        ("feed_forward_proj", "gated-relu"),
        ("dense_act_fn", "relu"),
        ("num_decoder_layers", 4),
        ("num_decoder_layers", 2),
        ("d_kv", 8),
        ("d_ff", "many"),
        ("relative_attention_num_buckets", 16),
        ("tie_word_embeddings", True),
        ("is_decoder", True),
    ):
        change(gated, **{name: value})
        with pytest.raises(InputError):
            nn.load_seq2seq_lm(gated)
        (gated / "config.json").write_text(original)


def test_files_that_lack_or_add_tensors_are_refused(gated):
    found = tensors(gated)
    name = "decoder.block.1.layer.1.EncDecAttention.k.weight"
    for missing, extra, wrong in (
        ("lm_head.weight", {}, "lm_head"),
        (name, {}, name),
        (None, {name.replace("k.w", "g.w"): found[name]}, "g.weight"),
        (None, {"encoder.embed_tokens.weight": 2 * found["shared.weight"]}, "embed_tokens"),
    ):
        write(gated, {k: v for k, v in found.items() if k != missing} | extra)
        with pytest.raises(InputError, match=wrong):
            nn.load_seq2seq_lm(gated)

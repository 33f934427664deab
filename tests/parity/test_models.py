"""Tiny checkpoints of every architecture against what transformers computes of them.

Two programs for each: rows with and without padding at once, and a cache two tokens at a time.
"""

import functools
import json

import jax
import numpy as np
import pytest
from flax import nnx

from jaxpe.nn import (
    load_causal_lm,
    load_masked_lm,
    load_model,
    padded_positions,
    save_huggingface,
)
from tests.parity.make_models import DECODERS, ENCODERS, FOLDER, HERE, IDS, MASK, PADS, N

HF = dict(np.load(HERE / "models.npz"))
TOLERANCE = 1e-5
ROWS = IDS.astype(np.int32)
WIDTH = 2  # tokens that enter the cache at once


@functools.partial(jax.jit, static_argnums=0)
def run(graphdef, params, ids, mask, positions, cache=None):
    """Logits, the last hidden states, those after the first layer, and the cache."""
    model = nnx.merge(graphdef, params)
    options = {"mask": mask, "positions": positions}
    if cache is not None:
        out = model(ids, cache=cache, **options)
        return out.logits, None, None, out.transformer.cache
    out = model(ids, trace=True, **options)
    return out.logits, out.transformer.hidden, out.transformer.hidden_states[1], None


@pytest.fixture(scope="module", params=DECODERS)
def model(request):
    return request.param, load_causal_lm(FOLDER / request.param)


def close(ours, theirs):
    ours = np.asarray(ours)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


def test_hidden_states_logits_and_padding_on_the_left(model):
    name, model = model
    mask = np.concatenate([np.ones_like(MASK), MASK])
    ids = np.where(mask, np.concatenate([ROWS, ROWS]), 0)
    positions = np.asarray(padded_positions(mask))
    logits, hidden, state, _ = run(*nnx.split(model), ids, mask, positions)
    close(logits[:2], HF[f"{name}_logits"])
    close(hidden[:2], HF[f"{name}_hidden"])
    close(state[:2], HF[f"{name}_state"])
    close(logits[3, PADS:], HF[f"{name}_left"])


def test_a_cache_and_padding_on_the_right(model):
    """The second row's first tokens are padded, so that it is one token behind from there on."""
    name, model = model
    cache, wanted = model.decoder.empty_cache(batch=2, slots=N), HF[f"{name}_logits"]
    rows, behind = np.arange(2)[:, None], np.array([[0], [1]])
    valid = np.array([[True, True], [True, False]])
    for start in range(0, N, WIDTH):
        at = start + np.arange(WIDTH) - (behind if start else 0)
        ids = np.where(valid, ROWS[rows, at], 0)
        positions = at.astype(np.int32)
        logits, _, _, cache = run(*nnx.split(model), ids, valid, positions, cache)
        close(np.asarray(logits)[valid], wanted[rows, at][valid])
        valid = np.ones_like(valid)


def test_save_and_load_again(model, tmp_path):
    name, model = model
    save_huggingface(model, tmp_path / name)
    written, given = (
        json.loads((f / name / "config.json").read_text()) for f in (tmp_path, FOLDER)
    )
    assert written == given | {"dtype": "float32"}
    again = load_model(tmp_path / name)
    one, other = (nnx.state(m, nnx.Param) for m in (model, again))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), one, other)
    assert again.decoder.config == model.decoder.config


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name, tmp_path):
    """Hidden states and logits with padding on each side; saved, and loaded again."""
    model = load_masked_lm(FOLDER / name)
    mask = np.concatenate([MASK[:, ::-1], MASK])
    ids = np.where(mask, np.concatenate([ROWS, ROWS]), 0)
    positions = np.asarray(padded_positions(mask))
    logits, hidden, state, _ = run(*nnx.split(model), ids, mask, positions)
    for key, ours in (("logits", logits), ("hidden", hidden), ("state", state)):
        theirs = np.concatenate([HF[f"{name}_{key}"], HF[f"{name}_left_{key}"]])
        close(np.asarray(ours)[mask], theirs[mask])
    alone = load_model(FOLDER / name)
    one, other = (jax.tree.leaves(nnx.state(m, nnx.Param)) for m in (alone, model.encoder))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    if name == "deberta":
        with pytest.raises(ValueError, match="the tables of DeBERTa are read as projections"):
            save_huggingface(model, tmp_path)
        return
    for part in (model, alone):
        save_huggingface(part, tmp_path / name)
        again = (load_masked_lm if part is model else load_model)(tmp_path / name)
        one, other = (nnx.state(m, nnx.Param) for m in (part, again))
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), one, other)

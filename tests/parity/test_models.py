"""Tiny checkpoints of every architecture against what transformers computes of them."""

import jax
import numpy as np
import pytest
from flax import nnx

from jaxpe.nn import load_masked_lm, load_model, save_huggingface
from tests.parity.make_models import DECODERS, ENCODERS, FOLDER, HERE
from tests.parity.tiny_models import decoder_errors, encoder_errors

TOLERANCE = 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name, tmp_path):
    errors = decoder_errors(name, tmp_path)
    assert {key: error for key, error in errors.items() if error > TOLERANCE} == {}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name, tmp_path):
    errors = encoder_errors(name, tmp_path)
    assert {key: error for key, error in errors.items() if error > TOLERANCE} == {}


@pytest.mark.parametrize("name", ["roberta", "deberta"])
def test_an_encoder_without_its_head(name, tmp_path):
    alone, whole = load_model(FOLDER / name), load_masked_lm(FOLDER / name)
    one, other = (jax.tree.leaves(nnx.state(m, nnx.Param)) for m in (alone, whole.encoder))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    if name == "deberta":
        with pytest.raises(ValueError, match="the tables of DeBERTa are read as projections"):
            save_huggingface(alone, tmp_path)
        return
    save_huggingface(alone, tmp_path)
    again = jax.tree.leaves(nnx.state(load_model(tmp_path), nnx.Param))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_stored_cases_can_tell():
    """Windows, bases, caps and padding make a difference, and checkpoints are small."""
    stored = dict(np.load(HERE / "models.npz"))
    for name in DECODERS:
        assert np.abs(stored[f"{name}_logits"]).max() > 1
        assert np.abs(stored[f"{name}_left"] - stored[f"{name}_logits"][1, 3:]).max() > 0.05
        assert (FOLDER / name / "model.safetensors").stat().st_size < 60_000

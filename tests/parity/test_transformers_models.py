"""Whole models against Hugging Face's: tiny ones beside this file, real ones where they are."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from jaxpe.nn import Bert, load_classifier, load_masked_lm, padded_positions

HERE = Path(__file__).parent
HF = dict(np.load(HERE / "transformers_models.npz"))
SHOWN = HF["shown"]
TINY = ("tiny_bert", "tiny_mpnet")
REAL = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}
TOLERANCE = 2e-5


def real_directory(name):
    """Where the user keeps a real model; the test skips where there is none."""
    if models := os.environ.get("JAXPE_MODELS_DIR"):
        directory = Path(models) / name
    elif data := os.environ.get("JAXPE_DATA_DIR"):
        directory = Path(data) / "models" / name
    else:
        pytest.skip("JAXPE_MODELS_DIR is not set: no real models here")
    if not directory.is_dir():
        pytest.skip(f"{directory} is not there: python experiments/fetch_models.py makes it")
    return directory


def run(model, name, *, left="", **options):
    """A model on the stored sentences, compiled as a whole."""
    graphdef, params = nnx.split(model, nnx.Param)
    inputs = {"mask": HF[f"{name}{left}_mask"]}
    if f"{name}_token_types" in HF and not left:
        inputs["token_types"] = HF[f"{name}_token_types"]
    ids = HF[f"{name}{left}_ids"].astype(np.int32)
    apply = jax.jit(lambda p, i, rest: nnx.merge(graphdef, p)(i, **rest, **options))
    return apply(params, ids, inputs)


def close(ours, theirs, rows=None):
    """Equal where there is a token; padding is stored as 0."""
    ours = np.asarray(ours)
    assert ours.dtype == np.float32
    if rows is not None:
        ours = np.where(rows, ours, 0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


def check(model, name):
    output = run(model, name, trace=True)
    rows = HF[f"{name}_mask"][..., None]
    close(output.hidden, HF[f"{name}_last"], rows)
    close(output.pooled, HF[f"{name}_pooled"])
    stored = [key for key in HF if key.startswith(f"{name}_weights_")]
    layers = [key.rpartition("_")[2] for key in stored]
    assert len(layers) == 2
    for layer in layers:
        weights = output.transformer.weights[int(layer)][SHOWN]
        close(weights, HF[f"{name}_weights_{layer}"], rows[SHOWN][:, None])
        states = output.transformer.hidden_states[int(layer)][SHOWN]
        close(states, HF[f"{name}_hidden_{layer}"], rows[SHOWN])


@pytest.mark.parametrize("name", TINY)
def test_tiny_models(name):
    check(Bert.load(HERE / name), name)
    logits = run(load_masked_lm(HERE / name), name).logits
    close(logits, HF[f"{name}_masked_lm"], HF[f"{name}_mask"][..., None])
    close(run(load_classifier(HERE / name), name).logits, HF[f"{name}_classes"])


@pytest.mark.parametrize("name", REAL)
def test_real_models(name):
    check(Bert.load(real_directory(REAL[name]), scan=True), name)


@pytest.mark.parametrize("name", TINY)
def test_padding_on_the_left(name):
    mask = HF[f"{name}_left_mask"]  # BERT counts padding, MPNet does not
    positions = {} if name == "tiny_bert" else {"positions": np.asarray(padded_positions(mask))}
    hidden = run(Bert.load(HERE / name), name, left="_left", **positions).hidden
    close(hidden, HF[f"{name}_left_last"], HF[f"{name}_left_mask"][..., None])

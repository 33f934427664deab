"""Models of transformers in torch through their own code, against the JAX loader.

The suite has no torch, so most tests are skipped there; `experiments/beyond/inspect_types.py` runs
every type.
"""

import importlib.util
import json

import numpy as np
import pytest

from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe.analysis.inspect import InspectOptions, inspect_model, inspect_torch
from jaxpe.analysis.inspect.flax_model import FlaxModel
from jaxpe.analysis.inspect.rotary_bands import rotary_bands
from jaxpe.analysis.inspect.torch_model import TorchModel, load_torch
from jaxpe.nn import Bert, load_model
from tests.analysis.inspect.folders import text, with_tokenizer

WITH_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
needs_torch = pytest.mark.skipif(not WITH_TORCH, reason="the extra `torch` is not installed")
SIZES = {"length": 16, "examples": 8, "quick": True}


def both(name, folder):
    """A tiny checkpoint as both programs load it."""
    path = with_tokenizer(name, folder / name)
    module = load_model(path)
    return FlaxModel(module.encoder if isinstance(module, Bert) else module), load_torch(path)


@needs_torch
@pytest.mark.parametrize("name", ["tiny_llama", "tiny_bert"])
def test_traces_and_programs_are_those_of_the_loader(name, tmp_path):
    flax, torch = both(name, tmp_path)
    assert (flax.kind, flax.causal, flax.encodings) == (torch.kind, torch.causal, torch.encodings)
    assert flax.table_length == torch.table_length
    ids = np.random.default_rng(0).integers(5, 30, (2, 9)).astype(np.int32)
    traces = [
        model.traced(lambda trace, ids: (trace.logits, trace.weights, trace.hidden_states))(ids)
        for model in (flax, torch)
    ]
    for one, other in zip(*traces, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        if flax.causal and one.shape[-1] == 9:
            one, other = np.tril(one), np.tril(other)
        np.testing.assert_allclose(one, other, atol=1e-4)
    rope = flax.describe_encoding(path=tmp_path / name, length=9, most=None).rope
    rotations = [model.rotations(rope) for model in (flax, torch)]
    assert (rotations[0] is None) == (rotations[1] is None) == (name == "tiny_bert")
    if name != "tiny_bert":
        bands = [rotary_bands(*run(ids), turn, context=64).share for turn, run in rotations]
        np.testing.assert_allclose(*bands, atol=1e-4)
    for positions in (np.arange(9), np.arange(9)[::-1] + 3):
        at = positions.astype(np.int32)
        np.testing.assert_allclose(flax.hidden()(ids, at), torch.hidden()(ids, at), atol=1e-4)
        if flax.causal:
            np.testing.assert_allclose(flax.losses()(ids, at), torch.losses()(ids, at), atol=1e-4)


@needs_torch
def test_a_live_model_is_inspected_and_left_as_it_was(tmp_path):
    path = with_tokenizer("tiny_llama", tmp_path / "llama", special=False)
    words = str(text(tmp_path / "words.txt"))
    model = load_torch(path).model.train()
    before = (model.config._attn_implementation, [len(m._forward_hooks) for m in model.modules()])
    options = InspectOptions(model="mine", source=words, **SIZES)
    live = inspect_torch(model, str(path / "tokenizer.json"), options)
    after = (model.config._attn_implementation, [len(m._forward_hooks) for m in model.modules()])
    assert before == after
    assert model.training
    assert live.facts.model == "mine"
    named = InspectOptions(model=str(path), source=words, **SIZES)
    loaded = inspect_model(named)
    assert set(live.absent) == {"geometry", "spectral"}
    assert set(loaded.absent) == {"geometry"}
    assert live.attention.overall.estimate == pytest.approx(
        loaded.attention.overall.estimate, abs=1e-4
    )
    for one, other in zip(live.ablation.moved, loaded.ablation.moved, strict=True):
        assert one.value.estimate == pytest.approx(other.value.estimate, abs=1e-4)


@pytest.mark.skipif(WITH_TORCH, reason="the extra `torch` is installed")
def test_without_torch_an_architecture_is_named_before_its_tokenizer(tmp_path):
    folder = with_tokenizer("tiny_llama", tmp_path / "llama", special=False)
    (folder / "tokenizer.json").unlink()
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"model_type": "mpt"}))
    with pytest.raises(InputError, match=r"'mpt'.*jaxpe\[torch\]"):
        inspect_model(InspectOptions(model=str(folder)))
    with pytest.raises(MissingExtraError, match=r"jaxpe\[torch\]"):
        TorchModel(object())

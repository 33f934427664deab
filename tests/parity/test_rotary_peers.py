"""Rotary encodings against Hugging Face transformers, x-transformers and rotary-embedding-torch.

From the files that the `make_*.py` beside this one write. Peers compute phases in float32, so their
cos and sin are off by up to 3e-4 at positions of some thousands; ours are not, and tolerances say
whose error they allow.
"""

import json
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.encodings.families.rotary import rotary_permutation
from jaxpe.plans.scaling import scaling_from_hf


@cache
def peer(name):
    return dict(np.load(Path(__file__).with_name(f"{name}.npz")))


HF = peer("transformers_rope")
CASES = {case["name"]: case for case in json.loads(str(HF["cases"]))}
RET = peer("rotary_embedding_torch")
X = peer("x_transformers")


def turned(hook, x, positions, params=()):
    """Queries or keys at concrete positions, from one program."""
    return np.asarray(jax.jit(lambda params, x: hook(params, x, positions))(params, x))


def rotary_width(case):
    return 2 * HF[f"{case['name']}_inv_freq"].shape[0]


def frequencies(case, length):
    parameters = case["rope_parameters"]
    scaling = scaling_from_hf(parameters, max_position_embeddings=case["max_position_embeddings"])
    base = parameters["rope_theta"]
    if scaling is None:
        return encodings.inverse_frequencies(rotary_width(case), base=base), 1.0
    return scaling.frequencies(rotary_width(case), base, length)


@pytest.mark.parametrize("name", CASES)
def test_frequencies_of_every_rope_type(name):
    case = CASES[name]
    inverse, factor = frequencies(case, case["seq_len"])
    np.testing.assert_allclose(inverse, HF[f"{name}_inv_freq"], rtol=1e-6, atol=1e-12)
    assert factor == pytest.approx(case["attention_factor"], rel=1e-12)


# One of each type beyond its first length, and partial ones: others share their program.
TURNED = (
    *("default_64", "linear_partial", "dynamic_64_at_4096", "dynamic_partial_at_4096"),
    *("yarn_mscale", "yarn_partial", "longrope_64_at_1024", "longrope_64_at_4096"),
    *("longrope_partial", "llama3_partial", "proportional_factor"),
)


@pytest.mark.parametrize("name", TURNED)
def test_cos_and_sin_as_forward_gives_them(name):
    """Turning (1, 0) reads off cos and sin; the length is taken from the positions."""
    case = CASES[name]
    encoding = encodings.rope_from_hf(
        case["rope_parameters"],
        head_dim=case["head_dim"],
        max_position_embeddings=case["max_position_embeddings"],
    )
    half = rotary_width(case) // 2
    x = np.zeros((len(case["positions"]), 1, case["head_dim"]), np.float32)
    x[..., :half] = 1.0

    @jax.jit
    def found(positions):
        traced, _ = frequencies(case, jnp.max(positions) + 1)
        return encoding.query((), x, positions)[:, 0], traced

    rotated, traced = found(np.asarray(case["positions"], np.int32))
    np.testing.assert_allclose(traced, frequencies(case, case["seq_len"])[0], rtol=1e-5)
    np.testing.assert_allclose(rotated[:, :half], HF[f"{name}_cos"], atol=5e-4)
    np.testing.assert_allclose(rotated[:, half : 2 * half], HF[f"{name}_sin"], atol=5e-4)


POSITIONS = ["arange", "padded_packed", "far"]
MODELS = {
    "llama": {"layout": "half"},
    "neox": {"layout": "half", "fraction": 0.5},
    "gptj": {"layout": "interleaved"},
    "gptj_partial": {"layout": "interleaved", "fraction": 0.5},
    "glm": {"layout": "interleaved", "fraction": 0.5},
}


@pytest.mark.parametrize("model", [*MODELS, "deepseek"])
def test_rotated_queries_and_keys(model):
    """DeepSeek turns interleaved entries and returns them half-split."""
    encoding = encodings.rope(head_dim=16, **MODELS.get(model, {"layout": "interleaved"}))
    order = np.arange(16)
    if model == "deepseek":
        order = rotary_permutation(rotary_dim=16, source="interleaved", target="half")
    hooks = jax.jit(lambda q, k, i: (encoding.query((), q, i), encoding.key((), k, i)))
    for ids in POSITIONS:
        found = hooks(HF["q"], HF["k"], HF[f"position_ids_{ids}"])
        tolerance = 3e-4 if ids == "far" else 2e-6  # theirs, from float32 phases
        for ours, x in zip(found, "qk", strict=True):
            assert ours.dtype == jnp.float32
            theirs = HF[f"{model}_{ids}_{x}"]
            np.testing.assert_allclose(ours[..., order], theirs, atol=tolerance)


@pytest.mark.parametrize("section", [(4, 2, 2), (2, 3, 3)])
@pytest.mark.parametrize("model", ["qwen2", "qwen3"])
def test_multimodal_rotation(model, section):
    positions = np.moveaxis(HF["mrope_position_ids"], 0, -1)
    name = f"{model}_section_{'_'.join(map(str, section))}"
    entry = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": section}
    if model == "qwen3":
        entry["mrope_interleaved"] = True
        if section == (2, 3, 3):  # Qwen3-VL gives (3, 3, 2) without a word
            with pytest.raises(ValueError, match="cannot take turns"):
                encodings.rope_from_hf(entry, head_dim=16)
            return
    encoding = encodings.rope_from_hf(entry, head_dim=16)
    found = turned(encoding.query, HF["q"], positions)
    np.testing.assert_allclose(found, HF[f"{name}_q"], atol=2e-5)


def heads_last(x):
    """[batch, heads, positions, dim] to [batch, positions, heads, dim]."""
    return np.moveaxis(x, 1, 2)


@pytest.mark.parametrize("name", json.loads(str(RET["rotations"])))
def test_rotary_embedding_torch(name):
    case = json.loads(str(RET["rotations"]))[name]
    settings = dict(case["settings"])
    factor = settings.get("interpolate_factor", 1.0)
    theta, dim = float(settings.get("theta", 10_000.0)), settings["dim"]
    if "theta_rescale_factor" in settings:
        scaling = encodings.NtkScaling(settings["theta_rescale_factor"])
    else:
        scaling = None
    encoding = encodings.rope(
        head_dim=16, fraction=dim / 16, base=theta, layout="interleaved", scaling=scaling
    )
    positions = (np.arange(9) + case["offset"]) / np.float32(factor)
    ours = turned(encoding.query, heads_last(RET["q"]), positions.astype(np.float32))
    np.testing.assert_allclose(ours, heads_last(RET[f"{name}_q"]), atol=1e-4)


@pytest.mark.parametrize("name", json.loads(str(RET["axial"])))
def test_axial_of_rotary_embedding_torch(name):
    case = json.loads(str(RET["axial"]))[name]
    dims, axes = case["dims"], len(case["dims"])
    freqs = RET[f"axial_{name}_freqs"]
    if case["settings"].get("freqs_for", "lang") == "pixel":
        ticks = [np.linspace(-1, 1, n) for n in dims]
    else:
        ticks = [np.arange(n) + o for n, o in zip(dims, case["offsets"] or [0] * axes, strict=True)]
    grid = np.stack(np.meshgrid(*ticks, indexing="ij"), -1).reshape(-1, axes)
    x = RET[f"axial_{name}_x"]
    width = 2 * axes * len(freqs)
    encoding = encodings.axial_rope(
        head_dim=width, axes=axes, layout="interleaved", frequencies=freqs.astype(np.float64)
    )
    flat = x.reshape(2, -1, 1, x.shape[-1])[..., :width].astype(np.float32)
    ours = turned(encoding.query, flat, grid.astype(np.float32))
    theirs = RET[f"axial_{name}_rotated"].reshape(2, -1, 1, x.shape[-1])[..., :width]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", ["xpos", "xpos_small_base"])
def test_xpos(name):
    n, settings = RET["q"].shape[2], json.loads(str(RET["xpos"]))[name]
    base = float(settings.get("settings", settings).get("xpos_scale_base", 512))
    encoding = encodings.xpos(
        head_dim=16, scale_base=base, center=float(n // 2), layout="interleaved"
    )
    for hook, x in ((encoding.query, "q"), (encoding.key, "k")):
        ours = turned(hook, heads_last(RET[x]).astype(np.float32), np.arange(n))
        theirs = heads_last(RET[f"{name}_{x}"])
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5 * np.abs(theirs).max())


def test_polar_of_x_transformers():
    """PoPE, whose phases are used within −2π and 0."""
    q, k = (X[name].swapaxes(1, 2) for name in ("rotary_q", "rotary_k"))
    _, n, heads, dim = q.shape
    pope = encodings.pope(num_heads=heads, head_dim=dim)
    params = {"phase": X["pope_bias"][:, 0]}
    for hook, x in (("query", q), ("key", k)):
        found = turned(getattr(pope, hook), x, np.arange(n), params).swapaxes(1, 2)
        np.testing.assert_allclose(found, X[f"pope_{hook[0]}"], atol=3e-6)

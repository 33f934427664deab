"""Layers with a sink and with a gate against HF transformers, from the file beside."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import nn
from jaxpe.encodings import AttentionMask
from jaxpe.nn.attention import Context, MultiHeadAttention

HF = dict(np.load(Path(__file__).with_name("transformers_attention.npz")))
N, DIM = HF["x"].shape[1:]
HEADS, GROUPS, WIDTH = 4, 2, 8
KINDS = {
    "gpt_oss": {"attention_sink": True},
    "qwen3_next": {
        "attention_gate": True, "use_bias": False, "norm": "rms", "query_key_norm": True
    },
}  # fmt: skip


def weights_of(name):
    """Weights of the layer by our names; `q_proj` of Qwen3-Next has queries and gates by head."""
    named = {k.removeprefix(f"{name}."): x for k, x in HF.items() if k.startswith(f"{name}.")}
    if name == "qwen3_next":
        both = named.pop("q_proj.weight").reshape(HEADS, 2, WIDTH, DIM)
        named["q_proj.weight"], named["gate.weight"] = both.swapaxes(0, 1).reshape(2, -1, DIM)
    ours = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
    ours |= {"q_norm": "query_norm", "k_norm": "key_norm", "gate": "gate"}
    found = {}
    for path, x in named.items():
        module, _, kind = path.partition(".")
        if module == "sinks":
            found["sink"] = x
        elif module.endswith("norm"):
            found[f"{ours[module]}.scale"] = 1 + x
        else:
            found[f"{ours[module]}.{kind.replace('weight', 'kernel')}"] = x.T
    return found


@pytest.mark.parametrize("way", ["dense", "blocks"])
@pytest.mark.parametrize("name", KINDS)
def test_layer(name, way):
    sizes = {"vocab_size": 9, "dim": DIM, "num_layers": 1, "num_heads": HEADS, "head_dim": WIDTH}
    config = nn.TransformerConfig(**sizes, num_kv_heads=GROUPS, **KINDS[name], attention=way)
    layer = jax.eval_shape(lambda: MultiHeadAttention(config, rngs=nnx.Rngs(0)))
    graphdef, shapes = nnx.split(layer, nnx.Param)
    weights, i = weights_of(name), jnp.arange(N)

    def placed(path, shape):
        x = weights.pop(jax.tree_util.keystr(path[:-1], simple=True, separator="."))
        assert x.shape == shape.shape
        return jnp.asarray(x)

    params = jax.tree.map_with_path(placed, shapes)
    assert not weights

    @jax.jit
    def run(params):
        def attended(params, *, trace):
            context = Context(i, i, AttentionMask(i, i), trace=trace)
            return nnx.merge(graphdef, params)(HF["x"], context)

        slopes = jax.grad(lambda params: (attended(params, trace=False).output ** 2).sum())(params)
        traced = attended(params, trace=True)
        return attended(params, trace=False).output, traced.output, traced.weights, slopes

    out, traced, shares, slopes = run(params)
    np.testing.assert_allclose(out, HF[f"{name}_output"], atol=2e-5)
    np.testing.assert_allclose(traced, HF[f"{name}_output"], atol=2e-5)
    np.testing.assert_allclose(shares, HF[f"{name}_weights"], atol=2e-6)
    new = slopes["sink"] if name == "gpt_oss" else slopes["gate"]["kernel"]
    assert np.abs(new.get_value()).min() > 1e-4

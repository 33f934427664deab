"""Limits of configurations, and what parts without attention begin with."""

from functools import partial

import jax
import numpy as np
import pytest
import scipy.special
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe.nn.lipschitz import _SLOPES
from jaxpe.nn.recurrent import GatedDeltaNet
from tests.nn.models import config

experts = partial(nn.ExpertSizes, hidden_dim=2)
EIGHT = {"count": 8, "groups": 4}  # two in each group
# What makes sizes, options at the limit of what is allowed, and options just beyond.
LIMITS = [
    (config, {"dropout": 0.999}, {"dropout": 0.9991}),
    (config, {"attention_dropout": 0.0}, {"attention_dropout": -1e-9}),
    (config, {"norm_epsilon": 1e-30}, {"norm_epsilon": 0.0}),
    (config, {"norm_epsilon": 1e30}, {"norm_epsilon": np.inf}),
    (config, {"init_scale": 0.0}, {"init_scale": -1e-9}),
    (config, {"embedding_scale": 0.0}, {"embedding_scale": np.inf}),
    (config, {"residual_scale": 1e-9}, {"residual_scale": 0.0}),
    (config, {"embedding_factor": 1e-9}, {"embedding_factor": -1.0}),
    (config, {"attention_scale": 1e-9}, {"attention_scale": 0.0}),
    (config, {"attention_cap": 1e-9}, {"attention_cap": 0.0}),
    (config, {"layer_input_dim": 1}, {"layer_input_dim": 0}),
    (config, {"token_types": 1}, {"token_types": -1}),
    (config, {"head_dim": 1}, {"head_dim": 0}),
    (config, {"num_kv_heads": 1}, {"num_kv_heads": 0}),
    (config, {"by_layer": ((), ())}, {"by_layer": ((),)}),
    (partial(experts, chosen_groups=2, **EIGHT), {"chosen": 4}, {"chosen": 5}),
    (partial(experts, chosen_groups=9, **EIGHT), {"chosen": 8}, {"chosen": 9}),
    (partial(experts, chosen=1, **EIGHT), {"group_best": 2}, {"group_best": 3}),
    (partial(experts, chosen=1, groups=4), {"count": 8}, {"count": 7}),
    (
        partial(nn.DeltaNetSizes, key_heads=2, key_dim=1, value_dim=1),
        {"value_heads": 4},
        {"value_heads": 3},
    ),
    (nn.ConvolutionSizes, {"width": 1}, {"width": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "allowed", "refused"), LIMITS)
def test_sizes_at_and_beyond_their_limits(make, allowed, refused):
    make(**allowed)
    with pytest.raises(ValueError, match="pass"):
        make(**refused)


def test_a_delta_net_begins_with_the_published_decays():
    sizes = nn.DeltaNetSizes(key_heads=1, value_heads=64, key_dim=4, value_dim=4, width=4)
    layer = jax.jit(lambda: nnx.state(GatedDeltaNet(config(mixer=sizes), rngs=nnx.Rngs(0))))()
    rates = np.exp(layer["log_rate"].get_value())
    assert 1 <= rates.min() < 1.8
    assert 15.2 < rates.max() < 16
    np.testing.assert_array_equal(layer["decay_bias"].get_value(), 1.0)
    kernel = layer["convolution"]["kernel"].get_value()
    assert kernel.std() == pytest.approx(4**-0.5, rel=0.1)  # of the width, its inputs


def test_slopes_of_activations():
    """Bounds of their derivatives, as near as the digits they have."""
    x = np.linspace(-6.0, 6.0, 120_001)
    cube = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    values = {
        "relu": np.maximum(x, 0),
        "gelu": x * scipy.special.ndtr(x),
        "gelu_tanh": x * (1 + np.tanh(cube)) / 2,
        "silu": x * scipy.special.expit(x),
    }
    slopes = {name: np.abs(np.diff(y)).max() / 1e-4 for name, y in values.items()}
    assert slopes.keys() == _SLOPES.keys()
    for name, slope in slopes.items():
        assert slope - 1e-6 < _SLOPES[name] < slope + 2e-4


@pytest.mark.parametrize(
    "changes",
    [
        {"residual": "parallel"},
        {"residual_scale": 0.5},
        {"attention_cap": 2.0},
        {"attention_sink": True},
        {"experts": experts(count=2, chosen=1)},
    ],
)
def test_lipschitz_bounds_are_of_plain_layers(changes):
    def make():
        return nn.Encoder(config(norm="none", **changes), rngs=nnx.Rngs(0))

    with pytest.raises(ValueError, match=r"pass a model|build the model"):
        nn.lipschitz_bounds(nnx.eval_shape(make), n=2, radius=1.0)


def test_a_cache_may_lose_its_last_token():
    decoder = nn.Decoder(config(), encoding=jaxpe.identity(), rngs=nnx.Rngs(0))
    cache = decoder.empty_cache(batch=1, slots=4)._replace(length=np.int32(3))
    for start, count in ((2, 1), (0, 3)):
        jax.eval_shape(partial(nn.evict_tokens, decoder, cache, start=start, count=count))
    with pytest.raises(ValueError, match="filled ones"):
        nn.evict_tokens(decoder, cache, start=0, count=4)

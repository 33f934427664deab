"""Limits of configurations and of caches."""

from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from tests.nn.models import config

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
    (config, {"token_types": 1}, {"token_types": -1}),
    (config, {"head_dim": 1}, {"head_dim": 0}),
    (config, {"num_kv_heads": 1}, {"num_kv_heads": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "allowed", "refused"), LIMITS)
def test_sizes_at_and_beyond_their_limits(make, allowed, refused):
    make(**allowed)
    with pytest.raises(ValueError, match="pass"):
        make(**refused)


def test_a_cache_may_lose_its_last_token():
    decoder = nn.Decoder(config(), encoding=jaxpe.identity(), rngs=nnx.Rngs(0))
    cache = decoder.empty_cache(batch=1, slots=4)._replace(length=np.int32(3))
    for start, count in ((2, 1), (0, 3)):
        jax.eval_shape(partial(nn.evict_tokens, decoder, cache, start=start, count=count))
    with pytest.raises(ValueError, match="filled ones"):
        nn.evict_tokens(decoder, cache, start=0, count=4)

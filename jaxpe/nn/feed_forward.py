"""Feed-forward layer."""

from functools import partial

import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.layers import activation, dense, is_gated


class FeedForward(nnx.Module):
    """Feed-forward layer: down(f(up(x))), or gated down(f(gate(x))·up(x)) (Shazeer 2020)."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.activation = config.activation
        gated, dim, hidden = is_gated(config.activation), config.dim, config.hidden_width
        make = partial(dense, config, part="feed_forward", rngs=rngs)
        self.gate = make(dim, hidden) if gated else None
        self.up = make(dim, hidden)
        self.down = make(hidden, dim)

    def __call__(self, x: Float[ArrayLike, "... dim"]) -> Float[Array, "... dim"]:
        """Transformed hidden states; tokens do not interact."""
        x, nonlinear = jnp.asarray(x), activation(self.activation)
        if self.gate is None:
            return self.down(nonlinear(self.up(x)))
        return self.down(nonlinear(self.gate(x)) * self.up(x))

"""Feed-forward layer and transformer block."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings import Encoding, identity
from jaxpe.nn.attention import Attended, Context, Gates, LayerCache, make_attention
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.layers import activation, dense, dropout, is_gated, norm


class FeedForward(nnx.Module):
    """down(f(up(x))), or down(f(gate(x))·up(x)) where gated (Shazeer 2020)."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.activation = config.activation
        gated, dim, hidden = is_gated(config.activation), config.dim, config.hidden_width
        self.gate = dense(config, dim, hidden, rngs=rngs) if gated else None
        self.up = dense(config, dim, hidden, rngs=rngs)
        self.down = dense(config, hidden, dim, rngs=rngs)

    def __call__(self, x: Float[ArrayLike, "... dim"]) -> Float[Array, "... dim"]:
        """Transform each token by itself."""
        x, nonlinear = jnp.asarray(x), activation(self.activation)
        if self.gate is None:
            return self.down(nonlinear(self.up(x)))
        return self.down(nonlinear(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    """Attention and feed-forward, each with a residual and a norm before or after.

    Before: x + f(norm(x)). After: norm(x + f(x)). The block has parameters of `encoding` for
    itself, beside those of the context's.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> block = jaxpe.nn.Block(config, rngs=nnx.Rngs(0))
    >>> block(jnp.ones((2, 5, 8)), jaxpe.nn.Context(jnp.arange(5), jnp.arange(5))).output.shape
    (2, 5, 8)
    """

    def __init__(
        self, config: TransformerConfig, *, encoding: Encoding = identity(), rngs: nnx.Rngs
    ):
        self.config = config
        self.attention = make_attention(config, encoding=encoding, rngs=rngs)
        self.attention_norm = norm(config, rngs=rngs)
        self.mlp = FeedForward(config, rngs=rngs)
        self.mlp_norm = norm(config, rngs=rngs)

    def __call__(
        self,
        x: Float[ArrayLike, "... n dim"],
        context: Context,
        *,
        cache: LayerCache | None = None,
        gates: Gates | None = None,
        dropout_key: Array | None = None,
    ) -> Attended:
        """The block's output, with what attention had to say on the way."""
        x = jnp.asarray(x, self.config.dtype)
        keys = [None] * 3 if dropout_key is None else jax.random.split(dropout_key, 3)
        before = self.config.norm_position == "pre"
        rate = self.config.dropout
        entered = self.attention_norm if before else lambda x: x
        attended = self.attention(
            entered(x),
            context,
            source=None if context.embeddings is None else entered(context.embeddings),
            cache=cache,
            gates=gates,
            dropout_key=keys[0],
        )
        x = x + dropout(attended.output, rate=rate, key=keys[1])
        x = x if before else self.attention_norm(x)
        added = self.mlp(self.mlp_norm(x) if before else x)
        x = x + dropout(added, rate=rate, key=keys[2])
        return attended._replace(output=x if before else self.mlp_norm(x))

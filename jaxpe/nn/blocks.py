"""Transformer block."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings import Encoding, identity
from jaxpe.nn.attention import Attended, Context, Gates, LayerCache, make_attention
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.feed_forward import FeedForward
from jaxpe.nn.layers import NoNorm, dropout, norm


class Block(nnx.Module):
    """Transformer block: attention and feed-forward layer, each with a residual and norms.

    Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). Both: x + norm(f(norm(x))). Output: x +
    norm(f(x)). Parallel: x + attention(norm(x)) + mlp(norm(x)), with one norm or two. With `cross`,
    cross-attention follows attention (Vaswani et al. 2017). The block has its own parameters of
    `encoding`, which is chained with the shared encoding of the context.

    >>> from jaxpe import nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> block = Block(config, rngs=nnx.Rngs(0))
    >>> block(jnp.ones((2, 5, 8)), Context(jnp.arange(5), jnp.arange(5))).output.shape
    (2, 5, 8)
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        encoding: Encoding = identity(),
        cross: bool = False,
        rngs: nnx.Rngs,
    ):
        self.config = config
        output = config.norm_position == "output"
        self.attention: Any = make_attention(config, encoding=encoding, rngs=rngs)
        input_norm = NoNorm if output else partial(norm, config, rngs=rngs)
        self.attention_norm = input_norm()
        self.mlp = FeedForward(config, rngs=rngs)
        one = config.residual == "parallel_one_norm"
        self.mlp_norm = None if one else input_norm()
        both = output or config.norm_position == "both"
        self.attention_output_norm = norm(config, rngs=rngs) if both else None
        self.mlp_output_norm = norm(config, rngs=rngs) if both else None
        if not cross:
            return
        if config.residual != "sequential":
            raise ValueError(
                f"cross-attention is between attention and feed-forward layer, which are in "
                f"parallel with residual={config.residual!r}: pass 'sequential'"
            )
        self.cross_attention = make_attention(config, encoding=identity(), rngs=rngs)
        self.cross_norm = norm(config, rngs=rngs)
        self.cross_output_norm = norm(config, rngs=rngs) if both else None

    def __call__(
        self,
        x: Float[ArrayLike, "... n dim"],
        context: Context,
        *,
        cache: LayerCache | None = None,
        source_keys_values: LayerCache | None = None,
        gates: Gates | None = None,
        dropout_key: Array | None = None,
        first: Bool[ArrayLike, ""] | bool = False,
    ) -> Attended:
        """The block's output, with the results of attention.

        Args:
            x: hidden states.
            context: positions, mask and encoding, also of cross-attention.
            cache: keys and values of earlier tokens.
            source_keys_values: keys and values of the encoder's tokens for cross-attention; they
                replace the hidden states in the context.
            gates: gates of the heads.
            dropout_key: random key that switches dropout on.
            first: whether this is the first layer, which may have no norm before attention.
        """
        x = jnp.asarray(x, self.config.dtype)
        count = 3 if context.cross is None else 5
        keys = [None] * count if dropout_key is None else jax.random.split(dropout_key, count)
        rate, after = self.config.dropout, self.config.norm_position == "post"

        def attention_input(x: Array) -> Array:
            if after:
                return x
            normed = self.attention_norm(x)
            return normed if self.config.first_norm else jnp.where(first, x, normed)

        hidden = attention_input(x)
        attended = self.attention(
            hidden,
            context,
            source=None if context.embeddings is None else attention_input(context.embeddings),
            cache=cache,
            gates=gates,
            dropout_key=keys[0],
        )
        added = self._scaled(_optional_norm(self.attention_output_norm, attended.output))
        y = x + dropout(added, rate=rate, key=keys[1])
        y = self.attention_norm(y) if after else y
        if context.cross is not None:
            y, crossed = self._cross_attend(y, context.cross, source_keys_values, keys[3:])
            attended = attended._replace(cross=crossed)
        if self.mlp_norm is not None:
            source = y if self.config.residual == "sequential" else x
            hidden = y if after else self.mlp_norm(source)
        added = self._scaled(_optional_norm(self.mlp_output_norm, self.mlp(hidden)))
        y = y + dropout(added, rate=rate, key=keys[2])
        y = _optional_norm(self.mlp_norm, y) if after else y
        return attended._replace(output=y)

    def _cross_attend(
        self, x: Array, context: Context, source_keys_values: LayerCache | None, keys: Any
    ) -> tuple[Array, Attended]:
        """Hidden states after cross-attention and its residual, and its result."""
        after = self.config.norm_position == "post"
        crossed = self.cross_attention(
            x if after else self.cross_norm(x),
            context,
            source=context.embeddings,
            source_keys_values=source_keys_values,
            dropout_key=keys[0],
        )
        added = self._scaled(_optional_norm(self.cross_output_norm, crossed.output))
        x = x + dropout(added, rate=self.config.dropout, key=keys[1])
        return self.cross_norm(x) if after else x, crossed

    def _scaled(self, added: Array) -> Array:
        """Output of a sublayer times the configuration's factor."""
        scale = self.config.residual_scale
        return added if scale == 1.0 else added * jnp.asarray(scale, added.dtype)


def _optional_norm(layer: Callable[[Array], Array] | None, x: Array) -> Array:
    return x if layer is None else layer(x)

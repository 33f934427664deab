"""Feed-forward layer, dense or of experts."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float, Int32

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import compute_dtype, expand_rank
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.layers import activation, dense, is_gated

_BLOCK = 32  # tokens of one expert that are computed at once


class FeedForward(nnx.Module):
    """Feed-forward layer: down(f(up(x))), or gated down(f(gate(x))·up(x)) (Shazeer 2020).

    With `clip`, as in gpt-oss, down(g·σ(1.702·g)·(u + 1)), where g is the gate, at most `clip`, and
    u is up(x), between −`clip` and `clip`.
    """

    def __init__(self, config: TransformerConfig, *, clip: float | None = None, rngs: nnx.Rngs):
        self.activation, self.clip = config.activation, clip
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
        gate, up = self.gate(x), self.up(x)
        if self.clip is None:
            return self.down(nonlinear(gate) * up)
        gate, up = jnp.minimum(gate, self.clip), jnp.clip(up, -self.clip, self.clip)
        return self.down(gate * jax.nn.sigmoid(1.702 * gate) * (up + 1))


class Experts(nnx.Module):
    """Mixture of experts: Σ_e w_e·expert_e(x) over the few experts chosen for a token.

    Shazeer et al. (2017), Eq. (1), with the router of `ExpertSizes`. The output of a shared expert
    is added, with or without a gate σ(w·x). Tokens are sorted by expert and computed in blocks of
    one expert each, so that other experts cost nothing.

    >>> from flax import nnx
    >>> sizes = jaxpe.nn.ExpertSizes(count=4, chosen=2, hidden_dim=6)
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2,
    ...                                     activation="swiglu", experts=sizes)
    >>> experts = jaxpe.nn.Experts(config, rngs=nnx.Rngs(0))
    >>> experts(jnp.ones((5, 8))).shape
    (5, 8)
    """

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        sizes = config.experts
        if sizes is None:
            raise ValueError("a layer of experts needs their sizes: pass experts=ExpertSizes(...)")
        self.sizes, self.dtype = sizes, config.dtype

        def expert(hidden_dim: int, rngs: nnx.Rngs) -> FeedForward:
            narrow = dataclasses.replace(config, hidden_dim=hidden_dim)
            return FeedForward(narrow, clip=sizes.clip, rngs=rngs)

        inward = partial(dense, config, config.dim, part="feed_forward", rngs=rngs)
        self.router = inward(sizes.count)
        zeros = jnp.zeros(sizes.count, config.param_dtype)
        self.correction = nnx.Param(zeros) if sizes.correction else None
        keys = jax.random.split(rngs.params(), sizes.count)
        self.experts = jax.vmap(lambda key: expert(sizes.hidden_dim, nnx.Rngs(key)))(keys)
        self.shared = expert(sizes.shared_dim, rngs) if sizes.shared_dim else None
        self.shared_gate = inward(1) if sizes.shared_gate else None

    def __call__(self, x: Float[ArrayLike, "... dim"]) -> Float[Array, "... dim"]:
        """Transformed hidden states; tokens do not interact."""
        x = jnp.asarray(x, self.dtype)
        tokens = x.reshape(-1, x.shape[-1])
        out = self._mixed(tokens, *self.route(tokens)).reshape(x.shape)
        if self.shared is None:
            return out
        shared = self.shared(x)
        if self.shared_gate is not None:
            shared = jax.nn.sigmoid(self.shared_gate(x)) * shared
        return out + shared

    def route(
        self, x: Float[ArrayLike, "... dim"]
    ) -> tuple[Int32[Array, "... chosen"], Float[Array, "... chosen"]]:
        """Chosen experts of each token, and their weights in float32 or wider.

        Args:
            x: hidden states.
        """
        sizes, logits = self.sizes, self.router(jnp.asarray(x))
        logits = logits.astype(compute_dtype(logits))
        scores = jax.nn.sigmoid(logits) if sizes.scores == "sigmoid" else jax.nn.softmax(logits)
        ranks = scores
        if self.correction is not None:
            ranks = scores + expand_rank(self.correction.get_value(), scores.ndim, scores.dtype)
        if sizes.groups > 1:
            groups = (sizes.groups, sizes.count // sizes.groups)
            grouped = ranks.reshape(*ranks.shape[:-1], *groups)
            best = lax.top_k(grouped, sizes.group_best)[0].sum(-1)
            least = lax.top_k(best, sizes.chosen_groups)[0][..., -1:]
            ranks = jnp.where((best >= least)[..., None], grouped, -jnp.inf).reshape(ranks.shape)
        chosen = lax.top_k(ranks, sizes.chosen)[1]
        weights = jnp.take_along_axis(scores, chosen, axis=-1)
        if sizes.normalised:
            weights = weights / weights.sum(-1, keepdims=True)
        return chosen, weights * sizes.factor

    def _mixed(self, x: Array, chosen: Array, weights: Array) -> Array:
        """Weighted sum of the outputs of the chosen experts, `[tokens, dim]`."""
        count, total, each = self.sizes.count, chosen.size, chosen.shape[-1]
        if not total:
            return x
        flat_weights = weights.reshape(-1).astype(x.dtype)
        order = jnp.argsort(chosen.reshape(-1)).astype(jnp.int32)
        ends = jnp.cumsum(jnp.bincount(chosen.reshape(-1), length=count)).astype(jnp.int32)
        starts = jnp.pad(ends[:-1], (1, 0))
        width = min(_BLOCK, total)
        last_blocks = jnp.cumsum((ends - starts + width - 1) // width)
        first_blocks = jnp.pad(last_blocks[:-1], (1, 0))
        blocks = jnp.arange(min(total, total // width + count), dtype=jnp.int32)
        experts = jnp.searchsorted(last_blocks, blocks, side="right").astype(jnp.int32)
        experts = jnp.minimum(experts, count - 1)  # of the last blocks, which may be empty
        first_rows = starts[experts] + width * (blocks - first_blocks[experts])
        graphdef, params = nnx.split(self.experts)

        @jax.checkpoint
        def add_block(y: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            expert, first_row = block
            rows = first_row + jnp.arange(width, dtype=jnp.int32)
            pairs = order[rows]  # of a token and one of its experts
            weight = jnp.where(rows < ends[expert], flat_weights[pairs], 0)
            layer = nnx.merge(
                graphdef, jax.tree.map(lambda leaf: jnp.asarray(leaf)[expert], params)
            )
            tokens = pairs // each
            return y.at[tokens].add(weight[:, None] * layer(x[tokens])), None

        return lax.scan(add_block, jnp.zeros_like(x), (experts, first_rows))[0]


def make_feed_forward(config: TransformerConfig, *, rngs: nnx.Rngs) -> FeedForward | Experts:
    """Feed-forward layer, or one of experts if the configuration has their sizes."""
    layer = FeedForward if config.experts is None else Experts
    return layer(config, rngs=rngs)

"""Token mixers in place of attention: gated short convolutions and gated delta nets.

Both skip padding and restart at each segment of a packed row. A cache keeps their state, of a size
that does not grow with the row. Their dense layers have no biases.
"""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import Rows, compute_dtype, expand_rank
from jaxpe.encodings.context import causal_convolution
from jaxpe.nn.attention import Attended, Context, Gates, LayerCache
from jaxpe.nn.config import ConvolutionSizes, DeltaNetSizes, TransformerConfig
from jaxpe.nn.layers import dense, norm


class _Recurrent(nnx.Module):
    """Base of token mixers with a state; they are called as attention is."""

    config: TransformerConfig
    convolution: nnx.Conv

    def __call__(
        self,
        x: Float[ArrayLike, "... n dim"],
        context: Context,
        *,
        cache: LayerCache | None = None,
        gates: Gates | None = None,
        dropout_key: Array | None = None,
        source: None = None,
    ) -> Attended:
        """Mixed tokens; logits, weights and heads are None.

        Args:
            x: hidden states.
            context: padding and segments of the tokens; positions are not used.
            cache: state after the earlier tokens.
            gates, dropout_key: not used, as there are no heads and weights of attention.
            source: None, as tokens are mixed with earlier ones of their row.
        """
        if source is not None:
            raise ValueError("layers without attention mix their input: pass keys_from='hidden'")
        output, state = self._mixed(jnp.asarray(x), context.rows, cache or {})
        if cache is not None:
            cache = {name: state[name].astype(old.dtype) for name, old in cache.items()}
        return Attended(output, cache=cache)

    def empty_cache(self, shape: tuple[int, ...], **shared: object) -> LayerCache:
        """State before the first token of rows of ids `[*batch, n]`."""
        x = jax.ShapeDtypeStruct((*shape[:-1], 1, self.config.dim), self.config.dtype)
        state = jax.eval_shape(lambda x: self._mixed(x, Rows(), {})[1], x)
        return {name: jnp.zeros(leaf.shape, leaf.dtype) for name, leaf in state.items()}

    def _mixed(self, x: Array, rows: Rows, state: LayerCache) -> tuple[Array, LayerCache]:
        """Mixed tokens and the state after them; an empty state is before the first token."""
        raise NotImplementedError

    def _convolved(self, x: Array, rows: Rows, state: LayerCache) -> tuple[Array, Array]:
        kernel = self.convolution.kernel.get_value()[:, 0]
        rows = rows._replace(carry=state.get("window"))
        return causal_convolution(x, kernel.astype(x.dtype), rows)


class ShortConvolution(_Recurrent):
    """Gated short convolution: output(c · conv(b · v)), with b, c and v linear in x (LFM2).

    The convolution is depthwise, over the last `config.mixer.width` tokens.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2,
    ...                                     mixer=jaxpe.nn.ConvolutionSizes(width=3))
    >>> mixer = jaxpe.nn.ShortConvolution(config, rngs=nnx.Rngs(0))
    >>> mixer(jnp.ones((2, 5, 8)), jaxpe.nn.Context(jnp.arange(5), jnp.arange(5))).output.shape
    (2, 5, 8)
    """

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        if not isinstance(sizes := config.mixer, ConvolutionSizes):
            raise ValueError(f"mixer is {sizes!r}: pass mixer=ConvolutionSizes(...)")
        self.config = config = dataclasses.replace(config, use_bias=False)
        self.input = dense(config, config.dim, 3 * config.dim, part="query_key_value", rngs=rngs)
        self.convolution = _depthwise(config, sizes.width, config.dim, rngs=rngs)
        self.output = dense(config, config.dim, config.dim, part="attention_output", rngs=rngs)

    def _mixed(self, x: Array, rows: Rows, state: LayerCache) -> tuple[Array, LayerCache]:
        before, after, values = jnp.split(self.input(x), 3, axis=-1)
        convolved, window = self._convolved(before * values, rows, state)
        return self.output(after * convolved), {"window": window}


class GatedDeltaNet(_Recurrent):
    """Gated delta net: linear attention that overwrites values (Yang et al. 2025).

    Queries, keys and values pass a short convolution and SiLU; queries and keys are normalised.
    Per head `delta_rule` mixes tokens, with β = σ(W_β x) and log α = −exp(a)·softplus(W_α x + b).
    Outputs of heads are normalised and multiplied by SiLU of a gate, as in Qwen3-Next.

    >>> from flax import nnx
    >>> sizes = jaxpe.nn.DeltaNetSizes(key_heads=1, value_heads=2, key_dim=4, value_dim=3, width=4)
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2,
    ...                                     mixer=sizes)
    >>> mixer = jaxpe.nn.GatedDeltaNet(config, rngs=nnx.Rngs(0))
    >>> mixer(jnp.ones((2, 5, 8)), jaxpe.nn.Context(jnp.arange(5), jnp.arange(5))).output.shape
    (2, 5, 8)
    """

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        if not isinstance(sizes := config.mixer, DeltaNetSizes):
            raise ValueError(f"mixer is {sizes!r}: pass mixer=DeltaNetSizes(...)")
        self.config = config = dataclasses.replace(config, use_bias=False)
        self.sizes, heads = sizes, sizes.value_heads
        keys, values = sizes.key_heads * sizes.key_dim, heads * sizes.value_dim
        inward = partial(dense, config, config.dim, part="query_key_value", rngs=rngs)
        self.query, self.key, self.value = inward(keys), inward(keys), inward(values)
        self.gate, self.beta, self.decay = inward(values), inward(heads), inward(heads)
        self.convolution = _depthwise(config, sizes.width, 2 * keys + values, rngs=rngs)
        rates = jax.random.uniform(rngs.params(), (heads,), config.param_dtype, 1.0, 16.0)
        self.log_rate = nnx.Param(jnp.log(rates))
        self.decay_bias = nnx.Param(jnp.ones(heads, config.param_dtype))
        self.norm = norm(config, sizes.value_dim, rngs=rngs)
        self.output = dense(config, values, config.dim, part="attention_output", rngs=rngs)

    def _mixed(self, x: Array, rows: Rows, state: LayerCache) -> tuple[Array, LayerCache]:
        sizes, wide = self.sizes, compute_dtype(x)
        features = jnp.concatenate([self.query(x), self.key(x), self.value(x)], axis=-1)
        features, window = self._convolved(features, rows, state)
        keys = sizes.key_heads * sizes.key_dim
        parts = jnp.split(jax.nn.silu(features).astype(wide), (keys, 2 * keys), axis=-1)
        q, k = (_unit(part.reshape(*x.shape[:-1], -1, sizes.key_dim)) for part in parts[:2])
        v = parts[2].reshape(*x.shape[:-1], -1, sizes.value_dim)
        beta = jax.nn.sigmoid(self.beta(x).astype(wide))
        bias, rate = (p.get_value().astype(wide) for p in (self.decay_bias, self.log_rate))
        step = jax.nn.softplus(self.decay(x).astype(wide) + expand_rank(bias, x.ndim))
        alpha = jnp.exp(-expand_rank(jnp.exp(rate), x.ndim) * step)
        if rows.valid is not None:  # padding leaves the state as it is
            valid = expand_rank(rows.valid, x.ndim - 1)[..., None]
            beta, alpha = jnp.where(valid, beta, 0), jnp.where(valid, alpha, 1)
        if rows.starts is not None:
            alpha = jnp.where(expand_rank(rows.starts, x.ndim - 1)[..., None], 0, alpha)
        mixed, memory = delta_rule(q * sizes.key_dim**-0.5, k, v, alpha, beta, state.get("memory"))
        gate = jax.nn.silu(self.gate(x).reshape(v.shape))
        mixed = (self.norm(mixed.astype(x.dtype)) * gate).reshape(*x.shape[:-1], -1)
        return self.output(mixed), {"window": window, "memory": memory}


def make_mixer(config: TransformerConfig, *, rngs: nnx.Rngs) -> ShortConvolution | GatedDeltaNet:
    """Token mixer whose sizes the configuration has."""
    short = isinstance(config.mixer, ConvolutionSizes)
    return (ShortConvolution if short else GatedDeltaNet)(config, rngs=rngs)


def delta_rule(
    q: Float[ArrayLike, "... n key_heads key_dim"],
    k: Float[ArrayLike, "... n key_heads key_dim"],
    v: Float[ArrayLike, "... n heads value_dim"],
    alpha: Float[ArrayLike, "... n heads"],
    beta: Float[ArrayLike, "... n heads"],
    memory: Float[ArrayLike, "... heads key_dim value_dim"] | None = None,
) -> tuple[Array, Array]:
    """Gated delta rule: outputs `[..., n, heads, value_dim]`, and the last memory.

    M_t = α_t M_{t−1} + β_t k_t (v_t − α_t M_{t−1}ᵀ k_t)ᵀ and o_t = M_tᵀ q_t, token by token
    (Yang et al. 2025, Eq. (10)).

    Args:
        q, k: queries and keys, with a number of heads that divides the number of v.
        v: values.
        alpha: share of the memory that stays, in [0, 1].
        beta: share of the old value of a key that is overwritten, in [0, 1].
        memory: memory before the first token; zeros when None.

    >>> one = jnp.ones((3, 1, 1))
    >>> delta_rule(one, one, 2 * one, one[..., 0], one[..., 0] / 2)[0].ravel().tolist()
    [1.0, 1.5, 1.75]
    """
    q, k, v, alpha, beta = map(jnp.asarray, (q, k, v, alpha, beta))
    repeats = v.shape[-2] // k.shape[-2]
    q, k = (jnp.repeat(a, repeats, axis=-2) for a in (q, k))
    if memory is None:
        memory = jnp.zeros((*v.shape[:-3], v.shape[-2], k.shape[-1], v.shape[-1]), v.dtype)
    axis = v.ndim - 3
    tokens = tuple(jnp.moveaxis(a, axis, 0) for a in (q, k, v, alpha, beta))

    def step(memory: Array, token: tuple[Array, ...]) -> tuple[Array, Array]:
        q, k, v, alpha, beta = token
        memory = memory * alpha[..., None, None]
        error = (v - jnp.einsum("...kv,...k->...v", memory, k)) * beta[..., None]
        memory = memory + k[..., :, None] * error[..., None, :]
        return memory, jnp.einsum("...kv,...k->...v", memory, q)

    memory, outputs = lax.scan(step, jnp.asarray(memory, v.dtype), tokens)
    return jnp.moveaxis(outputs, 0, axis), memory


def _unit(x: Array) -> Array:
    """Vectors of length 1."""
    return x * lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True) + jnp.asarray(1e-6, x.dtype))


def _depthwise(config: TransformerConfig, width: int, channels: int, *, rngs: nnx.Rngs) -> nnx.Conv:
    """Depthwise convolution with kernel `[width, 1, channels]`."""
    return nnx.Conv(
        channels,
        channels,
        (width,),
        feature_group_count=channels,
        use_bias=False,
        param_dtype=config.param_dtype,
        kernel_init=nnx.initializers.normal(1 / math.sqrt(width)),
        rngs=rngs,
    )

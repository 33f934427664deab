"""Dense layers, norms, activations and dropout, as a configuration selects them."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jaxpe.encodings.base import compute_dtype
from jaxpe.nn.config import Biased, TransformerConfig

_DROPOUT_LEVELS = 2**16


def dense(
    config: TransformerConfig,
    features_in: int,
    features_out: int,
    *,
    part: Biased = "head",
    rngs: nnx.Rngs,
) -> nnx.Linear:
    """A dense layer with kernel `[in, out]`, initialised as the configuration says.

    Args:
        config: the configuration.
        features_in, features_out: widths.
        part: part of the model, which decides on a bias.
        rngs: for the initialisation.
    """
    return nnx.Linear(
        features_in,
        features_out,
        use_bias=config.has_bias(part),
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        kernel_init=nnx.initializers.normal(config.init_scale),
        dot_general=_flat_dot_general,
        rngs=rngs,
    )


def embedding(config: TransformerConfig, rows: int, *, rngs: nnx.Rngs) -> nnx.Embed:
    """Table of embeddings `[rows, dim]`."""
    return nnx.Embed(
        rows,
        config.dim,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        embedding_init=nnx.initializers.normal(config.embedding_scale),
        rngs=rngs,
    )


def norm(
    config: TransformerConfig, dim: int | None = None, *, rngs: nnx.Rngs
) -> "nnx.LayerNorm | nnx.RMSNorm | NoNorm":
    """Norm of the configuration over the last axis; statistics in float32 or wider."""
    if config.norm == "none":
        return NoNorm()
    shared: dict[str, Any] = {"epsilon": config.norm_epsilon, "dtype": config.dtype, "rngs": rngs}
    # E(x²) − E(x)² would cost digits where the mean is large.
    shared |= {"param_dtype": config.param_dtype, "use_fast_variance": False}
    dim = config.dim if dim is None else dim
    if config.norm == "rms":
        return _RMSNorm(dim, **shared)
    return _LayerNorm(dim, use_bias=config.has_bias("norm"), **shared)


class NoNorm(nnx.Module):
    """Identity, for norm="none"."""

    def __call__(self, x: Array) -> Array:
        """The input."""
        return x


# Flax promotes float32 with float64, which JAX allows in its standard mode only.
class _LayerNorm(nnx.LayerNorm):
    def __call__(self, x: Array) -> Array:
        with jax.numpy_dtype_promotion("standard"):
            return super().__call__(x)


class _RMSNorm(nnx.RMSNorm):
    def __call__(self, x: Array) -> Array:
        with jax.numpy_dtype_promotion("standard"):
            return super().__call__(x)


def read_out(layer: nnx.Linear | nnx.Embed, x: Array) -> Array:
    """Logits from a dense layer, or as products with all embeddings; sums in float32 or wider."""
    if isinstance(layer, nnx.Embed):
        kernel, bias = layer.embedding.get_value().T, None
    else:
        kernel, bias = layer.kernel.get_value(), layer.bias
    wide = compute_dtype(x)
    logits = _flat_dot_general(x, kernel.astype(x.dtype), None, preferred_element_type=wide)
    if bias is None:
        return logits
    return logits + bias.get_value().astype(wide).reshape((1,) * (logits.ndim - 1) + (-1,))


def activation(name: str) -> Callable[[Array], Array]:
    """Activation function by name; a gated layer applies it to the gate."""
    return {
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "relu": jax.nn.relu,
        "relu2": lambda x: jnp.square(jax.nn.relu(x)),
        "silu": jax.nn.silu,
        "swiglu": jax.nn.silu,
        "geglu": _gelu,
        "geglu_tanh": _gelu_tanh,
    }[name]


def _gelu(x: Array) -> Array:
    # x·Φ(x) by erf, as torch has it; by erfc, as in jax.nn.gelu, XLA on CPU takes twice as long.
    return 0.5 * x * (1 + lax.erf(x * jnp.asarray(0.5**0.5, x.dtype)))


def _gelu_tanh(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=True)


def is_gated(name: str) -> bool:
    """Whether the feed-forward layer multiplies by a gate (Shazeer 2020)."""
    return name in ("swiglu", "geglu", "geglu_tanh")


def dropout(x: Array, *, rate: float, key: Array | None) -> Array:
    """Dropout: set a share `rate` of x to 0 and scale up the rest; unchanged without a key.

    The rate is rounded to a multiple of 2⁻¹⁶, because 32-bit uniforms take longer on a CPU than the
    layers that they act on.
    """
    if key is None or rate == 0.0:
        return x
    dropped = round(rate * _DROPOUT_LEVELS)
    bits = jax.random.bits(key, x.shape, jnp.uint16)
    survives = bits >= jnp.uint16(dropped)
    return jnp.where(survives, x * jnp.asarray(1 / (1 - dropped / _DROPOUT_LEVELS), x.dtype), 0)


def _flat_dot_general(x: Array, kernel: Array, dimension_numbers, **kwargs) -> Array:
    # XLA on CPU takes twice as long for the kernel's gradient with more than one axis of tokens.
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = lax.dot_general(flat, kernel, (((1,), (0,)), ((), ())), **kwargs)
    return out.reshape(*x.shape[:-1], kernel.shape[-1])

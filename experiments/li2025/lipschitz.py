"""Lipschitz bounds of transformers without norms, layer by layer.

A sequence X `[n, dim]` has the Frobenius norm, a matrix its largest singular value.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.encodings.base import compute_dtype, repeat_heads
from jaxpe.nn.attention import BoundEncoding, Context, MultiHeadAttention
from jaxpe.nn.blocks import Block
from jaxpe.nn.feed_forward import FeedForward
from jaxpe.nn.masks import attention_mask
from jaxpe.nn.transformer import Transformer
from jaxpe.spectral.norms import spectral_norm

# Largest slopes: of GELU, x Φ(x), at √2: Φ(√2) + √2 φ(√2) = 1.1290; of its tanh approximation
# 1.1291; of SiLU, x σ(x), 1.0999. All satisfy |f(x)| ≤ |x|, as ReLU does.
_SLOPES = {"relu": 1.0, "gelu": 1.12904, "gelu_tanh": 1.1291, "silu": 1.09984}


class LipschitzBounds(NamedTuple):
    """Upper bounds of Lipschitz constants, layer by layer.

    Attributes:
        attention: bound of X → X + attention(X), for tokens of norm up to `radii[:, 0]`.
        feed_forward: bound of X → X + mlp(X), for all inputs.
        radii: bounds of the norms of tokens that enter attention and the feed-forward layer.
        last_radius: bound of the norms of tokens after the last layer.
        whole: bound of all layers together, the product of their bounds.
    """

    attention: Float[Array, " layers"]
    feed_forward: Float[Array, " layers"]
    radii: Float[Array, "layers 2"]
    last_radius: Float[Array, ""]
    whole: Float[Array, ""]


# Attention of one head, y_i = Σ_j a_ij O V x_j with a_i = softmax_j(s⟨Q x_i + b, K x_j⟩ + bias_ij),
# where ‖x_j‖ ≤ R. (b_K adds the same to a whole row of logits; O b_V the same to all outputs.) With
# M = s KᵀQ and c = s Kᵀb the logits change by du_ij = ⟨x_j, M dx_i⟩ + ⟨M x_i + c, dx_j⟩, and
#   dy_i = Σ_j a_ij O V dx_j + Σ_j a_ij O V(x_j − x̄_i) du_ij,        x̄_i = Σ_j a_ij x_j.
# 1. ‖a‖ ≤ √(largest sum of a column × of a row) ≤ √n, hence √n ‖OV‖ for the first sum.
# 2. ⟨x_j, M dx_i⟩ comes with O V Cov_i(x) M dx_i, and Cov ⪯ R²: ‖OV‖ R² ‖M‖.
# 3. ⟨M x_i + c, dx_j⟩: by Cauchy and Schwarz under a_i, with Σ_j a_ij ‖x_j − x̄_i‖² ≤ R², row i has
#    a square of at most (‖OV‖ R (‖M‖R + ‖c‖))² Σ_j a_ij ‖dx_j‖², and columns of a sum to n at most.
# A bias that does not depend on x does not contribute. Relative keys and values k_j + α_ij and
# v_j + β_ij (Shaw) with norms up to α and β enlarge R‖OV‖ to R‖OV‖ + ‖O‖β in 2 and 3, and R‖M‖ to
# R‖M‖ + s‖Q‖α in 2. The output of a query is Σ_heads (Σ_j a_ij O(V x_j + β_ij) + O b_V) + b_O, or
# b_O if all keys are masked.
def lipschitz_bounds(
    transformer: Transformer,
    *,
    n: int,
    radius: Float[ArrayLike, ""] | float,
    relative: tuple[Float[ArrayLike, ""] | float, Float[ArrayLike, ""] | float] | None = None,
) -> LipschitzBounds:
    """Upper bounds of the Lipschitz constant of each layer, for n tokens of norm at most `radius`.

    Attention has the bound 1 + Σ_heads √n ‖OV‖(1 + R(R‖M‖ + ‖c‖)) + R²‖OV‖‖M‖, which grows with R²
    and √n. Here M = KᵀQ/√head_dim and c = Kᵀb_Q/√head_dim. Without R no bound exists, since
    dot-product attention is not globally Lipschitz (Kim, Papamakarios & Mnih 2021). A feed-forward
    layer has the bound 1 + s‖W_up‖‖W_down‖, where s is the largest slope of its activation: 1 for
    ReLU, 1.13 for GELU, 1.1 for SiLU. The norm of tokens after a layer is bounded from weights and
    biases; this bound is the R of the next layer.

    Masks that all heads share, and biases that depend on positions alone, do not change the bounds.
    Bounds are computed in float32, or in float64 for float64 parameters, and hold up to rounding.

    Args:
        transformer: transformer without norms (`norm="none"`), caps, sinks and gates, with plain
            or grouped attention. Its encoding acts on embeddings or logits; a bias depends on
            positions alone, but for the relative keys and values of `relative`. These conditions
            are not checked.
        n: number of tokens.
        radius: R, the largest norm of a token that enters the first block, after `embed`.
        relative: largest norms of the rows of relative keys α and values β for one head, as in Shaw
            et al., whose logits are ⟨q_i, k_j + α_ij⟩/√head_dim.
    """
    dtype = compute_dtype(transformer.tokens.embedding.get_value())
    key_extra, value_extra = (0.0, 0.0) if relative is None else relative
    extra = jnp.asarray(key_extra, dtype), jnp.asarray(value_extra, dtype)
    R = jnp.asarray(radius, dtype)
    graphdef, layers = nnx.split(transformer.layers)
    return _layer_bounds(R, layers, extra, graphdef=graphdef, n=n)


@partial(jax.jit, static_argnames=("graphdef", "n"))
def _layer_bounds(
    R: Array, layers: Any, extra: tuple[Array, ...], *, graphdef: Any, n: int
) -> LipschitzBounds:
    def layer(R: Array, params: Any) -> tuple[Array, tuple[Array, Array, Array]]:
        block = nnx.merge(graphdef, params)
        attention, between = _attention_bound(block.attention, n, R, *extra)
        mlp, after = _feed_forward_bound(block.mlp, between)
        return after, (attention, mlp, jnp.stack([R, between]))

    last, (attention, mlp, radii) = lax.scan(layer, R, layers)
    return LipschitzBounds(attention, mlp, radii, last, jnp.prod(attention * mlp))


def layer_maps(transformer: Transformer, *, n: int) -> list[Callable[[Array], Array]]:
    """Layers as functions of one sequence `[n, dim]`: attention, feed-forward, attention, ...

    Their composition is the transformer after `embed`, at positions 0..n − 1, without padding.
    """
    positions = jnp.arange(n, dtype=jnp.int32)
    shared = BoundEncoding(transformer.encoding, transformer.encoding_params.get_value())
    mask = attention_mask(n, causal=transformer.causal)
    context = Context(positions, positions, mask, shared)

    def attention(block: Block) -> Callable[[Array], Array]:
        return lambda x: x + block.attention(x, context).output

    def mlp(block: Block) -> Callable[[Array], Array]:
        return lambda x: x + block.mlp(x)

    return [make(block) for block in _blocks(transformer) for make in (attention, mlp)]


def _blocks(transformer: Transformer) -> list[Block]:
    """List of the blocks, whose parameters are stacked in the transformer."""
    graphdef, params = nnx.split(transformer.layers)
    layers = range(transformer.config.num_layers)
    return [nnx.merge(graphdef, jax.tree.map(lambda x: x[i], params)) for i in layers]  # noqa: B023


def _attention_bound(
    layer: MultiHeadAttention, n: int, R: Array, key_extra: Array, value_extra: Array
) -> tuple[Array, Array]:
    """Lipschitz bound of X + attention(X), and a bound of the norm of its tokens."""
    config = layer.config
    width, heads = config.head_width, config.num_heads
    scale = layer.scale

    def split(linear: nnx.Linear) -> tuple[Array, Array]:
        """Kernels `[heads, dim, width]` and biases `[heads, width]` of all query heads."""
        kernel, bias = _parts(linear)
        kernel = kernel.reshape(config.dim, -1, width)
        bias = bias.reshape(1, -1, width)
        kernel, bias = (repeat_heads(x, heads) for x in (kernel, bias))
        return jnp.moveaxis(kernel, 1, 0), bias[0]

    (Q, b_q), (K, _), (V, b_v) = (split(x) for x in (layer.query, layer.key, layer.value))
    kernel, b_o = _parts(layer.output)
    O = kernel.reshape(heads, width, config.dim)  # noqa: E741
    ov, M = spectral_norm(jnp.stack([dot(V, O), dot(Q, K.mT)]))
    norm_o, norm_q = spectral_norm(jnp.stack([O, Q.mT]))
    M = scale * M
    c = scale * jnp.linalg.norm(jnp.einsum("hdw,hw->hd", K, b_q, precision="highest"), axis=1)
    spread = R * ov + norm_o * value_extra
    by_query = spread * (R * M + scale * norm_q * key_extra)
    bound = 1 + jnp.sum(n**0.5 * (ov + spread * (R * M + c)) + by_query)
    constant = jnp.einsum("hw,hwd->d", b_v, O, precision="highest") + b_o
    constant = jnp.maximum(jnp.linalg.norm(constant), jnp.linalg.norm(b_o))
    return bound, R + jnp.sum(spread) + constant


def _feed_forward_bound(layer: FeedForward, R: Array) -> tuple[Array, Array]:
    """Lipschitz bound of X + mlp(X), and a bound of the norm of its tokens."""
    (up, b_up), (down, b_down) = (_parts(x) for x in (layer.up, layer.down))
    up, down = spectral_norm(jnp.stack([up, down.T]))
    inner = up * R + jnp.linalg.norm(b_up)
    slope = jnp.asarray(_SLOPES[layer.activation], up.dtype)
    return 1 + slope * up * down, R + down * inner + jnp.linalg.norm(b_down)


def _parts(linear: nnx.Linear) -> tuple[Array, Array]:
    """Kernel and bias, in float32 or wider; a missing bias is zeros."""
    kernel = linear.kernel.get_value()
    dtype = compute_dtype(kernel)
    if linear.bias is None:
        return kernel.astype(dtype), jnp.zeros(kernel.shape[1], dtype)
    return kernel.astype(dtype), linear.bias.get_value().astype(dtype)

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

from jaxpe._core.arrays import ArrayLike, dot, is_traced
from jaxpe._core.jaxprs import used_arguments
from jaxpe.encodings.base import compute_dtype, repeat_heads
from jaxpe.geometry.checks import check_size
from jaxpe.nn.attention import BoundEncoding, Context, MultiHeadAttention, chain_bound
from jaxpe.nn.blocks import Block
from jaxpe.nn.feed_forward import FeedForward
from jaxpe.nn.masks import attention_mask
from jaxpe.nn.transformer import Transformer, check_one_encoding
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
        transformer: transformer without norms (`norm="none"`), with plain or grouped attention and
            no gates.
        n: number of tokens.
        radius: R, the largest norm of a token that enters the first block, after `embed`.
        relative: largest norms of the rows of relative keys α and values β for one head, as in Shaw
            et al. Logits must be ⟨q_i, k_j + α_ij⟩/√head_dim; a bias that depends on keys, as in
            Transformer-XL and CoPE, is refused.

    Raises:
        ValueError: norms, gated activations, latent attention, or keys from the embeddings; an
            encoding of queries or keys, or another that depends on the content; a concrete radius
            below 0.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2,
    ...                                     activation="relu", norm="none")
    >>> encoder = jaxpe.nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> near, far = (jaxpe.nn.lipschitz_bounds(encoder, n=4, radius=r) for r in (1.0, 100.0))
    >>> (near.attention < far.attention).tolist(), (near.feed_forward < far.feed_forward).tolist()
    ([True, True], [False, False])
    """
    _check_model(transformer)
    check_size("n", n)
    dtype = compute_dtype(transformer.tokens.embedding.get_value())
    extra = tuple(_norm(x, dtype, "relative") for x in _relative_norms(transformer, n, relative))
    R = _norm(radius, dtype, "radius")
    graphdef, layers = nnx.split(transformer.layers)
    return _layer_bounds(R, layers, extra, graphdef=graphdef, n=n)


@partial(jax.jit, static_argnames=("graphdef", "n"))
def _layer_bounds(
    R: Array, layers: Any, extra: tuple[Array, ...], *, graphdef: Any, n: int
) -> LipschitzBounds:
    def layer(R: Array, params: Any) -> tuple[Array, tuple[Array, Array, Array]]:
        block = nnx.merge(graphdef, params)
        assert isinstance(block.attention, MultiHeadAttention)  # it was checked
        attention, between = _attention_bound(block.attention, n, R, *extra)
        mlp, after = _feed_forward_bound(block.mlp, between)
        return after, (attention, mlp, jnp.stack([R, between]))

    last, (attention, mlp, radii) = lax.scan(layer, R, layers)
    return LipschitzBounds(attention, mlp, radii, last, jnp.prod(attention * mlp))


def layer_maps(transformer: Transformer, *, n: int) -> list[Callable[[Array], Array]]:
    """Layers as functions of one sequence `[n, dim]`: attention, feed-forward, attention, ...

    Their composition is the transformer after `embed`, at positions 0..n − 1, without padding.
    Raises `ValueError` for norms, or for keys from the embeddings.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2,
    ...                                     norm="none")
    >>> encoder = jaxpe.nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> x = y = jnp.ones((3, 8), jnp.float32)
    >>> for layer in jaxpe.nn.layer_maps(encoder, n=3):
    ...     y = layer(y)
    >>> hidden = encoder(jnp.zeros(3, int), vectors=x).hidden
    >>> bool(jnp.allclose(y, hidden, atol=1e-6))
    True
    """
    _check_plain(transformer)
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


def _norm(x: ArrayLike | float, dtype: jnp.dtype, name: str) -> Array:
    """Bound of norms as an array; raises `ValueError` if it is negative."""
    if not is_traced(x) and not x >= 0:
        raise ValueError(f"{name} is {x}, but bounds norms: pass at least 0")
    return jnp.asarray(x, dtype)


def _check_plain(transformer: Transformer) -> None:
    check_one_encoding(transformer, "functions of one layer")
    config = transformer.config
    if transformer.cross_encoding is not None:
        raise ValueError("the decoder has cross-attention: pass a model without it")
    if config.norm != "none":
        raise ValueError(
            f"the model has norm={config.norm!r}, whose derivative is unbounded near constant "
            "tokens: build it with norm='none'"
        )
    if config.attention_sink or config.attention_gate:
        raise ValueError("attention has a sink or a gate: pass a model without them")
    if (config.residual, config.residual_scale, config.attention_cap) != ("sequential", 1.0, None):
        raise ValueError(
            f"residual is {config.residual!r}, residual_scale {config.residual_scale} and "
            f"attention_cap {config.attention_cap}: pass a model of attention, then feed-forward "
            "layer, without a scale and a cap"
        )
    if config.keys_from != "hidden":
        raise ValueError(
            f"keys_from is {config.keys_from!r}: layers are functions of their input alone with "
            "keys_from='hidden'"
        )


def _check_model(transformer: Transformer) -> None:
    _check_plain(transformer)
    config = transformer.config
    if config.activation not in _SLOPES:
        raise ValueError(
            f"activation is {config.activation!r}, a product that is not Lipschitz: pass one of "
            f"{', '.join(_SLOPES)}"
        )
    if config.latent is not None or config.experts is not None:
        raise ValueError(
            "no bound is known for latent attention and experts: build the model with latent=None "
            "and experts=None"
        )


def _relative_norms(transformer: Transformer, n: int, relative: tuple | None) -> tuple:
    """Norms of relative keys and values, (0, 0) without them; raises for other encodings."""
    attention = _blocks(transformer)[0].attention
    shared = BoundEncoding(transformer.encoding, transformer.encoding_params.get_value())
    bound = chain_bound(
        shared, BoundEncoding(attention.encoding, attention.encoding_params.get_value())
    )
    for hook, plural in (
        ("query", "queries"),
        ("key", "keys"),
        ("products", "products"),
        ("weights", "weights"),
    ):
        if bound.encoding.defines(hook):
            raise ValueError(
                f"the encoding acts on {plural}, for which no bound is implemented: pass a model "
                "whose encoding acts on embeddings or logits"
            )
    by_query, otherwise = _content_dependence(bound, transformer, n)
    if otherwise:
        raise ValueError(
            "the encoding computes biases from keys, or nonlinearly from queries, for which no "
            "bound is implemented: pass one with relative keys and values, such as Shaw's"
        )
    if relative is None and (by_query or bound.encoding.defines("value")):
        raise ValueError(
            "the encoding adds vectors to keys or values: pass relative=(key, value), the largest "
            "norms of these vectors, such as the rows of Shaw's tables"
        )
    return (0.0, 0.0) if relative is None else relative


def _content_dependence(
    bound: BoundEncoding, transformer: Transformer, n: int
) -> tuple[bool, bool]:
    """Whether a bias depends on queries, and whether on keys or nonlinearly on queries."""
    # By dead-code elimination of the bias and of its derivative: a function is affine in q if its
    # derivative does not depend on q.
    config = transformer.config
    heads = jax.ShapeDtypeStruct((n, config.num_heads, config.head_width), config.dtype)
    i = jnp.arange(n, dtype=jnp.int32)

    def bias(q: Array, k: Array) -> Array:
        logits = bound.encoding.bias(bound.params, q, k, i, i)
        return jnp.zeros(()) if logits is None else logits

    def derivative(q: Array, k: Array, dq: Array) -> Array:
        return jax.jvp(lambda q: bias(q, k), (q,), (dq,))[1]

    by_query, by_key = used_arguments(bias, heads, heads)
    curved, *_ = used_arguments(derivative, heads, heads, heads)
    return by_query, by_key or curved

"""Layer patterns of released models: which layers have RoPE, windows or nothing."""

from jaxpe._core.arrays import Scalar
from jaxpe.encodings.base import identity
from jaxpe.encodings.combine import LayerPattern, chain, interleaved_layers
from jaxpe.encodings.families.masks import attention_chunks, sliding_window
from jaxpe.encodings.families.rotary import rope
from jaxpe.encodings.families.temperature import position_temperature
from jaxpe.encodings.registry import register


@register("smollm3", source="Hugging Face (2025), SmolLM3")
def smollm3(*, head_dim: int, base: Scalar = 10_000.0, period: int = 4) -> LayerPattern:
    """SmolLM3 (RNoPE): RoPE in all layers but the last of each period.

    The last layer has no positions: `no_rope_layers`. RNoPE is the name of Yang et al. (2025).

    Args:
        head_dim: width of a head.
        base: θ of RoPE; 5e6 in the released model.
        period: layers from one without RoPE to the next.

    >>> [smollm3(head_dim=4).at(layer).defines("query") for layer in range(4)]
    [True, True, True, False]
    """
    return interleaved_layers(rope(head_dim=head_dim, base=base), identity(), period=period)


@register(
    "llama4",
    source="Meta (2025), Llama 4",
    make=lambda s: llama4(head_dim=s.head_dim, chunk=s.window, temperature_period=s.window),
)
def llama4(
    *,
    head_dim: int,
    chunk: int = 8192,
    base: Scalar = 10_000.0,
    temperature: Scalar = 0.1,
    temperature_period: int = 8192,
    period: int = 4,
) -> LayerPattern:
    """Llama 4: three layers with RoPE within chunks, then one without positions.

    Queries of the layer without positions are scaled by `position_temperature`.

    Args:
        head_dim: width of a head.
        chunk: positions of a chunk of attention.
        base: θ of RoPE, with interleaved pairs; 5e5 in the released models.
        temperature: growth of the queries in layers without RoPE.
        temperature_period: number of positions with the same factor.
        period: layers from one without RoPE to the next.

    >>> [llama4(head_dim=4).at(layer).defines("mask") for layer in range(4)]
    [True, True, True, False]
    """
    local = chain(
        rope(head_dim=head_dim, base=base, layout="interleaved"), attention_chunks(size=chunk)
    )
    wide = position_temperature(scale=temperature, period=temperature_period)
    return interleaved_layers(local, wide, period=period)


@register(
    "gemma3",
    source="Gemma Team (2025), Gemma 3",
    make=lambda s: gemma3(head_dim=s.head_dim, window=s.window),
)
def gemma3(
    *,
    head_dim: int,
    window: int = 512,
    local_base: Scalar = 10_000.0,
    base: Scalar = 1_000_000.0,
    period: int = 6,
) -> LayerPattern:
    """Gemma 3: five layers with RoPE in a sliding window, then one with a slower global RoPE.

    Args:
        head_dim: width of a head.
        window: positions that a local layer sees.
        local_base: θ of RoPE in local layers.
        base: θ of RoPE in the others.
        period: layers from one global layer to the next.

    >>> [gemma3(head_dim=4).at(layer).defines("mask") for layer in range(6)]
    [True, True, True, True, True, False]
    """
    local = chain(rope(head_dim=head_dim, base=local_base), sliding_window(size=window))
    return interleaved_layers(local, rope(head_dim=head_dim, base=base), period=period)

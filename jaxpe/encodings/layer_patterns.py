"""Layer patterns of released models: which layers have RoPE, windows or nothing."""

from jaxpe.encodings.base import check_sizes, identity
from jaxpe.encodings.combine import LayerPattern, chain, every
from jaxpe.encodings.families.masks import attention_chunks, sliding_window
from jaxpe.encodings.families.rotary import rope
from jaxpe.encodings.families.temperature import position_temperature
from jaxpe.encodings.registry import register, short


@register("smollm3", source="Hugging Face (2025), SmolLM3")
def smollm3(*, head_dim: int, base: float = 10_000.0, period: int = 4) -> LayerPattern:
    """RoPE in all layers but each period-th, which has no positions: SmolLM3's `no_rope_layers`.

    Yang et al. (2025) call it RNoPE.

    Args:
        head_dim: width of a head.
        base: θ of RoPE; 5e6 in the released model.
        period: layers from one without RoPE to the next.

    >>> [smollm3(head_dim=4).at(layer).defines("query") for layer in range(4)]
    [True, True, True, False]
    """
    return every(period, identity(), else_=rope(head_dim=head_dim, base=base))


@register(
    "llama4",
    source="Meta (2025), Llama 4",
    make=lambda s: llama4(
        head_dim=s.head_dim, chunk=short(s.length), temperature_period=short(s.length)
    ),
)
def llama4(
    *,
    head_dim: int,
    chunk: int = 8192,
    base: float = 10_000.0,
    temperature: float = 0.1,
    temperature_period: int = 8192,
    period: int = 4,
) -> LayerPattern:
    """Llama 4: three layers with RoPE within chunks, one without positions over everything.

    Queries of the layer without positions are scaled by `position_temperature`.

    Args:
        head_dim: width of a head.
        chunk: positions of a chunk of attention.
        base: θ of RoPE, with interleaved pairs; 5e5 in the released models.
        temperature: growth of the queries in layers without RoPE.
        temperature_period: positions over which that factor stays.
        period: layers from one without RoPE to the next.

    >>> [llama4(head_dim=4).at(layer).defines("mask") for layer in range(4)]
    [True, True, True, False]
    """
    check_sizes(chunk=chunk, temperature_period=temperature_period)
    local = chain(
        rope(head_dim=head_dim, base=base, layout="interleaved"), attention_chunks(size=chunk)
    )
    wide = position_temperature(scale=temperature, period=temperature_period)
    return every(period, wide, else_=local)


@register(
    "gemma3",
    source="Gemma Team (2025), Gemma 3",
    make=lambda s: gemma3(head_dim=s.head_dim, window=short(s.length)),
)
def gemma3(
    *,
    head_dim: int,
    window: int = 512,
    local_base: float = 10_000.0,
    base: float = 1_000_000.0,
    period: int = 6,
) -> LayerPattern:
    """Gemma 3: five layers with RoPE in a sliding window, one with a slower RoPE over everything.

    Args:
        head_dim: width of a head.
        window: positions that a local layer sees.
        local_base: θ of RoPE in local layers.
        base: θ of RoPE in the others.
        period: layers from one that sees everything to the next.

    >>> [gemma3(head_dim=4).at(layer).defines("mask") for layer in range(6)]
    [True, True, True, True, True, False]
    """
    local = chain(rope(head_dim=head_dim, base=local_base), sliding_window(size=window))
    return every(period, rope(head_dim=head_dim, base=base), else_=local)

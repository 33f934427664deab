"""RoPE beyond the training length: scalings of its frequencies as rows of the catalogue.

Each extends the training length four times, as `rope(scaling=...)` with the numbers shown here.
"""

from collections.abc import Callable

from jaxpe.encodings.base import Encoding
from jaxpe.encodings.families.rotary import rope
from jaxpe.encodings.registry import EncodingSizes, register
from jaxpe.rope.scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    NtkByPartsScaling,
    NtkScaling,
    ProportionalScaling,
    ResonanceScaling,
    RopeScaling,
    YarnScaling,
)

FACTOR = 4.0


def _longrope(sizes: EncodingSizes) -> LongRopeScaling:
    """Divisors that grow from 1 for the fastest frequency to the factor for the slowest."""
    half = sizes.head_dim // 2
    long = tuple(FACTOR ** (k / max(half - 1, 1)) for k in range(half))
    return LongRopeScaling((1.0,) * half, long, max(sizes.length, 2), factor=FACTOR)


SCALINGS: dict[str, tuple[str, Callable[[EncodingSizes], RopeScaling]]] = {
    "linear": ("Chen et al. (2023)", lambda s: LinearScaling(FACTOR)),
    "ntk": ("bloc97 (2023)", lambda s: NtkScaling(FACTOR)),
    "dynamic": ("emozilla (2023)", lambda s: DynamicScaling(1.0, max(s.length, 2))),
    "ntk_by_parts": ("bloc97 (2023)", lambda s: NtkByPartsScaling(FACTOR, max(s.length, 2))),
    "yarn": ("Peng et al. (2023)", lambda s: YarnScaling(FACTOR, max(s.length, 2))),
    "llama3": ("Meta (2024)", lambda s: Llama3Scaling(FACTOR, 1.0, 4.0, max(s.length, 2))),
    "longrope": ("Ding et al. (2024)", _longrope),
    "proportional": ("Barbero et al. (2024)", lambda s: ProportionalScaling(fraction=0.75)),
    "resonance": ("Wang et al. (2024)", lambda s: ResonanceScaling()),
}


def _made(scaling: Callable[[EncodingSizes], RopeScaling]) -> Callable[[EncodingSizes], Encoding]:
    return lambda sizes: rope(head_dim=sizes.head_dim, scaling=scaling(sizes))


for _kind, (_source, _scaling) in SCALINGS.items():
    register(
        f"rope_{_kind}",
        make=_made(_scaling),
        source=_source,
        vectors="orbit of a vector with unit pairs",
        variant_of="rope",
    )(rope)

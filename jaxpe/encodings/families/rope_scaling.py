"""RoPE scalings for contexts beyond the training length, as rows of the catalogue.

Each extends the training length four times, as `rope(scaling=...)` with these numbers.
"""

from collections.abc import Callable

from jaxpe.encodings.families.rotary import rope
from jaxpe.encodings.registry import EncodingSizes, register
from jaxpe.encodings.scalings import ResonanceScaling, Scaling
from jaxpe.plans import scaling

FACTOR = 4.0


def _longrope(sizes: EncodingSizes) -> scaling.LongRopeScaling:
    """Divisors that grow from 1 for the fastest frequency to the factor for the slowest."""
    half = sizes.head_dim // 2
    long = tuple(FACTOR ** (k / max(half - 1, 1)) for k in range(half))
    return scaling.LongRopeScaling((1.0,) * half, long, max(sizes.length, 2), factor=FACTOR)


SCALINGS: dict[str, tuple[str, Callable[[EncodingSizes], Scaling]]] = {
    "linear": ("Chen et al. (2023)", lambda s: scaling.LinearScaling(FACTOR)),
    "ntk": ("bloc97 (2023)", lambda s: scaling.NtkScaling(FACTOR)),
    "dynamic": ("emozilla (2023)", lambda s: scaling.DynamicScaling(1.0, max(s.length, 2))),
    "ntk_by_parts": (
        "bloc97 (2023)",
        lambda s: scaling.NtkByPartsScaling(FACTOR, max(s.length, 2)),
    ),
    "yarn": ("Peng et al. (2023)", lambda s: scaling.YarnScaling(FACTOR, max(s.length, 2))),
    "llama3": ("Meta (2024)", lambda s: scaling.Llama3Scaling(FACTOR, 1.0, 4.0, max(s.length, 2))),
    "longrope": ("Ding et al. (2024)", _longrope),
    "proportional": ("Barbero et al. (2024)", lambda s: scaling.ProportionalScaling(fraction=0.75)),
    "resonance": ("Wang et al. (2024)", lambda s: ResonanceScaling()),
}
for _kind, (_source, _scaling) in SCALINGS.items():
    _about = (type(_scaling(EncodingSizes())).__doc__ or "").splitlines()[0].rstrip(".")
    register(
        f"rope_{_kind}",
        make=lambda s, scaling=_scaling: rope(head_dim=s.head_dim, scaling=scaling(s)),
        source=_source,
        vectors="orbit of a vector with unit pairs",
        variant_of="rope",
        description=_about,
    )(rope)

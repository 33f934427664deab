"""RoPE scalings for contexts beyond the training length, as rows of the catalogue.

Each extends the training length four times, as `rope(scaling=...)` with these numbers.
"""

from collections.abc import Callable

from jaxpe.encodings.families.rotary import rope
from jaxpe.encodings.registry import EncodingSizes, register
from jaxpe.plans import scaling
from jaxpe.plans.longrope2 import critical_dimension, longrope2_scaling

FACTOR = 4.0


def _longrope(sizes: EncodingSizes) -> scaling.LongRopeScaling:
    """Divisors that grow from 1 for the fastest frequency to the factor for the slowest."""
    half = sizes.head_dim // 2
    long = tuple(FACTOR ** (k / max(half - 1, 1)) for k in range(half))
    return scaling.LongRopeScaling((1.0,) * half, long, max(sizes.length, 2), factor=FACTOR)


def _longrope2(sizes: EncodingSizes) -> scaling.LongRopeScaling:
    """Divisors from the theoretical critical dimension; at least one frequency is before it."""
    length = max(sizes.length, 8)
    return longrope2_scaling(sizes.head_dim, factor=FACTOR, original_max_position_embeddings=length)


def _clipped(sizes: EncodingSizes) -> scaling.ClippedScaling:
    """The paper's share: 20 of 64 frequencies."""
    return scaling.ClippedScaling(round(sizes.head_dim // 2 * 20 / 64))


def _high_frequency(sizes: EncodingSizes) -> scaling.ClippedScaling:
    """Zero where a turn takes longer than the training length."""
    length = max(sizes.length, 8)
    turning = critical_dimension(sizes.head_dim, original_max_position_embeddings=length)
    return scaling.ClippedScaling(sizes.head_dim // 2 - turning, smooth=False)


SCALINGS: dict[str, tuple[str, Callable[[EncodingSizes], scaling.RopeScaling]]] = {
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
    "resonance": ("Wang et al. (2024)", lambda s: scaling.ResonanceScaling()),
    "longrope2": ("Shang et al. (2025)", _longrope2),
    "clipped": ("Li et al. (2026)", _clipped),
    "high_frequency": ("Chen et al. (2024)", _high_frequency),
    "riflex": (
        "Zhao et al. (2025)",
        lambda s: scaling.RiflexScaling(s.length, int(FACTOR * s.length)),
    ),
    "dype": ("Issachar et al. (2025)", lambda s: scaling.DypeScaling(FACTOR, time=0.5)),
}
# Effects of rows whose class has another row, too.
_ABOUT = {
    "longrope2": "LongRoPE2: slow frequencies divided, fast ones by NTK up to a critical dimension",
    "high_frequency": "HoPE: RoPE without the frequencies that complete no turn in T positions",
}


for _kind, (_source, _scaling) in SCALINGS.items():
    _about = (type(_scaling(EncodingSizes())).__doc__ or "").splitlines()[0].rstrip(".")
    _about = _ABOUT.get(_kind, _about)
    register(
        f"rope_{_kind}",
        make=lambda s, scaling=_scaling: rope(head_dim=s.head_dim, scaling=scaling(s)),
        source=_source,
        vectors="orbit of a vector with unit pairs",
        variant_of="rope",
        description=_about,
    )(rope)

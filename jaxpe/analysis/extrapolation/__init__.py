"""Length extrapolation: tasks under encodings with equal data, seeds, weights and budgets."""

from jaxpe.analysis.extrapolation.memory import (
    check_memory,
)
from jaxpe.analysis.extrapolation.presets import (
    PRESETS,
    Suite,
    preset,
)
from jaxpe.analysis.extrapolation.run import (
    extrapolate,
)
from jaxpe.analysis.extrapolation.streams import (
    Streams,
    streams,
)
from jaxpe.analysis.extrapolation.variants import (
    VARIANTS,
    Variant,
)

__all__ = [
    "PRESETS",
    "VARIANTS",
    "Streams",
    "Suite",
    "Variant",
    "check_memory",
    "extrapolate",
    "preset",
    "streams",
]

"""Length extrapolation: tasks under encodings with equal data, seeds, weights and budgets."""

from jaxpe.analysis.extrapolation.comparisons import (
    MOST_SEEDS,
    beyond,
    beyond_interval,
    compared,
)
from jaxpe.analysis.extrapolation.intervals import (
    lead_interval,
    pair_level,
    seed_interval,
    seed_mean,
)
from jaxpe.analysis.extrapolation.job import (
    ExtrapolationOptions,
    extrapolate,
    extrapolate_suites,
    suites_of,
)
from jaxpe.analysis.extrapolation.memory import check_memory
from jaxpe.analysis.extrapolation.models import ModelFactory
from jaxpe.analysis.extrapolation.presets import PRESETS, Suite, preset
from jaxpe.analysis.extrapolation.ranks import (
    Lead,
    leaders,
    mean_reciprocal_rank,
    reciprocal_ranks,
)
from jaxpe.analysis.extrapolation.result import (
    Comparison,
    ExtrapolationCell,
    ExtrapolationResult,
    SeedInterval,
    SeedMean,
)
from jaxpe.analysis.extrapolation.streams import Streams, streams
from jaxpe.analysis.extrapolation.variants import Variant, variant, variant_names

__all__ = [
    "MOST_SEEDS",
    "PRESETS",
    "Comparison",
    "ExtrapolationCell",
    "ExtrapolationOptions",
    "ExtrapolationResult",
    "Lead",
    "ModelFactory",
    "SeedInterval",
    "SeedMean",
    "Streams",
    "Suite",
    "Variant",
    "beyond",
    "beyond_interval",
    "check_memory",
    "compared",
    "extrapolate",
    "extrapolate_suites",
    "lead_interval",
    "leaders",
    "mean_reciprocal_rank",
    "pair_level",
    "preset",
    "reciprocal_ranks",
    "seed_interval",
    "seed_mean",
    "streams",
    "suites_of",
    "variant",
    "variant_names",
]  # fmt: skip

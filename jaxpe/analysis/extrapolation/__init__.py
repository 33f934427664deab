"""Length extrapolation: tasks under encodings with equal data, seeds, weights and budgets."""

from jaxpe.analysis.extrapolation.cost import EncodingCost, measure_costs
from jaxpe.analysis.extrapolation.job import extrapolate
from jaxpe.analysis.extrapolation.models import ModelFactory
from jaxpe.analysis.extrapolation.options import ExtrapolationOptions
from jaxpe.analysis.extrapolation.result import (
    MOST_SEEDS,
    Comparison,
    ExtrapolationCell,
    ExtrapolationResult,
    best_first,
    reciprocal_ranks,
)

__all__ = [
    "MOST_SEEDS", "Comparison", "EncodingCost", "ExtrapolationCell", "ExtrapolationOptions",
    "ExtrapolationResult", "ModelFactory", "best_first", "extrapolate",
    "measure_costs", "reciprocal_ranks",
]  # fmt: skip

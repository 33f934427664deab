"""Length extrapolation: tasks under encodings with equal data, seeds, weights and budgets."""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
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

_MODULES = ("options", "result", "cost", "models", "job")
__getattr__, __dir__ = lazy_names(__name__, __all__, within=_MODULES)

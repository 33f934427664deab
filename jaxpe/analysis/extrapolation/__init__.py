"""Length extrapolation: tasks under encodings with equal data, seeds, weights and budgets."""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
    from jaxpe.analysis.extrapolation.job import extrapolate
    from jaxpe.analysis.extrapolation.options import ExtrapolationOptions
    from jaxpe.analysis.extrapolation.result import ExtrapolationResult

__all__ = [
    "ExtrapolationOptions", "ExtrapolationResult", "extrapolate",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, __all__, within=("options", "result", "job"))

"""Inspection of a model: position in its weights, attention, hidden states, loss and reach.

    result = inspect_model(InspectOptions(model="all-MiniLM-L6-v2", source="reviews.csv"))
    result.attention.overall, result.spectral.mean.toeplitz

It imports Flax and Optax, and is itself imported on first access.
"""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
    from jaxpe.analysis.inspect.job import inspect_model, inspect_torch
    from jaxpe.analysis.inspect.options import InspectOptions
    from jaxpe.analysis.inspect.result import InspectResult

__all__ = [
    "InspectOptions", "InspectResult", "inspect_model", "inspect_torch",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, __all__, within=("options", "result", "job"))

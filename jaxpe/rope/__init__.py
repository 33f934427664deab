"""Rotary configurations: what each layer does with positions, under the rules of each program.

The package is callable: `jaxpe.rope(head_dim=64)` is the encoding, `jaxpe.encodings.rope`.

>>> read_config(head_dim=64, base=1e6, context=2048).plan("transformers")[0].turning
64
"""

import sys
from types import ModuleType
from typing import Any

import jaxpe
from jaxpe.rope.configuration import Configuration, read_configuration
from jaxpe.rope.evaluation import phase_errors
from jaxpe.rope.job import RopeConfig, explain_rope, longest_context, read_config, simple_plan
from jaxpe.rope.options import RopeOptions
from jaxpe.rope.programs.base import QueryScaling, Reader
from jaxpe.rope.result import (
    Disagreement,
    Finding,
    LayerPlan,
    PhaseError,
    Program,
    Reading,
    Recipe,
    RopeAnalysis,
)

__all__ = [
    "Configuration", "Disagreement", "Finding", "LayerPlan", "PhaseError", "Program",
    "QueryScaling", "Reader", "Reading", "Recipe", "RopeAnalysis", "RopeConfig", "RopeOptions",
    "explain_rope", "longest_context", "phase_errors", "read_config", "read_configuration",
    "simple_plan",
]  # fmt: skip


class _Callable(ModuleType):
    """Callable module: this package, and the encoding `jaxpe.rope(head_dim=64)`."""

    def __call__(self, **arguments: Any) -> Any:
        """Rotary encoding, `jaxpe.encodings.rope`."""
        return jaxpe.encodings.rope(**arguments)  # loaded at the first call


sys.modules[__name__].__class__ = _Callable

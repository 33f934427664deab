"""Rotary configurations: what each layer does with positions, under the rules of each program.

>>> from jaxpe.plans import read_config
>>> read_config(head_dim=64, base=1e6, context=2048).plan("transformers")[0].turning
64
"""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
    from jaxpe.plans.configuration import Configuration, read_configuration
    from jaxpe.plans.evaluation import phase_errors
    from jaxpe.plans.job import RopeConfig, explain_rope, longest_context, read_config, simple_plan
    from jaxpe.plans.options import RopeOptions
    from jaxpe.plans.programs.base import Program, QueryScaling
    from jaxpe.plans.result import (
        Disagreement,
        Finding,
        GroupNumbers,
        LayerPlan,
        PhaseError,
        ProgramResult,
        Recipe,
        RopeAnalysis,
    )

__all__ = [
    "Configuration", "Disagreement", "Finding", "GroupNumbers", "LayerPlan", "PhaseError",
    "Program", "ProgramResult", "QueryScaling", "Recipe", "RopeAnalysis", "RopeConfig",
    "RopeOptions", "explain_rope", "longest_context", "phase_errors", "read_config",
    "read_configuration", "simple_plan",
]  # fmt: skip

_MODULES = ("options", "job", "configuration", "evaluation", "programs.base", "result")
__getattr__, __dir__ = lazy_names(__name__, __all__, within=_MODULES)

"""Rotary configurations: what each layer does with positions, under the rules of each program.

>>> from jaxpe.plans import read_config
>>> read_config(head_dim=64, base=1e6, context=2048).plan("transformers")[0].turning
64
"""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
    from jaxpe.plans.evaluation import phase_errors
    from jaxpe.plans.job import explain_rope, read_config, simple_plan
    from jaxpe.plans.options import RopeOptions
    from jaxpe.plans.result import RopeAnalysis

__all__ = [
    "RopeAnalysis", "RopeOptions", "explain_rope", "phase_errors", "read_config", "simple_plan",
]  # fmt: skip

_MODULES = ("options", "result", "evaluation", "job")
__getattr__, __dir__ = lazy_names(__name__, __all__, within=_MODULES)

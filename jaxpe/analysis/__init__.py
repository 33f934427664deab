"""The jobs: what each command computes, as a function of options that returns a result.

Each is its own module, imported on first access, because some import Flax and Optax: `corpus`,
`corpora`, `counts` (and `engines`, which make counts), `audit`,
`extrapolation`, `inspect`, `inspections` and `properties`. `training_run` and `comparison` are for
runs of `jaxpe.training.train`.
"""

from jaxpe._core.json_values import to_json
from jaxpe._core.lazy import lazy_names
from jaxpe._core.results import load_result

__all__ = [
    "audit", "comparison", "corpora", "corpus", "counts", "engines", "extrapolation", "inspect",
    "inspections", "load_result", "properties", "to_json", "training_run",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, __all__)

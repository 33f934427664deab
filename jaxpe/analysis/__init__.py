"""The jobs: what each command computes, as a function of options that returns a result.

Each is a package of its own, imported when it is asked for, since some bring Flax and Optax:
`corpus`, `counts`, `audit`, `attention`, `extrapolation`, `properties`.
"""

from jaxpe._core.json_values import to_json
from jaxpe._core.lazy import lazy_names
from jaxpe._core.results import load_result

__all__ = [
    "attention", "audit", "corpus", "counts", "extrapolation", "load_result", "properties",
    "to_json",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, __all__)

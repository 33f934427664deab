"""jaxpe: the geometry of positional encodings, in JAX.

Each public name has one path, through its package, as `jaxpe.encodings.rope`. Packages are
imported when they are asked for: some need an extra (Flax, Optax, files), and `import jaxpe` alone
does not import JAX.
"""

from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe._core.lazy import lazy_names

__version__ = "0.1.0"

__all__ = [
    "InputError", "MissingExtraError", "__version__", "analysis", "conformance", "data",
    "encodings", "geometry", "nn", "ntk", "plans", "plot", "report", "spectral", "theory",
    "training",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, __all__)

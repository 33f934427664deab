"""Options of `jaxpe rope`."""

import dataclasses

from jaxpe._core.errors import InputError
from jaxpe._core.options import LARGEST_SIZE, check_range

LARGEST_HEAD = 2**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeOptions:
    """Explain a model's rotary configuration, and where the programs that read it disagree.

    Attributes:
        config: a config.json, a folder with one, or a .gguf file; none if the options suffice.
        scaling: entry of the scaling as JSON, in place of the configuration's, such as
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}.
        base: θ of the frequencies, in place of the configuration's.
        head_dim: width of a head, where the configuration has none.
        context: max_position_embeddings, in place of the configuration's.
        length: longest text to judge; the configuration's own length where none is given.
    """

    config: str | None = None
    scaling: str | None = None
    base: float | None = None
    head_dim: int | None = None
    context: int | None = None
    length: int | None = None

    def check(self) -> None:
        """Raise `InputError` for numbers out of range, or where nothing is asked."""
        check_range("base", self.base, least=1.0, most=1e30)
        check_range("head_dim", self.head_dim, least=2, most=LARGEST_HEAD)
        for name in ("context", "length"):
            check_range(name, getattr(self, name), least=2, most=LARGEST_SIZE)
        if self.config is None and self.head_dim is None:
            raise InputError(
                "no configuration: pass `config`, a config.json or a .gguf, or at least `head_dim`"
            )

"""Options of `jaxpe rope`."""

import dataclasses

from jaxpe._core.errors import InputError
from jaxpe._core.options import check_ranges, option

LARGEST_HEAD = 2**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeOptions:
    """Explain what each layer of a model does with positions, and where programs disagree.

    Attributes:
        config: config.json, a folder that contains one, a .gguf file, or a name such as
            Qwen/Qwen3-8B; optional with `head_dim`.
        scaling: scaling entry as JSON that replaces the configuration's, such as
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}.
        base: base θ of the frequencies, replacing the configuration's.
        head_dim: width of a head; required without a configuration.
        context: max_position_embeddings, replacing the configuration's.
        length: longest text to judge, such as 131072 (on the command line also 128k); default:
            the configuration's length.
        programs: comma-separated programs to compare with the newest transformers, such as
            "transformers 4,vLLM"; default: all.
        revision: branch, tag or commit of a name such as Qwen/Qwen3-8B.
    """

    config: str | None = None
    scaling: str | None = None
    base: float | None = option(None, least=1.0)
    head_dim: int | None = option(None, least=2, most=LARGEST_HEAD)
    context: int | None = option(None, least=2)
    length: int | None = option(None, least=2)
    programs: str | None = None
    revision: str | None = None

    def check(self) -> None:
        """Raise `InputError` for numbers out of range, or without `config` and `head_dim`."""
        check_ranges(self)
        if self.config is None and self.head_dim is None:
            raise InputError(
                "no configuration: pass `config`, a config.json or a .gguf, or at least `head_dim`"
            )

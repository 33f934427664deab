"""Options of `jaxpe inspect`."""

import dataclasses
from typing import Literal, get_args

from jaxpe._core.errors import InputError
from jaxpe._core.options import Model, Source, check_range, check_ranges, option

Stage = Literal[
    "encoding", "geometry", "attention", "spectral", "heads", "probe", "ablation", "loss", "needles"
]
LEAST_LENGTH = 16  # positions
_LEAST_LONGEST = 64  # a haystack has room for needles
_LEAST_EXAMPLES = 8  # documents


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectOptions(Source, Model):
    """Measure what position does in a model: in its weights, attention, heads, loss and reach.

    A run of `jaxpe train` has its own documents, length and tokens. Other models are read with
    their tokenizer, from a directory, a .gguf file or the hub.

    Attributes:
        length: number of positions; when absent 128, 64 if `quick`, at most those of the model, or
            those of a run.
        stages: encoding, geometry, attention, spectral, heads, probe, ablation, loss, needles; all
            but heads when absent, which ablates each head and takes longer than all others.
        quick: whether fewer documents and shorter texts are used, for a first result.
        examples: number of documents in attention, spectral, probe and ablation; chosen by the size
            of the model when absent.
        longest: tokens of the longest text in loss and needles; chosen by the size of the model
            when absent.
        documents: number of documents of the corpus that are read, drawn by the seed.
        program: jax for the loader of jaxpe.nn, torch for transformers (extra torch); when absent,
            torch for architectures that jaxpe.nn does not load.
        task: mlm for a masked language model with its head; ablation then measures its loss.
    """

    stages: tuple[Stage, ...] = ()
    quick: bool = False
    examples: int | None = option(None, least=_LEAST_EXAMPLES)
    longest: int | None = option(None, least=_LEAST_LONGEST)
    documents: int = option(4000, least=2 * _LEAST_EXAMPLES)
    program: Literal["jax", "torch"] | None = None
    task: Literal["mlm"] | None = None

    def check(self) -> None:
        """Raise `InputError` for no model, numbers out of range, or unknown stages."""
        if self.model is None:
            raise InputError("pass a `model`: its folder, its file or its name on the hub")
        check_ranges(self)
        check_range("length", self.length, least=LEAST_LENGTH, most=4096)
        if others := sorted(set(self.stages) - set(get_args(Stage))):
            known = ", ".join(get_args(Stage))
            raise InputError(f"`stages` has {', '.join(others)}; pass some of {known}")

"""Options of `jaxpe inspect`."""

import dataclasses
from typing import Literal

from jaxpe._core.errors import InputError
from jaxpe._core.options import LARGEST_SIZE, check_range, check_seed

Stage = Literal["encoding", "geometry", "attention", "probe", "ablation", "loss", "needles"]
# Names of all stages, in the order they run in.
STAGES: tuple[Stage, ...] = (
    *("encoding", "geometry", "attention", "probe"),
    *("ablation", "loss", "needles"),
)
LEAST_LENGTH = 16  # positions
_LEAST_LONGEST = 64  # a haystack has room for needles
_LEAST_EXAMPLES = 8  # documents


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Measure what position does in a model: in its weights, attention, loss and reach.

    Attributes:
        model: Hugging Face directory (config.json, safetensors, tokenizer.json), a .gguf file, a
            folder with one, or a name on the Hugging Face hub.
        revision: branch, tag or commit of a model on the hub; its default branch when absent.
        source: corpus of text: stdlib, sst2, imdb, or one or several paths and patterns (in
            quotes) of files, folders and datasets that `jaxpe.load_corpus` reads, such as .txt,
            .csv, .jsonl or .parquet. Rename a .tsv to .csv to have quotation marks quote its
            fields.
        stages: encoding, geometry, attention, probe, ablation, loss, needles; all when absent.
        quick: whether fewer documents and shorter texts are used, for a first result.
        length: positions of a document in attention, probe and ablation; 128 when absent.
        examples: number of documents in attention, probe and ablation; chosen by the size of the
            model when absent.
        longest: tokens of the longest text in loss and needles; chosen by the size of the model
            when absent.
        documents: number of documents of the corpus that are read, drawn by the seed.
        program: jax for the loader of jaxpe.nn, torch for transformers (extra torch); when absent,
            torch for architectures that jaxpe.nn does not load.
        task: mlm for a masked language model with its head; ablation then measures its loss.
        tokenizer: path of a tokenizer.json, vocab.txt or .gguf; the model's own when absent.
        seed: random seed.
        text_field: column or key with the text, in files with columns.
        skip_nulls: leave out rows whose text is null or missing.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """

    model: str
    revision: str | None = None
    source: str | tuple[str, ...] = "stdlib"
    stages: tuple[Stage, ...] = ()
    quick: bool = False
    length: int | None = None
    examples: int | None = None
    longest: int | None = None
    documents: int = 4000
    program: Literal["jax", "torch"] | None = None
    task: Literal["mlm"] | None = None
    tokenizer: str | None = None
    seed: int = 0
    text_field: str | None = None
    skip_nulls: bool = False
    data_dir: str | None = None

    def check(self) -> None:
        """Raise `InputError` for numbers out of range or unknown stages."""
        check_range("length", self.length, least=LEAST_LENGTH, most=4096)
        check_range("examples", self.examples, least=_LEAST_EXAMPLES, most=LARGEST_SIZE)
        check_range("longest", self.longest, least=_LEAST_LONGEST, most=LARGEST_SIZE)
        check_range("documents", self.documents, least=2 * _LEAST_EXAMPLES, most=LARGEST_SIZE)
        check_seed("seed", self.seed)
        if others := sorted(set(self.stages) - set(STAGES)):
            raise InputError(f"`stages` has {', '.join(others)}; pass some of {', '.join(STAGES)}")

    @property
    def chosen(self) -> tuple[Stage, ...]:
        """The selected stages, in order."""
        return tuple(stage for stage in STAGES if not self.stages or stage in self.stages)

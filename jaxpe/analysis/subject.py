"""The model and the documents of a job, and their options on the command line."""

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.hub import local_model_options, model_name
from jaxpe._core.options import Model, Source
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data import TokenCorpus
from jaxpe.data.corpora.corpus import as_sources
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.data.corpora.published import check_data_dir
from jaxpe.data.tokens.pretrained import model_tokenizer_file
from jaxpe.nn import Bert, load_causal_lm
from jaxpe.nn.checkpoints.architecture import DECODERS, row_name, text_fields
from jaxpe.nn.checkpoints.model_config import read_config
from jaxpe.nn.heads import trunk
from jaxpe.training import ModelConfig, TrainConfig, load_run
from jaxpe.training.build import build_model
from jaxpe.training.config import load_config
from jaxpe.training.documents import Vocabulary, has_labels, load_data

LENGTH = 64  # positions by default

# Of `SubjectOptions`, under the names that `TrainConfig` has for them; a run has its own.
_READING = ("length", "tokenizer", "task", "text_field", "skip_nulls", "label_field", "data_dir")


class Subject(NamedTuple):
    """A model and documents to analyse it.

    Attributes:
        module: a classifier or language model of `jaxpe.nn`, or a transformer without a head.
        documents: tokens `[documents, length]`, and their classes for a classifier.
        vocabulary: vocabulary of the model, with the ids of [MASK] and of special tokens.
        source: name of the corpus.
        model: description of the model.
        trained: whether its weights differ from their initial values.
    """

    module: Any
    documents: LabelledTokens
    vocabulary: Vocabulary
    source: str = "corpus"
    model: str = "model"
    trained: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubjectOptions(Source, Model):
    """Documents and a model.

    Attributes:
        source: stdlib, sst2, imdb, or one or several paths and patterns (in quotes) of files,
            folders and datasets that `jaxpe.load_corpus` reads: text (.txt), tables (.csv, .jsonl,
            .parquet) and others. In a .csv, quotation marks quote fields; rename a .tsv to have it
            read so. For a run, its own source when absent.
        model: folder of a `jaxpe train` run, or a Hugging Face directory of a BERT or MPNet or its
            name on the hub; when absent, a small transformer with its initial parameters. A run has
            its own documents, length and task.
        length: number of positions, special tokens included; 64 when absent.
        tokenizer: words, characters, bytes, or a path: BERT vocab.txt, tokenizer.json or .gguf;
            words when absent, or the model's own.
        task: classify, mlm (masked words) or causal (next word); without labels mlm when absent.
        label_field: column or key with the class; label when absent.
    """

    task: Literal["classify", "mlm", "causal"] | None = None
    label_field: str | None = None


class _Model(NamedTuple):
    config: TrainConfig  # options for reading documents
    module: Any  # None where it is built from the vocabulary
    description: str
    trained: bool = True


def read_subject(
    options: SubjectOptions,
    *,
    new_head: bool = True,
    held_out: bool = False,
    progress: Progress = SILENT,
) -> Subject:
    r"""The documents and the model, with initial weights or from a run.

    Args:
        options: options of the analysis.
        new_head: whether a pretrained encoder gets a new head for the task. Otherwise it has its
            pretrained head if the task is mlm, and none without a task; `model` may then also be a
            decoder: a .gguf, a folder with one, or a Hugging Face directory.
        held_out: whether to take the held-out documents of a run.
        progress: receiver of progress in reading the documents.

    Raises:
        InputError: an unreadable source or model, or an unsuitable model.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lines.txt"
    >>> _ = path.write_text("\n".join(f"words of line {k}" for k in range(20)))
    >>> subject = read_subject(SubjectOptions(source=str(path), length=4))
    >>> subject.source, subject.model, subject.vocabulary.task
    ('lines.txt', '2 layers of width 64, as initialised', 'mlm')
    """
    options = local_model_options(options, "model")
    folder = None if options.model is None else Path(options.model)
    held_out = held_out and folder is not None and is_run(folder)
    model = _read_model(options, folder, new_head=new_head)
    data = load_data(model.config, progress=progress)
    documents = data.held_out if held_out else data.train
    module = build_model(model.config, data.vocabulary) if model.module is None else model.module
    check_fits(module, documents.corpus, options.model)
    source = documents.corpus.name + (", held out" if held_out else "")
    return Subject(module, documents, data.vocabulary, source, model.description, model.trained)


def _read_model(options: SubjectOptions, folder: Path | None, *, new_head: bool) -> _Model:
    if folder is None:
        return _Model(_small_config(options), None, "2 layers of width 64, as initialised", False)
    if is_run(folder):
        config = load_config(folder)
        _check_agrees(options, config)
        run = load_run(folder)
        description = f"{folder.name}, trained for {run.step:,} steps"
        return _Model(config, run.model, description, trained=run.step > 0)
    if new_head:
        return _Model(_small_config(options), None, f"{model_name(folder)}, new head")
    if _is_decoder(folder):
        if options.task not in (None, "causal"):
            raise InputError(
                f"`task={options.task}`: a decoder predicts the next token; leave `task` out"
            )
        tokenizer = options.tokenizer or str(model_tokenizer_file(folder))
        config = _reading_config(options, tokenizer=tokenizer, task="causal")
        name = folder.stem if folder.is_file() else model_name(folder)
        return _Model(config, load_causal_lm(folder), name)
    if options.task not in (None, "mlm"):
        raise InputError(
            f"`task={options.task}`: {folder} has no head trained for it; leave `task` out to look "
            "at how its embeddings move, or pass the folder of a `jaxpe train` run"
        )
    config, name = _small_config(options), model_name(folder)
    if options.task == "mlm":
        return _Model(config, None, f"{name}, masked language model")
    return _Model(config, load_encoder(folder), name)


def load_encoder(folder: Path) -> Any:
    """The encoder of a Hugging Face directory of a BERT or MPNet."""
    return Bert.load(folder, scan=True).encoder


def is_run(folder: Path) -> bool:
    """Whether a folder was written by `jaxpe train`."""
    return (folder / "checkpoints").is_dir()


def _is_decoder(path: Path) -> bool:
    """Whether a path is a .gguf file, or a folder with one or with the config.json of a decoder."""
    if path.suffix == ".gguf" or any(path.glob("*.gguf")):
        return True
    try:
        return row_name(text_fields(read_config(path / "config.json"))) in DECODERS
    except InputError:
        return False  # the loader says what is wrong


def _small_config(options: SubjectOptions) -> TrainConfig:
    """Configuration of a small model with initial weights, or for documents of a pretrained one."""
    # Eq. (1) of Cirrincione (2026): the first attention reads E(t) + p, without a norm before it.
    small = ModelConfig(
        dim=64, layers=2, heads=4, norm_position="post", embedding_norm=False, dropout=0.0
    )
    config = _reading_config(options, pretrained=options.model, model=small)
    if config.task is None and not has_labels(config):
        config = dataclasses.replace(config, task="mlm")
    return config


def _reading_config(options: SubjectOptions, **fields: Any) -> TrainConfig:
    """Configuration for reading documents; options that are None keep its defaults."""
    check_data_dir(options.data_dir, options.source)
    config: dict[str, Any] = {"length": LENGTH} | _changed_options(options) | fields
    return TrainConfig(source=options.source, seed=options.seed, **config)


def _changed_options(options: SubjectOptions) -> dict[str, Any]:
    """Options for reading documents that differ from their defaults."""
    values = {name: getattr(options, name) for name in _READING}
    return {name: v for name, v in values.items() if v != getattr(SubjectOptions, name)}


def _check_agrees(options: SubjectOptions, config: TrainConfig) -> None:
    """Raise for options that differ from a run's, whose model knows no other tokens."""
    for name, value in _changed_options(options).items():
        if value != (trained := getattr(config, name)):
            raise InputError(f"`{name}={value}`: the run has its own, {trained}; leave it out")
    sources, trained = as_sources(options.source), as_sources(config.source)
    if sources != [SubjectOptions.source] and [*map(os.path.realpath, sources)] != [
        *map(os.path.realpath, trained)
    ]:
        raise InputError(
            f"the run was trained on {', '.join(trained)}, not on {', '.join(sources)}: leave "
            "`source` out"
        )


def check_fits(module: Any, corpus: TokenCorpus, model: str | None) -> None:
    """Raise for documents with a token or position without an embedding in the model."""
    below = trunk(module)
    check_sizes(corpus, below.config.vocab_size, getattr(below, "length", None), model)


def check_sizes(
    corpus: TokenCorpus, vocabulary: int, positions: int | None, model: str | None
) -> None:
    """Raise for documents with a token or position beyond the sizes of a model."""
    n = corpus.ids.shape[1]
    if positions is not None and n > positions:
        raise InputError(f"`length={n}` is more than the {positions} positions of {model}")
    if corpus.ids.max(initial=0) >= vocabulary:
        raise InputError(
            f"the tokenizer has {corpus.vocab_size:,} tokens and {model} only "
            f"{vocabulary:,}: leave `tokenizer` out to use the model's own"
        )

"""What is looked at, from what a person types: a corpus by name or file, a folder with a model."""

import dataclasses
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError
from jaxpe.analysis.attention.documents import (
    Score,
    SpectralSubject,
    spectral_subject,
    transformer_of,
)
from jaxpe.analysis.ranges import LENGTH, check_audit, check_spectral
from jaxpe.analysis.subject import Subject, subject_of
from jaxpe.data import LabelledTokens, Progress
from jaxpe.data._named import check_data_dir
from jaxpe.nn import Bert, MPNet, load_llama
from jaxpe.nn.huggingface import read_config, read_fields
from jaxpe.training import ModelConfig, TrainConfig, load_run
from jaxpe.training.assemble import build_model
from jaxpe.training.config import load_config
from jaxpe.training.documents import count_documents, has_labels, load_data

_SCORES: dict[str, Score] = {"classify": "accuracy", "mlm": "masked", "causal": "causal"}


def read_subject(
    source: str,
    *,
    examples: int,
    length: int | None = None,
    model: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **reading: Any,
) -> Subject:
    """The documents and the model, at its start or as a run left it.

    Args:
        source: as for `jaxpe report`; that of a run when it is the default, "stdlib".
        examples: documents that expectations are over.
        length: positions; 64 when None. A run has its own.
        model: folder of a `jaxpe train` run, or a Hugging Face directory of a BERT or MPNet; a
            small transformer as initialised when absent.
        seed: of the examples, the held-out documents and a new model.
        progress: as for `jaxpe.load_tokens`.
        reading: fields of `jaxpe.training.TrainConfig` on documents, as `task` and `tokenizer`;
            those that are None keep their default. A run has its own.

    Raises:
        InputError: for what cannot be read, or a model that does not suit.
    """
    check_audit(examples=examples, length=length, steps=1, seed=seed)
    config, built, words = _model_of(source, model, length=length, seed=seed, **reading)
    check_audit(examples=examples, length=config.length, steps=1, seed=seed)
    data = load_data(config, progress=progress)
    counts = count_documents(data.train)
    if built is None:
        built = build_model(config, data.vocabulary, counts=counts)
    return subject_of(
        built,
        data.train,
        data.vocabulary,
        counts,
        examples=examples,
        seed=seed,
        source=config.source,
        words=words,
    )


def read_spectral_subject(
    source: str,
    *,
    examples: int,
    length: int | None = None,
    model: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **reading: Any,
) -> SpectralSubject:
    """The documents and the model, and a score that suits it.

    A run is scored at its task, on documents it was not trained on; a Llama at the next token; an
    encoder without a trained head by how its embeddings move.

    Args:
        source: as for `jaxpe report`; that of a run when it is the default, "stdlib".
        examples: documents.
        length: positions, special tokens among them; 64 when None. A run has its own.
        model: as for `read_subject`, or the path of a Llama: a .gguf, a folder with one and a
            tokenizer.json, or a Hugging Face directory.
        seed: as for `read_subject`.
        progress: as for `jaxpe.load_tokens`.
        reading: as for `read_subject`; `task` may be mlm for a BERT or MPNet with such a head.

    Raises:
        InputError: for what cannot be read, or a model that does not suit.
    """
    check_spectral(examples=examples, length=length, seed=seed)
    options: dict[str, Any] = {"length": length, "seed": seed, **reading}
    module: Any = None
    if model is not None and _is_llama(Path(model)):
        config, words = _beside_llama(source, Path(model), **options)
        module = load_llama(model)
    elif model is not None and not _is_run(Path(model)):
        config, module, words = _encoder(source, model, **options)
    else:
        config, module, words = _model_of(source, model, **options)
    of_run = model is not None and _is_run(Path(model))
    data = load_data(config, progress=progress)
    documents = data.held_out if of_run else data.train
    score = _SCORES[data.vocabulary.task]
    if module is None:
        module = build_model(config, data.vocabulary)
    elif isinstance(module, Bert):
        module, score = module.encoder, "embedding"
    _check_fits(module, documents, model)
    below = transformer_of(module).config
    heads = {"layers": below.num_layers, "heads": below.num_heads}
    check_spectral(examples=examples, length=config.length, seed=seed, **heads)
    return spectral_subject(
        module,
        documents,
        data.vocabulary,
        score=score,
        examples=examples,
        seed=seed,
        source=f"{documents.corpus.name}, held out" if of_run else documents.corpus.name,
        words=words,
    )


def _model_of(
    source: str, model: str | None, *, length: int | None, seed: int, **reading: Any
) -> tuple[TrainConfig, Any, str]:
    """A configuration that reads the documents, and the model where it exists already."""
    folder = None if model is None else Path(model)
    if folder is not None and _is_run(folder):
        config = load_config(folder)
        _check_own(source, config, length=length, **reading)
        run = load_run(folder)
        return config, run.model, f"{folder.name}, trained for {run.step:,} steps"
    # Eq. (1) as it is: the first attention reads E(t) + p, without a norm before it.
    small = ModelConfig(
        dim=64, layers=2, heads=4, norm_position="post", embedding_norm=False, dropout=0.0
    )
    config = _reading(source, length=length, seed=seed, pretrained=model, model=small, **reading)
    if config.task is None and not has_labels(config):
        config = dataclasses.replace(config, task="mlm")
    words = "2 layers 64 wide, as initialised" if folder is None else f"{folder.name}, new head"
    return config, None, words


def _encoder(
    source: str, directory: str, *, task: str | None = None, **reading: Any
) -> tuple[TrainConfig, Bert | None, str]:
    """How to read documents for a BERT or MPNet, and it; None where it has a head to be loaded."""
    family = MPNet if read_fields(directory)[0].model_type == MPNet.model_type else Bert
    name = Path(directory).name
    if task not in (None, "mlm"):
        raise InputError(
            f"`task={task}`: {directory} has no head trained for it; leave `task` out to look at "
            "how its embeddings move, or pass the folder of a `jaxpe train` run"
        )
    config, _, _ = _model_of(source, directory, task=task, **reading)
    if task == "mlm":
        return config, None, f"{name}, masked language model"
    return config, family.load(directory, scan=True), name


def _beside_llama(
    source: str,
    path: Path,
    *,
    tokenizer: str | None = None,
    task: str | None = None,
    **reading: Any,
) -> tuple[TrainConfig, str]:
    """How to read documents for a Llama: by the tokenizer.json beside it."""
    if task not in (None, "causal"):
        raise InputError(f"`task={task}`: a Llama predicts the next token; leave `task` out")
    folder = path.parent if path.is_file() else path
    if tokenizer is None:
        if not (folder / "tokenizer.json").is_file():
            raise InputError(f"{folder} has no tokenizer.json: put it there, or pass `tokenizer`")
        tokenizer = str(folder / "tokenizer.json")
    config = _reading(source, tokenizer=tokenizer, task="causal", **reading)
    return config, path.stem if path.is_file() else path.name


def _is_run(folder: Path) -> bool:
    return (folder / "checkpoints").is_dir()


def _is_llama(path: Path) -> bool:
    """Whether there is a .gguf, or a config.json that says so."""
    if path.suffix == ".gguf" or any(path.glob("*.gguf")):
        return True
    try:
        return read_config(path / "config.json").get("model_type") == "llama"
    except InputError:
        return False  # whoever reads it says what is wrong


def _reading(source: str, *, length: int | None, **fields: Any) -> TrainConfig:
    """A configuration that reads documents; what is None keeps its default."""
    given = {name: value for name, value in fields.items() if value is not None}
    check_data_dir(given.get("data_dir"), source)
    return TrainConfig(source=source, length=LENGTH if length is None else length, **given)


def _check_own(source: str, config: TrainConfig, **reading: Any) -> None:
    """A run has its documents: other tokens mean nothing to it."""
    for name, value in reading.items():
        if value is not None and value != getattr(config, name):
            option = name.replace("_", "-")
            raise InputError(
                f"--{option} {value}: the run has its own, {getattr(config, name)}; leave it out"
            )
    if source != "stdlib" and Path(source).resolve() != Path(config.source).resolve():
        raise InputError(
            f"the run was trained on {config.source}, not on {source}: leave the source out"
        )


def _check_fits(module: Any, documents: LabelledTokens, model: str | None) -> None:
    """Raise where a model has no embedding for a token or a position."""
    below, corpus = transformer_of(module), documents.corpus
    places = getattr(below, "length", None)
    if places is not None and corpus.ids.shape[1] > places:
        raise InputError(
            f"`length={corpus.ids.shape[1]}` is more than the {places} positions of {model}"
        )
    if corpus.ids.max(initial=0) >= below.config.vocab_size:
        raise InputError(
            f"the tokenizer has {corpus.vocab_size:,} tokens and {model} only "
            f"{below.config.vocab_size:,}: leave `tokenizer` out to use the model's own"
        )

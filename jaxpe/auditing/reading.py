"""A subject from what a person types: a corpus by name or file, and a folder with a model."""

import dataclasses
from pathlib import Path
from typing import Any

from jaxpe.auditing.subject import Subject, subject_of
from jaxpe.data import Progress
from jaxpe.training import ModelConfig, TrainConfig, load_run
from jaxpe.training.assemble import build_model
from jaxpe.training.config import load_config
from jaxpe.training.documents import count_documents, has_labels, load_data


def read_subject(
    source: str,
    *,
    examples: int,
    length: int,
    model: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **reading: Any,
) -> Subject:
    """The documents and the model, at its start or as a run left it.

    Args:
        source: as for `jaxpe report`.
        examples: documents that expectations are over.
        length: positions.
        model: folder of a `jaxpe train` run, or a Hugging Face directory of a BERT or MPNet; a
            small transformer as initialised when absent.
        seed: of the examples, the held-out documents and a new model.
        progress: as for `jaxpe.load_tokens`.
        reading: fields of `jaxpe.training.TrainConfig` on documents, as `task` and `tokenizer`.

    Raises:
        InputError: for what cannot be read, or a model that does not suit.
    """
    config, built, words = _model_of(source, model, length=length, seed=seed, **reading)
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
        source=source,
        words=words,
    )


def _model_of(
    source: str, model: str | None, *, length: int, seed: int, **reading: Any
) -> tuple[TrainConfig, Any, str]:
    """A configuration that reads the documents, and the model where it exists already."""
    folder = None if model is None else Path(model)
    if folder is not None and (folder / "checkpoints").is_dir():
        run = load_run(folder)
        return load_config(folder), run.model, f"{folder.name}, trained for {run.step:,} steps"
    # Eq. (1) as it is: the first attention reads E(t) + p, without a norm before it.
    small = ModelConfig(
        dim=64, layers=2, heads=4, norm_position="post", embedding_norm=False, dropout=0.0
    )
    config = TrainConfig(
        source=source, length=length, seed=seed, pretrained=model, model=small, **reading
    )
    if config.task is None and not has_labels(config):
        config = dataclasses.replace(config, task="mlm")
    words = "2 layers 64 wide, as initialised" if folder is None else f"{folder.name}, new head"
    return config, None, words

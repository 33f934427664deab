"""A pretrained model for a report on a corpus: its position vectors and its tokenizer."""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.hub import model_name
from jaxpe.encodings import CatalogueEntry, from_vectors
from jaxpe.nn import position_table

FAMILY = "model"


class ModelPositions(NamedTuple):
    """Position vectors and tokenizer of a model, for a report on a corpus.

    Attributes:
        entry: its position vectors as an encoding, of their own width.
        positions: number of them.
        tokenizer: name or path of its tokenizer, as `load_tokens` takes it.
        special: whether it reads [CLS] and [SEP].
    """

    entry: CatalogueEntry
    positions: int
    tokenizer: str
    special: bool


def model_positions(folder: Path) -> ModelPositions:
    """The position vectors of a BERT or MPNet, or of a training run; raises `InputError`."""
    from jaxpe.analysis.subject import is_run, load_encoder  # imports Flax and Optax
    from jaxpe.training import load_run
    from jaxpe.training.config import load_config, tokenizer_name

    if is_run(folder):
        config = load_config(folder)
        length, tokenizer = config.length, tokenizer_name(config)
        special = config.special or config.pretrained is not None
        module = load_run(folder).model
    else:
        module, length = load_encoder(folder), None
        tokenizer, special = str(folder), True
    table = np.asarray(position_table(module, length=length), np.float32)
    return ModelPositions(entry_of_table(table, model_name(folder)), len(table), tokenizer, special)


def entry_of_table(table: np.ndarray, name: str) -> CatalogueEntry:
    """A table of position vectors `[n, d]` as an encoding to be scored at its own width."""

    def vectors(params: tuple[()], positions: ArrayLike) -> Array:
        return rows[positions]

    rows = jnp.asarray(table, jnp.result_type(float))
    encoding = from_vectors(vectors)
    return CatalogueEntry(
        name=name,
        family=FAMILY,
        make=lambda sizes: encoding,
        source="a model",
        vectors=f"its table, {table.shape[0]} rows of {table.shape[1]}",
    )

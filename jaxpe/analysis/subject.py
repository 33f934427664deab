"""Subjects of an analysis: a model and documents."""

from typing import Any, NamedTuple

from jaxpe.data import LabelledTokens
from jaxpe.training.documents import Vocabulary


class Subject(NamedTuple):
    """A model and documents to analyse it.

    Attributes:
        module: a classifier or language model of `jaxpe.nn`, or a transformer without a head.
        documents: tokens `[documents, length]`, and their classes where the model tells classes.
        vocabulary: vocabulary of the model, and the ids of [MASK] and of what is no text.
        source: the corpus, in words.
        model: description of the model.
        trained: whether its weights are other than at initialisation.
    """

    module: Any
    documents: LabelledTokens
    vocabulary: Vocabulary
    source: str = "corpus"
    model: str = "model"
    trained: bool = True

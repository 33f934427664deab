"""A subject as functions of position vectors, with examples and distances, for the statements."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax import Array

from jaxpe import geometry
from jaxpe._core.errors import InputError
from jaxpe.analysis.subject import Subject
from jaxpe.geometry import Distances, PositionalDistributions, PositionCounts
from jaxpe.nn import position_functions
from jaxpe.nn.heads import trunk
from jaxpe.nn.positions import PositionFunctions
from jaxpe.theory.audit import within
from jaxpe.training.documents import (
    Vocabulary,
    count_documents,
    count_rotated,
    document_geometry,
)
from jaxpe.training.masking import masked_ids, random_position

_LEAST = 3  # positions with text
_NULLS = 4  # rotated corpora of a test of triples


class PositionLoss(NamedTuple):
    """A model and its loss on examples, as functions of its position vectors.

    Attributes:
        functions: the model as functions of its position vectors.
        outputs: `(P, shift, example, added=None) -> inputs of the loss`; shift and added as in
            `PositionFunctions.apply`.
        loss: `(outputs, example) -> scalar`.
        family: family of losses, as Corollary 15 distinguishes them.
        layers: blocks of the model.
        reads_first: whether it classifies by the first token, as BERT does by [CLS].
        examples: pytree of `[examples, ...]`.
    """

    functions: PositionFunctions
    outputs: Callable[..., Array]
    loss: Callable[[Array, Any], Array]
    family: Literal["classification", "masked"]
    layers: int
    reads_first: bool
    examples: dict[str, np.ndarray]

    def at_no_shift(self, P: Array, example: Any, *, added: Array | None = None) -> Array:
        """The outputs, with nothing added to the logits of attention."""
        return self.outputs(P, self.functions.no_shift, example, added=added)


class Geometry(NamedTuple):
    """Counts of the documents, and distributions and distances over positions with text.

    Attributes:
        counts: counts in folds.
        mu: positional distributions.
        D: their Hellinger distances, uncorrected for noise.
        nulls: counts of rotated documents.
        position: squared distances of position alone, over the present positions.
    """

    counts: PositionCounts
    mu: PositionalDistributions
    D: Distances
    nulls: list[PositionCounts]
    position: np.ndarray


def position_loss(
    subject: Subject, *, examples: int, seed: int = 0, temperature: float = 1.0
) -> PositionLoss:
    """The model and its loss on documents drawn by the seed.

    The loss of a language model is the loss of one token of each document, drawn by the seed; the
    loss of all tokens is a sum of these.

    Args:
        subject: a classifier or language model with multi-head attention of one key a head.
        examples: number of documents to average over.
        seed: random seed of the documents, and of the token to guess in each.
        temperature: τ, which divides the outputs before the softmax of the loss.

    Raises:
        InputError: a model that is no function of positions and of shifts of its logits.

    >>> subject = read_subject(SubjectOptions(source="stdlib", length=16))  # doctest: +SKIP
    >>> position_loss(subject, examples=32).functions.vectors.shape  # doctest: +SKIP
    (16, 64)
    """
    corpus, labels = subject.documents.corpus, subject.documents.labels
    try:
        functions = position_functions(subject.module, length=corpus.ids.shape[1])
    except ValueError as error:
        raise InputError(str(error)) from error
    rows = np.sort(np.random.default_rng(seed).permutation(len(labels))[:examples])
    chosen = {"ids": corpus.ids[rows], "mask": corpus.mask[rows]}
    classify = subject.vocabulary.task == "classify"
    if classify:
        chosen["target"] = labels[rows]
    else:
        chosen = _examples(chosen, subject.vocabulary, rng=np.random.default_rng([seed, 1]))

    def outputs(P: Array, shift: Array, example: Any, *, added: Array | None = None) -> Array:
        ids, mask = example["ids"], example["mask"]
        logits = functions.apply(P, shift, ids, mask=mask, added=added).logits
        return (logits if classify else logits[example["place"]]) / temperature

    def loss(outputs: Array, example: Any) -> Array:
        return -jax.nn.log_softmax(outputs)[example["target"]]

    return PositionLoss(
        functions=functions,
        outputs=outputs,
        loss=loss,
        family="classification" if classify else "masked",
        layers=trunk(subject.module).config.num_layers,
        reads_first=classify and subject.module.pooling == "first",
        examples=chosen,
    )


def _examples(
    documents: dict[str, np.ndarray], vocabulary: Vocabulary, *, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Documents with a token to guess, masked or from the tokens before it, and its position."""
    ahead = vocabulary.task == "causal"
    text = documents["mask"] & ~np.isin(documents["ids"], vocabulary.special_ids)
    text[:, : int(ahead)] = False
    some = text.any(axis=1)
    ids, masked = documents["ids"][some], random_position(text[some], rng=rng)
    return {
        "ids": ids if ahead else masked_ids(ids, masked, mask_id=vocabulary.mask_id),
        "mask": documents["mask"][some],
        "target": np.take_along_axis(ids, masked, axis=1)[:, 0],
        "place": masked[:, 0] - ahead,
    }


def geometry_of(subject: Subject) -> Geometry:
    """Distributions and distances over the positions with text, plug-in and of position alone.

    Raises `InputError` if text reaches fewer than three positions in each half of the documents.

    Args:
        subject: result of `read_subject`; its documents alone are read.

    >>> geometry_of(subject).D.values.shape  # doctest: +SKIP
    (16, 16)
    """
    counts = count_documents(subject.documents)
    mu, D = _distances(counts)
    position = document_geometry(subject.documents.corpus, seed=0)
    reached = np.count_nonzero(position.present)
    if reached < _LEAST:
        raise InputError(
            f"{subject.source}: text of both halves of the documents reaches {reached} positions, "
            f"and {_LEAST} at least are needed: pass more or longer documents, or a larger `length`"
        )
    nulls = count_rotated(subject.documents, seed=1, number=_NULLS)
    return Geometry(counts, mu, D, nulls, within(position.squared_distances, position.present))


@jax.jit
def _distances(counts: PositionCounts) -> tuple[PositionalDistributions, Distances]:
    merged = counts.merged()
    mu = geometry.positional_distributions(merged, empty="zero")
    mu = mu._replace(present=merged.per_position > 0)
    return mu, geometry.hellinger_distances(mu)

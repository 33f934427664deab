"""What is audited: a model and a corpus, as plain functions and arrays."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe.analysis.ranges import check_audit
from jaxpe.data import LabelledTokens
from jaxpe.geometry import Distances, PositionalDistributions, PositionCounts
from jaxpe.nn import PositionFunctions, functions_of_positions
from jaxpe.training.documents import Vocabulary


class Subject(NamedTuple):
    """A model and a corpus.

    Attributes:
        source: the corpus, in words.
        model: what the model is, in words.
        of: it, as a function of its position vectors.
        outputs: `(P, shift, example, added=None) -> what the loss looks at`; shift and added as in
            `PositionFunctions.apply`.
        loss: `(outputs, example) -> scalar`.
        family: of losses, as Corollary 15 tells them apart.
        layers: blocks of the model.
        reads_first: whether it classifies by the first token, as BERT does by [CLS].
        examples: pytree of `[examples, ...]`.
        counts: of the corpus, in folds.
    """

    source: str
    model: str
    of: PositionFunctions
    outputs: Callable[..., Array]
    loss: Callable[[Array, Any], Array]
    family: Literal["classification", "masked"]
    layers: int
    reads_first: bool
    examples: dict[str, np.ndarray]
    counts: PositionCounts

    def at_no_shift(self, P: Array, example: Any, *, added: Array | None = None) -> Array:
        """The outputs, with nothing added to the logits of attention."""
        return self.outputs(P, self.of.no_shift, example, added=added)


class Geometry(NamedTuple):
    """Positional distributions and their distances, over positions with text."""

    mu: PositionalDistributions
    D: Distances


def subject_of(
    model: Any,
    documents: LabelledTokens,
    vocabulary: Vocabulary,
    counts: PositionCounts,
    *,
    examples: int,
    seed: int = 0,
    source: str = "corpus",
    words: str = "model",
) -> Subject:
    """A classifier or language model, with examples drawn by the seed.

    Args:
        model: of `jaxpe.nn`, with multi-head attention of one key a head.
        documents: tokens `[documents, length]` and their classes.
        vocabulary: what the model does, and the ids of [MASK] and of what is no text.
        counts: of the documents, in folds.
        examples: documents that expectations are over.
        seed: draws them, and the token to guess of each.
        source: the corpus, in words.
        words: the model, in words.

    Raises:
        InputError: for a model that is no function of positions and of shifts of its logits, and
            for examples or a seed out of range.
    """
    check_audit(examples=examples, length=None, steps=1, seed=seed)
    try:
        of = functions_of_positions(model, length=documents.corpus.ids.shape[1])
    except ValueError as error:
        raise InputError(str(error)) from error
    rows = np.random.default_rng(seed).permutation(len(documents.labels))
    rows = np.sort(rows[:examples])
    corpus = documents.corpus
    chosen = {"ids": corpus.ids[rows], "mask": corpus.mask[rows]}
    classify = vocabulary.task == "classify"
    if classify:
        chosen["target"] = documents.labels[rows]
    else:
        chosen = _to_guess(chosen, vocabulary, seed=seed)

    def outputs(P: Array, shift: Array, example: Any, *, added: Array | None = None) -> Array:
        logits = of.apply(P, shift, example["ids"], mask=example["mask"], added=added).logits
        return logits if classify else logits[example["place"]]

    def loss(outputs: Array, example: Any) -> Array:
        return -jax.nn.log_softmax(outputs)[example["target"]]

    layers = (model.decoder if hasattr(model, "decoder") else model.encoder).config.num_layers
    reads_first = classify and model.pooling == "first"
    family: Literal["classification", "masked"] = "classification" if classify else "masked"
    return Subject(source, words, of, outputs, loss, family, layers, reads_first, chosen, counts)


def _to_guess(
    documents: dict[str, np.ndarray], vocabulary: Vocabulary, *, seed: int
) -> dict[str, np.ndarray]:
    """One token to guess in each document: the loss of the others is a sum of such."""
    ahead = vocabulary.task == "causal"
    real = documents["mask"] & ~np.isin(documents["ids"], vocabulary.special_ids)
    real[:, : int(ahead)] = False
    some = real.any(axis=1)
    chosen = {name: array[some] for name, array in documents.items()}
    rng = np.random.default_rng([seed, 1])
    place = np.array([rng.choice(np.flatnonzero(row)) for row in real[some]], np.int32)
    every = np.arange(len(place))
    chosen["target"] = chosen["ids"][every, place]
    if not ahead:
        chosen["ids"] = chosen["ids"].copy()
        chosen["ids"][every, place] = vocabulary.mask_id
    return chosen | {"place": place - ahead}


def geometry_of(subject: Subject) -> Geometry:
    """Distributions and plug-in Hellinger distances over the positions that hold text.

    Raises:
        InputError: where text reaches fewer than three positions.
    """
    counts = subject.counts.merged()
    mu = jaxpe.positional_distributions(counts, empty="zero")
    mu = mu._replace(present=counts.per_position > 0)
    if int(mu.present.sum()) < 3:
        raise InputError(
            f"{subject.source}: text reaches {int(mu.present.sum())} positions, and three at least "
            "are needed: pass longer documents or a larger `length`"
        )
    return Geometry(mu, jaxpe.hellinger_distances(mu))


def inner(matrix: Array, present: Array) -> Array:
    """The rows and columns of positions with text."""
    kept = np.flatnonzero(present)
    return jnp.asarray(matrix)[kept[:, None], kept]

"""A model, and the documents by which its attention logits and heads are looked at.

Logits are looked at on rows that text fills from end to end, so that every pair of positions has
all documents behind it; heads are ablated on documents as they come.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.analysis.ranges import LEAST_ROWS, check_spectral
from jaxpe.data import LabelledTokens, TokenCorpus, containment_groups
from jaxpe.nn import Transformer
from jaxpe.training.documents import Vocabulary

Score = Literal["accuracy", "masked", "causal", "embedding"]

_MASK_RATE = 0.15


class SpectralSubject(NamedTuple):
    """A model and documents.

    Attributes:
        source: the corpus, in words.
        model: what the model is, in words.
        module: it: a transformer, or a classifier or language model on one.
        score: what a head is worth something for.
        rows: token ids `[documents, n]` without padding, for the logits.
        text: the places in a row that are looked at: all but [CLS] and [SEP].
        documents: others, padded, for the score: `ids`, `mask` and what it compares with.
        seed: of what was drawn, and of resamples.
    """

    source: str
    model: str
    module: Any
    score: Score
    rows: np.ndarray
    text: slice
    documents: dict[str, np.ndarray]
    seed: int

    @property
    def transformer(self) -> Transformer:
        """What is below the model's head."""
        return transformer_of(self.module)


def spectral_subject(
    module: Any,
    documents: LabelledTokens,
    vocabulary: Vocabulary,
    *,
    score: Score,
    examples: int,
    seed: int = 0,
    source: str = "corpus",
    words: str = "model",
) -> SpectralSubject:
    """A model with the documents to look at it by, drawn by the seed.

    The rows for the logits are from different documents that reach as far as `examples` of them, or
    half of all, do; longer ones are cut, and keep their last token where it is a special one.

    Args:
        module: of `jaxpe.nn`.
        documents: tokens `[documents, length]`, and classes where the score is accuracy.
        vocabulary: the ids of [MASK] and of what is no text.
        score: "accuracy" of a classifier; "masked" and "causal", minus the loss of a language model
            in nats a token; "embedding", the cosine between the mean of the last hidden states and
            the same with all heads.
        examples: documents, at most; accuracy is over eight times as many.
        seed: draws them.
        source: the corpus, in words.
        words: the model, in words.

    Raises:
        InputError: for a model without heads, or documents that fill fewer than 4 positions.
    """
    transformer_of(module)
    check_spectral(examples=examples, length=None, seed=seed)
    corpus = documents.corpus
    rows = _full_rows(corpus, examples=examples, seed=seed)
    text = _text_places(rows, corpus, source)
    scored = _scored(documents, vocabulary, score, examples=examples, seed=seed)
    return SpectralSubject(source, words, module, score, rows, text, scored, seed)


def transformer_of(module: Any) -> Transformer:
    """What is below a model's head.

    Raises:
        InputError: for a model without attention heads.
    """
    below = module
    for name in ("encoder", "decoder"):
        below = getattr(below, name, below)
    if not isinstance(below, Transformer):
        raise InputError(
            f"{type(module).__name__} has no attention heads that could be looked at or gated: "
            "pass a transformer of jaxpe.nn, or a classifier or language model on one"
        )
    return below


def _text_places(rows: np.ndarray, corpus: TokenCorpus, source: str) -> slice:
    """Where some row has more than a special token."""
    places = np.flatnonzero(~np.isin(rows, corpus.exclude).all(axis=0))
    if len(places) < LEAST_ROWS:
        raise InputError(
            f"{source}: {len(rows)} documents have only {len(places)} positions of text in common, "
            f"and {LEAST_ROWS} at least are needed: pass longer documents, or a larger `length`"
        )
    return slice(int(places[0]), int(places[-1]) + 1)


def _full_rows(corpus: TokenCorpus, *, examples: int, seed: int) -> np.ndarray:
    """Rows without padding, a multiple of four of them, no two from one document."""
    groups = containment_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    rng = np.random.default_rng(seed)
    lengths = corpus.mask.sum(axis=1)
    longest_first = np.lexsort((rng.permutation(len(lengths)), -lengths))
    _, first = np.unique(groups[longest_first], return_index=True)
    own = longest_first[np.sort(first)]
    wanted = min(examples, len(own) // 2) // 4 * 4  # halves, and halves of them
    if wanted < LEAST_ROWS:
        raise InputError(
            f"{corpus.name}: {len(own)} documents are too few to compare positions: pass at least "
            f"{2 * LEAST_ROWS} that are not parts of each other"
        )
    n = int(lengths[own[wanted - 1]])
    chosen = np.sort(rng.choice(own[lengths[own] >= n], wanted, replace=False))
    ids = corpus.ids[chosen, :n]
    last = corpus.ids[chosen, lengths[chosen] - 1]
    ids[:, -1] = np.where(np.isin(last, corpus.exclude), last, ids[:, -1])
    return ids


def _scored(
    documents: LabelledTokens, vocabulary: Vocabulary, score: Score, *, examples: int, seed: int
) -> dict[str, np.ndarray]:
    """Documents as they come, with what their score compares with."""
    corpus = documents.corpus
    rng = np.random.default_rng([seed, 1])
    text = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    enough = np.flatnonzero(text.sum(axis=1) > int(score == "causal"))
    # Right or wrong is little to go by.
    rows = rng.permutation(enough)[: examples * (8 if score == "accuracy" else 1)]
    chosen = {"ids": corpus.ids[rows], "mask": corpus.mask[rows]}
    if score == "accuracy":
        chosen["labels"] = documents.labels[rows]
    if score == "masked":
        chosen |= _to_guess(chosen["ids"], text[rows], vocabulary, rng)
    n = int(chosen["mask"].sum(axis=1).max())
    return {k: v[:, :n] if k in ("ids", "mask") else v for k, v in chosen.items()}


def _to_guess(
    ids: np.ndarray, text: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """[MASK] in place of some tokens of text, one at least in each row, and their places."""
    if vocabulary.mask_id is None:
        raise InputError("the vocabulary has no [MASK], which a masked language model guesses at")
    drawn = np.where(text, rng.random(text.shape), 2.0)
    counts = np.maximum(1, np.round(_MASK_RATE * text.sum(axis=1)).astype(int))
    order = np.argsort(drawn, axis=1).astype(np.int32)[:, : counts.max()]
    guessed = np.arange(counts.max())[None] < counts[:, None]
    masked = ids.copy()
    rows = np.broadcast_to(np.arange(len(ids))[:, None], order.shape)
    masked[rows[guessed], order[guessed]] = vocabulary.mask_id
    targets = np.take_along_axis(ids, order, axis=1)
    return {"ids": masked, "places": order, "guessed": guessed, "targets": targets}

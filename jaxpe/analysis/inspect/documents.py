"""Documents of an inspection: full rows for attention, padded ones for the ablation of heads.

Text fills the rows for logits from end to end, so that all documents count at every pair of
positions. Heads are ablated on documents of any length.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.analysis.inspect.attention_result import Score
from jaxpe.analysis.subject import Subject
from jaxpe.data import TokenCorpus
from jaxpe.training.masking import masked_ids, random_positions

LEAST = 4  # least number of positions and documents
_ENTRIES = 2**24  # logits of all layers and heads in memory at once


class Sample(NamedTuple):
    """A model, and the documents drawn to analyse it.

    Attributes:
        module: a model of `jaxpe.nn`, or a `TorchModel`.
        score: measure of the ablation of heads.
        rows: token ids `[documents, n]` without padding, for the logits.
        text: positions of text in a row: all but [CLS] and [SEP].
        documents: padded documents for the score: `ids`, `mask` and its targets.
        seed: random seed of the draws and resamples.
    """

    module: Any
    score: Score
    rows: np.ndarray
    text: slice
    documents: dict[str, np.ndarray]
    seed: int


def draw_sample(subject: Subject, *, examples: int, score: Score, seed: int = 0) -> Sample:
    """A model with the documents to analyse it, drawn by the seed.

    The rows for the logits come from different documents. Their length is reached by `examples`
    documents, or by half of all; longer ones are cut, and keep their last token if it is special.

    Raises `InputError` for documents that fill fewer than 4 positions.
    """
    corpus = subject.documents.corpus
    rows = _full_rows(corpus, examples=examples, seed=seed)
    text = _text_slice(rows, corpus, subject.source)
    scored = _targets(subject, score, examples=examples, seed=seed)
    return Sample(subject.module, score, rows, text, scored, seed)


def _text_slice(rows: np.ndarray, corpus: TokenCorpus, source: str) -> slice:
    """Positions at which some row has a token that is not special."""
    positions = np.flatnonzero(~np.isin(rows, corpus.exclude).all(axis=0))
    if len(positions) < LEAST:
        raise InputError(
            f"{source}: {len(rows)} documents have only {len(positions)} positions of text in "
            f"common: pass longer documents, or a larger `length`, for at least {LEAST}"
        )
    return slice(int(positions[0]), int(positions[-1]) + 1)


def _full_rows(corpus: TokenCorpus, *, examples: int, seed: int) -> np.ndarray:
    """Rows without padding, a multiple of four of them, no two from one document."""
    groups = corpus.groups()
    rng = np.random.default_rng(seed)
    lengths = corpus.mask.sum(axis=1)
    longest_first = np.lexsort((rng.permutation(len(lengths)), -lengths))
    _, first = np.unique(groups[longest_first], return_index=True)
    distinct = longest_first[np.sort(first)]
    count = min(examples, len(distinct) // 2) // 4 * 4  # halves, and halves of them
    if count < LEAST:
        raise InputError(
            f"{corpus.name}: {len(distinct)} documents are too few to compare positions: pass at "
            f"least {2 * LEAST} that are not parts of each other"
        )
    n = int(lengths[distinct[count - 1]])
    chosen = np.sort(rng.choice(distinct[lengths[distinct] >= n], count, replace=False))
    ids = corpus.ids[chosen, :n]
    last = corpus.ids[chosen, lengths[chosen] - 1]
    ids[:, -1] = np.where(np.isin(last, corpus.exclude), last, ids[:, -1])
    return ids


def _targets(subject: Subject, score: Score, *, examples: int, seed: int) -> dict[str, np.ndarray]:
    """Documents of any length, with the targets of their score."""
    corpus = subject.documents.corpus
    rng = np.random.default_rng([seed, 1])
    text = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    enough = np.flatnonzero(text.sum(axis=1) > int(score == "causal"))
    # An accuracy needs more documents than a loss.
    rows = rng.permutation(enough)[: examples * (8 if score == "accuracy" else 1)]
    chosen = {"ids": corpus.ids[rows], "mask": corpus.mask[rows]}
    if score == "accuracy":
        chosen["labels"] = subject.documents.labels[rows]
    if score == "masked":
        mask_id = subject.vocabulary.mask_id
        chosen |= guessed_tokens(chosen["ids"], text[rows], mask_id=mask_id, rng=rng)
    n = int(chosen["mask"].sum(axis=1).max())
    return {k: v[:, :n] if k in ("ids", "mask") else v for k, v in chosen.items()}


def guessed_tokens(
    ids: np.ndarray, text: np.ndarray, *, mask_id: int | None, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Rows with [MASK] at some text positions, and the original tokens."""
    masked, guessed = random_positions(text, rng=rng)
    return {
        "ids": masked_ids(ids, masked, mask_id=mask_id, counted=guessed),
        "places": masked,
        "guessed": guessed,
        "targets": np.take_along_axis(ids, masked, axis=1),
    }


def rows_at_once(shape: tuple[int, ...], *, maps: int) -> int:
    """Rows in a batch, a divisor of a quarter of their number.

    Args:
        shape: shape `[rows, n]` of all rows.
        maps: number of attention maps of one row, layers times heads.
    """
    rows, n = shape
    most = max(1, _ENTRIES // (maps * n**2))
    quarter = rows // 4
    return max(size for size in range(1, quarter + 1) if quarter % size == 0 and size <= most)


def row_batches(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of rows, in order."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def shuffled_rows(rows: np.ndarray, text: slice, rng: np.random.Generator) -> np.ndarray:
    """Rows with the tokens of each in random order at the text positions."""
    rows = rows.copy()
    rows[:, text] = rng.permuted(rows[:, text], axis=1)
    return rows

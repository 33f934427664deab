"""Documents for the analysis of attention: full rows for logits, padded ones for ablation.

Text fills the rows for logits from end to end, so that all documents count at every pair of
positions. Heads are ablated on documents of any length.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import LARGEST_SIZE, check_range, check_seed
from jaxpe.analysis.subject import Subject
from jaxpe.data import TokenCorpus
from jaxpe.nn import Bert, Transformer, trunk
from jaxpe.training.masking import masked_ids, random_positions

# Minus the loss of a language model in nats a token; "embedding": the cosine between the mean of
# the last hidden states and the same with all heads.
Score = Literal["accuracy", "masked", "causal", "embedding"]

LEAST = 4  # least number of positions and documents
_MATRICES = 8  # matrices of all pairs: sums of halves, by part and in random order
_SCORES: dict[str, Score] = {"classify": "accuracy", "mlm": "masked", "causal": "causal"}


class Sample(NamedTuple):
    """A model, and the documents drawn to analyse it.

    Attributes:
        module: a transformer, or a classifier or language model on one.
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

    @property
    def transformer(self) -> Transformer:
        """The transformer below the model's head."""
        return trunk(self.module)

    @property
    def maps(self) -> int:
        """Number of attention maps of one document."""
        return self.transformer.config.num_layers * self.transformer.config.num_heads


def draw_sample(
    subject: Subject, *, examples: int, seed: int = 0, score: Score | None = None
) -> Sample:
    """A model with the documents to analyse it, drawn by the seed.

    The rows for the logits come from different documents. Their length is reached by `examples`
    documents, or by half of all; longer ones are cut, and keep their last token if it is special. A
    transformer without a head is scored by the change of its embeddings, another model at its task,
    unless another score is given.

    Raises `InputError` for documents that fill fewer than 4 positions.
    """
    corpus = subject.documents.corpus
    rows = _full_rows(corpus, examples=examples, seed=seed)
    text = _text_slice(rows, corpus, subject.source)
    score = score or ablation_score(subject)
    scored = _targets(subject, score, examples=examples, seed=seed)
    return Sample(subject.module, score, rows, text, scored, seed)


def check_sample(*, length: int, examples: int, seed: int, layers: int = 1, heads: int = 1) -> None:
    """Raise for numbers out of range, and for matrices of all layers and heads beyond memory."""
    check_range("examples", examples, least=LEAST, most=LARGEST_SIZE)
    check_range("length", length, least=LEAST, most=LARGEST_SIZE)
    check_seed("seed", seed)
    needed = 4 * _MATRICES * layers * heads * length**2
    check_bytes(needed, what=f"`length={length}`", remedy="pass a smaller one")


def ablation_score(subject: Subject) -> Score:
    """Measure of the ablation of heads, by the model and its task."""
    if isinstance(subject.module, Transformer | Bert):
        return "embedding"
    return _SCORES[subject.vocabulary.task]


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

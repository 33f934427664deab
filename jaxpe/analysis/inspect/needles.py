"""Retrieval of facts from a text, by their depth and its length."""

from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.averages import document_means
from jaxpe.analysis.inspect.flax_model import inspected_model
from jaxpe.analysis.inspect.result import NeedleStage
from jaxpe.data.tokens.tokenizers import Tokenizer

DEPTHS = 5
SHORTEST = 128  # tokens
_NEEDLE = " The favourite colour of {} is {}."
_QUESTION = " The favourite colour of {} is"
_NAMES = (
    *("Anna", "Bruno", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Irene", "James"),
    *("Karen", "Louis", "Maria", "Nina", "Oscar", "Paul", "Rosa", "Simon", "Tom", "Vera"),
)
_COLOURS = (
    *("red", "blue", "green", "black", "white", "yellow", "orange", "purple", "pink", "brown"),
    *("grey", "gold", "silver"),
)


class _Words(NamedTuple):
    """Token ids of names whose questions are equally long, and of colours."""

    questions: dict[str, list[int]]
    needles: dict[tuple[str, str], list[int]]
    first: dict[str, int]  # token of each colour


def needle_retrieval(
    model: Any,
    tokenizer: Tokenizer,
    stream: np.ndarray,
    *,
    lengths: tuple[int, ...] = (128, 256, 512),
    texts: int = 8,
    seed: int = 0,
    progress: Progress = SILENT,
) -> NeedleStage:
    """Share of facts that a model retrieves from a text, by their depth and its length.

    A text has five sentences "The favourite colour of NAME is COLOUR." at depths 0.1, 0.3, ...,
    0.9. It is followed by "The favourite colour of NAME is", for each of the names in turn; the
    answer is right if the first token of its colour is the most likely of the five. A model that
    ignores the name is right once in five.

    Args:
        model: a causal language model of `jaxpe.nn`, or an `InspectedModel`.
        tokenizer: tokenizer of the model.
        stream: token ids of the text around the needles.
        lengths: tokens of the texts.
        texts: number of texts of each length.
        seed: random seed of names, colours and starts in the stream.
        progress: receiver of progress.

    Raises:
        InputError: a tokenizer that does not distinguish five names and colours, or a length
            without room for the needles.

    >>> needle_retrieval(model, tokenizer, stream).by_length.mean  # doctest: +SKIP
    array([0.72, 0.9, 0.88])
    """
    words, rng = _words(tokenizer), np.random.default_rng([seed, 8])
    run, retrieved = inspected_model(model).answers(), []
    for length in lengths:
        right = []
        for _ in progress.track(range(texts), f"needles, {length} tokens", total=texts):
            row, questions, candidates = _haystack(words, tokenizer, stream, length, rng)
            answers = np.asarray(run(row, questions))[:, candidates]
            right.append(answers.argmax(axis=1) == np.arange(DEPTHS))
        retrieved.append(np.stack(right))
    hits = np.stack(retrieved, axis=1).astype(float)  # [texts, lengths, depths]
    return NeedleStage(
        lengths=np.array(lengths),
        depths=(np.arange(DEPTHS) + 0.5) / DEPTHS,
        texts=texts,
        accuracy=document_means(hits, within=(0.0, 1.0), trials=1),
        by_length=document_means(hits.mean(axis=2), within=(0.0, 1.0), trials=DEPTHS),
        chance=1 / DEPTHS,
    )


def _words(tokenizer: Tokenizer) -> _Words:
    """Names with sentences of the most common length, and colours with distinct first tokens."""

    def ids(texts: list[str]) -> list[list[int]]:
        return [list(map(int, row)) for row in tokenizer.rows(texts, None)]

    # All words missing in a small vocabulary become the same token.
    rows = _distinct(_NAMES, ids([_QUESTION.format(name) for name in _NAMES]))
    sizes = [len(row) for row in rows.values()]
    common = max(sizes, key=sizes.count, default=0)
    questions = {name: list(row) for name, row in rows.items() if len(row) == common}
    first_tokens = [row[:1] for row in ids([f" {colour}" for colour in _COLOURS])]
    first = {colour: row[0] for colour, row in _distinct(_COLOURS, first_tokens).items() if row}
    if len(questions) < DEPTHS or len(first) < DEPTHS:
        raise InputError(
            f"the tokenizer tells {len(questions)} names and {len(first)} colours apart, and "
            f"{DEPTHS} of each are needed"
        )
    pairs = [(name, colour) for name in questions for colour in first]
    needles = ids([_NEEDLE.format(*pair) for pair in pairs])
    return _Words(questions, dict(zip(pairs, needles, strict=True)), first)


def _distinct(words: tuple[str, ...], rows: list[list[int]]) -> dict[str, tuple[int, ...]]:
    """Ids of the words whose first token no other word has."""
    ids = [tuple(row) for row in rows]
    return {word: row for word, row in zip(words, ids, strict=True) if ids.count(row) == 1}


def _haystack(
    words: _Words, tokenizer: Tokenizer, stream: np.ndarray, length: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """A text with five needles, the questions for them, and the first tokens of their colours."""
    names = [str(name) for name in rng.permutation(list(words.questions))[:DEPTHS]]
    colours = [str(colour) for colour in rng.permutation(list(words.first))[:DEPTHS]]
    needles = [words.needles[pair] for pair in zip(names, colours, strict=True)]
    questions = np.array([words.questions[name] for name in names], np.int32)
    prefix = list(tokenizer.prefix)
    left = length - questions.shape[1] - sum(map(len, needles)) - len(prefix)
    if left < 2 * DEPTHS or len(stream) < left:
        raise InputError(
            f"`longest={length}` leaves {left} tokens of text beside the needles, and the corpus "
            f"has {len(stream):,}; pass a larger one, or a larger corpus"
        )
    start = int(rng.integers(0, len(stream) - left + 1))
    parts = np.array_split(stream[start : start + left], 2 * DEPTHS)
    row = [*prefix]
    for needle, before, after in zip(needles, parts[::2], parts[1::2], strict=True):
        row += [*before, *needle, *after]
    return np.array(row, np.int32), questions, [words.first[colour] for colour in colours]

"""Reach: how much of a text matters to a model, and which part of it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.averages import Means, document_means
from jaxpe.analysis.inspect.flax_model import inspected_model
from jaxpe.analysis.inspect.result import TextReach

_SHORTEST = 16  # tokens
SHORTEST_TEXT = 4 * _SHORTEST  # two contexts
_TARGETS = 128  # tokens whose loss is compared, at least
_TEXTS = 6
_PASSAGE = 32  # tokens
_ROW = 256  # tokens
_NEGLIGIBLE = 0.01  # nats a token
_ROUNDING = 1e-4  # nats a token
_SIMILAR = 0.95
_LEVEL = 0.95  # one-sided

_Losses = Callable[[np.ndarray], np.ndarray]


def context_reach(
    model: Any,
    texts: np.ndarray,
    *,
    whole: np.ndarray | None = None,
    parts: bool = True,
    prefix: Sequence[int] = (),
    progress: Progress = SILENT,
) -> TextReach:
    """Effective length of a causal model's context, and the gain from its start, middle and end.

    Under context L, tokens are read in windows of 2L tokens from position 0, and the second half
    counts: each target sees L to 2L − 1 tokens before it. The gain of L is the loss of the same
    targets under L/2 less the loss under L. Targets are the last L/2 tokens of each text, or 128.
    From the shortest context up, `effective` is the last one before a gain whose one-sided 95 %
    interval over texts contains 0; the first context if there is none. In this fixed sequence the
    first test of a gain that is none errs with 5 %, so no further correction is needed (Westfall &
    Krishen 2001). A model that sees w tokens back has no gain for L/2 ≥ w, so it says 2w or more in
    5 % of cases at most. `low` is half of `effective`, or 0 for the first context. `high` is twice
    the longest context whose 95 % interval contains a gain of 0.01 nats.

    For `parts`, a passage follows a text, and a copy of it stands at the start of the text, in its
    middle, or at its end. The gain is the loss on the passage without a copy less the loss with it.
    The model need not answer, only copy.

    Args:
        model: a causal language model of `jaxpe.nn`, or an `InspectedModel`.
        texts: token ids `[texts, n]` without padding, of at least 64 tokens; six are enough.
        whole: losses of all tokens of the texts but the first, `[texts, n − 1]`, if known.
        parts: whether to measure start, middle and end.
        prefix: ids that replace the first of each row, as `prefixed` says.
        progress: receiver of progress.

    >>> context_reach(model, texts).effective  # doctest: +SKIP
    256
    """
    losses_of = inspected_model(model).losses()

    def losses(rows: np.ndarray) -> np.ndarray:
        positions = np.arange(rows.shape[1], dtype=np.int32)
        return np.asarray(losses_of(prefixed(rows, prefix), positions), float)

    texts = np.asarray(texts[:_TEXTS], np.int32)
    whole = losses(texts) if whole is None else whole[: len(texts)]
    count, n = texts.shape
    contexts = [_SHORTEST << k for k in range(32) if _SHORTEST << k <= n // 2]
    targets = [min(max(context // 2, _TARGETS), contexts[-1]) for context in contexts]

    def tail(context: int, needed: int) -> np.ndarray:
        """Losses of the last tokens under a context, `[texts, needed]`."""
        if 2 * context == n:
            return whole[:, -needed:]
        windows = max(1, needed // context)
        starts = n - context * np.arange(windows + 1, 1, -1)
        rows = texts[:, starts[:, None] + np.arange(2 * context)].reshape(-1, 2 * context)
        return losses(rows)[:, -context:].reshape(count, -1)[:, -needed:]

    pairs = zip(targets, [*targets[1:], targets[-1]], strict=True)
    steps = progress.track(
        zip(contexts, map(max, pairs), strict=True), "contexts", total=len(contexts)
    )
    tails = [tail(context, needed) for context, needed in steps]
    gains = [
        (shorter[:, -m:] - longer[:, -m:]).mean(axis=1)
        for shorter, longer, m in zip(tails, tails[1:], targets[1:], strict=False)
    ]
    means = document_means(np.stack([np.full(count, np.nan), *gains], axis=1))
    one_sided = document_means(np.stack(gains, axis=1), level=2 * _LEVEL - 1)
    last = int(np.argmin([*(one_sided.low > _ROUNDING), False]))
    most = int(np.flatnonzero(np.append(True, means.high[1:] > _NEGLIGIBLE))[-1])
    counted = _parts(_copy_gains(losses, texts[:, -_ROW:])) if parts else {}
    effective = contexts[last]
    low, high = effective // 2 if last else 0, 2 * contexts[max(last, most)]
    return TextReach("loss", count, np.array(contexts), means, effective, low, high, **counted)


def gain_bounds(reach: TextReach) -> Means:
    """Gain with the ends that decide: `low` for `effective`, `high` for the largest length.

    For a loss, `low` is the lower end of the one-sided 95 % interval, and `high` stays the upper
    end of the two-sided one. For an embedding, both ends are as stored.

    Args:
        reach: result of `context_reach` or `embedding_reach`.

    >>> ends = Means(*(np.array([np.nan, x]) for x in (0.16, -0.03, 0.35)))
    >>> found = TextReach("loss", 4, np.array([32, 64]), ends, 64, 32, 128)
    >>> round(gain_bounds(found).low[1].item(), 2)
    0.02
    """
    mean, low, high = reach.gain
    if reach.measure != "loss":
        return reach.gain
    both, one = stdtrit(reach.texts - 1, [(1 + _LEVEL) / 2, _LEVEL])
    return Means(mean, mean - (mean - low) * one / both, high)


def prefixed(rows: np.ndarray, prefix: Sequence[int]) -> np.ndarray:
    """Rows that begin with the ids that the tokenizer puts first, in place of their first tokens.

    Models that never saw a text without its beginning token predict little after another.

    Args:
        rows: token ids `[rows, n]`.
        prefix: ids of beginning tokens, such as <bos>; may be empty.

    >>> prefixed(np.arange(6).reshape(2, 3), [9]).tolist()
    [[9, 1, 2], [9, 4, 5]]
    """
    rows = np.array(rows, np.int32)
    rows[:, : len(prefix)] = prefix
    return rows


def _copy_gains(losses: _Losses, texts: np.ndarray) -> np.ndarray:
    """Gain on a passage from its copy at the start, in the middle and at the end, by text."""
    n = texts.shape[1]
    m = min(_PASSAGE, n // 4)
    passage, free = np.roll(texts[:, -m:], 1, axis=0), n - 2 * m
    rows = [np.concatenate([texts[:, : n - m], passage], axis=1)]
    for start in (1, free // 2, free):  # many models treat the first token in a way of its own
        pieces = (texts[:, :start], passage, texts[:, start:free], passage)
        rows.append(np.concatenate(pieces, axis=1))
    loss = np.stack([losses(one)[:, -m:].mean(axis=1) for one in rows], axis=1)
    return loss[:, :1] - loss[:, 1:]


def embedding_reach(
    model: Any,
    rows: np.ndarray,
    *,
    text: slice,
    parts: bool = True,
    progress: Progress = SILENT,
) -> TextReach:
    """Length of the text that an encoder's embedding sees, and the share of its parts.

    The embedding is the mean last hidden state. The similarity of two is 1 − (1 − cos)/(1 − c),
    where c is the mean cosine of different texts: 1 for equal embeddings, about 0 for different
    texts. `effective` is the shortest length whose mean similarity to the embedding of the whole
    text is at least 0.95 when only the first tokens are kept, and at all longer lengths. `low` and
    `high` are the same for the upper and the lower end of its 95 % interval. If every token has the
    same weight, it is most of the text; if the first k alone count, at most k.

    `parts` are 1 less the similarity when one third of the tokens is replaced by the third of
    another text.

    Args:
        model: an encoder of `jaxpe.nn`, or an `InspectedModel`.
        rows: token ids `[texts, n]` without padding, at least 2 texts.
        text: positions of text in a row, without special tokens; at least 6.
        parts: whether to measure start, middle and end.
        progress: receiver of progress.

    >>> embedding_reach(model, rows, text=slice(1, 255)).effective  # doctest: +SKIP
    128
    """
    run = inspected_model(model).hidden()
    rows = np.asarray(rows[:_TEXTS], np.int32)
    length = text.stop - text.start
    lengths = [*(_SHORTEST << k for k in range(32) if _SHORTEST << k < length), length]

    def embeddings(ids: np.ndarray) -> np.ndarray:
        hidden = run(ids, np.arange(ids.shape[1], dtype=np.int32))
        mean = np.asarray(hidden, np.float64).mean(axis=1)
        return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)

    whole = embeddings(rows)
    others = (whole @ whole.T)[~np.eye(len(rows), dtype=bool)].mean()

    def similarity(ids: np.ndarray) -> np.ndarray:
        return 1 - (1 - (embeddings(ids) * whole).sum(axis=1)) / max(1 - others, 1e-12)

    def without(third: np.ndarray) -> np.ndarray:
        """Rows with these tokens of another text."""
        return np.where(np.isin(np.arange(rows.shape[1]), third), np.roll(rows, 1, axis=0), rows)

    kept = [
        similarity(np.delete(rows, np.s_[text.start + one : text.stop], axis=1))
        for one in progress.track(lengths[:-1], "first tokens", total=len(lengths) - 1)
    ]
    means = document_means(np.stack([*kept, np.ones(len(rows))], axis=1))
    shortest = (lengths[_first_lasting(end >= _SIMILAR)] for end in means)
    thirds = np.array_split(np.arange(text.start, text.stop), 3)
    replaced = [1 - similarity(without(third)) for third in thirds] if parts else []
    counted = _parts(np.stack(replaced, axis=1)) if parts else {}
    effective, high, low = shortest
    return TextReach(
        "embedding", len(rows), np.array(lengths), means, effective, low, high, **counted
    )


def _first_lasting(reached: np.ndarray) -> int:
    """First index from which all are true; the last index if none."""
    return min(int(len(reached) - np.argmin([*reached[::-1], False])), len(reached) - 1)


def _parts(values: np.ndarray) -> dict[str, Means]:
    """Means of the start, middle and end `[texts, 3]`, and of the middle less both ends."""
    middle = values[:, 1:2] - values[:, [0, 2]]
    return {"parts": document_means(values), "middle": document_means(middle)}

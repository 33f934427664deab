"""Corpora of known truth: the law at each position, averaged over one population of documents.

The population is the same for all positions, so who gets there is no part of the truth. A document
has a class, drawn by weight, and a length that may depend on it; given both, its tokens are
independent, of the law of the class at each position. Other corpora break one part of this: a word
ends documents, or tokens depend on their neighbours.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import jaxpe

N, VOCAB = 12, 256
AUTHORS = 60


class Documents(NamedTuple):
    """Ids and mask `[documents, n]`, and what is known of groups that depend, and of ends."""

    ids: Any
    mask: Any
    groups: Any = None
    ended: Any = None


class Corpus(NamedTuple):
    """A generator of documents and what is true of it.

    `truth` is the law at each position `[n, vocab]`, averaged over the population; `seeds` are the
    corpora to draw of a large one.
    """

    truth: np.ndarray
    draw: Callable[[np.random.Generator], Documents]
    seeds: int = 0

    @property
    def rank(self) -> int:
        """Dimensions of position with more than a hundredth of its variance."""
        roots = np.sqrt(self.truth)
        variances = np.linalg.svd(roots - roots.mean(axis=0), compute_uv=False) ** 2
        return int(np.sum(variances > max(0.01 * variances.sum(), 1e-12)))

    @property
    def effect(self) -> bool:
        """Whether there is an effect of position."""
        return self.rank > 0


def zipf(vocab: int = VOCAB) -> np.ndarray:
    return normalised(1.0 / np.arange(1, vocab + 1))


def normalised(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=-1, keepdims=True)


def tilts(number: int, size: float, *, seed: int, vocab: int = VOCAB) -> np.ndarray:
    """Factors exp(size · N(0, 1)) of the words, `[number, vocab]`."""
    return np.exp(size * np.random.default_rng(seed).standard_normal((number, vocab)))


def flat() -> np.ndarray:
    """No effect of position, `[n, vocab]` factors."""
    return np.ones((N, VOCAB))


def alternating(size: float, *, vocab: int = VOCAB) -> np.ndarray:
    """Odd and even places differ: one dimension."""
    both = tilts(2, size, seed=1, vocab=vocab)
    return both[np.arange(N) % 2]


def drift(size: float) -> np.ndarray:
    """Factors that go with log(1 + i)."""
    log = np.log1p(np.arange(N)) / np.log(N)
    return tilts(1, size, seed=2)[0] ** log[:, None]


def laws_of(effect: np.ndarray, classes: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Laws `[classes, n, vocab]` of factors of position and of class."""
    return normalised(zipf(effect.shape[1]) * np.asarray(classes)[:, None] * effect[None])


ONE_CLASS = np.ones((1, VOCAB))
TOPICS = tilts(2, 0.6, seed=3)


def full(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """All documents reach the last position."""
    return np.full(len(labels), N)


def unequal(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Log-normal lengths, cut at n: a fifth of the documents reaches the last position."""
    return _cut(rng.lognormal(1.8, 0.7, len(labels)))


def by_class(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Log-normal lengths, of which those of odd classes are longer."""
    return _cut(rng.lognormal(1.4 + 0.8 * (labels % 2), 0.5))


def thin(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Geometric lengths: a few documents in a hundred reach the last position."""
    return _cut(rng.geometric(0.25, len(labels)).astype(float))


def _cut(lengths: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(lengths), 1, N).astype(int)


def corpus(
    laws: np.ndarray,
    lengths: Callable[..., np.ndarray] = unequal,
    *,
    documents: int = 1500,
    at_end: bool = False,
    seeds: int = 0,
) -> Corpus:
    """Independent documents of one class or more, of equal weight."""

    def draw(rng: np.random.Generator) -> Documents:
        label = rng.integers(len(laws), size=documents)
        return _sampled(rng, laws, label, lengths(rng, label), at_end=at_end)

    return Corpus(laws.mean(axis=0), draw, seeds)


def copied(
    *,
    changed: float,
    grouped: bool,
    found: bool = False,
    lengths: Callable[..., np.ndarray] = unequal,
) -> Corpus:
    """Each of 375 documents four times, a share of the tokens of each copy drawn anew.

    Groups are the true ones, or those that a report finds.
    """
    laws, originals = laws_of(flat(), ONE_CLASS), 375

    def draw(rng: np.random.Generator) -> Documents:
        label = rng.integers(len(laws), size=originals)
        ids, mask, *_ = _sampled(rng, laws, label, lengths(rng, label))
        ids, mask = np.repeat(ids, 4, axis=0), np.repeat(mask, 4, axis=0)
        anew = rng.random(ids.shape) < changed
        ids[anew] = rng.choice(VOCAB, anew.sum(), p=laws[0, 0])
        groups = np.repeat(np.arange(originals), 4) if grouped else None
        return Documents(ids, mask, jaxpe.data.dependent_groups(ids, mask) if found else groups)

    return Corpus(laws.mean(axis=0), draw)


def authors(*, habits: float, grouped: bool, documents: int = 1500) -> Corpus:
    """Authors with topics and lengths of their own, and with habits of their own at each position.

    Authors are drawn anew each time. Over the population of authors every position has one law, up
    to the normalisation of the tilted laws, which is the same for all.
    """

    def draw(rng: np.random.Generator) -> Documents:
        topic = np.exp(0.5 * rng.standard_normal((AUTHORS, 1, VOCAB)))
        habit = np.exp(habits * rng.standard_normal((AUTHORS, N, VOCAB)))
        laws = normalised(zipf() * topic * habit)
        label = rng.integers(AUTHORS, size=documents)
        scale = rng.normal(1.8, 0.5, AUTHORS)
        lengths = _cut(rng.lognormal(scale[label], 0.4))
        found = _sampled(rng, laws, label, lengths)
        return found._replace(groups=label if grouped else None)

    return Corpus(np.tile(zipf(), (N, 1)), draw)


def _sampled(
    rng: np.random.Generator,
    laws: np.ndarray,
    label: np.ndarray,
    lengths: np.ndarray,
    *,
    at_end: bool = False,
) -> Documents:
    """Documents of these classes and lengths."""
    n = laws.shape[1]
    place = np.arange(n)[None, :]
    mask = (n - 1 - place if at_end else place) < lengths[:, None]
    u = rng.random(mask.shape)
    ids = np.zeros(mask.shape, np.int32)
    cumulative = np.cumsum(laws, axis=2)
    for c in np.unique(label):
        own = np.flatnonzero(label == c)
        for i in range(n):
            ids[own, i] = np.searchsorted(cumulative[c, i, :-1], u[own, i], side="right")
    return Documents(ids, mask)


STOP, HAZARD, CHANGING = VOCAB - 1, 0.15, (0.02, 0.1, 0.2)


def ended_by_word(
    *hazard: float, planted: float = 0.0, apart: bool = False, documents: int = 1500
) -> Corpus:
    """I.i.d. words in documents that end at their first stop, drawn with a hazard at each position.

    The stops are what ends documents, and no part of the truth, also where the hazard changes. With
    `planted` first words are of a tilted law. With `apart` lengths are drawn apart from the words.
    """
    rate = np.array([*hazard, *[hazard[-1]] * (N - len(hazard))])
    laws = np.tile(np.append(normalised(zipf()[:-1]), 0.0), (N, 1))
    laws[0] = normalised(laws[0] * tilts(1, planted, seed=5)[0])

    def draw(rng: np.random.Generator) -> Documents:
        stops, cut = rng.random((2, documents, N)) < rate
        ids = np.where(
            stops,
            STOP,
            _sampled(rng, laws[None], np.zeros(documents, int), np.full(documents, N)).ids,
        )
        before = np.cumsum(cut if apart else stops, axis=1) - (cut if apart else stops)
        mask = before == 0
        return Documents(ids.astype(np.int32), mask, ended=~mask[:, -1] | stops[:, -1])

    truth = laws * (1 - rate[-1])
    truth[:, STOP] = rate[-1]
    return Corpus(truth, draw)


def neighbours(
    step: Callable[..., np.ndarray],
    lengths: Callable[..., np.ndarray] = unequal,
    *,
    documents: int = 1500,
) -> Corpus:
    """Documents cut from a stationary chain: position has no effect, and neighbours depend."""

    def draw(rng: np.random.Generator) -> Documents:
        place = np.arange(N)
        mask = place < lengths(rng, np.zeros(documents, int))[:, None]
        return Documents(step(rng, documents), mask)

    return Corpus(np.tile(zipf(), (N, 1)), draw)


def repeats(share: float) -> Callable[..., np.ndarray]:
    """Tokens that repeat the one before with this probability."""

    def draw(rng: np.random.Generator, documents: int) -> np.ndarray:
        ids = rng.choice(VOCAB, (documents, N), p=zipf()).astype(np.int32)
        same = rng.random(ids.shape) < share
        for i in range(1, N):
            ids[:, i] = np.where(same[:, i], ids[:, i - 1], ids[:, i])
        return ids

    return draw


def bigrams(rng: np.random.Generator, documents: int) -> np.ndarray:
    """A chain in which each word has a few likely successors, long after its start."""
    successors = np.random.default_rng(6).choice(VOCAB, (VOCAB, 3), p=zipf())
    ids = rng.choice(VOCAB, (documents, N + 30), p=zipf()).astype(np.int32)
    likely, which = rng.random(ids.shape) < 0.8, rng.integers(0, 3, ids.shape)
    for i in range(1, N + 30):
        ids[:, i] = np.where(likely[:, i], successors[ids[:, i - 1], which[:, i]], ids[:, i])
    return ids[:, 30:]


def local_topics(rng: np.random.Generator, documents: int) -> np.ndarray:
    """Four topics, of which one follows another with probability 0.2 at each token."""
    laws = np.cumsum(normalised(zipf() * tilts(4, 1.0, seed=7)), axis=1)
    topic = rng.integers(0, 4, (documents, N))
    stays, u = rng.random((documents, N)) > 0.2, rng.random((documents, N))
    for i in range(1, N):
        topic[:, i] = np.where(stays[:, i], topic[:, i - 1], topic[:, i])
    return (u[..., None] > laws[topic][..., :-1]).sum(axis=-1).astype(np.int32)


def windows(*, every: int, documents: int = 1500) -> Corpus:
    """Windows of one text of i.i.d. words; nothing tells which overlap."""

    def draw(rng: np.random.Generator) -> Documents:
        text = rng.choice(VOCAB, every * documents + N, p=zipf()).astype(np.int32)
        ids = np.lib.stride_tricks.sliding_window_view(text, N)[: every * documents : every]
        return Documents(ids.copy(), np.ones(ids.shape, bool))

    return Corpus(np.tile(zipf(), (N, 1)), draw)


def boilerplate(lengths: Callable[..., np.ndarray], *, documents: int = 1500) -> Corpus:
    """I.i.d. words after 0 to 4 fixed words of boilerplate, as many in each of five parts."""
    header, place = np.arange(100, 104), np.arange(N)
    inside = np.clip(1 - (place + 1) / 5, 0, 1)  # share of the documents still in the boilerplate
    truth = (1 - inside)[:, None] * zipf()
    truth[np.arange(4), header] += inside[:4]

    def draw(rng: np.random.Generator) -> Documents:
        ids = rng.choice(VOCAB, (documents, N), p=zipf())
        before = place < rng.integers(0, 5, documents)[:, None]
        ids = np.where(before, np.resize(header, N), ids).astype(np.int32)
        return Documents(ids, place < lengths(rng, np.zeros(documents, int))[:, None])

    return Corpus(truth, draw)


def small() -> dict[str, Corpus]:
    """Corpora of at most 2,000 documents of 12 positions over 256 words."""
    one, topics, odd = ONE_CLASS, TOPICS, alternating(0.25)
    regimes = jaxpe.data.three_regimes(documents=1, length=N, vocab_size=VOCAB, separation=0.3)
    zipf_drift = jaxpe.data.zipf_drift(documents=1, length=N, vocab_size=VOCAB, strength=0.13)
    frequent = jaxpe.data.three_regimes(documents=1, length=N, vocab_size=40, separation=0.3)
    few = np.pad(frequent.distributions, ((0, 0), (0, VOCAB - 40)))
    last = drift(0.5)[::-1]
    return {
        "no signal": corpus(laws_of(flat(), one), full),
        "unequal lengths": corpus(laws_of(flat(), one)),
        "topic with length": corpus(laws_of(flat(), topics), by_class),
        "authors, grouped": authors(habits=0.0, grouped=True),
        "authors, not grouped": authors(habits=0.0, grouped=False),
        "authors with habits, grouped": authors(habits=0.5, grouped=True),
        "authors with habits, not grouped": authors(habits=0.5, grouped=False),
        "copies": copied(changed=0.0, grouped=False),
        "near-copies, grouped": copied(changed=0.1, grouped=True),
        "near-copies, not grouped": copied(changed=0.1, grouped=False),
        "near-copies of one length, groups found": copied(
            changed=0.1, grouped=True, found=True, lengths=full
        ),
        "few documents, no signal": corpus(laws_of(flat(), one), documents=100),
        "thin positions, no signal": corpus(laws_of(flat(), one), thin),
        "Zipf drift": corpus(zipf_drift.distributions[None], full),
        "three regimes": corpus(regimes.distributions[None], full),
        "three regimes, frequent words": corpus(few[None], full),
        "alternating": corpus(laws_of(odd, one)),
        "alternating, topic with length": corpus(laws_of(odd, topics), by_class),
        "few documents": corpus(laws_of(alternating(0.6), one), documents=100),
        "one length": corpus(laws_of(odd, one), full),
        "aligned at the end": corpus(laws_of(last, topics), by_class, at_end=True),
        "steady drift": corpus(laws_of(drift(0.5), one)),
        "steady drift, topic with length": corpus(laws_of(drift(0.5), topics), by_class),
        "thin positions": corpus(laws_of(drift(0.5), one), thin),
        "strong": corpus(laws_of(alternating(1.5), one), full),
        "ended by a word": ended_by_word(HAZARD),
        "lengths as if ended by a word": ended_by_word(HAZARD, apart=True),
        "ended by a word, later more often": ended_by_word(*CHANGING),
        "ended by a word, first word planted": ended_by_word(HAZARD, planted=1.0),
        "repeats, 0.3": neighbours(repeats(0.3)),
        "repeats, 0.5": neighbours(repeats(0.5)),
        "repeats, 0.5, one length": neighbours(repeats(0.5), full),
        "bigrams": neighbours(bigrams),
        "local topics": neighbours(local_topics),
        "overlapping windows": windows(every=N // 2),
        "boilerplate": boilerplate(unequal),
        "boilerplate, one length": boilerplate(full),
    }


def large() -> dict[str, Corpus]:
    """Corpora of many words."""

    def odd(vocab: int) -> np.ndarray:
        return laws_of(alternating(0.25, vocab=vocab), np.ones((1, vocab)))

    none = np.ones((N, 20_000))
    return {
        "many words, no signal": corpus(laws_of(none, none[:1]), documents=6000, seeds=100),
        "many words": corpus(odd(20_000), documents=6000, seeds=100),
        "a million words": corpus(odd(1_000_000), full, documents=90_000, seeds=10),
    }

"""Sentences of a report on corpora of every kind: which apply, and which may not.

Statistics are computed once for each kind, from documents of 16 tokens; sentences go by their keys.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from jaxpe.analysis.corpus import analyse_tokens
from jaxpe.data import TokenCorpus
from jaxpe.report.corpus.advice import advice
from jaxpe.report.corpus.predicates import nearness
from jaxpe.report.corpus.text import keyed_sentences, named_findings, summary

N, DOCUMENTS = 16, 800  # equal sizes compile once
ZIPF = 1 / np.arange(1, N + 1)


def draw(probabilities: np.ndarray, documents: int = DOCUMENTS) -> np.ndarray:
    """Tokens `[documents, 16]` with probabilities `[16, 16]`, or `[16]` at all positions."""
    rows = np.broadcast_to(probabilities, (N, N))
    below = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1)
    draws = np.random.default_rng(0).random((documents, N, 1))
    return (draws > below[:, :-1]).sum(axis=-1)


def fixed(positions: dict[int, int], probabilities: np.ndarray = ZIPF) -> np.ndarray:
    """Tokens with one token at each of some positions."""
    ids = draw(probabilities)
    ids[:, list(positions)] = list(positions.values())
    return ids


def drift(documents: int = DOCUMENTS) -> np.ndarray:
    """Words of reviews: one half of the words gives way to the other."""
    share, second = np.linspace(0.15, 0.85, N)[:, None], np.arange(N) % 2
    return draw(ZIPF * (share * second + (1 - share) * (1 - second)), documents)


def lengths(documents: int = DOCUMENTS) -> np.ndarray:
    return np.random.default_rng(1).integers(6, 40, documents)


class Kind(NamedTuple):
    """A corpus, its `nearness`, and keys of sentences that apply and that may not."""

    ids: Callable[[], np.ndarray]
    nearness: str
    said: set[str]
    unsaid: set[str]
    lengths: Callable[[], np.ndarray] | None = None


EQUAL = np.ones(N)
ALTERNATING = ZIPF * (0.2 + (np.arange(N)[:, None] % 2 == np.arange(N) % 2))
FIT = {"fixed", "fitted better", "wider fit noise", "another dimension"}
KINDS = {
    "sites": Kind(
        lambda: fixed({6: 2, 7: 3}, EQUAL), "few",
        {"standing out", "main positions", "no better than equal", "fitted better", "letters"},
        {"fixed", "wider fit noise", "another dimension", "half-distance", "only rare"},
    ),
    "constant column": Kind(
        lambda: fixed({5: 0}), "few", {"standing out", "main positions", "no better than equal"},
        {"fixed", "half-distance"},
    ),
    "proteins": Kind(
        lambda: fixed({0: 10}, EQUAL), "few", {"standing out", "main positions", "few reach"},
        {"half-distance", "like composition"}, lengths,
    ),
    "reviews": Kind(
        drift, "more", {"fixed", "half-distance", "few reach", "half of the bits"},
        {"main positions", "no better than equal", "only rare", "fitted better"}, lengths,
    ),
    "few rows": Kind(
        lambda: drift(40), "more", {"only rare", "rare", "no better than equal"},
        {"fixed", "fitted better", "main positions", "bits"},
    ),
    "verses": Kind(
        lambda: draw(ALTERNATING), "mixed", {"no better than equal", "fitted better"},
        {"fixed", "half-distance", "main positions"},
    ),
    "shuffled": Kind(
        lambda: draw(ZIPF), "", {"no dimension", "nothing to fit"},
        {"dimensions", "bits", "standing out", "letters", "half-distance", *FIT}, lengths,
    ),
    "copies": Kind(
        lambda: np.tile(np.arange(N), (DOCUMENTS, 1)), "", {"not judged", "groups"},
        {"dimensions", "bits", "standing out", "letters", "rare", *FIT},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_apply_to_their_kinds_of_corpora(kind):
    make, near, said, unsaid, sizes = KINDS[kind]
    ids, letters = make().astype(np.int32), list("acdefghiklmnpqrs")
    mask = np.arange(N) < (np.full(len(ids), N) if sizes is None else sizes())[:, None]
    corpus = TokenCorpus(kind, "ids", ids, mask, N, (), letters, N)
    found = analyse_tokens(corpus, dim=8, splits=2)
    sentences = keyed_sentences(found)
    assert said <= sentences.keys(), kind
    assert not unsaid & sentences.keys(), kind
    assert nearness(found) == near
    assert f"nearness {near}" in sentences or not near
    assert not [key for key in sentences if key.startswith("nearness") and not key.endswith(near)]
    text = " ".join([*named_findings(found).values(), summary(found)])
    assert all(sentence in text for sentence in sentences.values())
    steps = " ".join(step.paste for step in advice(found))
    assert ("jaxpe train" in steps) == (kind not in ("few rows", "copies"))

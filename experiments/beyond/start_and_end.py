"""Effects of position that are no meaning: a tokenizer's pieces, and what ends a document.

Pieces: words are drawn independently, each of 1 to 4 pieces, and documents are cut. The first token
is always the first piece of a word, later ones less often. How often is that a significant effect
of position, and which share of the variance is it?

Ends: the tokens of each document are shuffled, all of them or all but the last, where a document
was not cut. Which share of the variance of order is that of the last token?
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.beyond.log_position import SPLITS, ends
from experiments.beyond.log_position_corpora import CORPORA, STARTLESS, STRINGS, corpus_of
from experiments.common import DataMissingError, Run, main
from experiments.position_parts import FOLDS, Documents, documents_of, null_documents
from jaxpe import geometry
from jaxpe.analysis.corpus.noise import plug_in_trace
from jaxpe.data import tokenize
from jaxpe.geometry.counts.token_lists import token_lists
from jaxpe.geometry.noise.cross_validation import disjoint_geometries, half_sample_interval

SEEDS, DOCUMENTS, LENGTH, WORDS, PIECES, MOST_PIECES = 60, 2000, 32, 400, 256, 4
SHUFFLES = 4


def experiment(run: Run) -> dict[str, Any]:
    drawn = [of_pieces(seed) for seed in range(2 if run.quick else SEEDS)]
    ranks, shares, first = (np.array(each, float) for each in zip(*drawn, strict=True))
    pieces = {
        "seeds": len(drawn),
        "documents": DOCUMENTS,
        "rank_above_0": int(np.sum(ranks > 0)),
        "share": {"mean": shares.mean(), "low": shares.min(), "high": shares.max()},
        "first_pieces": first.mean(axis=0),
    }
    text = [name for name in CORPORA if not name.startswith((*STRINGS, *STARTLESS))]
    found = {}
    for name in text[-1:] if run.quick else text:
        try:
            found[name] = of_ends(documents_of(tokenize(corpus_of(name), length=LENGTH)))
        except DataMissingError as error:
            print(f"{name}: skipped, {error}")
    return {"length": LENGTH, "pieces": pieces, "ends": found}


def of_pieces(seed: int) -> tuple[Any, Any, np.ndarray]:
    """Rank, share of the observed variance, and how often each position has a first piece."""
    rng = np.random.default_rng(seed)
    laws = [1 / np.arange(1, 1 + size) for size in (PIECES, PIECES, WORDS)]
    first, later, words = (law / law.sum() for law in laws)
    spelt = PIECES + rng.choice(PIECES, (WORDS, MOST_PIECES), p=later)
    spelt[:, 0] = rng.choice(PIECES, WORDS, p=first)
    has = np.arange(MOST_PIECES) < rng.integers(1, 1 + MOST_PIECES, (WORDS, 1))
    drawn = rng.choice(WORDS, (DOCUMENTS, LENGTH), p=words)
    ids = np.stack([spelt[row][has[row]][:LENGTH] for row in drawn])
    rank, share = _rank_and_share(ids, jax.random.key(seed))
    return rank, share, (ids < PIECES).mean(axis=0)


@jax.jit
def _rank_and_share(ids: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    size, groups = 2 * PIECES, np.arange(DOCUMENTS, dtype=np.uint32)
    whole = geometry.position_geometry(ids, vocab_size=size, key=key, groups=groups, folds=FOLDS)
    observed = plug_in_trace(geometry.count_tokens(ids, vocab_size=size), whole.present)
    return geometry.position_rank(whole).rank, whole.trace / observed


def of_ends(documents: Documents) -> dict[str, Any]:
    """Share of the variance of order that goes where the last token keeps its place."""
    ids, counted, groups, _, vocab_size = documents
    length = counted.sum(axis=1, keepdims=True)
    last = counted & (np.cumsum(counted, axis=1) == length) & (length < LENGTH)
    sizes: dict[str, Any] = {"vocab_size": vocab_size, "mask": counted, "folds": FOLDS}
    sizes |= {"groups": groups}

    def traces(ids: np.ndarray) -> np.ndarray:
        tokens = token_lists(ids, **sizes)
        halves = disjoint_geometries(tokens, key=jax.random.key(0), splits=SPLITS)
        return np.trace(halves.gram, axis1=2, axis2=3)  # [splits, 2]

    own, labels = traces(ids), np.arange(len(ids), dtype=np.uint32)
    keys = jax.random.split(jax.random.key(1), SHUFFLES)

    def shuffles(moves: np.ndarray) -> list[np.ndarray]:
        moved = (null_documents(key, ids, moves, labels, null="shuffle") for key in keys)
        return [traces(np.asarray(each)) for each in moved]

    moving = (counted, counted & ~last)
    every, others = (own - np.mean(shuffles(moves), axis=0) for moves in moving)
    share = half_sample_interval(1 - others / every)
    return {"ended": last.any(axis=1).mean(), "trace": every.mean(), "share": ends(share)}


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

"""Synthetic corpora with known positional distributions, and therefore known geometry.

Tokens are drawn independently, unless documents have topics. With `document_topics` K > 1, the
probability scale is divided into K equal shares, and each document draws one of them. Each token of
the document falls into this share with probability 1/2. Every token still has exactly the
distribution of its position, but the tokens of a document depend on each other, as in text.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import LARGEST_SIZE, check_range
from jaxpe.data.corpora.seeds import generator

_MOST_SEPARATION = 50  # beyond it exp(separation · N(0, 1)) overflows
_COPIES = 4  # copies of the distributions in memory during construction


class SyntheticCorpus(NamedTuple):
    """Token ids, and the distribution of each position that they were drawn from.

    Attributes:
        name: name of the generator.
        ids: int32 `[documents, n]`, token ids.
        distributions: float64 `[n, vocab]`, the true distributions.
    """

    name: str
    ids: Int32[np.ndarray, "documents n"]
    distributions: Float64[np.ndarray, "n vocab"]


def three_regimes(
    *,
    documents: int = 5000,
    length: int = 32,
    vocab_size: int = 200,
    separation: float = 0.515,
    document_topics: int = 1,
    seed: int = 0,
) -> SyntheticCorpus:
    """Corpus with initial, medial and terminal regimes (positions 0-10, 11-20, 21-31).

    Each regime has a Zipf distribution tilted by exp(separation · N(0, 1)). Positions of a regime
    share its distribution, so the centred Gram matrix of √μ has rank exactly 2.

    The paper states only n = 32, |V| = 200 and N = 5,000. At the default separation, two
    eigenvalues of the plug-in Gram matrix have the published 79.9 % of its trace (mean over 100
    seeds, standard deviation 3 %). Without sampling noise they would have all of it.

    Args:
        documents: number of documents.
        length: number of positions, at least 3.
        vocab_size: number of tokens in the vocabulary, at least 3.
        separation: factor in the exponent of the tilt, in [−50, 50].
        document_topics: number of topics, of which each document draws one; 1 for independent
            tokens.
        seed: random seed, in [0, 2**32).

    Raises:
        InputError: an argument out of range.

    >>> corpus = three_regimes(documents=10)
    >>> corpus.ids.shape, len(np.unique(corpus.distributions, axis=0))
    ((10, 32), 3)
    """
    _check(documents, length, vocab_size, document_topics, least=3)
    check_range("separation", separation, least=-_MOST_SEPARATION, most=_MOST_SEPARATION)
    rng = generator(seed)
    tilt = np.exp(separation * rng.standard_normal((3, vocab_size)))
    regimes = _distribution(_zipf(vocab_size) * tilt)
    boundaries = np.rint(np.array([1, 2]) * length / 3)
    mu = regimes[np.searchsorted(boundaries, np.arange(length), side="right")]
    return SyntheticCorpus("three_regimes", _sample(mu, documents, document_topics, rng), mu)


def zipf_drift(
    *,
    documents: int = 5000,
    length: int = 48,
    vocab_size: int = 20_000,
    rank: int = 2,
    strength: float = 0.13,
    document_topics: int = 1,
    seed: int = 0,
) -> SyntheticCorpus:
    """Corpus with a Zipf vocabulary that drifts smoothly with position, with known low rank.

    √μ_i = √(1 − a²) φ_0 + a Σ_k w_k(i) φ_k, with φ_0 = √Zipf. The other φ_k are φ_0 times random
    signs, made orthonormal. w(i) is the unit vector along (cos πt, cos 2πt, ...), t = (i + 1/2)/n.
    Rows have norm 1. The centred Gram matrix of √μ is a² times the one of w.

    Args:
        documents: number of documents.
        length: number of positions, at least 3.
        vocab_size: number of tokens in the vocabulary, at least 3.
        rank: exact rank of the centred Gram matrix, at least 2, below `length` and `vocab_size`.
        strength: a; at the default the trace of the centred Gram matrix is about 0.8.
        document_topics: number of topics, of which each document draws one; 1 for independent
            tokens.
        seed: random seed, in [0, 2**32).

    Raises:
        InputError: an argument out of range, or a strength that makes some √μ_i negative.

    >>> corpus = zipf_drift(documents=10, vocab_size=500)
    >>> roots = np.sqrt(corpus.distributions)
    >>> int(np.linalg.matrix_rank(roots - roots.mean(0), tol=1e-9))
    2
    """
    _check(documents, length, vocab_size, document_topics, least=3)
    check_range("rank", rank, least=2, most=min(length, vocab_size) - 1)
    rng = generator(seed)
    zipf = _zipf(vocab_size)
    weights = _drift(length, rank) @ _orthonormal_signs(zipf, rank, rng)
    ratio = np.sqrt(max(0.0, 1 - strength**2)) + strength * weights
    if not ratio.min() >= 0:  # also refuses NaN
        raise InputError(f"`strength` is {strength}; pass less, so that no probability is negative")
    mu = _distribution(zipf * ratio**2)
    return SyntheticCorpus("zipf_drift", _sample(mu, documents, document_topics, rng), mu)


def zipf_stationary(
    *,
    documents: int = 5000,
    length: int = 48,
    vocab_size: int = 20_000,
    document_topics: int = 1,
    seed: int = 0,
) -> SyntheticCorpus:
    """Corpus with a Zipf vocabulary and no positional signal: all of its geometry is noise.

    Args:
        documents: number of documents.
        length: number of positions.
        vocab_size: number of tokens in the vocabulary, at least 3.
        document_topics: number of topics, of which each document draws one; 1 for independent
            tokens.
        seed: random seed, in [0, 2**32).

    Raises:
        InputError: an argument out of range.

    >>> corpus = zipf_stationary(documents=10)
    >>> bool(np.ptp(corpus.distributions, axis=0).max() == 0)
    True
    """
    _check(documents, length, vocab_size, document_topics, least=1)
    rng = generator(seed)
    mu = np.tile(_zipf(vocab_size), (length, 1))
    return SyntheticCorpus("zipf_stationary", _sample(mu, documents, document_topics, rng), mu)


def _check(documents: int, length: int, vocab_size: int, topics: int, *, least: int) -> None:
    for name, value, low in (
        ("documents", documents, 1),
        ("length", length, least),
        ("vocab_size", vocab_size, 3),
        ("document_topics", topics, 1),
    ):
        check_range(name, value, least=low, most=LARGEST_SIZE)
    check_bytes(
        4 * documents * length + _COPIES * 8 * length * vocab_size,
        what=f"{documents:,} documents of length {length:,} over vocab_size {vocab_size:,}",
        remedy="pass less of one of them",
    )


def _zipf(vocab_size: int) -> np.ndarray:
    return _distribution(1 / np.arange(1, vocab_size + 1))


def _distribution(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=-1, keepdims=True)


def _drift(length: int, rank: int) -> np.ndarray:
    t = (np.arange(length)[:, None] + 0.5) / length
    cosines = np.cos(np.pi * t * np.arange(1, rank + 1))
    return cosines / np.linalg.norm(cosines, axis=1, keepdims=True)


def _orthonormal_signs(zipf: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Functions g_k of the token for which √zipf and all √zipf·g_k are orthonormal."""
    signs = rng.choice([-1.0, 1.0], (rank, len(zipf)))
    basis = np.vstack([np.ones_like(zipf), signs]) * np.sqrt(zipf)
    q, _ = np.linalg.qr(basis.T)
    return q.T[1:] / np.sqrt(zipf)


def _sample(
    mu: np.ndarray, documents: int, topics: int, rng: np.random.Generator
) -> Int32[np.ndarray, "documents n"]:
    """Inverse transform sampling, position by position."""
    order = rng.permutation(mu.shape[1])  # otherwise a topic would be a range of frequencies
    topic = rng.integers(topics, size=documents)
    ids = np.empty((documents, len(mu)), np.int32)
    for i, cumulative in enumerate(np.cumsum(mu[:, order], axis=1)):
        u = rng.random(documents)
        on_topic = rng.random(documents) < 0.5
        u = np.where(on_topic, (topic + u) / topics, u) * cumulative[-1]
        ids[:, i] = order[np.searchsorted(cumulative[:-1], u, side="right")]
    return ids

"""Groups of dependent documents: copies, near-copies, pieces, and neighbours that are alike."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Integer

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes

_TOKEN_BYTES = 100  # bytes per token, with its hashes and their order
_FALSE = 1e-3  # most pairs per document that independent documents form by chance
_CHANGED = 0.19  # share of tokens in which two copies differ, each with 10 % changed
# Least share of the shorter document in common. Copies of 24 Zipf words have 0.81, give or take
# 0.16. At 0.33 common phrases join docstrings of the standard library in chains of 121; at 0.5 its
# largest group are 79 codecs. At 0.55 four copies of 24 of 50 words are together in 91 %, not 98 %.
_COVERED = 0.5
# Share of documents beyond which a word is common at a position, or after another word. Without
# common pairs, a third of documents with habitual words at their positions are joined.
_COMMON = 0.03
# Nats that a second alignment of a pair costs. At 5, DNA letters of order 3 are joined in 0.16 %.
_SHIFTED = 8.0
# Nats by which the runs that candidates share may miss the evidence of a pair. At 8, four copies of
# 12 of 50 words are together in 85 %, not 88 %.
_SEED = 10.0
_SHARED = 32  # candidates share a run for so many tokens; without this, IMDB takes 6.9 s, not 1.5 s
_BLOCK = 4096  # pairs that are aligned together, so that a block stays in the cache


class _Tokens(NamedTuple):
    """Counted tokens of all documents, from the shortest to the longest.

    Attributes:
        words: numbers of the words, from 0.
        document: document of each token, numbered by length.
        begin: first token of each document, and the number of tokens.
        prefix: hashes of the tokens before each one, and of all.
        inverse: inverse powers of the hashes' base.
    """

    words: np.ndarray
    document: np.ndarray
    begin: np.ndarray
    prefix: np.ndarray
    inverse: np.ndarray

    def hashes(self, start, end) -> np.ndarray:
        """Hashes of runs, from `start` to before `end`."""
        return (self.prefix[end] - self.prefix[start]) * self.inverse[start]


def dependent_groups(
    ids: Int[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"] | None = None,
    *,
    exclude: tuple[int, ...] = (),
    groups: Integer[np.ndarray, " documents"] | None = None,
) -> Int[np.ndarray, " documents"]:
    """Group dependent documents: copies, near-copies, pieces of longer documents, known groups.

    Dependent documents share their noise, so random halves of a corpus do not show it. SST-2's
    training set has 67,349 phrases cut from some 7,000 sentences.

    Equal documents share a group. Others are candidates if they share runs of tokens that are rare
    by their words' frequencies, and are aligned (Smith and Waterman 1981). The score is the
    likelihood ratio of copies with 10 % of their tokens changed to independent documents. It must
    exceed what one pair per 1,000 independent documents reaches, and half of the shorter document's
    score with itself. Near-copies have half of the longer document's too. A piece has not: it joins
    the shortest holder alone, so that common phrases do not chain documents.

    Of independent Zipf words, less than one document in 1,000 is grouped. Four copies of 24 tokens
    with 10 % replaced, inserted or deleted are together in 96 % (50 words) to 100 % (5,000 words).
    Texts of a few words that share a common phrase look like copies: of reviews cut to 6 words,
    3 % are joined, of those cut to 24 words 0.1 %. Short pieces are not told from chance: of 5,000
    words, 3 tokens are found in 29 %, 5 in 95 %. If most of the longer documents are contained in
    others, as in SST-2, short ones join one that contains them. Near-copies in over 5 % of the
    documents are taken for common phrases.

    Args:
        ids: tokens.
        mask: positions with text; all when None.
        exclude: ids that do not count.
        groups: labels of authors or sources, whose documents are joined too.

    Returns:
        The first document of each document's group, int32, as `count_tokens(groups=...)` takes it.

    Raises:
        InputError: too many tokens for the memory, or not one label per document.

    >>> ids = np.random.default_rng(0).integers(0, 999, (4, 30))
    >>> ids[2] = ids[0]; ids[2, 15] = 999  # a near-copy
    >>> ids[3, :8] = ids[1, 5:13]  # a piece of 8 tokens
    >>> dependent_groups(ids, np.arange(30) < np.array([[30], [30], [30], [8]])).tolist()
    [0, 1, 0, 1]
    """
    import scipy.sparse
    import scipy.sparse.csgraph

    count = len(ids)
    if groups is not None and groups.shape != (count,):
        raise InputError(
            f"`groups` has shape {groups.shape}: pass one label for each of {count} documents"
        )
    counted = _counted(ids, mask, exclude)
    order = np.argsort(counted.sum(axis=1), kind="stable")
    tokens = _tokens(ids[order], counted[order])
    pairs = _dependent_pairs(tokens) if len(tokens.words) else []
    content = tokens.hashes(tokens.begin[:-1], tokens.begin[1:])
    for labels in (content,) if groups is None else (content, groups[order]):
        _, first, label = np.unique(labels, return_index=True, return_inverse=True)
        pairs.append(np.stack([np.arange(count), first[label]]))
    one, other = order[np.concatenate(pairs, axis=1)]
    graph = scipy.sparse.coo_array((np.ones(len(one), bool), (one, other)), (count, count))
    _, component = scipy.sparse.csgraph.connected_components(graph, directed=False)
    return np.unique(component, return_index=True)[1][component].astype(np.int32)


class NeighbourSimilarity(NamedTuple):
    """Similarity of documents that are next to each other, from `neighbour_similarity`.

    Attributes:
        neighbours: mean cosine between neighbours' words; frequent words have smaller weights.
        at_random: mean of this cosine over random orders of the documents.
        p_value: share of orders, including the observed one, with at least the observed cosine.
        documents: number of documents, one from each group.
    """

    neighbours: float
    at_random: float
    p_value: float
    documents: int


def neighbour_similarity(
    ids: Int[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"] | None = None,
    *,
    exclude: tuple[int, ...] = (),
    groups: Integer[np.ndarray, " documents"] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> NeighbourSimilarity:
    """Permutation test of whether neighbouring documents are more alike than random ones.

    Files often hold the documents of one author or source together. If authors are unknown, similar
    neighbours suggest clusters: documents are then not independent, and intervals are too short.
    A document is a vector of its words, each with weight 1/√count. Words are hashed into 64 entries
    with random signs (Weinberger et al. 2009); vectors are centred and have length 1. The p-value
    is (b + 1)/(m + 1), if b of m random orders have neighbours at least as similar.

    Args:
        ids, mask, exclude: arguments of `dependent_groups`, in the order of the file.
        groups: labels of dependent documents, from `dependent_groups`; only the first document of
            each group is used.
        permutations: number of random orders.
        seed: random seed of orders and signs.

    Raises:
        InputError: fewer than 3 documents or groups, or no permutation.

    >>> rng = np.random.default_rng(0)
    >>> author = np.arange(200) // 10
    >>> ids = rng.integers(0, 40, (200, 30)) + 5 * (author % 7)[:, None]
    >>> neighbour_similarity(ids).p_value < 0.05, neighbour_similarity(ids[rng.permutation(200)]
    ...     ).p_value < 0.05
    (True, False)
    """
    counted = _counted(ids, mask, exclude)
    rows = np.flatnonzero(counted.any(axis=1))
    if groups is not None:
        rows = rows[np.sort(np.unique(groups[rows], return_index=True)[1])]
    if len(rows) < 3 or permutations < 1:
        raise InputError(
            f"{len(rows)} groups of documents and `permutations={permutations}`: pass at least "
            "3 documents that are not copies, and one permutation"
        )
    rng = np.random.default_rng(seed)
    vectors = _document_vectors(ids[rows], counted[rows], rng)
    first = np.sort(rng.choice(len(rows) - 1, min(_BLOCK, len(rows) - 1), replace=False))

    def similarity(order: np.ndarray) -> float:
        return float(np.mean(np.sum(vectors[order[first]] * vectors[order[first + 1]], axis=1)))

    observed = similarity(np.arange(len(rows)))
    null = np.array([similarity(rng.permutation(len(rows))) for _ in range(permutations)])
    p_value = float((1 + np.sum(null >= observed - 1e-9)) / (1 + permutations))
    return NeighbourSimilarity(observed, float(null.mean()), p_value, len(rows))


def _document_vectors(ids, counted, rng) -> np.ndarray:
    """Hashed word vectors of documents, centred and of length 1."""
    size = 64
    _, word = np.unique(ids[counted], return_inverse=True)
    counts = np.bincount(word)
    weight = rng.choice([-1.0, 1.0], len(counts)) / np.sqrt(counts)
    cell = np.nonzero(counted)[0] * size + rng.integers(0, size, len(counts))[word]
    vectors = np.bincount(cell, weight[word], len(ids) * size).reshape(-1, size)
    vectors /= counted.sum(axis=1, keepdims=True)
    vectors -= vectors.mean(axis=0)
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norm > 0, norm, 1.0)).astype(np.float32)


def _counted(ids, mask, exclude) -> np.ndarray:
    """Mask of the tokens that count."""
    return (np.ones(ids.shape, bool) if mask is None else mask) & ~np.isin(ids, exclude)


def _tokens(ids, counted) -> _Tokens:
    """Counted tokens, with hashes of their runs."""
    begin = np.append(0, np.cumsum(counted.sum(axis=1)))
    size = int(begin[-1])
    check_bytes(
        _TOKEN_BYTES * size,
        what=f"grouping {len(ids):,} documents of {size:,} tokens",
        remedy="pass a smaller `length`, or fewer documents",
    )
    values, words = np.unique(ids[counted], return_inverse=True)
    # Polynomials modulo 2⁶⁴, with random numbers for words: plain numbers collide on real texts.
    base, random = 0xD1342543DE82EF95, np.random.default_rng(0)
    terms = random.integers(0, 2**64, len(values), np.uint64)[words]
    terms[1:] *= np.cumprod(np.full(size, base, np.uint64))[:-1]
    inverse = np.full(size + 1, pow(base, -1, 2**64), np.uint64)
    inverse[0] = 1
    prefix = np.append(np.uint64(0), np.cumsum(terms))
    document = np.repeat(np.arange(len(ids), dtype=np.int32), np.diff(begin))
    return _Tokens(words.astype(np.int32), document, begin, prefix, np.cumprod(inverse))


def _dependent_pairs(tokens) -> list[np.ndarray]:
    """Pairs of near-copies, and of pieces and their holders, int `[2, pairs]` each."""
    documents, size = len(tokens.begin) - 1, len(tokens.words)
    information = _information(tokens)
    # A likelihood ratio has mean 1 by chance. It exceeds x after one of size²/2 pairs of first
    # tokens with probability 1/x at most (Ville 1939).
    least = np.log(size**2 / (2 * _FALSE * documents))
    one, other, shift = _candidates(tokens, information, max(least - _SEED, 1.0))
    gain = np.log((1 - _CHANGED) * np.exp(information) + _CHANGED)
    most = np.bincount(tokens.document, gain, documents)  # scores of documents with themselves
    score = np.zeros(len(one))
    for start in range(0, len(one), _BLOCK):
        block = slice(start, start + _BLOCK)
        score[block] = _alignment_scores(tokens, gain, one[block], other[block], shift[block])
    pair, which = np.unique(one * documents + other, return_inverse=True)
    one, other = np.divmod(pair, documents)
    covered = np.minimum(np.bincount(which, score), most[one])
    evidence = covered - _SHIFTED * (np.bincount(which) - 1)
    alike = (evidence >= least) & (covered >= _COVERED * most[one])
    one, other, covered = one[alike], other[alike], covered[alike]
    joined = covered >= _COVERED * most[other]
    joined[np.unique(one, return_index=True)[1]] = True  # the shortest holder of each piece
    pairs = [np.stack([one[joined], other[joined]])]
    pieces = np.unique(one[covered > most[one] - 1e-6])
    if 2 * len(pieces) > np.sum(most >= least):
        pairs += _short_pieces(tokens, np.flatnonzero(most < least))
    return pairs


def _information(tokens) -> np.ndarray:
    """Information of each token in nats, given its position and the token before, if common."""
    begin, words = tokens.begin, tokens.words
    common = max(_COMMON * (len(begin) - 1), 8)
    count = np.bincount(words)
    probability = (count / len(words)).astype(np.float32)[words]
    before = np.append(np.int32(0), 1 + words[:-1])
    before[begin[:-1]] = 0
    position = np.arange(len(words), dtype=np.int32) - begin.astype(np.int32)[tokens.document]
    for context in (before, position):
        # Pairs are counted in 2²⁰ cells. What shares a cell by chance is far below what is common.
        pair = context.astype(np.uint64) * np.uint64(len(count)) + words.astype(np.uint64)
        cell = (pair * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(44)).astype(np.int32)
        excess = (np.bincount(cell) - common).astype(np.float32)[cell]
        share = excess / np.bincount(context).astype(np.float32)[context]
        probability = np.maximum(probability, share)
    return -np.log(np.minimum(probability, 1.0))


def _candidates(tokens, information, least) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shorter and longer documents that share rare runs, and the shifts between them."""
    begin, lengths = tokens.begin, np.diff(tokens.begin)
    first, second = _equal_runs(tokens, information, least)
    one, other = (tokens.document[x].astype(np.int64) for x in (first, second))
    width = int(lengths[-1])
    shift = width + (second - begin[other]) - (first - begin[one])
    key = ((one * len(lengths) + other) * 2 * width + shift)[one != other]
    key, shared = np.unique(key, return_counts=True)
    pair, shift = np.divmod(key, 2 * width)
    one, other = np.divmod(pair, len(lengths))
    often = shared * _SHARED >= lengths[one]
    return one[often], other[often], shift[often] - width


def _equal_runs(tokens, information, least) -> tuple[np.ndarray, np.ndarray]:
    """First tokens of pairs of equal runs.

    A run begins at each token and is as short as `least` nats of information allow. Runs are sorted
    by their hashes, and each is compared with the two after it alone.
    """
    sums = np.append(0.0, np.cumsum(information, dtype=float))
    end = np.searchsorted(sums, sums[:-1] + least)
    start = np.flatnonzero(end <= tokens.begin[1:][tokens.document])
    keys, low = _sorted_keys(tokens.hashes(start, end[start]), start)
    start = (keys & low).astype(np.int64)
    keys &= ~low
    equal = [np.flatnonzero(keys[lag:] == keys[:-lag]) for lag in (1, 2)]
    return start[np.append(*equal)], start[np.append(equal[0] + 1, equal[1] + 2)]


def _alignment_scores(tokens, gain, one, other, shift) -> np.ndarray:
    """Largest log-likelihood ratios of local alignments with these shifts."""
    begin, end = tokens.begin[:-1, None], tokens.begin[1:, None]
    token = begin[one] + np.arange(np.max(end[one] - begin[one]))
    at = token + begin[other] - begin[one] + shift[:, None]
    inside = (token < end[one]) & (at >= begin[other]) & (at < end[other])
    token, at = (np.clip(x, 0, len(gain) - 1) for x in (token, at))
    same = inside & (tokens.words[token] == tokens.words[at])
    total = np.cumsum(np.where(same, gain[token], np.log(_CHANGED)), axis=1)
    lowest = np.minimum(np.minimum.accumulate(total, axis=1), 0)
    return np.max(total - lowest, axis=1)


def _short_pieces(tokens, short) -> list[np.ndarray]:
    """Short documents and a longer document that contains each, int `[2, pairs]`."""
    begin, lengths, pairs = tokens.begin, np.diff(tokens.begin), []
    left = begin[1:][tokens.document] - np.arange(len(tokens.words))
    for length in np.setdiff1d(lengths[short], lengths[-1:]):
        pieces = short[lengths[short] == length]
        start = np.flatnonzero((left >= length) & (lengths[tokens.document] > length))
        whole = tokens.hashes(begin[pieces], begin[pieces + 1])
        keys, low = _sorted_keys(tokens.hashes(start, start + length), start)
        first = np.minimum(np.searchsorted(keys, whole & ~low), len(keys) - 1)
        window = (keys[first] & low).astype(np.int64)
        held = tokens.hashes(window, window + length) == whole
        pairs.append(np.stack([pieces[held], tokens.document[window[held]]]))
    return pairs


def _sorted_keys(hashes, token) -> tuple[np.ndarray, np.uint64]:
    """Hashes in order, their lower bits replaced by the token, and a mask of these bits.

    Sorting numbers takes a fifth of the time of sorting them with their indices.
    """
    low = ~(~np.uint64(0) << np.uint64(int(token.max(initial=0)).bit_length()))
    return np.sort(hashes & ~low | token.astype(np.uint64)), low

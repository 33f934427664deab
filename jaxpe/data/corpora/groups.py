"""Groups of dependent documents: pieces, copies, near-copies and neighbours."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Integer

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes

# Longer documents are not searched for in others: they are rarely pieces, and cost the most.
_LONGEST_PIECE = 64
_TOGETHER = 2**16  # windows per block, so that a block stays in the cache
_CELL_BYTES = 64  # bytes per token, with its hashes and comparisons
_CELLS = 2**23  # tokens of the random pairs of documents
_HASHES = 64  # number of MinHash functions
_CHANGED = 0.1  # share of changed tokens in the near-copies to be found
_LONGEST_SHINGLE = 12
_FEWEST = 7  # fewest shared features of copies, so that common phrases do not make copies
_FALSE = 0.0002  # expected number of false copies per document, for independent documents
_PAIRS = 2**14  # random pairs of documents, and pairs per block


def containment_groups(
    ids: Int[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"] | None = None,
    *,
    exclude: tuple[int, ...] = (),
) -> Int[np.ndarray, " documents"]:
    """Group documents with the longer documents that contain them word for word.

    Pieces of one text are not independent: SST-2's training set has 67,349 phrases cut from some
    7,000 sentences. Random halves of it share sentences, so noise would not cancel between them.
    Each document of at most 64 tokens joins one longer document that contains it as a run of
    tokens, found by rolling 64-bit hashes. Equal documents share a group. The label of a group is
    the index of one of its documents, int32 `[documents]`, as `count_tokens(groups=...)` and
    `position_geometry(groups=...)` take it.

    Raises:
        InputError: too many tokens for the memory.

    >>> ids = np.array([[5, 6, 7], [6, 7, 0], [8, 0, 0]])
    >>> containment_groups(ids, ids > 0).tolist()
    [0, 0, 2]
    """
    words, lengths = _word_rows(ids, mask, exclude)
    return _containment_labels(lengths, *_prefix_hashes(words))


def near_copy_groups(
    ids: Int[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"] | None = None,
    *,
    exclude: tuple[int, ...] = (),
) -> Int[np.ndarray, " documents"]:
    """Group documents with their near-copies, by MinHash and banding.

    Documents are compared as two kinds of sets (Broder 1997). Sets of (token, position) find copies
    with replaced words. Sets of shingles, runs of k tokens, find copies with inserted words.
    Candidates agree in two neighbouring hashes of 64. They are near-copies if the Jaccard
    similarity of their sets is at least half of its value for copies with 10 % of the tokens
    changed. The number of shared elements must also exceed 7, and the number that independent
    documents reach by chance, estimated from random pairs. k is the smallest number, from 2, for
    which chance leaves room. Groups are the connected components. Short documents are not found: of
    Zipf words, all copies of 24 tokens are found, and 90 % of copies of 12 tokens.

    Arguments, labels and errors: see `containment_groups`.

    >>> ids = np.random.default_rng(0).integers(0, 999, (3, 30))
    >>> ids[2] = ids[0]; ids[2, 15] = 999
    >>> near_copy_groups(ids).tolist()
    [0, 1, 0]
    """
    words, lengths = _word_rows(ids, mask, exclude)
    first, second = _near_copies(words, lengths, *_prefix_hashes(words))
    return _component_labels(np.arange(len(ids), dtype=np.int32), first, second)


def dependent_groups(
    ids: Int[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"] | None = None,
    *,
    exclude: tuple[int, ...] = (),
    groups: Integer[np.ndarray, " documents"] | None = None,
) -> Int[np.ndarray, " documents"]:
    """Group dependent documents: pieces, near-copies and known groups.

    Groups are the connected components of `containment_groups`, `near_copy_groups` and any labels
    of authors or sources. Without near-copies and labels they are `containment_groups`.

    Args:
        ids, mask, exclude: arguments of `containment_groups`.
        groups: labels of authors or sources.

    Raises:
        InputError: too many tokens for the memory, or not one label per document.

    >>> ids = np.array([[5, 6, 7], [6, 7, 0], [8, 0, 0]])
    >>> dependent_groups(ids, ids > 0, groups=np.array([3, 4, 4])).tolist()
    [0, 0, 0]
    """
    if groups is not None and groups.shape != (len(ids),):
        raise InputError(
            f"`groups` has shape {groups.shape}: pass one label for each of {len(ids)} documents"
        )
    words, lengths = _word_rows(ids, mask, exclude)
    hashes = _prefix_hashes(words)
    labels = _containment_labels(lengths, *hashes)
    first, second = _near_copies(words, lengths, *hashes)
    if groups is not None:
        _, one, which = np.unique(groups, return_index=True, return_inverse=True)
        first, second = np.append(first, np.arange(len(ids))), np.append(second, one[which])
    return _component_labels(labels, first, second)


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
        ids, mask, exclude: arguments of `containment_groups`, in the order of the file.
        groups: labels of dependent documents, from `dependent_groups`; only the first document of
            each group is used.
        permutations: number of random orders.
        seed: random seed of orders and signs.

    Raises:
        InputError: fewer than 3 documents or groups, no permutation, or too many tokens for the
            memory.

    >>> rng = np.random.default_rng(0)
    >>> author = np.arange(200) // 10
    >>> ids = rng.integers(0, 40, (200, 30)) + 5 * (author % 7)[:, None]
    >>> neighbour_similarity(ids).p_value < 0.05, neighbour_similarity(ids[rng.permutation(200)]
    ...     ).p_value < 0.05
    (True, False)
    """
    words, lengths = _word_rows(ids, mask, exclude)
    rows = np.flatnonzero(lengths)
    if groups is not None:
        rows = rows[np.sort(np.unique(groups[rows], return_index=True)[1])]
    if len(rows) < 3 or permutations < 1:
        raise InputError(
            f"{len(rows)} groups of documents and `permutations={permutations}`: pass at least "
            "3 documents that are not copies, and one permutation"
        )
    rng = np.random.default_rng(seed)
    vectors = _document_vectors(words[rows], rng)
    first = np.sort(rng.choice(len(rows) - 1, min(_PAIRS // 4, len(rows) - 1), replace=False))

    def similarity(order: np.ndarray) -> float:
        return float(np.mean(np.sum(vectors[order[first]] * vectors[order[first + 1]], axis=1)))

    observed = similarity(np.arange(len(rows)))
    null = np.array([similarity(rng.permutation(len(rows))) for _ in range(permutations)])
    p_value = float((1 + np.sum(null >= observed - 1e-9)) / (1 + permutations))
    return NeighbourSimilarity(observed, float(null.mean()), p_value, len(rows))


def _document_vectors(words, rng) -> np.ndarray:
    """Hashed word vectors of documents, centred and of length 1."""
    size = 64
    document, column = np.nonzero(words)
    word = words[document, column].astype(np.int64)
    counts = np.bincount(word)
    weight = rng.choice([-1.0, 1.0], len(counts)) / np.sqrt(np.maximum(counts, 1))
    cell = document * size + rng.integers(0, size, len(counts))[word]
    vectors = np.bincount(cell, weight[word], len(words) * size).reshape(-1, size)
    vectors /= np.sum(words > 0, axis=1, keepdims=True)
    vectors -= vectors.mean(axis=0)
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norm > 0, norm, 1.0)).astype(np.float32)


def _containment_labels(lengths, prefix, powers) -> np.ndarray:
    """Labels of `containment_groups`, from the hashes of all prefixes."""
    full_hashes = prefix[np.arange(len(lengths)), lengths]
    _, first, which = np.unique(full_hashes, return_index=True, return_inverse=True)
    parent = first[which].astype(np.int32)  # equal documents of any length
    low = prefix.astype(np.uint16)
    for length in np.unique(lengths[lengths <= _LONGEST_PIECE]):
        pieces = np.flatnonzero(lengths == length)
        holders = np.flatnonzero(lengths > length)
        values, first, which = np.unique(
            full_hashes[pieces], return_index=True, return_inverse=True
        )
        owner = pieces[first].astype(np.int32)
        matches = _piece_holders(values, prefix, low, powers[length], length, holders)
        for holder, slot in reversed(matches):  # in reverse, so that the first holder wins
            owner[slot[::-1]] = holder[::-1]
        parent[pieces] = owner[which]
    return _roots(parent)


def _near_copies(words, lengths, prefix, powers) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of near-copies whose connected components are the groups of near-copies."""
    if min(words.shape) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    one, other = _random_pairs(*words.shape)
    both = (words[one] > 0) & (words[other] > 0)
    same = (words[one] == words[other]) & both
    position_hashes = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    positioned = words * np.uint64(0xD1342543DE82EF95) + position_hashes
    aligned = _similar_pairs(positioned, lengths, _least_aligned(same, both, len(words)))
    shared = partial(_shingle_matches, prefix, powers, lengths, one, other)
    size, least = _least_shingled(words, lengths, same, shared)
    shingles = prefix[:, size:] - prefix[:, :-size] * powers[size]
    shifted = _similar_pairs(shingles, np.maximum(lengths - size + 1, 0), least)
    first, second = np.concatenate([aligned, shifted], axis=1)
    return first, second


def _similar_pairs(features, counts, least) -> np.ndarray:
    """Pairs of documents, int `[2, pairs]`, whose sets of features are similar enough.

    Args:
        features: hashes `[documents, width]`; the first `counts[i]` of row i are its set.
        counts: sizes of the sets.
        least: smallest sufficient Jaccard similarity, by size; above 1 if none suffices.
    """
    rows = np.flatnonzero(least[counts] <= 1)
    rows = rows[np.argsort(counts[rows], kind="stable")]
    if len(rows) < 2:
        return np.zeros((2, 0), np.int64)
    sets = _hash_sets(features[rows, : counts[rows[-1]]], counts[rows])
    signatures = _signatures(sets)
    pairs = []
    for each in range(_HASHES):
        band = signatures[:, each].astype(np.uint64) << np.uint64(32)
        band |= signatures[:, (each + 1) % _HASHES]
        order = np.argsort(band)
        equal = np.flatnonzero(band[order[1:]] == band[order[:-1]])
        pairs.append(order[equal] * len(rows) + order[equal + 1])
    first, second = np.divmod(np.unique(np.concatenate(pairs)), len(rows))
    needed = np.maximum(*(least[counts[rows[x]]] for x in (first, second)))
    near = np.zeros(len(first), bool)
    for start in range(0, len(first), _PAIRS):
        part = slice(start, start + _PAIRS)
        agree = np.mean(signatures[first[part]] == signatures[second[part]], axis=1)
        likely = start + np.flatnonzero(agree >= needed[part] / 2)
        near[likely] = _similarity(sets[first[likely]], sets[second[likely]]) >= needed[likely]
    return np.stack([rows[first[near]], rows[second[near]]])


def _least_aligned(same, both, documents) -> np.ndarray:
    """Smallest Jaccard similarity of (token, position) sets of copies with n tokens.

    Independent documents agree at a binomial number of positions, estimated from random pairs.
    """
    from scipy.special import bdtrik

    n = np.arange(1, same.shape[1] + 1)
    mean = np.cumsum(same.sum(axis=0)) / np.maximum(np.cumsum(both.sum(axis=0)), 1)
    chance = 1 + bdtrik(1 - _FALSE / documents, n, np.clip(mean, 1e-9, 1 - 1e-9))
    return _least_similarity(chance, n, (1 - _CHANGED) ** 2)


def _least_similarity(chance, count, share) -> np.ndarray:
    """Similarity above chance and above half of the copies', by number of features from 0."""
    chance = np.maximum(chance, _FEWEST)
    shared = np.where(chance < count, chance, 2 * count)
    above = shared / np.maximum(2 * count - shared, 1e-9)
    likely = np.where(chance < count, np.maximum(above, share / (2 - share) / 2), 2.0)
    return np.append(np.inf, likely)


def _least_shingled(words, lengths, same, shared) -> tuple[int, np.ndarray]:
    """Length of a shingle, and the smallest Jaccard similarity of copies' shingle sets.

    The number of shingles that independent documents share is modelled as a compound Poisson
    variable, plus common openings at fixed positions. Their longest common run follows the
    Erdős–Rényi law. The rate of matching shingles is estimated from random pairs of documents, and
    is at least the rate of independent words.
    """
    from scipy.special import pdtrik

    counts = np.bincount(words[words > 0].astype(np.int64))
    frequent = float(np.sum((counts / max(counts.sum(), 1)) ** 2))
    aligned = float(same.mean()) if same.size else 0.0
    typical = int(np.sum(lengths**2) // max(np.sum(lengths), 1))
    pairs, before = len(words) / _FALSE, max(frequent, 1e-12)
    best = 2, np.full(words.shape[1] + 1, 2.0), np.inf
    for size in range(2, min(_LONGEST_SHINGLE, typical) + 1):
        count = np.arange(1, words.shape[1] - size + 2)
        rate, clump = shared(size)
        rate = max(rate, frequent**size, 1e-30)
        longer = min(max(rate / before, frequent, aligned), 1 - 1e-6)  # probability of one more
        before, clump = rate, max(clump, 1 / (1 - longer))
        runs = np.lib.stride_tricks.sliding_window_view(same, size, axis=1).all(axis=2)
        mean = np.maximum(np.cumsum(runs.mean(axis=0)) + count**2 * rate, 1e-9)
        number = clump * pdtrik(1 - 1 / pairs, mean / clump)
        longest = np.log(np.maximum(pairs * count.astype(float) ** 2 * rate, 1)) / -math.log(longer)
        share = (1 - _CHANGED) ** (2 * size)
        least = _least_similarity(1 + np.maximum(longest, number), count, share)
        ratio = least[typical - size + 1] / (share / (2 - share))
        if ratio < best[2]:
            best = size, least, ratio
        if ratio <= 0.6:
            break
    return best[:2]


def _shingle_matches(prefix, powers, lengths, one, other, size) -> tuple[float, float]:
    """Probability that shingles of a random pair match, and the dispersion of their number.

    The dispersion is variance over mean. The 1 % of pairs that share the most are left out, since
    they may be copies.
    """
    fits = (lengths[one] >= size) & (lengths[other] >= size)
    one, other = one[fits], other[fits]
    if not len(one):
        return 0.0, 1.0
    counts = [lengths[x] - size + 1 for x in (one, other)]
    width = int(max(counts[0].max(), counts[1].max()))
    sets = [
        _hash_sets(prefix[x, size : size + width] - prefix[x, :width] * powers[size], count)
        for x, count in zip((one, other), counts, strict=True)
    ]
    sizes = _set_sizes(*sets)
    number = sizes[0] + sizes[1] - sizes[2]
    usual = number <= np.quantile(number, 0.99)
    rate = number[usual].sum() / np.sum((counts[0] * counts[1])[usual])
    mean = max(float(number[usual].mean()), 1e-9)
    return float(rate), max(float(number[usual].var()) / mean, 1.0)


def _random_pairs(documents, n) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs of different documents."""
    number = min(_PAIRS // 4, 4 * documents, max(_CELLS // n, 64))
    one, other = np.random.default_rng(0).integers(0, documents, (2, number))
    return one[one != other], other[one != other]


def _hash_sets(features, counts) -> np.ndarray:
    """Sets as ascending 32-bit hashes; rows are filled with copies of one element."""
    hashes = features ^ (features >> np.uint64(31))
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    sets = (hashes >> np.uint64(32)).astype(np.uint32)
    sets = np.where(np.arange(sets.shape[1]) < counts[:, None], sets, sets[:, :1])
    sets.sort(axis=1)
    return sets


def _signatures(sets) -> np.ndarray:
    """MinHash signatures: the smallest value of each hash function over each set, uint32."""
    odd, shift = np.random.default_rng(0x6A617870).integers(0, 2**32, (2, _HASHES), np.uint32)
    odd |= np.uint32(1)
    signatures = np.empty((len(sets), _HASHES), np.uint32)
    rows = max(_TOGETHER // sets.shape[1], 1)
    for start in range(0, len(sets), rows):
        part = sets[start : start + rows]
        for each in range(_HASHES):
            hashes = part * odd[each] + shift[each]
            hashes.min(axis=1, out=signatures[start : start + rows, each])
    return signatures


def _similarity(one, other) -> np.ndarray:
    """Jaccard similarity of pairs of sets."""
    sizes = _set_sizes(one, other)
    return (sizes[0] + sizes[1]) / sizes[2] - 1


def _set_sizes(one, other) -> list[np.ndarray]:
    """Sizes of sets, each an ascending row that may repeat elements, and of their unions."""
    both = np.concatenate([one, other], axis=1)
    both.sort(axis=1)
    return [1 + np.sum(x[:, 1:] != x[:, :-1], axis=1) for x in (one, other, both)]


def _component_labels(labels, first, second) -> np.ndarray:
    """Labels of the connected components of labelled groups and further pairs of documents."""
    if not len(first):
        return labels
    import scipy.sparse
    import scipy.sparse.csgraph

    count = len(labels)
    one, other = np.append(np.arange(count), first), np.append(labels, second)
    edges = scipy.sparse.coo_array((np.ones(len(one), np.int8), (one, other)), (count, count))
    _, component = scipy.sparse.csgraph.connected_components(edges, directed=False)
    _, representative = np.unique(component, return_index=True)
    return labels[representative][component].astype(np.int32)


def _word_rows(ids, mask, exclude) -> tuple[np.ndarray, np.ndarray]:
    """Counted ids as words ≥ 1, moved to the left (0 is padding), and their number per document."""
    check_bytes(
        _CELL_BYTES * ids.size,
        what=f"grouping {ids.shape[0]:,} documents of length {ids.shape[1]:,}",
        remedy="pass a smaller `length`, or fewer documents",
    )
    counted = (np.ones(ids.shape, bool) if mask is None else mask) & ~np.isin(ids, exclude)
    lengths = counted.sum(axis=1)
    words = np.zeros(ids.shape, np.uint64)
    # Words are numbered in the order of their ids: words that never occur do not matter.
    _, number = np.unique(ids[counted], return_inverse=True)
    words[np.arange(ids.shape[1])[None, :] < lengths[:, None]] = number.astype(np.uint64) + 1
    return words, lengths


def _prefix_hashes(words) -> tuple[np.ndarray, np.ndarray]:
    """Polynomial hashes modulo 2⁶⁴ of all prefixes `[documents, n + 1]`, and the base's powers.

    Words are mixed first: a polynomial hash alone collides on real texts.
    """
    mixed = (words + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    base = 0xD1342543DE82EF95
    prefix = np.zeros((len(words), words.shape[1] + 1), np.uint64)
    for column in range(words.shape[1]):
        prefix[:, column + 1] = prefix[:, column] * np.uint64(base) + mixed[:, column]
    powers = [pow(base, exponent, 2**64) for exponent in range(prefix.shape[1])]
    return prefix, np.array(powers, np.uint64)


def _piece_holders(
    values, prefix, low, power, length, holders
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Documents that contain pieces with some sorted hashes, and the pieces, in blocks in order."""
    # A filter: most windows share their lower 16 bits with no piece. The lower bits of a window's
    # hash depend on the lower bits of the prefixes alone.
    likely = np.zeros(1 << 16, bool)
    likely[values.astype(np.uint16)] = True
    rows = max(_TOGETHER // prefix.shape[1], 1)
    matches = []
    for part in np.split(holders, range(rows, len(holders), rows)):
        low_bits = low[part]
        # A window beyond the end of a document contains padding, a word that no piece has.
        windows = low_bits[:, length:] - low_bits[:, : low_bits.shape[1] - length] * power.astype(
            np.uint16
        )
        at = np.flatnonzero(likely.take(windows.reshape(-1)))
        row, begin = part[at // windows.shape[1]], at % windows.shape[1]
        hashes = prefix[row, begin + length] - prefix[row, begin] * power
        slot = np.minimum(np.searchsorted(values, hashes), len(values) - 1)
        same = values[slot] == hashes
        matches.append((row[same], slot[same]))
    return matches


def _roots(parent) -> np.ndarray:
    """Root of each document: the end of its chain of parents, longer or earlier equal ones."""
    while True:
        grand = parent[parent]
        if np.array_equal(grand, parent):
            return parent
        parent = grand

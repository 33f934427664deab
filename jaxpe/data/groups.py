"""Groups of documents that contain one another, and so are not independent evidence."""

import numpy as np
from jaxtyping import Bool, Int

from jaxpe._core.memory import check_bytes

# Documents longer than this are taken as whole texts: a copy of one inside another is rare, and
# looking for it costs the most.
_LONGEST_PIECE = 64
_TOGETHER = 2**16  # windows that are made at a time, so that they stay in the cache
_CELL_BYTES = 64  # for each token: it, its hashes and what they are compared with


def containment_groups(
    ids: Int[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"] | None = None,
    *,
    exclude: tuple[int, ...] = (),
) -> Int[np.ndarray, " documents"]:
    """Group documents with the longer documents that contain them word for word.

    Pieces of one text are not independent evidence: SST-2's training set holds 67,349 phrases cut
    from some 7,000 sentences; halves of it share sentences, so noise would not cancel between them.
    Each document of at most 64 tokens joins one longer document that contains it as a run of tokens
    (found by rolling hashes of 64 bits); equal documents share a group. Groups are labelled by the
    index of one of their documents, int32 `[documents]`, as `count_tokens(groups=...)` and
    `bootstrap(groups=...)` take them.

    Raises:
        InputError: more than memory holds.

    >>> ids = np.array([[5, 6, 7], [6, 7, 0], [8, 0, 0]])
    >>> containment_groups(ids, ids > 0).tolist()
    [0, 0, 2]
    """
    check_bytes(
        _CELL_BYTES * ids.size,
        what=f"grouping {ids.shape[0]:,} documents of length {ids.shape[1]:,}",
        remedy="pass a smaller `length`, or fewer documents",
    )
    mask = np.ones(ids.shape, bool) if mask is None else mask
    words, lengths = _packed(ids, mask & ~np.isin(ids, exclude))
    prefix, powers = _prefix_hashes(words)
    whole = prefix[np.arange(len(ids)), lengths]
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    parent = first[which].astype(np.int32)  # equal documents, however long
    low = prefix.astype(np.uint16)
    for length in np.unique(lengths[lengths <= _LONGEST_PIECE]):
        pieces = np.flatnonzero(lengths == length)
        holders = np.flatnonzero(lengths > length)
        values, first, which = np.unique(whole[pieces], return_index=True, return_inverse=True)
        owner = pieces[first].astype(np.int32)
        found = _holders_of(values, prefix, low, powers[length], length, holders)
        for holder, slot in reversed(found):  # so that the first holder of each piece stays
            owner[slot[::-1]] = holder[::-1]
        parent[pieces] = owner[which]
    return _roots(parent)


def _packed(ids, kept) -> tuple[np.ndarray, np.ndarray]:
    """Kept ids moved to the left as words ≥ 1 (0 is padding), and how many there are."""
    lengths = kept.sum(axis=1)
    words = np.zeros(ids.shape, np.uint64)
    words[np.arange(ids.shape[1])[None, :] < lengths[:, None]] = ids[kept].astype(np.uint64) + 1
    return words, lengths


def _prefix_hashes(words) -> tuple[np.ndarray, np.ndarray]:
    """Polynomial hashes modulo 2⁶⁴ of all prefixes `[documents, n + 1]`, and the base's powers.

    Words are mixed first: a polynomial alone has collisions that texts do hit.
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


def _holders_of(values, prefix, low, power, length, holders) -> list[tuple[np.ndarray, np.ndarray]]:
    """Documents with windows of these sorted hashes, and which of them, in parts and in order."""
    # Most windows share no lower bits with any piece, which one look-up shows; these bits of a
    # window are made of those of the prefixes.
    likely = np.zeros(1 << 16, bool)
    likely[values.astype(np.uint16)] = True
    rows = max(_TOGETHER // prefix.shape[1], 1)
    found = []
    for part in np.split(holders, range(rows, len(holders), rows)):
        own = low[part]
        # A window that runs over a holder's end contains padding, whose word no document has.
        windows = own[:, length:] - own[:, : own.shape[1] - length] * power.astype(np.uint16)
        at = np.flatnonzero(likely.take(windows.reshape(-1)))
        row, begin = part[at // windows.shape[1]], at % windows.shape[1]
        hashes = prefix[row, begin + length] - prefix[row, begin] * power
        slot = np.minimum(np.searchsorted(values, hashes), len(values) - 1)
        same = values[slot] == hashes
        found.append((row[same], slot[same]))
    return found


def _roots(parent) -> np.ndarray:
    """Follow parents, each a longer or an earlier equal document, to the end of the chain."""
    while True:
        grand = parent[parent]
        if np.array_equal(grand, parent):
            return parent
        parent = grand

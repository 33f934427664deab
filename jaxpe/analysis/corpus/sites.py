"""Positions one by one: information of each, and the positions that differ from both neighbours."""

import numpy as np

from jaxpe.analysis.corpus.result import LetterInformation, StandingOut, TokenShift
from jaxpe.data import TokenCorpus
from jaxpe.geometry.distances.mutual_information import chance_copies, entropy, longest_documents

MOST_LETTERS = 64  # largest alphabet whose letters a logo can show
LEVEL = 0.05  # probability that any position is listed wrongly
_MOST_TOKENS = 3  # tokens that are named for a position
_FEWEST = 20  # documents that differ between two positions; fewer cannot be significant
# Letters of sequences, ambiguous ones, and the size of the alphabet: nucleotides, amino acids.
_ALPHABETS = (("ACGTU", "NRYSWKMBDHV", 4), ("ACDEFGHIKLMNPQRSTVWY", "XBZJUO", 20))
_GAPS = "-.*~"


def document_groups(corpus: TokenCorpus) -> np.ndarray:
    """Dependent documents by `TokenCorpus.groups`; short strings may be equal by chance.

    If most documents are so short, or of so few letters, that some would be equal by chance, copies
    are no sign of dependence. Each document then counts, unless groups are named or all are equal.
    """
    groups = corpus.groups()
    if corpus.group_labels is not None or not np.ptp(groups):
        return groups
    by_chance = np.mean(chance_copies(corpus.ids, corpus.mask)) > 0.5
    return np.arange(len(groups), dtype=np.int32) if by_chance else groups


def letter_information(counts: np.ndarray, tokens: list[str]) -> LetterInformation | None:
    """Information of each position about its letter, log₂ s − H, in bits; None for many letters.

    H is the entropy with Miller's (1955) correction (K − 1)/2N for K letters seen among N, which is
    e(n) of Schneider et al. (1986) where all s letters are seen. Intervals are by the delta method,
    with a half added to each count and the variance (s − 1)/2N² of the quadratic term.

    Args:
        counts: counts `[n, tokens]`.
        tokens: text of each token.
    """
    letters, size = _alphabet(tokens, counts.sum(axis=0)[: len(tokens)])
    if not 2 <= size <= MOST_LETTERS or not letters:
        return None
    total = counts[:, letters].sum(axis=1)
    seen, documents = counts[:, letters].astype(float), np.maximum(total, 1)[:, None]
    padded = np.pad(seen, [(0, 0), (0, size - len(letters))])  # letters that occur nowhere
    smooth = (padded + 0.5) / (documents + size / 2)
    first, second = (np.sum(smooth * np.log(smooth) ** k, axis=1) for k in (1, 2))
    n = documents[:, 0]
    half = 1.96 * np.sqrt((second - first**2) / n + (size - 1) / (2 * n**2))
    bits = np.log(size) - np.asarray(entropy(seen, estimator="miller-madow"))
    bits = np.stack([bits, *np.clip([bits - half, bits + half], 0, np.log(size))]) / np.log(2)
    return LetterInformation(
        letters=[tokens[letter] for letter in letters],
        size=size,
        shares=seen / documents,
        bits=np.where(total > 0, bits, np.nan),
        documents=total.astype(np.int64),
    )


def _alphabet(tokens: list[str], counts: np.ndarray) -> tuple[list[int], int]:
    """Indices of the letters, and the size of their alphabet.

    Sequences have 4 nucleotides or 20 amino acids; gaps and ambiguous letters are left out. Other
    text has as many letters as occur.
    """
    occurring = np.flatnonzero(counts).tolist()
    for alphabet, ambiguous, size in _ALPHABETS:
        if all(set(tokens[i]) <= {*alphabet, *ambiguous, *_GAPS} for i in occurring):
            letters = [i for i in occurring if set(tokens[i]) <= set(alphabet)]
            size **= max((len(tokens[i]) for i in letters), default=1)
            return letters, max(size, len(letters))  # five where T and U are mixed
    return occurring, len(occurring)


def positions_standing_out(corpus: TokenCorpus, groups: np.ndarray) -> list[StandingOut]:
    """Positions with a token that is more frequent, or less, than at both neighbours.

    Two positions are compared in the documents that reach both, by the exact test of McNemar
    (1947): of the documents with the token at one of them alone, half have it at either. The larger
    p-value of both neighbours counts, times the number of all positions, tokens and directions
    tested (Bonferroni). The first and last position are compared with the nearest two. One document
    of each group takes part.
    """
    rows = longest_documents(corpus.ids, corpus.mask, groups)
    ids, mask, last = corpus.ids[rows], corpus.mask[rows], corpus.ids.shape[1] - 1
    if last < 2:
        return []
    tests, candidates = 0, []
    for i in range(last + 1):
        neighbours = {0: (1, 2), last: (last - 1, last - 2)}.get(i, (i - 1, i + 1))
        changes = [_changes(ids, mask, i, j, corpus.vocab_size) for j in neighbours]
        tokens = np.flatnonzero(np.min([c.sum(axis=0) for c in changes], axis=0) >= _FEWEST)
        tests += 2 * len(tokens)
        here, *beside = (_shares(ids, mask, k, corpus.vocab_size)[tokens] for k in (i, *neighbours))
        p_values = np.max([_binomial_tails(c[:, tokens]) for c in changes], axis=0).min(axis=0)
        shifts = here - np.mean(beside, axis=0)
        candidates.append((tokens, here, here - shifts, p_values))
    result = []
    for i, (tokens, here, beside, p_values) in enumerate(candidates):
        p_values = np.minimum(p_values * tests, 1)
        numbers = np.stack([here, beside, p_values], axis=1).tolist()
        names = (corpus.tokens[token] for token in tokens)
        shifts = [TokenShift(name, *row) for name, row in zip(names, numbers, strict=True)]
        shifts = [shift for shift in shifts if shift.p_value < LEVEL]
        shifts.sort(key=lambda shift: -abs(shift.share - shift.neighbours))
        result += [StandingOut(i, shifts[:_MOST_TOKENS])] if shifts else []
    return result


def _changes(ids: np.ndarray, mask: np.ndarray, i: int, j: int, size: int) -> np.ndarray:
    """Documents with each token at position i and not at j, and the reverse, `[2, size]`."""
    differ = mask[:, i] & mask[:, j] & (ids[:, i] != ids[:, j])
    return np.stack([np.bincount(ids[differ, k], minlength=size) for k in (i, j)])


def _shares(ids: np.ndarray, mask: np.ndarray, i: int, size: int) -> np.ndarray:
    counts = np.bincount(ids[mask[:, i], i], minlength=size)
    return counts / max(counts.sum(), 1)


def _binomial_tails(changes: np.ndarray) -> np.ndarray:
    """P(B ≥ each count) for B binomial with probability ½ of both, `[2, tokens]`."""
    from scipy.special import bdtrc

    return np.where(changes > 0, bdtrc(changes - 1, changes.sum(axis=0), 0.5), 1.0)

"""Positions one by one: information of each, and the positions that differ from both neighbours."""

from typing import NamedTuple

import numpy as np

from jaxpe.analysis.corpus.result import LetterInformation, StandingOut, TokenShift
from jaxpe.data import TokenCorpus
from jaxpe.geometry.distances.mutual_information import longest_documents

MOST_LETTERS = 64  # largest alphabet whose letters a logo can show
LEVEL = 0.05  # probability that any position is listed wrongly
_MOST_TOKENS = 3  # tokens that are named for a position
_FEWEST = 20  # documents that differ between two positions; fewer cannot be significant
_GAPS = "-.*~"
_LEAST_BACKGROUND = 1 / 4  # of the positions, without which the background is unknown


class _Alphabet(NamedTuple):
    """Letters of sequences, those that name none of them (IUPAC), further ones, and its size."""

    name: str
    letters: str
    ambiguous: str
    further: str
    size: int


_ALPHABETS = (
    _Alphabet("nucleotides", "ACGTU", "NRYSWKMBDHV", _GAPS, 4),
    _Alphabet("amino acids", "ACDEFGHIKLMNPQRSTVWY", "XBZJ", f"UO{_GAPS}", 20),
)


def letter_information(counts: np.ndarray, tokens: list[str]) -> LetterInformation | None:
    """Information of each position about its letter, log₂ s − H, in bits; None for many letters.

    H is the entropy with Miller's (1955) correction (K − 1)/2N for K letters seen among N, which is
    e(n) of Schneider et al. (1986) where all s letters are seen. Intervals are by the delta method,
    with a half added to each count and the variance (s − 1)/2N² of the quadratic term. Relative
    entropies, −H − Σ p log₂ q for a background q, have the same correction and interval. Positions
    with fewer than `least` sequences, five for each letter of the alphabet and at least 40, have
    none of these: there intervals cover the truth too rarely.

    Args:
        counts: counts `[n, tokens]`.
        tokens: text of each token.
    """
    from scipy.special import entr

    alphabet, letters, size = _alphabet(tokens, np.any(counts, axis=0)[: len(tokens)])
    if not 2 <= size <= MOST_LETTERS or not letters:
        return None
    total = counts[:, letters].sum(axis=1)
    seen, documents = counts[:, letters].astype(float), np.maximum(total, 1)[:, None]
    padded = np.pad(seen, [(0, 0), (0, size - len(letters))])  # letters that occur nowhere
    smooth = (padded + 0.5) / (documents + size / 2)
    first, second = (np.sum(smooth * np.log(smooth) ** k, axis=1) for k in (1, 2))
    n = documents[:, 0]
    half = 1.96 * np.sqrt((second - first**2) / n + (size - 1) / (2 * n**2))
    H = entr(seen / documents).sum(axis=1) + (np.count_nonzero(seen, axis=1) - 1) / (2 * n)
    bits = _with_interval(np.log(size) - H, half, np.log(size))
    differing, background = _background(seen)
    logs, smooth = np.log(background), smooth[:, : len(letters)]
    first, second = (np.sum(smooth * (np.log(smooth) - logs) ** k, axis=1) for k in (1, 2))
    half = 1.96 * np.sqrt((second - first**2) / n + (len(letters) - 1) / (2 * n**2))
    relative = _with_interval(-H - seen @ logs / n, half, -logs.min())
    found = LetterInformation(
        letters=[tokens[letter] for letter in letters],
        size=size,
        shares=seen / documents,
        bits=bits,
        documents=total.astype(np.int64),
        alphabet=alphabet,
        background=background,
        relative=relative,
        differing=differing,
    )
    enough = total >= found.least
    return found._replace(
        bits=np.where(enough, bits, np.nan), relative=np.where(enough, relative, np.nan)
    )


def _with_interval(nats: np.ndarray, half: np.ndarray, most: float) -> np.ndarray:
    """Estimate and ends of its interval in bits; the correction puts an estimate of 0 below 0."""
    low, high = np.maximum(nats - half, np.minimum(nats, 0)), np.minimum(nats + half, most)
    return np.stack([nats, low, high]) / np.log(2)


def _background(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions whose letters differ from the composition of the others, and this composition.

    Positions are taken out of the background while the likelihood-ratio test of any, with the
    correction of Williams (1976) and Bonferroni's, rejects; those half as far as the farthest go
    at once. Composition has a half added to each count.
    """
    from scipy.special import chdtri, rel_entr

    total, k = counts.sum(axis=1), counts.shape[1]
    present = total > 0
    inside, level = present.copy(), float(chdtri(max(k - 1, 1), LEVEL / max(present.sum(), 1)))
    shares = counts / np.maximum(total, 1)[:, None]
    williams = 1 + (k + 1) / (6 * np.maximum(total, 1))
    while True:
        background = counts[inside].sum(axis=0) + 0.5
        background /= background.sum()
        statistic = 2 * total * rel_entr(shares, background).sum(axis=1) / williams * inside
        if statistic.max() <= level:
            break
        inside &= statistic < max(level, statistic.max() / 2)
    if inside.sum() < max(_LEAST_BACKGROUND * present.sum(), 1):
        background = counts.sum(axis=0) + 0.5
        return np.flatnonzero([]), background / background.sum()
    return np.flatnonzero(present & ~inside), background


def ambiguous_letters(tokens: list[str], used: np.ndarray) -> np.ndarray:
    """Mask of the used tokens that hold an ambiguous letter of a sequence, such as N, `[tokens]`.

    Args:
        tokens: text of each token.
        used: bool `[tokens]`, tokens that occur.
    """
    alphabet, found = _sequence_alphabet(tokens, used), np.zeros(len(used), bool)
    if alphabet is not None:
        found[: len(tokens)] = [not set(token).isdisjoint(alphabet.ambiguous) for token in tokens]
        found &= used & ~found[used].all()  # where all are ambiguous, they are other text
    return found


def _sequence_alphabet(tokens: list[str], used: np.ndarray) -> _Alphabet | None:
    """The first alphabet that the used tokens are written in."""
    for alphabet in _ALPHABETS:
        written = {*alphabet.letters, *alphabet.ambiguous, *alphabet.further}
        if all(set(tokens[i]) <= written for i in np.flatnonzero(used)):
            return alphabet
    return None


def _alphabet(tokens: list[str], used: np.ndarray) -> tuple[str, list[int], int]:
    """Name of the alphabet, indices of its letters, and its size.

    Sequences have 4 nucleotides or 20 amino acids; gaps and ambiguous letters are left out. Other
    text has as many letters as occur.
    """
    occurring = np.flatnonzero(used).tolist()
    alphabet = _sequence_alphabet(tokens, used)
    if alphabet is None:
        return "", occurring, len(occurring)
    letters = [i for i in occurring if set(tokens[i]) <= set(alphabet.letters)]
    size = alphabet.size ** max((len(tokens[i]) for i in letters), default=1)
    return alphabet.name, letters, max(size, len(letters))  # five where T and U are mixed


def positions_standing_out(corpus: TokenCorpus, groups: np.ndarray) -> list[StandingOut]:
    """Positions with a token that is more frequent, or less, than at both neighbours.

    Two positions are compared in the documents that reach both, by the exact test of McNemar
    (1947): of the documents with the token at one of them alone, half have it at either. The larger
    p-value of both neighbours counts, times the number of all positions, tokens and directions
    tested (Bonferroni). The first and last position are compared with the nearest two. The last is
    left out if some documents end before it: of those that reach it, some end there, and ends have
    tokens of their own. One document of each group takes part.
    """
    rows, last = longest_documents(corpus.ids, corpus.mask, groups), corpus.ids.shape[1] - 1
    ids, mask = (np.asfortranarray(x[rows]) for x in (corpus.ids, corpus.mask))  # by position
    if last < 2:
        return []
    tests, candidates = 0, []
    for i in range(last + mask[:, last].all()):
        neighbours = {0: (1, 2), last: (last - 1, last - 2)}.get(i, (i - 1, i + 1))
        changes = [_changes(ids, mask, i, j, corpus.vocab_size) for j in neighbours]
        tokens = np.flatnonzero(np.min([c.sum(axis=0) for c in changes], axis=0) >= _FEWEST)
        tests += 2 * len(tokens)
        here, *beside = (_shares(ids, mask, k, corpus.vocab_size)[tokens] for k in (i, *neighbours))
        p_values = np.max([_binomial_tails(c[:, tokens]) for c in changes], axis=0).min(axis=0)
        candidates.append((tokens, here, np.mean(beside, axis=0), p_values))
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

"""Fake but plausible analyses: a slow drift and a bump of truth under a floor of sampling noise."""

import math
from typing import Any

import numpy as np

from jaxpe.analysis.corpus import (
    CorpusFacts,
    CorpusOptions,
    CorpusResult,
    EncodingScore,
    HeldOutScores,
    Interval,
    LetterInformation,
    Observed,
    Position,
    Reach,
    StandingOut,
    TokenCount,
    TokenShift,
    TopTokens,
    Where,
)
from jaxpe.data import Choice, NeighbourSimilarity
from jaxpe.encodings import catalogue
from jaxpe.plot.axes import offset_quantiles

N, EQUAL = 48, 0.48  # positions, and stress of equal distances
# The report's rows: the fitted one, then those of the catalogue that have vectors for text.
FAMILIES = {"mds": "fitted"} | {
    entry.name: entry.family
    for entry in catalogue()
    if entry.vectors and entry.coordinates == 1 and not (entry.fitted or entry.variant_of)
}
REACH = Reach(
    Interval(0.1, 0.05, 0.2),
    np.array([[0.1], [0.05], [0.2]]) * np.linspace(0.3, 1, N),
    Interval(1.0, 1.0, 1.0),
    Interval(3.0, 2.0, math.inf),
)
WHERE = Where(REACH, REACH, 19_000, 430_000)
HOSTILE_TOKENS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "abc\u202edcba",
    "nul\0nul",
    "w" * 500,
    "{{ 7 * 7 }}",
    "\ud800",
    "\x1b[31mred",
]


NESTED = {"facts": CorpusFacts, "observed": Observed, "position": Position}


def analysis(**overrides: Any) -> CorpusResult:
    """A corpus of 48 positions with three real dimensions.

    Any field can be overridden; of a nested one, by a dict, some of its own.
    """
    fields = _defaults()
    for name, value in overrides.items():
        fields[name] = fields[name] | value if name in NESTED else value
    fields.setdefault("held_out", _held_out(fields))
    nested = {name: kind(**fields.pop(name)) for name, kind in NESTED.items()}
    return CorpusResult(**fields, **nested)


def hostile() -> CorpusResult:
    """Text from a corpus that attacks the page, in every field that shows text."""
    tokens = [TokenCount(token, 9 - k) for k, token in enumerate(HOSTILE_TOKENS)]
    shifts = [[TokenShift(x, 0.5, 0.1, 0.01)] for x in HOSTILE_TOKENS]
    return analysis(
        facts={
            "name": "<b>corpus</b>\u202e<img src=x onerror=alert(2)>" + "s" * 300,
            "tokenizer": "<i>tok</i>",
        },
        top_tokens=[TopTokens(k, tokens[2 * k :]) for k in range(4)],
        standing_out=[StandingOut(k, shift) for k, shift in enumerate(shifts)],
        letters=letters(HOSTILE_TOKENS[:4], np.arange(N) == 7),  # long words draw slowly
        choices=tuple(Choice("column of text", *[token[:40]] * 3) for token in HOSTILE_TOKENS),
    )


def score(name: str, **overrides: Any) -> EncodingScore:
    """One encoding; `distances` follow its name unless overridden."""
    scaled, corrected = {
        "mds": (3e-13, 0.31),
        "sinusoidal": (0.081, 0.42),
        "rope": (0.081, 0.42),
        "alibi": (0.31, 0.12),
        "random": (0.029, 0.47),
        "learned": (0.029, 0.47),
    }.get(name, (0.2, 0.2 + 0.01 * len(name)))
    fields = {
        "name": name,
        "family": FAMILIES.get(name, "absolute"),
        "dim": 1 if name == "alibi" else 64,
        "parameters": 3008 if name in ("mds", "learned", "low_rank") else 0,
        "scaled_stress": scaled,
        "position_scaled_stress": corrected,
        "violation_rate": 0.5 if name in ("random", "learned") else 0.224,
        "mantel_r": 0.02 if name in ("random", "learned") else 1.0 - scaled,
        "distances": _encoding_distances(name),
        "note": "slope 1/64 on a line" if name == "alibi" else "rows of the position matrix",
    }
    return EncodingScore(**(fields | overrides))


def letters(names: list[str], present: np.ndarray, alphabet: str = "") -> LetterInformation:
    """Four letters, the first at 70 %, and most information at position 7."""
    bits = np.where(present, 0.4 + (np.arange(N) == 7), math.nan)
    shares = np.tile([0.7, 0.1, 0.1, 0.1], (N, 1)) * present[:, None]
    return LetterInformation(
        names, 4, shares, np.stack([bits, bits - 0.1, bits + 0.2]), 90 * present, alphabet,
        shares.max(axis=0), np.stack([bits, bits - 0.1, bits + 0.2]) / 2, np.array([6, 7]),
    )  # fmt: skip


def _held_out(fields: dict[str, Any]) -> HeldOutScores | None:
    """Intervals of ±0.02 about the stress against all documents; nearer ones are tied."""
    fixed = {s.name: s.position_scaled_stress for s in fields["encodings"] if s.fixed}
    known = {name: value for name, value in fixed.items() if math.isfinite(value)}
    if not known or not fields["position"]["present"].any():
        return None
    dim = fields["position"]["significant_rank"]
    order = sorted(known, key=known.__getitem__)
    least = known[order[0]]
    best = [name for name in order if known[name] - least < 0.02]
    own = [0.2, 0.05, *(0.05 + 0.01 * k for k in range(1, 30))]
    return HeldOutScores(
        splits=8,
        dim=dim,
        vectors=_truth()[:, :dim],
        own=[Interval(value, value - 0.01, value + 0.01) for value in own],
        fixed={name: Interval(x, x - 0.02, x + 0.02) for name, x in fixed.items()},
        best=best,
        one_number=Interval(0.25, 0.2, 0.3),
        tau=0.1,
        power=-0.5,
        gain=Interval(least - own[dim - 1], 0.03, 0.11) if dim else None,
        equal=Interval(EQUAL, EQUAL - 0.02, EQUAL + 0.02),
        over_equal=Interval(EQUAL - least, EQUAL - least - 0.02, EQUAL - least + 0.02),
    )


def _truth() -> np.ndarray:
    t = np.linspace(0, 1, N)
    return np.stack([0.35 * t, 0.18 * np.exp(-8 * t), 0.05 * np.sin(6 * t)], axis=1)


def _squared(points: np.ndarray) -> np.ndarray:
    return np.sum((points[:, None] - points[None, :]) ** 2, axis=-1)


def _encoding_distances(name: str) -> np.ndarray:
    t = np.arange(N)
    if name == "alibi":
        return np.abs(t[:, None] - t[None, :]) / 64
    if name == "learned":
        return 0.02 * _encoding_distances("random")
    if name == "mds":
        return _plug_in()
    if name not in ("sinusoidal", "rope"):
        rng = np.random.default_rng(list(name.encode()))
        return np.sqrt(_squared(rng.normal(size=(N, 64))))
    phases = t[:, None] / 10_000 ** (np.arange(32) / 32)
    return np.sqrt(_squared(np.concatenate([np.cos(phases), np.sin(phases)], axis=1)))


def _plug_in() -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=(N, 300)) * np.linspace(0.022, 0.05, N)[:, None]
    return np.sqrt(_squared(np.concatenate([_truth(), noise], axis=1)))


def _position() -> np.ndarray:
    noise = np.random.default_rng(2).normal(size=(N, N)) * 0.004
    return _squared(_truth()) + (noise + noise.T) * (1 - np.eye(N))


def _eigenvalues(squared: np.ndarray, shown: np.ndarray) -> np.ndarray:
    kept = squared[np.ix_(shown, shown)]
    centre = np.eye(len(kept)) - 1 / len(kept)
    values = np.linalg.eigvalsh(-centre @ kept @ centre / 2)[::-1]
    return np.concatenate([values, np.zeros(N - len(values))])


def _defaults() -> dict[str, Any]:
    """Fields; those of the nested tuples as dicts."""
    present = np.ones(N, bool)
    present[[0, 46, 47]] = False
    judged = present & (np.arange(N) < 44)
    observed, position = _plug_in(), _position()
    observed_values = _eigenvalues(observed**2, present)
    position_values = _eigenvalues(position, judged)
    offsets = offset_quantiles(position, judged)[0]
    centred = _truth() - _truth().mean(0)
    noisy = judged & (np.arange(N) >= 40)  # with those that are not judged, the rare positions
    return {
        "facts": {
            "name": "stdlib",
            "tokenizer": "words",
            "documents": 12_480,
            "groups": 12_480,
            "tokens": 431_207,
            "length": N,
            "vocab_size": 20_000,
            "folds": 16,
            "cut": 9,
        },
        "options": CorpusOptions(),
        "choices": (),
        "documents_per_position": np.linspace(12_480, 20, N).astype(int) * present,
        "observed": {
            "rank": 44,
            "eigenvalues": observed_values,
            "present": present,
            "distances": observed * (present[:, None] & present),
            "split_half_trace": 1.5 * float(position_values.sum()),
        },
        "position": {
            "trace": float(position_values.sum()),
            "eigenvalues": position_values,
            "significant_rank": 2,
            "p_value": 1 / 21,
            "rank_eigenvalues": position_values,
            "null_eigenvalue": 0.04,
            "present": judged,
            "standard_errors": np.where(noisy, 1e9, 0.0),
            "squared_distances": np.where(judged[:, None] & judged, position, np.nan),
            "coordinates": np.where(judged[:, None], centred, np.nan),
            "composition_correlation": 0.12,
            "by_offset": np.stack([offsets, offsets - 0.01, offsets + 0.01]),
        },
        "intervals": {
            "noise_share": Interval(0.9, 0.87, 0.93),
            "composition_share": Interval(0.04, 0.03, 0.05),
            "position_share": Interval(0.06, 0.05, 0.07),
            "nearness": Interval(0.31, 0.25, 0.37),
        },
        "encodings": [score(name) for name in FAMILIES],
        "where": WHERE,
        "letters": letters(list("ACGT"), present),
        "standing_out": [StandingOut(7, [TokenShift("A", 0.8, 0.2, 0.01)])],
        "top_tokens": [
            TopTokens(1, [TokenCount("the", 210), TokenCount("a", 190), TokenCount(",", 12)]),
            TopTokens(24, [TokenCount("of", 90), TokenCount("and", 80)]),
        ],
        "neighbours": NeighbourSimilarity(0.002, 0.001, 0.3, 12_480),
        "seconds": {"reading": 1.4, "in all": 9.8},
    }

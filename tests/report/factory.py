"""Fake but plausible analyses: a slow drift and a bump of truth under a floor of sampling noise."""

import math
from typing import Any

import numpy as np

from jaxpe.analysis.corpus.result import Analysis, EncodingScore, Interval
from jaxpe.encodings import CATALOGUE

N = 48
# The report's rows: the fitted ones, then those of the catalogue that have vectors for text.
FAMILIES = {"mds": "fitted", "smacof": "fitted"} | {
    entry.name: entry.family
    for entry in CATALOGUE
    if entry.vectors and entry.coordinates == 1 and not entry.fitted
}
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


def analysis(**overrides: Any) -> Analysis:
    """A corpus of 48 positions with three real dimensions; any field can be overridden."""
    fields = _defaults() | overrides
    if not fields["judged"].any() or not fields["plug_in_trace"] > 0:
        share = math.nan
    else:
        share = 1 - fields["split_half_trace"] / fields["plug_in_trace"]
    return Analysis(**({"noise_share": share} | fields))


def hostile() -> Analysis:
    """Text from a corpus that attacks the page, in every field that shows text."""
    tokens = [(token, 9 - k) for k, token in enumerate(HOSTILE_TOKENS)]
    return analysis(
        source="<b>corpus</b>\u202e<img src=x onerror=alert(2)>" + "s" * 300,
        tokenizer="<i>tok</i>",
        top_tokens=[tokens, [], [("שלום", 3), ("the", 2)]],
        top_token_positions=[0, 20, 47],
    )


def score(name: str, **overrides: Any) -> EncodingScore:
    """One encoding; `distances` follow its name unless overridden."""
    scaled, raw, corrected = {
        "mds": (3e-13, 3e-13, 0.31),
        "smacof": (2e-13, 2e-13, 0.30),
        "sinusoidal": (0.081, 271.0, 0.42),
        "rope": (0.081, 271.0, 0.42),
        "alibi": (0.31, 0.498, 0.12),
        "random": (0.029, 1331.0, 0.47),
        "learned": (0.029, 0.6, 0.47),
    }.get(name, (0.2, 1.0, 0.2 + 0.01 * len(name)))
    fields = {
        "name": name,
        "family": FAMILIES.get(name, "absolute"),
        "dim": 1 if name == "alibi" else 64,
        "parameters": 3008 if name in ("mds", "smacof", "learned", "low_rank") else 0,
        "stress": raw,
        "scaled_stress": scaled,
        "kruskal_stress1": float(np.sqrt(scaled)),
        "split_half_scaled_stress": corrected,
        "violation_rate": 0.5 if name in ("random", "learned") else 0.224,
        "pearson_r": 0.02 if name in ("random", "learned") else 1.0 - scaled,
        "min_separation": 0.4,
        "distances": _encoding_distances(name),
        "fitted": name in ("mds", "smacof"),
        "note": "slope 1/64 on a line" if name == "alibi" else "rows of the position matrix",
    }
    return EncodingScore(**(fields | overrides))


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
    if name in ("mds", "smacof"):
        return _plug_in() * (1.0 + 0.1 * (name == "smacof") * t / N)
    if name not in ("sinusoidal", "rope"):
        rng = np.random.default_rng(list(name.encode()))
        return np.sqrt(_squared(rng.normal(size=(N, 64))))
    phases = t[:, None] / 10_000 ** (np.arange(32) / 32)
    return np.sqrt(_squared(np.concatenate([np.cos(phases), np.sin(phases)], axis=1)))


def _plug_in() -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=(N, 300)) * np.linspace(0.022, 0.05, N)[:, None]
    return np.sqrt(_squared(np.concatenate([_truth(), noise], axis=1)))


def _split_half() -> np.ndarray:
    noise = np.random.default_rng(2).normal(size=(N, N)) * 0.004
    return _squared(_truth()) + (noise + noise.T) * (1 - np.eye(N))


def _eigenvalues(squared: np.ndarray, shown: np.ndarray) -> np.ndarray:
    kept = squared[np.ix_(shown, shown)]
    centre = np.eye(len(kept)) - 1 / len(kept)
    values = np.linalg.eigvalsh(-centre @ kept @ centre / 2)[::-1]
    return np.concatenate([values, np.zeros(N - len(values))])


def _defaults() -> dict[str, Any]:
    present = np.ones(N, bool)
    present[[0, 46, 47]] = False
    rare = np.zeros(N, bool)
    rare[40:46] = True
    judged = present & (np.arange(N) < 44)
    plug_in, split_half = _plug_in(), _split_half()
    plug_in_values = _eigenvalues(plug_in**2, present)
    split_half_values = _eigenvalues(split_half, judged)
    dimensions = np.array([1, 2, 4, 8, 16, 32, 64])
    centred = _truth() - _truth().mean(0)
    return {
        "source": "stdlib",
        "tokenizer": "words",
        "documents": 12_480,
        "groups": 12_480,
        "tokens": 431_207,
        "length": N,
        "vocab_size": 20_000,
        "dim": 64,
        "seed": 0,
        "splits": 8,
        "bootstrap": 200,
        "empty_policy": "drop",
        "documents_per_position": np.linspace(12_480, 20, N).astype(int) * present,
        "present": present,
        "judged": judged,
        "rare": rare,
        "top_tokens": [[("the", 210), ("a", 190), (",", 12)], [("of", 90), ("and", 80)]],
        "top_token_positions": [1, 24],
        "hellinger": plug_in * (present[:, None] & present),
        "split_half_squared": np.where(judged[:, None] & judged, split_half, np.nan),
        "plug_in_eigenvalues": plug_in_values,
        "split_half_eigenvalues": split_half_values,
        "rank_eigenvalues": split_half_values,
        "null_eigenvalue": 0.04,
        "plug_in_rank": 44,
        "plug_in_trace": float(plug_in_values.sum()),
        "plug_in_violation_rate": 0.41,
        "split_half_trace": float(split_half_values.sum()),
        "effective_rank": 2,
        "split_half_violation_rate": 0.224,
        "intervals": {
            "noise_share": Interval(0.97, 0.95, 0.98),
            "split_half_violation_rate": Interval(0.224, 0.20, 0.25),
        },
        "coordinates": np.where(judged[:, None], centred, np.nan),
        "encodings": [score(name) for name in FAMILIES],
        "alibi_slopes": [(0.5, 90.0), (1 / 64, 0.498), (0.02, 0.31)],
        "stress_by_dimension": {
            "mds": 0.9 / dimensions**2 * (dimensions < 64),
            "sinusoidal": 4.2 * dimensions,
            "random": 20.0 * dimensions,
        },
        "scaled_stress_by_dimension": {
            "mds": 0.3 / dimensions**2 * (dimensions < 64),
            "sinusoidal": 0.4 / np.sqrt(dimensions),
            "random": 0.5 / dimensions,
        },
        "dimensions": dimensions,
        "timings": {"read and count": 1.4, "split halves": 2.1, "permutation null": 6.3},
    }

"""The stored report on the standard library, with other fields, and text that attacks a page."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.options import Choice
from jaxpe._core.results import load_result
from jaxpe.analysis.corpus import CorpusResult
from jaxpe.analysis.corpus.result import (
    LetterInformation,
    StandingOut,
    TokenCount,
    TokenShift,
    TopTokens,
)

STORED = load_result(CorpusResult, Path(__file__).parents[2] / "docs" / "example" / "report.json")
N = STORED.facts.length
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


def analysis(**fields: Any) -> CorpusResult:
    """The stored report with other fields; of a nested one, some of its own as a dict."""
    nested = {
        name: getattr(STORED, name)._replace(**value)
        for name, value in fields.items()
        if isinstance(value, dict) and name != "intervals"
    }
    return STORED._replace(**fields | nested)


def letters(names: list[str], alphabet: str = "") -> LetterInformation:
    """Four letters at the first 12 positions, the first at 70 %, most information at position 7."""
    present = np.arange(N) < 12
    bits = np.where(present, 0.4 + (np.arange(N) == 7), math.nan)
    shares = np.tile([0.7, 0.1, 0.1, 0.1], (N, 1)) * present[:, None]
    return LetterInformation(
        names, 4, shares, np.stack([bits, bits - 0.1, bits + 0.2]), 90 * present, alphabet,
        shares.max(axis=0), np.stack([bits, bits - 0.1, bits + 0.2]) / 2, np.array([6, 7]),
    )  # fmt: skip


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
        letters=letters(HOSTILE_TOKENS[:4]),  # long words draw slowly
        choices=tuple(Choice("column of text", *[token[:40]] * 3) for token in HOSTILE_TOKENS),
    )

"""Geometry of a corpus: distances, noise, rank, and the fit of each encoding."""

from jaxpe._core.signatures import show_as_written as _show_as_written
from jaxpe.analysis.corpus.job import analyse, analyse_counts, analyse_tokens
from jaxpe.analysis.corpus.options import CorpusOptions
from jaxpe.analysis.corpus.result import (
    CorpusAnalysis,
    EmptyPositions,
    EncodingScore,
    HeldOutScores,
    Interval,
    PlugIn,
    SlopeStress,
    SplitHalf,
    StressByDimension,
    TokenCount,
    TopTokens,
)

__all__ = [
    "CorpusAnalysis", "CorpusOptions", "EmptyPositions", "EncodingScore", "HeldOutScores",
    "Interval", "PlugIn", "SlopeStress", "SplitHalf", "StressByDimension", "TokenCount",
    "TopTokens", "analyse", "analyse_counts", "analyse_tokens",
]  # fmt: skip

_show_as_written(__all__, globals())

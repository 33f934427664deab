"""What a corpus says about position: distances, noise, rank, and how each encoding fits."""

from jaxpe.analysis.corpus.job import (
    analyse,
    analyse_counts,
    check_options,
)
from jaxpe.analysis.corpus.result import (
    Analysis,
    EncodingScore,
    Interval,
)

__all__ = ["Analysis", "EncodingScore", "Interval", "analyse", "analyse_counts", "check_options"]

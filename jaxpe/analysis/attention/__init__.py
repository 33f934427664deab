"""Decomposition of a model's attention logits into position and content, and head ablation.

    result = analyse(AttentionOptions(source="stdlib", examples=32))
    rich.print(jaxpe.report.spectral_table(result))

It imports Flax and Optax, and is itself imported on first access.
"""

from jaxpe.analysis.attention.job import AttentionOptions, analyse
from jaxpe.analysis.attention.result import (
    AttentionAnalysis,
    AttentionFacts,
    HeadDrops,
    MeanLogits,
    Pairs,
    PartShares,
    SingleDocuments,
    Variance,
)
from jaxpe.analysis.subject import Subject, SubjectOptions, read_subject

__all__ = [
    "AttentionAnalysis", "AttentionFacts", "AttentionOptions", "HeadDrops", "MeanLogits", "Pairs",
    "PartShares", "SingleDocuments", "Subject", "SubjectOptions", "Variance", "analyse",
    "read_subject",
]  # fmt: skip

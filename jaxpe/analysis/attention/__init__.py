"""Attention logits of a model taken apart into position and content, and heads ablated.

    result = analyse(AttentionOptions(source="stdlib", examples=32))
    rich.print(jaxpe.report.spectral_table(result))

It brings Flax and Optax, and is imported when it is asked for.
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

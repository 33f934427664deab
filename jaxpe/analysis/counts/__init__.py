"""Counts of corpora larger than memory: a map over shards, and a sum."""

from jaxpe.analysis.counts.job import count
from jaxpe.analysis.counts.merge import merge, read_counts
from jaxpe.analysis.counts.options import CountOptions

__all__ = [
    "CountOptions", "count", "merge", "read_counts",
]  # fmt: skip

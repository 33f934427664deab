"""Counts of corpora larger than memory: a map over shards, and a sum."""

from jaxpe.analysis.counts.cells import Cells, count_documents, sum_cells
from jaxpe.analysis.counts.job import count, tokenizer_and_settings
from jaxpe.analysis.counts.merge import merge, read_counts
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.analysis.counts.settings import CountSettings
from jaxpe.analysis.counts.stored import (
    CountedShard,
    CountHeader,
    StoredCounts,
    is_counted,
    write_counts,
)

__all__ = [
    "Cells", "CountHeader", "CountOptions", "CountSettings", "CountedShard", "StoredCounts",
    "count", "count_documents", "is_counted", "merge", "read_counts", "sum_cells",
    "tokenizer_and_settings", "write_counts",
]  # fmt: skip

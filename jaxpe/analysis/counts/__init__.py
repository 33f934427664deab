"""Counts of corpora larger than memory: streamed, saved, resumed, merged; one device or many."""

from jaxpe._core.processes import one_line_process_errors, start_processes
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.by_group import count_by
from jaxpe.analysis.counts.count_files import is_counted, read_counts, write_counts
from jaxpe.analysis.counts.document_counter import DocumentCounter
from jaxpe.analysis.counts.job import count, merge, tokenizer_from_options
from jaxpe.analysis.counts.memory import check_memory, needed_bytes
from jaxpe.analysis.counts.merge import merge_counts
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.analysis.counts.settings import CountSettings, count_settings
from jaxpe.analysis.counts.shards import count_shards
from jaxpe.analysis.counts.state import count_mesh

__all__ = [
    "CountOptions", "CountSettings", "CountedShard", "DocumentCounter", "StoredCounts",
    "check_memory", "count", "count_by", "count_mesh", "count_settings", "count_shards",
    "is_counted", "merge", "merge_counts", "needed_bytes", "one_line_process_errors", "read_counts",
    "start_processes", "tokenizer_from_options", "write_counts",
]  # fmt: skip

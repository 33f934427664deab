"""Counts of corpora larger than memory: streamed, saved, resumed, merged; one device or many."""

from jaxpe.analysis.counts.base import CountedShard as CountedShard
from jaxpe.analysis.counts.base import StoredCounts as StoredCounts
from jaxpe.analysis.counts.memory import check_memory as check_memory
from jaxpe.analysis.counts.memory import needed_bytes as needed_bytes
from jaxpe.analysis.counts.merging import merge_counts as merge_counts
from jaxpe.analysis.counts.processes import ending_in_one_line as ending_in_one_line
from jaxpe.analysis.counts.processes import start_processes as start_processes
from jaxpe.analysis.counts.run import count_shards as count_shards
from jaxpe.analysis.counts.settings import CountSettings as CountSettings
from jaxpe.analysis.counts.settings import count_settings as count_settings
from jaxpe.analysis.counts.state import count_mesh as count_mesh
from jaxpe.analysis.counts.stored import is_counted as is_counted
from jaxpe.analysis.counts.stored import read_counts as read_counts
from jaxpe.analysis.counts.stored import write_counts as write_counts

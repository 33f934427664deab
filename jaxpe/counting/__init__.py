"""Counts of corpora larger than memory: streamed, saved, resumed, merged; one device or many."""

from jaxpe.counting.base import CountedShard as CountedShard
from jaxpe.counting.base import StoredCounts as StoredCounts
from jaxpe.counting.memory import check_memory as check_memory
from jaxpe.counting.memory import needed_bytes as needed_bytes
from jaxpe.counting.merging import merge_counts as merge_counts
from jaxpe.counting.processes import ending_in_one_line as ending_in_one_line
from jaxpe.counting.processes import start_processes as start_processes
from jaxpe.counting.run import count_shards as count_shards
from jaxpe.counting.settings import CountSettings as CountSettings
from jaxpe.counting.settings import count_settings as count_settings
from jaxpe.counting.state import count_mesh as count_mesh
from jaxpe.counting.stored import is_counted as is_counted
from jaxpe.counting.stored import read_counts as read_counts
from jaxpe.counting.stored import write_counts as write_counts

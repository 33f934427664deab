"""What benchmarks share: the machine, memory that does not come and go, the file of results."""

import os
import sys

from experiments.provenance import write_result as write_result

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# glibc gives big arrays back to the system when they are freed, and the page faults of the next
# ones cost ten times a multiplication, in some rounds and not in others. It is told to keep them.
KEEP_FREED = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


def keep_freed_memory() -> None:
    """Start the process again with these settings, which are read when it starts."""
    if not KEEP_FREED.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, os.environ | KEEP_FREED)


def peak_bytes() -> int:
    """The most memory that this program has held, since it was started: Linux alone tells."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

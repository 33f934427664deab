"""Adapters to data-processing engines: each makes counts that `jaxpe merge` adds."""

from jaxpe.analysis.engines.beam import count_positions
from jaxpe.analysis.engines.datatrove import CountPositions

__all__ = [
    "CountPositions", "count_positions",
]  # fmt: skip

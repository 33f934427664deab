"""Conformance: golden vectors, and checks of anybody's rotary embedding, attention and batches.

NumPy alone: arrays go in as NumPy and come out as anything with DLPack or `__array__`.
"""

from jaxpe.conformance.batch_layout import BatchOptions
from jaxpe.conformance.batches import batch_offsets, check_batch, check_batches
from jaxpe.conformance.monitor import PositionMonitor
from jaxpe.conformance.offsets import (
    OffsetHistogram,
    OffsetShare,
    offset_counts,
    offset_histogram,
)
from jaxpe.conformance.reference import alibi_bias, t5_bias
from jaxpe.conformance.result import Check, Conformance, Fault

__all__ = [
    "BatchOptions", "Check", "Conformance", "Fault", "OffsetHistogram", "OffsetShare",
    "PositionMonitor", "alibi_bias", "batch_offsets", "check_batch", "check_batches",
    "offset_counts", "offset_histogram", "t5_bias",
]  # fmt: skip

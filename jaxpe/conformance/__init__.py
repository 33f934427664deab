"""Conformance: golden vectors, and checks of anybody's rotary embedding, attention and batches.

NumPy alone: arrays go in as NumPy and come out as anything with DLPack or `__array__`.
"""

from jaxpe.conformance.attention import ATTENTION_CHECKS, check_attention
from jaxpe.conformance.batch_layout import BatchOptions
from jaxpe.conformance.batches import batch_offsets, check_batch, check_batches
from jaxpe.conformance.golden import NotJudgedError, golden_vectors, write_golden
from jaxpe.conformance.offsets import (
    OffsetHistogram,
    OffsetShare,
    offset_counts,
    offset_histogram,
)
from jaxpe.conformance.reference import alibi_bias, t5_bias
from jaxpe.conformance.result import Check, Conformance, Fault
from jaxpe.conformance.rotary import ROTARY_CHECKS, check_rotary

__all__ = [
    "ATTENTION_CHECKS", "ROTARY_CHECKS", "BatchOptions", "Check", "Conformance", "Fault",
    "NotJudgedError", "OffsetHistogram", "OffsetShare", "alibi_bias", "batch_offsets",
    "check_attention", "check_batch", "check_batches", "check_rotary",
    "golden_vectors", "offset_counts", "offset_histogram", "t5_bias", "write_golden",
]  # fmt: skip

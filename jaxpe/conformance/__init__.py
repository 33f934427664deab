"""Conformance: golden vectors, and checks of anybody's rotary embedding, attention and batches.

NumPy alone: arrays go in as NumPy and come out as anything with DLPack or `__array__`.
"""

from jaxpe.conformance.attention import check_attention
from jaxpe.conformance.batch_layout import BatchOptions
from jaxpe.conformance.batches import batch_offsets, check_batch, check_batches
from jaxpe.conformance.golden import NotJudgedError, golden_vectors, write_golden
from jaxpe.conformance.reference import alibi_bias, t5_bias
from jaxpe.conformance.rotary import check_rotary

__all__ = [
    "BatchOptions", "NotJudgedError", "alibi_bias", "batch_offsets", "check_attention",
    "check_batch", "check_batches", "check_rotary", "golden_vectors", "t5_bias", "write_golden",
]  # fmt: skip

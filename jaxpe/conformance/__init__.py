"""Conformance: golden vectors, and checks of anybody's rotary embedding, attention and batches.

NumPy alone: arrays go in as NumPy and come out as anything with DLPack or `__array__`.
"""

from jaxpe.conformance.golden import NotJudgedError, golden_vectors, write_golden
from jaxpe.conformance.monitor import PositionMonitor
from jaxpe.conformance.reference import alibi_bias, t5_bias
from jaxpe.conformance.result import Check, Conformance, Fault

__all__ = [
    "Check", "Conformance", "Fault", "NotJudgedError", "PositionMonitor", "alibi_bias",
    "golden_vectors", "t5_bias", "write_golden",
]  # fmt: skip

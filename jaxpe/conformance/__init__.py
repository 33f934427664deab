"""Conformance: golden vectors, and checks of anybody's rotary embedding, attention and batches.

NumPy alone: arrays go in as NumPy and come out as anything with DLPack or `__array__`.
"""

from jaxpe.conformance.monitor import PositionMonitor
from jaxpe.conformance.reference import alibi_bias, t5_bias
from jaxpe.conformance.result import Check, Conformance, Fault

__all__ = [
    "Check", "Conformance", "Fault", "PositionMonitor", "alibi_bias", "t5_bias",
]  # fmt: skip

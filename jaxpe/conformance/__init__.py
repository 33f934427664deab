"""Conformance: golden vectors, and checks of anybody's rotary embedding, attention and batches.

NumPy alone: arrays go in as NumPy and come out as anything with DLPack or `__array__`.
"""

from jaxpe.conformance.attention import ATTENTION_CHECKS, check_attention
from jaxpe.conformance.monitor import PositionMonitor
from jaxpe.conformance.reference import alibi_bias, t5_bias
from jaxpe.conformance.result import Check, Conformance, Fault
from jaxpe.conformance.rotary import ROTARY_CHECKS, check_rotary

__all__ = [
    "ATTENTION_CHECKS", "ROTARY_CHECKS", "Check", "Conformance", "Fault", "PositionMonitor",
    "alibi_bias", "check_attention", "check_rotary", "t5_bias",
]  # fmt: skip

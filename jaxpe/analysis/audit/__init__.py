"""Every published statement evaluated on one model and one corpus.

    result = audit(AuditOptions(source="stdlib", examples=64, length=32))
    jaxpe.report.show(jaxpe.report.page(result))

It imports Flax and Optax, and is itself imported on first access.
"""

from jaxpe.analysis.audit.evidence import audit_inputs
from jaxpe.analysis.audit.functions import Geometry, PositionLoss, geometry_of, position_loss
from jaxpe.analysis.audit.job import AuditOptions, audit
from jaxpe.analysis.audit.kernel import kernel_and_forcing, kernel_pairs, train_both
from jaxpe.analysis.audit.result import (
    AuditedStatement,
    AuditFacts,
    AuditResult,
    KernelPairs,
    Sides,
    Training,
)
from jaxpe.analysis.subject import Subject, SubjectOptions, read_subject

__all__ = [
    "AuditFacts", "AuditOptions", "AuditResult", "AuditedStatement", "Geometry", "KernelPairs",
    "PositionLoss", "Sides", "Subject", "SubjectOptions", "Training", "audit", "audit_inputs",
    "geometry_of", "kernel_and_forcing", "kernel_pairs", "position_loss", "read_subject",
    "train_both",
]  # fmt: skip

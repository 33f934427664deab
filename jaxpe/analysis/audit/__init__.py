"""Every published statement evaluated on one model and one corpus.

    result = audit(AuditOptions(source="stdlib", examples=64, length=32))
    jaxpe.report.show(jaxpe.report.page(result))

It imports Flax and Optax, and is itself imported on first access.
"""

from jaxpe.analysis.audit.functions import geometry_of, position_loss
from jaxpe.analysis.audit.job import AuditOptions, audit
from jaxpe.analysis.audit.kernel import kernel_and_forcing
from jaxpe.analysis.audit.result import AuditResult
from jaxpe.analysis.subject import SubjectOptions, read_subject

__all__ = [
    "AuditOptions", "AuditResult", "SubjectOptions", "audit", "geometry_of",
    "kernel_and_forcing", "position_loss", "read_subject",
]  # fmt: skip

"""Every published statement evaluated on one model and one corpus: what `jaxpe audit` runs.

    subject = read_subject("stdlib", examples=64, length=32)      # or subject_of(model, ...)
    report = audit_subject(subject, steps=60)
    rich.print(jaxpe.report.audit_table(report))


Imported by name, since it brings Flax and Optax.
"""

from jaxpe.analysis.audit.job import (
    audit_subject,
)
from jaxpe.analysis.audit.kernel import (
    kernel_and_forcing,
    kernel_pairs,
    train_both,
)
from jaxpe.analysis.audit.statements import (
    statements_on_corpus,
    statements_on_model,
)
from jaxpe.analysis.ranges import (
    check_audit,
)
from jaxpe.analysis.reading import (
    read_subject,
)
from jaxpe.analysis.subject import (
    Geometry,
    Subject,
    geometry_of,
    subject_of,
)

__all__ = [
    "Geometry",
    "Subject",
    "audit_subject",
    "check_audit",
    "geometry_of",
    "kernel_and_forcing",
    "kernel_pairs",
    "read_subject",
    "statements_on_corpus",
    "statements_on_model",
    "subject_of",
    "train_both",
]

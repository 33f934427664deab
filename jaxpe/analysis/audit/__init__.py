"""Every published statement evaluated on one model and one corpus: what `jaxpe audit` runs.

    subject = read_subject("stdlib", examples=64, length=32)      # or subject_of(model, ...)
    report = audit_subject(subject, steps=60)
    rich.print(jaxpe.report.audit_table(report))


Imported by name, since it brings Flax and Optax.
"""

from jaxpe.analysis.audit.job import audit_subject as audit_subject
from jaxpe.analysis.audit.kernel import kernel_and_forcing as kernel_and_forcing
from jaxpe.analysis.audit.kernel import kernel_pairs as kernel_pairs
from jaxpe.analysis.audit.kernel import train_both as train_both
from jaxpe.analysis.audit.statements import statements_on_corpus as statements_on_corpus
from jaxpe.analysis.audit.statements import statements_on_model as statements_on_model
from jaxpe.analysis.ranges import check_audit as check_audit
from jaxpe.analysis.reading import read_subject as read_subject
from jaxpe.analysis.subject import Geometry as Geometry
from jaxpe.analysis.subject import Subject as Subject
from jaxpe.analysis.subject import geometry_of as geometry_of
from jaxpe.analysis.subject import subject_of as subject_of

"""One model and one corpus, looked at: what `jaxpe audit` and `jaxpe spectral` run.

    subject = read_subject("stdlib", examples=64, length=32)      # or subject_of(model, ...)
    report = audit_subject(subject, steps=60)
    rich.print(jaxpe.report.audit_table(report))

    subject = read_spectral_subject("stdlib", examples=64, length=32)  # or spectral_subject(...)
    rich.print(jaxpe.report.spectral_table(spectra_of(subject)))

Imported by name, since it brings Flax and Optax.
"""

from jaxpe.auditing.audit import audit_subject as audit_subject
from jaxpe.auditing.kernel import kernel_and_forcing as kernel_and_forcing
from jaxpe.auditing.kernel import kernel_pairs as kernel_pairs
from jaxpe.auditing.kernel import train_both as train_both
from jaxpe.auditing.options import check_audit as check_audit
from jaxpe.auditing.options import check_spectral as check_spectral
from jaxpe.auditing.reading import read_spectral_subject as read_spectral_subject
from jaxpe.auditing.reading import read_subject as read_subject
from jaxpe.auditing.spectra import spectra_of as spectra_of
from jaxpe.auditing.spectral_documents import SpectralSubject as SpectralSubject
from jaxpe.auditing.spectral_documents import spectral_subject as spectral_subject
from jaxpe.auditing.statements import statements_on_corpus as statements_on_corpus
from jaxpe.auditing.statements import statements_on_model as statements_on_model
from jaxpe.auditing.subject import Geometry as Geometry
from jaxpe.auditing.subject import Subject as Subject
from jaxpe.auditing.subject import geometry_of as geometry_of
from jaxpe.auditing.subject import subject_of as subject_of

"""The report: what a corpus says about position, as numbers, words, figures and a page.

Plotting, tables and templates come with the extra `report` and are imported only when used.
"""

from jaxpe.report.attention.page import (
    spectral_json,
    spectral_table,
    write_spectral,
)
from jaxpe.report.audit import (
    audit_json,
    audit_table,
    write_audit,
)
from jaxpe.report.catalogue import (
    catalogue_json,
    catalogue_markdown,
    catalogue_table,
)
from jaxpe.report.corpus.findings import (
    findings,
)
from jaxpe.report.corpus.page import (
    write_report,
)
from jaxpe.report.encodings import (
    property_json,
    property_markdown,
    property_table,
)
from jaxpe.report.extrapolation.page import (
    extrapolation_json,
    extrapolation_table,
    write_extrapolation,
)
from jaxpe.report.tables import (
    counts_table,
    encoding_table,
    summary_table,
)
from jaxpe.report.training import (
    pace,
    training_table,
    write_training_figures,
)

__all__ = [
    "audit_json",
    "audit_table",
    "catalogue_json",
    "catalogue_markdown",
    "catalogue_table",
    "counts_table",
    "encoding_table",
    "extrapolation_json",
    "extrapolation_table",
    "findings",
    "pace",
    "property_json",
    "property_markdown",
    "property_table",
    "spectral_json",
    "spectral_table",
    "summary_table",
    "training_table",
    "write_audit",
    "write_extrapolation",
    "write_report",
    "write_spectral",
    "write_training_figures",
]

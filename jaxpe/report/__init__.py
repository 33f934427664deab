"""The view: results as pages, tables, figures and text. It computes nothing.

Plotting, tables and templates need the extra `report`. They are imported on first use, as are the
views of jobs.
"""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names
from jaxpe.report.tables import counts_table
from jaxpe.report.training_figures import pace, training_table
from jaxpe.report.write import write

if TYPE_CHECKING:
    from jaxpe.report.attention.page import spectral_table
    from jaxpe.report.attention.text import spectral_summary
    from jaxpe.report.audit.page import audit_summary, audit_table
    from jaxpe.report.comparison import comparison_summary, comparison_table
    from jaxpe.report.corpora import corpora_summary, corpora_table
    from jaxpe.report.corpus.tables import encoding_table, summary_table
    from jaxpe.report.corpus.text import findings, summary
    from jaxpe.report.encodings import property_markdown, property_table
    from jaxpe.report.extrapolation.page import extrapolation_table
    from jaxpe.report.inspect.page import inspect_markdown, inspect_table
    from jaxpe.report.inspect.text import inspect_summary
    from jaxpe.report.rope.text import rope_summary, rope_table
    from jaxpe.report.training_run import trained_summary

__all__ = [
    "audit_summary", "audit_table", "comparison_summary", "comparison_table",
    "corpora_summary", "corpora_table", "counts_table", "encoding_table", "extrapolation_table",
    "findings",
    "inspect_markdown", "inspect_summary", "inspect_table", "pace", "property_markdown",
    "property_table", "rope_summary", "rope_table",
    "spectral_summary", "spectral_table", "summary", "summary_table", "trained_summary",
    "training_table", "write",
]  # fmt: skip

_MODULES = {
    "attention.page": ("spectral_table",),
    "attention.text": ("spectral_summary",),
    "audit.page": ("audit_summary", "audit_table"),
    "comparison": ("comparison_summary", "comparison_table"),
    "corpora": ("corpora_summary", "corpora_table"),
    "corpus.tables": ("encoding_table", "summary_table"),
    "corpus.text": ("findings", "summary"),
    "encodings": ("property_markdown", "property_table"),
    "extrapolation.page": ("extrapolation_table",),
    "inspect.page": ("inspect_markdown", "inspect_table"),
    "inspect.text": ("inspect_summary",),
    "rope.text": ("rope_summary", "rope_table"),
    "training_run": ("trained_summary",),
}
_WITHIN = {name: module for module, names in _MODULES.items() for name in names}
__getattr__, __dir__ = lazy_names(__name__, __all__, within=_WITHIN)

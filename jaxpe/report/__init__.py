"""The view: results as pages, tables, figures and words. It computes nothing.

Plotting, tables and templates come with the extra `report` and are imported only when used, and
so are the views of jobs.
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

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    within={
        "audit_summary": "audit.page",
        "audit_table": "audit.page",
        "comparison_summary": "comparison",
        "comparison_table": "comparison",
        "corpora_summary": "corpora",
        "corpora_table": "corpora",
        "encoding_table": "corpus.tables",
        "extrapolation_table": "extrapolation.page",
        "findings": "corpus.text",
        "inspect_markdown": "inspect.page",
        "inspect_summary": "inspect.text",
        "inspect_table": "inspect.page",
        "property_markdown": "encodings",
        "property_table": "encodings",
        "rope_summary": "rope.text",
        "rope_table": "rope.text",
        "spectral_summary": "attention.text",
        "spectral_table": "attention.page",
        "summary": "corpus.text",
        "summary_table": "corpus.tables",
        "trained_summary": "training_run",
    },
)

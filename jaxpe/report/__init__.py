"""The view: results as pages, tables, figures and text. It computes nothing.

Plotting, tables and templates need the extra `report`. They are imported on first use, as are the
views of jobs.
"""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names
from jaxpe.report.tables import counts_table
from jaxpe.report.training_figures import pace, training_table
from jaxpe.report.write import advice, figures, write

if TYPE_CHECKING:
    from jaxpe.report.attention.page import spectral_table as spectral_table
    from jaxpe.report.attention.text import spectral_summary as spectral_summary
    from jaxpe.report.audit.page import audit_summary as audit_summary
    from jaxpe.report.audit.page import audit_table as audit_table
    from jaxpe.report.bench.page import bench_summary as bench_summary
    from jaxpe.report.bench.page import bench_tables as bench_tables
    from jaxpe.report.comparison import (
        comparison_summary as comparison_summary,
    )
    from jaxpe.report.comparison import (
        comparison_table as comparison_table,
    )
    from jaxpe.report.corpora import (
        corpora_summary as corpora_summary,
    )
    from jaxpe.report.corpora import (
        corpora_table as corpora_table,
    )
    from jaxpe.report.corpus.tables import (
        encoding_table as encoding_table,
    )
    from jaxpe.report.corpus.tables import (
        summary_table as summary_table,
    )
    from jaxpe.report.corpus.text import findings as findings
    from jaxpe.report.corpus.text import summary as summary
    from jaxpe.report.encodings import property_table as property_table
    from jaxpe.report.encodings import property_text as property_text
    from jaxpe.report.extrapolation.page import extrapolation_table as extrapolation_table
    from jaxpe.report.inspect.page import (
        inspect_markdown as inspect_markdown,
    )
    from jaxpe.report.inspect.page import (
        inspect_table as inspect_table,
    )
    from jaxpe.report.inspect.summary import inspect_summary as inspect_summary
    from jaxpe.report.inspections import inspections_summary as inspections_summary
    from jaxpe.report.inspections import inspections_table as inspections_table
    from jaxpe.report.rope.text import rope_summary as rope_summary
    from jaxpe.report.rope.text import rope_table as rope_table
    from jaxpe.report.training_run import trained_summary as trained_summary

_MODULES = {
    "attention.page": ("spectral_table",),
    "attention.text": ("spectral_summary",),
    "audit.page": ("audit_summary", "audit_table"),
    "bench.page": ("bench_summary", "bench_tables"),
    "comparison": ("comparison_summary", "comparison_table"),
    "corpora": ("corpora_summary", "corpora_table"),
    "corpus.tables": ("encoding_table", "summary_table"),
    "corpus.text": ("findings", "summary"),
    "encodings": ("property_table", "property_text"),
    "extrapolation.page": ("extrapolation_table",),
    "inspect.page": ("inspect_markdown", "inspect_table"),
    "inspect.summary": ("inspect_summary",),
    "inspections": ("inspections_summary", "inspections_table"),
    "rope.text": ("rope_summary", "rope_table"),
    "training_run": ("trained_summary",),
}
_WITHIN = {name: module for module, names in _MODULES.items() for name in names}
__all__ = ["advice", "counts_table", "figures", "pace", "training_table", "write", *_WITHIN]
__getattr__, __dir__ = lazy_names(__name__, __all__, within=_WITHIN)

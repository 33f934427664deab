"""Geometry of a corpus: distances, noise, rank, and the fit of each encoding.

Names are imported on first access, so figures of a result need no JAX.
"""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
    from jaxpe.analysis.corpus.job import analyse, analyse_counts, analyse_tokens
    from jaxpe.analysis.corpus.options import CorpusOptions
    from jaxpe.analysis.corpus.result import CorpusResult

__all__ = [
    "CorpusOptions", "CorpusResult", "analyse", "analyse_counts", "analyse_tokens",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, __all__, within=("options", "result", "job"))

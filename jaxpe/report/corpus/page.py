"""The page on a corpus: one self-contained `report.html`, nothing fetched, no script."""

import collections
import importlib.metadata
from pathlib import Path

import jaxpe
from jaxpe._core.files import remove_files
from jaxpe.analysis.corpus.result import CorpusAnalysis
from jaxpe.encodings.families.vector_files import vectors_file
from jaxpe.report.corpus.figures import render_figures
from jaxpe.report.corpus.text import (
    by_family,
    findings,
    headlines,
    held_out_stress,
    summary,
    with_interval,
)
from jaxpe.report.files import write_files
from jaxpe.report.page import template, term_links
from jaxpe.report.style import Rendered
from jaxpe.report.text import visible, without_text

TOKEN_LIMIT = 40
ENCODING = "encoding.npz"
# Where the page defines a term.
_TERMS = {
    "scaled stress": "stress",
    "plug-in": "plug-in",
    "composition": "composition",
    "held-out": "held-out",
    "mds": "mds",
    "smacof": "mds",
    "significant": "dimensions",
    "nearness": "nearness",
    "nearer": "nearness",
}
FAMILIES = collections.defaultdict(
    str,
    fitted="points fitted to the plug-in distances of this corpus",
    absolute="vectors for the token embeddings",
    orthogonal="vectors for the token embeddings, from polynomials, cosines or wavelets",
    rotary="rotations of queries and keys",
    bias="numbers added to the attention logits",
    model="position vectors of a pretrained model",
    relative="vectors of offsets, in the attention logits and outputs",
)


def render_page(analysis: CorpusAnalysis, figures: list[Rendered]) -> str:
    """The HTML of the report. Text from the corpus is escaped and its hidden characters shown."""
    return template("report.html.j2").render(
        analysis=analysis,
        families=by_family(analysis.encodings),
        family_words=FAMILIES,
        figures=figures,
        headlines=headlines(analysis),
        summary=summary(analysis),
        findings=findings(analysis),
        held_out={name: with_interval(of) for name, of in held_out_stress(analysis).items()},
        settings=_settings(analysis),
        link=term_links(_TERMS),
        without_text=without_text(analysis.null_texts),
        token_limit=TOKEN_LIMIT,
    )


def _own_encoding(analysis: CorpusAnalysis) -> dict[str, bytes]:
    """The vectors that were fitted to all documents, where there is something to fit."""
    if analysis.held_out is None or analysis.held_out.dim == 0:
        return {}
    return {ENCODING: vectors_file(analysis.held_out.vectors)}


def _settings(analysis: CorpusAnalysis) -> dict[str, str]:
    """Settings that a reader needs to compute the same report again."""
    return {
        "source": visible(analysis.source, limit=200),
        "tokenizer": visible(analysis.tokenizer, limit=200),
        "documents": f"{analysis.documents:,}",
        "tokens": f"{analysis.tokens:,}",
        "length": f"{analysis.length:,}",
        "vocabulary": f"{analysis.vocab_size:,}",
        "dimension": f"{analysis.dim:,}",
        "seed": str(analysis.seed),
        "splits": str(analysis.splits),
        "cohort": "yes" if analysis.cohort else "no",
        "empty positions": visible(analysis.empty_positions.policy),
        "jaxpe": jaxpe.__version__,
        "jax": importlib.metadata.version("jax"),
        "numpy": importlib.metadata.version("numpy"),
    }


def write_corpus(analysis: CorpusAnalysis, folder: Path, *, png: bool = False) -> Path:
    """Write report.html, report.json and .npz, encoding.npz and the figures; return the page."""
    figures = render_figures(analysis)
    page = render_page(analysis, figures)
    own = _own_encoding(analysis)
    path = write_files(folder, "report", analysis, page, figures, png=png, further=own)
    if not own:
        remove_files(folder, [ENCODING])
    return path

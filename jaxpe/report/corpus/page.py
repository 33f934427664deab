"""The page on a corpus: one self-contained `report.html`, without scripts or external files."""

import collections
from importlib.metadata import version
from pathlib import Path

import jaxpe
from jaxpe._core.files import remove_files
from jaxpe.analysis.corpus.result import CorpusAnalysis
from jaxpe.encodings.families.vector_files import vectors_file
from jaxpe.report.corpus.advice import advice
from jaxpe.report.corpus.figures import render_figures
from jaxpe.report.corpus.text import (
    families,
    findings,
    fitted_scores,
    fixed_stress,
    headlines,
    summary,
    with_interval,
)
from jaxpe.report.files import write_files
from jaxpe.report.page import decision, template, term_links
from jaxpe.report.style import Rendered
from jaxpe.report.text import position_name, without_text

ENCODING = "encoding.npz"
# Anchor of each term's definition.
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
    logarithmic="vectors of the logarithm of the position, for the token embeddings",
    rotary="rotations of queries and keys",
    bias="numbers added to the attention logits",
    model="position vectors of a pretrained model",
    relative="vectors of offsets, in the attention logits and outputs",
)


def render_page(analysis: CorpusAnalysis, figures: list[Rendered]) -> str:
    """The HTML of the report. Corpus text is escaped, with hidden characters shown."""
    return template("report.html.j2").render(
        analysis=analysis,
        families=families(analysis.encodings),
        family_words=FAMILIES,
        figures=figures,
        headlines=headlines(analysis),
        summary=summary(analysis),
        findings=findings(analysis),
        held_out={name: with_interval(x) for name, x in fixed_stress(analysis).items()},
        versions={"jaxpe": jaxpe.__version__, "jax": version("jax"), "numpy": version("numpy")},
        link=term_links(_TERMS),
        position_name=position_name,
        without_text=without_text(analysis.null_texts),
        **decision(advice(analysis), "reading-a-report"),
    )


def write_corpus(analysis: CorpusAnalysis, folder: Path, *, png: bool = False) -> Path:
    """Write report.html, report.json and .npz, encoding.npz and the figures; return the page.

    `encoding.npz` has the vectors fitted to all documents, if a dimension is significant.
    """
    figures, held_out = render_figures(analysis), fitted_scores(analysis)
    encoding = {} if held_out is None else {ENCODING: vectors_file(held_out.vectors)}
    page = render_page(analysis, figures)
    path = write_files(folder, "report", analysis, page, figures, png=png, further=encoding)
    if not encoding:
        remove_files(folder, [ENCODING])
    return path

"""The page on a corpus: one self-contained `report.html`, without scripts or external files."""

import collections
from importlib.metadata import version

import jaxpe
from jaxpe.analysis.corpus.result import CorpusAnalysis
from jaxpe.encodings.families.vector_files import vectors_file
from jaxpe.report.corpus.advice import advice
from jaxpe.report.corpus.figures import FIT_FIGURES, render_figures
from jaxpe.report.corpus.headlines import INTERVAL, headlines, where_table
from jaxpe.report.corpus.letters import letter_table
from jaxpe.report.corpus.predicates import families, fitted_scores, fixed_stress, is_sequences
from jaxpe.report.corpus.tables import encoding_rows
from jaxpe.report.corpus.text import encoding_findings, findings, summary
from jaxpe.report.page import View, term_links
from jaxpe.report.text import position_name, with_interval, without_text

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
    "bits per token": "bits",
    "half-distance": "bits",
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


def view(analysis: CorpusAnalysis) -> View:
    """Page of a report, with `encoding.npz`, the fitted vectors, if a dimension is significant.

    Corpus text is escaped, with hidden characters shown.
    """
    held_out, where = fitted_scores(analysis), where_table(analysis)
    letters = letter_table(analysis)
    shown = {
        "analysis": analysis,
        "families": families(analysis.encodings),
        "family_words": FAMILIES,
        "headlines": headlines(analysis),
        "where": where,
        "summary": summary(analysis),
        "findings": findings(analysis),
        "encoding_findings": encoding_findings(analysis) if is_sequences(analysis) else [],
        "fit_figures": FIT_FIGURES if is_sequences(analysis) else (),
        "apart": is_sequences(analysis),
        "letters": letters,
        "held_out": {name: with_interval(x) for name, x in fixed_stress(analysis).items()},
        "versions": {"jaxpe": jaxpe.__version__, "jax": version("jax"), "numpy": version("numpy")},
        "link": term_links(_TERMS),
        "position_name": position_name,
        "without_text": without_text(analysis.null_texts),
    }
    return View(
        "report", shown, render_figures(analysis),
        [("Headlines", ["", "value", f"{INTERVAL}, details"], headlines(analysis)),
         *(table for table in (where, letters) if table),
         ("Fit of the encodings", *encoding_rows(analysis))],
        advice(analysis), "reading-a-report",
        further={} if held_out is None else {ENCODING: vectors_file(held_out.vectors)},
        absent=[ENCODING] if held_out is None else [],
    )  # fmt: skip

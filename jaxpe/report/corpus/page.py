"""The page on a corpus: one self-contained `report.html`, nothing fetched, no script."""

import collections
import importlib.metadata
import json
import math
import os
from pathlib import Path

import jaxpe
from jaxpe._core.folders import output_folder
from jaxpe.analysis.corpus.result import Analysis
from jaxpe.report.corpus.figures import render_figures
from jaxpe.report.corpus.findings import by_family, findings, headlines
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.style import Rendered
from jaxpe.report.words import visible

TOKEN_LIMIT = 40


FAMILIES = collections.defaultdict(
    str,
    fitted="points fitted to the plug-in distances of this corpus",
    absolute="vectors for the token embeddings",
    orthogonal="vectors for the token embeddings, from polynomials, cosines or wavelets",
    rotary="rotations of queries and keys",
    bias="numbers added to the attention logits",
    relative="vectors of offsets, in the attention logits and outputs",
)


def render_page(analysis: Analysis, figures: list[Rendered]) -> str:
    """The HTML of the report. Text from the corpus is escaped and its hidden characters shown.

    Raises `MissingExtraError` without the extra `report`.
    """
    return template("report.html.j2").render(
        analysis=analysis,
        families=by_family(analysis.encodings),
        family_words=FAMILIES,
        figures=figures,
        headlines=headlines(analysis),
        findings=findings(analysis),
        settings=_settings(analysis),
        token_limit=TOKEN_LIMIT,
        top_tokens=list(zip(analysis.top_token_positions, analysis.top_tokens, strict=True)),
        seconds=math.fsum(analysis.timings.values()),
    )


def _settings(analysis: Analysis) -> dict[str, str]:
    """What a reader needs to compute the same report again."""
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
        "bootstrap": str(analysis.bootstrap),
        "empty positions": visible(analysis.empty_policy),
        "jaxpe": jaxpe.__version__,
        "jax": importlib.metadata.version("jax"),
        "numpy": importlib.metadata.version("numpy"),
    }


def write_report(analysis: Analysis, directory: str | os.PathLike[str]) -> Path:
    """Write the page, the numbers and the figures into `directory`; return the page's path.

    The folder is made where it is missing. Everything is drawn and written beside its place before
    any file takes its name, so a failed run leaves the report that was there. The same analysis
    gives the same bytes.

    Raises `InputError` where the folder cannot be written or another run writes into it,
    `ValueError` where the analysis holds a NaN or an infinity that `to_json` lets through, and
    `MissingExtraError` without the extra `report`.
    """
    with output_folder(directory) as folder:
        figures = render_figures(analysis)
        page = render_page(analysis, figures).encode()
        return write_files(folder, figures, {"report.json": _json(analysis), "report.html": page})


def _json(analysis: Analysis) -> bytes:
    return (json.dumps(analysis.to_json(), indent=2, allow_nan=False) + "\n").encode()

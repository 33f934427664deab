"""The page: one self-contained `report.html`, nothing fetched, no script."""

import base64
import collections
import importlib.metadata
import math
from typing import Any

import jaxpe
from jaxpe._errors import require
from jaxpe.report._figures import Rendered
from jaxpe.report._findings import by_family, findings, headlines
from jaxpe.report._words import number, percent, visible
from jaxpe.report.analysis import Analysis

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


def template(name: str) -> Any:
    """A template of this folder. Raises `MissingExtraError` without the extra `report`."""
    jinja2 = require("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jaxpe", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "visible": visible,
        "data_uri": _data_uri,
    }
    return environment.get_template(name)


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


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()

"""Page of a rotary configuration."""

from pathlib import Path

from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.rope.figures import CAPTIONS, rope_figures
from jaxpe.report.rope.text import (
    ROPE_LEGEND,
    headlines,
    rope_summary,
    tables_of,
    thread_address,
)
from jaxpe.rope import RopeAnalysis


def write_rope(result: RopeAnalysis, folder: Path, *, png: bool = False) -> Path:
    """Write rope.html, rope.json and the figures; return the path of the page."""
    figures = rope_figures(result)
    texts = {"summary": rope_summary(result), "headlines": headlines(result)}
    page = template("rope.html.j2").render(
        result=result, tables=tables_of(result), legend=ROPE_LEGEND, threads=thread_address,
        figures=figures, **texts,
    )  # fmt: skip
    return write_files(folder, "rope", result, page, figures, png=png, others="|".join(CAPTIONS))

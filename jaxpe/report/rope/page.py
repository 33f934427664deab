"""Page of a rotary configuration."""

from pathlib import Path

from jaxpe.report.page import decision, write_page
from jaxpe.report.rope.advice import advice
from jaxpe.report.rope.figures import FIGURES, rope_figures
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
    shown = {"summary": rope_summary(result), "headlines": headlines(result)}
    shown |= {"tables": tables_of(result), "legend": ROPE_LEGEND, "threads": thread_address}
    shown |= decision(advice(result), "rope-configuration")
    names = "|".join(name for name, *_ in FIGURES)
    return write_page(folder, "rope", result, rope_figures(result), shown, png=png, others=names)

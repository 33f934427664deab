"""Page of a rotary configuration."""

from jaxpe.plans import RopeAnalysis
from jaxpe.report.page import View
from jaxpe.report.rope.advice import advice
from jaxpe.report.rope.figures import FIGURES, rope_figures
from jaxpe.report.rope.text import (
    ROPE_LEGEND,
    headlines,
    recipe_scope,
    rope_summary,
    tables_of,
    thread_address,
)


def view(result: RopeAnalysis) -> View:
    """Page of a configuration."""
    shown = {"summary": rope_summary(result), "headlines": headlines(result)}
    shown |= {"legend": ROPE_LEGEND, "threads": thread_address, "scope": recipe_scope(result)}
    names = "|".join(name for name, *_ in FIGURES)
    figures, tables = rope_figures(result), tables_of(result)
    return View("rope", shown, figures, tables, advice(result), "rope-configuration", names)

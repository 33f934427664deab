"""The view: what a result says, as a page, a console, tables and figures. It computes nothing.

`page` turns the result of any job into a `Page` of findings, tables and figures; `write` writes its
files, `show` prints it, `draw` draws a figure. Plotting and templates need the extra `report`. They
are imported on first use, as are the pages of the jobs.
"""

from jaxpe.report.console import show
from jaxpe.report.drawing import draw
from jaxpe.report.writing import page, write

__all__ = [
    "draw", "page", "show", "write",
]  # fmt: skip

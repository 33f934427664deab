"""Files of a report: a page, its numbers, tables as CSV and LaTeX, and figures."""

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxpe._core.files import atomic_file, remove_files
from jaxpe._core.results import result_files
from jaxpe.report.page import View, render_page
from jaxpe.report.style import FigureFormat, FigureStyle, Rendered
from jaxpe.report.tables import Table


def write_files(
    folder: Path, result: Any, view: View, *, figures: FigureFormat, style: FigureStyle
) -> Path:
    """Write a page, the numbers, tables and figures, all or none; return the path of the page.

    Args:
        folder: folder of the report.
        result: numbers.
        view: page of the result.
        figures: format of the figures besides the SVG of the page.
        style: style of the figures in files; the page has those for the screen.

    Raises:
        InputError: the folder cannot be written.
    """
    files = {f"figures/{one.name}.svg": one.svg for one in view.figures}
    if (figures, style) != ("svg", "screen"):
        drawn = {f"figures/{one.name}.{figures}": one.file(figures, style) for one in view.figures}
        files |= drawn
    others = [
        f"figures/{one.name}.{kind}" for one in view.figures for kind in ("png", "pdf")
        if f"figures/{one.name}.{kind}" not in files
    ]  # fmt: skip
    if view.figures:
        files["figures/captions.tex"] = captions_latex(view.figures)
    files |= table_files(view.tables, view.setting) | dict(view.further)
    files |= {} if view.saved else result_files(result, view.name)
    files |= {f"{view.name}.html": render_page(result, view).encode()}
    with contextlib.ExitStack() as stack:
        # The first that is entered takes its name last, once all are on the disk: the page.
        for path, content in reversed(files.items()):
            stack.enter_context(atomic_file(folder / path)).write_bytes(content)
    remove_files(folder, [*others, *view.absent])
    remove_other_figures(folder, view.others, view.figures)
    return folder / f"{view.name}.html"


def table_files(tables: Iterable[Table], setting: str = "") -> dict[str, bytes]:
    """Names and contents of tables as CSV and as LaTeX with the rules of booktabs.

    >>> files = table_files([("A, by head", ["layer", "share"], [("1e-6", "-36 %")])])
    >>> print(files["tables/a-by-head.tex"].decode())
    % A, by head
    % \\usepackage{booktabs}
    \\begin{tabular}{lr}
    \\toprule
    layer & share \\\\
    \\midrule
    1e-6 & $-$36 \\% \\\\
    \\bottomrule
    \\end{tabular}
    <BLANKLINE>
    """
    files = {}
    for title, header, rows in tables:
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "table"
        clean = [[str(cell).replace("\n", " ") for cell in row] for row in (header, *rows)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(clean)
        files[f"tables/{name}.csv"] = text.getvalue().encode()
        first, *rest = (" & ".join(map(latex, row)) + " \\\\" for row in clean)
        lines = [
            f"% {title}", *([f"% {setting}"] if setting else []), "% \\usepackage{booktabs}",
            f"\\begin{{tabular}}{{l{'r' * (len(clean[0]) - 1)}}}", "\\toprule", first, "\\midrule",
            *rest, "\\bottomrule", "\\end{tabular}", "",
        ]  # fmt: skip
        files[f"tables/{name}.tex"] = "\n".join(lines).encode()
    return files


def captions_latex(figures: Iterable[Rendered]) -> bytes:
    """Captions of figures in LaTeX, each with its title, after a comment with the figure's name."""
    lines = [
        f"% {one.name}\n\\caption{{{latex(f'{one.title}. {one.caption}')}}}\n" for one in figures
    ]
    return "\n".join(lines).encode()


_LATEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≠": r"$\neq$", "\N{NO-BREAK SPACE}": "~"}
    | {"–": "--", "²": "$^2$", "₂": "$_2$", "∞": r"$\infty$", "≤": r"$\leq$", "→": r"$\to$"}
    | {"…": r"\dots{}", "“": "``", "”": "''", "α": r"$\alpha$", "θ": r"$\theta$", "λ": r"$\lambda$"}
    | {"π": r"$\pi$", "ω": r"$\omega$", "Σ": r"$\Sigma$"}
    | {"<": "$<$", ">": "$>$", "√": r"$\surd$", "‖": r"$\|$"}  # OT1 has other signs at < and >
)


def latex(text: str) -> str:
    r"""Text in LaTeX, with minus signs before numbers.

    >>> print(latex("-3 %, < 1e-6"))
    $-$3 \%, $<$ 1e-6
    """
    return re.sub(r"(?<![\w-])-(?=\.?\d)", "−", text).translate(_LATEX)


def remove_other_figures(directory: Path, others: str, figures: Sequence[Rendered]) -> None:
    """Remove figures whose names match a pattern, except the drawn ones."""
    names = re.compile(rf"({others})\.(svg|png|pdf)")
    current = {figure.name for figure in figures}
    paths = sorted((directory / "figures").glob("*"))
    stale = [path for path in paths if names.fullmatch(path.name) and path.stem not in current]
    remove_files(directory, [f"figures/{path.name}" for path in stale])

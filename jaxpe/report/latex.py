"""Tables and texts in LaTeX."""

import re

from jaxpe.report.findings import Table

_SIGNS = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≠": r"$\neq$", "\N{NO-BREAK SPACE}": "~"}
    | {"–": "--", "²": "$^2$", "₂": "$_2$", "∞": r"$\infty$", "≤": r"$\leq$", "→": r"$\to$"}
    | {"…": r"\dots{}", "“": "``", "”": "''", "α": r"$\alpha$", "θ": r"$\theta$", "λ": r"$\lambda$"}
    | {"π": r"$\pi$", "ω": r"$\omega$", "Σ": r"$\Sigma$", "τ": r"$\tau$", "μ": r"$\mu$"}
    | {"<": "$<$", ">": "$>$", "√": r"$\surd$", "‖": r"$\|$"}  # OT1 has other signs at < and >
)


def latex(text: str) -> str:
    r"""Text in LaTeX, with minus signs before numbers.

    >>> print(latex("-3 %, < 1e-6"))
    $-$3 \%, $<$ 1e-6
    """
    return re.sub(r"(?<![\w-])-(?=\.?\d)", "−", text).translate(_SIGNS)


def latex_table(table: Table) -> str:
    r"""A table with the rules of booktabs.

    >>> print(latex_table(Table("A, by head", ["layer", "share"], [("1e-6", "−36 %")])))
    % A, by head
    % \usepackage{booktabs}
    \begin{tabular}{lr}
    \toprule
    layer & share \\
    \midrule
    1e-6 & $-$36 \% \\
    \bottomrule
    \end{tabular}
    """
    first, *rest = (
        " & ".join(latex(str(cell).replace("\n", " ")) for cell in row) + r" \\"
        for row in (table.header, *table.rows)
    )
    columns = f"l{'r' * (len(table.header) - 1)}"
    lines = [f"% {table.title}", r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{columns}}}"]
    lines += [r"\toprule", first, r"\midrule", *rest, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines)


def latex_paragraph(text: str) -> str:
    r"""Markdown with citations and code in LaTeX, with the commands `\cite` and `\texttt`.

    >>> print(latex_paragraph("Half (50 %) [@gu2025; @jaxpe]. Command: `jaxpe inspect a_b`."))
    Half (50 \%)~\cite{gu2025,jaxpe}. Command: \texttt{jaxpe inspect a\_b}.
    """
    cited = re.sub(
        r" \[(@[^]]+)\]", lambda m: rf"~\cite{{{re.sub('; |@', ',', m[1])[1:]}}}", latex(text)
    )
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", cited).replace(",,", ",")

"""The report on the built-in corpus, as README.md and the page Ten minutes show it.

`jaxpe report` on the documentation of Python's standard library: the lines that it prints, and the
numbers that these pages quote. Another version of Python has another documentation, and so slightly
other numbers. `script` has those of the script on that page, for 32 positions.
"""

import io
import platform
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from experiments.common import Run, main
from jaxpe import encodings, geometry
from jaxpe.analysis.corpus import CorpusOptions, analyse
from jaxpe.data import load_tokens
from jaxpe.report.console import rich_table
from jaxpe.report.findings import findings_table
from jaxpe.report.writing import page

WIDTH = 116  # of the console
LENGTH, DIM = 32, 64  # of the script


def printed(table: Any) -> list[str]:
    """Lines of a table as a console of this width shows them, without the common margin."""
    shown = io.StringIO()
    Console(file=shown, width=WIDTH).print(table)
    return [line.rstrip() for line in textwrap.dedent(shown.getvalue()).strip("\n").splitlines()]


def script() -> dict[str, float]:
    """Shares of the observed variance, and stress of sinusoids against what is observed and not."""
    corpus = load_tokens("stdlib", length=LENGTH)
    documents = {"vocab_size": corpus.vocab_size, "mask": corpus.mask}
    mu = geometry.positional_distributions(geometry.count_tokens(corpus.ids, **documents))
    position = geometry.position_geometry(
        corpus.ids, groups=corpus.groups(), key=jax.random.key(0), **documents
    )
    P = encodings.sinusoidal_vectors(jnp.arange(LENGTH), dim=DIM)
    D = geometry.hellinger_distances(mu)
    observed = jnp.trace(geometry.hellinger_gram(mu))
    return {
        "noise": float(1 - position.split_half.trace / observed),
        "composition": float(position.composition / observed),
        "position": float(position.trace / observed),
        "observed": float(geometry.scaled_stress(P, D).stress),
        "of_position": float(geometry.scaled_stress(P, position.distances).stress),
    }


def experiment(run: Run) -> dict[str, Any]:
    options = CorpusOptions(length=32) if run.quick else CorpusOptions()
    found = analyse(options)
    held_out = found.held_out
    if held_out is None:
        raise RuntimeError("the corpus has no position with tokens in every quarter")
    shown, best = page(found), held_out.best[0]
    (fit,) = (table for table in shown.tables if table.title == "Fit of the encodings")
    return {
        "python": platform.python_version(),
        "documents": found.facts.documents,
        "summary": printed(rich_table(findings_table(shown.lead, ""))),
        "encodings": printed(rich_table(fit._replace(title=""))),
        "significant_rank": found.position.significant_rank,
        **{name: of._asdict() for name, of in found.intervals.items()},
        "fitted": {"dim": held_out.dim} | held_out.own[held_out.dim - 1]._asdict(),
        "best_fixed": {"name": best} | held_out.fixed[best]._asdict(),
        "script": script(),
    }


if __name__ == "__main__":
    main(experiment, "stdlib_report")

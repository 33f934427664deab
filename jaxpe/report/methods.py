"""Paragraph of methods of a job, with its numbers, and the entries that it cites."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import jaxpe
from jaxpe.report.write import job_name

# Text with fields of the result `r`, and keys of references.bib. Attributes of a result that a
# text names must exist for every result of the job.
_METHODS = {
    "corpus": (
        "Tokens of {r.documents:,} documents ({r.tokens:,} tokens, tokenizer {r.tokenizer}) were "
        "counted at {r.length:,} positions. Squared Hellinger distances between positions are "
        "products of disjoint halves of the documents, averaged over {r.splits} splits, less what "
        "documents with shuffled tokens show [@cirrincione2026; @jaxpe]. A dimension is "
        "significant if at most 5 % of shuffled corpora exceed its eigenvalue. Intervals (95 %) "
        "are of half-samples of {r.folds} folds, calibrated on shuffled documents. Scaled stress "
        "of encodings (width {r.dim}) is on held-out halves. Seed {r.seed}.",
        ("cirrincione2026",),
    ),
    "corpora": (
        "Positional geometries of {n_corpora} corpora at {r.length:,} positions (tokenizer "
        "{r.tokenizer}) were compared by the distance of their split-half Gram matrices. p-values "
        "are of {r.permutations:,} random deals of the folds, adjusted by Holm's method [@jaxpe].",
        (),
    ),
    "attention": (
        "Attention logits of {r.facts.layers} layers of {r.facts.heads} heads were decomposed on "
        "{r.facts.documents} documents at {r.facts.positions} positions. The share of positions "
        "in their variance is a product of two halves of the documents. The spectral view follows "
        "[@unpacking2025; @jaxpe]. Seed {r.facts.seed}.",
        ("unpacking2025",),
    ),
    "audit": (
        "Hypotheses and conclusions of {n_statements} published statements were evaluated on the "
        "model at {r.facts.positions} positions, over {r.facts.examples} documents "
        "[@cirrincione2026; @jaxpe]. Seed {r.facts.seed}.",
        ("cirrincione2026",),
    ),
    "inspect": (
        "{r.facts.model} was inspected on {r.facts.examples} of {r.facts.documents:,} documents "
        "of {r.facts.source} ({r.facts.positions} tokens each; losses on texts of "
        "{r.facts.longest:,} tokens). Shares of positions in attention logits are products of two "
        "halves of the documents. Sinks are keys with a mean weight over 0.3 [@gu2025]; use of "
        "rotary frequencies is by norms of queries and keys [@barbero2025; @jaxpe]. Intervals "
        "(95 %) are over documents or texts. Seed {r.facts.seed}.",
        ("gu2025", "barbero2025"),
    ),
    "inspections": (
        "{n_models} models were compared by their key measures. Intervals (95 %) are over "
        "documents or texts, for each number alone [@jaxpe].",
        (),
    ),
    "bench": (
        "The encoding {r.options.encoding} was compared with others on {n_cells} "
        "pairs of a task and an encoding, trained from equal weights on equal data with equal "
        "budgets over {r.suite.seeds} seeds, by mean accuracy beyond the training length. The "
        "intervals of {n_verdicts} comparisons hold jointly at 95 % [@jaxpe].",
        (),
    ),
    "extrapolation": (
        "{n_cells} pairs of a task and an encoding were trained from equal weights on equal data "
        "with equal budgets, and tested on longer inputs. Intervals (95 %) are over seeds; those "
        "of all comparisons hold together [@jaxpe].",
        (),
    ),
}


def methods(result: Any, *, command: str = "", date: str = "", inputs: Sequence[str] = ()) -> str:
    """Paragraph of methods in Markdown, with citation keys of `references`.

    Args:
        result: result of a job.
        command: command line.
        date: date of the run.
        inputs: names of the files that were read, each with its hash.

    Raises:
        TypeError: a result without a page.

    >>> from jaxpe.analysis.inspections import compare_inspections, inspected_models
    >>> print(methods(compare_inspections(inspected_models()[:2])))
    2 models were compared by their key measures. ...
    """
    template, _ = _METHODS.get(job_name(result), ("Results are of jaxpe [@jaxpe].", ()))
    fields = getattr(result, "_fields", ())
    lengths = {f"n_{name}": len(getattr(result, name)) for name in fields if _is_list(result, name)}
    parts = [template.format(r=result, **lengths)]
    ran = f"jaxpe {jaxpe.__version__}, JAX {version('jax')}, NumPy {version('numpy')}"
    parts.append(f"Computed with {ran}{f' on {date}' * bool(date)}.")
    parts += [f"Command: `{command}`."] if command else []
    parts += [f"Data: {', '.join(inputs)}."] if inputs else []
    return " ".join(parts)


def references(result: Any) -> str:
    """BibTeX entries that `methods` cites.

    >>> from jaxpe.analysis.inspections import compare_inspections, inspected_models
    >>> references(compare_inspections(inspected_models()[:2])).startswith("@software{jaxpe,")
    True
    """
    keys = ("jaxpe", *_METHODS.get(job_name(result), ("", ()))[1])
    entries = files("jaxpe.report").joinpath("references.bib").read_text("utf-8").splitlines()
    found = {re.split(r"[{,]", entry)[1]: entry for entry in entries}
    return "".join(f"{found[key]}\n" for key in keys)


def _is_list(result: Any, name: str) -> bool:
    return isinstance(getattr(result, name), list | tuple)

"""Paragraph of methods of a job, with its numbers, and the entries that it cites."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import jaxpe
from jaxpe.analysis.corpus.result import CorpusAnalysis
from jaxpe.data.corpora.load import SAMPLE
from jaxpe.geometry.noise.cross_validation import DEFAULT_HALF_NULLS
from jaxpe.geometry.noise.position import DEFAULT_NULLS
from jaxpe.report.corpus.headlines import reaches
from jaxpe.report.files import latex
from jaxpe.report.text import interval_ends, interval_texts
from jaxpe.report.write import job_name

# Text with fields of the result `r`, which must exist for every result of the job, and keys of
# references.bib.
_METHODS = {
    "corpora": (
        "Positional geometries of {n_corpora} corpora at {r.length:,} positions (tokenizer "
        "{r.tokenizer}) were compared by the distance of their split-half Gram matrices. p-values "
        "are of {r.permutations:,} random deals of the folds, adjusted by Holm's method [@jaxpe]."
    ),
    "attention": (
        "Attention logits of {r.facts.layers} layers of {r.facts.heads} heads were decomposed on "
        "{r.facts.documents} documents at {r.facts.positions} positions. The share of positions "
        "in their variance is a product of two halves of the documents. The spectral view follows "
        "[@unpacking2025; @jaxpe]. Seed {r.facts.seed}."
    ),
    "audit": (
        "Hypotheses and conclusions of {n_statements} published statements were evaluated on the "
        "model at {r.facts.positions} positions, over {r.facts.examples} documents "
        "[@cirrincione2026; @jaxpe]. Seed {r.facts.seed}."
    ),
    "inspect": (
        "{r.facts.model} was inspected on {r.facts.examples} of {r.facts.documents:,} documents "
        "of {r.facts.source} ({r.facts.positions} tokens each; losses on texts of "
        "{r.facts.longest:,} tokens). Shares of positions in attention logits are products of two "
        "halves of the documents. Sinks are keys with a mean weight over 0.3 [@gu2025]; use of "
        "rotary frequencies is by norms of queries and keys [@barbero2025; @jaxpe]. Intervals "
        "(95 %) are over documents or texts. Seed {r.facts.seed}."
    ),
    "inspections": (
        "{n_models} models were compared by their key measures. Intervals (95 %) are over "
        "documents or texts, for each number alone [@jaxpe]."
    ),
    "bench": (
        "The encoding {r.options.encoding} was compared with others on {n_cells} "
        "pairs of a task and an encoding, trained from equal weights on equal data with equal "
        "budgets over {r.suite.seeds} seeds, by mean accuracy beyond the training length. The "
        "intervals of {n_verdicts} comparisons hold jointly at 95 % [@jaxpe]."
    ),
    "extrapolation": (
        "{n_cells} pairs of a task and an encoding were trained from equal weights on equal data "
        "with equal budgets, and tested on longer inputs. Intervals (95 %) are over seeds; those "
        "of all comparisons hold together [@jaxpe]."
    ),
}

# Corpora that are read by name, with their papers.
_DATA = {"sst2": "SST-2 [@socher2013]", "imdb": "IMDB [@maas2011]"}


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
    job, fields = job_name(result), getattr(result, "_fields", ())
    lengths = {f"n_{name}": len(getattr(result, name)) for name in fields if _is_list(result, name)}
    template = _METHODS.get(job, "Results are of jaxpe [@jaxpe].")
    parts = [_corpus(result) if job == "corpus" else template.format(r=result, **lengths)]
    ran = f"jaxpe {jaxpe.__version__}, JAX {version('jax')}, NumPy {version('numpy')}"
    if cited := [_DATA[name] for name in _sources(result) if name in _DATA]:
        parts.append(f"Data sets: {', '.join(cited)}.")
    parts.append(f"Computed with {ran}{f' on {date}' * bool(date)}.")
    parts += [f"Command: `{command}`."] if command else []
    parts += [f"Data: {', '.join(inputs)}."] if inputs else []
    return " ".join(parts)


def methods_latex(text: str) -> str:
    r"""Paragraph of `methods` in LaTeX, with the commands `\cite` and `\texttt`.

    >>> print(methods_latex("Half (50 %) [@gu2025; @jaxpe]. Command: `jaxpe inspect a_b`."))
    Half (50 \%)~\cite{gu2025,jaxpe}. Command: \texttt{jaxpe inspect a\_b}.
    """
    cited = re.sub(
        r" \[(@[^]]+)\]", lambda m: rf"~\cite{{{re.sub('; |@', ',', m[1])[1:]}}}", latex(text)
    )
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", cited).replace(",,", ",")


def references(result: Any) -> str:
    """BibTeX entries that `methods` cites.

    >>> from jaxpe.analysis.inspections import compare_inspections, inspected_models
    >>> references(compare_inspections(inspected_models()[:2])).startswith("@software{jaxpe,")
    True
    """
    keys = re.findall(r"@(\w+)", methods(result))
    entries = files("jaxpe.report").joinpath("references.bib").read_text("utf-8").splitlines()
    return "".join(f"{entry}\n" for entry in entries if re.split(r"[{,]", entry)[1] in keys)


def _corpus(r: CorpusAnalysis) -> str:
    """Paragraph on a corpus: what was counted, the estimators, and what was tested."""
    groups, nulls = "copies and near-copies", "" if r.from_counts else f"{DEFAULT_NULLS} "
    if r.group_field is not None:
        groups = f"equal {r.group_field!r}"
    positions = f"the first {r.length:,} positions"
    if r.origin:
        positions = f"{r.length:,} positions around a site"
    elif r.edges is not None:
        positions = f"the first {r.edges[-1]:,} positions, in {r.length:,} bins"
    sample = [choice.value for choice in r.choices if choice.setting == SAMPLE]
    documents = f"a random sample of {sample[0]}" if sample else f"{r.documents:,}"
    parts = [
        f"Tokens of {documents} documents in {r.groups:,} groups of {groups} ({r.tokens:,} "
        f"tokens, tokenizer {r.tokenizer}) were counted at {positions}."
    ]
    if r.unknown_tokens:
        parts.append(f"Of these, {r.unknown_tokens:,} outside the vocabulary count as one word.")
    if start := reaches(r).get("beginning"):
        parts.append(
            "Bits per token are the mutual information of position and token, with Miller's "
            "correction of each entropy [@miller1955], less its mean over "
            f"{DEFAULT_HALF_NULLS} corpora of rotated documents. "
            f"{_counted_words(r)}"
            f"Bits are {interval_texts(start.bits)[0]} (95 % interval {interval_ends(start.bits)})."
        )
    parts.append(
        "Squared Hellinger distances between positions are products of disjoint halves of the "
        f"documents, averaged over {r.splits} splits, less those of {nulls}rotated corpora, in "
        "which each document is rotated by a random offset, its last token in place "
        "[@cirrincione2026; @jaxpe]. A dimension is significant if at most 5 % of rotated corpora "
        f"exceed its eigenvalue. Intervals (95 %) are of balanced half-samples of {r.folds} folds "
        "[@mccarthy1969]; those of the geometry are calibrated on rotated documents. Scaled "
        f"stress of encodings (width {r.dim}) is on held-out halves."
    )
    if r.standing_out:
        parts.append(
            "Positions that stand out are those whose tokens differ from the two nearest positions "
            "by McNemar's exact test [@mcnemar1947] with Bonferroni's correction."
        )
    if r.letters:
        parts.append("Sequence logos follow [@schneider1990].")
    return " ".join([*parts, f"Seed {r.seed}."])


def _sources(result: Any) -> list[str]:
    """Names of the corpora of a result."""
    compared = [each.name for each in getattr(result, "corpora", ())]
    return list(dict.fromkeys([*getattr(result, "inputs", ()), *compared]))


def _counted_words(r: CorpusAnalysis) -> str:
    """Words that the bits per token are of, and the tokens left out; empty if unknown."""
    if r.where is None or r.where.words is None or r.where.tokens is None:
        return ""
    left_out = r.tokens - r.where.tokens
    return (
        f"They are of the {r.where.words:,} words in at least two of {r.folds} folds of the groups "
        f"({r.where.tokens:,} tokens); words in a single fold ({left_out:,} tokens) are left out. "
        "A group's fold is a hash of it. "
    )


def _is_list(result: Any, name: str) -> bool:
    return isinstance(getattr(result, name), list | tuple)

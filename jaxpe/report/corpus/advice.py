"""Steps to take after a report on a corpus."""

import shlex

from jaxpe.analysis.corpus import CorpusAnalysis
from jaxpe.data.corpora.load import MARKUP, SAMPLE
from jaxpe.report.corpus.predicates import fitted_scores, is_sequences, only_position
from jaxpe.report.text import Advice, plural
from jaxpe.report.training_advice import training_advice

_MORE = 4  # times as many documents halve the standard error


def advice(analysis: CorpusAnalysis) -> list[Advice]:
    """Steps to take: a shorter length, more documents, or encodings to compare in training."""
    if only_position(analysis):
        text = "Documents have one token each. Read their letters instead."
        return [Advice(text, _command(analysis, tokenizer="characters"))]
    steps = [*_markup(analysis), *_length(analysis)]
    if _judged(analysis) == 0:
        return steps
    return [*steps, *(_background(analysis) if is_sequences(analysis) else _training(analysis))]


def _markup(analysis: CorpusAnalysis) -> list[Advice]:
    return [
        Advice(f"HTML tags are {c.value} and count as tokens: {c.how.replace('`', '')}.", "")
        for c in analysis.choices
        if c.setting == MARKUP
    ]


def _source(analysis: CorpusAnalysis) -> str:
    return shlex.join(analysis.inputs or [analysis.source])


def _command(analysis: CorpusAnalysis, *, source: str = "", **changes: str) -> str:
    """Command of this report with the options that were given, and changes."""
    words = []
    for name, value in (analysis.given | changes).items():
        values = value.split() if name == "encodings" else [value] * bool(value)
        words += [f"--{name.replace('_', '-')}", *values]
    return " ".join(["jaxpe report", source or _source(analysis), *map(shlex.quote, words)])


def _judged(analysis: CorpusAnalysis) -> int:
    """Number of positions whose noise does not hide a difference of typical size."""
    empty = int((analysis.documents_per_position == 0).sum())
    return analysis.length - len(analysis.rare_positions) - empty


def _length(analysis: CorpusAnalysis) -> list[Advice]:
    rare, judged = len(analysis.rare_positions), _judged(analysis)
    if not rare or analysis.edges is not None:
        return []
    add, command = _more_documents(analysis)
    if judged == 0:
        return [Advice(f"No position can be judged alone. {add}", command)]
    text = f"{plural(rare, 'position')} of {analysis.length:,} are too noisy to judge. {add}"
    steps = [Advice(text, command)]
    if analysis.origin or min(analysis.rare_positions) < judged:  # not the last positions
        return steps
    return [*steps, Advice("Or leave far positions out.", _command(analysis, length=f"{judged}"))]


def _more_documents(analysis: CorpusAnalysis) -> tuple[str, str]:
    """Sentence that asks for more documents, and its command if `limit` left some out."""
    samples = [choice.value for choice in analysis.choices if choice.setting == SAMPLE]
    if not samples:
        which = "documents that are not copies" if analysis.groups < 2 else "documents"
        return f"Add {which}, which lessens the noise.", ""
    read, count = (int(number.replace(",", "")) for number in samples[0].split(" of "))
    command = _command(analysis, limit=f"{min(count, _MORE * read)}")
    return f"Raise --limit: {samples[0]} documents were read.", command


def _background(analysis: CorpusAnalysis) -> list[Advice]:
    """Comparison with sequences without the site, if any position stands out."""
    if not analysis.origin or fitted_scores(analysis) is None:
        return []
    align = analysis.given.get("align", f"{analysis.origin}")
    return [
        Advice(
            "Positions that stand out may belong to the site or to all such sequences. Compare "
            "with sequences of the same origin without the site.",
            _command(analysis, source="background.fa", align=align),
        )
    ]


def _training(analysis: CorpusAnalysis) -> list[Advice]:
    reason = (
        "Stress does not say which encoding trains best: in our tests, the encoding of lowest "
        "stress did worse than a random choice."
    )
    if fitted_scores(analysis) is None:
        reason = (
            "No effect of position was found here, which says nothing of word order: texts that "
            "need it can have the same words at every position."
        )
    return [training_advice(_source(analysis), reason)]

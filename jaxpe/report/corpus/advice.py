"""Steps to take after a report on a corpus."""

import shlex

from jaxpe.analysis.corpus import CorpusAnalysis
from jaxpe.report.corpus.text import beats_random, best_fixed, fitted_scores
from jaxpe.report.text import Advice, plural


def advice(analysis: CorpusAnalysis) -> list[Advice]:
    """Steps to take: a shorter length, more documents, or encodings to compare in training."""
    length = _length(analysis)
    return length if _judged(analysis) == 0 else [*length, *_training(analysis)]


def _judged(analysis: CorpusAnalysis) -> int:
    """Number of positions with enough documents to judge."""
    empty = int((analysis.documents_per_position == 0).sum())
    return analysis.length - len(analysis.rare_positions) - empty


def _length(analysis: CorpusAnalysis) -> list[Advice]:
    rare = len(analysis.rare_positions)
    judged = _judged(analysis)
    if not rare or analysis.edges is not None:
        return []
    if judged == 0:
        return [Advice("No position has enough documents to judge. Add documents.", "")]
    source = shlex.join(analysis.inputs or [analysis.source])
    return [
        Advice(
            f"{plural(rare, 'position')} of {analysis.length:,} have too few documents to judge. "
            "Add documents, or leave far positions out.",
            f"jaxpe report {source} --length {judged}",
        )
    ]


def _training(analysis: CorpusAnalysis) -> list[Advice]:
    train = f"jaxpe train {shlex.join(analysis.inputs or [analysis.source])} --encoding"
    if fitted_scores(analysis) is None:
        return [
            Advice(
                "No effect of position was found here. Train without an encoding first, and keep "
                "one only if it lowers the loss.",
                f"{train} none --out run-none && {train} rope --out run-rope && "
                "jaxpe compare run-none run-rope",
            )
        ]
    if analysis.origin:
        return [
            Advice(
                "Positions that stand out may belong to the site or to all such sequences. Compare "
                "with sequences of the same origin without the site.",
                f"jaxpe report background.fa --align {analysis.origin}",
            )
        ]
    best = [score.name for score in best_fixed(analysis)[:1]] if beats_random(analysis) else []
    names = [*best, "none"] if best else ["sinusoidal", "none"]
    runs = [f"{train} {name} --out run-{name}" for name in names]
    return [
        Advice(
            "Fit says which geometry an encoding has, not whether a model learns more with it: in "
            "our tests fitted vectors did not. Train, and compare.",
            " && ".join([*runs, f"jaxpe compare {' '.join(f'run-{name}' for name in names)}"]),
        )
    ]

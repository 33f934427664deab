"""Audit of one subject: all statements, the kernel and the training."""

import dataclasses

import numpy as np

from jaxpe import theory
from jaxpe._core.options import check_range, check_ranges, option
from jaxpe._core.progress import SILENT, Clock, Progress
from jaxpe.analysis.audit.evidence import audit_inputs
from jaxpe.analysis.audit.functions import geometry_of, position_loss
from jaxpe.analysis.audit.kernel import kernel_and_forcing, kernel_pairs, train_both
from jaxpe.analysis.audit.result import AuditFacts, AuditResult, Training, audited
from jaxpe.analysis.subject import Subject, SubjectOptions, read_subject
from jaxpe.data.corpora.corpus import as_sources
from jaxpe.theory.cirrincione2026.evaluations import EVALUATIONS

_MOST_POSITIONS = 4096  # matrices of positions are dense
_MOST_STEPS = 1_000_000  # each is kept in the result
_COLDEST, _HOTTEST = 1e-3, 1e3  # temperatures whose logits fit float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditOptions(SubjectOptions):
    """Evaluate every published statement on a corpus and a model: hypotheses and conclusions.

    Attributes:
        examples: number of documents to average over.
        steps: number of steps of gradient descent on positions, real and linearised.
        temperature: τ of the softmax of the loss; Lemmas 11 and 12 are about values below 1.
    """

    examples: int = option(256, least=1)
    steps: int = option(40, least=1, most=_MOST_STEPS)
    temperature: float = option(1.0, least=_COLDEST, most=_HOTTEST)


def audit(
    options: AuditOptions, *, subject: Subject | None = None, progress: Progress = SILENT
) -> AuditResult:
    """Evaluate every statement on a model and documents.

    Args:
        options: options of the audit.
        subject: a classifier or language model with multi-head attention of one key a head, and
            documents; read by the options when None.
        progress: receiver of progress in reading and evaluating.

    Raises:
        InputError: options out of range, an unreadable model or source, an unsuitable model, or
            text that reaches fewer than three positions.

    It takes a minute, most of it compilation:

    >>> options = AuditOptions(source="stdlib", examples=32, length=16, steps=5)
    >>> result = audit(options)  # doctest: +SKIP
    >>> result.statements[0].name, result.statements[0].verdict  # doctest: +SKIP
    ('Theorem 1', 'holds')
    """
    seed, clock = options.seed, Clock()
    if subject is None:
        _check(options, options.length)
        subject = read_subject(options, progress=progress)
        clock.lap("reading")
    _check(options, subject.documents.corpus.ids.shape[1])
    model = position_loss(
        subject, examples=options.examples, seed=seed, temperature=options.temperature
    )
    geometry = geometry_of(subject)
    progress.say("1 of 3: kernel of the positions")
    alpha, b = kernel_and_forcing(model, seed=seed)
    progress.say("2 of 3: training, linearised and real")
    gap = train_both(model, steps=options.steps, seed=seed)
    inputs = audit_inputs(
        model, geometry, alpha=alpha, forcing=b, seed=seed, temperature=options.temperature
    )
    progress.say("3 of 3: statements")
    audits = {
        statement.name: EVALUATIONS[statement.name](inputs)
        for statement in progress.track(theory.STATEMENTS, "statements")
    }
    clock.lap("kernel, training and statements")
    n, dim = model.functions.vectors.shape
    sizes = n, int(np.count_nonzero(geometry.D.present)), dim, len(model.examples["ids"])
    return AuditResult(
        source=subject.source,
        model=subject.model,
        facts=AuditFacts(*sizes, model.family, options.temperature, subject.trained, seed),
        statements=[audited(s, audits[s.name]) for s in theory.STATEMENTS],
        kernel=kernel_pairs(alpha, b, geometry.D, lemma_18=audits["Lemma 18"]),
        training=Training(*(np.asarray(x) for x in gap[:3])),
        inputs=tuple(as_sources(options.source)),
        seconds=clock.laps,
    )


def _check(options: AuditOptions, length: int | None) -> None:
    check_ranges(options)
    check_range("length", length, least=3, most=_MOST_POSITIONS)

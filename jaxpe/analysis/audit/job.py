"""All statements, the kernel and the training of one subject."""

import time
from typing import Any

import jax
import numpy as np

import jaxpe
from jaxpe import theory
from jaxpe._core.options import check_range, check_seed
from jaxpe.analysis.audit.kernel import kernel_and_forcing, kernel_pairs, train_both
from jaxpe.analysis.audit.result import Audited, AuditReport, Training
from jaxpe.analysis.audit.statements import statements_on_corpus, statements_on_model
from jaxpe.analysis.ranges import MOST_STEPS
from jaxpe.analysis.subject import Geometry, Subject, geometry_of, inner


def audit_subject(subject: Subject, *, steps: int, seed: int = 0) -> AuditReport:
    """Evaluate every statement on a model and a corpus.

    Args:
        subject: of `subject_of` or `read_subject`.
        steps: of gradient descent on positions, real and linearised.
        seed: of swaps, orders and sampled targets.

    Raises:
        InputError: where text reaches fewer than three positions, and for steps or a seed out of
            range.
    """
    check_range("steps", steps, least=1, most=MOST_STEPS)
    check_seed("seed", seed)
    clock = _Clock()
    geometry = geometry_of(subject)
    alpha, b = kernel_and_forcing(subject, seed=seed)
    clock.lap("kernel")
    audits = statements_on_corpus(subject, geometry)
    audits |= statements_on_model(subject, geometry, seed=seed)
    audits["Lemma 18"] = jax.jit(theory.lemma_18)(alpha, b, geometry.D)
    audits["Remark 20"] = theory.remark_20(inner(alpha, geometry.mu.present))
    clock.lap("statements")
    gap = train_both(subject, steps=steps, seed=seed)
    clock.lap("training")
    return AuditReport(
        source=subject.source,
        model=subject.model,
        facts=_facts(subject, geometry, seed),
        audited=[Audited(s, audits[s.name]) for s in theory.STATEMENTS],
        kernel=kernel_pairs(alpha, b, geometry.D, lemma_18=audits["Lemma 18"]),
        training=Training(*(np.asarray(x) for x in gap[:3])),
        seconds=clock.laps,
    )


def _facts(subject: Subject, geometry: Geometry, seed: int) -> dict[str, Any]:
    n, dim = subject.of.vectors.shape
    return {
        "positions": n,
        "positions with text": int(geometry.D.present.sum()),
        "width": dim,
        "examples": len(subject.examples["ids"]),
        "loss": subject.family,
        "seed": seed,
        "jaxpe": jaxpe.__version__,
    }


class _Clock:
    """Seconds by stage."""

    def __init__(self):
        self.last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now

"""Steps to take after an audit."""

import shlex
from typing import TYPE_CHECKING

from jaxpe.report.text import Advice

if TYPE_CHECKING:
    from jaxpe.analysis.audit import AuditResult


def advice(result: "AuditResult") -> list[Advice]:
    """Steps to take: what not to conclude about this model, and a trained one where it is not."""
    refuted = [statement.name for statement in result.statements if statement.outcome == "refuted"]
    steps = []
    if refuted:
        steps.append(
            Advice(
                f"Do not rely on {', '.join(refuted)} for this model: every hypothesis holds, and "
                "a conclusion fails.", "",
            )
        )  # fmt: skip
    if not result.facts.trained:
        source = shlex.join(result.inputs or [result.source])
        steps.append(
            Advice(
                "The model is as initialised. Statements on trained positions need a trained one.",
                f"jaxpe train {source} --out run && jaxpe audit {source} --model run",
            )
        )
    return steps

"""Steps to take for a rotary configuration."""

from jaxpe.plans import RopeAnalysis
from jaxpe.report.rope.text import differing_programs, serious_findings, short_names
from jaxpe.report.text import Advice, plural


def advice(result: RopeAnalysis) -> list[Advice]:
    """Steps to take: remedies of faults and risks, and a check of what no rule knows."""
    texts = (f"{one.text} {one.remedy}" for one in serious_findings(result))
    codes = {one.code for one in result.findings}
    steps = [Advice(text.replace("`", ""), "") for text in texts]
    if result.status != "judged":
        steps.append(
            Advice(
                "No rule knows this file. Compare the model's own code with the reference of a "
                "plan that you write down.",
                "jaxpe.conformance.check_rotary(apply, jaxpe.plans.simple_plan(head_dim=128))",
            )
        )
    elif (odd := differing_programs(result)) and "keys_ignored" not in codes:
        alike = [one.name for one in result.accepted_by if one.name not in odd]
        steps.append(
            Advice(
                f"{short_names(alike)} compute{'s' * (len(alike) == 1)} the numbers shown first. "
                "Before you serve the model with another program, check it against golden vectors.",
                f"jaxpe golden {result.source} --out vectors",
            )
        )
    elif not steps and result.findings:
        notes = plural(len(result.findings), "note")
        steps.append(
            Advice(f"The file needs no change. For a program of your own, see the {notes}.", "")
        )
    return steps

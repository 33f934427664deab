"""Steps to take after a reading of a rotary configuration."""

from jaxpe.report.rope.text import differing_programs, serious_findings
from jaxpe.report.text import Advice
from jaxpe.rope import RopeAnalysis


def advice(result: RopeAnalysis) -> list[Advice]:
    """Steps to take: remedies of faults and risks, and a check of what no rule knows."""
    texts = (f"{one.text} {one.remedy}" for one in serious_findings(result))
    steps = [Advice(text.replace("`", ""), "") for text in texts]
    if result.status != "judged":
        steps.append(
            Advice(
                "No rule knows this file. Compare the model's own code with the reference of a "
                "plan that you write down.",
                "jaxpe.conformance.check_rotary(apply, jaxpe.rope.simple_plan(head_dim=128))",
            )
        )
    elif odd := differing_programs(result):
        steps.append(
            Advice(
                f"Before you serve it with {odd[0]}, check that program against golden vectors.",
                f"jaxpe golden {result.source} --out vectors",
            )
        )
    return steps

"""Step to take after a spectral analysis."""

import shlex
from typing import TYPE_CHECKING

from jaxpe.analysis.attention.result import JUDGED
from jaxpe.report.attention.text import TELLING, positive
from jaxpe.report.text import Advice, percent
from jaxpe.report.training_advice import training_advice

if TYPE_CHECKING:
    from jaxpe.analysis.attention import AttentionAnalysis


def advice(result: "AttentionAnalysis") -> list[Advice]:
    """Step to take: encodings to train, beside what could express the measured logits."""
    source = shlex.join(result.inputs or [result.source])
    if not result.facts.trained:
        commands = f"jaxpe train {source} --out run && jaxpe spectral {source} --model run"
        return [Advice("Pass a trained model.", commands)]
    position = positive(result.variance.position.mean())
    if position < JUDGED:
        said = "The logits hardly depend on positions, which does not say that order is of no use."
        return [training_advice(source, said)]
    beyond = positive(result.variance.place.mean()) / position
    if beyond < TELLING:
        said = (
            f"The offset j − i explains all but {percent(beyond)} of the share of positions: a "
            "relative encoding (rotary, a bias) can express it."
        )
    else:
        said = (
            f"{percent(beyond)} of the share of positions is not a function of the offset j − i: a "
            "relative encoding alone cannot express it, though it may train better."
        )
    return [training_advice(source, said)]

"""Step to take after a spectral analysis."""

import shlex
from typing import TYPE_CHECKING

from jaxpe.analysis.attention.result import JUDGED
from jaxpe.report.attention.text import TELLING, positive
from jaxpe.report.text import Advice, percent

if TYPE_CHECKING:
    from jaxpe.analysis.attention import AttentionAnalysis


def advice(result: "AttentionAnalysis") -> list[Advice]:
    """Step to take: the kind of encoding that can express the measured dependence on position."""
    source = shlex.join(result.inputs or [result.source])
    train = f"jaxpe train {source} --encoding"
    if not result.facts.trained:
        spectral = f"jaxpe spectral {source} --model run"
        return [Advice("Pass a trained model.", f"{train} rope --out run && {spectral}")]
    position = positive(result.variance.position.mean())
    if position < JUDGED:
        said = "So little depends on positions that a model without an encoding may do as well."
        return [Advice(f"{said} Train one, and compare.", f"{train} none")]
    beyond = positive(result.variance.place.mean()) / position
    if beyond < TELLING:
        said = (
            f"The offset j − i explains all but {percent(beyond)} of the share of positions: a "
            "relative encoding (rotary, a bias) can express it."
        )
        return [Advice(said, f"{train} rope")]
    said = (
        f"{percent(beyond)} of the share of positions is not a function of the offset j − i: a "
        "relative encoding alone cannot express it. Try vectors of positions."
    )
    return [Advice(said, f"{train} learned")]

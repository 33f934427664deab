"""Length extrapolation: tasks under encodings with equal data, seeds, weights and budgets."""

from jaxpe.analysis.extrapolation.memory import check_memory as check_memory
from jaxpe.analysis.extrapolation.presets import PRESETS as PRESETS
from jaxpe.analysis.extrapolation.presets import Suite as Suite
from jaxpe.analysis.extrapolation.presets import preset as preset
from jaxpe.analysis.extrapolation.run import extrapolate as extrapolate
from jaxpe.analysis.extrapolation.streams import Streams as Streams
from jaxpe.analysis.extrapolation.streams import streams as streams
from jaxpe.analysis.extrapolation.variants import VARIANTS as VARIANTS
from jaxpe.analysis.extrapolation.variants import Variant as Variant

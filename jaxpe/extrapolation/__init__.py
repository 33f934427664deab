"""Length extrapolation: tasks under encodings with equal data, seeds, weights and budgets."""

from jaxpe.extrapolation.memory import check_memory as check_memory
from jaxpe.extrapolation.presets import PRESETS as PRESETS
from jaxpe.extrapolation.presets import Suite as Suite
from jaxpe.extrapolation.presets import preset as preset
from jaxpe.extrapolation.run import extrapolate as extrapolate
from jaxpe.extrapolation.streams import Streams as Streams
from jaxpe.extrapolation.streams import streams as streams
from jaxpe.extrapolation.variants import VARIANTS as VARIANTS
from jaxpe.extrapolation.variants import Variant as Variant

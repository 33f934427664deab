"""Attention logits of a model taken apart into position and content, and heads ablated."""

from jaxpe.analysis.attention.documents import (
    SpectralSubject,
    spectral_subject,
)
from jaxpe.analysis.attention.job import (
    spectra_of,
)
from jaxpe.analysis.attention.result import (
    HeadDrops,
    MeanLogits,
    Pairs,
    PartShares,
    SpectralReport,
    Variance,
)
from jaxpe.analysis.ranges import (
    check_spectral,
)
from jaxpe.analysis.reading import (
    read_spectral_subject,
)

__all__ = [
    "HeadDrops",
    "MeanLogits",
    "Pairs",
    "PartShares",
    "SpectralReport",
    "SpectralSubject",
    "Variance",
    "check_spectral",
    "read_spectral_subject",
    "spectra_of",
    "spectral_subject",
]

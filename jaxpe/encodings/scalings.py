"""Scalings of RoPE as arguments of encodings: checks, and resonance.

The scalings that configurations name are in `jaxpe.plans.scaling`.
"""

import math
from typing import NamedTuple

import numpy as np

from jaxpe.plans.scaling import (
    Length,
    LinearScaling,
    RopeFrequencies,
    RopeScaling,
    Scalar,
    is_traced,
    namespace,
)


class ResonanceScaling(NamedTuple):
    """Resonance scaling: wavelengths rounded to whole positions (Wang et al. 2024).

    ω becomes 2π/round(2π/ω). Each phase then repeats after a whole number of positions, so longer
    texts have no phases that training has not seen. The frequencies may come from another scaling,
    such as YaRN.

    Attributes:
        scaling: scaling whose wavelengths are rounded; None for plain RoPE.
    """

    scaling: RopeScaling | None = None

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences, for a `scaling` that depends on it.
        """
        scaling = self.scaling or LinearScaling(1.0)
        scaled = scaling.frequencies(dim, base, length)
        library = namespace(scaled.inverse)
        wavelengths = library.maximum(library.round(2 * np.pi / scaled.inverse), 1)
        return scaled._replace(inverse=2 * np.pi / wavelengths)


Scaling = RopeScaling | ResonanceScaling

# Fields whose numbers must be positive.
_POSITIVE = (
    "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
    "short_factor", "long_factor", "fraction",
)  # fmt: skip


def check_scaling(scaling: object) -> None:
    """Raise `ValueError` for a scaling with invalid numbers."""
    if not isinstance(scaling, Scaling):
        raise ValueError(
            f"scaling is {scaling!r}: pass one such as LinearScaling(4.0), or a rope_parameters "
            "entry to rope_from_hf"
        )
    if isinstance(scaling, ResonanceScaling):
        return None if scaling.scaling is None else check_scaling(scaling.scaling)
    name = type(scaling).__name__
    parameters = {key: x for key, x in scaling._asdict().items() if not is_traced(x)}
    for field in _POSITIVE:
        values = np.asarray(1.0 if parameters.get(field) is None else parameters[field], np.float64)
        if not np.all((values > 0) & np.isfinite(values)):
            raise ValueError(f"{name}: {field} must be positive, not {parameters[field]}")
    if parameters.get("original_max_position_embeddings", 2) < 2:
        raise ValueError(f"{name}: original_max_position_embeddings must be at least 2")
    for high, low in (("beta_fast", "beta_slow"), ("high_freq_factor", "low_freq_factor")):
        if float(parameters.get(high, math.inf)) < float(parameters.get(low, 0)):
            raise ValueError(
                f"{name}: {high} ({parameters[high]}) must not be below {low} ({parameters[low]})"
            )

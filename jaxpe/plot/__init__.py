"""Distances, position vectors, spectra, profiles, shares and letters drawn into Matplotlib axes.

The figures of a report are drawn by the same functions. They need the extra `report`.
"""

from jaxpe.plot.axes import distances, logo, positions, profile, shares, spectrum

__all__ = [
    "distances", "logo", "positions", "profile", "shares", "spectrum",
]  # fmt: skip

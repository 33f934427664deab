"""Distances, position vectors, spectra and profiles drawn into Matplotlib axes.

The figures of a report are drawn by the same functions. They need the extra `report`.
"""

from jaxpe.plot.axes import distances, positions, profile, spectrum

__all__ = ["distances", "positions", "profile", "spectrum"]

"""Multidimensional scaling: distances to coordinates."""

"""Sampling noise, composition and position in the geometry of a corpus."""

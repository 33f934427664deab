"""Sampling noise, composition and position: what a second sample would repeat."""

"""Distances between positions, and what they are scored by."""

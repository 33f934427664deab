"""Distances between positions, and the stress that scores them."""

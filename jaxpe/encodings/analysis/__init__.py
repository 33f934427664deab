"""Computed properties of encodings."""

"""Statements of Li (2025), on expressiveness, generalisation and extrapolation."""

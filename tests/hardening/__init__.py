"""Hostile input: how it is tried, and where it comes from."""

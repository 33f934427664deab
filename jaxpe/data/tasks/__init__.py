"""Synthetic tasks whose answers depend on position."""

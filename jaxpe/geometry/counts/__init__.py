"""Tokens to counts, and counts to positional distributions."""

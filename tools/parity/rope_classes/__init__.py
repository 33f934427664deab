"""Measuring what classes of transformers do with positions: needs torch."""

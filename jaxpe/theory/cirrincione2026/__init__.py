"""Statements of Cirrincione (2026), On the Geometry of Positional Encodings in Transformers."""

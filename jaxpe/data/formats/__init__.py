"""Formats of files: rows, token ids and tensors."""

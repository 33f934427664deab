"""Tokenizers, vocabularies, and batches of token ids."""

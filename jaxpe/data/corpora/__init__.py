"""Corpora: built in, from files, through TFDS, and synthetic."""

"""Experiments are run: `make test-experiments`."""

"""Statements of Kazemnejad et al. (2023), on decoders without positional encoding."""

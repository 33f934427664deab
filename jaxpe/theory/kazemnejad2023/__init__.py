"""Statements of Kazemnejad et al. (2023), on decoders without positional encoding."""

from jaxpe.theory.statements import read_statements

# The statements of this paper, in its order.
STATEMENTS = read_statements("kazemnejad2023")

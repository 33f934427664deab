"""Statements of Li (2025), on expressiveness, generalisation and extrapolation."""

from jaxpe.theory.statements import read_statements

# The statements of this paper, in its order.
STATEMENTS = read_statements("li2025")

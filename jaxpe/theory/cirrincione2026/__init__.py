"""Statements of Cirrincione (2026), On the Geometry of Positional Encodings in Transformers."""

from jaxpe.theory.statements import read_statements

# The statements of this paper, in its order.
STATEMENTS = read_statements("cirrincione2026")

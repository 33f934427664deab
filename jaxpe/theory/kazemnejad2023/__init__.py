"""Statements of Kazemnejad et al. (2023), on decoders without positional encoding."""

from jaxpe.theory.kazemnejad2023.theorem_1_absolute_positions import nope_theorem_1
from jaxpe.theory.kazemnejad2023.theorem_2_relative_positions import nope_theorem_2
from jaxpe.theory.statements import read_statements

__all__ = ["STATEMENTS", "nope_theorem_1", "nope_theorem_2"]

# The statements of this paper, in its order.
STATEMENTS = read_statements("kazemnejad2023")

"""Positional encodings as plain functions of positions."""

from jaxpe.encodings.absolute import inverse_frequencies as inverse_frequencies
from jaxpe.encodings.absolute import random_vectors as random_vectors
from jaxpe.encodings.absolute import sinusoidal_vectors as sinusoidal_vectors
from jaxpe.encodings.bias import alibi_line as alibi_line
from jaxpe.encodings.bias import alibi_slopes as alibi_slopes
from jaxpe.encodings.rotary import rotary_orbit as rotary_orbit

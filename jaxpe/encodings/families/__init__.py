"""Families of encodings, one file each, in the order of the catalogue."""

# ruff: isort: skip_file
from jaxpe.encodings.families import (  # noqa: F401 (each registers its encodings)
    absolute,
    orthogonal,
    logarithmic,
    rotary,
    rope_scaling,
    learned_frequencies,
    context_extension,
    temperature,
    bias,
    relative,
    disentangled,
    data_dependent,
    masks,
)

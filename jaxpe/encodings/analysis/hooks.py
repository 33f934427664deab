"""Positions and the program of all hooks of an encoding, for its analyses."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings.base import Encoding, encoding_at
from jaxpe.encodings.registry import EncodingSizes


def line_of_positions(line: np.ndarray, coordinates: int) -> np.ndarray:
    """Positions `[n]`, or `[n, coordinates]` with equal coordinates."""
    line = np.asarray(line, np.int32)
    return line if coordinates == 1 else np.repeat(line[:, None], coordinates, 1)


def hooks_program(
    encoding: Encoding, coordinates: int, sizes: EncodingSizes
) -> tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]:
    """Program of all hooks that an encoding defines, by name, and the shapes of its arguments."""
    n, heads, dtype = sizes.length, (sizes.num_heads, sizes.head_dim), jnp.result_type(float)
    shapes = ((n, sizes.dim), (n, *heads), (n, *heads), (sizes.num_heads, n, n))
    x, q, k, weights = (jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    line = line_of_positions(np.arange(n), coordinates)
    positions = jax.ShapeDtypeStruct(line.shape, line.dtype)
    params = jax.eval_shape(encoding.init, jax.random.key(0))

    def program(p, i, x, q, k, w):
        bound, pair = encoding_at(encoding, p, x, i), (q, k, i, i)
        arguments = {"embed": (x, i), "query": (q, i), "key": (k, i)}
        arguments |= {"products": pair, "bias": pair, "mask": pair}
        arguments["value"] = (w, i, i)
        used = {name: args for name, args in arguments.items() if encoding.defines(name)}
        return {name: getattr(bound, name)(p, *args) for name, args in used.items()}

    return program, (params, positions, x, q, k, weights)

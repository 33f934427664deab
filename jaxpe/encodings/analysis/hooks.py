"""Shared parts of analyses of an encoding: its positions, and its hooks as one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings.base import Encoding, encoding_at
from jaxpe.encodings.registry import EncodingSizes


def line_of_positions(line: np.ndarray, coordinates: int) -> np.ndarray:
    """Positions `[n]`, or `[n, coordinates]` with equal coordinates where there are several."""
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
    hooks = {
        "embed": lambda e, p, i, x, q, k, w: e.embed(p, x, i),
        "query": lambda e, p, i, x, q, k, w: e.query(p, q, i),
        "key": lambda e, p, i, x, q, k, w: e.key(p, k, i),
        "products": lambda e, p, i, x, q, k, w: e.products(p, q, k, i, i),
        "bias": lambda e, p, i, x, q, k, w: e.bias(p, q, k, i, i),
        "mask": lambda e, p, i, x, q, k, w: e.mask(p, q, k, i, i),
        "weights": lambda e, p, i, x, q, k, w: e.weights(p, w, None, i, i),
        "value": lambda e, p, i, x, q, k, w: e.value(p, w, i, i),
    }
    used = {name: hook for name, hook in hooks.items() if encoding.defines(name)}
    params = jax.eval_shape(encoding.init, jax.random.key(0))

    def program(p, i, x, *arrays):
        bound = encoding_at(encoding, p, x, i)
        return {name: hook(bound, p, i, x, *arrays) for name, hook in used.items()}

    return program, (params, positions, x, q, k, weights)

"""What several analyses of an encoding share: its positions, and its hooks as one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings.base import Encoding
from jaxpe.encodings.registry import EncodingSizes


def line_of_positions(line: np.ndarray, coordinates: int) -> np.ndarray:
    """Positions `[n]`, or `[n, coordinates]` with equal coordinates where there are several."""
    line = np.asarray(line, np.int32)
    return line if coordinates == 1 else np.repeat(line[:, None], coordinates, 1)


def hooks_program(
    encoding: Encoding, coordinates: int, sizes: EncodingSizes
) -> tuple[Callable[..., list[Any]], tuple[Any, ...]]:
    """All hooks an encoding defines as one program, and the shapes of its arguments."""
    n, heads, dtype = sizes.length, (sizes.num_heads, sizes.head_dim), jnp.result_type(float)
    shapes = ((n, sizes.dim), (n, *heads), (n, *heads), (sizes.num_heads, n, n))
    x, q, k, weights = (jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    line = line_of_positions(np.arange(n), coordinates)
    positions = jax.ShapeDtypeStruct(line.shape, line.dtype)
    hooks = {
        "embed": lambda p, i, x, q, k, w: encoding.embed(p, x, i),
        "query": lambda p, i, x, q, k, w: encoding.query(p, q, i),
        "key": lambda p, i, x, q, k, w: encoding.key(p, k, i),
        "bias": lambda p, i, x, q, k, w: encoding.bias(p, q, k, i, i),
        "value": lambda p, i, x, q, k, w: encoding.value(p, w, i, i),
    }
    used = [hook for name, hook in hooks.items() if encoding.defines(name)]
    params = jax.eval_shape(encoding.init, jax.random.key(0))
    return lambda *args: [hook(*args) for hook in used], (params, positions, x, q, k, weights)

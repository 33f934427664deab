"""Rotary frequencies that heads use, by the norms of pairs of queries and keys."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe import nn
from jaxpe.analysis.inspect.attention_result import RotaryBands
from jaxpe.analysis.inspect.averages import document_means
from jaxpe.nn.heads import trunk

SHORT = 32  # tokens, the longest wavelength of the first band


class Rotation(NamedTuple):
    """Entries of queries and keys that rotate with position, and their frequencies."""

    angles: np.ndarray  # radians a position, [pairs]
    rotary_dim: int
    pairing: str  # "half" or "interleaved"


def rotary_bands(queries: Any, keys: Any, rotation: Rotation, *, context: int) -> RotaryBands:
    """Share of each band of wavelengths in Σ_p E‖q_p‖ E‖k_p‖, by head.

    Args:
        queries: queries before or after rotation, `[layers, documents, n, heads, width]`.
        keys: keys, whose heads may be fewer, each for several heads of queries.
        rotation: entries that rotate, and their frequencies.
        context: positions for which the model was configured, at least 32.

    >>> x = np.ones((1, 2, 3, 1, 4))
    >>> rotation = Rotation(np.array([1.0, 0.001]), 4, "half")
    >>> rotary_bands(x, x, rotation, context=1000).share.tolist()
    [[[0.5, 0.0, 0.5]]]
    """
    q, k = (_pair_norms(x, rotation).mean(axis=2) for x in (queries, keys))
    products = q * np.repeat(k, q.shape[-2] // k.shape[-2], axis=-2)
    share = products / np.maximum(products.sum(axis=-1, keepdims=True), 1e-30)
    wavelengths = 2 * np.pi / np.maximum(np.asarray(rotation.angles, np.float64), 1e-30)
    edges = np.array([SHORT, context], np.float64)
    bands = np.searchsorted(edges, wavelengths)  # a wavelength of the context is in the middle
    by_band = np.stack([share[..., bands == band].sum(axis=-1) for band in range(3)], axis=-1)
    overall = document_means(by_band.mean(axis=(0, 2)), within=(0.0, 1.0))
    return RotaryBands(edges, by_band.mean(axis=1), overall)


def _pair_norms(x: Any, rotation: Rotation) -> np.ndarray:
    """Norms of the pairs of entries that rotate together, `[..., pairs]`."""
    x, half = np.asarray(x, np.float64)[..., : rotation.rotary_dim], rotation.rotary_dim // 2
    if rotation.pairing == "half":
        return np.hypot(x[..., :half], x[..., half:])
    return np.hypot(x[..., ::2], x[..., 1::2])


def find_rotation(module: Any) -> Rotation | None:
    """Rotation of the queries, read from rotated unit vectors.

    None if queries do not rotate, heads differ, or pairs have no standard layout.
    """
    if not nn.head_encoding(module).defines("query"):
        return None
    apply, params = nn.functionalize(module, method=_rotated_basis)
    rotated = np.asarray(jax.jit(apply)(params), np.float64)
    if (rotated != rotated[:, :1]).any():
        return None
    rotated = rotated[:, 0]
    off = np.abs(rotated) * (1 - np.eye(len(rotated)))
    rotary, partner = np.flatnonzero(off.any(axis=1)), off.argmax(axis=1)
    dim = len(rotary)
    if dim < 2 or dim % 2 or rotary[-1] != dim - 1:
        return None
    halves = partner[0] == dim // 2
    first = np.arange(dim // 2) if halves else np.arange(0, dim, 2)
    if (partner[first] != first + (dim // 2 if halves else 1)).any():
        return None
    angles = np.abs(np.arctan2(rotated[first, partner[first]], rotated[first, first]))
    return Rotation(angles, dim, "half" if halves else "interleaved")


def _rotated_basis(model: Any) -> Array:
    """Unit vectors at position 1, after the query hook of the first layer's encoding."""
    below, encoding = trunk(model), nn.head_encoding(model)
    width, heads = below.config.head_width, below.config.num_heads
    if below.config.latent is not None:
        width += below.config.latent.rotary_dim
    unit = jnp.broadcast_to(jnp.eye(width)[:, None], (width, heads, width))
    by_layer = below.layers.attention.encoding_params.get_value()
    params = (below.encoding_params.get_value(), jax.tree.map(lambda leaf: leaf[0], by_layer))
    return encoding.query(params, unit, jnp.ones(width, jnp.int32))

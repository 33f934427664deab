"""Rotary frequencies that heads use, by the norms of pairs of queries and keys."""

from typing import Any

import numpy as np

from jaxpe.analysis.attention.logit_sums import Rotation
from jaxpe.analysis.inspect.attention_result import RotaryBands
from jaxpe.analysis.inspect.averages import document_means

SHORT = 32  # tokens, the longest wavelength of the first band


def rotary_bands(queries: Any, keys: Any, rotation: Rotation, *, context: int) -> RotaryBands:
    """Share of each band of wavelengths in Σ_p E‖q_p‖ E‖k_p‖, by head.

    Args:
        queries: queries before or after rotation, `[layers, documents, n, heads, width]`.
        keys: keys, whose heads may be fewer, each for several heads of queries.
        rotation: entries that rotate, and their frequencies.
        context: positions for which the model was configured, at least 32.

    >>> x = np.ones((1, 2, 3, 1, 4))
    >>> rotation = Rotation(np.array([1.0, 0.001]), 4, "half_split")
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
    return RotaryBands(wavelengths, edges, by_band.mean(axis=1), overall)


def _pair_norms(x: Any, rotation: Rotation) -> np.ndarray:
    """Norms of the pairs of entries that rotate together, `[..., pairs]`."""
    x, half = np.asarray(x, np.float64)[..., : rotation.rotary_dim], rotation.rotary_dim // 2
    if rotation.layout == "half_split":
        return np.hypot(x[..., :half], x[..., half:])
    return np.hypot(x[..., ::2], x[..., 1::2])

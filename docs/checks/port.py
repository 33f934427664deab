"""Rotation and attention in plain NumPy, both right: each page of the checks plants one fault."""

import numpy as np


def frequencies(half, base=10_000.0):
    """Radians per position of each pair, `[half]`."""
    return base ** (-np.arange(half) / half)


def turn(x, angles):
    """Heads turned by angles `[..., half]`: entry i pairs with entry i + half."""
    half = x.shape[-1] // 2
    cos, sin, a, b = np.cos(angles), np.sin(angles), x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def rotate(x, positions):
    """Rotated heads, `[batch, n, heads, head_dim]`, for positions `[batch, n]`."""
    return turn(x, positions[..., None, None] * frequencies(x.shape[-1] // 2))


def visible(positions, key_positions, segments, key_segments, window=None):
    """Keys that a query sees, `[batch, n_q, n_k]`: of its document, not later, in the window."""
    offsets = positions[:, :, None] - key_positions[:, None]
    same = segments[:, :, None] == key_segments[:, None]
    return same & (offsets >= 0) & (offsets < (window or np.inf))


def group(x, heads):
    """Keys or values for each head of queries: one serves several neighbours."""
    return np.repeat(x, heads // x.shape[2], axis=2)


def attend(
    q, k, v, positions, key_positions, segments, key_segments, *,
    rotate_queries=rotate, rotate_keys=rotate, visible=visible, group=group, bias=0.0,
):  # fmt: skip
    """Attention, `[batch, n_q, heads, value_dim]`."""
    q, k = rotate_queries(q, positions), rotate_keys(k, key_positions)
    k, v = group(k, q.shape[2]), group(v, q.shape[2])
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]) + bias
    seen = visible(positions, key_positions, segments, key_segments)
    weights = np.where(seen[:, None], np.exp(logits), 0)
    weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1e-30)
    return np.einsum("bhqk,bkhd->bqhd", weights, v)

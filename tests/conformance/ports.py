"""Rotation and attention in NumPy, as a port would write them, with a switch for each fault."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxpe.plans import simple_plan

PLAN = simple_plan(head_dim=16, base=1e4, context=2048)
NONE = PLAN._replace(kind="none", turning=0, frequencies=np.zeros(0), unscaled=np.zeros(0))


def rotate(
    x, positions, *, base=1e4, frequencies=None, factor=1.0, index=lambda p: p,
    step=lambda name, values: values,
):  # fmt: skip
    """Rotation of halves; `step` may round each of its steps."""
    half = x.shape[-1] // 2
    frequencies = base ** (-np.arange(half) / half) if frequencies is None else frequencies
    frequencies = step("frequencies", frequencies)
    angles = step("positions", index(positions) * 1.0)[..., None, None] * frequencies
    angles = step("phases", angles)
    cos, sin = (step("cos and sin", factor * f(angles)) for f in (np.cos, np.sin))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attended(q, k, v, seen, bias=0.0, scale=None, softcap=None, sinks=None):
    """Attention of rotated queries and keys to the pairs that are seen, `[batch, n_q, n_k]`."""
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) * scale + bias
    logits = logits if softcap is None else softcap * np.tanh(logits / softcap)
    weights = np.where(seen[..., None, :, :], np.exp(logits - logits.max()), 0)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - logits.max())
    weights = weights / np.maximum(total, 1e-30)
    return np.einsum("bhqk,bkhd->bqhd", weights, v).astype(np.float32)


def slopes_bias(positions, key_positions):
    """ALiBi of four heads."""
    offsets = np.abs(positions[:, :, None] - key_positions[:, None])
    return -(2.0 ** (-2 * np.arange(1, 5)))[:, None, None] * offsets[:, None]


class Port(NamedTuple):
    """Attention of a layer.

    Attributes:
        rotate: rotation of heads; None for none.
        window: keys that a query sees, itself included; on either side if `two_sided`.
        chunk: tokens of a chunk that see each other.
        documents: what masks: "segments", "padding" alone, or "index", causal by the row.
        bias: bias from positions of queries and keys.
        more: scale, cap and sinks.
    """

    rotate: Callable | None = rotate
    window: int | None = None
    two_sided: bool = False
    chunk: int | None = None
    causal: bool = True
    documents: str = "segments"
    bias: Callable = lambda positions, key_positions: 0.0
    more: dict[str, Any] = {}  # noqa: RUF012

    def __call__(self, q, k, v, positions, *, key_positions=None, segments=None, key_segments=None):
        keys = positions if key_positions is None else key_positions
        segments = np.ones(positions.shape, int) if segments is None else segments
        key_segments = np.ones(keys.shape, int) if key_segments is None else key_segments
        seen = self.seen(positions, keys, segments, key_segments)
        if self.rotate is not None:
            q, k = self.rotate(q, positions), self.rotate(k, keys)
        return attended(q, k, v, seen, self.bias(positions, keys), **self.more)

    def seen(self, positions, keys, segments, key_segments):
        """Pairs that are seen, `[batch, n_q, n_k]`."""
        offsets = positions[:, :, None] - keys[:, None]
        text = (key_segments > 0)[:, None]
        if self.documents == "index" and positions.shape == keys.shape:
            return np.tri(positions.shape[1], dtype=bool) & text
        same = segments[:, :, None] == key_segments[:, None]
        seen = same if self.documents == "segments" else text & (segments > 0)[:, :, None]
        seen = seen & ((offsets >= 0) | (not self.causal))
        seen &= (offsets < (self.window or 2**30)) & (not self.two_sided or offsets > -self.window)
        if self.chunk is not None:
            seen &= positions[:, :, None] // self.chunk == keys[:, None] // self.chunk
        return seen

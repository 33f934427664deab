"""Positions, documents and heads that checks of rotary embeddings and of attention share."""

import numpy as np

from jaxpe.plans.result import LayerPlan

TOKENS = np.arange(16)
# Documents of two rows, 0 for padding.
SEGMENTS = {
    "left padding": np.array([[0] * n + [1] * (16 - n) for n in (2, 5)]),
    "right padding": np.array([[1] * (16 - n) + [0] * n for n in (2, 5)]),
    "packed": np.array([[1] * 7 + [2] * 5 + [3] * 4, [1] * 3 + [2] * 13]),
}


def positions_in(segments: np.ndarray) -> np.ndarray:
    """Positions of tokens in their documents, `[batch, n]`; 0 for padding."""
    new = np.diff(segments, axis=1, prepend=-1) != 0
    return (TOKENS - np.maximum.accumulate(np.where(new, TOKENS, 0), 1)) * (segments > 0)


def on_axes(plan: LayerPlan, positions: np.ndarray) -> np.ndarray:
    """Positions `[batch, n]`, equal on all axes of a plan with sections: `[batch, n, axes]`."""
    axes = len(plan.sections)
    return np.repeat(positions[..., None], axes, -1) if axes else positions


def of_length(plan: LayerPlan, positions: np.ndarray) -> np.ndarray:
    """Positions `[batch, n]`, with a last token that makes texts as long as the plan's scaling."""
    if plan.rope_type not in ("dynamic", "longrope"):
        return positions
    last = plan.reach - 1
    return np.pad(np.minimum(positions, last), ((0, 0), (0, 1)), constant_values=last)


def image_positions(plan: LayerPlan) -> np.ndarray:
    """Positions of an image of 4 × 4 patches, and of text on further axes, `[1, n, axes]`."""
    axes = [5 + 0 * TOKENS, 5 + TOKENS // 4, 5 + TOKENS % 4, *[TOKENS] * len(plan.sections)]
    return np.stack(axes[: len(plan.sections)], -1)[None]


def random_heads(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random heads that every floating-point type holds exactly: multiples of 1/8 below 2."""
    whole = np.random.default_rng(seed).integers(-15, 16, shape)
    return (whole / 8).astype(np.float32)

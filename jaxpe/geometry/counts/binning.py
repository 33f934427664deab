"""Bins of positions: fewer, better filled rows for long documents."""

from typing import Literal

import numpy as np
from jaxtyping import Int32


def position_bins(
    n: int, *, bins: int, spacing: Literal["equal", "log"] = "equal"
) -> Int32[np.ndarray, " edges"]:
    """NumPy edges `[bins + 1]` that cut positions 0, ..., n − 1 into bins [edge_b, edge_{b+1}).

    "equal" bins differ by at most one position. "log" bins start with a single position and never
    get narrower: their widths grow geometrically, by the factor that makes them end at n.

    >>> position_bins(20, bins=4).tolist(), position_bins(20, bins=4, spacing="log").tolist()
    ([0, 5, 10, 15, 20], [0, 1, 3, 8, 20])
    """
    if not 1 <= bins <= n:
        raise ValueError(f"bins must lie in [1, n] = [1, {n}], not {bins}")
    if spacing not in ("equal", "log"):
        raise ValueError(f"spacing is {spacing!r}: pass 'equal' or 'log'")
    if spacing == "equal":
        edges = np.arange(bins + 1) * n // bins
    else:
        # Rounding may put a narrower bin after a wider one.
        edges = np.cumsum([0, *np.sort(np.diff(_geometric_edges(n, bins)))])
    return edges.astype(np.int32)


def _geometric_edges(n: int, bins: int) -> np.ndarray:
    """Edges 0, 1, 1 + q, 1 + q + q², ..., n, rounded; q ≥ 1 by bisection."""
    if bins == 1:
        return np.array([0, n])
    powers = np.arange(bins)
    low, high = 1.0, float(n) ** (1.0 / (bins - 1))
    for _ in range(100):
        q = 0.5 * (low + high)
        low, high = (low, q) if np.sum(q**powers) > n else (q, high)
    edges = np.floor(np.cumsum([0.0, *low**powers]) + 0.5).astype(int)
    return np.append(edges[:-1], n)

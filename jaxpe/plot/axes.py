"""Plots of distances, positions, spectra and profiles, one function each."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe._core.errors import InputError, require

if TYPE_CHECKING:
    from jax.typing import ArrayLike
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D

    from jaxpe.geometry import ClassicalMDS, Distances, SplitHalfGeometry

ABSENT = "#DDDDDD"  # of positions without data, and of a diagonal that is 0 by definition
_CUT = 0.02  # share of the distances left out of the colour range at either end
_BAND = (0.1, 0.9)  # quantiles over the pairs of one offset


def distances(
    D: "Distances | SplitHalfGeometry | tuple[Any, ...] | ArrayLike",
    *,
    present: "ArrayLike | None" = None,
    origin: int = 0,
    ax: "Axes | None" = None,
    cmap: str = "viridis",
) -> "AxesImage":
    """A heat map of distances between positions.

    The colour range leaves out the lowest and highest 2 %, so a few positions, often the first, do
    not dominate it. The diagonal and absent positions are grey.

    Args:
        D: distances `[n, n]`, or a result with distances: from `jaxpe.geometry`, or a part of a
            report's result, such as `load_result(...).position`.
        present: booleans `[n]`, positions to show; by default the positions present in D, or all.
        origin: index of the position that is called 0, of documents aligned at a site.
        ax: axes to draw into; the current ones of pyplot when None.
        cmap: name of a Matplotlib colour map.

    Returns:
        The image, for `figure.colorbar(image, ax=ax)`.

    Raises:
        InputError: an array that is not square, or a result without distances.
        MissingExtraError: without Matplotlib.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> distances(np.array([[0.0, 1.0], [1.0, 0.0]]), ax=ax).get_array().shape
    (2, 2)
    """
    ax, (matrix, shown) = _axes(ax), _matrix(D, present)
    values = _off_diagonal(matrix, shown)
    low, high = _middle(values)
    ax.set(xlabel="position", ylabel="position", facecolor=ABSENT)
    ends = np.array([-0.5, len(values) - 0.5]) - origin
    kwargs: Any = {"extent": (*ends, *ends[::-1]), "vmin": low, "vmax": high}
    return ax.imshow(values, cmap=cmap, interpolation="none", **kwargs)


def positions(
    P: "ClassicalMDS | tuple[Any, ...] | ArrayLike",
    *,
    present: "ArrayLike | None" = None,
    origin: int = 0,
    ax: "Axes | None" = None,
    cmap: str = "viridis",
) -> "PathCollection":
    """A map of positions: the first two coordinates, coloured by position, neighbours joined.

    Args:
        P: position vectors `[n, k]`, k ≥ 2, or a result with coordinates: from MDS, or a part of a
            report's result, such as `position`.
        present: booleans `[n]`, positions to show; by default the positions present in P, or all.
        origin: index of the position that is called 0, of documents aligned at a site.
        ax: axes to draw into; the current ones of pyplot when None.
        cmap: name of a Matplotlib colour map.

    Returns:
        The points, for `figure.colorbar(points, ax=ax)`.

    Raises:
        InputError: vectors of fewer than two coordinates, a result without any, or no position to
            show.
        MissingExtraError: without Matplotlib.

    >>> from matplotlib.figure import Figure
    >>> points = positions(np.eye(3), ax=Figure().subplots())
    >>> points.get_offsets().tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    ax = _axes(ax)
    vectors = _array(P, "coordinates", "vectors")
    present = getattr(P, "present", None) if present is None else present
    if vectors.ndim != 2 or vectors.shape[1] < 2:
        raise InputError(f"vectors have shape {list(vectors.shape)}: pass [n, k] with k ≥ 2")
    shown = np.flatnonzero(np.ones(len(vectors), bool) if present is None else present)
    if not len(shown):
        raise InputError("no position is present: there is nothing to draw")
    x, y = vectors[shown, :2].T
    ax.plot(x, y, color="#CCCCCC", lw=0.8, zorder=1)
    points = ax.scatter(x, y, c=shown - origin, cmap=cmap, s=26, zorder=2)
    for end in (0, -1):
        label, left = f"position {shown[end] - origin}", 2 * x[end] > x.min() + x.max()
        offset, side = (-6, 6) if left else (6, 6), "right" if left else "left"  # inside the axes
        ax.annotate(label, (x[end], y[end]), xytext=offset, textcoords="offset points", ha=side)
    ax.set(xlabel="axis 1", ylabel="axis 2", aspect="equal", adjustable="datalim")
    return points


def spectrum(
    values: "ClassicalMDS | tuple[Any, ...] | ArrayLike",
    *,
    chance: float | None = None,
    ax: "Axes | None" = None,
    **line: Any,
) -> "Line2D":
    """Eigenvalues or singular values by their number, in logarithmic axes.

    Args:
        values: `[n]` in the order to show, or a result with `eigenvalues`; values within 1e-12 of 0
            are left out.
        chance: value that noise reaches, such as a null of `significant_rank`, drawn as a dashed
            line; the axis is linear below it.
        ax: axes to draw into; the current ones of pyplot when None.
        line: further arguments of `Axes.plot`, such as `label` and `color`.

    Returns:
        The points.

    Raises:
        InputError: a result without eigenvalues.
        MissingExtraError: without Matplotlib.

    >>> from matplotlib.figure import Figure
    >>> spectrum(np.array([3.0, 1.0, 0.0]), ax=Figure().subplots()).get_xydata().tolist()
    [[1.0, 3.0], [2.0, 1.0]]
    """
    ax, eigenvalues = _axes(ax), _array(values, "eigenvalues")
    eigenvalues = eigenvalues[np.abs(eigenvalues) > 1e-12]
    look: dict[str, Any] = {"marker": "o", "ls": "", "ms": 3.5} | line
    (points,) = ax.plot(np.arange(1, len(eigenvalues) + 1), eigenvalues, **look)
    if chance is not None and chance > 0:
        ax.set_yscale("symlog", linthresh=chance)
        ax.axhline(chance, color="#666666", ls="--", lw=1.2)
    elif eigenvalues.size and (eigenvalues > 0).all():
        ax.set_yscale("log")
    ax.set(xscale="log", xlabel="eigenvalue number", ylabel="eigenvalue")
    return points


def profile(
    D: "Distances | SplitHalfGeometry | tuple[Any, ...] | ArrayLike",
    *,
    present: "ArrayLike | None" = None,
    squared: bool = True,
    ax: "Axes | None" = None,
    **line: Any,
) -> "Line2D":
    """Profile of distance by the offset |i − j|: the mean, and a band of the middle 80 % of pairs.

    Args:
        D: distances `[n, n]`, or a result with distances: from `jaxpe.geometry`, or a part of a
            report's result, such as `load_result(...).position`.
        present: booleans `[n]`, positions to show; by default the positions present in D, or all.
        squared: whether to show squared distances, in whose mean the noise of split halves cancels.
        ax: axes to draw into; the current ones of pyplot when None.
        line: further arguments of `Axes.plot`, such as `label` and `color`.

    Returns:
        The curve of means.

    Raises:
        InputError: an array that is not square, or a result without distances.
        MissingExtraError: without Matplotlib.

    >>> from matplotlib.figure import Figure
    >>> curve = profile(np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))),
    ...                 ax=Figure().subplots())
    >>> curve.get_ydata().tolist()
    [1.0, 4.0, 9.0]
    """
    ax, (matrix, shown) = _axes(ax), _matrix(D, present, squared=squared)
    mean, low, high = offset_quantiles(matrix, shown)
    offsets = np.arange(1, len(shown))
    (curve,) = ax.plot(offsets, mean, **line)
    ax.fill_between(offsets, low, high, color=curve.get_color(), alpha=0.18, lw=0)
    ax.set(xlabel="offset |i − j|", ylabel="squared distance" if squared else "distance")
    return curve


def offset_quantiles(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Mean, 10 % and 90 % quantile at each offset 1 … n − 1, `[3, n − 1]`; NaN without a pair.

    >>> offset_quantiles(np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([True, True])).tolist()
    [[2.0], [2.0], [2.0]]
    """
    off_diagonal = _off_diagonal(values, present)
    curves = np.full((3, len(present) - 1), np.nan)
    for offset in range(1, len(present)):
        pairs = np.diagonal(off_diagonal, offset)
        if (finite := pairs[np.isfinite(pairs)]).size:
            curves[:, offset - 1] = finite.mean(), *np.quantile(finite, _BAND)
    return curves


def _axes(ax: "Axes | None") -> "Axes":
    return require("matplotlib.pyplot", extra="report").gca() if ax is None else ax


def _matrix(
    D: Any,
    present: "ArrayLike | None",
    *,
    squared: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances, or their squares, and the positions to show."""
    own_present = getattr(D, "present", None)  # of an array there is none
    if getattr(D, "squared_distances", None) is not None:  # may be below 0
        values = _array(D, "squared_distances")
        values = values if squared else np.sqrt(np.clip(values, 0, None))
    else:
        values = _array(D, "values", "distances")
        values = values**2 if squared else values
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InputError(f"distances have shape {list(values.shape)}: pass a matrix [n, n]")
    chosen = own_present if present is None else present
    return values, np.ones(len(values), bool) if chosen is None else np.asarray(chosen)


def _array(value: Any, *fields: str) -> np.ndarray:
    """An array, or the first of these fields that a result has."""
    for name in fields:
        if (array := getattr(value, name, None)) is not None:
            return np.asarray(array)
    if hasattr(value, "_fields"):
        parts = {name: getattr(value, name) for name in value._fields}
        having = [name for name, part in parts.items() if any(hasattr(part, f) for f in fields)]
        instead = " or ".join([*(f"its `{name}`" for name in having), "an array"])
        raise InputError(f"{type(value).__name__} has no `{fields[-1]}`: pass {instead}")
    return np.asarray(value)


def _off_diagonal(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Values with NaN on the diagonal and where a position is absent: neither sets the scale."""
    hidden = ~(present[:, None] & present[None, :]) | np.eye(len(present), dtype=bool)
    return np.where(hidden, np.nan, values)


def _middle(values: np.ndarray) -> tuple[float, float]:
    """The range of all but the lowest and highest 2 %."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = map(float, np.quantile(finite, (_CUT, 1 - _CUT)))
    return (low, high) if high > low else (low - 0.5, low + 0.5)

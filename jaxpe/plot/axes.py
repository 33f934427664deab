"""Plots of distances, positions, spectra, profiles, shares and letters, one function each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe._core.errors import InputError, require

if TYPE_CHECKING:
    from jax.typing import ArrayLike
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch

    from jaxpe.geometry import Distances
    from jaxpe.geometry.mds.classical import ClassicalMDS
    from jaxpe.geometry.noise.split_half import SplitHalfGeometry

ABSENT = "#DDDDDD"  # of positions without data, and of a diagonal that is 0 by definition
_CUT = 0.02  # share of the distances left out of the colour range at either end
_BAND = (0.1, 0.9)  # quantiles over the pairs of one offset
# Nucleotides as in WebLogo; amino acids: polar, basic, acidic, hydrophobic.
_LETTER_COLOURS = {
    **dict(zip("ACGTU", ("#009E73", "#0072B2", "#E69F00", "#D55E00", "#D55E00"), strict=True)),
    "SYQN": "#009E73",
    "KRH": "#0072B2",
    "DE": "#D55E00",
    "VLIPWFM": "#222222",
}
_LEAST_LETTER = 1e-3  # height of the smallest letter that is drawn


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
            report's result, such as `position`.
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
        label = f"position {shown[end] - origin}".replace("-", "\N{MINUS SIGN}")
        left = 2 * x[end] > x.min() + x.max()
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
            report's result, such as `position`.
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


def shares(
    values: "ArrayLike",
    names: Sequence[str],
    *,
    ax: "Axes | None" = None,
    color: Sequence[str] | None = None,
) -> "BarContainer":
    """Shares of a whole as horizontal bars, the first on top, with their intervals.

    Args:
        values: `[parts, 3]`: estimate and the ends of its interval; NaN is left out.
        names: names of the parts.
        ax: axes to draw into; the current ones of pyplot when None.
        color: colours of the parts; those of the style when None.

    Returns:
        The bars.

    Raises:
        InputError: values of another shape.
        MissingExtraError: without Matplotlib.

    >>> from matplotlib.figure import Figure
    >>> bars = shares([[0.9, 0.8, 1.0], [0.1, 0.0, 0.2]], ["noise", "position"],
    ...               ax=Figure().subplots())
    >>> [float(bar.get_width()) for bar in bars]
    [0.9, 0.1]
    """
    ax, parts = _axes(ax), np.asarray(values, float)
    if parts.shape != (len(names), 3):
        raise InputError(f"shares have shape {list(parts.shape)}: pass [{len(names)}, 3]")
    at = np.arange(len(names))
    used = color or [f"C{index}" for index in at]
    bars = ax.barh(at, parts[:, 0], color=used, height=0.6)
    ax.hlines(at, parts[:, 1], parts[:, 2], color="black", lw=1.3)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel="share", yticks=at, yticklabels=list(names))
    ax.axvline(0, color="black", lw=0.8)
    return bars


def logo(
    heights: "ArrayLike",
    letters: Sequence[str],
    *,
    first: int = 0,
    ax: "Axes | None" = None,
) -> "list[PathPatch]":
    """A sequence logo: letters on one another at each position, the highest on top.

    Args:
        heights: `[n, letters]`, such as shares of the letters times the bits of a position; NaN
            and what is below 0.001 are left out.
        letters: the letters.
        first: position of the first row.
        ax: axes to draw into; the current ones of pyplot when None.

    Returns:
        The letters, from left to right and upwards.

    Raises:
        InputError: heights of another shape.
        MissingExtraError: without Matplotlib.

    >>> from matplotlib.figure import Figure
    >>> drawn = logo([[1.0, 0.5], [0.0, 2.0]], "AC", ax=Figure().subplots())
    >>> [round(one.get_extents().y1 - one.get_extents().y0) > 0 for one in drawn]
    [True, True, True]
    """
    ax, rows = _axes(ax), np.asarray(heights, float)
    if rows.ndim != 2 or rows.shape[1] != len(letters):
        raise InputError(f"heights have shape {list(rows.shape)}: pass [n, {len(letters)}]")
    patch = require("matplotlib.patches", extra="report").PathPatch
    drawn, paths = [], [_letter_path(letter) for letter in letters]
    for x, row in enumerate(rows, start=first):
        below = 0.0
        for index in np.argsort(row, kind="stable"):
            if not row[index] >= _LEAST_LETTER:  # NaN, too
                continue
            path = _placed(paths[index], float(x), below, float(row[index]))
            colours = (c for group, c in _LETTER_COLOURS.items() if letters[index] in group)
            drawn.append(ax.add_patch(patch(path, fc=next(colours, "#332288"), lw=0)))
            below += row[index]
    top = np.nansum(np.clip(rows, 0, None), axis=1).max(initial=0)
    ax.set(xlim=(first - 0.5, first + len(rows) - 0.5), ylim=(0, 1.05 * top or 1), ylabel="bits")
    return drawn


def _letter_path(letter: str) -> Any:
    paths = require("matplotlib.textpath", extra="report")
    return paths.TextPath((0, 0), letter, size=1, prop={"weight": "bold"})


def _placed(path: Any, x: float, below: float, height: float) -> Any:
    """The outline of a letter at x, 0.95 wide and so high, above `below`; an I stays narrow."""
    affine, box = require("matplotlib.transforms", extra="report").Affine2D, path.get_extents()
    scale = 0.95 / max(box.width, 0.4), height / box.height
    left = x - box.width * scale[0] / 2
    place = affine().translate(-box.x0, -box.y0).scale(*scale).translate(left, below)
    return path.transformed(place)


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

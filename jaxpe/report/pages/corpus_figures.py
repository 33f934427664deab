"""Figures of the page of a corpus: shares, distances, spectrum, map, and distance by offset."""

import math
from typing import Any

import numpy as np

from jaxpe import plot
from jaxpe.analysis.corpus.result import SHARES, CorpusResult, Interval
from jaxpe.plot.axes import offset_quantiles
from jaxpe.report.findings import Figure

_OBSERVED, _POSITION, _CHANCE, _COMPOSITION = "#882255", "#332288", "#555555", "#E69F00"


def corpus_figures(result: CorpusResult) -> list[Figure]:
    """Shares, distances, spectrum, map and distance by offset; one fewer beside a logo."""
    position, observed, origin = result.position, result.observed, result.facts.origin
    undefined = Interval(*3 * (math.nan,))
    parts = np.array([result.intervals.get(f"{name}_share", undefined) for name in SHARES])
    reach, level = result.documents_per_position, position.null_eigenvalue
    corrected = np.sqrt(np.clip(position.squared_distances, 0, None))
    own, all_ = {"present": position.present, "origin": origin}, observed.present
    titles = ("Nothing on this map rises above chance", "Only axis 1 rises above chance")
    map_title = (*titles, "The map of positions")[min(position.significant_rank, 2)]
    if np.isin(np.flatnonzero(position.present), result.rare_positions).all():
        map_title = "Do not trust this map: no position can be judged alone"
    panels = {
        "shares": [
            lambda ax: plot.shares(parts, SHARES, ax=ax, color=[_CHANCE, _COMPOSITION, _POSITION]),
            lambda ax: plot_reach(reach, origin, ax),
        ],
        "distances": [
            lambda ax: plot_map(observed.distances, all_, origin, "as observed", ax),
            lambda ax: plot_map(corrected, position.present, origin, "of position", ax),
        ],
        "spectrum": [lambda ax: plot.spectrum(position.rank_eigenvalues, chance=level, ax=ax)],
        "map": [lambda ax: plot_positions(position.coordinates, own, ax)],
        "offset": [lambda ax: plot_offsets(observed.distances**2, all_, position.by_offset, ax)],
    }
    said = {
        "shares": ("Shares of the variance, and documents by position", "Intervals are 95 %."),
        "distances": ("Distances between positions", "Right: without noise and composition. "
                      "Scales leave out the lowest and highest 2 %."),
        "spectrum": ("Dimensions against chance", "Dimensions above the line exceed rotated "
                     "documents; below it, the axis is linear."),
        "map": (map_title, "Positions with similar tokens lie close together. Successive ones are "
                "joined."),
        "offset": ("Distance by offset", "The largest offsets have few pairs."),
    }  # fmt: skip
    left_out = set() if position.positions else {"distances", "map"}
    if result.letters is not None:  # the logo is the fifth
        left_out.add("offset" if origin else "spectrum")
    size: Any = {"shares": {"height": 1.9}, "distances": {"columns": 2}, "map": {"height": 4.2}}
    names = [name for name in panels if name not in left_out]
    return [Figure(name, *said[name], panels[name], **size.get(name, {})) for name in names]


def plot_reach(documents: np.ndarray, origin: int, ax: Any) -> None:
    """Number of documents that reach each position."""
    positions = np.arange(len(documents)) - origin
    ax.fill_between(positions, documents, step="mid", color=_OBSERVED, alpha=0.35, lw=0)
    ax.set(xlabel="position", ylabel="documents", ylim=(0, None))


def plot_map(D: np.ndarray, present: np.ndarray, origin: int, title: str, ax: Any) -> None:
    """Distances between positions with a bar of colours."""
    drawn = plot.distances(D, present=present, origin=origin, ax=ax)
    ax.set(title=title, ylabel="")
    bar = {"location": "bottom", "extend": "both", "label": "Hellinger distance"}
    ax.figure.colorbar(drawn, ax=ax, shrink=0.9, aspect=14, **bar)


def plot_positions(P: np.ndarray, shown: dict[str, Any], ax: Any) -> None:
    """Map of positions with a bar of colours."""
    points = plot.positions(P, **shown, ax=ax)
    ax.margins(x=0.2)  # room for the labels of the ends
    ax.figure.colorbar(points, ax=ax, label="position", fraction=0.15, pad=0.03)


def plot_offsets(squares: np.ndarray, present: np.ndarray, by_offset: np.ndarray, ax: Any) -> None:
    """Mean squared distance by offset, as observed, and of position with its interval."""
    offsets, (mean, low, high) = np.arange(1, len(present)), by_offset
    ax.plot(offsets, offset_quantiles(squares, present)[0], color=_OBSERVED, label="as observed")
    ax.fill_between(offsets, low, high, color=_POSITION, alpha=0.18, lw=0)
    ax.plot(offsets, mean, color=_POSITION, label="position, 95 % interval")
    ax.set(xlabel="offset |i − j|", ylabel="mean squared distance")
    ax.legend()

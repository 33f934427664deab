"""The picture of an encoding: what its hooks do to positions, to logits and to attention."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reference.trials import SHOWN, SIZES, Trial

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # told apart by colour-blind readers, too
WIDTH, HEIGHT, DOTS = 7.2, 5.6, 100


def draw(trial: Trial, place: Path) -> None:
    """Two panels, four where there are vectors or a bias."""
    above = trial.vectors is not None or trial.bias is not None
    figure = Figure(figsize=(WIDTH, HEIGHT if above else HEIGHT / 2), dpi=DOTS)
    FigureCanvasAgg(figure)
    bottom, top = (0.09, 0.94) if above else (0.18, 0.88)
    figure.subplots_adjust(left=0.09, right=0.98, bottom=bottom, top=top, hspace=0.42, wspace=0.24)
    *first, last = figure.subplots(2 if above else 1, 2, squeeze=False)
    if trial.vectors is not None and trial.distances is not None:
        vectors(first[0][0], trial.vectors)
        distances(first[0][1], trial.distances)
    elif trial.bias is not None:
        heads(first[0][0], trial.bias, "bias by offset")
        heads(first[0][1], trial.bias[:, : SIZES.length], "bias inside the training length")
    attention(last[0], trial.attention)
    heads(last[1], trial.logits, "logits, equal keys")
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place)


def vectors(axis: Axes, values: np.ndarray) -> None:
    """Position vectors as rows of colours."""
    limit = np.nanmax(np.abs(values), initial=1e-9)
    shown = np.ma.masked_invalid(values.T)
    axis.imshow(shown, aspect="auto", cmap="RdBu", vmin=-limit, vmax=limit, interpolation="none")
    axis.set_facecolor("#DDDDDD")
    axis.set_title("vectors of positions", fontsize=10)
    axis.set(xlabel="position", ylabel="entry")
    trained(axis)


def distances(axis: Axes, values: np.ndarray) -> None:
    """Distances of vectors from that of position 0."""
    axis.plot(values, color=COLOURS[0])
    axis.set_title("distance from position 0", fontsize=10)
    axis.set(xlabel="position", xlim=(0, SHOWN), ylim=(0, None))
    trained(axis)


def heads(axis: Axes, values: np.ndarray, title: str) -> None:
    """A line a head, by how far back the key is."""
    for k, line in enumerate(values):
        axis.plot(line, color=COLOURS[k % len(COLOURS)], label=f"head {k}", linewidth=1.2)
    axis.set_title(title, fontsize=10)
    axis.set(xlabel="positions back", xlim=(0, values.shape[1]))
    if np.isfinite(values).any():
        low, high = np.nanmin(values), np.nanmax(values)
        room = 0.05 * (high - low) or 1.0
        axis.set_ylim(low - room, high + room)
    trained(axis)


def attention(axis: Axes, weights: np.ndarray) -> None:
    """Weights of random content."""
    axis.imshow(weights**0.5, cmap="Blues", vmin=0, vmax=1, interpolation="none", aspect="auto")
    axis.set_title("attention of random content, head 0", fontsize=10)
    axis.set(xlabel="key", ylabel="query")


def trained(axis: Axes) -> None:
    """Where the training length ends."""
    if axis.get_xlim()[1] > SIZES.length:
        axis.axvline(SIZES.length, color="black", linewidth=0.8, linestyle=":")

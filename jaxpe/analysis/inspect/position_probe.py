"""Linear probe of the position in every layer, tested on held-out documents."""

import jax
import numpy as np
from jax import Array

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.averages import jackknife
from jaxpe.analysis.inspect.documents import Sample, row_batches
from jaxpe.analysis.inspect.flax_model import Trace, inspected_model, sample_batch
from jaxpe.analysis.inspect.result import ProbeStage
from jaxpe.geometry import position_decodability
from jaxpe.geometry.mds.decodability import PositionDecodability

_GROUPS = 8  # groups of documents; the jackknife leaves out one at a time
_RIDGES = (1e-4, 1e-2, 0.1, 1.0)
_MOST_LAYERS = 13


def probe_layers(
    hidden: np.ndarray,
    *,
    layers: np.ndarray | None = None,
    progress: Progress = SILENT,
) -> ProbeStage:
    """Linear probe of the position on the hidden states of every layer.

    The probe is fitted to every other document and tested on the rest. Intervals are Student's, by
    the jackknife over eight groups of documents of both. For each layer the ridge is chosen among
    1e-4, 0.01, 0.1 and 1, by prediction of one half of the fitted documents from the other.

    Args:
        hidden: hidden states `[layers, documents, n, width]`, a document a row; four rows at least.
        layers: number of each layer, `[layers]`; 0, 1, 2, ... when None.
        progress: receiver of progress.

    >>> noise = np.random.default_rng(0).normal(size=(2, 8, 20, 3)).astype(np.float32)
    >>> noise[1] += np.arange(20)[None, :, None]
    >>> probe_layers(noise).r2.mean.round(1).tolist()
    [0.0, 1.0]
    """
    tracked = progress.track(hidden, "probing layers", total=len(hidden))
    probes, left_out = zip(*map(_probe, tracked), strict=True)
    r2 = np.array([probe.r2 for probe in probes], np.float64)
    positions = np.arange(hidden.shape[2])
    return ProbeStage(
        documents=len(probes[0].missed),
        layers=np.arange(len(hidden)) if layers is None else np.asarray(layers),
        r2=jackknife(r2, np.stack(left_out, axis=1)),
        error=np.array([float(probe.error) for probe in probes]),
        by_chance=float(np.abs(positions - positions.mean()).mean()),
    )


def _probe(layer: np.ndarray) -> tuple[PositionDecodability, np.ndarray]:
    """Probe with the best ridge within the fitted documents, and its `_jackknife`."""
    within = [float(position_decodability(layer[::2], ridge=ridge).r2) for ridge in _RIDGES]
    best = _RIDGES[int(np.argmax(within))]
    return jax.device_get(position_decodability(layer, ridge=best)), _jackknife(layer, best)


def _jackknife(layer: np.ndarray, ridge: float) -> np.ndarray:
    """R² of `position_decodability` without each group of documents.

    The second moments of a group are subtracted from the total moments, so all fits cost about one.
    The smallest ridge is far above their rounding in float64.
    """
    count, n, width = layer.shape
    x = layer.astype(np.float64) - layer.mean(axis=(0, 1), dtype=np.float64)
    t, groups = np.arange(n) - (n - 1) / 2, np.arange(count) // 2 % min(_GROUPS, count // 2)

    def sums(rows: np.ndarray) -> tuple[np.ndarray, ...]:
        flat = rows.reshape(-1, width)
        return flat.sum(axis=0), flat.T @ flat, t @ rows.sum(axis=0)

    total, r2 = sums(x[::2]), []
    for group in range(groups.max() + 1):
        out = groups == group
        size = n * np.sum(~out[::2])
        parts = zip(total, sums(x[::2][out[::2]]), strict=True)
        mean, second, product = ((a - b) / size for a, b in parts)
        covariance = second - np.outer(mean, mean)
        scale = np.sqrt(np.where(np.diag(covariance) > 0, np.diag(covariance), 1))
        matrix = covariance / np.outer(scale, scale) + ridge * np.eye(width)
        slopes = np.linalg.solve(matrix, product / scale) / scale
        error = t - (x[1::2][~out[1::2]] - mean) @ slopes
        r2.append(1 - (error**2).mean() / max((t**2).mean(), 1e-300))
    return np.array(r2)


def probed_layers(count: int) -> np.ndarray:
    """Indices of the layers whose input is probed; `count` stands for the output of the last.

    >>> probed_layers(6).tolist(), probed_layers(30)[:3].tolist()
    ([0, 1, 2, 3, 4, 5, 6], [0, 2, 5])
    """
    return np.unique(np.linspace(0, count, min(count + 1, _MOST_LAYERS)).round().astype(int))


def hidden_states(sample: Sample, layers: np.ndarray, *, progress: Progress = SILENT) -> np.ndarray:
    """Hidden states that enter layers, at text positions.

    Args:
        sample: the model and rows of tokens.
        layers: numbers of the layers; the number of all stands for the output of the last.
        progress: receiver of progress.

    Returns:
        float32 `[layers, documents, n, width]`.

    >>> hidden_states(sample, probed_layers(6)).shape  # doctest: +SKIP
    (7, 64, 126, 384)
    """

    def states(trace: Trace, ids: Array) -> Array:
        return trace.hidden_states[layers][:, :, sample.text]

    run, size = inspected_model(sample.module).traced(states), sample_batch(sample)
    total = -(-len(sample.rows) // size)
    batches = progress.track(row_batches(sample.rows, size), "hidden states", total=total)
    return np.concatenate([np.asarray(run(ids), np.float32) for ids in batches], axis=1)

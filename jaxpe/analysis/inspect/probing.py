"""A linear probe of the position in every layer, judged on documents it was not fitted to."""

import jax
import numpy as np
from jax import Array

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.attention.documents import Sample
from jaxpe.analysis.attention.logit_sums import batch_size, cut
from jaxpe.analysis.inspect.result import Means, ProbeFound
from jaxpe.geometry import PositionDecodability, position_decodability
from jaxpe.nn import functionalize, trunk

_RESAMPLES = 1000
_RIDGES = (1e-4, 1e-2, 0.1, 1.0)
_MOST_LAYERS = 13


def probe_layers(
    hidden: np.ndarray,
    *,
    layers: np.ndarray | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> ProbeFound:
    """Linear probe of the position on hidden states of every layer, `position_decodability`.

    Fitted to every other document and judged on the rest; intervals are of resamples of the
    documents it is judged on. The ridge is chosen for each layer among 1e-4, 0.01, 0.1 and 1, in
    the documents it is fitted to: half of them are predicted from the other half.

    Args:
        hidden: hidden states `[layers, documents, n, width]`, a document a row; four rows at least.
        layers: number of each layer, `[layers]`; 0, 1, 2, ... when None.
        seed: random seed of the resamples.
        progress: receiver of progress.

    >>> noise = np.random.default_rng(0).normal(size=(2, 8, 20, 3)).astype(np.float32)
    >>> noise[1] += np.arange(20)[None, :, None]
    >>> probe_layers(noise).r2.mean.round(1).tolist()
    [0.0, 1.0]
    """
    found = [
        _probed(layer) for layer in progress.track(hidden, "probing layers", total=len(hidden))
    ]
    n, judged = hidden.shape[2], len(found[0].missed)
    weights = np.random.default_rng([seed, 7]).multinomial(
        judged, np.full(judged, 1 / judged), size=_RESAMPLES
    )
    missed = np.stack([np.asarray(one.missed, np.float64) for one in found], axis=1)
    spread = np.stack([np.asarray(one.spread, np.float64) for one in found], axis=1)
    r2 = 1 - (weights @ missed) / np.maximum(weights @ spread, 1e-300)
    low, high = np.quantile(r2, (0.025, 0.975), axis=0)
    places = np.arange(n)
    return ProbeFound(
        documents=judged,
        layers=np.arange(len(hidden)) if layers is None else np.asarray(layers),
        r2=Means(np.array([float(one.r2) for one in found]), low, high),
        error=np.array([float(one.error) for one in found]),
        by_chance=float(np.abs(places - places.mean()).mean()),
    )


def _probed(layer: np.ndarray) -> PositionDecodability:
    """Decodability under the ridge that is best within the documents of the fit."""
    within = [float(position_decodability(layer[::2], ridge=ridge).r2) for ridge in _RIDGES]
    best = _RIDGES[int(np.argmax(within))]
    return jax.device_get(position_decodability(layer, ridge=best))


def probed_layers(count: int) -> np.ndarray:
    """Numbers of the layers whose input is probed, evenly from the first to behind the last.

    >>> probed_layers(6).tolist(), probed_layers(30)[:3].tolist()
    ([0, 1, 2, 3, 4, 5, 6], [0, 2, 5])
    """
    return np.unique(np.linspace(0, count, min(count + 1, _MOST_LAYERS)).round().astype(int))


def hidden_states(sample: Sample, layers: np.ndarray, *, progress: Progress = SILENT) -> np.ndarray:
    """Hidden states that enter layers, at places of text; those of the end for the last number.

    Args:
        sample: the model and rows of tokens.
        layers: numbers of the layers.
        progress: receiver of progress.

    Returns:
        float32 `[layers, documents, n, width]`.

    >>> hidden_states(sample, probed_layers(6)).shape  # doctest: +SKIP
    (7, 64, 126, 384)
    """

    def states(model, ids: Array) -> Array:
        found = trunk(model)(ids, trace=True).hidden_states
        assert found is not None  # it was traced
        return found[layers][:, :, sample.text]

    apply, params = functionalize(sample.module, method=states)
    run, size = jax.jit(apply), batch_size(sample)
    total = -(-len(sample.rows) // size)
    batches = progress.track(cut(sample.rows, size), "hidden states", total=total)
    return np.concatenate([np.asarray(run(params, ids), np.float32) for ids in batches], axis=1)

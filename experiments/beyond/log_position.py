"""One number for each position: logarithm, square root or line against the geometry of position.

Held-out scaled stress of one-number encodings, and of classical MDS fitted to the other half, over
15 balanced splits of the documents into halves. The logarithm is log(1 + i / tau), the power is i
to the a, with tau and a fitted to the other half on a coarse grid. Corpora and lengths are those of
`who_gets_there.py`, and the first 32 words of the standard library.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import DataMissingError, Run, main
from experiments.position_parts import documents_of, parts_of
from jaxpe._core.errors import InputError
from jaxpe.data import load_tokens
from jaxpe.geometry import HeldOut, SplitHalfGeometry

CORPORA: dict[str, dict[str, Any]] = {
    "stdlib, 32": {"source": "stdlib", "length": 32},
    "stdlib, 128": {"source": "stdlib", "length": 128},
    "SST-2, 32": {"source": "sst2", "length": 32},
    "IMDB, 64": {"source": "imdb", "length": 64},
    "IMDB, 256": {"source": "imdb", "length": 256},
}
TAUS, POWERS, SPLITS, DIM = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0), (0.25, 0.5, 0.75), 15, 8


def experiment(run: Run) -> dict[str, Any]:
    names = ("stdlib, 32",) if run.quick else tuple(CORPORA)
    return {"splits": SPLITS, "corpora": {name: measured(**CORPORA[name]) for name in names}}


def measured(**options: Any) -> dict[str, Any]:
    try:
        documents = documents_of(load_tokens(**options))
    except InputError as error:
        raise DataMissingError(str(error)) from error
    halves = parts_of(documents, half_splits=SPLITS).halves.position
    i = np.arange(documents.ids.shape[1], dtype=np.float32)
    logs = np.stack([np.log1p(i / tau) for tau in TAUS])
    powers = np.stack([i**a for a in POWERS])
    tested = jaxpe.geometry.held_out_stress(
        jnp.asarray(np.concatenate([logs, powers, i[None]])[..., None]), halves
    )
    samples = np.asarray(tested.samples)  # [splits, 2, encodings]
    families = {"log": slice(0, len(TAUS)), "power": slice(len(TAUS), -1)}
    found = {name: ends(fitted(samples[..., own])) for name, own in families.items()}
    found |= {
        "best tau": TAUS[int(np.argmin(samples[..., families["log"]].mean(axis=(0, 1))))],
        "best power": POWERS[int(np.argmin(samples[..., families["power"]].mean(axis=(0, 1))))],
        "log(1 + i)": ends(fitted(samples[..., TAUS.index(1.0)][..., None])),
        "line": ends(fitted(samples[..., -1:])),
        "mds": of_mds(halves),
    }
    print(options, found, flush=True)
    return found


def fitted(samples: np.ndarray) -> HeldOut:
    """Stress on one half of the member of a family that is best on the other half."""
    chosen = np.argmin(samples, axis=2)[:, ::-1]
    own = np.take_along_axis(samples, chosen[..., None], axis=2)[..., 0]
    return jaxpe.geometry.half_sample_interval(own)


def of_mds(halves: SplitHalfGeometry) -> list[dict[str, float]]:
    """Stress of classical MDS of the other half, by dimension."""
    tested = jax.device_get(jaxpe.geometry.cross_validated_mds(halves, dim=DIM))
    return [ends(tested, k) for k in range(DIM)]


def ends(found: HeldOut, *index: int) -> dict[str, float]:
    mean, low, high = (float(np.asarray(x)[index]) for x in (found.mean, found.low, found.high))
    return {"estimate": mean, "low": low, "high": high}


if __name__ == "__main__":
    main(experiment, "log_position")

"""Table 3, Figures 1 and 2: the synthetic corpus (n = 32, d = 16), `three_regimes` over 20 seeds.

Stress depends on the scale of the distances, so each published number of a fixed encoding implies
one: the root mean square distance at which that encoding has that stress.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments import common

LENGTH, DIM, DRAWS = 32, 16, 8
THEIRS = {"sinusoidal": 2.248, "random": 24.805, "sinusoidal_128": 18.98}


def experiment(run: common.Run) -> dict[str, Any]:
    geometry = common.synthetic_plug_in(4 if run.quick else 20)
    keys = jax.random.split(jax.random.key(0), DRAWS)
    positions = jnp.arange(LENGTH)
    encodings = {
        "sinusoidal": jaxpe.encodings.sinusoidal_vectors(positions, dim=DIM)[None],
        "sinusoidal_128": jaxpe.encodings.sinusoidal_vectors(positions, dim=128)[None],
        "random": jnp.stack([jaxpe.encodings.random_vectors(key, LENGTH, dim=DIM) for key in keys]),
    }
    draw(run, geometry)
    return {
        "seeds": len(geometry.D.values),
        "encodings": {k: score(v, geometry.D, THEIRS[k]) for k, v in encodings.items()},
        "rms_distance": common.mean_sd(rms_distance(geometry.D)),
        "eigenvalues_seed_0": geometry.mds.eigenvalues[0],
    }


def score(vectors: jax.Array, D: jaxpe.geometry.Distances, theirs: float) -> dict[str, Any]:
    """Stress over seeds and draws, and the rms distance that the published stress implies."""
    found = jax.vmap(jax.vmap(common.stresses, (None, 0)), (0, None))(vectors, D)
    raw, scaled = np.mean(np.asarray(found), axis=1)
    return {
        "theirs": theirs,
        "stress": common.mean_sd(raw),
        "scaled_stress": common.mean_sd(scaled),
        "implied_rms_distance": common.mean_sd(implied(vectors, D, theirs)),
    }


def implied(vectors: jax.Array, D: jaxpe.geometry.Distances, theirs: float) -> np.ndarray:
    """The rms distance at which targets of this shape, c·D, give the published stress.

    Σ(δ − c d)² = t c² Σd² is a quadratic in c; the root wanted is the positive one.
    """
    delta = np.asarray(
        jax.vmap(lambda p: jaxpe.geometry.euclidean_distances(p).values)(vectors), float
    )
    d = np.asarray(D.values, float)
    own = np.mean(np.sum(delta**2, axis=(1, 2)))
    cross = np.einsum("kij,sij->s", delta, d) / len(delta)
    target = np.sum(d**2, axis=(1, 2))
    c = (-cross + np.sqrt(cross**2 + (theirs - 1) * target * own)) / ((theirs - 1) * target)
    return c * rms_distance(D)


def rms_distance(D: jaxpe.geometry.Distances) -> np.ndarray:
    d = np.asarray(D.values, float)
    n = d.shape[-1]
    return np.sqrt(np.sum(d**2, axis=(1, 2)) / (n * (n - 1)))


def draw(run: common.Run, geometry: common.PlugIn) -> None:
    title = "Three blocks, two dominant eigenvalues, three regimes"
    figure, axes = common.new_figure(title, columns=3, width=10, height=3.2)
    blocks, spectrum, plane = axes[0]
    image = blocks.imshow(geometry.D.values[0], interpolation="none")
    figure.colorbar(image, ax=blocks, label="Hellinger distance")
    spectrum.bar(np.arange(1, 33), geometry.mds.eigenvalues[0])
    spectrum.set(xlabel="eigenvalue number", ylabel="eigenvalue of B")
    P = np.asarray(geometry.mds.coordinates[0])
    points = plane.scatter(P[:, 0], P[:, 1], c=np.arange(LENGTH))
    figure.colorbar(points, ax=plane, label="position")
    plane.set(xlabel="dimension 1 of P_MDS", ylabel="dimension 2", aspect="equal")
    common.save_figure(run, "figure_1_synthetic", figure)


if __name__ == "__main__":
    common.main(experiment, "table_3_synthetic")

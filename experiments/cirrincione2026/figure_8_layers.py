"""Figure 8, Section 6.8: stress of sinusoids projected by each layer's M = W_Q W_Kᵀ, on SST-2.

MiniLM and MPNet (BERT-base where `--bert FOLDER` or JAXPE_MODELS_DIR has it) and initialisations
N(0, 0.02²) of both widths, over all 128 positions (empty ones uniform, as published), the occupied
ones, and against position alone.

`antisymmetric`: the share of M_a = (M − Mᵀ)/2 in ‖M‖², by layer, and in the centred logits P M Pᵀ
of the model's own position vectors, or of sinusoids.

With ρ² = Σδ²/Σd² the size of the projected distances and s the scaled stress, Eq. (4) is exactly
ρ² − 2ρ√(1 − s) + 1: the raw curve is a curve of sizes, and only s is about shape.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import common, learning
from jaxpe import encodings, geometry

SCRATCH = {"scratch_384": (384, 6), "scratch_768": (768, 12)}  # width, layers
WHERE = ("all", "occupied", "position")
OPTIONS = learning.take_options(folders=("bert",))


def experiment(run: common.Run) -> dict[str, Any]:
    reference = learning.sst2_geometry()
    occupied = geometry.Distances(reference.plug_in.values, reference.occupied)
    geometries = (reference.plug_in, occupied, reference.position)
    targets = jax.tree.map(lambda *D: jnp.stack(D), *geometries)
    models: dict[str, Any] = {}
    for name in ("minilm",) if run.quick else ("minilm", "mpnet", "bert"):
        folder = learning.model_folder(name, given=OPTIONS.bert if name == "bert" else None)
        if folder is not None:
            encoder = learning.pretrained(folder, name).encoder
            attention = encoder.layers.attention
            kernels = (attention.query.kernel.get_value(), attention.key.kernel.get_value())
            vectors = learning.position_vectors(encoder)
            models[name] = scored(*kernels, targets) | antisymmetric(*kernels, vectors)
    for name, (dim, layers) in list(SCRATCH.items())[: 1 if run.quick else 2]:
        draws = [
            0.02 * jax.random.normal(jax.random.key(seed), (2, layers, dim, dim))
            for seed in range(1 if run.quick else 5)
        ]
        P = encodings.sinusoidal_vectors(jnp.arange(learning.LENGTH), dim=dim)
        found = [scored(Q, K, targets) | antisymmetric(Q, K, P) for Q, K in draws]
        models[name] = jax.tree.map(lambda *x: np.mean(x, axis=0), *found)
    for of in models.values():
        size, raw = (np.asarray(of["sinusoidal"][x]["all"]) for x in ("size", "raw"))
        of["raw_follows_size"] = float(np.corrcoef(size**2, raw)[0, 1] ** 2)
    return {"models": models}


def scored(W_Q: jax.Array, W_K: jax.Array, targets: geometry.Distances) -> dict[str, Any]:
    """Scores of sinusoids by layer, projected by W_Q W_Kᵀ, and without it."""
    P = encodings.sinusoidal_vectors(jnp.arange(learning.LENGTH), dim=W_Q.shape[1])
    layers = jax.lax.map(lambda W: scores(P @ W[0] @ W[1].T, targets), (W_Q, W_K))
    return {"sinusoidal": named(layers), "identity": named(scores(P, targets))}


@jax.jit
def antisymmetric(W_Q: jax.Array, W_K: jax.Array, P: jax.Array) -> dict[str, Any]:
    """Shares of M_a = (M − Mᵀ)/2 in M = W_Q W_Kᵀ and in P M Pᵀ, by layer."""

    def share(x: jax.Array) -> jax.Array:
        return jnp.sum(((x - x.mT) / 2) ** 2, axis=(1, 2)) / jnp.sum(x**2, axis=(1, 2))

    M, centred = W_Q @ W_K.mT, P - jnp.mean(P, axis=0)
    return {"antisymmetric": {"M": share(M), "positions": share(centred @ M @ centred.T)}}


@jax.jit
def scores(P: jax.Array, targets: geometry.Distances) -> dict[str, jax.Array]:
    """Stress, scaled stress and size ρ against each of the geometries, `[geometries]`."""
    delta = geometry.euclidean_distances(P).values

    def against(D: geometry.Distances) -> dict[str, jax.Array]:
        pairs = D.present[:, None] & D.present[None, :]
        own, size = (jnp.sum(jnp.where(pairs, x**2, 0.0)) for x in (delta, D.values))
        raw, scaled = common.stresses(D._replace(values=delta), D)
        return {"raw": raw, "scaled": scaled, "size": jnp.sqrt(own / size)}

    return jax.vmap(against)(targets)


def named(found: dict[str, jax.Array]) -> dict[str, dict[str, np.ndarray]]:
    """The last axis of the scores by the name of the geometry."""
    return {
        score: {name: np.asarray(values[..., i]) for i, name in enumerate(WHERE)}
        for score, values in found.items()
    }


if __name__ == "__main__":
    common.main(experiment, "figure_8_layers")

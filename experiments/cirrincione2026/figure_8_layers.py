"""Figure 8, Section 6.8: stress of sinusoids projected by each layer's M = W_Q W_Kᵀ, on SST-2.

Theirs (BERT-base): near zero at all layers from scratch; pretrained a peak of 5,000 at layer 3,
1,100 to 1,900 at layers 4 to 11, 2,500 at layer 12. Ours: MiniLM and MPNet (BERT-base where
`--bert FOLDER` or JAXPE_MODELS_DIR has it) and initialisations N(0, 0.02²) of both widths, over all
128 positions (empty ones uniform, as published), the occupied ones, and position alone; sinusoids
and the model's own table; M of the whole width and of each head.

With ρ² = Σδ²/Σd² the size of the projected distances and s the scaled stress, Eq. (4) is exactly
ρ² − 2ρ√(1 − s) + 1: the raw curve is a curve of sizes, and only s is about shape.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.learning import (
    LENGTH,
    TITLES,
    model_folder,
    position_vectors,
    pretrained,
    sst2_geometry,
    take_options,
)
from jaxpe.nn import BertEncoder

SCRATCH = {"scratch_384": (384, 6), "scratch_768": (768, 12)}  # width, layers
COLOURS = {
    "minilm": BLUE,
    "mpnet": GREEN,
    "bert": PINK,
    "scratch_384": SKY,
    "scratch_768": ORANGE,
}


def experiment(run: Run) -> dict[str, Any]:
    reference = sst2_geometry()
    occupied = jaxpe.geometry.Distances(reference.plug_in.values, reference.occupied)
    geometries = (reference.plug_in, occupied, reference.position)
    targets = jax.tree.map(lambda *D: jnp.stack(D), *geometries)
    result: dict[str, Any] = {"models": {}}
    for name in ("minilm",) if run.quick else ("minilm", "mpnet", "bert"):
        folder = model_folder(name, given=OPTIONS.bert if name == "bert" else None)
        if folder is not None:
            encoder = pretrained(folder, name).encoder
            result["models"][name] = of_model(encoder, targets)
    for name, (dim, layers) in SCRATCH.items():
        if run.quick and dim > 384:
            continue
        draws = [scratch(seed, dim, layers, targets) for seed in range(1 if run.quick else 5)]
        mean = jax.tree.map(lambda *x: np.mean(x, axis=0), *draws)
        result["models"][name] = {"sinusoidal": mean, "identity": identity(dim, targets)}
    for name, found in result["models"].items():
        result["models"][name]["raw_follows_size"] = r2_of_size(found["sinusoidal"])
        for score in ("raw", "scaled", "size"):
            print(name, score, np.round(found["sinusoidal"][score]["all"], 3), flush=True)
    draw(run, result["models"])
    return result


def of_model(encoder: BertEncoder, targets: jaxpe.Distances) -> dict[str, Any]:
    config = encoder.config
    attention = encoder.layers.attention
    kernels = attention.query.kernel.get_value(), attention.key.kernel.get_value()
    sinusoids = jaxpe.sinusoidal_vectors(jnp.arange(LENGTH), dim=config.dim)
    own = position_vectors(encoder)
    return {
        "sinusoidal": scored(sinusoids, *kernels, targets),
        "own_table": scored(own, *kernels, targets),
        "heads": of_heads(sinusoids, *kernels, targets, heads=config.num_heads),
        "identity": identity(config.dim, targets),
        "own_table_itself": named(scores(own, targets)),
    }


def scratch(seed: int, dim: int, layers: int, targets: jaxpe.Distances) -> dict[str, Any]:
    """W_Q and W_K from N(0, 0.02²), as BERT starts."""
    W_Q, W_K = 0.02 * jax.random.normal(jax.random.key(seed), (2, layers, dim, dim))
    return scored(jaxpe.sinusoidal_vectors(jnp.arange(LENGTH), dim=dim), W_Q, W_K, targets)


def identity(dim: int, targets: jaxpe.Distances) -> dict[str, Any]:
    return named(scores(jaxpe.sinusoidal_vectors(jnp.arange(LENGTH), dim=dim), targets))


def scored(
    P: jax.Array, W_Q: jax.Array, W_K: jax.Array, targets: jaxpe.Distances
) -> dict[str, Any]:
    """Scores of P W_Q W_Kᵀ by layer, and the root mean square norm of a row of W_Q W_Kᵀ."""
    found = jax.lax.map(lambda pair: scores(P @ pair[0] @ pair[1].T, targets), (W_Q, W_K))
    sizes = jax.lax.map(lambda pair: jnp.sqrt(jnp.mean((pair[0] @ pair[1].T) ** 2)), (W_Q, W_K))
    return named(found) | {"rms_row_of_M": np.asarray(sizes) * W_Q.shape[1] ** 0.5}


def of_heads(
    P: jax.Array, W_Q: jax.Array, W_K: jax.Array, targets: jaxpe.Distances, *, heads: int
) -> dict[str, Any]:
    """Least, median and largest of the scores over the heads of a layer."""

    def layer(pair):
        q, k = (w.reshape(w.shape[0], heads, -1).swapaxes(0, 1) for w in pair)
        return jax.lax.map(lambda head: scores(P @ head[0] @ head[1].T, targets), (q, k))

    quartiles = np.array([0.0, 0.5, 1.0])
    found = named(jax.lax.map(layer, (W_Q, W_K)))
    return jax.tree.map(lambda x: np.quantile(x, quartiles, axis=1).T, found)


@partial(jax.jit, inline=True)
def scores(P: jax.Array, targets: jaxpe.Distances) -> dict[str, jax.Array]:
    """Stress, scaled stress and size ρ against each of the geometries, `[geometries]`."""
    delta = jaxpe.euclidean_distances(P).values

    def against(D: jaxpe.Distances) -> dict[str, jax.Array]:
        pairs = D.present[:, None] & D.present[None, :]
        d2 = jnp.sum(jnp.where(pairs, D.values**2, 0.0))
        return {
            "raw": jaxpe.stress(delta_of(delta, D), D),
            "scaled": jaxpe.scaled_stress(delta_of(delta, D), D).stress,
            "size": jnp.sqrt(jnp.sum(jnp.where(pairs, delta**2, 0.0)) / d2),
        }

    return jax.vmap(against)(targets)


def delta_of(values: jax.Array, D: jaxpe.Distances) -> jaxpe.Distances:
    return D._replace(values=values)


def named(found: dict[str, jax.Array]) -> dict[str, dict[str, np.ndarray]]:
    """The last axis of the scores by the name of the geometry."""
    where = ("all", "occupied", "position")
    return {
        score: {name: np.asarray(values[..., i]) for i, name in enumerate(where)}
        for score, values in found.items()
    }


def r2_of_size(found: dict[str, Any]) -> float:
    """R² of a line through raw stress against ρ², over layers."""
    x, y = np.asarray(found["size"]["all"]) ** 2, np.asarray(found["raw"]["all"])
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def draw(run: Run, models: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Figure 8 measures the size of M, not its shape", columns=3, width=10.4, height=3.9
    )
    raw, scaled, own = axes[0]
    for name, found in models.items():
        layers = np.arange(1, len(found["sinusoidal"]["raw"]["all"]) + 1)
        dim = SCRATCH[name][0] if name in SCRATCH else None
        label = f"scratch, {dim} wide" if dim else TITLES[name]
        line = {"color": COLOURS[name], "marker": "o", "ms": 3.5, "ls": "--" if dim else "-"}
        raw.plot(layers, found["sinusoidal"]["raw"]["all"], label=label, **line)
        scaled.plot(layers, found["sinusoidal"]["scaled"]["all"], **line)
        if not dim:
            own.plot(layers, found["own_table"]["scaled"]["occupied"], **line, label=label)
            itself = found["own_table_itself"]["scaled"]["occupied"]
            own.axhline(itself, color=COLOURS[name], lw=1, ls=":")
    raw.plot([3, 4, 11, 12], [5000, 1500, 1500, 2500], "s:", color=GREY, ms=4, label="published")
    raw.axhline(1, color=VERMILION, lw=1)
    raw.text(12, 1.1, "M = 0", color=VERMILION, fontsize=8.5, ha="right", va="bottom")
    raw.set(yscale="log", ylabel="stress of sinusoids · M", xlabel="layer", title="raw, Eq. (4)")
    straight = next(iter(models.values()))["identity"]["scaled"]["all"]
    scaled.axhline(straight, color="black", lw=1, ls=":", label="sinusoids, no M")
    scaled.set(ylim=(0, 0.5), xlabel="layer", title="the same at the best scale")
    scaled.legend(fontsize=8.5)
    own.set(ylim=(0, None), xlabel="layer", title="own table · M, occupied positions\n(dots: no M)")
    for axis in axes[0]:
        axis.set_xticks((1, 3, 6, 9, 12))
    figure.legend(*raw.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    save_figure(run, "figure_8_layers", figure)


OPTIONS = take_options(folders=("bert",))

if __name__ == "__main__":
    main(experiment, "figure_8_layers")

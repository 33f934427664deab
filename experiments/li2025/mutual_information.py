"""Li (2025), contribution 4: encodings by mutual information between positions, and layers.

Theirs: "information-theoretic criteria (maximizing mutual information between positions)" among the
proposals of the introduction, without a definition, and "how much positional mutual information is
transferred across layers" among the open questions. Ours: I_ij of the tokens at two positions over
documents, by three estimators with a permutation null; the encoding that keeps the most of it
beside the Hellinger geometry of the same corpus; and the Gaussian information between hidden states
of two positions, layer by layer, in MiniLM (positions added) and SmolLM2 (rotary, causal).
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import (
    BLUE,
    GREEN,
    ORANGE,
    TITLES,
    VERMILION,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.spectral2025.spectral_claims import documents_of, models_here
from jaxpe import geometry, nn
from jaxpe.data import load_tokens
from jaxpe.geometry.distances.mutual_information import (
    PositionalInformation,
    gaussian_information,
    mutual_information_encoding,
)

LENGTH, TOKENS = 32, 64  # of texts, and of `documents_of`
ESTIMATORS = ("plug-in", "miller-madow", "grassberger")
OFFSETS = (1, 2, 4, 8, 16)
COMPONENTS = 8  # of hidden states at a position


def experiment(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = {"corpora": {}, "layers": {}}
    for name in ("stdlib", "sst2", "imdb"):
        ids, mask = independent(name)
        if run.quick:
            ids, mask = ids[:2000, :12], mask[:2000, :12]
        result["corpora"][name] = of_tokens(ids, mask, permutations=2 if run.quick else 5)
        print(name, result["corpora"][name]["grassberger"]["corrected_by_offset"], flush=True)
    documents = 128 if run.quick else 1200
    for name, model, folder in models_here("minilm", "smollm2"):
        result["layers"][name] = of_layers(model, documents_of(folder, documents))
        print(name, result["layers"][name]["by_offset"]["1"], flush=True)
    draw(run, result)
    return result


def independent(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Words of one document of each group, the longest."""
    corpus = load_tokens(name, length=LENGTH)
    groups = corpus.groups()
    order = np.argsort(-corpus.mask.sum(axis=1), kind="stable")
    _, first = np.unique(groups[order], return_index=True)
    rows = np.sort(order[first])
    return corpus.ids[rows], corpus.mask[rows]


def of_tokens(ids: np.ndarray, mask: np.ndarray, *, permutations: int) -> dict[str, Any]:
    """Information by offset under each estimator, and the encoding that keeps the most of it."""
    found: dict[str, Any] = {"documents": len(ids)}
    information = {
        estimator: geometry.positional_information(
            ids, mask=mask, estimator=estimator, permutations=permutations, key=jax.random.key(0)
        )
        for estimator in ESTIMATORS
    }
    for estimator, of in information.items():
        known = np.asarray(of.documents) >= 1000
        found[estimator] = {
            "raw_by_offset": by_offset(of.values, known),
            "null_by_offset": by_offset(of.null, known),
            "corrected_by_offset": by_offset(of.corrected, known),
        }
    return found | encodings(information["grassberger"], ids, mask)


def by_offset(matrix: Any, known: np.ndarray) -> dict[str, float]:
    """Means over the pairs of positions at each offset that enough documents reach."""
    matrix = np.asarray(matrix, float)
    return {str(k): float(np.mean(np.diagonal(matrix, k)[np.diagonal(known, k)]))
            for k in OFFSETS if np.diagonal(known, k).any()}  # fmt: skip


def encodings(
    information: PositionalInformation, ids: np.ndarray, mask: np.ndarray
) -> dict[str, Any]:
    """The encoding of information beside that of Hellinger distances, over the positions known."""
    n = int(np.sum(np.diag(np.asarray(information.documents)) >= 1000))
    counts = geometry.count_tokens(ids[:, :n], vocab_size=int(ids.max()) + 1, mask=mask[:, :n])
    D = geometry.hellinger_distances(geometry.positional_distributions(counts))
    J = np.asarray(information.corrected)[:n, :n]
    mds = mutual_information_encoding(J, dim=n)
    own = np.asarray(mds.eigenvalues)
    positions = jnp.arange(n)
    sinusoids = jaxpe.encodings.sinusoidal_vectors(positions, dim=64)
    off = ~np.eye(n, dtype=bool)

    def kept(P: Any, dim: int) -> float:
        """Σ J ⟨p, p⟩ of the best `dim` directions of P, over the most that any have."""
        P = np.asarray(P) - np.mean(P, axis=0)
        U = np.linalg.svd(P, full_matrices=False)[0][:, :dim]
        return float(np.sum((U.T @ centred(J)) @ U * np.eye(dim)) / own[:dim].sum())

    hellinger = geometry.classical_mds(D, dim=8).coordinates
    return {
        "positions": n,
        "toeplitz_residual": float(geometry.toeplitz_residual(np.where(off, J, J[off].mean()))),
        "kept_in_8_dimensions": {"hellinger": kept(hellinger, 8), "sinusoidal": kept(sinusoids, 8)},
    }


def centred(J: np.ndarray) -> np.ndarray:
    J = np.where(np.eye(len(J), dtype=bool), 0.0, J)
    H = np.eye(len(J)) - 1 / len(J)
    return H @ J @ H


def of_layers(model: Any, ids: np.ndarray) -> dict[str, Any]:
    """Gaussian information between hidden states of two positions, by layer and offset.

    Of the leading principal components over all tokens of the layer, less the means at each
    position: what is left is what the documents put there, so that positions alone give 0.
    """
    apply, params = nn.functionalize(model)

    @jax.jit
    def run(params, ids):
        seen = apply(params, ids, trace=True)
        return getattr(seen, "transformer", seen).hidden_states

    size = 32
    parts = [np.asarray(run(params, ids[k : k + size]), np.float32)
             for k in range(0, len(ids) // size * size, size)]  # fmt: skip
    hidden = np.concatenate(parts, axis=1)  # [layers + 1, documents, n, dim]
    places = np.linspace(4, TOKENS - 1 - OFFSETS[-1], 8).astype(int)
    measure = jax.jit(jax.vmap(gaussian_information))
    found: dict[str, Any] = {str(k): [] for k in OFFSETS}
    shuffled = []
    for layer in hidden:
        x = layer - layer.mean(axis=0)  # [documents, n, dim]
        flat = x.reshape(-1, x.shape[-1])
        _, vectors = np.linalg.eigh(flat.T @ flat)
        z = np.moveaxis(x @ vectors[:, -COMPONENTS:], 1, 0)  # [n, documents, components]
        for k in OFFSETS:
            found[str(k)].append(float(np.mean(measure(z[places], z[places + k]))))
        other = np.roll(z[places + 1], 1, axis=1)  # of the next document
        shuffled.append(float(np.mean(measure(z[places], other))))
    return {"documents": hidden.shape[1], "by_offset": found, "other_documents": shuffled}


def draw(run: Run, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Mutual information between positions", columns=2, width=9, height=3.6
    )
    for (name, found), shade in zip(
        result["corpora"].items(), (GREEN, ORANGE, VERMILION), strict=True
    ):
        values = found["grassberger"]["corrected_by_offset"]
        axes[0, 0].plot([int(k) for k in values], list(values.values()), ".-", color=shade,
                        label=TITLES[name])  # fmt: skip
    axes[0, 0].set(xscale="log", xlabel="offset", ylabel="nats, less the null", title="tokens")
    axes[0, 0].set_xticks(OFFSETS, [str(k) for k in OFFSETS])
    axes[0, 0].minorticks_off()
    for (name, found), shade in zip(result["layers"].items(), (ORANGE, BLUE), strict=False):
        for k, style in (("1", "-"), ("16", ":")):
            values = found["by_offset"][k]
            label = f"{'MiniLM' if name == 'minilm' else 'SmolLM2'}, offset {k}"
            depth = np.linspace(0, 1, len(values))
            axes[0, 1].plot(depth, values, style, color=shade, label=label)
    axes[0, 1].set(xlabel="depth", ylabel="nats, 8 components", title="hidden states")
    for axis in axes[0]:
        axis.legend(fontsize=9)
    save_figure(run, "mutual_information", figure)


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

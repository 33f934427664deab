"""What arXiv:2505.13027 proves of spectra, evaluated: Toeplitz terms and contraction.

Theirs: position–position terms and biases are Toeplitz (Assumption 3.2); RoPE multiplies the Gram
matrix of content by the Toeplitz phases G_e, which contracts the spectrum of the logits (Lemma B.1,
by Schur) where additive terms do not. Ours: each step by itself, on random matrices and
on IMDB with real models: SmolLM2 (rotary), MiniLM (added) and MPNet (added, and a bias).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import Run, main
from experiments.learning import model_folder, pretrained, tokenizer_of
from jaxpe import encodings, nn, spectral
from jaxpe.data import load_tokens
from jaxpe.geometry.distances.toeplitz import toeplitz_residual
from jaxpe.nn.logit_decomposition import position_means

LENGTH = 64


def experiment(run: Run) -> dict[str, Any]:
    documents = 4 if run.quick else 16
    models = {}
    for name, model, folder in models_here("smollm2", "minilm", "mpnet"):
        models[name] = measured(model, documents_of(folder, documents))
        print(name, models[name]["ratios"]["hooks"]["range_centred"], flush=True)
    return {
        "position_terms": position_terms(seeds=4 if run.quick else 20),
        "rotary_contraction": rotary_contraction(seeds=4 if run.quick else 300),
        "schur_random": random_schur(seeds=20 if run.quick else 200),
        "models": models,
    }


def models_here(*names: str) -> Iterator[tuple[str, Any, Path]]:
    """Names, models without their heads, and folders of those on this machine."""
    for name in names:
        folder = model_folder("minilm" if name == "smollm2" else name)
        if folder is not None and name == "smollm2":
            folder = folder.parent / "SmolLM2-135M-Instruct"
            if any(folder.glob("*.gguf")):
                yield name, nn.load_causal_lm(folder), folder
        elif folder is not None:
            yield name, pretrained(folder, name).encoder, folder


def documents_of(folder: Path, count: int) -> np.ndarray:
    """The first reviews of IMDB that fill the length."""
    corpus = load_tokens("imdb", tokenizer=tokenizer_of(folder), length=LENGTH)
    return corpus.ids[corpus.mask.all(axis=1)][:count]


def position_terms(*, seeds: int, n: int = 64, dim: int = 64) -> dict[str, Any]:
    """Toeplitz residual of p_i W Wᵀ p_j, a whole head of full width, W_Q = W_K = W."""
    keys = jax.random.split(jax.random.key(0), seeds)

    def residuals(p, W):
        return jax.vmap(lambda W: toeplitz_residual((p @ W) @ (p @ W).T))(W)

    sinusoids = encodings.sinusoidal_vectors(jnp.arange(n), dim=dim)
    table = 0.02 * jax.random.normal(jax.random.key(1), (n, dim))
    free = jax.vmap(lambda key: jax.random.normal(key, (dim, dim)))(keys)
    orthogonal = jnp.linalg.qr(free)[0]
    return {
        "sinusoidal, W orthogonal": mean_and_range(residuals(sinusoids, orthogonal)),
        "sinusoidal, W Gaussian": mean_and_range(residuals(sinusoids, free)),
        "learned at initialisation, W orthogonal": mean_and_range(residuals(table, orthogonal)),
    }


def rotary_contraction(*, seeds: int, n: int = 64, dim: int = 64) -> dict[str, Any]:
    """Range of Σ_p Re[W_p ∘ E_p] over that of Σ_p W_p, by what is assumed of the content q = k.

    "Toeplitz": every pair of entries has the same positive definite Toeplitz W, as in the lemma.
    The others are draws of content whose W is Toeplitz in the mean. White content is left as it is
    in law by every rotation, so that its ratio is 1 on average (of the logarithm), whatever the
    lemma says.
    """
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    draws = np.random.default_rng(2).standard_normal((seeds, n, dim))
    mean = np.random.default_rng(3).standard_normal((seeds, 1, dim))
    found = {}
    with jax.enable_x64(True):
        phases = np.cos(offset[..., None] * encodings.inverse_frequencies(dim)).mean(-1)
        for name, W in toeplitz_matrices(offset, seeds=seeds).items():
            found[f"Toeplitz, {name}"] = {
                "hypotheses_met": float(np.mean(spectral.schur_bounds(W, phases).hypotheses)),
                "ratio": mean_and_range(spectral.contraction_ratio(W, phases)),
            }
        contents = {f"AR(1) content, {r}": autoregressive(draws, r) for r in (0.5, 0.9, 0.99)}
        contents |= {f"white content, mean × {m}": draws + m * mean for m in (0, 0.5, 1, 2)}
        for name, x in contents.items():
            found[name] = {"ratio": mean_and_range(rotated_ratio(x))}
    return found


def toeplitz_matrices(offset: np.ndarray, *, seeds: int) -> dict[str, np.ndarray]:
    """Positive definite Toeplitz matrices `[matrices, n, n]` by family."""
    n, omega = len(offset), np.linspace(0, 2 * np.pi, 4 * len(offset), endpoint=False)
    # A positive symbol on a fine grid: a mixture of cosines with positive weights.
    symbols = np.random.default_rng(4).exponential(size=(seeds, 1, omega.size)) ** 2
    random = np.mean(symbols * np.cos(np.arange(n)[:, None] * omega), axis=-1)
    return {
        "exp(−|k|/s), s of 1 to 64": np.exp(-offset / 2.0 ** np.arange(7)[:, None, None]),
        "exp(−k²/2s²), s of 1 to 4": np.exp(
            -(offset**2) / (2 * np.array([1.0, 2.0, 4.0])[:, None, None] ** 2)
        )
        + 1e-6 * np.eye(n),
        "random symbols": random[:, offset],
    }


def autoregressive(noise: np.ndarray, r: float) -> np.ndarray:
    """Stationary x_m = r x_{m−1} + √(1 − r²) noise_m along positions, variance 1."""
    x = noise.copy()
    for m in range(1, noise.shape[1]):
        x[:, m] = r * x[:, m - 1] + np.sqrt(1 - r**2) * noise[:, m]
    return x


def rotated_ratio(x: np.ndarray) -> np.ndarray:
    """Range of rotary logits of q = k = x `[draws, n, dim]` over that of x xᵀ."""
    i = np.arange(x.shape[1])
    rope = encodings.rope(head_dim=x.shape[-1])
    turned = np.asarray(jax.vmap(lambda q: rope.query((), q[:, None], i)[:, 0])(jnp.asarray(x)))
    before, after = (np.linalg.eigvalsh(z @ z.swapaxes(1, 2)) for z in (x, turned))
    return (after[:, -1] - after[:, 0]) / (before[:, -1] - before[:, 0])


def random_schur(*, seeds: int, n: int = 32) -> dict[str, Any]:
    """Schur's bounds on random positive semidefinite pairs, and on one frequency's phases."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, seeds, n, n)).astype(np.float32)
    W, E = A @ A.swapaxes(1, 2), B @ B.swapaxes(1, 2)
    theta = 2 * np.pi * rng.random((seeds, 1, 1))
    phases = np.exp(1j * (np.arange(n)[:, None] - np.arange(n)) * theta).astype(np.complex64)
    both, turned = spectral.schur_bounds(W, E), spectral.schur_bounds(W, phases)
    return {
        "bounds_hold": float(jnp.mean(both.holds & turned.holds)),
        "ratio_of_one_frequency": mean_and_range(spectral.contraction_ratio(W, phases)),
    }


def measured(model: Any, ids: np.ndarray) -> dict[str, Any]:
    """What positions do to the spectra of real logits, in two steps, and Schur's bounds.

    `hooks`: the encoding's hooks (rotation, bias) on against off, on the same queries and keys.
    `means`: queries and keys with what hidden states have of position on average, against without.
    """
    encoding = nn.head_encoding(model)
    apply, params = nn.functionalize(model, method=nn.split_heads)
    means = position_means(model, [{"ids": part} for part in np.split(ids, len(ids) // 4)])
    mask = np.tri(LENGTH, dtype=bool) if isinstance(model, nn.CausalLM) else None

    @jax.jit
    def layer(own, q_content, q_position, k_content, k_position, positions, scale):
        where = {"q_positions": positions, "k_positions": positions, "scale": scale}
        q, k = q_content + q_position, k_content + k_position
        off = encodings.identity()
        whole = encodings.attention_logits(encoding, own, q, k, **where)
        hookless = encodings.attention_logits(off, (), q, k, **where)
        content = encodings.attention_logits(off, (), q_content, k_content, **where)
        return {"hooks": ratios(whole, hookless, mask), "means": ratios(hookless, content, mask)}

    parts = jax.jit(apply)(params, ids, means=means)
    found = []
    for at in range(len(parts.q_content)):
        own = jax.tree.map(lambda x, at=at: x[at], (parts.params, *parts[:4]))
        found.append(jax.device_get(layer(*own, parts.positions, parts.scale)))
    stacked = jax.tree.map(lambda *x: np.stack(x), *found)
    keys = parts.k_content + parts.k_position
    omega = frequencies_of(encoding, jax.tree.map(lambda x: x[0], parts.params), keys.shape[-1])
    return {
        "ratios": {step: summaries(ratio) for step, ratio in stacked.items()},
        "by_layer": {
            step: [float(np.mean(x)) for x in ratio["range_centred"]]
            for step, ratio in stacked.items()
        },
        "gram_of_keys": gram_of_keys(np.asarray(keys), omega),
        "first_layer_residual": first_layer(model, ids),
    }


def frequencies_of(encoding: Any, params: Any, width: int) -> np.ndarray:
    """By how much the encoding turns each pair in one step; base 10,000 where it turns none."""
    half = width // 2
    x = jnp.where(jnp.arange(width) < half, 1.0, 0.0)[None, None, :]
    turned = np.asarray(encoding.key(params, x, jnp.array([1])))[0, 0]
    angles = np.abs(np.arctan2(turned[half:], turned[:half]))
    return angles if angles.any() else encodings.inverse_frequencies(width)


def gram_of_keys(k: np.ndarray, omega: np.ndarray) -> dict[str, Any]:
    """Σ_p Re[W_p ∘ E_p] over Σ_p Re W_p: ranges, with W_p the Gram matrices of pairs of keys."""
    n, half = k.shape[-3], k.shape[-1] // 2
    z = (k[..., :half] + 1j * k[..., half:]).astype(np.complex64)
    z = np.moveaxis(z, -3, -1).reshape(-1, half, n)  # [layers · documents · heads, pairs, n]
    phases = np.exp(1j * omega[:, None, None] * np.subtract.outer(np.arange(n), np.arange(n)))

    @jax.jit
    def ratio(z):
        gram = z[:, :, None] * z[:, None, :].conj()
        values = [
            jnp.linalg.eigvalsh(jnp.sum(W.real, axis=0))
            for W in (gram * phases.astype(np.complex64), gram)
        ]
        return (values[0][-1] - values[0][0]) / (values[1][-1] - values[1][0])

    return {"all_frequencies": mean_and_range([ratio(one) for one in z])}


def first_layer(model: Any, ids: np.ndarray) -> dict[str, float | None]:
    """Toeplitz residual of what embeddings and the bias bring, mean of heads; None of nothing."""
    encoding = nn.head_encoding(model)
    apply, params = nn.functionalize(model, method=nn.split_heads)

    def look(params, ids):
        found = apply(params, ids)
        heads = [getattr(found, f"{x}_{y}")[0] for x in "qk" for y in ("content", "position")]
        where = {"q_positions": found.positions, "k_positions": found.positions}
        own = jax.tree.map(lambda x: x[0], found.params)
        parts = spectral.logit_parts(encoding, own, *heads, **where, scale=found.scale)
        return {
            "position_position": jnp.mean(parts.position_position, axis=0),
            "bias": jnp.mean(parts.bias, axis=0),
        }

    means = jax.jit(look)(params, ids)
    residual = jax.vmap(toeplitz_residual)
    return {
        name: float(jnp.mean(residual(term))) if jnp.any(term) else None
        for name, term in means.items()
    }


def ratios(
    with_: jax.Array, without: jax.Array, mask: np.ndarray | None = None
) -> dict[str, jax.Array]:
    """Measures of the spectra of logits `[..., n, n]`, of one over the other, matrix by matrix."""

    def measure(L):
        centred = L - jnp.mean(L, axis=-1, keepdims=True, where=mask)
        values = spectral.spectrum(L, mask=mask).values
        return {
            "range_absolute": values[..., 0] - values[..., -1],
            "range_centred": spectral.spectrum(centred, mask=mask).range,
        }

    before, after = measure(without), measure(with_)
    return {name: after[name] / before[name] for name in before}


def summaries(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: mean_and_range(values) | {"share_below_1": float(np.mean(np.asarray(values) < 1))}
        for name, values in found.items()
    }


def mean_and_range(values: Any) -> dict[str, float]:
    values = np.asarray(values, float).ravel()
    low, high = np.quantile(values, (0.025, 0.975))
    middle = float(np.median(values))
    return {"mean": float(values.mean()), "median": middle, "low": float(low), "high": float(high)}


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

"""Three remarks in the proofs of Kazemnejad et al. (2023), Appendix C, on the constructed decoder.

Theirs: layer norm can be bypassed (C.1), instructions can act as <bos> (C.1), and a feed-forward
layer that writes another function of the position gives more relative encodings (C.2). Ours: the
decoder with layer norms; the share of reviews (IMDB, first 256 words) that hold each word of an
instruction; and the logits where the first layer writes p(t) in place of t.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.common import Run, main
from experiments.kazemnejad2023.nope_constructions import (
    VOCABULARY,
    WIDTH,
    constructed,
    inside,
    random_rows,
)
from jaxpe import nn
from jaxpe.data import load_tokens

LARGE = (0.0, 1e3, 1e6)  # N of two entries ±N; with 0 the norm is that of the other entries
FUNCTIONS: dict[str, Callable[[Any], Any]] = {  # with p(1) = 1
    "t": lambda t: t,
    "2t - 1": lambda t: 2 * t - 1,
    "1 + log t": lambda t: 1 + np.log(t),
    "sqrt t": np.sqrt,
    "t^2": np.square,
}
INSTRUCTION = ("classify", "the", "sentiment", "of", "this", "review")
READ = (("attention", "query"), ("attention", "key"), ("attention", "value"), ("mlp", "up"))
WRITTEN = (("attention", "output"), ("mlp", "down"))


def experiment(run: Run) -> dict[str, Any]:
    lengths, short = ((16,), 16) if run.quick else ((64, 256, 1024, 2048), 256)
    by_function = {name: written(p, short) for name, p in FUNCTIONS.items()}
    return {
        "layer_norm": {str(n): {f"{N:.0f}": layer_norm(n, N) for N in LARGE} for n in lengths},
        "left_by_offsets": {name: left_by_offsets(x) for name, x in by_function.items()},
        "reviews_with": reviews_with(50 if run.quick else None),
    }


def layer_norm(length: int, large: float) -> dict[str, float]:
    """Errors of t and of the last layer's logits where a layer norm is before each layer.

    The hidden state has three more entries: ±`large`, which make up its norm, and 0, which is
    subtracted from every entry that is read, so that the mean does not matter.
    """
    plain = constructed(length, jnp.float32, jax.random.key(0), head_dim=WIDTH // 2)
    config = dataclasses.replace(plain.config, dim=WIDTH + 3, norm="layer")
    values = nnx.to_pure_dict(nnx.state(plain))
    layers, tokens = values["layers"], values["tokens"]
    for layer, name in READ:
        kernel = layers[layer][name]["kernel"]
        rows = (jnp.zeros_like(kernel[:, :2]), -kernel.sum(axis=1, keepdims=True))
        layers[layer][name]["kernel"] = jnp.concatenate([kernel, *rows], axis=1)
    for layer, name in WRITTEN:
        kernel = layers[layer][name]["kernel"]
        layers[layer][name]["kernel"] = jnp.pad(kernel, ((0, 0), (0, 0), (0, 3)))
    more = np.tile(np.array([large, -large, 0], np.float32), (VOCABULARY, 1))
    tokens["embedding"] = jnp.concatenate([tokens["embedding"], more], axis=1)
    gain = large * (2 / config.dim) ** 0.5 or 1.0  # the standard deviation of an entry
    for name in ("attention_norm", "mlp_norm"):
        layers[name] = {"scale": np.full((config.num_layers, config.dim), gain, np.float32)}
    decoder = nn.Decoder(config, rngs=nnx.Rngs(0))
    nnx.update(decoder, values)
    ids = random_rows(1, length)
    (hidden, logits, _), (_, true, _) = (inside(model, ids) for model in (decoder, plain))
    errors = np.abs(np.asarray(hidden[1][0, :, 2]) - np.arange(1, length + 1))
    of_logits = np.tril(np.abs(np.asarray(logits[-1] - true[-1])))
    return {"positions": float(errors.max()), "logits": float(of_logits.max())}


def written(p: Callable[[Any], Any], length: int) -> np.ndarray:
    """Logits p(i) − p(t) of the second layer, without content, where the first writes p(t)."""
    with jax.enable_x64(True):
        decoder = constructed(length, jnp.float64, jax.random.key(0), scale=0.0, num_layers=2)
        t = np.arange(1, length + 1)
        slopes = np.diff(p(t)) / np.diff(1 / t) - 1  # of p(1/u) − u, from u = 1 down
        down = decoder.layers.mlp.down.kernel
        down.set_value(down.get_value().at[0, :, 2].set(-np.diff(slopes, prepend=0)))
        return np.asarray(inside(decoder, random_rows(1, length))[1][-1, 0, 0])


def left_by_offsets(logits: np.ndarray) -> float:
    """Share of the variation of logits of i ≤ t that no function of t − i explains."""
    offsets = np.subtract.outer(*[np.arange(len(logits))] * 2)
    seen, values = offsets[offsets >= 0], logits[offsets >= 0]
    means = np.bincount(seen, values) / np.bincount(seen)
    return float(np.sum((values - means[seen]) ** 2) / np.sum((values - values.mean()) ** 2))


def reviews_with(limit: int | None) -> dict[str, float]:
    """Share of reviews that hold each word of the instruction."""
    corpus = load_tokens("imdb", length=256, limit=limit)
    ids = np.where(corpus.mask, corpus.ids, -2)
    numbers = {word: k for k, word in enumerate(corpus.tokens)}
    return {w: float(np.any(ids == numbers.get(w, -1), axis=1).mean()) for w in INSTRUCTION}


if __name__ == "__main__":
    main(experiment, "nope_remarks")

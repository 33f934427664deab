"""Theorem 1 (necessity): a transformer without positions commutes with permutations.

The largest deviation over permutations of sentences of SST-2, relative to the largest hidden state,
for every kind of block we have and for MiniLM and MPNet with all that is positional taken out, in
float32 and float64; and how far every encoding of the catalogue (as initialised, and with N(0,
0.5²) added to its parameters), a causal mask and these models' own positions break it (root mean
square of the deviation over that of the hidden states). Two layers, width 64, 4 heads, random
weights of standard deviation 0.2, so that attention is far from uniform.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.common import Run, main, real_corpus
from experiments.learning import PRETRAINED, model_folder, pretrained
from jaxpe import encodings
from jaxpe.encodings.registry import CatalogueEntry
from jaxpe.nn import Decoder, Encoder, LatentSizes, TransformerConfig
from jaxpe.nn.transformer import Transformer

SENTENCES, TOKENS = 8, 24
ATTENTION: dict[str, dict[str, Any]] = {
    "multi-head": {},
    "grouped": {"num_kv_heads": 2},
    "latent": {"latent": LatentSizes(key_value_rank=32, rotary_dim=16)},
}
SIZES = encodings.EncodingSizes(dim=64, num_heads=4, head_dim=16, length=TOKENS)


def experiment(run: Run) -> dict[str, Any]:
    ids = sentences()
    orders = permutations(2 if run.quick else 16)
    result = {
        "sentences": SENTENCES,
        "tokens": TOKENS,
        "permutations": len(orders),
        "blocks": blocks(ids, orders, quick=run.quick),
        "pretrained": from_files(ids, orders, names=("minilm", "mpnet")[: 1 if run.quick else 2]),
        "broken_by": {"causal mask": {"as_initialised": broken(model(Decoder), ids, orders)}},
    }
    entries = encodings.catalogue(*(("none", "rope", "cope") if run.quick else ()))
    for entry in entries:
        result["broken_by"][entry.name] = broken_by(entry, ids, orders)
    worst = {d: max(row[d] for row in result["blocks"].values()) for d in ("float32", "float64")}
    print("worst block", worst, "pretrained", result["pretrained"])
    print(result["broken_by"])
    return result | {"worst_block": worst}


def sentences() -> np.ndarray:
    """The first sentences with enough words, without padding, `[sentences, tokens]`."""
    corpus = real_corpus("sst2")
    long = corpus.mask.sum(axis=1) > TOKENS
    return corpus.ids[long][:SENTENCES, :TOKENS]


def permutations(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(TOKENS) for _ in range(count)])


def positions(coordinates: int) -> jax.Array:
    """Of a row of text; on a grid 6 wide, and with time, for encodings of images and video."""
    i = jnp.arange(TOKENS)
    grid = {1: i, 2: jnp.stack([i // 6, i % 6], -1), 3: jnp.stack([i, i // 6, i % 6], -1)}
    return grid[coordinates]


def model(
    kind: Callable[..., Transformer], *, encoding=encodings.identity(), **choices
) -> Transformer:
    sizes = {"vocab_size": 30_522, "dim": SIZES.dim, "num_layers": 2, "num_heads": SIZES.num_heads}
    config = TransformerConfig(**sizes, init_scale=0.2, embedding_scale=1.0, **choices)
    return kind(config, encoding=encoding, rngs=nnx.Rngs(0))


def blocks(ids: np.ndarray, orders: np.ndarray, *, quick: bool) -> dict[str, dict[str, float]]:
    """Largest relative deviation of every kind of block without positions, in both precisions."""
    rows: dict[str, dict[str, float]] = {}
    kinds = itertools.product(
        ATTENTION, ("pre", "post"), ("layer", "rms"), ("gelu", "relu", "swiglu")
    )
    for attention, where, norm, activation in list(kinds)[:: 12 if quick else 1]:
        own = {"norm_position": where, "norm": norm, "activation": activation}
        make = partial(model, Encoder, **ATTENTION[attention], **own)
        rows[f"{attention}, {where}-norm, {norm}, {activation}"] = in_both(make, ids, orders)
    return rows


def from_files(ids: np.ndarray, orders: np.ndarray, *, names: tuple[str, ...]) -> dict[str, Any]:
    """Real weights, as they are and with everything positional taken out."""
    rows: dict[str, Any] = {}
    for name in names:
        folder = model_folder(name)
        if folder is not None:
            load = partial(pretrained, folder, name)
            make = lambda load=load, **dtypes: without_positions(load(**dtypes).encoder)  # noqa: E731
            row: dict[str, float] = in_both(make, ids, orders)
            row["broken_by_its_positions"] = broken(load().encoder, ids, orders)
            rows[PRETRAINED[name]] = row
    return rows


def without_positions(encoder: Transformer) -> Transformer:
    """The same weights with the encoding `identity`."""
    encoder.encoding = nnx.static(encodings.identity())
    encoder.encoding_params = nnx.Param(())
    return encoder


def in_both(make: Callable[..., Transformer], ids, orders) -> dict[str, float]:
    found = {}
    for name in ("float32", "float64"):
        with jax.enable_x64(name == "float64"):
            straight, back = outputs(make(dtype=name, param_dtype=name), ids, orders)
            found[name] = float(np.abs(back - straight).max() / np.abs(straight).max())
    return found


def broken_by(entry: CatalogueEntry, ids, orders) -> dict[str, float]:
    """How far an encoding breaks it, as initialised and with other parameters.

    Some tables start at 0 and so do nothing until they are trained.
    """
    at = positions(entry.coordinates)
    made = model(Encoder, encoding=entry.make(SIZES))
    found = {"as_initialised": broken(made, ids, orders, positions=at)}
    leaves, tree = jax.tree.flatten(made.encoding_params.get_value())
    if leaves:
        keys = jax.random.split(jax.random.key(1), len(leaves))
        noise = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        moved = [leaf + 0.5 * z for leaf, z in zip(leaves, noise, strict=True)]
        made.encoding_params = nnx.Param(jax.tree.unflatten(tree, moved))
        found["perturbed"] = broken(made, ids, orders, positions=at)
    return found


def broken(made: Transformer, ids, orders, **options: Any) -> float:
    """Root mean square of the deviation over that of the hidden states."""
    straight, back = outputs(made, ids, orders, **options)
    return float(np.sqrt(np.mean((back - straight) ** 2) / np.mean(straight**2)))


def outputs(made: Transformer, ids, orders, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states `[1, sentences, n, dim]`, and of permuted sentences, put back in order."""
    graphdef, params = nnx.split(made)
    apply = jax.jit(lambda params, ids: nnx.merge(graphdef, params)(ids, **options).hidden)
    straight = np.asarray(apply(params, ids))
    permuted = [np.asarray(apply(params, ids[:, order])) for order in orders]
    back = [hidden[:, np.argsort(o)] for hidden, o in zip(permuted, orders, strict=True)]
    return straight[None], np.stack(back)


if __name__ == "__main__":
    main(experiment, "theorem_1_equivariance")

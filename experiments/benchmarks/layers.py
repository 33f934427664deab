"""What a layer of causal attention costs under every encoding of the catalogue, against RoPE.

Run `python -m experiments.benchmarks.layers [--rounds N] [--quick] [--save]`. The layer is
projections, `jaxpe.encodings.attend` and its output; timed are its forward pass, and forward and
backward together (gradients of parameters, projections and input). Memory is what the compiled
program allocates besides arguments and results.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.benchmarks import _contest as contest
from jaxpe import encodings
from jaxpe.encodings import Encoding, EncodingSizes, catalogue
from jaxpe.encodings.base import encoding_at
from jaxpe.encodings.registry import CatalogueEntry

BATCH, SIZES = 2, EncodingSizes(dim=512, num_heads=8, head_dim=64, length=512)
QUICK = EncodingSizes(dim=32, num_heads=2, head_dim=16, length=64)


def layer(
    encoding: Encoding, params: Any, weights: dict[str, Array], x: Array, positions: Array
) -> Array:
    """Causal self-attention `[batch, n, dim]`."""
    x = encoding.embed(params, x, positions)
    q, k, v = (jnp.einsum("bnd,dhe->bnhe", x, weights[name]) for name in "qkv")
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    encoding = encoding_at(encoding, params, x, positions)
    y = encodings.attend(
        encoding, params, q, k, v, q_positions=positions, k_positions=positions, mask=mask
    )
    return jnp.einsum("bnhe,hed->bnd", y, weights["o"])


def of_layer(encoding: Encoding, cotangent: Array, *args: Any) -> Array:
    return jnp.vdot(layer(encoding, *args), cotangent)


def layers(
    entries: list[CatalogueEntry], sizes: EncodingSizes, *, backward: bool
) -> tuple[contest.Contestants, dict[str, float]]:
    """Contestants, and the MiB that each program allocates."""
    rng = np.random.default_rng(2)
    shape = (BATCH, sizes.length, sizes.dim)
    x, cotangent = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for _ in range(2))
    runs, memory = {}, {}
    for entry in entries:
        encoding = entry.first_layer(sizes)
        params = encoding.init(jax.random.key(0))
        positions = jnp.arange(sizes.length)
        if entry.coordinates > 1:
            scales = 2 ** np.arange(entry.coordinates, dtype=np.int32)
            positions = positions[:, None] // jnp.asarray(scales)[None, :]
        width = jax.eval_shape(encoding.embed, params, x, positions).shape[-1]  # concat widens
        step: Callable = partial(layer, encoding)
        if backward:
            step = jax.value_and_grad(partial(of_layer, encoding, cotangent), argnums=(0, 1, 2))
        run = contest.compiled(step, params, weights(width, sizes), x, positions)
        runs[entry.name], memory[entry.name] = run
    return runs, memory


def weights(width: int, sizes: EncodingSizes) -> dict[str, Array]:
    """Projections of the layer, from embeddings of a width."""
    rng = np.random.default_rng(3)
    heads = (sizes.num_heads, sizes.head_dim)
    shapes = dict.fromkeys("qkv", (width, *heads)) | {"o": (*heads, sizes.dim)}
    return {
        name: jnp.asarray(rng.standard_normal(shape) / np.sqrt(sizes.dim), jnp.float32)
        for name, shape in shapes.items()
    }


def main() -> None:
    options = contest.options_of(__doc__, rounds=15)
    contest.keep_freed_memory()
    sizes = QUICK if options.quick else SIZES
    result: dict[str, Any] = {"machine": contest.machine(), "rounds": options.rounds}
    result |= {"batch": BATCH, "sizes": sizes._asdict()}
    for title, backward in (("forward", False), ("forward and backward", True)):
        runs, memory = layers([*catalogue()], sizes, backward=backward)
        seconds = contest.measure(runs, options.rounds)
        result[title] = {
            "rope_milliseconds": 1e3 * contest.medians(seconds)["rope"],
            "over_rope": contest.ratios(seconds, "rope"),
            "mebibytes": memory,
        }
    contest.finish("layers", options, result)


if __name__ == "__main__":
    main()

"""What a layer of causal attention costs under every encoding of the catalogue, against RoPE.

Run `python -m experiments.benchmarks.layers [--rounds N] [--quick] [--save]`. The layer is
projections, `jaxpe.attend` and its output; timed are its forward pass, and forward and backward
together (gradients of parameters, projections and input). Contestants take turns in one process,
warmed up, with the threads of the machine; ratios are of medians, in brackets of the fastest
rounds. Memory is what the compiled program allocates besides arguments and results. PaTH and
stick-breaking run beside their naive forms, too: one token after the other.
"""

import argparse
import os
import platform
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from experiments.benchmarks._contest import Contestants, finished, measure, ratios, show
from experiments.benchmarks._machine import CORES, KEEP_FREED, keep_freed_memory, write_result
from jaxpe.encodings import CatalogueEntry, Encoding, EncodingSizes, catalogue
from jaxpe.encodings.base import encoding_at
from jaxpe.encodings.families.data_dependent import path_products

OUT = Path(__file__).parent.parent / "results" / "benchmark_layers.json"
BATCH, SIZES = 2, EncodingSizes(dim=512, num_heads=8, head_dim=64, length=512)
QUICK = EncodingSizes(dim=32, num_heads=2, head_dim=16, length=64)
REFERENCE = "rope"


def contestants() -> list[CatalogueEntry]:
    """The catalogue, and three ways to build one of it."""

    def yarn(sizes: EncodingSizes) -> Encoding:
        scaling = jaxpe.YarnScaling(factor=4.0, original_max_position_embeddings=sizes.length)
        return jaxpe.rope(head_dim=sizes.head_dim, scaling=scaling)

    def chained(sizes: EncodingSizes) -> Encoding:
        alibi = jaxpe.alibi(num_heads=sizes.num_heads)
        return jaxpe.chain(jaxpe.rope(head_dim=sizes.head_dim), alibi)

    def interleaved(sizes: EncodingSizes) -> Encoding:
        return jaxpe.rope(head_dim=sizes.head_dim, layout="interleaved")

    ways = {"rope, interleaved": interleaved, "rope, yarn": yarn, "rope, alibi": chained}
    return [
        *catalogue(),
        *(CatalogueEntry(name, "rotary", make, "") for name, make in ways.items()),
    ]


def layer(
    encoding: Encoding, params: Any, weights: dict[str, Array], x: Array, positions: Array
) -> Array:
    """Causal self-attention `[batch, n, dim]`."""
    x = encoding.embed(params, x, positions)
    q, k, v = (jnp.einsum("bnd,dhe->bnhe", x, weights[name]) for name in "qkv")
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    encoding = encoding_at(encoding, params, x, positions)
    y = jaxpe.attend(
        encoding, params, q, k, v, q_positions=positions, k_positions=positions, mask=mask
    )
    return jnp.einsum("bnhe,hed->bnd", y, weights["o"])


def of_layer(encoding: Encoding, cotangent: Array, *args: Any) -> Array:
    return jnp.vdot(layer(encoding, *args), cotangent)


def layers(
    entries: list[CatalogueEntry], sizes: EncodingSizes, *, backward: bool
) -> tuple[Contestants, dict[str, float]]:
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
        args = (params, weights(width, sizes), x, positions)
        step: Callable = partial(layer, encoding)
        if backward:
            step = jax.value_and_grad(partial(of_layer, encoding, cotangent), argnums=(0, 1, 2))
        compiled = jax.jit(step).lower(*args).compile()
        runs[entry.name] = finished(compiled, *args)
        allocated = getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0)
        memory[entry.name] = allocated / 2**20
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


# The naive forms, and what they are to be equal to.


def path_by_token(q: Array, k: Array, w: Array, beta: Array) -> Array:
    """Products of PaTH `[heads, n, n]`: each token reflects every key before it."""

    def step(keys: Array, token: tuple[Array, ...]) -> tuple[Array, Array]:
        at, query, direction, share = token  # [heads, d], [heads, d], [heads]
        moved = jnp.einsum("he,nhe->nh", direction, keys) * share
        before = (jnp.arange(len(keys)) < at)[:, None, None]
        keys = keys - jnp.where(before, moved[..., None] * direction, 0)
        return keys, jnp.einsum("he,nhe->hn", query, keys)

    _, rows = jax.lax.scan(step, k, (jnp.arange(len(k)), q, w, beta))
    return jnp.moveaxis(rows, 0, 1)


def path_by_chunk(chunk: int, q: Array, k: Array, w: Array, beta: Array) -> Array:
    own: Any = {"w": w, "beta": beta, "index": jnp.arange(len(k), dtype=q.dtype)}
    return path_products(q, k, own, own, chunk=chunk)


def sticks_by_token(z: Array) -> Array:
    """Weights of stick-breaking `[heads, n, n]`: keys are passed from the last to the first."""
    share = jax.nn.sigmoid(jnp.where(jnp.tri(z.shape[-1], k=-1, dtype=bool), z, -jnp.inf))

    def step(left: Array, taken: Array) -> tuple[Array, Array]:
        return left * (1 - taken), left * taken

    _, columns = jax.lax.scan(
        step, jnp.ones_like(z[..., 0]), jnp.moveaxis(share, -1, 0), reverse=True
    )
    return jnp.moveaxis(columns, 0, -1)


def sticks(z: Array) -> Array:
    i = jnp.arange(z.shape[-1])
    return jnp.asarray(jaxpe.encodings.stick_breaking().weights((), z, None, i, i))


def naive_forms(sizes: EncodingSizes, rounds: int) -> dict[str, Any]:
    """Forward and backward of each form over that of the library's; they are equal first."""
    rng = np.random.default_rng(4)
    n, heads, width = sizes.length, sizes.num_heads, sizes.head_dim
    q, k, w = (jnp.asarray(rng.standard_normal((n, heads, width)), jnp.float32) for _ in range(3))
    w = w / jnp.linalg.norm(w, axis=-1, keepdims=True)
    beta = jnp.asarray(2 * rng.random((n, heads)), jnp.float32)
    z = jnp.asarray(rng.standard_normal((heads, n, n)), jnp.float32)
    below, found = jnp.tri(n), {}
    for title, args, forms in (
        ("path", (q, k, w, beta), {
            "jaxpe": partial(path_by_chunk, 64),
            "all keys at once": partial(path_by_chunk, n),
            "token by token": path_by_token,
        }),
        ("stick_breaking", (z,), {"jaxpe": sticks, "token by token": sticks_by_token}),
    ):  # fmt: skip
        expected = np.asarray(forms["jaxpe"](*args) * below)
        runs, memory = {}, {}
        for name, form in forms.items():
            difference = np.abs(np.asarray(form(*args) * below) - expected).max()
            assert difference < 1e-3, (title, name, difference)

            def squares(*args: Array, form: Callable = form) -> Array:
                return jnp.sum((form(*args) * below) ** 2)

            numbers = tuple(range(len(args)))
            compiled = jax.jit(jax.value_and_grad(squares, argnums=numbers)).lower(*args).compile()
            runs[name] = finished(compiled, *args)
            memory[name] = getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0) / 2**20
        seconds = measure(runs, rounds)
        found[title] = {
            "milliseconds": {name: float(np.median(t) * 1e3) for name, t in seconds.items()},
            "over_jaxpe": ratios(seconds, "jaxpe"),
            "mebibytes": memory,
        }
        show(f"{title}, forward and backward, over jaxpe", found[title]["over_jaxpe"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a small layer: see that it works")
    parser.add_argument("--save", action="store_true", help=f"write {OUT.name}")
    options = parser.parse_args()
    keep_freed_memory()
    sizes = QUICK if options.quick else SIZES
    result: dict[str, Any] = {
        "machine": {
            "device": f"{jax.devices()[0].device_kind}, {CORES} cores, {platform.machine()}",
            "malloc": KEEP_FREED,
            "load_before": os.getloadavg()[0],
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("jax", "jaxlib", "numpy")},
        },
        "rounds": options.rounds,
        "batch": BATCH,
        "sizes": sizes._asdict(),
    }
    for title, backward in (("forward", False), ("forward and backward", True)):
        runs, memory = layers(contestants(), sizes, backward=backward)
        seconds = measure(runs, options.rounds)
        result[title] = {
            "rope_milliseconds": float(np.median(seconds[REFERENCE]) * 1e3),
            "over_rope": ratios(seconds, REFERENCE),
            "mebibytes": memory,
        }
        show(f"layer, batch {BATCH}, {sizes}, {title}: over RoPE", result[title]["over_rope"])
    result["naive_forms"] = naive_forms(sizes, options.rounds)
    result["machine"]["load_after"] = os.getloadavg()[0]
    if options.save:
        write_result(OUT, result)


if __name__ == "__main__":
    main()

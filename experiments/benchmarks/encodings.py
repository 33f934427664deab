"""What RoPE costs: against its peers and the limit of its memory traffic.

Run `python -m experiments.benchmarks.encodings [--rounds N] [--quick] [--save]`; with torch and
transformers installed, Hugging Face's Llama runs beside it. Contestants take turns in one process,
warmed up, all with the threads of the machine. Printed are ratios of medians and, in brackets, of
the fastest rounds. It ends with an error where a claim is missed.
"""

import argparse
import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from experiments.benchmarks._contest import Contestants, finished, measure, ratios, show
from experiments.benchmarks._machine import CORES, KEEP_FREED, keep_freed_memory, write_result
from jaxpe.encodings.families.rotary import Layout

OUT = Path(__file__).parent.parent / "results" / "benchmark_encodings.json"
PEER = "Hugging Face"
LIMIT = "multiply"
LAYOUTS: tuple[Layout, ...] = ("half_split", "interleaved")
SMALL, LARGE = (4, 1024, 12, 64), (4, 2048, 32, 64)  # batch, n, heads, head_dim; LARGE is in memory
QUICK = (2, 256, 4, 64)


class Claim(NamedTuple):
    """A bound on a ratio of medians."""

    what: str
    value: float
    bound: float
    at_most: bool

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound


# Rotary encoding: q and k `[batch, n, heads, head_dim]` turned by their positions `[n]`.


def plain_rope(x: Array, positions: Array, *, layout: Layout) -> Array:
    """The formula as one writes it, for JAX to differentiate."""
    dim = x.shape[-1]
    omega = 10_000.0 ** (-jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
    angles = positions.astype(jnp.float32)[:, None, None] * omega
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    if layout == "half_split":
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


def turn_both(turn: Callable[[Array, Array], Array], q: Array, k: Array, positions: Array):
    return turn(q, positions), turn(k, positions)


def jax_turns(head_dim: int) -> dict[str, Callable]:
    """Functions of q, k and positions."""
    turns: dict[str, Callable] = {}
    for layout in LAYOUTS:
        encoding = jaxpe.rope(head_dim=head_dim, layout=layout)
        turns[f"jaxpe {layout}"] = partial(turn_both, partial(encoding.query, ()))
        turns[f"plain JAX {layout}"] = partial(turn_both, partial(plain_rope, layout=layout))
    return turns


def with_gradients(turn: Callable, q: Array, k: Array, positions: Array, cotangents: Any):
    out, pull = jax.vjp(lambda q, k: turn(q, k, positions), q, k)
    return out, pull(cotangents)


def multiplied(factor: Array, *arrays: Array) -> list[Array]:
    """The limit: each array is read once and its product written once."""
    return [factor * x for x in arrays]


def rope_contestants(
    arrays: list[np.ndarray], dtype: jnp.dtype | type, *, backward: bool
) -> Contestants:
    """All that rotate q and k, and, with backward, their two cotangents (the last two arrays)."""
    q, k, *cotangents = (jnp.asarray(x, dtype) for x in arrays)
    positions = jnp.arange(q.shape[1])
    factor = jnp.asarray(1.5, dtype)
    given = (q, k, *cotangents) if backward else (q, k)
    runs = {LIMIT: finished(jax.jit(multiplied), factor, *given)}
    for name, turn in jax_turns(q.shape[-1]).items():
        if backward:
            both = jax.jit(partial(with_gradients, turn))
            runs[name] = finished(both, q, k, positions, tuple(cotangents))
        else:
            runs[name] = finished(jax.jit(turn), q, k, positions)
    return runs | hugging_face_contestants(arrays, jnp.dtype(dtype).name, backward=backward)


def has_peer() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


def hugging_face(shape: tuple[int, ...]) -> Callable:
    """Rotation of q and k `[batch, heads, n, head_dim]` as Llama does it, cos and sin included."""
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    _, n, heads, head_dim = shape
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=n,
    )
    rotary = llama.LlamaRotaryEmbedding(config)
    return lambda q, k, positions: llama.apply_rotary_pos_emb(q, k, *rotary(q, positions))


def hugging_face_contestants(
    arrays: list[np.ndarray], dtype: str, *, backward: bool
) -> Contestants:
    """Llama's rotation of contiguous arrays, and of the views its projections give."""
    if not has_peer():
        return {}
    torch = importlib.import_module("torch")
    torch.set_num_threads(CORES)
    turn = hugging_face(arrays[0].shape)
    positions = torch.arange(arrays[0].shape[1])[None]

    def run(q, k, *cotangents):
        out = turn(q, k, positions)
        return out, torch.autograd.grad(out, (q, k), cotangents) if backward else None

    views = [torch.from_numpy(x).to(getattr(torch, dtype)).transpose(1, 2) for x in arrays]
    runs: Contestants = {}
    for name, given in {
        PEER: [x.contiguous() for x in views],
        f"{PEER}, transposed": views,
    }.items():
        q, k = (x.detach().requires_grad_(backward) for x in given[:2])
        runs[name] = partial(run, q, k, *given[2:])
    return runs


def check_agreement(arrays: list[np.ndarray]) -> None:
    """All half-split contestants, and both interleaved ones, give the same forward and backward."""
    results: dict[str, list[np.ndarray]] = {}
    for name, run in rope_contestants(arrays, jnp.float32, backward=True).items():
        if name == LIMIT:
            continue
        (a, b), (da, db) = run()
        values = [np.asarray(x.detach() if hasattr(x, "detach") else x) for x in (a, b, da, db)]
        moved = name.startswith(PEER)
        results[name] = [x.transpose(0, 2, 1, 3) if moved else x for x in values]
    for name, values in results.items():
        layout = "interleaved" if "interleaved" in name else "half_split"
        for value, expected in zip(values, results[f"jaxpe {layout}"], strict=True):
            np.testing.assert_allclose(value, expected, atol=2e-3, err_msg=name)


def kept_for_backward(arrays: list[np.ndarray]) -> dict[str, dict[str, float]]:
    """What the forward pass keeps, and what the whole program needs besides arguments and results.

    Both in units of the bytes of q. The residuals of JAX are the leaves of the function that
    `jax.vjp` returns, those of torch what autograd saves, each storage once.
    """
    q, k, *cotangents = (jnp.asarray(x) for x in arrays)
    positions = jnp.arange(q.shape[1])
    kept: dict[str, dict[str, float]] = {}
    for name, turn in jax_turns(q.shape[-1]).items():
        pulled = jax.eval_shape(
            lambda q, k, turn=turn: jax.vjp(lambda q, k: turn(q, k, positions), q, k)[1], q, k
        )
        sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pulled)]
        both = jax.jit(partial(with_gradients, turn))
        analysis = both.lower(q, k, positions, tuple(cotangents)).compile().memory_analysis()
        kept[name] = {
            "residuals": sum(sizes) / q.nbytes,
            "temporary": getattr(analysis, "temp_size_in_bytes", 0) / q.nbytes,
        }
    if has_peer():
        kept[PEER] = {"residuals": saved_by_torch(arrays) / q.nbytes}
    return kept


def saved_by_torch(arrays: list[np.ndarray]) -> int:
    torch = importlib.import_module("torch")
    turn = hugging_face(arrays[0].shape)
    q, k = (torch.from_numpy(x).transpose(1, 2).requires_grad_() for x in arrays[:2])
    saved: dict[int, int] = {}

    def pack(x):
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = turn(q, k, torch.arange(q.shape[2])[None])
    del out
    return sum(saved.values())


# Measuring, and what is claimed.


def rope_result(shape: tuple[int, ...], dtype, rounds: int, *, backward: bool) -> dict[str, Any]:
    """Milliseconds, times over the limit, and how often slower than jaxpe the peers are."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for _ in range(4)]
    seconds = measure(rope_contestants(arrays, dtype, backward=backward), rounds)
    own = {f"plain JAX {layout}": f"jaxpe {layout}" for layout in LAYOUTS}
    own |= {name: "jaxpe half_split" for name in seconds if name.startswith(PEER)}
    return {
        "milliseconds": {n: float(np.median(t) * 1e3) for n, t in seconds.items()},
        "over_multiply": ratios(seconds, LIMIT),
        "over_jaxpe": {
            name: ratios({name: seconds[name], mine: seconds[mine]}, mine)[name]
            for name, mine in own.items()
        },
    }


def rope_results(
    small: tuple[int, ...], large: tuple[int, ...], rounds: int
) -> dict[str, dict[str, Any]]:
    results = {}
    for name, shape, dtype, backward in (
        ("small, forward", small, jnp.float32, False),
        ("small, forward and backward", small, jnp.float32, True),
        ("large, forward", large, jnp.float32, False),
        ("large, forward and backward", large, jnp.float32, True),
        ("large, forward and backward, bfloat16", large, jnp.bfloat16, True),
    ):
        results[name] = rope_result(shape, dtype, rounds, backward=backward)
        show(f"{name} {shape}: time over {LIMIT}", results[name]["over_multiply"])
        show("  time over jaxpe of the same layout", results[name]["over_jaxpe"])
    return results


CLAIMED = {
    "peer": ("small, forward and backward", "large, forward and backward"),
    "limit": ("large, forward", "large, forward and backward"),
}


def claims(rope: dict[str, Any]) -> list[Claim]:
    """What jaxpe says of its rotary encoding; the limits are for arrays that live in memory."""
    made = []
    for name, result in rope.items():
        for peer, ratio in result["over_jaxpe"].items():
            if peer.startswith(PEER) and name in CLAIMED["peer"]:
                made.append(Claim(f"{name}: {peer} over jaxpe", ratio["median"], 3.0, False))
        for layout, bound in (("half_split", 1.5), ("interleaved", 2.0)):
            if name in CLAIMED["limit"]:
                ratio = result["over_multiply"][f"jaxpe {layout}"]["median"]
                made.append(Claim(f"{name}: {layout} over {LIMIT}", ratio, bound, True))
    return made


def machine() -> dict[str, Any]:
    packages = ["jax", "jaxlib", "numpy", *(["torch", "transformers"] if has_peer() else [])]
    return {
        "device": f"{jax.devices()[0].device_kind}, {CORES} cores, {platform.machine()}",
        "malloc": KEEP_FREED,
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--quick", action="store_true", help="small arrays: see that it works")
    parser.add_argument("--save", action="store_true", help=f"write {OUT.name}")
    options = parser.parse_args()
    keep_freed_memory()
    result: dict[str, Any] = {"machine": machine(), "rounds": options.rounds}
    if not has_peer():
        print(f"torch or transformers is not installed: {PEER} is left out")
    rng = np.random.default_rng(0)
    small, large = (QUICK, QUICK) if options.quick else (SMALL, LARGE)
    check_agreement([rng.standard_normal(small, np.float32) for _ in range(4)])

    rope = rope_results(small, large, options.rounds)
    kept = kept_for_backward([rng.standard_normal(large, np.float32) for _ in range(4)])
    print("\nkept for backward, in bytes of q")
    for name, sizes in kept.items():
        print(f"  {name:32} " + ", ".join(f"{what} {size:.3f}" for what, size in sizes.items()))

    made = claims(rope)
    result |= {"rope": rope, "kept_for_backward": kept}
    result["claims"] = [claim._asdict() | {"holds": claim.holds} for claim in made]
    result["machine"]["load_after"] = os.getloadavg()[0]
    print()
    for claim in made:
        sign = "<=" if claim.at_most else ">="
        verdict = "holds " if claim.holds else "MISSED"
        print(f"{verdict} {claim.what}: {claim.value:.2f} {sign} {claim.bound}")
    if options.save:
        write_result(OUT, result)
    if not options.quick and not all(claim.holds for claim in made):
        sys.exit("a claim is missed")


if __name__ == "__main__":
    main()

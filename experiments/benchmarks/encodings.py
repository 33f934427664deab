"""What RoPE costs: against its peers and the limit of its memory traffic.

Run `python -m experiments.benchmarks.encodings [--rounds N] [--quick] [--save]`; with torch and
transformers installed, Hugging Face's Llama runs beside it. All contestants have the threads of the
machine, and agree before they are measured.
"""

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from experiments.benchmarks import _contest as contest
from jaxpe.encodings.families.rotary import Layout

PEER, LIMIT = "Hugging Face", "multiply"
LAYOUTS: tuple[Layout, ...] = ("half_split", "interleaved")
SMALL, LARGE = (4, 1024, 12, 64), (4, 2048, 32, 64)  # batch, n, heads, head_dim; LARGE is in memory
QUICK = (2, 256, 4, 64)
HAS_PEER = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


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


def jax_turns(head_dim: int) -> dict[str, Callable]:
    """Functions of q, k `[batch, n, heads, head_dim]` and positions `[n]`."""

    def of_both(turn: Callable[[Array, Array], Array], q: Array, k: Array, positions: Array):
        return turn(q, positions), turn(k, positions)

    turns: dict[str, Callable] = {}
    for layout in LAYOUTS:
        encoding = jaxpe.rope(head_dim=head_dim, layout=layout)
        turns[f"jaxpe {layout}"] = partial(of_both, partial(encoding.query, ()))
        turns[f"plain JAX {layout}"] = partial(of_both, partial(plain_rope, layout=layout))
    return turns


def with_gradients(turn: Callable, q: Array, k: Array, positions: Array, cotangents: Any):
    out, pull = jax.vjp(lambda q, k: turn(q, k, positions), q, k)
    return out, pull(cotangents)


def contestants(arrays: list[np.ndarray], dtype: Any, *, backward: bool) -> contest.Contestants:
    """All that rotate q and k, and, with backward, their two cotangents (the last two arrays)."""
    q, k, *cotangents = (jnp.asarray(x, dtype) for x in arrays)
    positions = jnp.arange(q.shape[1])
    read = (q, k, *cotangents) if backward else (q, k)
    multiply = lambda factor, *arrays: [factor * x for x in arrays]  # noqa: E731
    runs: contest.Contestants = {
        LIMIT: contest.compiled(multiply, jnp.asarray(1.5, dtype), *read)[0]
    }
    for name, turn in jax_turns(q.shape[-1]).items():
        function = partial(with_gradients, turn) if backward else turn
        more = (tuple(cotangents),) if backward else ()
        runs[name] = contest.compiled(function, q, k, positions, *more)[0]
    if HAS_PEER:
        runs[PEER] = hugging_face(arrays, jnp.dtype(dtype).name, backward=backward)
    return runs


def hugging_face(arrays: list[np.ndarray], dtype: str, *, backward: bool) -> Callable[[], Any]:
    """Llama's rotation of contiguous `[batch, heads, n, head_dim]`, cosines included."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(contest.CORES)
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    _, n, heads, head_dim = arrays[0].shape
    sizes = {"num_attention_heads": heads, "head_dim": head_dim, "max_position_embeddings": n}
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=heads * head_dim, **sizes
    )
    rotary, positions = llama.LlamaRotaryEmbedding(config), torch.arange(n)[None]
    views = [torch.from_numpy(x).to(getattr(torch, dtype)).transpose(1, 2) for x in arrays]
    q, k, *cotangents = (x.contiguous() for x in views)
    q, k = (x.detach().requires_grad_(backward) for x in (q, k))

    def run() -> Any:
        out = llama.apply_rotary_pos_emb(q, k, *rotary(q, positions))
        return out, torch.autograd.grad(out, (q, k), cotangents) if backward else None

    return run


def check_agreement(arrays: list[np.ndarray]) -> None:
    """All half-split contestants, and both interleaved ones, give the same forward and backward."""
    results: dict[str, list[np.ndarray]] = {}
    for name, run in contestants(arrays, jnp.float32, backward=True).items():
        if name != LIMIT:
            (a, b), (da, db) = run()
            values = [np.asarray(x.detach() if hasattr(x, "detach") else x) for x in (a, b, da, db)]
            moved = name == PEER
            results[name] = [x.transpose(0, 2, 1, 3) if moved else x for x in values]
    for name, values in results.items():
        layout = "interleaved" if "interleaved" in name else "half_split"
        for value, expected in zip(values, results[f"jaxpe {layout}"], strict=True):
            np.testing.assert_allclose(value, expected, atol=2e-3, err_msg=name)


def kept_for_backward(q: Array) -> dict[str, dict[str, float]]:
    """What the forward pass of two such arrays keeps, in units of the bytes of one.

    The residuals are the leaves of the function that `jax.vjp` returns.
    """
    positions = jnp.arange(q.shape[1])
    kept: dict[str, dict[str, float]] = {}
    for name, turn in jax_turns(q.shape[-1]).items():
        own = partial(turn, positions=positions)
        pulled = jax.eval_shape(lambda q, k, own=own: jax.vjp(own, q, k)[1], q, q)
        sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pulled)]
        kept[name] = {"residuals": sum(sizes) / q.nbytes}
    return kept


def rope_result(shape: tuple[int, ...], dtype: Any, rounds: int, *, backward: bool) -> dict:
    """Milliseconds, times over the limit, and times of the peers over ours."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for _ in range(4)]
    seconds = contest.measure(contestants(arrays, dtype, backward=backward), rounds)
    own = {f"plain JAX {layout}": f"jaxpe {layout}" for layout in LAYOUTS}
    own |= {PEER: "jaxpe half_split"} if HAS_PEER else {}
    return {
        "milliseconds": {name: 1e3 * value for name, value in contest.medians(seconds).items()},
        "over_multiply": contest.ratios(seconds, LIMIT),
        "over_jaxpe": {name: contest.ratios(seconds, mine)[name] for name, mine in own.items()},
    }


def main() -> None:
    options = contest.options_of(__doc__, rounds=25)
    contest.keep_freed_memory()
    result: dict[str, Any] = {"machine": contest.machine("torch", "transformers")}
    result |= {"rounds": options.rounds, "rope": {}}
    rng = np.random.default_rng(0)
    small, large = (QUICK, QUICK) if options.quick else (SMALL, LARGE)
    check_agreement([rng.standard_normal(small, np.float32) for _ in range(4)])
    for name, shape, dtype, backward in (
        ("small, forward", small, jnp.float32, False),
        ("small, forward and backward", small, jnp.float32, True),
        ("large, forward", large, jnp.float32, False),
        ("large, forward and backward", large, jnp.float32, True),
        ("large, forward and backward, bfloat16", large, jnp.bfloat16, True),
    ):
        result["rope"][name] = rope_result(shape, dtype, options.rounds, backward=backward)
    result["kept_for_backward"] = kept_for_backward(jnp.zeros(large))
    contest.finish("encodings", options, result)


if __name__ == "__main__":
    main()

"""What RoPE costs: against its peers and the limit of its memory traffic.

    python -m experiments.benchmarks.encodings [--peer PYTHON] [--rounds N] [--quick] [--save]

Hugging Face's Llama runs under a Python that has torch and transformers (`--peer`; this one by
default, "none" for none). All contestants have the threads of the machine, and agree before they
are measured.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.benchmarks import _contest as contest
from jaxpe import encodings
from jaxpe.encodings.families.rotary import Layout

PEER, LIMIT = "Hugging Face", "multiply"
LAYOUTS: tuple[Layout, ...] = ("half", "interleaved")
SMALL, LARGE = (4, 1024, 12, 64), (4, 2048, 32, 64)  # batch, n, heads, head_dim; LARGE is in memory
QUICK = (2, 256, 4, 64)


def plain_rope(x: Array, positions: Array, *, layout: Layout) -> Array:
    """The formula as one writes it, for JAX to differentiate."""
    dim = x.shape[-1]
    omega = 10_000.0 ** (-jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
    angles = positions.astype(jnp.float32)[:, None, None] * omega
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    if layout == "half":
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
        encoding = encodings.rope(head_dim=head_dim, layout=layout)
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
    return runs


def drawn(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Queries, keys and their cotangents, as the peer draws them."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for _ in range(4)]


def peer_of(
    python: str, shape: tuple[int, ...], dtype: Any, *, backward: bool, out: str = ""
) -> dict[str, contest.Worker]:
    """The worker in torch by its name, or nothing without a peer."""
    if python == "none":
        return {}
    sizes = {"shape": shape, "dtype": jnp.dtype(dtype).name, "backward": backward, "out": out}
    return {PEER: contest.torch_worker(python, "_torch_rope", sizes)}


def check_agreement(shape: tuple[int, ...], peer: str) -> dict[str, Any]:
    """All half-split contestants, and both interleaved ones, agree; versions of the peer."""
    results: dict[str, Any] = {}
    for name, run in contestants(drawn(shape), jnp.float32, backward=True).items():
        if name != LIMIT:
            results[name] = np.stack(jax.tree.leaves(run()))
    versions = {}
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.npy"
        for worker in peer_of(peer, shape, jnp.float32, backward=True, out=out).values():
            worker.close()
            versions = {name: worker.about[name] for name in ("torch", "transformers")}
            results[PEER] = np.load(out)
    for name, values in results.items():
        layout = "interleaved" if "interleaved" in name else "half"
        np.testing.assert_allclose(values, results[f"jaxpe {layout}"], atol=2e-3, err_msg=name)
    return versions


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


def rope_result(
    shape: tuple[int, ...], dtype: Any, options: argparse.Namespace, *, backward: bool
) -> dict:
    """Milliseconds, times over the limit, and times of the peers over ours."""
    runs = contestants(drawn(shape), dtype, backward=backward)
    peer = peer_of(options.peer, shape, dtype, backward=backward)
    ours = {name: partial(contest.seconds_of, run) for name, run in runs.items()}
    seconds = contest.take_turns(ours | peer, options.rounds, warm_up=2)
    for worker in peer.values():
        worker.close()
    own = {f"plain JAX {layout}": f"jaxpe {layout}" for layout in LAYOUTS}
    own |= dict.fromkeys(peer, "jaxpe half")
    return {
        "milliseconds": {name: 1e3 * value for name, value in contest.medians(seconds).items()},
        "over_multiply": contest.ratios(seconds, LIMIT),
        "over_jaxpe": {name: contest.ratios(seconds, mine)[name] for name, mine in own.items()},
    }


def main() -> None:
    options = contest.options_of(__doc__, rounds=25, peer=sys.executable)
    contest.keep_freed_memory()
    small, large = (QUICK, QUICK) if options.quick else (SMALL, LARGE)
    result: dict[str, Any] = {"machine": contest.machine(), "rounds": options.rounds, "rope": {}}
    result["peer"] = check_agreement(small, options.peer)
    for name, shape, dtype, backward in (
        ("small, forward", small, jnp.float32, False),
        ("small, forward and backward", small, jnp.float32, True),
        ("large, forward", large, jnp.float32, False),
        ("large, forward and backward", large, jnp.float32, True),
        ("large, forward and backward, bfloat16", large, jnp.bfloat16, True),
    ):
        result["rope"][name] = rope_result(shape, dtype, options, backward=backward)
    result["kept_for_backward"] = kept_for_backward(jnp.zeros(large))
    contest.finish("encodings", options, result)


if __name__ == "__main__":
    main()

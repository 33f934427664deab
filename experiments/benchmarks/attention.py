"""Attention in blocks, against dense attention and torch; long rows, windows and decoding.

    python -m experiments.benchmarks.attention [--peer PYTHON] [--rounds N] [--quick] [--save]

One row, causal, float32. On a GPU only the comparison with torch, in bfloat16 as well and with
`jax.nn`'s implementations; its results file is its own. Parameters of encodings are moved off
their first values. A loss is the product of the output with a fixed array, and its gradient is of
queries, keys, values and parameters. Memory is what a compiled program allocates besides arguments
and results.

The peer runs under a Python that has torch (`--peer`; this one by default, "none" for none), in one
process for each way of `_torch_attention`. Torch attends without RoPE, where ours includes the
rotations of queries and keys and of their gradients. Its dense biases are made before, where ours
are made in every block.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from experiments.benchmarks import _contest as contest
from experiments.benchmarks.scaling import exponent
from jaxpe.encodings import AttentionMask, Encoding, EncodingSizes, catalogue
from jaxpe.encodings.attention_mask import encoded_mask
from jaxpe.encodings.implementations import default_block_size, lacking

ENCODINGS = ("rope", "alibi", "t5", "fire")
PEERS = {
    "rope": ("sdpa",),
    "alibi": ("sdpa bias", "flex"),
    "t5": ("sdpa bias", "sdpa learned bias"),
}
LONG = ("rope",)
FEW_ROUNDS, DECODED = 2, 16
DIRECTIONS = {"forward": False, "forward and backward": True}


class Sizes(NamedTuple):
    """Tokens of each part, heads, and the type of queries, keys and values."""

    n: int = 4096
    lengths: tuple[int, ...] = (1024, 4096, 16384)
    heads: int = 8
    width: int = 64
    long: tuple[int, ...] = (8192, 16384, 32768)
    windowed: int = 16384
    windows: tuple[int, ...] = (512, 2048)
    cache: int = 32768
    dtype: str = "float32"


MOST_DENSE = 4096  # tokens of which dense attention stores all pairs
BACKEND = jax.default_backend()
WAYS = ("blocks", "dense", *(("xla", "cudnn") if BACKEND == "gpu" else ()))
FULL = Sizes()
QUICK = Sizes(
    512, (512,), 2, 16, long=(512, 1024, 2048), windowed=1024, windows=(128, 512), cache=2048
)


def encoding_of(name: str, sizes: Sizes) -> tuple[Encoding, Any]:
    """An encoding of the catalogue, and parameters that are not its first ones."""
    (entry,) = catalogue(name)
    dim = sizes.heads * sizes.width
    encoding = entry.first_layer(EncodingSizes(dim, sizes.heads, sizes.width, sizes.n))
    return encoding, moved(encoding.init(jax.random.key(0)))


def moved(params: Any) -> Any:
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: x + jnp.asarray(0.1 * rng.standard_normal(x.shape), x.dtype), params
    )


def arrays(n: int, sizes: Sizes) -> list[Array]:
    """Queries, keys, values and the cotangent of the output, `[n, heads, width]`."""
    shape = (4, n, sizes.heads, sizes.width)
    return [*jnp.asarray(np.random.default_rng(0).standard_normal(shape), sizes.dtype)]


def loss(
    encoding: Encoding, implementation: Any, params: Any, q: Array, k: Array, v: Array,
    cotangent: Array,
) -> Array:  # fmt: skip
    """Causal attention, times a fixed array."""
    i = jnp.arange(len(q))
    mask = jnp.tri(len(q), dtype=bool) if implementation == "dense" else AttentionMask(i, i)
    out = jaxpe.encodings.attend(
        encoding, params, q, k, v, q_positions=i, k_positions=i, mask=mask,
        implementation=implementation,
    )  # fmt: skip
    return jnp.vdot(out, cotangent, preferred_element_type=jnp.float32)


def program(
    encoding: Encoding, params: Any, n: int, sizes: Sizes, *, backward: bool, way: str = "blocks"
) -> tuple[Callable[[], Any], float]:
    """A compiled loss, or value and gradient, and the MiB that it allocates."""
    function = partial(loss, encoding, way)
    if backward:
        function = jax.value_and_grad(function, argnums=(0, 1, 2, 3))
    return contest.compiled(function, params, *arrays(n, sizes))


# Against dense attention, and torch.


def compare(name: str, sizes: Sizes, peer: str, rounds: int, *, backward: bool) -> dict[str, Any]:
    """Blocks, dense attention and torch, in turns; ratios are over the time of blocks."""
    built = encoding_of(name, sizes)
    made = {
        way: program(*built, sizes.n, sizes, backward=backward, way=way)
        for way in WAYS
        if lacking(way, built[0]) is None
        and (way != "cudnn" or sizes.dtype != "float32")
        and (way != "dense" or sizes.n <= MOST_DENSE)
    }
    found: dict[str, Any] = {"tokens": sizes.n}
    memory = {way: mebibytes for way, (_, mebibytes) in made.items()}
    if "dense" in made:
        found["error"] = contest.largest_error(made["blocks"][0](), made["dense"][0]())
        found["memory_over_dense"] = memory["blocks"] / memory["dense"]
    runs = {way: partial(contest.seconds_of, run) for way, (run, _) in made.items()}
    workers = torch_workers(name, sizes, peer, backward=backward)
    able = {way: worker for way, worker in workers.items() if "error" not in worker.about}
    seconds = contest.take_turns(runs | able, rounds, warm_up=1)
    for worker in workers.values():
        worker.close()
    return found | {
        "seconds": contest.medians(seconds),
        "over_blocks": contest.ratios(seconds, "blocks"),
        "by_round": {way: contest.quartiles(x / seconds["blocks"]) for way, x in seconds.items()},
        "mebibytes": memory,
        "peers": {way: worker.about for way, worker in workers.items()},
    }


def torch_workers(
    name: str, sizes: Sizes, peer: str, *, backward: bool
) -> dict[str, contest.Worker]:
    """Processes that attend in torch; `about` has an error where torch cannot."""
    if peer == "none":
        return {}
    known = {"n": sizes.n, "heads": sizes.heads, "width": sizes.width, "backward": backward}
    known |= {"dtype": sizes.dtype, "device": "cuda" if BACKEND == "gpu" else "cpu"}
    workers = {}
    for way in PEERS.get(name, ()):
        if ("learned" in way and not backward) or ("bias" in way and sizes.n > MOST_DENSE):
            continue
        workers[way] = contest.torch_worker(peer, "_torch_attention", known | {"way": way})
    return workers


# Rows that no dense attention can hold.


def long_rows(name: str, sizes: Sizes, rounds: int) -> dict[str, Any]:
    """Seconds and memory in blocks as rows grow, and their exponents."""
    encoding, params = encoding_of(name, sizes)
    found = {}
    for title, backward in DIRECTIONS.items():
        runs, memory = {}, []
        for n in sizes.long:
            runs[str(n)], allocated = program(encoding, params, n, sizes, backward=backward)
            memory.append(allocated)
        seconds = [*contest.medians(contest.measure(runs, rounds, warm_up=0)).values()]
        found[title] = {
            "tokens": sizes.long,
            "seconds": seconds,
            "mebibytes": memory,
            "time_exponent": exponent(sizes.long, seconds),
            "memory_exponent": exponent(sizes.long, memory),
        }
    return found


# Masks that leave blocks out.


def windows(sizes: Sizes, rounds: int) -> dict[str, Any]:
    """Seconds under RoPE with windows and chunks, and the share of blocks that are looked at."""
    rope, _ = encoding_of("rope", sizes)
    encodings = {"causal": rope}
    for size in sizes.windows:
        for make in (jaxpe.encodings.sliding_window, jaxpe.encodings.attention_chunks):
            encodings[f"{make.__name__} {size}"] = jaxpe.encodings.chain(rope, make(size=size))
    runs, memory = {}, {}
    for name, encoding in encodings.items():
        params = encoding.init(jax.random.key(0))
        run = program(encoding, params, sizes.windowed, sizes, backward=True)
        runs[name], memory[name] = run
    seconds = contest.measure(runs, rounds, warm_up=1)
    shares = {
        name: share_of_blocks(encoding, sizes.windowed) for name, encoding in encodings.items()
    }
    return {
        "tokens": sizes.windowed,
        "seconds": contest.medians(seconds),
        "over_causal": contest.ratios(seconds, "causal"),
        "share_of_blocks": shares,
        "share_over_causal": {name: share / shares["causal"] for name, share in shares.items()},
        "mebibytes": memory,
    }


def share_of_blocks(encoding: Encoding, n: int) -> float:
    """Share of all pairs of blocks in which a query may attend to a key."""
    params, k_positions = encoding.init(jax.random.key(0)), jnp.arange(n)
    size = default_block_size(n, pairs=False)
    k = jnp.zeros((n, 1, 1))

    def active(q_positions: Array) -> Array:
        positions = {"q_positions": q_positions, "k_positions": k_positions}
        mask = encoded_mask(encoding, params, k[:size], k, lambda i, j: j <= i, **positions)
        assert mask is not None
        return jnp.any(mask.reshape(size, n // size, size), axis=(0, 2))

    return float(jnp.mean(jax.lax.map(active, k_positions.reshape(-1, size))))


# Decoding.


def decode(name: str, sizes: Sizes, rounds: int) -> dict[str, Any]:
    """One query at the end of a cache of encoded keys: the default implementation, and others."""
    encoding, params = encoding_of(name, sizes)
    q, k, v, _ = arrays(sizes.cache, sizes)
    positions = jnp.arange(sizes.cache)
    last = positions[-1:]

    def step(way: Any, params: Any, q: Array, k: Array, v: Array) -> Array:
        return jaxpe.encodings.attend(
            encoding, params, q, k, v, q_positions=last, k_positions=positions,
            mask=AttentionMask(last, positions), encoded_keys=True, implementation=way,
        )  # fmt: skip

    made = {
        title: contest.compiled(partial(step, way), params, q[-1:], k, v)
        for title, way in (("default", None), ("dense", "dense"), ("blocks", "blocks"))
    }
    error = contest.largest_error(made["blocks"][0](), made["dense"][0]())

    def steps(run: Callable[[], Any]) -> None:
        for _ in range(DECODED):
            run()

    seconds = contest.measure({way: partial(steps, run) for way, (run, _) in made.items()}, rounds)
    return {
        "tokens": sizes.cache,
        "error": error,
        "milliseconds": {way: 1e3 * x / DECODED for way, x in contest.medians(seconds).items()},
        "over_default": contest.ratios(seconds, "default"),
        "mebibytes": {way: mebibytes for way, (_, mebibytes) in made.items()},
    }


def main() -> None:
    options = contest.options_of(__doc__, rounds=9, peer=sys.executable)
    contest.keep_freed_memory()
    sizes = QUICK if options.quick else FULL
    rounds, few = options.rounds, min(options.rounds, FEW_ROUNDS)
    result: dict[str, Any] = {"machine": contest.machine(), "rounds": rounds, "few_rounds": few}
    result |= {"sizes": sizes._asdict()}
    if BACKEND == "gpu":
        result |= {
            f"{dtype}, {title}": {
                name: compare(
                    name, sizes._replace(dtype=dtype), options.peer, rounds, backward=backward
                )
                for name in ("rope", "alibi")
            }
            for dtype in ("float32", "bfloat16")
            for title, backward in DIRECTIONS.items()
        }
        contest.finish("attention_gpu", options, result)
        return
    for title, backward in DIRECTIONS.items():
        result[title] = {
            name: {
                f"at {n}": compare(
                    name,
                    sizes._replace(n=n),
                    options.peer,
                    rounds if n <= sizes.n else few,
                    backward=backward,
                )
                for n in (sizes.lengths if backward else [sizes.n])
            }
            for name in (ENCODINGS if backward else PEERS)
        }
    result["long"] = {name: long_rows(name, sizes, few) for name in LONG}
    result["windows"] = windows(sizes, few)
    result["decode"] = {name: decode(name, sizes, rounds) for name in ("rope", "alibi", "fire")}
    contest.finish("attention", options, result)


if __name__ == "__main__":
    main()

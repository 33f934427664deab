"""Tokens per second of a training step, against Hugging Face in torch and the machine's own limit.

    python -m experiments.benchmarks.training [--peer PYTHON] [--rounds N] [--quick] [--save]

BERT-mini (4 layers, 256 wide) with a classifier, learned positions, float32, dropout 0.1, AdamW:
32 rows of 64 tokens, and 8 long ones of 512. Both have the same sizes and number of threads, and
glibc keeps freed memory in both. The peer runs in a process of its own, under a Python that has
torch and transformers (`--peer`; this one by default, "none" for none). Utilisation is the share of
a large matrix product's FLOP/s that the step's own products reach.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.benchmarks import _contest as contest
from jaxpe import encodings
from jaxpe.nn import Bert, Classifier, Encoder, TransformerConfig, functionalize
from jaxpe.training import adamw, classification, init_state, train_step

VOCAB, STEPS, PEER = 30522, 3, "Hugging Face"


class Sizes(NamedTuple):
    """What is trained."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    batch: int = 32
    length: int = 64


MINI, LONG = Sizes(), Sizes(batch=8, length=512)
SMALL = Sizes(layers=1, width=64, batch=4, length=16)


def classifier(sizes: Sizes) -> Classifier:
    """A BERT with learned positions and a classifier of 2 classes."""
    config = TransformerConfig(
        vocab_size=VOCAB, dim=sizes.width, num_layers=sizes.layers, num_heads=sizes.heads,
        norm_position="post", norm_epsilon=1e-12, token_types=2, dropout=0.1,
        attention_dropout=0.1,
    )  # fmt: skip
    table = encodings.learned(length=512, dim=sizes.width)
    encoder = Encoder(config, encoding=table, rngs=nnx.Rngs(0))
    bert = Bert(encoder, rngs=nnx.Rngs(1))
    return Classifier(bert.encoder, pooler=bert.pooler, num_classes=2, rngs=nnx.Rngs(2))


def our_round(sizes: Sizes) -> tuple[Callable[[], float], int]:
    """Seconds per step of a round of ours, and the weights that multiply every token."""
    apply, params = functionalize(classifier(sizes))
    blocks = jax.tree.leaves(params["encoder"]["layers"])
    weights = sum(leaf.size for leaf in blocks if leaf.ndim == 3)
    optimizer = adamw(1e-4, weight_decay=0.01)
    step = train_step(classification(apply), optimizer)
    state = init_state(params, optimizer, key=jax.random.key(0))
    rng = np.random.default_rng(0)

    def steps() -> Any:
        nonlocal state
        for _ in range(STEPS):
            state, _ = step(state, random_batch(rng, sizes))
        return state

    steps()
    return lambda: contest.seconds_of(steps) / STEPS, weights


def random_batch(rng: np.random.Generator, sizes: Sizes) -> dict[str, np.ndarray]:
    shape = (sizes.batch, sizes.length)
    return {
        "ids": rng.integers(0, VOCAB, shape, dtype=np.int32),
        "mask": np.ones(shape, bool),
        "labels": rng.integers(0, 2, sizes.batch, dtype=np.int32),
    }


def peer_of(python: str, sizes: Sizes) -> contest.Worker:
    known = sizes._asdict() | {"hidden": 4 * sizes.width, "vocab": VOCAB, "steps": STEPS}
    return contest.torch_worker(python, "_torch_training", known)


def matmul_speed(n: int) -> float:
    """FLOP/s of a large matrix product: the fastest of many."""
    x = jnp.ones((n, n))
    product, _ = contest.compiled(jnp.matmul, x, x)
    return 2 * n**3 / min(contest.seconds_of(product) for _ in range(10))


def compare(sizes: Sizes, options: argparse.Namespace, peak: float) -> dict[str, Any]:
    """Speed of both in turns, and how much of the FLOP/s of a product ours reaches."""
    ours, weights = our_round(sizes)
    peer = None if options.peer == "none" else peer_of(options.peer, sizes)
    contestants = {"jaxpe": ours} | ({PEER: peer} if peer else {})
    times = contest.take_turns(contestants, options.rounds)
    seconds, tokens = contest.medians(times), sizes.batch * sizes.length
    # Forward 2, backward 4 for each weight and token; products with keys and values likewise.
    flops = 6 * tokens * (weights + 2 * sizes.layers * sizes.length * sizes.width)
    found: dict[str, Any] = {
        "sizes": sizes._asdict(),
        "seconds_per_step": seconds,
        "tokens_per_second": {name: tokens / value for name, value in seconds.items()},
        "utilisation": flops / seconds["jaxpe"] / peak,
    }
    if peer:
        peer.close()
        by_round = times[PEER] / times["jaxpe"]
        found |= {"peer": peer.about, "speed_by_round": contest.quartiles(by_round)}
    return found


def main() -> None:
    options = contest.options_of(__doc__, rounds=15, peer=sys.executable)
    contest.keep_freed_memory()
    peak = matmul_speed(512 if options.quick else 2048)
    result: dict[str, Any] = {"machine": contest.machine("flax", "optax")}
    result["matmul_flops_per_second"] = peak
    result |= compare(SMALL if options.quick else MINI, options, peak)
    result["long"] = compare(SMALL._replace(length=32) if options.quick else LONG, options, peak)
    contest.finish("training", options, result)


if __name__ == "__main__":
    main()

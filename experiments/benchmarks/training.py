"""Tokens per second of a training step, against Hugging Face in torch and the machine's own limit.

    python -m experiments.benchmarks.training [--peer PYTHON] [--rounds N] [--quick] [--save]

BERT-mini (4 layers, 256 wide) with a classifier, learned positions, float32, dropout 0.1, AdamW:
the same sizes, batch and number of threads in both. The peer runs in a process of its own, under a
Python that has torch and transformers (`--peer`; this one by default), and takes turns with us,
round by round, warmed up. Both have glibc keep freed memory (see `encodings.py`). Printed are
ratios of medians, and what share of a large matrix product's FLOP/s the step's own products reach:
model FLOPs utilisation, by this machine's measured peak. On a GPU the model is BERT-base in
bfloat16, without a peer.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.benchmarks._machine import CORES, keep_freed_memory, write_result
from jaxpe.nn import Bert, BertEncoder, Classifier, TransformerConfig
from jaxpe.training import accuracy, adamw, cross_entropy, init_state, train_step

HERE = Path(__file__).parent
OUT = HERE.parent / "results" / "benchmark_training.json"
VOCAB = 30522


class Sizes(NamedTuple):
    """What is trained."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    batch: int = 32
    length: int = 64
    dtype: str = "float32"


MINI, SMALL = Sizes(), Sizes(layers=1, width=64, batch=4, length=16)
BASE = Sizes(layers=12, width=768, heads=12, batch=64, length=128, dtype="bfloat16")


class Peer:
    """Hugging Face's model in another process, one round a line."""

    def __init__(self, python: str, sizes: Sizes, steps: int):
        options = {
            "batch": sizes.batch,
            "length": sizes.length,
            "layers": sizes.layers,
            "width": sizes.width,
            "heads": sizes.heads,
            "hidden": 4 * sizes.width,
            "vocab": VOCAB,
            "threads": CORES,
            "steps": steps,
        }
        flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        self.process = subprocess.Popen(
            [python, "-m", "experiments.benchmarks._torch_training", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.about = self._answer()

    def __call__(self) -> float:
        """Seconds per step of one round."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._answer()["seconds_per_step"]

    def close(self) -> None:
        self.process.communicate("quit\n")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the peer's Python cannot run torch and transformers: pass --peer PYTHON")
        return json.loads(line)


def main() -> None:
    args = arguments()
    keep_freed_memory()
    on_gpu = jax.default_backend() == "gpu"
    sizes = SMALL if args.quick else BASE if on_gpu else MINI
    ours, weights = our_step(sizes, args.steps)
    contestants: dict[str, Callable[[], float]] = {"jaxpe": ours}
    peer = None if on_gpu or args.peer == "none" else Peer(args.peer, sizes, args.steps)
    if peer is not None:
        contestants["Hugging Face"] = peer
    peak = matmul_speed(sizes.dtype, 512 if args.quick else 8192 if on_gpu else 2048)
    times = take_turns(contestants, args.rounds)
    if peer is not None:
        peer.close()
    results = summary(sizes, times, weights, peak) | {"peer": peer and peer.about}
    print(json.dumps(results, indent=2))
    if args.save:
        write_result(OUT, results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=sys.executable, help='its Python, or "none"')
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=3, help="in a round")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    return parser.parse_args()


def our_step(sizes: Sizes, steps: int) -> tuple[Callable[[], float], int]:
    """Seconds per step of a round of ours, and the weights that multiply every token."""
    model = make_model(sizes)
    graphdef, params = nnx.split(model, nnx.Param)
    blocks = jax.tree.leaves(params["encoder"]["layers"])
    weights = sum(leaf.size for leaf in blocks if leaf.ndim == 3)

    def loss(params, batch, key):
        out = nnx.merge(graphdef, params)(batch["ids"], mask=batch["mask"], dropout_key=key)
        labels = batch["labels"]
        return cross_entropy(out.logits, labels), {"accuracy": accuracy(out.logits, labels)}

    optimizer = adamw(1e-4, weight_decay=0.01)
    step = train_step(loss, optimizer)
    state = init_state(params, optimizer, key=jax.random.key(0))
    rng = np.random.default_rng(0)

    def round_() -> float:
        nonlocal state
        start = time.perf_counter()
        for _ in range(steps):
            state, _ = step(state, random_batch(rng, sizes))
        jax.block_until_ready(state)
        return (time.perf_counter() - start) / steps

    round_()
    return round_, weights


def make_model(sizes: Sizes) -> Classifier:
    config = TransformerConfig(
        vocab_size=VOCAB,
        dim=sizes.width,
        num_layers=sizes.layers,
        num_heads=sizes.heads,
        norm_position="post",
        norm_epsilon=1e-12,
        token_types=2,
        dropout=0.1,
        attention_dropout=0.1,
        dtype=jnp.dtype(sizes.dtype),
    )
    bert = Bert(BertEncoder(config, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
    return Classifier(bert.encoder, pooler=bert.pooler, num_classes=2, rngs=nnx.Rngs(2))


def random_batch(rng: np.random.Generator, sizes: Sizes) -> dict[str, np.ndarray]:
    shape = (sizes.batch, sizes.length)
    return {
        "ids": rng.integers(0, VOCAB, shape, dtype=np.int32),
        "mask": np.ones(shape, bool),
        "labels": rng.integers(0, 2, sizes.batch, dtype=np.int32),
    }


def matmul_speed(dtype: str, n: int) -> float:
    """FLOP/s of a large matrix product: the fastest of many."""
    x = jnp.ones((n, n), dtype)
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(x, x))
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(product(x, x))
        seconds.append(time.perf_counter() - start)
    return 2 * n**3 / min(seconds)


def take_turns(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds per step of each, in random order within a round."""
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in rng.permutation(list(contestants)):
            times[name].append(contestants[name]())
    return times


def summary(
    sizes: Sizes, times: dict[str, list[float]], weights: int, peak: float
) -> dict[str, Any]:
    tokens = sizes.batch * sizes.length
    seconds = {name: float(np.median(values)) for name, values in times.items()}
    # Forward 2, backward 4 for each weight and token; products with keys and values likewise.
    flops = 6 * tokens * (weights + 2 * sizes.layers * sizes.length * sizes.width)
    device = jax.devices()[0]
    result: dict[str, Any] = {
        "device": f"{device.platform}, {device.device_kind}, {CORES} cores, {platform.machine()}",
        "versions": {name: version(name) for name in ("jax", "flax", "optax")},
        "sizes": sizes._asdict(),
        "seconds_per_step": seconds,
        "fastest_round": {name: min(values) for name, values in times.items()},
        "tokens_per_second": {name: tokens / value for name, value in seconds.items()},
        "matmul_flops_per_second": peak,
        "utilisation": flops / seconds["jaxpe"] / peak,
    }
    if "Hugging Face" in seconds:
        result["speed_over_hugging_face"] = seconds["Hugging Face"] / seconds["jaxpe"]
        paired = np.array(times["Hugging Face"]) / np.array(times["jaxpe"])
        result["speed_by_round"] = np.quantile(paired, [0.25, 0.5, 0.75]).round(3).tolist()
    return result


if __name__ == "__main__":
    main()

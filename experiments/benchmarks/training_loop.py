"""Tokens per second of `fit`, against a loop of Flax NNX and Optax written by hand.

    python -m experiments.benchmarks.training_loop [--rounds N] [--quick] [--save]

BERT-mini with a classifier, as in `experiments.benchmarks.training`, 32 rows of 64 tokens. By hand:
`nnx.jit`, `nnx.value_and_grad` and `nnx.Optimizer`, one batch after the other, with the loss read
after each 10 steps. Both draw the same batches, clip and decay alike. Once on all processors, and
once on one, in a process of its own.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments.benchmarks import _contest as contest
from experiments.benchmarks.training import MINI, SMALL, Sizes, classifier, random_batch
from jaxpe.nn import functionalize
from jaxpe.training import adamw, batches, classification, fit, init_state, train_step
from jaxpe.training.optimizers import weight_decay_mask

STEPS, ROWS = 10, 256


def data_of(sizes: Sizes) -> Any:
    arrays = random_batch(np.random.default_rng(0), sizes._replace(batch=ROWS))
    return batches(arrays, batch_size=sizes.batch, seed=0)


def ours(sizes: Sizes) -> Callable[[], float]:
    """Seconds of `STEPS` steps of `fit`."""
    apply, params = functionalize(classifier(sizes))
    optimizer = adamw(1e-4, weight_decay=0.01)
    step = train_step(classification(apply), optimizer)
    state = init_state(params, optimizer, key=jax.random.key(0))
    data = iter(data_of(sizes))

    def run() -> Any:
        nonlocal state
        state = fit(state, step, data, steps=int(state.step) + STEPS).state
        return state.params

    run()
    return lambda: contest.seconds_of(run)


def by_hand(sizes: Sizes) -> Callable[[], float]:
    """Seconds of `STEPS` steps as the documentation of Flax writes them."""
    model = classifier(sizes)
    transform = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(1e-4, weight_decay=0.01, mask=weight_decay_mask),
    )
    optimizer = nnx.Optimizer(model, transform, wrt=nnx.Param)
    data, key = iter(data_of(sizes)), jax.random.key(0)

    @nnx.jit
    def step(model: Any, optimizer: Any, batch: Any, key: jax.Array) -> jax.Array:
        def loss(model: Any) -> jax.Array:
            logits = model(batch["ids"], mask=batch["mask"], dropout_key=key).logits
            labels = batch["labels"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, gradient = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradient)
        return value

    def run() -> Any:
        value = jnp.zeros(())
        for number in range(STEPS):
            value = step(model, optimizer, next(data), jax.random.fold_in(key, number))
        return value

    run()
    return lambda: contest.seconds_of(run)


def compare(sizes: Sizes, rounds: int) -> dict[str, Any]:
    times = contest.take_turns({"fit": ours(sizes), "by hand": by_hand(sizes)}, rounds, warm_up=1)
    tokens = STEPS * sizes.batch * sizes.length
    seconds = contest.medians(times)
    return {
        "tokens_per_second": {name: tokens / value for name, value in seconds.items()},
        "speed_by_round": contest.quartiles(times["by hand"] / times["fit"]),
    }


def main() -> None:
    options = contest.options_of(__doc__, rounds=15, processors="")
    contest.keep_freed_memory()
    sizes = SMALL if options.quick else MINI
    if options.processors:  # of this process, which a first one started
        print(json.dumps(compare(sizes, options.rounds)), flush=True)
        return
    result: dict[str, Any] = {"machine": contest.machine("flax", "optax"), "sizes": sizes._asdict()}
    everything = os.sched_getaffinity(0)
    for name, processors in (("free", everything), ("one core", {min(everything)})):
        os.sched_setaffinity(0, processors)
        words = [f"--processors={name}", f"--rounds={options.rounds}", *["--quick"] * options.quick]
        result[name] = contest.in_fresh_process("experiments.benchmarks.training_loop", *words)
        print(name, result[name], flush=True)
    os.sched_setaffinity(0, everything)
    contest.finish("training_loop", options, result)


if __name__ == "__main__":
    main()

"""What models of tasks 1 and 2 are asked: which rows are right, and what each head is worth."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.learning import interval
from experiments.spectral2025.task_models import Sizes, Trained, accuracy
from jaxpe import spectral
from jaxpe.data import Examples


def correct(trained: Trained, params: Any, data: Examples) -> np.ndarray:
    """Which rows each seed's model has right, `[seeds, rows]`."""

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None, None))
    def judge(params, ids, mask):
        return jnp.argmax(trained.apply(params, ids, mask=mask).logits, axis=-1)

    size = min(500, len(data.ids))
    right: dict[int, np.ndarray] = {}
    for start in range(0, len(data.ids), size):
        start = min(start, len(data.ids) - size)  # the last block begins earlier
        rows = slice(start, start + size)
        answers = judge(params, data.ids[rows], data.mask[rows])
        right |= dict(enumerate((np.asarray(answers) == data.labels[rows]).T, start))
    return np.stack(list(right.values()), axis=1)


def noise_of(sizes: Sizes) -> float:
    """Two standard errors of a difference of two accuracies."""
    return 2 * (2 * 0.25 / sizes.looked_at) ** 0.5


def ablations(trained: Trained, held_out: Examples, sizes: Sizes) -> dict[str, Any]:
    """What every head is worth along the training, by zero and, at the end, by mean ablation.

    Drops up to two standard errors of a difference of two accuracies count as nothing.
    """
    noise = noise_of(sizes)
    seen = jax.tree.map(lambda x: x[: sizes.looked_at], held_out.batch())
    shape = {"layers": sizes.layers, "heads": sizes.heads, "batch_size": 1}

    def zero(params, batch):
        score = partial(accuracy, trained.apply, params, batch)
        return spectral.ablate_heads(lambda gates: score(gates=gates), **shape)

    def mean(params, batch):
        score = partial(accuracy, trained.apply, params, batch)
        traced = trained.apply(params, batch["ids"], mask=batch["mask"], trace=True)
        fill = spectral.sum_heads(traced.transformer.heads, batch["mask"]).mean
        return spectral.ablate_heads(lambda gates: score(gates=gates, gate_fill=fill), **shape)

    by_seed = {
        "zero": jax.jit(jax.vmap(zero, in_axes=(0, None))),
        "mean": jax.jit(jax.vmap(mean, in_axes=(0, None))),
    }
    found: dict[str, Any] = {"over_training": {}}
    for index, step in enumerate(trained.steps):
        params = jax.tree.map(lambda x, index=index: x[index], trained.params)
        last = step == trained.steps[-1]
        for kind in ("zero", "mean") if last else ("zero",):
            row = deposited(by_seed[kind](params, seen).drop, noise)
            if last:
                found[kind] = row
            if kind == "zero":
                found["over_training"][step] = {k: v for k, v in row.items() if k != "drop"}
    return found


def last_drop(trained: Trained, held_out: Examples, sizes: Sizes) -> np.ndarray:
    """What zeroing each head of the first seed's trained model costs, `[layers, heads]`."""
    params = jax.tree.map(lambda x: x[-1, 0], trained.params)
    seen = jax.tree.map(lambda x: x[: sizes.looked_at], held_out.batch())

    @jax.jit
    def score(params, batch, gates):
        return accuracy(trained.apply, params, batch, gates=gates)

    gates = jnp.ones((sizes.layers, sizes.heads))
    left = [
        float(score(params, seen, gates.at[layer, head].set(0)))
        for layer in range(sizes.layers)
        for head in range(sizes.heads)
    ]
    whole = float(score(params, seen, gates))
    return whole - np.reshape(left, (sizes.layers, sizes.heads))


def deposited(drop: jax.Array, noise: float) -> dict[str, Any]:
    """The index of drops `[seeds, layers, heads]`; shares over the seeds that lose something."""
    found = spectral.deposit(drop, noise=noise)
    some = np.asarray(found.total_drop) > 0
    largest, second = np.sort(np.reshape(drop, (len(drop), -1)), axis=-1)[:, :-3:-1].T
    return {
        "drop": drop,
        "noise": noise,
        "seeds_that_lose": int(some.sum()),
        "largest_share": summary(np.asarray(found.largest_share)[some]),
        "entropy": summary(np.asarray(found.entropy)[some]),
        "largest_drop": summary(found.largest_drop),
        "second_drop": summary(second),
        # Of the paper's kind: heads that cost at least half of what the worst one costs.
        "heads_of_half": [int(n) for n in np.sum(drop >= largest[:, None, None] / 2, axis=(1, 2))],
        "head": [[int(a), int(b)] for a, b in zip(found.layer, found.head, strict=True)],
    }


def summary(values: Any) -> dict[str, Any]:
    """Mean over seeds, half of its 95 % interval, and the seeds; NaN of none."""
    values = [float(value) for value in values]
    mean = float(np.mean(values)) if values else float("nan")
    return {"mean": mean, "half": interval(values), "seeds": values}

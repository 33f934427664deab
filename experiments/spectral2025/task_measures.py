"""What models of tasks 1 and 2 are asked: which rows are right, and what each head is worth."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.learning import interval
from experiments.spectral2025.task_models import Sizes, Trained, accuracy
from jaxpe import spectral
from jaxpe.data.tasks.positions import Examples


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
    """What zeroing every head costs along the training and at its end.

    Drops up to two standard errors of a difference of two accuracies count as nothing.
    """
    seen = jax.tree.map(lambda x: x[: sizes.looked_at], held_out.batch())
    shape = {"layers": sizes.layers, "heads": sizes.heads, "batch_size": 1}

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def zeroed(params, batch):
        score = partial(accuracy, trained.apply, params, batch)
        return spectral.ablate_heads(lambda gates: score(gates=gates), **shape).drop

    rows = {}
    for index, step in enumerate(trained.steps):
        params = jax.tree.map(lambda x, index=index: x[index], trained.params)
        rows[step] = deposited(zeroed(params, seen), noise_of(sizes))
    along = {at: {k: v for k, v in row.items() if k != "drop"} for at, row in rows.items()}
    return {"over_training": along, "zero": rows[trained.steps[-1]]}


def ablated_at_end(trained: Trained, held_out: Examples, sizes: Sizes) -> dict[str, Any]:
    """What zeroing every head costs at the end of training."""
    last = jax.tree.map(lambda x: x[-1:], trained.params)
    return ablations(trained._replace(steps=trained.steps[-1:], params=last), held_out, sizes)[
        "zero"
    ]


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

"""Fluxion notes, Sec. 9: is the gradient of a position's parameters its usefulness?

Usefulness is what held-out loss rises by when a row of the table is replaced by the mean of all
rows; the gradient is the root mean square, over batches of 32, of the norm of that row's gradient.
A learned table and Shaw's tables, 3 seeds, along the training, on

- `read a place`: a marker names one of 24 places, place p with probability falling as 0.8^p, and
  the token there is to be said;
- `words at offsets` (±1, ±2, ±4 and ±8 are asked for, no other) and `tags`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from experiments.common import Run, main
from experiments.learning import interval
from experiments.learning_tasks import (
    LENGTH,
    SIZES,
    Rows,
    Task,
    Trained,
    tagging,
    tags,
    train,
    words_at_offsets,
)
from jaxpe import encodings

PLACES, LETTERS, FALL = 24, 16, 0.8
RATE, SEEDS, BATCHES = 3e-3, 3, 64
KEEP = (100, 400, 1200)


def read_a_place(rows: int | None = None) -> Task:
    """Letters, and at one place a marker of the place to be read, which is another one."""
    rng = np.random.default_rng(0)
    count = 24_000 if rows is None else rows
    ids = rng.integers(1, LETTERS + 1, (count, PLACES)).astype(np.int32)
    asked = rng.choice(PLACES, count, p=shares())
    at = (asked + rng.integers(1, PLACES, count)) % PLACES
    each = np.arange(count)
    labels = np.zeros_like(ids)
    labels[each, at] = ids[each, asked]
    ids[each, at] = LETTERS + 1 + asked
    data = Rows(ids, np.ones(ids.shape, bool), labels, np.arange(PLACES) == at[:, None])
    held = count // 12
    return Task("read a place", data.take(slice(held, None)), data.take(slice(held)), ids,
                LETTERS + PLACES + 1, LETTERS + 1)  # fmt: skip


def shares() -> np.ndarray:
    """How often each place is asked for."""
    falling = FALL ** np.arange(PLACES)
    return falling / falling.sum()


def experiment(run: Run) -> dict[str, Any]:
    rows = 2000 if run.quick else None
    how: dict[str, Any] = {"most": 20, "window": 5, "tail": 6} if run.quick else {}
    learned = partial(encodings.learned, dim=SIZES.dim)
    shaw = encodings.shaw(head_dim=SIZES.head_dim, max_distance=LENGTH - 1)
    cases = {
        "absolute, read a place": (read_a_place, learned(length=PLACES)),
        "absolute, tags": (tags, learned(length=LENGTH)),
        "absolute, words at offsets": (words_at_offsets, learned(length=LENGTH)),
        "relative, words at offsets": (words_at_offsets, shaw),
        "relative, tags": (tags, shaw),
    }
    result = {}
    for name in list(cases)[: 1 if run.quick else None]:
        read, encoding = cases[name]
        task = read(rows)
        trained = train(
            task, encoding, rate=RATE, seeds=2 if run.quick else SEEDS, keep=KEEP, **how
        )
        result[name] = measured(trained, task, batches=4 if run.quick else BATCHES)
        if read is read_a_place:
            useful = result[name]["usefulness"]
            known = np.broadcast_to(shares(), useful.shape)
            result[name]["usefulness_and_known"] = fits(useful, known)
        print(name, trained.held_out, trained.steps, result[name]["end"], flush=True)
    return {"cases": result}


def measured(trained: Trained, task: Task, *, batches: int) -> dict[str, Any]:
    """Gradients and usefulness at every step kept, and how they go together."""
    now = {step: usefulness(trained, params, task) for step, params in trained.params.items()}
    gradients = {
        step: row_gradients(trained, params, task, batches)
        for step, params in trained.params.items()
    }
    # Before training nothing is useful.
    found = {step: fits(rows, now[step]) for step, rows in gradients.items() if step}
    often = occurrences(task, relative=gradients[0].shape[1] > task.train.ids.shape[1])
    often = np.broadcast_to(often, gradients[0].shape)
    return {
        "fits_to_occurrences": {step: fits(rows, often) for step, rows in gradients.items()},
        "steps": trained.steps,
        "held_out": trained.held_out,
        "usefulness": now[trained.steps],
        "gradients": gradients,
        "fits": found,
        "end": found[trained.steps],
    }


def table_of(params: Any) -> Any:
    return params["transformer"]["encoding_params"].get_value()


def with_table(params: Any, table: Any) -> Any:
    leaves = [params["transformer"]["encoding_params"].replace(table)]
    below = params["transformer"] | {"encoding_params": leaves[0]}
    return params | {"transformer": below}


def occurrences(task: Task, *, relative: bool) -> np.ndarray:
    """How many tokens, or pairs of tokens, use each row: the other thing gradients may follow."""
    mask = task.train.mask[:2000].astype(float)
    if not relative:
        return mask.mean(axis=0)
    pairs = mask.T @ mask
    return np.array([np.trace(pairs, k) for k in range(-len(pairs) + 1, len(pairs))])


def usefulness(trained: Trained, params: Any, task: Task, *, rows: int = 1000) -> np.ndarray:
    """Rise of held-out loss without each row, `[seeds, rows of the table]`."""
    data = Rows(*(jnp.asarray(x[:rows]) for x in task.held_out))

    @jax.jit
    @jax.vmap
    def of_seed(params):
        table = table_of(params)
        count = jax.tree.leaves(table)[0].shape[0]

        def loss(table):
            return tagging(trained.apply, with_table(params, table), data, None)[0].mean

        def without(row):
            return loss(jax.tree.map(lambda x: x.at[row].set(jnp.mean(x, axis=0)), table))

        return jax.lax.map(without, jnp.arange(count)) - loss(table)

    return np.asarray(of_seed(params))


def row_gradients(trained: Trained, params: Any, task: Task, batches: int) -> np.ndarray:
    """Root mean square norm of each row's gradient, `[seeds, rows of the table]`."""
    chosen = np.random.default_rng(3).integers(0, len(task.train.ids), (batches, 32))
    data = Rows(*(jnp.asarray(x[chosen]) for x in task.train))

    @jax.jit
    @jax.vmap
    def of_seed(params):
        def squares(batch):
            def loss(table):
                return tagging(trained.apply, with_table(params, table), batch, None)[0].mean

            gradient = jax.tree.leaves(jax.grad(loss)(table_of(params)))
            return sum(jnp.sum(part**2, axis=1) for part in gradient)

        return jnp.sqrt(jnp.mean(jax.lax.map(squares, data), axis=0))

    return np.asarray(of_seed(params))


def fits(gradients: np.ndarray, useful: np.ndarray) -> dict[str, Any]:
    """Rank correlation, and the share of the gradients' variance that c·usefulness explains."""
    rank = [float(stats.spearmanr(g, u).statistic) for g, u in zip(gradients, useful, strict=True)]
    explained = []
    for g, u in zip(gradients, useful, strict=True):
        c = np.sum(g * u) / np.sum(u**2)
        explained.append(float(1 - np.sum((g - c * u) ** 2) / np.sum((g - g.mean()) ** 2)))
    return {
        "rank_correlation": {"mean": np.mean(rank), "half": interval(rank)},
        "explained": {"mean": np.mean(explained), "half": interval(explained)},
    }


if __name__ == "__main__":
    main(experiment, "position_gradients")

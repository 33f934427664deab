"""Is the positional deposit of arXiv:2505.13027 robust, and does it harm? Task 1, RoPE and MLA.

The review's next checks: "varying dropout rates, initialization schemes, and layer normalization
placement" (2), "MLA variants with shared vs. independent parameters" (3), "whether deposit shifts
to deeper layers" where RoPE is on k heads; and its trade-off, "single-head deposit may harm length
extrapolation". Task 1 with distances of 2 to 13 in rows of at most 22 tokens, 4 seeds, until
solved or settled (`task_models.settled`), at most 2,400 updates; then every head is ablated, and
the same distances are asked in rows with 2 and 4 times the filler.

Option beside `--out` and `--quick`: `--only NAME`, again and again, takes some arms alone.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import Run, main, plain
from experiments.learning import spearman, take_options
from experiments.spectral2025 import task_models
from experiments.spectral2025.task_measures import ablated_at_end, correct, summary
from experiments.spectral2025.task_models import VARIANTS, Sizes, Trained, Variant, head_dim, train
from jaxpe import encodings
from jaxpe.data import relative_distance
from jaxpe.data.tasks.positions import Examples

SIZES = dataclasses.replace(task_models.SMALL, seeds=4)
LONGER = (2, 4)
LEARNED = 0.95
NOT_ROTARY = ("sinusoidal",)
OPTIONS = take_options(repeated=("only",))


def shared_paths(sizes: Sizes) -> encodings.Encoding:
    """Content and rotary logits of the same queries and keys: ⟨q, k⟩ + ⟨R_i q, R_j k⟩.

    Heads are twice as wide, as those of `independent_paths`; what is left over is not used.
    """
    width = head_dim(sizes)
    rope = encodings.rope(head_dim=width)

    def twice(params, x, positions):
        own = x[..., :width]
        return jnp.concatenate([own, rope.query(params, own, positions)], axis=-1)

    return encodings.Encoding(query=twice, key=twice)


def independent_paths(sizes: Sizes) -> encodings.Encoding:
    """Half of each head turns: content and rotary logits of queries and keys of their own."""
    return encodings.rope(head_dim=2 * head_dim(sizes), fraction=0.5)


def arms(sizes: Sizes) -> dict[str, tuple[Variant, Sizes]]:
    """Models by name, with their sizes; `rope` is what the others are compared with."""
    rope, scale = VARIANTS["rope"], 0.7 * sizes.dim**-0.5
    wide = ("head_dim", 2 * head_dim(sizes))
    half = rope._replace(make=lambda s: encodings.rope(head_dim=head_dim(s), fraction=0.5))
    models = {
        "rope": rope,
        "MLA": VARIANTS["mla"],
        "two paths, shared": Variant(shared_paths, config=(wide,)),
        "two paths, independent": Variant(independent_paths, config=(wide,)),
        "rope on 1 head": rope._replace(make=task_models.on_heads(1)),
        "norm after": rope._replace(config=(("norm_position", "post"),)),
        "dropout 0.1": rope,
        "dropout 0.3": rope,
        "init × 0.3": rope._replace(config=(("init_scale", 0.3 * scale),)),
        "init × 3": rope._replace(config=(("init_scale", 3 * scale),)),
        "rope on half of each head": half,
        "sinusoidal": VARIANTS["sinusoidal"],
    }
    rates = {"dropout 0.1": 0.1, "dropout 0.3": 0.3}
    return {
        name: (variant, dataclasses.replace(sizes, dropout=rates.get(name, 0.0)))
        for name, variant in models.items()
    }


def experiment(run: Run) -> dict[str, Any]:
    quick = dataclasses.replace(task_models.QUICK, segments=SIZES.segments, length=SIZES.length)
    sizes = quick if run.quick else SIZES
    known = arms(sizes)
    chosen = OPTIONS.only or list(known)[: 2 if run.quick else None]
    rows: dict[str, Any] = {}
    for name in chosen:
        variant, own = known[name]
        trained, (_, held_out) = train("distance", variant, own)
        rows[name] = plain(analysed(trained, held_out, own))
        print(name, rows[name]["accuracy"]["seeds"], rows[name]["head"], flush=True)
    return {"sizes": sizes.__dict__, "arms": rows, "concentration_and_longer_rows": harm(rows)}


def analysed(trained: Trained, held_out: Examples, sizes: Sizes) -> dict[str, Any]:
    """Accuracy, what each head is worth at the end, and accuracy in longer rows."""
    last = jax.tree.map(lambda x: x[-1], trained.params)
    found = ablated_at_end(trained, held_out, sizes)
    costs = np.asarray(found["drop"]).clip(0)
    shares = costs / np.maximum(costs.sum(axis=(1, 2), keepdims=True), 1e-9)
    return found | {
        "accuracy": summary(correct(trained, last, held_out).mean(axis=1)),
        "share_of_layers": [summary(share) for share in shares.sum(axis=2).T],
        "longer_rows": {
            where: {
                str(factor): summary(correct(trained, last, rows).mean(axis=1))
                for factor in LONGER
                for rows in [longer_rows(sizes, factor, beyond=where == "beyond")]
            }
            for where in ("usual", "beyond")
        },
        "steps": int(trained.looks[-1]),
        "reason": trained.reason,
    }


def longer_rows(sizes: Sizes, factor: int, *, beyond: bool, rows: int = 1000) -> Examples:
    """The same distances in rows with `factor` times the filler before and behind the triggers.

    Beyond: the first trigger stands behind more filler than any did in training, so that both
    positions are mostly new; otherwise it stands where it does in training and what is longer is
    the filler behind.
    """
    left, between, right = sizes.segments
    before = factor * left if beyond else left
    made = relative_distance(
        rows=4 * factor * rows if beyond else rows,
        vocab_size=sizes.vocab_size,
        left=before,
        between=between,
        right=factor * (left + right) - before,
        length=factor * (left + right) + between + 2,
    )
    return far(made, (factor - 1) * left, rows) if beyond else made


def far(data: Examples, least: int, rows: int) -> Examples:
    """The first rows whose first trigger stands behind so much filler."""
    # Every row has the two triggers, and no other word is in all of them.
    present = [set(row[row > 0].tolist()) for row in data.ids[:200]]
    triggers = sorted(set.intersection(*present))
    place = np.argmax(np.isin(data.ids, triggers), axis=1)
    chosen = np.flatnonzero(place >= least)[:rows]
    fields = ("ids", "mask", "labels", "ambiguous")
    return data._replace(**{name: getattr(data, name)[chosen] for name in fields})


def harm(rows: dict[str, Any]) -> dict[str, Any]:
    """Do models whose drops are concentrated answer worse in longer rows?

    Rank correlations over the seeds of rotary models that learned the task; the bootstrap draws
    whole arms.
    """
    seeds = [
        (name, seed)
        for name, row in rows.items()
        for seed, right in enumerate(row["accuracy"]["seeds"])
        if name not in NOT_ROTARY and right >= LEARNED
    ]
    names = [name for name, _ in seeds]
    if len(set(names)) < 3:
        return {}
    drops = [np.asarray(rows[name]["drop"][seed]) for name, seed in seeds]
    indices = {
        "largest_share": np.array([drop.max() / drop.clip(0).sum() for drop in drops]),
        "largest_drop": np.array([drop.max() for drop in drops]),
    }

    def accuracy(where, factor):
        return np.array([rows[n]["longer_rows"][where][factor]["seeds"][s] for n, s in seeds])

    return {"models": len(names), "arms": sorted(set(names))} | {
        f"{index}/{where}/{factor}": spearman(values, accuracy(where, str(factor)), names)
        for index, values in indices.items()
        for where in ("usual", "beyond")
        for factor in LONGER
    }


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

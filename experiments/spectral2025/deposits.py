"""Is the positional deposit of arXiv:2505.13027 robust, and does it harm? Task 1, RoPE and MLA.

The review's next checks: "varying dropout rates, initialization schemes, and layer normalization
placement" (2), "MLA variants with shared vs. independent parameters" (3), "whether deposit shifts
to deeper layers" where RoPE is on k heads; and its trade-off, "single-head deposit may harm length
extrapolation". Task 1 with distances of 2 to 13 in rows of at most 22 tokens, 4 seeds, until
solved or settled (`task_models.settled`), at most 2,400 updates; then every head is ablated, and
the same distances are asked in rows with 2 and 4 times the filler.

Options beside `--out` and `--quick`: `--runs FOLDER` keeps trained models there and resumes from
them (an hour on one core without), `--only NAME`, again and again, takes some arms alone.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    Run,
    main,
    new_figure,
    plain,
)
from experiments.common import save_figure as save
from experiments.learning import spearman, take_options
from experiments.spectral2025.task_measures import ablations, correct, summary
from experiments.spectral2025.task_models import (
    QUICK,
    SMALL,
    VARIANTS,
    Sizes,
    Trained,
    Variant,
    head_dim,
    on_heads,
    train,
)
from jaxpe.data import Examples, relative_distance

SIZES = dataclasses.replace(SMALL, seeds=4)
LONGER = (2, 4)
LEARNED = 0.95
NOT_ROTARY = ("sinusoidal",)
OPTIONS = take_options(folders=("runs",), repeated=("only",))


def shared_paths(sizes: Sizes) -> jaxpe.Encoding:
    """Content and rotary logits of the same queries and keys: ⟨q, k⟩ + ⟨R_i q, R_j k⟩.

    Heads are twice as wide, as those of `independent_paths`; what is left over is not used.
    """
    width = head_dim(sizes)
    rope = jaxpe.rope(head_dim=width)

    def twice(params, x, positions):
        own = x[..., :width]
        return jnp.concatenate([own, rope.query(params, own, positions)], axis=-1)

    return jaxpe.Encoding(query=twice, key=twice)


def independent_paths(sizes: Sizes) -> jaxpe.Encoding:
    """Half of each head turns: content and rotary logits of queries and keys of their own."""
    return jaxpe.rope(head_dim=2 * head_dim(sizes), fraction=0.5)


def arms(sizes: Sizes) -> dict[str, tuple[Variant, Sizes]]:
    """Models by name, with their sizes; `rope` is what the others are compared with."""
    rope, scale = VARIANTS["rope"], 0.7 * sizes.dim**-0.5
    wide = ("head_dim", 2 * head_dim(sizes))
    half = rope._replace(make=lambda s: jaxpe.rope(head_dim=head_dim(s), fraction=0.5))
    found = {
        "rope": rope,
        "MLA": VARIANTS["mla"],
        "two paths, shared": Variant(shared_paths, config=(wide,)),
        "two paths, independent": Variant(independent_paths, config=(wide,)),
        "rope on 1 head": rope._replace(make=on_heads(1)),
        "norm after": rope._replace(config=(("norm_position", "post"),)),
        "dropout 0.1": rope,
        "dropout 0.3": rope,
        "init × 0.3": rope._replace(config=(("init_scale", 0.3 * scale),)),
        "init × 3": rope._replace(config=(("init_scale", 3 * scale),)),
        "rope on half of each head": half,
        "sinusoidal": VARIANTS["sinusoidal"],
        "rope on 2 heads": rope._replace(make=on_heads(2)),
    }
    rates = {"dropout 0.1": 0.1, "dropout 0.3": 0.3}
    return {
        name: (variant, dataclasses.replace(sizes, dropout=rates.get(name, 0.0)))
        for name, variant in found.items()
    }


def experiment(run: Run) -> dict[str, Any]:
    quick = dataclasses.replace(QUICK, segments=SIZES.segments, length=SIZES.length)
    sizes = quick if run.quick else SIZES
    known = arms(sizes)
    chosen = OPTIONS.only or list(known)[: 2 if run.quick else None]
    rows: dict[str, Any] = {}
    for name in chosen:
        variant, own = known[name]
        runs = None if OPTIONS.runs is None else OPTIONS.runs / name.replace(" ", "_")
        found = None if runs is None else runs / "analysed.json"
        if found is None or not found.is_file():
            trained, (_, held_out) = train("distance", name, variant, own, runs)
            rows[name] = plain(analysed(trained, held_out, own))
            if found is not None:
                found.write_text(json.dumps(rows[name]))
        else:
            rows[name] = json.loads(found.read_text())
        print(name, rows[name]["accuracy"]["seeds"], rows[name]["head"], flush=True)
    result = {
        "sizes": sizes.__dict__,
        "arms_not_run": [name for name in known if name not in rows],
        "arms": rows,
        "concentration_and_longer_rows": harm(rows),
        "training_seconds": sum(row["seconds"] for row in rows.values()),
    }
    draw(run, result)
    return result


def analysed(trained: Trained, held_out: Examples, sizes: Sizes) -> dict[str, Any]:
    """Accuracy, what each head is worth at the end, and accuracy in longer rows."""
    last = jax.tree.map(lambda x: x[-1], trained.params)
    only_last = jax.tree.map(lambda x: x[-1:], trained.params)
    at_end = trained._replace(steps=trained.steps[-1:], params=only_last)
    found = ablations(at_end, held_out, sizes)["zero"]
    costs = np.asarray(found["drop"]).clip(0)
    shares = costs / np.maximum(costs.sum(axis=(1, 2), keepdims=True), 1e-9)
    return found | {
        "accuracy": summary(correct(trained, last, held_out).mean(axis=1)),
        "share_of_layers": [summary(share) for share in shares.sum(axis=2).T],
        "share_of_first_heads": summary(shares[:, :, 0].sum(axis=1)),
        "longer_rows": {
            where: {
                str(factor): summary(correct(trained, last, rows).mean(axis=1))
                for factor in LONGER
                for rows in [longer_rows(sizes, factor, beyond=where == "beyond")]
            }
            for where in ("usual", "beyond")
        },
        "steps": int(trained.looks[-1]),
        "looks": trained.looks,
        "curve": trained.curve,
        "training_loss": trained.losses[-30:].mean(axis=0),
        "reason": trained.reason,
        "seconds": trained.seconds,
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
    return data._replace(
        ids=data.ids[chosen],
        mask=data.mask[chosen],
        labels=data.labels[chosen],
        ambiguous=data.ambiguous[chosen],
    )


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


def draw(run: Run, result: dict[str, Any]) -> None:
    rows = result["arms"]
    height = 1.4 + 0.26 * len(rows)
    figure, axes = new_figure(
        "Task 1: what heads are worth, and longer rows", columns=3, width=11, height=height
    )
    share, worst, longer = axes[0]
    for place, (name, row) in enumerate(rows.items()):
        style = {"color": _colour(name), "alpha": 0.7, "ms": 5, "ls": ""}
        for axis, key, mark in (
            (share, "largest_share", "o"),
            (worst, "largest_drop", "o"),
            (worst, "second_drop", "|"),
        ):
            axis.plot(row[key]["seeds"], [place] * len(row[key]["seeds"]), mark, **style)
        for factor, mark in zip(LONGER, ("o", "s"), strict=True):
            longer.plot(row["longer_rows"]["beyond"][str(factor)]["mean"], place, mark, **style)
    share.set(xlabel="largest head's share of all drops", xlim=(0, 1))
    worst.set(xlabel="accuracy lost: worst head (o), second (|)", xlim=(-0.05, 1.05))
    longer.set(xlabel="accuracy at 2 (o), 4 (□) times the filler", xlim=(-0.05, 1.05))
    for axis in axes[0]:
        axis.set_yticks(range(len(rows)), list(rows) if axis is share else [""] * len(rows))
        axis.invert_yaxis()
    save(run, "deposits", figure)


def _colour(name: str) -> str:
    if name == "rope":
        return BLUE
    if "rope on" in name:
        return VERMILION
    if "paths" in name or name == "MLA":
        return GREEN
    return ORANGE if name in NOT_ROTARY else GREY


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

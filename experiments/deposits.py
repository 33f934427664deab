"""Is the positional deposit of arXiv:2505.13027 robust, and does it harm? Task 1, RoPE and MLA.

The review's next checks: "varying dropout rates, initialization schemes, and layer normalization
placement" (2), "MLA variants with shared vs. independent parameters" (3), "whether deposit shifts
to deeper layers" where RoPE is on k heads; and its trade-off, "single-head deposit may harm length
extrapolation". Task 1 at the sizes of `spectral_tasks.py --settled`, 5 seeds, until solved or
settled; then every head ablated, and the same distances asked in rows whose first and last filler
are 2, 4 and 8 times as long, so that the triggers stand where none stood in training.

Options beside `--out` and `--quick`: `--runs FOLDER` keeps trained models there and goes on from
them (an hour and a half on one core without).
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import BLUE, GREEN, GREY, ORANGE, VERMILION, Run, main, new_figure, save_figure  # pyrefly: ignore  # pyrefly: ignore
from learning import spearman, take_options  # pyrefly: ignore
from task_measures import ablations, correct, summary  # pyrefly: ignore
from task_models import (  # pyrefly: ignore
    QUICK,
    SETTLED,
    VARIANTS,
    Sizes,
    Trained,
    Variant,
    head_dim,
    on_heads,
    train,
)

import jaxpe
from jaxpe.data import Examples, relative_distance

SIZES = dataclasses.replace(SETTLED, steps=4000, seeds=5)
LONGER = (2, 4, 8)
OPTIONS = take_options(folders=("runs",))


def both_paths(sizes: Sizes) -> jaxpe.Encoding:
    """Content and rotary logits of the same queries and keys: ⟨q, k⟩ + ⟨R_i q, R_j k⟩."""
    rope = jaxpe.rope(head_dim=head_dim(sizes))

    def twice(params, x, positions):
        return jnp.concatenate([x, rope.query(params, x, positions)], axis=-1)

    return jaxpe.Encoding(query=twice, key=twice)


def half_rotary(sizes: Sizes) -> jaxpe.Encoding:
    """Half of each head turns: content and rotary logits of queries and keys of their own."""
    return jaxpe.rope(head_dim=2 * head_dim(sizes), fraction=0.5)


def arms(sizes: Sizes) -> dict[str, tuple[Variant, Sizes]]:
    """Models by name, with their sizes; `rope` is what the others are compared with."""
    rope = VARIANTS["rope"]
    scale = 0.7 * sizes.dim**-0.5

    def changed(**config: Any) -> Variant:
        return rope._replace(config=tuple(config.items()))

    found = {
        "rope": rope,
        "init × 0.3": changed(init_scale=0.3 * scale),
        "init × 3": changed(init_scale=3 * scale),
        "norm after": changed(norm_position="post"),
        "RMS norm": changed(norm="rms"),
        "rope on 1 head": rope._replace(make=on_heads(1)),
        "rope on 2 heads": rope._replace(make=on_heads(2)),
        "rope on 3 heads": rope._replace(make=on_heads(3)),
        "two paths, shared": rope._replace(make=both_paths),
        "two paths, independent": Variant(half_rotary, config=(("head_dim", 2 * head_dim(sizes)),)),
        "MLA": VARIANTS["mla"],
        "sinusoidal": VARIANTS["sinusoidal"],
        "T5 bias": VARIANTS["t5"],
    }
    some = {name: (variant, sizes) for name, variant in found.items()}
    dropped = {
        f"dropout {rate}": (rope, dataclasses.replace(sizes, dropout=rate)) for rate in (0.1, 0.3)
    }
    return {"rope": some["rope"]} | dropped | some


def experiment(run: Run) -> dict[str, Any]:
    sizes = QUICK if run.quick else SIZES
    chosen = list(arms(sizes).items())[: 2 if run.quick else None]
    rows: dict[str, Any] = {}
    for name, (variant, own) in chosen:
        runs = None if OPTIONS.runs is None else OPTIONS.runs / name.replace(" ", "_")
        trained, (_, held_out) = train("distance", name, variant, own, runs)
        rows[name] = analysed(trained, held_out, own)
        print(name, rows[name]["accuracy"]["mean"], rows[name]["largest_drop"]["mean"], flush=True)
    result = {
        "sizes": sizes.__dict__,
        "arms": rows,
        "concentration_and_longer_rows": harm(rows),
        "training_seconds": sum(row["seconds"] for row in rows.values()),
    }
    draw(run, result)
    return result


def analysed(trained: Trained, held_out: Examples, sizes: Sizes) -> dict[str, Any]:
    """Accuracy, what each head is worth at the end, and accuracy in longer rows."""
    last = jax.tree.map(lambda x: x[-1], trained.params)
    found = ablations(trained._replace(steps=trained.steps[-1:], params=_only_last(trained)),
                      held_out, sizes)["zero"]  # fmt: skip
    longer = {
        str(factor): summary(correct(trained, last, rows).mean(axis=1))
        for factor in (1, *LONGER)
        for rows in [longer_rows(sizes, factor)]
    }
    costs = np.asarray(found["drop"]).clip(0)
    return found | {
        "accuracy": summary(correct(trained, last, held_out).mean(axis=1)),
        "longer_rows": longer,
        "by_layer": costs.sum(axis=2) / np.maximum(costs.sum(axis=(1, 2)), 1e-9)[:, None],
        "steps": int(trained.looks[-1]),
        "reason": trained.reason,
        "seconds": trained.seconds,
    }


def _only_last(trained: Trained) -> Any:
    return jax.tree.map(lambda x: x[-1:], trained.params)


def longer_rows(sizes: Sizes, factor: int, *, rows: int = 1000) -> Examples:
    """The same distances; the first trigger stands behind (factor − 1) to `factor` times `left`."""
    left, between, right = sizes.segments
    made = relative_distance(
        rows=40 * rows if factor > 1 else rows,
        vocab_size=sizes.vocab_size,
        left=factor * left,
        between=between,
        right=factor * right,
        length=factor * (left + right) + between + 2,
    )
    return far(made, (factor - 1) * left, rows)


def far(data: Examples, least: int, rows: int) -> Examples:
    """The first rows whose first trigger stands behind so much filler."""
    # The triggers are drawn first, so that they are those of the training rows; they are the only
    # two words that every row has.
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
    names, share, drop, accuracy = [], [], [], {str(f): [] for f in LONGER}
    for name, row in rows.items():
        if name in ("sinusoidal", "T5 bias"):
            continue
        for seed, right in enumerate(row["accuracy"]["seeds"]):
            if right < 0.95:
                continue
            drops = np.asarray(row["drop"][seed])
            names.append(name)
            share.append(float(drops.max() / drops.clip(0).sum()))
            drop.append(float(drops.max()))
            for factor, values in accuracy.items():
                values.append(row["longer_rows"][factor]["seeds"][seed])
    if len(set(names)) < 3:
        return {}
    y = {factor: np.array(values) for factor, values in accuracy.items()}
    return {
        "models": len(names),
        "largest_share": {f: spearman(np.array(share), y[f], names) for f in y},
        "largest_drop": {f: spearman(np.array(drop), y[f], names) for f in y},
    }


def draw(run: Run, result: dict[str, Any]) -> None:
    rows = result["arms"]
    figure, axes = new_figure("Task 1: what heads are worth, and longer rows", columns=3, width=11,
                              height=1.4 + 0.26 * len(rows))  # fmt: skip
    share, worst, longer = axes[0]
    for place, (name, row) in enumerate(rows.items()):
        colour = _colour(name)
        share.plot(row["largest_share"]["seeds"], [place] * len(row["largest_share"]["seeds"]),
                   "o", color=colour, ms=5, alpha=0.7)  # fmt: skip
        for key, mark in (("largest_drop", "o"), ("second_drop", "|")):
            worst.plot(row[key]["seeds"], [place] * len(row[key]["seeds"]), mark, color=colour,
                       ms=6, alpha=0.7)  # fmt: skip
        for factor, mark in zip(("2", "4", "8"), ("o", "s", "^"), strict=True):
            longer.plot(row["longer_rows"][factor]["mean"], place, mark, color=colour, ms=5)
    share.set(xlabel="largest head's share of all drops", xlim=(0, 1))
    worst.set(xlabel="accuracy lost: worst head (o), second (|)", xlim=(-0.05, 1.05))
    longer.set(xlabel="accuracy at 2 (o), 4 (s), 8 (^) times the filler", xlim=(-0.05, 1.05))
    for axis in axes[0]:
        axis.set_yticks(range(len(rows)), list(rows) if axis is share else [""] * len(rows))
        axis.invert_yaxis()
    save_figure(run, "deposits", figure)


def _colour(name: str) -> str:
    if name == "rope":
        return BLUE
    if "heads" in name or "head" in name:
        return VERMILION
    if "paths" in name or name == "MLA":
        return GREEN
    return ORANGE if name in ("sinusoidal", "T5 bias") else GREY


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

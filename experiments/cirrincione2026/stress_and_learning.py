"""Does the stress of an encoding predict what a model learns, where position matters?

Section 7 of the geometry paper leaves it open. Here: next words, words at offsets (both IMDB) and
kinds of token in source code (`learning_tasks.py`), 16 encodings of all families, 3 seeds on the
same batches, until the loss has stopped falling. Asked before looking, six looks: over encodings,
the rank correlation of held-out loss with the scaled stress of the encoding as initialised, against
the plug-in distances and against those of position alone in the corpus that is learned from, for
three tasks. Intervals are bootstrapped at 1 − 0.05/6. Then the choice itself: what one loses by
taking the encoding of least stress, against the best one and one drawn at random.

Each cell is kept in `runs/` under the folder of results; a second call makes those that are missing
(four hours on one core in all).
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpe
from experiments import common, learning
from experiments.learning_tasks import LENGTH, SIZES, Task, tasks, train
from jaxpe import encodings
from jaxpe.geometry import position_geometry
from jaxpe.training.probe import ReferenceGeometry, reference_geometry

SEEDS = 3
# Of every family, those that differ most in what they are made of.
ENCODINGS = (
    "none", "sinusoidal", "learned", "random", "information_optimal", "low_rank",
    "legendre_clipped", "chebyshev", "wavelet", "rope", "alibi", "t5", "kerple_log", "fire",
    "shaw", "transformer_xl",
)  # fmt: skip
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
TRIED = ("none", "sinusoidal", "rope", "t5")  # whose best rates decide the rate of a task
LOOKS = {"plug-in": "occupied/scaled_stress", "position": "position/scaled_stress"}
FAMILIES = ("absolute", "orthogonal", "rotary", "bias", "relative")
QUICK = {"most": 20, "window": 5, "tail": 6}


def experiment(run: common.Run) -> dict[str, Any]:
    kept = run.out / "runs" / ("stress_and_learning_quick" if run.quick else "stress_and_learning")
    seeds = 2 if run.quick else SEEDS
    found: dict[str, Any] = {}
    for name, read in tasks(quick=run.quick).items():
        task, folder = read(), kept / name.replace(" ", "_")
        documents = {"vocab_size": task.vocab_size, "mask": task.plain > 0}
        counts = jaxpe.geometry.count_tokens(task.plain, **documents)
        geometry = position_geometry(task.plain, key=jax.random.key(0), **documents)
        reference = reference_geometry(counts, geometry, empty="drop")
        rates = {} if run.quick else rates_tried(task, folder)
        how = {"rate": 3e-3, **QUICK} if run.quick else {"rate": best_rate(rates)}
        rows, fitted = {}, encodings.information_optimal(counts, dim=SIZES.dim)
        for entry in encodings.catalogue(*(("none", "sinusoidal") if run.quick else ENCODINGS)):
            made = fitted if entry.fitted else entry.make(SIZES)
            encoding = learning.scaled_to_tokens(made, LENGTH)
            path = folder / f"{entry.name}.json"
            row = learning.once(path, measured, task, encoding, reference, seeds=seeds, **how)
            rows[entry.name] = row | {"family": entry.family}
        found[name] = {"rates": rates, "rate": how["rate"], "encodings": rows} | judged(rows)
    draw(run, found)
    return {"seeds": seeds, "tasks": found}


def rates_tried(task: Task, folder: Path) -> dict[str, dict[str, float]]:
    """Held-out loss of short trainings at every rate."""

    def short(encoding: encodings.Encoding, rate: float) -> dict[str, Any]:
        trained = train(task, encoding, rate=rate, seeds=1, most=600, window=600, tail=150)
        return {"held_out": trained.held_out.tolist(), "seconds": trained.seconds}

    found: dict[str, dict[str, float]] = {}
    for entry in encodings.catalogue(*TRIED):
        encoding = learning.scaled_to_tokens(entry.make(SIZES), LENGTH)
        path = folder / f"rate-{entry.name}"
        rows = {r: learning.once(Path(f"{path}-{r}.json"), short, encoding, r) for r in RATES}
        found[entry.name] = {str(rate): row["held_out"][0] for rate, row in rows.items()}
    return found


def best_rate(rates: dict[str, dict[str, float]]) -> float:
    """The rate of least loss, in the mean over the encodings tried."""
    return min(RATES, key=lambda rate: np.mean([losses[str(rate)] for losses in rates.values()]))


def measured(
    task: Task,
    encoding: encodings.Encoding,
    reference: ReferenceGeometry,
    *,
    seeds: int,
    **how: Any,
) -> dict[str, Any]:
    """Held-out loss of every seed, and the stress of its encoding before and after training."""
    trained = train(task, encoding, seeds=seeds, **how)
    score = partial(learning.encoding_scores, encoding, reference, SIZES)
    geometry = jax.jit(jax.vmap(score, axis_size=seeds))  # NoPE has no parameters to tell it

    def scores_at(step: int) -> dict[str, list[float]]:
        params = trained.params[step]["transformer"]["encoding_params"].get_value()
        return common.plain(geometry(params))

    return {
        "held_out": trained.held_out.tolist(),
        "losses": trained.losses.mean(axis=1)[::50].tolist(),
        "steps": trained.steps,
        "reason": trained.reason,
        "seconds": trained.seconds,
        "before": scores_at(0),
        "after": scores_at(trained.steps),
    }


def judged(rows: dict[str, Any]) -> dict[str, Any]:
    """The two looks at a task, and what the choice by stress costs."""
    loss = {name: float(np.mean(row["held_out"])) for name, row in rows.items()}
    sd = float(np.sqrt(np.mean([np.var(row["held_out"], ddof=1) for row in rows.values()])))
    names, values = list(loss), np.array(list(loss.values()))
    looks: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    for label, measure in LOOKS.items():
        stress = np.array([np.mean(rows[name]["before"][measure]) for name in names])
        looks[label] = learning.spearman(stress, values, level=1 - 0.05 / 6)
        # Position vectors or logits that do not tell positions apart have stress 1 and no choice.
        taken = names[int(np.argmin(stress))]
        choice[label] = {"taken": taken, "loss": loss[taken]}
    best = names[int(np.argmin(values))]
    choice["best"] = {"taken": best, "loss": loss[best]}
    choice |= {"at_random": float(values.mean()), "none": loss["none"]}
    return {"sd_of_seeds": sd, "looks": looks, "choice": choice}


def draw(run: common.Run, found: dict[str, Any]) -> None:
    title = "Stress of an encoding and what a model learns with it"
    figure, axes = common.new_figure(title, columns=3, width=11, height=3.8)
    for axis, (name, of) in zip(axes[0], found.items(), strict=True):
        for family in FAMILIES:
            rows = [row for row in of["encodings"].values() if row["family"] == family]
            stress = [np.mean(row["before"][LOOKS["position"]]) for row in rows]
            loss = [np.mean(row["held_out"]) for row in rows]
            axis.plot(stress, loss, "o", ms=5, label=family)
        axis.set_title(f"{name}: {of['looks']['position']['rho']:.2f}")
        axis.set_xlabel("scaled stress as initialised, position")
    axes[0, 0].set_ylabel("held-out loss, nats")
    axes[0, 0].legend(fontsize=8.5)
    common.save_figure(run, "stress_and_learning", figure)


if __name__ == "__main__":
    common.main(experiment, "stress_and_learning")

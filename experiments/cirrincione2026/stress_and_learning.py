"""Does the stress of an encoding predict what a model learns, where position matters?

Section 7 of the geometry paper leaves it open, and SST-2 (`stress_and_accuracy.py`) hardly needs
order. Here: next words, words at offsets (both IMDB) and kinds of token in source code
(`learning_tasks.py`), 16 encodings of all families, 3 seeds on the same batches, until the loss has
stopped falling. Asked before looking, six looks: over encodings, the rank correlation of held-out
loss with the scaled stress of the encoding as initialised, against the plug-in distances and
against those of position alone in the corpus that is learned from, for three tasks. Intervals are
bootstrapped at 1 − 0.05/6. Then the choice itself: what one loses by taking the encoding of least
stress, against the best one and one drawn at random.

Each cell is kept in `runs/` under the folder of results; a second call makes those that are
missing (four hours on one core in all). With `--stored` the trainings are those of the stored
result, which no geometry enters, and the encodings as initialised are scored again.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpe
from experiments.common import (  # pyrefly: ignore
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    VERMILION,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.learning import (
    encoding_scores,
    once,
    scaled_to_tokens,
    spearman,
    take_options,
)
from experiments.learning_tasks import LENGTH, SIZES, Task, initial_params, tasks, train
from experiments.rows import read_rows
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
COLOURS = {"absolute": BLUE, "orthogonal": GREEN, "rotary": VERMILION, "bias": ORANGE,
           "relative": PINK}  # fmt: skip
QUICK = {"most": 20, "window": 5, "tail": 6}
OPTIONS = take_options("stored")


def experiment(run: Run) -> dict[str, Any]:
    kept = run.out / "runs" / ("stress_and_learning_quick" if run.quick else "stress_and_learning")
    seeds = 2 if run.quick else SEEDS
    entries = jaxpe.catalogue(*(("none", "sinusoidal") if run.quick else ENCODINGS))
    found: dict[str, Any] = {}
    stored = read_rows(run.out / "stress_and_learning.json")["tasks"] if OPTIONS.stored else {}
    for name, read in tasks(quick=run.quick).items():
        task = read()
        documents = {"vocab_size": task.vocab_size, "mask": task.plain > 0}
        counts = jaxpe.count_tokens(task.plain, **documents)
        geometry = position_geometry(task.plain, key=jax.random.key(0), **documents)
        reference = reference_geometry(counts, geometry, empty="drop")
        folder = kept / name.replace(" ", "_")
        rates = stored[name]["rates"] if stored else {} if run.quick else rates_tried(task, folder)
        rate = 3e-3 if run.quick else best_rate(rates)
        rows = {}
        for entry in entries:
            encoding = (
                jaxpe.information_optimal(counts, dim=SIZES.dim)
                if entry.fitted
                else entry.make(SIZES)
            )
            if stored:
                before = scores_before(task, scaled_to_tokens(encoding, LENGTH), reference, seeds)
                rows[entry.name] = stored[name]["encodings"][entry.name] | {"before": before}
                continue
            rows[entry.name] = once(
                folder / f"{entry.name}.json", measured, task, scaled_to_tokens(encoding, LENGTH),
                reference, rate=rate, seeds=seeds, **(QUICK if run.quick else {}),
            ) | {"family": entry.family}  # fmt: skip
        found[name] = {
            "rates": rates,
            "rate": rate,
            "rows": len(task.train.ids),
            "scored": int(task.held_out.scored.sum()),
            "encodings": rows,
        } | judged(rows)
        print(name, found[name]["looks"], found[name]["choice"], flush=True)
    result = {
        "sizes": SIZES._asdict() if hasattr(SIZES, "_asdict") else vars(SIZES),
        "seeds": seeds,
        "tasks": found,
        "training_seconds": sum(
            row["seconds"] for of in found.values() for row in of["encodings"].values()
        ),
    }
    draw(run, result)
    return result


def rates_tried(task: Task, folder: Path) -> dict[str, dict[str, float]]:
    """Held-out loss of short trainings at every rate."""
    found: dict[str, dict[str, float]] = {}
    for name in TRIED:
        [entry] = jaxpe.catalogue(name)
        encoding = scaled_to_tokens(entry.make(SIZES), LENGTH)
        found[name] = {}
        for rate in RATES:
            short = partial(_short, task, encoding, rate)
            row = once(folder / f"rate-{name}-{rate}.json", short)
            found[name][str(rate)] = row["held_out"][0]
    return found


def _short(task: Task, encoding: jaxpe.Encoding, rate: float) -> dict[str, Any]:
    trained = train(task, encoding, rate=rate, seeds=1, most=600, window=600, tail=150)
    return {"held_out": trained.held_out.tolist(), "seconds": trained.seconds}


def best_rate(rates: dict[str, dict[str, float]]) -> float:
    """The rate of least loss, in the mean over the encodings tried."""
    mean = {rate: np.mean([losses[rate] for losses in rates.values()])
            for rate in next(iter(rates.values()))}  # fmt: skip
    return float(min(mean, key=lambda rate: mean[rate]))


def measured(
    task: Task, encoding: jaxpe.Encoding, reference: ReferenceGeometry, *, seeds: int, **how: Any
) -> dict[str, Any]:
    """Held-out loss of every seed, and the stress of its encoding before and after training."""
    trained = train(task, encoding, seeds=seeds, **how)
    geometry = scores_of(encoding, reference, seeds)
    return {
        "held_out": trained.held_out.tolist(),
        "losses": trained.losses.mean(axis=1)[::50].tolist(),
        "steps": trained.steps,
        "reason": trained.reason,
        "seconds": trained.seconds,
        "before": _lists(geometry(_of_encoding(trained.params[0]))),
        "after": _lists(geometry(_of_encoding(trained.params[trained.steps]))),
    }


def scores_before(
    task: Task, encoding: jaxpe.Encoding, reference: ReferenceGeometry, seeds: int
) -> dict[str, list[float]]:
    """Scores of the encoding as initialised, of every seed."""
    params = initial_params(task, encoding, seeds=seeds)
    return _lists(scores_of(encoding, reference, seeds)(_of_encoding(params)))


def scores_of(encoding: jaxpe.Encoding, reference: ReferenceGeometry, seeds: int) -> Any:
    score = partial(encoding_scores, encoding, reference, SIZES)
    return jax.jit(jax.vmap(score, axis_size=seeds))  # NoPE has no parameters to tell it


def _of_encoding(params: Any) -> Any:
    return params["transformer"]["encoding_params"].get_value()


def _lists(found: dict[str, jax.Array]) -> dict[str, list[float]]:
    return {name: np.asarray(value).tolist() for name, value in found.items()}


def judged(rows: dict[str, Any]) -> dict[str, Any]:
    """The two looks at a task, and what the choice by stress costs."""
    loss = {name: float(np.mean(row["held_out"])) for name, row in rows.items()}
    sd = float(np.sqrt(np.mean([np.var(row["held_out"], ddof=1) for row in rows.values()])))
    names, values = list(loss), np.array(list(loss.values()))
    families = [rows[name]["family"] for name in names]
    looks, choice = {}, {}
    for label, measure in LOOKS.items():
        stress = np.array([np.mean(rows[name]["before"][measure]) for name in names])
        looks[label] = spearman(stress, values, level=1 - 0.05 / 6)
        looks[label]["by_family"] = spearman(stress, values, families, level=1 - 0.05 / 6)
        # Position vectors or logits that do not tell positions apart have stress 1 and no choice.
        taken = names[int(np.argmin(stress))]
        choice[label] = {"taken": taken, "loss": loss[taken]}
    best = names[int(np.argmin(values))]
    return {
        "sd_of_seeds": sd,
        "looks": looks,
        "choice": choice
        | {
            "best": {"taken": best, "loss": loss[best]},
            "at_random": float(values.mean()),
            "none": loss["none"],
        },
    }


def draw(run: Run, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Stress of an encoding and what a model learns with it", columns=3, width=11, height=3.8
    )
    for axis, (name, of) in zip(axes[0], result["tasks"].items(), strict=True):
        for family, colour in COLOURS.items():
            rows = [row for row in of["encodings"].values() if row["family"] == family]
            axis.plot(
                [np.mean(row["before"][LOOKS["position"]]) for row in rows],
                [np.mean(row["held_out"]) for row in rows],
                "o", ms=5, color=colour, label=family,
            )  # fmt: skip
        look = of["looks"]["position"]
        axis.set(
            title=f"{name}: {look['rho']:.2f} [{look['low']:.2f}, {look['high']:.2f}]",
            xlabel="scaled stress as initialised, position",
        )
    axes[0, 0].set_ylabel("held-out loss, nats")
    axes[0, 0].legend(fontsize=8.5)
    save_figure(run, "stress_and_learning", figure)


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

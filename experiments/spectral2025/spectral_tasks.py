"""Tasks 1 and 2 of arXiv:2505.13027 under every encoding: accuracy, convergence, deposits, spectra.

Options beside `--out` and `--quick`: `--only NAME`, again and again, takes some variants alone,
`--task distance` or `count` one of the tasks. All take two hours on two cores.
Sizes, each with a results file of its own (`spectral_tasks_small.json`, ...):
`--settled` trains until the loss has stopped falling, or for the published updates; `--small` does
so at half the length and the distances, for accuracies alone; `--twice` at twice the width, length
and distances;
`--published` is the published size (100 epochs of 512 rows, 16 heads, 6 layers: for a GPU), which
ends earlier only where the task is solved.
`--settled`, `--twice` and `--published` grow: each seed is trained by itself, and is a row of the
results file as soon as it is done; a run trains those that are not there, and leaves the others
alone. There `--seed K`, again and again, takes some seeds alone, and `--minutes N` begins
no model later than that. `--twice` chooses the rate for each variant on a seed of its own;
`--rate R`, again and again, trains at these rates instead, in rows of their own.
"""

import dataclasses
import itertools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import (
    Run,
    main,
    plain,
)
from experiments.learning import spearman, take_options
from experiments.rows import add_row, cost, inside, read_rows, row_of
from experiments.spectral2025.task_measures import (
    ablated_at_end,
    ablations,
    correct,
    deposited,
    noise_of,
    summary,
)
from experiments.spectral2025.task_models import (
    PUBLISHED,
    QUICK,
    SETTLED,
    SMALL,
    TWICE,
    Sizes,
    Trained,
    train,
    variants,
)
from jaxpe import spectral
from jaxpe.data.tasks.positions import Examples

TASKS = ("distance", "count")
CONVERGED = 0.9
SPECTRUM_ROWS = 24  # documents whose logits are taken apart, cut to this many tokens
MEASURES = ("range", "effective_rank", "range_centred", "effective_rank_centred")
FAMILIES = ("mla", "rope", "alibi", "t5", "shaw", "nope")  # by name; the others are added


SIZES = {"published": PUBLISHED, "settled": SETTLED, "small": SMALL, "twice": TWICE}
GROW = ("settled", "twice", "published")  # sizes whose models are trained one by one
TUNING_SEED, TUNING_STEPS = 9, 500  # of no model that is tested; the rate falls over 200 steps
OPTIONS = take_options(*SIZES, repeated=("only", "task", "seed", "rate"), minutes=True)


def experiment(run: Run, options: Any = OPTIONS) -> dict[str, Any]:
    if size_asked(options) in GROW:
        return grown(run, options)
    if options.rate:
        raise SystemExit(f"--rate goes with one of {', '.join(f'--{name}' for name in GROW)}")
    sizes = sizes_of(options, quick=run.quick)
    names = options.only or list(variants(sizes))[: 2 if run.quick else None]
    tasks = options.task or list(TASKS)
    rows: dict[str, dict[str, Any]] = {task: {} for task in tasks}
    for name in names:
        for task in tasks:
            trained, (_, held_out) = train(task, variants(sizes)[name], sizes)
            found = rows[task][name] = accuracies(trained, held_out)
            if not options.small:
                found["ablation"] = ablations(trained, held_out, sizes)
                causal = variants(sizes)[name].causal
                found["spectra"] = spectra(trained, held_out, causal=causal)
            print(f"{task} {name}: {found['accuracy']['mean']:.3f}", flush=True)
    result: dict[str, Any] = {"sizes": sizes.__dict__, "tasks": rows}
    if not options.small:
        result["contraction"] = {task: contraction(rows[task]) for task in tasks}
    return result


def grown(run: Run, options: Any) -> dict[str, Any]:
    """All rows there are, after those that the options ask for and that were not there."""
    sizes = dataclasses.replace(sizes_of(options, quick=run.quick), seeds=1)
    path = run.out / f"{file_of(options)}.json"
    begun = time.perf_counter()
    arms = itertools.product(
        map(int, options.seed or range(SETTLED.seeds)),
        options.task or list(TASKS),
        options.only or list(variants(sizes)),
        map(float, options.rate or [0.0]),  # 0: the rate of the row
    )
    for seed, task, name, rate in arms:
        where = ("tasks", task, name, *(("other_rates", f"{rate:.2e}") if rate else ()))
        names = (*where, "seeds", str(seed))
        late = time.perf_counter() - begun > 60 * options.minutes
        if late or row_of(read_rows(path), names) is not None:
            continue
        own = dataclasses.replace(sizes, first_seed=seed)
        if rate or options.twice:
            own = dataclasses.replace(own, rate=rate or rate_of(task, name, sizes, path))
        row = grown_row(task, name, own)
        seeds = row_of(add_row(path, names, plain(row)), names[:-1])
        add_row(path, (*where, "together"), plain(together(seeds)))
        print(*where[1:], seed, row["accuracy"], row["reason"], row["updates"], flush=True)
    rows = read_rows(path)
    return {**rows, "sizes": sizes.__dict__, "cost": cost(rows["tasks"])}


def rate_of(task: str, name: str, sizes: Sizes, path: Path) -> float:
    """The rate of a variant, from its row, or by the least loss after a few hundred updates.

    Rates are 2e-3 · 2^k; the grid grows until both neighbours of the best one have been tried.
    """
    names = ("tasks", task, name, "rate")
    found: Any = row_of(read_rows(path), names)
    if found is None:
        begun, steps = time.process_time(), min(sizes.steps, TUNING_STEPS)
        short = dataclasses.replace(sizes, first_seed=TUNING_SEED, steps=steps)

        def loss_at(k: int) -> float:
            own = dataclasses.replace(short, rate=sizes.rate * 2.0**k)
            trained, _ = train(task, variants(sizes)[name], own)
            losses: Any = trained.losses
            return float(np.nan_to_num(losses[-sizes.look_every :].mean(), nan=np.inf))

        losses = inside(loss_at, first=0)
        best = min(losses, key=losses.__getitem__)
        tried = {f"{sizes.rate * 2.0**k:.2e}": losses[k] for k in sorted(losses)}
        took = time.process_time() - begun
        found = {"rate": sizes.rate * 2.0**best, "tried": tried, "cpu_seconds": took}
        add_row(path, names, plain(found))
        print(task, name, tried, flush=True)
    return float(found["rate"])


def grown_row(task: str, name: str, sizes: Sizes) -> dict[str, Any]:
    """One seed of a variant: accuracy, how it came there, and what its heads are worth."""
    trained, (_, held_out) = train(task, variants(sizes)[name], sizes)
    found = accuracies(trained, held_out)
    return {
        "accuracy": found["accuracy"]["mean"],
        "accuracy_unambiguous": found["accuracy_unambiguous"]["mean"],
        "ambiguous_rows": found["ambiguous_rows"],
        "steps_to_90": found["steps_to_90"][0],
        "updates": int(trained.looks[-1]),
        "reason": trained.reason,
        "looks": trained.looks,
        "curve": trained.curve[:, 0],
        "loss": trained.losses[:, 0].reshape(len(trained.looks) - 1, -1).mean(axis=1),
        "drop": ablated_at_end(trained, held_out, sizes)["drop"][0],
        "cpu_seconds": trained.seconds,
        "device": jax.devices()[0].device_kind,
    }


def together(seeds: dict[str, Any]) -> dict[str, Any]:
    """What seeds that were trained one by one have in common."""
    rows = [seeds[seed] for seed in sorted(seeds, key=int)]
    drops = jnp.array([row["drop"] for row in rows])
    found = deposited(drops, noise_of(SETTLED))
    return {
        "accuracy": summary([row["accuracy"] for row in rows]),
        "accuracy_unambiguous": summary([row["accuracy_unambiguous"] for row in rows]),
        "steps_to_90": [row["steps_to_90"] for row in rows],
        "updates": [row["updates"] for row in rows],
        "reasons": [row["reason"] for row in rows],
        **{key: value for key, value in found.items() if key not in ("drop", "noise")},
    }


def file_of(options: Any) -> str:
    """Name of the results file, which says the size."""
    return "_".join(filter(None, (Path(__file__).stem, size_asked(options))))


def size_asked(options: Any) -> str | None:
    """The size that the options name, if any."""
    return next((name for name in SIZES if getattr(options, name)), None)


def sizes_of(options: Any, *, quick: bool) -> Sizes:
    name = size_asked(options)
    if name is None:
        return QUICK if quick else Sizes()
    return SIZES[name]


def accuracies(trained: Trained, held_out: Examples) -> dict[str, Any]:
    """How well the models of one variant do on one task, at the end and on the way."""
    last = jax.tree.map(lambda x: x[-1], trained.params)
    right = correct(trained, last, held_out)
    reached = trained.curve >= CONVERGED
    first = np.where(reached.any(axis=0), trained.looks[np.argmax(reached, axis=0)], -1)
    return {
        "accuracy": summary(right.mean(axis=1)),
        "accuracy_unambiguous": summary(right[:, ~held_out.ambiguous].mean(axis=1)),
        "ambiguous_rows": float(held_out.ambiguous.mean()),
        "steps_to_90": [None if step < 0 else int(step) for step in first],
        "mean_accuracy_over_training": summary(trained.curve.mean(axis=0)),
        "looks": trained.looks,
        "curve": trained.curve,
        "training_loss": trained.losses[-30:].mean(axis=0),
        "seconds": trained.seconds,
        "reason": trained.reason,
    }


def spectra(trained: Trained, held_out: Examples, *, causal: bool) -> dict[str, Any]:
    """Spectra of the logits of rows cut to 24 tokens, by layer and along the training.

    Under a causal mask what is masked counts as 0.
    """
    allowed = np.tri(SPECTRUM_ROWS, dtype=bool) if causal else None
    long = held_out.mask.sum(axis=1) >= SPECTRUM_ROWS
    ids = held_out.ids[long][:SPECTRUM_ROWS, :SPECTRUM_ROWS]

    @jax.jit
    def measure(params):
        seen = trained.apply(params, ids, trace=True).transformer
        L = seen.logits  # [layers, rows, heads, n, n]
        # What softmax sees of them: a constant added to a row changes no weight.
        C = L - jnp.mean(L, axis=-1, keepdims=True, where=allowed)
        found: dict[str, jax.Array] = {}
        for name, matrix in (("", L), ("_centred", C)):
            found[f"range{name}"] = spectral.spectrum(matrix, mask=allowed).range
            singular = spectral.spectrum(matrix, kind="singular", mask=allowed)
            found[f"effective_rank{name}"] = singular.effective_rank
        found["size"] = jnp.sqrt(jnp.mean(C**2, axis=(-2, -1), where=allowed))
        return {name: jnp.mean(value, axis=(1, 2)) for name, value in found.items()}

    def at(index):
        every = [
            jax.tree.map(lambda x, seed=seed: x[index, seed], trained.params)
            for seed in range(trained.curve.shape[1])
        ]
        found = [measure(params) for params in every]
        return jax.tree.map(lambda *x: np.stack(x), *jax.device_get(found))

    return {str(step): at(index) for index, step in enumerate(trained.steps)}


def contraction(rows: dict[str, Any]) -> dict[str, Any]:
    """Rank correlations over the clean encodings: does a contracted spectrum converge sooner?

    Asked before looking: the range of centred logits at the start against the mean accuracy over
    the training, which needs no threshold. The others beside it are many; one in twenty of them is
    outside its interval by chance. A model that never comes to 90 % counts as one look later.
    """
    clean = [name for name in rows if not name.startswith("published")]
    if len(clean) < 4:
        return {}
    last = max(row["looks"][-1] for row in rows.values())
    never = last + rows[clean[0]]["looks"][1]
    steps = [[never if s is None else s for s in rows[n]["steps_to_90"]] for n in clean]
    outcomes = {
        "steps_to_90": np.mean(steps, axis=1),
        "mean_accuracy": np.array([rows[n]["mean_accuracy_over_training"]["mean"] for n in clean]),
    }
    families = [family(name) for name in clean]
    unsolved = [n for n in clean if None in rows[n]["steps_to_90"]]
    found: dict[str, Any] = {"encodings": clean, "families": families, "unsolved": unsolved}
    for when, at in (("at_start", "0"), ("at_end", str(last))):
        for measure in MEASURES:
            spread = np.array([np.mean(rows[n]["spectra"][at][measure]) for n in clean])
            for outcome, values in outcomes.items():
                found[f"{when}/{measure}/{outcome}"] = spearman(spread, values, families)
    return found


def family(name: str) -> str:
    """What kind of encoding it is."""
    return next((family for family in FAMILIES if family in name), "added")


if __name__ == "__main__":
    main(experiment, file_of(OPTIONS), grows=size_asked(OPTIONS) in GROW)

"""Section 7's open problem: does a lower stress mean a better accuracy? SST-2, every encoding.

Theirs: "not established and may not hold in general". Ours: one small classifier with each
encoding of the catalogue that text can have, 4 seeds each, all on the same batches in the same
order; accuracy on the dev set and on a tenth of the training phrases held out with their sentences,
against the stress of the encoding before and after training (raw, at the best scale, and that
against position alone; distances that the encoding induces between logits where it has no vectors),
as Spearman's rank correlation with a bootstrap over encodings. Then stress as a regulariser of the
learned table: loss + λ · scaled stress against position alone.

Pre-norm encoder of 2 layers, 64 wide, 4 heads of 16, mean over tokens; the 4,000 most frequent
words, rows cut at 48. What is added to the embeddings is rescaled to rows of root mean square norm
1 at the start, which is the norm of a token's embedding, so that size decides nothing. AdamW at
1e-3 with linear decay, batches of 64. Each encoding's result is kept in `runs/` under the folder of
results; a second call makes those that are missing. With `--stored` the accuracies of encodings are
those of the stored result, which no geometry enters, and encodings as initialised are scored again;
what they are after training is against split halves then, composition included.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxpe
from experiments.common import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    VERMILION,
    DataMissingError,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.learning import (
    dev_batches,
    encoding_scores,
    folded,
    interval,
    once,
    position_of,
    scaled_to_tokens,
    spearman,
    take_options,
    training_batches,
)
from experiments.rows import read_rows
from jaxpe._core.errors import InputError
from jaxpe.data import LabelledTokens, hold_out, load_labelled
from jaxpe.nn import Classifier, Encoder, TransformerConfig, functionalize
from jaxpe.training import (
    LossFunction,
    MeanMetric,
    TrainState,
    adamw,
    classification,
    init_state,
    learning_rate_schedule,
    step_function,
)
from jaxpe.training.probe import ReferenceGeometry, reference_geometry

LENGTH, BUCKETS = 48, (12, 24, 48)
SIZES = jaxpe.EncodingSizes(dim=64, num_heads=4, head_dim=16, length=LENGTH)
SEEDS, STEPS = 4, 800
LAMBDAS = (0.0, 0.1, 1.0, 10.0)
MEASURES = {
    "raw": "occupied/stress",
    "scaled": "occupied/scaled_stress",
    "position": "position/scaled_stress",
    "split_half": "split_half/scaled_stress",  # position and composition, of stored results
}
OPTIONS = take_options("stored")
COLOURS = {
    "absolute": BLUE,
    "orthogonal": GREEN,
    "rotary": VERMILION,
    "bias": ORANGE,
    "relative": PINK,
}


class Task(NamedTuple):
    """The texts, and the geometry of the training texts.

    Attributes:
        train: to learn from.
        held_out: a tenth of the training phrases.
        dev: the dev set.
        counts: of the training texts, over all folds.
        reference: their geometry.
    """

    train: LabelledTokens
    held_out: LabelledTokens
    dev: LabelledTokens
    counts: jaxpe.PositionCounts
    reference: ReferenceGeometry


def experiment(run: Run) -> dict[str, Any]:
    task = read_task()
    seeds, steps = (2, 30) if run.quick else (SEEDS, STEPS)
    kept = run.out / "runs" / f"accuracy-{seeds}-{steps}"
    kept.mkdir(parents=True, exist_ok=True)
    names = ("none", "sinusoidal", "alibi", "t5") if run.quick else ()
    entries = [entry for entry in jaxpe.catalogue(*names) if entry.coordinates == 1]
    rows = {}
    stored = read_rows(run.out / "stress_and_accuracy.json")["encodings"] if OPTIONS.stored else {}
    for entry in entries:
        if stored and entry.name not in stored:  # encodings that came later
            continue
        encoding = scaled_to_tokens(made(entry, task), LENGTH)
        if stored:
            before = scores_before(encoding, task, seeds=seeds)
            rows[entry.name] = stored[entry.name] | {"before": before}
            continue
        rows[entry.name] = once(
            kept / f"{entry.name}.json", measured, encoding, task, seeds=seeds, steps=steps
        ) | {"family": entry.family}
    learned = scaled_to_tokens(jaxpe.learned(length=LENGTH, dim=SIZES.dim), LENGTH)
    regularised = {
        str(weight): once(
            kept / f"lambda-{weight}.json",
            measured,
            learned,
            task,
            seeds=seeds,
            steps=steps,
            weight=weight,
        )
        for weight in (LAMBDAS[-1:] if run.quick else LAMBDAS)
    }
    result = {
        "seeds": seeds,
        "steps": steps,
        "held_out_phrases": len(task.held_out.labels),
        "dev_sentences": len(task.dev.labels),
        "encodings": rows,
        "regularised": regularised,
        "rank_correlations": rank_correlations(rows),
        "power": power(rows, task),
    }
    print(result["rank_correlations"], result["power"])
    draw(run, result)
    return result


def read_task() -> Task:
    try:
        train = load_labelled("sst2", length=LENGTH, max_vocab=4000)
        dev = load_labelled("sst2", split="dev", like=train)
    except InputError as error:
        raise DataMissingError(str(error)) from error
    train, held_out = hold_out(train, fraction=0.1)
    counts = folded(train.corpus).counts.merged()
    reference = reference_geometry(counts, position_of(train.corpus), empty="drop")
    return Task(train, held_out, dev, counts, reference)


def made(entry: jaxpe.encodings.CatalogueEntry, task: Task) -> jaxpe.Encoding:
    """An encoding of the catalogue; the one that is made from a corpus, from this one."""
    if entry.fitted:
        return jaxpe.information_optimal(task.counts, dim=SIZES.dim)
    return entry.first_layer(SIZES)


def measured(
    encoding: jaxpe.Encoding, task: Task, *, seeds: int, steps: int, weight: float = 0.0
) -> dict[str, Any]:
    """Accuracy and geometry of every seed, trained side by side."""
    start = time.perf_counter()
    apply, _ = functionalize(classifier(encoding, task, jax.random.key(0)))
    plain = classification(apply, train=False)
    loss = classification(apply)
    if weight:
        loss = regularised_by_stress(loss, encoding, task.reference, weight)
    schedule = learning_rate_schedule(peak=1e-3, steps=steps, warmup=steps // 20, decay="linear")
    optimizer = adamw(schedule, weight_decay=0.01)

    def begin(key: jax.Array) -> TrainState:
        params = functionalize(classifier(encoding, task, key))[1]
        return init_state(params, optimizer, key=key)

    state = jax.jit(jax.vmap(begin))(keys_of(seeds))
    geometry = scores_of(encoding, task, seeds=seeds)
    before = geometry(encoding_params(state.params))
    step = jax.jit(jax.vmap(step_function(loss, optimizer), in_axes=(0, None)), donate_argnums=0)
    data = training_batches(task.train, batch_size=64, seed=0, buckets=BUCKETS)
    clock = time.perf_counter()
    for _, batch in zip(range(steps), data, strict=False):
        state, _ = step(state, batch)
    jax.block_until_ready(state.step)
    training = time.perf_counter() - clock
    after = geometry(encoding_params(state.params))
    return {
        "held_out": accuracies(plain, state.params, task.held_out),
        "dev": accuracies(plain, state.params, task.dev),
        "before": {name: np.asarray(value).tolist() for name, value in before.items()},
        "after": {name: np.asarray(value).tolist() for name, value in after.items()},
        "finite": np.asarray(state.finite).tolist(),
        "seconds": time.perf_counter() - start,
        "seconds_per_step": training / steps,
    }


def keys_of(seeds: int) -> jax.Array:
    return jax.random.split(jax.random.key(1), seeds)


def scores_of(encoding: jaxpe.Encoding, task: Task, *, seeds: int) -> Any:
    score = partial(encoding_scores, encoding, task.reference, SIZES)
    return jax.jit(jax.vmap(score, axis_size=seeds))  # NoPE has no parameters to tell it


def scores_before(encoding: jaxpe.Encoding, task: Task, *, seeds: int) -> dict[str, list[float]]:
    """Scores of the encoding as initialised, of every seed."""
    begin = jax.jit(jax.vmap(lambda key: functionalize(classifier(encoding, task, key))[1]))
    found = scores_of(encoding, task, seeds=seeds)(encoding_params(begin(keys_of(seeds))))
    return {name: np.asarray(value).tolist() for name, value in found.items()}


def classifier(encoding: jaxpe.Encoding, task: Task, key: jax.Array) -> Classifier:
    config = TransformerConfig(
        vocab_size=task.train.corpus.vocab_size,
        dim=SIZES.dim,
        num_layers=2,
        num_heads=SIZES.num_heads,
        embedding_scale=SIZES.dim**-0.5,
        init_scale=0.1,
        dropout=0.1,
        attention="transparent",
    )
    rngs = nnx.Rngs(key)
    encoder = Encoder(config, encoding=encoding, rngs=rngs)
    return Classifier(encoder, num_classes=2, pooling="mean", rngs=rngs)


def regularised_by_stress(
    loss: LossFunction, encoding: jaxpe.Encoding, reference: ReferenceGeometry, weight: float
) -> LossFunction:
    """The loss plus `weight` times the scaled stress of the vectors against position."""

    def penalised(params, batch, key):
        tally, extra = loss(params, batch, key)
        P = encoding.vectors(encoding_params(params), jnp.arange(LENGTH))
        penalty = jaxpe.scaled_stress(P, reference.position).stress
        return MeanMetric(tally.total + weight * penalty * tally.weight, tally.weight), extra

    return penalised


def encoding_params(params: Any) -> Any:
    return params["encoder"]["encoding_params"].get_value()


def accuracies(loss: LossFunction, params: Any, data: LabelledTokens) -> list[float]:
    """Of every seed."""
    judge = jax.jit(jax.vmap(loss, in_axes=(0, None, None)))
    key = jax.random.key(0)
    judged = dev_batches(data, batch_size=512, buckets=BUCKETS[-1:])
    tallies = [judge(params, batch, key)[1]["accuracy"] for batch in judged]
    right = np.sum([np.asarray(tally.total) for tally in tallies], axis=0)
    return (right / len(data.labels)).tolist()


def rank_correlations(rows: dict[str, Any]) -> dict[str, Any]:
    """Spearman's between held-out accuracy and stress, with and without NoPE."""
    found: dict[str, Any] = {}
    for which, names in (("all", list(rows)), ("without_none", [n for n in rows if n != "none"])):
        accuracy = np.array([np.mean(rows[name]["held_out"]) for name in names])
        for when in ("before", "after"):
            for label, measure in MEASURES.items():
                if any(measure not in rows[name][when] for name in names):
                    continue
                stress = np.array([np.mean(rows[name][when][measure]) for name in names])
                found[f"{which}/{when}/{label}"] = spearman(stress, accuracy)
    return found


def power(rows: dict[str, Any], task: Task) -> dict[str, float]:
    """The difference of two encodings that these seeds find four times in five."""
    found = {}
    for where, data in (("held_out", task.held_out), ("dev", task.dev)):
        each = np.array([row[where] for row in rows.values()])
        sd = float(np.sqrt(np.mean(each.var(axis=1, ddof=1))))
        rate = float(each.mean())
        found[f"{where}/sd_of_seeds"] = sd
        found[f"{where}/detectable_difference"] = 2.8 * sd * np.sqrt(2 / each.shape[1])
        found[f"{where}/sampling_error_of_one_model"] = float(
            np.sqrt(rate * (1 - rate) / len(data.labels))
        )
    return found


def draw(run: Run, result: dict[str, Any]) -> None:
    rows, correlations = result["encodings"], result["rank_correlations"]
    figure, axes = new_figure(
        "Stress and accuracy of one small classifier",
        columns=3,
        width=11.0,
        height=1.6 + 0.17 * max(len(rows), 14),
    )
    listed, *against = axes[0]
    order = sorted(rows, key=lambda name: np.mean(rows[name]["held_out"]))
    for place, name in enumerate(order):
        values, colour = rows[name]["held_out"], COLOURS[rows[name]["family"]]
        listed.errorbar(
            100 * np.mean(values), place, xerr=100 * interval(values), fmt="o", ms=4, color=colour
        )
    listed.axvline(100 * np.mean(rows["none"]["held_out"]), color=GREY, lw=1, ls=":")
    listed.set_yticks(range(len(order)), order, fontsize=8.5)
    listed.set(xlabel="held-out accuracy, %", title="95 % intervals over seeds")
    for axis, when in zip(against, ("before", "after"), strict=True):
        look = next(x for x in ("position", "split_half") if f"all/{when}/{x}" in correlations)
        for family, colour in COLOURS.items():
            names = [name for name in rows if rows[name]["family"] == family]
            axis.plot(
                [np.mean(rows[n][when][MEASURES[look]]) for n in names],
                [100 * np.mean(rows[n]["held_out"]) for n in names],
                "o",
                ms=5,
                color=colour,
                label=family,
            )
        found = correlations[f"all/{when}/{look}"]
        axis.set(
            xlabel=f"scaled stress {when} training, {look.replace('_', ' ')}",
            title=f"rank correlation {found['rho']:.2f} [{found['low']:.2f}, {found['high']:.2f}]",
        )
    against[0].set_ylabel("held-out accuracy, %")
    against[0].legend(fontsize=8.5)
    save_figure(run, "stress_and_accuracy", figure)


if __name__ == "__main__":
    main(experiment, "stress_and_accuracy")

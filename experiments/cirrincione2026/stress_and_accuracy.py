"""Section 7's open problem: does a lower stress mean a better accuracy? SST-2, every encoding.

One small classifier with each encoding of the catalogue that text can have, 4 seeds each, all on
the same batches in the same order; accuracy on the dev set and on a tenth of the training phrases
held out with their sentences, against the stress of the encoding before and after training (raw,
scaled, and scaled against position alone; distances that the encoding induces between logits where
it has no vectors), as Spearman's rank correlation with a bootstrap over encodings. Then stress as a
regulariser of the learned table: loss + λ · scaled stress against position alone.

Pre-norm encoder of 2 layers, 64 wide, 4 heads of 16, mean over tokens; the 4,000 most frequent
words, rows cut at 48. What is added to the embeddings is rescaled to rows of root mean square norm
1 at the start, which is the norm of a token's embedding, so that size decides nothing. AdamW at
1e-3 with linear decay, batches of 64. Each encoding's result is kept in `runs/` under the folder of
results; a second call makes those that are missing.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxpe
from experiments import common, learning
from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe.data import hold_out, load_labelled
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.encodings.registry import CatalogueEntry
from jaxpe.nn import Classifier, Encoder, TransformerConfig, functionalize
from jaxpe.training import adamw, classification, init_state, learning_rate_schedule, step_function
from jaxpe.training.losses import MeanMetric
from jaxpe.training.probe import ReferenceGeometry, reference_geometry
from jaxpe.training.step import LossFunction, TrainState

LENGTH, BUCKETS = 48, (12, 24, 48)
SIZES = encodings.EncodingSizes(dim=64, num_heads=4, head_dim=16, length=LENGTH)
SEEDS, STEPS = 4, 800
LAMBDAS = (0.0, 0.1, 1.0, 10.0)
MEASURES = {
    "raw": "occupied/stress",
    "scaled": "occupied/scaled_stress",
    "position": "position/scaled_stress",
}
FAMILIES = ("absolute", "orthogonal", "rotary", "bias", "relative")


class Task(NamedTuple):
    """The texts, the counts of the training texts over all folds, and their geometry."""

    train: LabelledTokens
    held_out: LabelledTokens
    dev: LabelledTokens
    counts: jaxpe.geometry.PositionCounts
    reference: ReferenceGeometry


def experiment(run: common.Run) -> dict[str, Any]:
    task = read_task()
    seeds, steps = (2, 30) if run.quick else (SEEDS, STEPS)
    kept = run.out / "runs" / f"accuracy-{seeds}-{steps}"
    names = ("none", "sinusoidal", "alibi", "t5") if run.quick else ()

    def result_of(name: str, encoding: encodings.Encoding, weight: float = 0.0) -> dict[str, Any]:
        encoding = learning.scaled_to_tokens(encoding, LENGTH)
        how = {"seeds": seeds, "steps": steps, "weight": weight}
        return learning.once(kept / f"{name}.json", measured, encoding, task, **how)

    rows = {
        entry.name: result_of(entry.name, made(entry, task)) | {"family": entry.family}
        for entry in encodings.catalogue(*names)
        if entry.coordinates == 1
    }
    table = encodings.learned(length=LENGTH, dim=SIZES.dim)
    result = {
        "seeds": seeds,
        "steps": steps,
        "held_out_phrases": len(task.held_out.labels),
        "encodings": rows,
        "regularised": {
            str(weight): result_of(f"lambda-{weight}", table, weight)
            for weight in (LAMBDAS[-1:] if run.quick else LAMBDAS)
        },
        "rank_correlations": rank_correlations(rows),
        "power": power(rows),
    }
    draw(run, result)
    return result


def read_task() -> Task:
    try:
        train = load_labelled("sst2", length=LENGTH, max_vocab=4000)
        dev = load_labelled("sst2", split="dev", like=train)
    except InputError as error:
        raise common.DataMissingError(str(error)) from error
    train, held_out = hold_out(train, fraction=0.1)
    counts = learning.folded(train.corpus).counts.merged()
    reference = reference_geometry(counts, learning.position_of(train.corpus), empty="drop")
    return Task(train, held_out, dev, counts, reference)


def made(entry: CatalogueEntry, task: Task) -> encodings.Encoding:
    """An encoding of the catalogue; the one that is made from a corpus, from this one."""
    if entry.fitted:
        return encodings.information_optimal(task.counts, dim=SIZES.dim)
    return entry.first_layer(SIZES)


def measured(
    encoding: encodings.Encoding, task: Task, *, seeds: int, steps: int, weight: float = 0.0
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

    state = jax.jit(jax.vmap(begin))(jax.random.split(jax.random.key(1), seeds))
    score = partial(learning.encoding_scores, encoding, task.reference, SIZES)
    geometry = jax.jit(jax.vmap(score, axis_size=seeds))  # NoPE has no parameters to tell it
    before = geometry(encoding_params(state.params))
    step = jax.jit(jax.vmap(step_function(loss, optimizer), in_axes=(0, None)), donate_argnums=0)
    data = learning.training_batches(task.train, batch_size=64, seed=0, buckets=BUCKETS)
    clock = time.perf_counter()
    for _, batch in zip(range(steps), data, strict=False):
        state, _ = step(state, batch)
    jax.block_until_ready(state.step)
    training = time.perf_counter() - clock
    after = geometry(encoding_params(state.params))
    return {
        "held_out": accuracies(plain, state.params, task.held_out),
        "dev": accuracies(plain, state.params, task.dev),
        "before": common.plain(before),
        "after": common.plain(after),
        "finite": np.asarray(state.finite).tolist(),
        "seconds": time.perf_counter() - start,
        "seconds_per_step": training / steps,
    }


def classifier(encoding: encodings.Encoding, task: Task, key: jax.Array) -> Classifier:
    config = TransformerConfig(
        vocab_size=task.train.corpus.vocab_size,
        dim=SIZES.dim,
        num_layers=2,
        num_heads=SIZES.num_heads,
        embedding_scale=SIZES.dim**-0.5,
        init_scale=0.1,
        dropout=0.1,
        attention="dense",
    )
    rngs = nnx.Rngs(key)
    encoder = Encoder(config, encoding=encoding, rngs=rngs)
    return Classifier(encoder, num_classes=2, pooling="mean", rngs=rngs)


def regularised_by_stress(
    loss: LossFunction,
    encoding: encodings.Encoding,
    reference: ReferenceGeometry,
    weight: float,
) -> LossFunction:
    """The loss plus `weight` times the scaled stress of the vectors against position."""

    def penalised(params, batch, key):
        tally, extra = loss(params, batch, key)
        P = encoding.vectors(encoding_params(params), jnp.arange(LENGTH))
        penalty = jaxpe.geometry.scaled_stress(P, reference.position).stress
        return MeanMetric(tally.total + weight * penalty * tally.weight, tally.weight), extra

    return penalised


def encoding_params(params: Any) -> Any:
    return params["encoder"]["encoding_params"].get_value()


def accuracies(loss: LossFunction, params: Any, data: LabelledTokens) -> list[float]:
    """Of every seed."""
    judge = jax.jit(jax.vmap(loss, in_axes=(0, None, None)))
    key = jax.random.key(0)
    judged = learning.dev_batches(data, batch_size=512, buckets=BUCKETS[-1:])
    tallies = [judge(params, batch, key)[1]["accuracy"] for batch in judged]
    right = np.sum([np.asarray(tally.total) for tally in tallies], axis=0)
    return (right / len(data.labels)).tolist()


def rank_correlations(rows: dict[str, Any]) -> dict[str, Any]:
    """Spearman's between held-out accuracy and stress."""
    accuracy = np.array([np.mean(row["held_out"]) for row in rows.values()])
    found: dict[str, Any] = {}
    for when in ("before", "after"):
        for label, measure in MEASURES.items():
            stress = np.array([np.mean(row[when][measure]) for row in rows.values()])
            found[f"all/{when}/{label}"] = learning.spearman(stress, accuracy)
    return found


def power(rows: dict[str, Any]) -> dict[str, float]:
    """The difference of two encodings that these seeds find four times in five."""
    found = {}
    for where in ("held_out", "dev"):
        each = np.array([row[where] for row in rows.values()])
        sd = float(np.sqrt(np.mean(each.var(axis=1, ddof=1))))
        found[f"{where}/sd_of_seeds"] = sd
        found[f"{where}/detectable_difference"] = 2.8 * sd * np.sqrt(2 / each.shape[1])
    return found


def draw(run: common.Run, result: dict[str, Any]) -> None:
    title = "Stress and accuracy of one small classifier"
    figure, axes = common.new_figure(title, columns=2, width=8.4, height=3.6)
    for axis, when in zip(axes[0], ("before", "after"), strict=True):
        for family in FAMILIES:
            rows = [row for row in result["encodings"].values() if row["family"] == family]
            stress = [np.mean(row[when][MEASURES["position"]]) for row in rows]
            accuracy = [100 * np.mean(row["held_out"]) for row in rows]
            axis.plot(stress, accuracy, "o", ms=5, label=family)
        found = result["rank_correlations"][f"all/{when}/position"]
        axis.set_title(f"rank correlation {found['rho']:.2f}")
        axis.set(xlabel=f"scaled stress {when} training", ylabel="held-out accuracy, %")
    axes[0, 0].legend(fontsize=8.5)
    common.save_figure(run, "stress_and_accuracy", figure)


if __name__ == "__main__":
    common.main(experiment, "stress_and_accuracy")

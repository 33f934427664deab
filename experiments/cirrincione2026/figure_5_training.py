"""Figures 5 and 6: what training on SST-2 does to a learned table of positions.

Arms: `mini`, 4 layers 256 wide from scratch, 3 epochs at 2e-4; `minilm`, MiniLM fine-tuned for one
epoch; `mpnet`, MPNet for 100 steps, which is what a CPU allows; `bert` where `--bert FOLDER` or
JAXPE_MODELS_DIR has bert-base-uncased, 3 epochs at 2e-5; with `--full` also `base`, BERT-base from
scratch, for a GPU. Over all 128 positions, over the 64 that hold text, and against the distances of
position. No training row is longer than 66 tokens, so rows 66 to 127 never receive a gradient.

Checkpoints lie in `runs/` under the folder of results (`--runs FOLDER` elsewhere); a second call
resumes there. `--arms` can be given once for each arm to run, all by default.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from experiments import common, learning
from jaxpe import encodings
from jaxpe.nn import Classifier, Encoder, TransformerConfig, functionalize
from jaxpe.training import (
    Checkpoints,
    Hook,
    adamw,
    classification,
    evaluate,
    fit,
    init_state,
    learning_rate_schedule,
    read_log,
    train_step,
)
from jaxpe.training.probe import as_record, probe_geometry
from jaxpe.training.step import TrainState

PROBES = {0, 50, 100, 200, 500, 1000, 2000}
BUCKETS, DEV_BUCKETS = (8, 16, 32, 72), (32, 56, 72)
EPOCH = 67_349 // 64
OPTIONS = learning.take_options("full", folders=("bert", "runs"), repeated=("arms",))


class Arm(NamedTuple):
    """A model to train: its title, updates of batches of 64, peak rate, `(folder) -> Classifier`.

    And the name of the pretrained model, None from scratch.
    """

    title: str
    steps: int
    rate: float
    make: Callable[[Path | None], Classifier]
    pretrained: str | None = None


def from_scratch(dim: int, layers: int, heads: int) -> Callable[[Path | None], Classifier]:
    """BERT of this size with its pooler, from N(0, 0.02²)."""

    def make(folder: Path | None) -> Classifier:
        config = TransformerConfig(
            vocab_size=30_522,
            dim=dim,
            num_layers=layers,
            num_heads=heads,
            norm_position="post",
            norm_epsilon=1e-12,
            token_types=2,
            dropout=0.1,
            attention_dropout=0.1,
        )
        table = encodings.learned(length=512, dim=dim)
        encoder = Encoder(config, encoding=table, rngs=nnx.Rngs(0))
        return Classifier(encoder, num_classes=2, pooler=True, rngs=nnx.Rngs(1))

    return make


def on_pretrained(name: str) -> Callable[[Path | None], Classifier]:
    """A new linear head on the mean over tokens, which is what these models were trained for."""

    def make(folder: Path | None) -> Classifier:
        if folder is None:
            raise ValueError(f"{name} needs its folder")
        encoder = learning.pretrained(folder, name).encoder
        if name == "bert":
            return Classifier(encoder, num_classes=2, pooler=True, rngs=nnx.Rngs(1))
        return Classifier(encoder, num_classes=2, pooling="mean", rngs=nnx.Rngs(1))

    return make


ARMS = {
    "mini": Arm("scratch, 4 × 256", 3 * EPOCH, 2e-4, from_scratch(256, 4, 4)),
    "minilm": Arm("MiniLM", EPOCH, 1e-4, on_pretrained("minilm"), "minilm"),
    "mpnet": Arm("MPNet", 100, 5e-5, on_pretrained("mpnet"), "mpnet"),
    "bert": Arm("BERT-base", 3 * EPOCH, 2e-5, on_pretrained("bert"), "bert"),
    "base": Arm("scratch, 12 × 768", 3 * EPOCH, 2e-4, from_scratch(768, 12, 12)),
}


def experiment(run: common.Run) -> dict[str, Any]:
    names = OPTIONS.arms or (("mini",) if run.quick else ("mini", "minilm", "mpnet", "bert"))
    names = (*names, "base") if OPTIONS.full else names
    arms = {name: summary(run, name) for name in names if trained(run, name) is not None}
    mds = common.plug_in(common.real_counts("sst2"), empty="uniform").mds.coordinates
    return {"arms": arms, "mds": as_record(probe_geometry(mds, learning.sst2_geometry()))}


def steps_of(run: common.Run, name: str) -> int:
    return 20 if run.quick else ARMS[name].steps


def folder_of(run: common.Run, name: str) -> Path:
    """Where an arm's checkpoints, log and tables are."""
    steps = steps_of(run, name)
    return (OPTIONS.runs or run.out / "runs") / f"{name}-{steps}"


def trained(run: common.Run, name: str) -> Any:
    """An arm, trained or resumed from its last checkpoint; None without its files."""
    arm, steps, folder = ARMS[name], steps_of(run, name), folder_of(run, name)
    source = None
    if arm.pretrained is not None:
        given = OPTIONS.bert if arm.pretrained == "bert" else None
        source = learning.model_folder(arm.pretrained, given=given)
        if source is None:
            return None
    train, dev = learning.labelled_sst2(
        learning.bert_vocabulary() if source is None else learning.tokenizer_of(source)
    )
    model = arm.make(source)
    apply, params = functionalize(model)
    schedule = learning_rate_schedule(
        peak=arm.rate, steps=steps, warmup=max(1, steps // 16), decay="linear"
    )
    optimizer = adamw(schedule, weight_decay=0.01)
    state = init_state(params, optimizer, key=jax.random.key(0))
    score = classification(apply, train=False)

    def probe(step: int, state: TrainState) -> dict[str, float]:
        P = table(model, state.params)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"positions-{step}.npy", np.asarray(P))
        return as_record(probe_geometry(P, learning.sst2_geometry())) | {"time": time.time()}

    def check(step: int, state: TrainState) -> dict[str, float]:
        judged = learning.dev_batches(dev, batch_size=109, buckets=DEV_BUCKETS)  # 872 = 8 · 109
        return {f"dev/{k}": v for k, v in evaluate(score, state.params, judged).items()}

    with Checkpoints(folder / "checkpoints", config={"steps": steps, "rate": arm.rate}) as saved:
        result = fit(
            state,
            train_step(classification(apply, train=True), optimizer, schedule=schedule),
            learning.training_batches(train, batch_size=64, seed=0, buckets=BUCKETS),
            steps=steps,
            checkpoints=saved,
            checkpoint_every=50 if steps < 200 else 250,
            log=folder / "log.jsonl",
            hooks=[Hook(PROBES, probe), Hook({500, EPOCH, 2 * EPOCH}, check)],
        )
    return model, result


def table(model: Classifier, params: Any) -> jax.Array:
    """The table of positions `[128, dim]` that these parameters have."""
    whole = nnx.merge(nnx.split(model, nnx.Param)[0], params)
    return learning.position_vectors(whole.encoder, length=learning.LENGTH)


def summary(run: common.Run, name: str) -> dict[str, Any]:
    """What the log and the saved tables of an arm tell."""
    folder, steps = folder_of(run, name), steps_of(run, name)
    records = [record for record in read_log(folder / "log.jsonl") if "time" in record]
    first, last = (np.load(folder / f"positions-{step}.npy") for step in (0, steps))
    still = np.all(first == last, axis=1)
    step, clock = (np.array([record[key] for record in records]) for key in ("step", "time"))
    return {
        "steps": steps,
        "rate": ARMS[name].rate,
        # The median: pauses of a run that was stopped fall in one of the spans between probes.
        "seconds_per_step": float(np.median(np.diff(clock) / np.diff(step))),
        "dev_accuracy": records[-1]["dev/accuracy"],
        "rows_without_gradient": int(still.sum()),
        "first_row_without_gradient": int(still.argmax()) if still.any() else None,
        "triples_with_a_still_row": share_of_triples(still),
        "probes": [{k: v for k, v in record.items() if k != "time"} for record in records],
    }


def share_of_triples(still: np.ndarray) -> float:
    """Of the triples (i, j, k) that the violation rate counts, those that hold a row at rest."""
    i = np.arange(len(still))
    offset = abs(i[:, None] - i[None, :])
    moving = ~still
    counted = (offset[:, :, None] < offset[:, None, :]) & (offset > 0)[:, :, None]
    free = moving[:, None, None] & moving[None, :, None] & moving[None, None, :]
    return float(1 - (counted & free).sum() / counted.sum())


if __name__ == "__main__":
    common.main(experiment, "figure_5_training")

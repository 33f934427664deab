"""Figures 5, 6 and 7: what training on SST-2 does to a learned table of positions.

Theirs (BERT-base, 3 epochs, batch 64): smallest separation 0.70 from scratch and 0.35 pretrained,
flat throughout; violation rates 22.0 % (P_MDS), 25.4 % (pretrained), 48.2 % (scratch); correlation
with Hellinger distances 1.000, 0.168, 0.036. Ours: (a) `mini`, 4 layers 256 wide from scratch, 3
epochs at 2e-4; (b) `minilm`, MiniLM fine-tuned for one epoch; (c) `mpnet`, MPNet for 100 steps,
which is what a CPU allows; `bert` where `--bert FOLDER` or JAXPE_MODELS_DIR has bert-base-uncased,
3 epochs at 2e-5; with `--full` also `base`, BERT-base from scratch, for a GPU. Over all 128
positions, over the 64 that hold text, and against the distances of position.

No training row is longer than 66 tokens, so rows 66 to 127 never receive a gradient. Checkpoints
lie in `runs/` under the folder of results (`--runs FOLDER` elsewhere); a second call resumes there.
`--arms` can be given once for each arm to run, all by default: `--arms mini --arms minilm`.
"""

import time
from collections.abc import Callable
from pathlib import Path
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
    SKY,
    VERMILION,
    Run,
    main,
    new_figure,
    plug_in,
    real_counts,
    save_figure,
)
from experiments.learning import (
    LENGTH,
    bert_vocabulary,
    dev_batches,
    labelled_sst2,
    model_folder,
    position_vectors,
    pretrained,
    sst2_geometry,
    take_options,
    tokenizer_of,
    training_batches,
)
from jaxpe.nn import BertEncoder, Classifier, TransformerConfig, functionalize
from jaxpe.training import (
    Checkpoints,
    Hook,
    TrainState,
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

PROBES = {0, 50, 100, 200, 500, 1000, 2000}
BUCKETS, DEV_BUCKETS = (8, 16, 32, 72), (32, 56, 72)
EPOCH = 67_349 // 64
OPTIONS = take_options("full", folders=("bert", "runs"), repeated=("arms",))


class Arm(NamedTuple):
    """One model to train.

    Attributes:
        title: in figures.
        colour: in figures.
        steps: updates, of batches of 64.
        rate: peak learning rate.
        make: `(folder) -> Classifier`.
        pretrained: name of the pretrained model, None from scratch.
    """

    title: str
    colour: str
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
        encoder = BertEncoder(config, length=512, rngs=nnx.Rngs(0))
        return Classifier(encoder, num_classes=2, pooler=True, rngs=nnx.Rngs(1))

    return make


def on_pretrained(name: str) -> Callable[[Path | None], Classifier]:
    """A new linear head on the mean over tokens, which is what these models were trained for."""

    def make(folder: Path | None) -> Classifier:
        if folder is None:
            raise ValueError(f"{name} needs its folder")
        encoder = pretrained(folder, name).encoder
        if name == "bert":
            return Classifier(encoder, num_classes=2, pooler=True, rngs=nnx.Rngs(1))
        return Classifier(encoder, num_classes=2, pooling="mean", rngs=nnx.Rngs(1))

    return make


ARMS = {
    "mini": Arm("scratch, 4 × 256", VERMILION, 3 * EPOCH, 2e-4, from_scratch(256, 4, 4)),
    "minilm": Arm("MiniLM", BLUE, EPOCH, 1e-4, on_pretrained("minilm"), "minilm"),
    "mpnet": Arm("MPNet", GREEN, 100, 5e-5, on_pretrained("mpnet"), "mpnet"),
    "bert": Arm("BERT-base", PINK, 3 * EPOCH, 2e-5, on_pretrained("bert"), "bert"),
    "base": Arm("scratch, 12 × 768", ORANGE, 3 * EPOCH, 2e-4, from_scratch(768, 12, 12)),
}


def experiment(run: Run) -> dict[str, Any]:
    names = OPTIONS.arms or (("mini",) if run.quick else ("mini", "minilm", "mpnet", "bert"))
    if OPTIONS.full:
        names = (*names, "base")
    result: dict[str, Any] = {"arms": {}}
    for name in names:
        if trained(run, name) is None:
            continue
        result["arms"][name] = summary(run, name)
        brief = {k: v for k, v in result["arms"][name].items() if k not in ("probes", "moved")}
        print(name, brief, flush=True)
    mds = plug_in(real_counts("sst2"), empty="uniform").mds.coordinates
    result["mds"] = as_record(probe_geometry(mds, sst2_geometry()))
    draw_separation(run, result["arms"])
    draw_violations(run, result)
    draw_distances(run, list(result["arms"]), mds)
    return result


def steps_of(run: Run, name: str) -> int:
    return 20 if run.quick else ARMS[name].steps


def folder_of(run: Run, name: str) -> Path:
    """Where an arm's checkpoints, log and tables are."""
    steps = steps_of(run, name)
    return (OPTIONS.runs or run.out / "runs") / f"{name}-{steps}"


def trained(run: Run, name: str) -> Any:
    """An arm, trained or resumed from its last checkpoint; None without its files."""
    arm, steps, folder = ARMS[name], steps_of(run, name), folder_of(run, name)
    source = None
    if arm.pretrained is not None:
        given = OPTIONS.bert if arm.pretrained == "bert" else None
        source = model_folder(arm.pretrained, given=given)
        if source is None:
            return None
    train, dev = labelled_sst2(bert_vocabulary() if source is None else tokenizer_of(source))
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
        return as_record(probe_geometry(P, sst2_geometry())) | {"time": time.time()}

    def check(step: int, state: TrainState) -> dict[str, float]:
        judged = dev_batches(dev, batch_size=109, buckets=DEV_BUCKETS)  # 872 = 8 · 109
        return {f"dev/{k}": v for k, v in evaluate(score, state.params, judged).items()}

    with Checkpoints(folder / "checkpoints", config={"steps": steps, "rate": arm.rate}) as saved:
        result = fit(
            state,
            train_step(classification(apply, train=True), optimizer, schedule=schedule),
            training_batches(train, batch_size=64, seed=0, buckets=BUCKETS),
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
    return position_vectors(whole.encoder, length=LENGTH)


def summary(run: Run, name: str) -> dict[str, Any]:
    """What the log and the saved tables of an arm tell."""
    folder, steps = folder_of(run, name), steps_of(run, name)
    records = [record for record in read_log(folder / "log.jsonl") if "time" in record]
    first, last = (np.load(folder / f"positions-{step}.npy") for step in (0, steps))
    moved = np.linalg.norm(last - first, axis=1)
    still = moved == 0
    return {
        "steps": steps,
        "rate": ARMS[name].rate,
        "seconds_per_step": seconds_per_step(records),
        "dev_accuracy": records[-1]["dev/accuracy"],
        "dev_accuracy_before": records[0]["dev/accuracy"],
        "rows_without_gradient": int(still.sum()),
        "first_row_without_gradient": int(still.argmax()) if still.any() else None,
        "moved": moved,
        "row_norm": np.linalg.norm(first, axis=1).mean(),
        "triples_with_a_still_row": share_of_triples(still),
        "still_pairs": pairs_of(last, still),
        "changes": changes(first[1:65], last[1:65]),
        "probes": [{k: v for k, v in record.items() if k != "time"} for record in records],
    }


def changes(first: np.ndarray, last: np.ndarray) -> dict[str, float]:
    """Whether rows with text move together, and what distances then have to do with rarity."""
    i, j = np.triu_indices(len(first), 1)
    moved = last - first
    moved = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-30)
    cosines = (moved @ moved.T)[i, j]
    early, late = (i < 30) & (j < 30), (i >= len(first) - 30) & (j >= len(first) - 30)

    def with_place(P: np.ndarray) -> float:
        return float(np.corrcoef(np.linalg.norm(P[i] - P[j], axis=1), i + j)[0, 1])

    return {
        "cosine_of_first_30": float(cosines[early].mean()),
        "cosine_of_last_30": float(cosines[late].mean()),
        "distance_with_place_before": with_place(first),
        "distance_with_place_after": with_place(last),
    }


def seconds_per_step(records: list[dict[str, Any]]) -> float:
    """The median between probes; pauses of a run that was stopped fall in one of these spans."""
    step, clock = (np.array([record[key] for record in records]) for key in ("step", "time"))
    return float(np.median(np.diff(clock) / np.diff(step)))


def share_of_triples(still: np.ndarray) -> float:
    """Of the triples (i, j, k) that the violation rate counts, those that hold a row at rest."""
    i = np.arange(len(still))
    offset = abs(i[:, None] - i[None, :])
    moving = ~still
    counted = (offset[:, :, None] < offset[:, None, :]) & (offset > 0)[:, :, None]
    free = moving[:, None, None] & moving[None, :, None] & moving[None, None, :]
    return float(1 - (counted & free).sum() / counted.sum())


def pairs_of(P: np.ndarray, still: np.ndarray) -> dict[str, float | None]:
    """Smallest separation among the rows at rest and among those that moved."""
    found: dict[str, float | None] = {}
    for key, rows in (("at_rest", still), ("moved", ~still)):
        enough = rows.sum() > 1
        found[key] = float(jaxpe.min_separation(P[rows])) if enough else None
    return found


def draw_separation(run: Run, arms: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "The smallest separation hardly moves, and half of the rows cannot",
        columns=2,
        width=8.4,
        height=3.5,
    )
    separation, moved = axes[0]
    for name, found in arms.items():
        steps = [record["step"] for record in found["probes"]]
        for where, style in (("all_positions", "-"), ("occupied", "--")):
            values = [record[f"{where}/min_separation"] for record in found["probes"]]
            label = ARMS[name].title if style == "-" else None
            separation.plot(
                steps, values, style, marker="o", ms=3.5, color=ARMS[name].colour, label=label
            )
        share = np.asarray(found["moved"]) / found["row_norm"]
        moved.plot(np.maximum(share, 1e-6), color=ARMS[name].colour)
    for value, where in ((0.70, "scratch"), (0.35, "pretrained")):
        separation.axhline(value, color=GREY, lw=1, ls=":")
        separation.text(2, value + 0.008, f"published, {where}", fontsize=8, color=GREY)
    separation.set_xscale("symlog", linthresh=50)
    separation.set_xticks((0, 50, 200, 800, 3200), ("0", "50", "200", "800", "3,200"))
    separation.set(ylim=(0, None), xlabel="step", ylabel="smallest ‖p_i − p_j‖", xlim=(-2, 3600))
    separation.minorticks_off()
    separation.set_title("all positions (dashes: with text)")
    separation.legend(fontsize=8.5, loc=(0.03, 0.58))
    moved.set(
        yscale="log", xlabel="position", title="how far rows moved, in row norms\n(10⁻⁶: not)"
    )
    moved.axvline(65.5, color=GREY, lw=1, ls=":")
    save_figure(run, "figure_5_training", figure)


def draw_violations(run: Run, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Violation rates, over all positions and over those with text", width=8.0, height=3.4
    )
    bars = [("P_MDS", result["mds"])]
    for name, found in result["arms"].items():
        title, steps = ARMS[name].title.replace(", ", ",\n"), found["steps"]
        bars += [(f"{title}\nbefore", found["probes"][0])]
        bars += [(f"{title}\n{steps:,} steps", found["probes"][-1])]
    axis, place = axes[0, 0], np.arange(len(bars))
    for shift, where, colour, label in (
        (-0.2, "all_positions", SKY, "all 128 positions"),
        (0.2, "occupied", BLUE, "64 positions with text"),
    ):
        rates = [100 * scores[f"{where}/violation_rate"] for _, scores in bars]
        drawn = axis.bar(place + shift, rates, 0.38, color=colour, label=label)
        axis.bar_label(drawn, fmt="%.1f", fontsize=8)
    axis.axhline(50, color=GREY, lw=1, ls=":")
    for value, name, side in (
        (22.0, "MDS", "top"),
        (25.4, "pretrained", "bottom"),
        (48.2, "scratch", "top"),
    ):
        axis.axhline(value, color=VERMILION, lw=0.8, ls="--")
        text = {"fontsize": 8, "color": VERMILION, "ha": "right", "va": side}
        axis.text(1.24 * len(bars), value, f"published, {name}", **text)
    axis.set_xticks(place, [name for name, _ in bars], fontsize=8.5)
    axis.set(ylabel="violations, %", ylim=(0, 65), xlim=(-0.6, 1.25 * len(bars)))
    axis.legend(fontsize=8.5, ncols=2, loc="upper right")
    save_figure(run, "figure_6_violations", figure)


def draw_distances(run: Run, names: list[str], mds: jax.Array) -> None:
    reference = sst2_geometry()
    panels = [("P_MDS", np.asarray(mds))]
    for name in names:
        last = np.load(folder_of(run, name) / f"positions-{steps_of(run, name)}.npy")
        panels += [(ARMS[name].title, last)]
    figure, axes = new_figure(
        "Distances of positions against Hellinger distances",
        columns=len(panels),
        width=2.6 * len(panels) + 0.6,
        height=3.2,
    )
    occupied = np.asarray(reference.occupied)
    d = np.asarray(reference.plug_in.values)
    i, j = np.triu_indices(LENGTH, 1)
    text = occupied[i] & occupied[j]
    for axis, (title, P) in zip(axes[0], panels, strict=True):
        delta = np.asarray(jaxpe.euclidean_distances(jnp.asarray(P)).values)
        for chosen, colour, label in ((~text, GREY, "an empty position"), (text, BLUE, "text")):
            axis.plot(
                d[i, j][chosen],
                delta[i, j][chosen],
                ".",
                ms=1.5,
                alpha=0.4,
                color=colour,
                label=label,
                rasterized=True,
            )
        every = np.corrcoef(d[i, j], delta[i, j])[0, 1]
        within = np.corrcoef(d[i, j][text], delta[i, j][text])[0, 1]
        axis.set_title(f"{title}\nr = {every:.2f}, text alone {within:.2f}", fontsize=9.5)
        axis.set(xlabel="Hellinger distance", ylim=(0, None))
    axes[0, 0].set_ylabel("‖p_i − p_j‖")
    axes[0, 0].legend(fontsize=8, markerscale=5)
    save_figure(run, "figure_7_distances", figure)


if __name__ == "__main__":
    main(experiment, "figure_5_training")

"""Folders of runs as `jaxpe train` leaves them, without the training."""

import json
from pathlib import Path

from jaxpe._core.json_values import to_json
from jaxpe.training import TrainConfig
from jaxpe.training.config import save_config
from jaxpe.training.run import Evaluations, TrainSummary

WORDS = ("a", "b", "[UNK]")


def make_run(
    out: Path,
    losses: dict[int, float],
    *,
    task: str = "causal",
    tokens: tuple[str, ...] = WORDS,
    documents: int = 1,
    finished: bool = True,
    summary: dict[str, object] | None = None,
    **changes: object,
) -> Path:
    """A run with these losses on held-out documents by step, the last of which it ends at."""
    steps = max(losses)
    options = {"source": "poems.txt", "steps": steps if finished else 2 * steps} | changes
    save_config(TrainConfig(out=out, **options))
    classes = ("no", "yes") if task == "classify" else ()
    mask_id = 0 if task == "mlm" else None
    vocabulary = {"task": task, "tokens": tokens, "classes": classes, "mask_id": mask_id}
    (out / "vocabulary.json").write_text(json.dumps(vocabulary | {"documents": documents}))
    records = [
        {"step": step}
        | ({"loss": 1.0 + 1 / step} if step else {})
        | ({"eval/loss": losses[step], "eval/accuracy": 0.5} if step in losses else {})
        for step in range(steps + 1)
    ]
    (out / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if finished:
        whole = to_json(finished_as(losses, task, steps)._replace(**summary or {}))
        (out / "summary.json").write_text(json.dumps(whole))
    return out


def finished_as(losses: dict[int, float], task: str, steps: int) -> TrainSummary:
    found = [{"step": step, "loss": loss, "accuracy": 0.5} for step, loss in losses.items()]
    best = min(found, key=lambda record: record["loss"])
    return TrainSummary(
        source="poems.txt", task=task, encoding="learned", documents=90, held_out=10,
        vocab_size=3, length=64, parameters=1234, steps=steps, seconds=61.0,
        tokens_per_second=5000.0, evaluation=Evaluations(found[0], best, found[-1]), probe={},
    )  # fmt: skip

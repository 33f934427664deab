"""Run of `jaxpe train`, read from its folder: history, loss trend, and the origin of settings."""

import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import seal
from jaxpe.training import TrainConfig
from jaxpe.training.config import CONFIG, flat_fields, read_config, resolved
from jaxpe.training.documents import Vocabulary
from jaxpe.training.log import Record, read_log
from jaxpe.training.run import LOG, TrainSummary, finished_summary, read_vocabulary

# A loss is falling if, over the last quarter of a run, it falls by more than LEVEL of itself or by
# more than LEVEL_OF_FALL of its whole fall. It is rising if it is above its least by over LEVEL.
LEVEL, LEVEL_OF_FALL = 0.01, 0.05


class TrainedRun(NamedTuple):
    """A run, finished or not.

    Attributes:
        config: its options and its folder.
        vocabulary: tokens of the ids, and names of the classes.
        vocabulary_hash: hash of the text of all ids.
        documents: checksum of the token ids of all documents.
        history: one record for each step.
        summary: summary in numbers; None while steps are left.
    """

    config: TrainConfig
    vocabulary: Vocabulary
    vocabulary_hash: str
    documents: int
    history: list[Record]
    summary: TrainSummary | None

    @property
    def step(self) -> int:
        """The last logged step."""
        return self.history[-1]["step"] if self.history else 0

    @property
    def in_files(self) -> bool:
        """Whether all of it is in files of its folder already, so that a page adds none."""
        return True


class Evaluation(NamedTuple):
    """A loss on held-out documents, in nats, and the accuracy where the task has one."""

    step: int
    loss: float
    accuracy: float


class Trend(NamedTuple):
    """Direction of the held-out loss at the end of a run.

    Attributes:
        direction: rising if it lies above its least, else falling or level by its change; unknown
            for fewer than three evaluations.
        change: change of the loss, in nats, from the last evaluation of the first three quarters.
        since: step of this evaluation.
        fall: fall of the loss from the first evaluation to the lowest, in nats.
        best: the evaluation of lowest loss.
    """

    direction: Literal["falling", "level", "rising", "unknown"]
    change: float
    since: int
    fall: float
    best: Evaluation


class Choice(NamedTuple):
    """The value of an option and its origin.

    Attributes:
        value: value as text.
        origin: "asked for", "default", or the source of an unset option.
    """

    value: str
    origin: str


# Sources of unset options that have no default.
_ORIGINS = {
    "model.hidden": "4 times model.dim",
    "model.kv_heads": "as many as model.heads",
    "model.embedding_norm": "by model.norm_position",
}


def read_run(directory: str | Path) -> TrainedRun:
    """A run from its folder.

    Raises:
        InputError: a folder without a run, or damaged files.

    >>> read_run("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere holds no run: there is no config.json; pass the folder of one
    """
    if not (Path(directory) / CONFIG).is_file():
        raise InputError(f"{directory} holds no run: there is no {CONFIG}; pass the folder of one")
    config = read_config(directory)
    vocabulary, documents = read_vocabulary(config.out)
    log = config.out / LOG
    history = read_log(log) if log.exists() else []
    text = seal({"tokens": vocabulary.tokens})
    summary = finished_summary(config)
    return TrainedRun(config, vocabulary, text, documents["documents"], history, summary)


def evaluations(run: TrainedRun) -> list[Evaluation]:
    """Evaluations on the held-out documents; NaN for values not finite or unknown.

    >>> evaluations(read_run("run"))[0].step  # doctest: +SKIP
    0
    """

    def number(record: Record, name: str) -> float:
        value = record.get(f"eval/{name}")
        return math.nan if value is None else value

    return [
        Evaluation(record["step"], number(record, "loss"), number(record, "accuracy"))
        for record in run.history
        if "eval/loss" in record
    ]


def loss_trend(run: TrainedRun) -> Trend:
    """Whether the held-out loss was still falling when the run ended.

    Raises:
        InputError: no evaluation of a finite loss.

    >>> loss_trend(read_run("run")).direction  # doctest: +SKIP
    'falling'
    """
    finite = [one for one in evaluations(run) if math.isfinite(one.loss)]
    if not finite:
        raise InputError(f"{run.config.out} has no finite loss on held-out documents")
    last, best = finite[-1], min(finite, key=lambda one: one.loss)
    fall, level = finite[0].loss - best.loss, LEVEL * abs(last.loss)
    if len(finite) < 3:
        return Trend("unknown", math.nan, 0, fall, best)
    earlier = [one for one in finite if one.step <= 0.75 * last.step][-1]
    change = last.loss - earlier.loss
    direction = "falling" if -change > min(level, LEVEL_OF_FALL * fall) else "level"
    if last.loss - best.loss > level:
        direction = "rising"
    return Trend(direction, change, earlier.step, fall, best)


def choices(config: TrainConfig, task: Any) -> dict[str, Choice]:
    """Every option of a run by name: its value, and the origin of the value.

    Args:
        config: options of the run.
        task: task of the run, which its documents may have decided.

    >>> choices(TrainConfig(length=32), "causal")["length"]
    Choice(value='32', origin='asked for')
    """
    default, options = flat_fields(TrainConfig()), flat_fields(config)
    values = flat_fields(resolved(config, task))
    labels = "classes" if task == "classify" else "no classes"
    origins = _ORIGINS | {"task": f"{labels} in the source"}
    if config.pretrained is not None:
        origins["tokenizer"] = "of the pretrained model"
    chosen = {
        name: Choice(_text(value), origins.get(name, "default"))
        if options[name] is None
        else Choice(_text(value), "default" if value == default[name] else "asked for")
        for name, value in values.items()
        if value is not None
    }
    chosen.setdefault("held_out", Choice("own split", "of the source"))
    return chosen


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)

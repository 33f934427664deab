"""A run of `jaxpe train` as its folder tells it: how it went, and what was chosen for it."""

import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import seal
from jaxpe.data.corpora.published import NAMED
from jaxpe.data.formats.table import has_columns
from jaxpe.training import TrainConfig, TrainSummary
from jaxpe.training.config import (
    CONFIG,
    DEFAULT_PAIRS,
    flat_fields,
    peak_learning_rate,
    read_config,
    tokenizer_of,
)
from jaxpe.training.documents import LABEL, MAX_VOCAB, Vocabulary
from jaxpe.training.log import Record
from jaxpe.training.run import LOG, finished_summary, read_records, read_vocabulary

# Over the last quarter of a run, a loss is level that falls by less than the one of these shares of
# itself and the other of all that it has fallen; it rises by more than the first above its least.
LEVEL, LEVEL_OF_FALL = 0.01, 0.05


class TrainedRun(NamedTuple):
    """A run, finished or not.

    Attributes:
        config: what it was asked for, with its folder.
        vocabulary: what ids and classes mean.
        vocabulary_hash: hash of the text of all ids.
        documents: checksum of the token ids of all documents.
        history: a record a step.
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
        """The last step that was logged."""
        return self.history[-1]["step"] if self.history else 0


class Evaluation(NamedTuple):
    """A loss on held-out documents, in nats, and the accuracy where the task has one."""

    step: int
    loss: float
    accuracy: float


class Trend(NamedTuple):
    """Direction of the held-out loss at the end of a run.

    Attributes:
        direction: rising where it lies above its least, else falling or level by its change;
            unknown of fewer than three evaluations.
        change: change of the loss since an evaluation a quarter of the run before the last, in
            nats.
        since: step of that evaluation.
        fall: fall of the loss from the first evaluation to the least, in nats.
        best: the evaluation of least loss.
    """

    direction: Literal["falling", "level", "rising", "unknown"]
    change: float
    since: int
    fall: float
    best: Evaluation


class Choice(NamedTuple):
    """The value of an option, and where it is from.

    Attributes:
        value: value as text.
        origin: "asked for", "default", or what decided where nothing was asked for.
    """

    value: str
    origin: str


def read_run(directory: str | Path) -> TrainedRun:
    """A run from its folder.

    Raises:
        InputError: no run there, or files that are damaged.

    >>> read_run("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere holds no run: there is no config.json; pass the folder of one
    """
    if not (Path(directory) / CONFIG).is_file():
        raise InputError(f"{directory} holds no run: there is no {CONFIG}; pass the folder of one")
    config = read_config(directory)
    vocabulary, documents = read_vocabulary(config.out)
    history = read_records(config.out / LOG)
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
    found = [one for one in evaluations(run) if math.isfinite(one.loss)]
    if not found:
        raise InputError(f"{run.config.out} has no finite loss on held-out documents")
    last, best = found[-1], min(found, key=lambda one: one.loss)
    fall, level = found[0].loss - best.loss, LEVEL * abs(last.loss)
    if len(found) < 3:
        return Trend("unknown", math.nan, 0, fall, best)
    earlier = [one for one in found if one.step <= 0.75 * last.step][-1]
    change = last.loss - earlier.loss
    direction = "falling" if -change > min(level, LEVEL_OF_FALL * fall) else "level"
    if last.loss - best.loss > level:
        direction = "rising"
    return Trend(direction, change, earlier.step, fall, best)


def choices(run: TrainedRun) -> dict[str, Choice]:
    """Every option of a run by name: its value, and where that is from.

    >>> choices(read_run("run"))["tokenizer"]  # doctest: +SKIP
    Choice(value='words', origin='default')
    """
    default, decided = flat_fields(TrainConfig()), _decided(run)
    found = {}
    for name, value in flat_fields(run.config).items():
        if value is None:
            found |= {name: decided[name]} if name in decided else {}
            continue
        origin = "default" if value == default[name] else "asked for"
        found[name] = Choice(_text(value), origin)
    return found


def _decided(run: TrainedRun) -> dict[str, Choice]:
    """Choices made for options that were not set and matter to the run."""
    config, task = run.config, run.vocabulary.task
    own_split = config.source in NAMED
    labels = "classes in the source" if task == "classify" else "no classes in the source"
    found = {
        "task": Choice(task, labels),
        "held_out": Choice("own split", "of the source") if own_split else Choice("0.1", "default"),
        "tokenizer": _tokenizer(config),
        "learning_rate": Choice(f"{peak_learning_rate(config):g}", "default"),
        "encoding": Choice("learned", "default"),
    }
    if config.pretrained is not None:
        del found["encoding"]
    if has_columns(config.source):
        found["text_field"] = Choice("text, sentence or the only text", "columns of the file")
    if run.summary is not None and config.epochs is None:
        found["steps"] = Choice(f"{run.summary.steps}", "default")
    if task == "translate":
        del found["tokenizer"]
        found |= {
            "decoder_encoding": Choice(config.encoding or "learned", "encoding"),
            "cross_encoding": Choice("none", "default"),
            "pairs": Choice(f"{DEFAULT_PAIRS}", "default"),
        }
    if task == "classify":
        found["label_field"] = Choice(LABEL, "default")
        pooling = "mean" if config.pretrained is None else "first"
        found["model.pooling"] = Choice(pooling, "default")
    if task != "translate" and tokenizer_of(config) in ("words", "characters"):
        found["max_vocab"] = Choice(f"{MAX_VOCAB}", "default")
    return found | _sizes(config)


def _tokenizer(config: TrainConfig) -> Choice:
    origin = "default" if config.pretrained is None else "of the pretrained model"
    return Choice(tokenizer_of(config), origin)


def _sizes(config: TrainConfig) -> dict[str, Choice]:
    """Sizes that follow from others; a pretrained model brings its own."""
    if config.pretrained is not None:
        return {}
    model = config.model
    normed = model.norm_position == "post"
    return {
        "model.hidden": Choice(f"{4 * model.dim}", "4 times model.dim"),
        "model.kv_heads": Choice(f"{model.heads}", "as many as model.heads"),
        "model.embedding_norm": Choice(_text(normed), "by model.norm_position"),
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)

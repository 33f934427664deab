"""Training run: from a configuration to a trained model, and back from the folder of the run."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jaxpe._core.checkpoints import Checkpoints, newest_checkpoint
from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder, remove_files, write_file
from jaxpe._core.hub import local_model_options, model_name
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.results import load_result
from jaxpe.nn import functionalize, parameter_count, save_huggingface
from jaxpe.training.build import (
    build_loss,
    build_model,
    build_optimizer,
    build_probe,
    total_steps,
)
from jaxpe.training.config import (
    SIDES,
    TrainConfig,
    check_config,
    differences,
    encoding_entries,
    is_longer,
    load_config,
    save_config,
)
from jaxpe.training.documents import (
    Data,
    Vocabulary,
    count_documents,
    evaluation_batches,
    fingerprint,
    load_data,
    train_batches,
)
from jaxpe.training.extension import check_resumption, extended_after, extension_line
from jaxpe.training.log import Record
from jaxpe.training.loop import FitResult, Hook, every_n_steps, fit
from jaxpe.training.memory import check_memory
from jaxpe.training.probe import as_record
from jaxpe.training.step import Metrics, Step, TrainState, evaluate, init_state, train_step

Params = Any
# A step and what a hook measured then, by name; None for numbers that are not finite.
Measured = dict[str, int | float | None]

LOG, SUMMARY, CHECKPOINTS, MODEL = "log.jsonl", "summary.json", "checkpoints", "model"
_VOCABULARY = "vocabulary.json"
_ANEW = "pass another `out` to train anew"


class Evaluations(NamedTuple):
    """Step, loss and metrics of the task on the held-out documents, before and after training.

    The best evaluation has the largest accuracy for classify, else the least loss.

    Attributes:
        first: metrics before training.
        best: metrics at the best evaluation.
        last: metrics at the end.
    """

    first: Measured
    best: Measured
    last: Measured


class TrainSummary(NamedTuple):
    """A run in numbers.

    Attributes:
        encoding: names of the encodings joined by +, or the pretrained model's name. For an
            encoder–decoder the encoder's, the decoder's and the cross-attention's, joined by " / ".
        documents: number of documents trained on.
        parameters: numbers in the model.
        seconds: duration of the whole run, since it was last resumed.
        tokens_per_second: median over steps, without padding; None for less than three steps.
        evaluation: on the held-out documents.
        probe: geometry of the encoding at the "first" and the "last" step; empty without a probe.
        longest: tokens of the longest document before it was cut; None in runs of old.
        resumed_at: step that `seconds` are counted from.
        extended_after: last step with the learning rate of fewer steps in all, as before the run
            was extended; 0 for none.
        source: name or path of the corpus.
        task: classify, mlm, causal or translate.
        held_out: number of held-out documents.
        vocab_size: number of tokens in the vocabulary.
        length: number of positions.
        steps: number of updates.
    """

    source: str
    task: str
    encoding: str
    documents: int
    held_out: int
    vocab_size: int
    length: int
    parameters: int
    steps: int
    seconds: float
    tokens_per_second: float | None
    evaluation: Evaluations
    probe: dict[str, Measured]
    longest: int | None = None
    resumed_at: int = 0
    extended_after: int = 0


class TrainResult(NamedTuple):
    """A finished run.

    Attributes:
        model: model with its trained parameters.
        apply: `(params, ids, **options) -> HeadOutput`.
        params: after the last step.
        history: a record a step, as in log.jsonl: metrics, "eval/..." and "probe/...".
        evaluation: after the last step, on the held-out documents; None for what was not finite.
        summary: content of summary.json.
        out: the folder, with config.json, vocabulary.json, log.jsonl, summary.json, checkpoints/
            and, for BERT and MPNet, model/ as Hugging Face reads it.
    """

    model: Any
    apply: Callable[..., Any]
    params: Params
    history: list[Record]
    evaluation: Measured
    summary: TrainSummary
    out: Path


class LoadedRun(NamedTuple):
    """A model from the folder of a run.

    Attributes:
        model: the model, with the parameters of the newest checkpoint.
        apply: `(params, ids, **options) -> HeadOutput`.
        params: parameters of the newest checkpoint.
        step: number of updates made.
        config: configuration of the run.
        vocabulary: tokens and class names.
    """

    model: Any
    apply: Callable[..., Any]
    params: Params
    step: int
    config: TrainConfig
    vocabulary: Vocabulary


def train(config: TrainConfig, *, progress: Progress = SILENT) -> TrainResult:
    """Train a model as configured, and write the run into `config.out`.

    `train(load_config(out))` resumes an interrupted run. It ends with the same parameters and log
    as an uninterrupted run. With more `steps` or `epochs` a finished run is extended: state and
    position in the data stay, and the learning rate continues as in the longer run. If the rate of
    the first steps does not depend on their total (`decay="constant"`, `warmup=0`), the parameters
    equal those of the longer run, bit for bit.

    Args:
        config: settings of the training.
        progress: receives progress, a line at the start and one at every evaluation.

    Raises:
        InputError: options or documents that cannot be used, more memory or disk than there is, a
            folder with another run or one that is being written, or a resumption that asks for
            something else.
        NonFiniteLoss: names the step; the state before it is saved.

    >>> import tempfile, pathlib
    >>> from jaxpe.training import ModelConfig, TrainConfig
    >>> path = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (path / "d.tsv").write_text("label\\ttext\\n" + "a\\tgood fun\\nb\\tno fun\\n" * 9)
    >>> small = ModelConfig(dim=8, layers=1, heads=2)
    >>> result = train(TrainConfig(source=str(path / "d.tsv"), length=4, model=small, steps=2,
    ...     batch_size=4, held_out=0.5, probe_at=(), out=path / "run"))
    >>> [record["step"] for record in result.history], sorted(result.evaluation)
    ([0, 1, 2], ['accuracy', 'loss'])
    """
    started = time.perf_counter()
    config = local_model_options(config, "pretrained")
    saved = _check_folder(config)
    check_config(config)
    finished = finished_summary(config) if config.resume else None
    if finished is not None:
        progress.say(_finished_message(config, finished))
    check_memory(config)
    mesh = _mesh(config)
    data = load_data(config, progress=progress)
    check_memory(config, vocab_size=len(data.vocabulary.tokens))
    # An encoding may be made from the corpus, and the probe compares with it.
    fitted = config.pretrained is None and any(e.fitted for e in encoding_entries(config))
    counts = count_documents(data.train) if config.probe_at or fitted else None
    model = build_model(config, data.vocabulary, counts=counts)
    facts = _facts(config, data, model)
    progress.say(
        "{source}: {task}, {documents:,} documents, {vocab_size:,} tokens in the vocabulary\n"
        "{encoding}: {parameters:,} parameters, {steps:,} steps".format(**facts)
    )
    if saved is not None and is_longer(config, saved):
        progress.say(extension_line(config, saved, rows=facts["documents"]))
    hooks = _hooks(config, model, data, counts, progress)
    end, times = _fit(config, data, model, facts["steps"], hooks, mesh, progress)
    times["seconds"] = time.perf_counter() - started
    if finished is not None:  # nothing was trained now
        times = {name: getattr(finished, name) for name in times}
    return _saved_result(config, model, end, facts | times)


def _fit(
    config: TrainConfig,
    data: Data,
    model: Any,
    steps: int,
    hooks: list[Hook],
    mesh: Mesh | None,
    progress: Progress,
) -> tuple[FitResult, dict[str, Any]]:
    """Train in the folder of the run; return the end of it, and fields of its summary."""
    optimizer, schedule = build_optimizer(config, steps=steps)
    options = {"accumulate": config.accumulate, "schedule": schedule, "mesh": mesh}
    loss = build_loss(config, model, data.vocabulary, train=True)
    step = _TimedStep(train_step(loss, optimizer, **options))
    state = init_state(functionalize(model)[1], optimizer, key=jax.random.key(config.seed))
    batches, documents = train_batches(config, data.train), fingerprint(data)
    folder = config.out / CHECKPOINTS
    with locked_folder(config.out):
        _prepare_folder(config, data.vocabulary, documents)
        resumed_at = newest_checkpoint(folder) or 0
        with Checkpoints(folder, keep=config.keep, config=documents) as checkpoints:
            end = fit(
                state, step, batches, steps=steps, hooks=hooks, progress=progress,
                log=config.out / LOG, checkpoints=checkpoints,
                checkpoint_every=config.checkpoint_every,
            )  # fmt: skip
    return end, {"resumed_at": resumed_at, "tokens_per_second": step.tokens_per_second}


def _saved_result(config: TrainConfig, model: Any, end: FitResult, facts: dict[str, Any]) -> TrainResult:
    """Write the summary and the model of a finished run."""
    model = functionalize(model, lambda merged: merged)[0](end.state.params)
    # Hugging Face has no model that classifies a mean.
    if config.pretrained is not None and getattr(model, "pooling", "first") == "first":
        save_huggingface(model, config.out / MODEL, source=config.pretrained)
    probes = _hook_records(end.history, "probe/")
    summary = TrainSummary(
        **facts,
        evaluation=_evaluations(end.history, config, facts["task"]),
        probe={"first": probes[0], "last": probes[-1]} if probes else {},
        extended_after=extended_after(config, end.history, steps=facts["steps"]),
    )
    write_file(config.out / SUMMARY, json.dumps(to_json(summary), indent=2) + "\n")
    last = {name: value for name, value in summary.evaluation.last.items() if name != "step"}
    apply, params = functionalize(model)
    return TrainResult(model, apply, params, end.history, last, summary, config.out)


def finished_summary(config: TrainConfig) -> TrainSummary | None:
    """Summary of a run that has made all its steps; None for another.

    >>> finished_summary(TrainConfig(out=Path("nowhere"))) is None
    True
    """
    try:
        summary: TrainSummary = load_result(TrainSummary, config.out / SUMMARY)
    except InputError:  # not finished, or damaged: it is made again from the log
        return None
    return summary if summary.steps == total_steps(config, summary.documents) else None


def load_run(directory: str | Path) -> LoadedRun:
    """The model of a run, from its newest checkpoint, whether the run is finished or not.

    Raises:
        InputError: no run there, no checkpoint yet, or a pretrained model that is gone.

    >>> load_run("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere holds no run to resume: there is no config.json; ...
    """
    config = load_config(directory)
    vocabulary, documents = read_vocabulary(config.out)
    check_memory(config, vocab_size=len(vocabulary.tokens), training=False)
    model = build_model(config, vocabulary)
    optimizer, _ = build_optimizer(config, steps=2)
    like = init_state(functionalize(model)[1], optimizer, key=jax.random.key(config.seed))
    folder, restored = config.out / CHECKPOINTS, None
    if folder.is_dir():
        options: dict[str, Any] = {"keep": config.keep, "config": documents}
        with Checkpoints(folder, read_only=True, **options) as checkpoints:
            restored = checkpoints.restore(like)
    if restored is None:
        raise InputError(f"{directory} has no checkpoint yet: resume the run first")
    state, step = restored
    model = functionalize(model, lambda merged: merged)[0](state.params)
    return LoadedRun(model, functionalize(model)[0], state.params, step, config, vocabulary)


class _TimedStep:
    """A training step that notes when it is called and with how many tokens."""

    def __init__(self, step: Step):
        self.step = step
        self.calls: list[tuple[float, int]] = []

    def __call__(self, state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        self.calls.append((time.perf_counter(), int(batch["mask"].sum())))
        return self.step(state, batch)

    @property
    def tokens_per_second(self) -> float | None:
        """Median over steps, which leaves out those that compile or wait for a hook."""
        if len(self.calls) < 3:
            return None
        times, tokens = np.array(self.calls).T
        return float(np.median(tokens[:-1] / np.diff(times)))


def _hooks(
    config: TrainConfig, model: Any, data: Data, counts: Any, progress: Progress
) -> list[Hook]:
    """Evaluation on the held-out documents, and the probe of the encoding."""
    loss = build_loss(config, model, data.vocabulary, train=False)
    held_out = evaluation_batches(config, data.held_out)
    longer = {n: evaluation_batches(config, part) for n, part in data.longer.items()}

    def evaluation(step: int, state: TrainState) -> Record:
        means = evaluate(loss, state.params, held_out)
        for length, batches in longer.items():
            means[f"exact_{length}"] = evaluate(loss, state.params, batches)["exact"]
        shown = ", ".join(f"{name} {value:.4f}" for name, value in means.items())
        progress.say(f"step {step:>6,}   held out: {shown}")
        return {f"eval/{name}": value for name, value in means.items()}

    hooks = [Hook(at=every_n_steps(config.evaluate_every), run=evaluation)]
    if not config.probe_at:
        return hooks
    scores = build_probe(model, data.train.corpus, counts, seed=config.seed)

    def probe(step: int, state: TrainState) -> Record:
        return {f"probe/{name}": value for name, value in as_record(scores(state.params)).items()}

    return [*hooks, Hook(at=set(config.probe_at), run=probe)]


def _check_folder(config: TrainConfig) -> TrainConfig | None:
    """Configuration of the run in a folder, which can only be resumed."""
    if config.resume:
        saved = load_config(config.out)
        check_resumption(config, saved)
        return saved
    if any((config.out / name).exists() for name in ("config.json", LOG, CHECKPOINTS)):
        raise InputError(
            f"{config.out} holds a run already: add `resume=True` to resume it, or pass "
            "another `out`"
        )
    return None


def _prepare_folder(config: TrainConfig, vocabulary: Vocabulary, documents: dict[str, int]) -> None:
    """Write the configuration and the vocabulary of a run."""
    saved = _check_folder(config)  # another run may have been faster
    if saved is None:
        fields = vocabulary._asdict() | documents
        write_file(config.out / _VOCABULARY, json.dumps(fields, indent=2) + "\n")
    elif differences(config, saved):  # longer, and so no longer finished
        remove_files(config.out, [SUMMARY])
    save_config(config)


def read_vocabulary(out: Path) -> tuple[Vocabulary, dict[str, int]]:
    """The vocabulary of a run, and the fingerprint of its documents.

    Raises `InputError` for a file that is missing, or holds something else.
    """
    path = out / _VOCABULARY
    fields = read_json(path, remedy=_ANEW)
    documents = from_json(int, fields.pop("documents", None), where=f"{path}.documents")
    return from_json(Vocabulary, fields, where=str(path)), {"documents": documents}


def _mesh(config: TrainConfig) -> Mesh | None:
    """The devices that share each batch; None for one."""
    available = jax.local_device_count()
    count = available if config.devices is None else config.devices
    if count > available:
        raise InputError(f"`devices` is {count}, but there are {available}: pass at most as many")
    if config.batch_size % (count * config.accumulate):
        raise InputError(
            f"`batch_size={config.batch_size}` does not divide over {count} devices and "
            f"`accumulate={config.accumulate}`: pass a multiple, or fewer `devices`"
        )
    if count == 1:
        return None
    devices = jax.local_devices()[:count]
    return jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,), devices=devices)


def _facts(config: TrainConfig, data: Data, model: Any) -> dict[str, Any]:
    """Fields of a summary that are known before the first step."""
    corpus, rows = data.train.corpus, len(data.train.labels)
    sides = SIDES if config.task == "translate" else SIDES[:1]
    names = ["+".join(entry.name for entry in encoding_entries(config, side)) for side in sides]
    return {
        "source": corpus.name,
        "task": data.vocabulary.task,
        "encoding": model_name(Path(config.pretrained)) if config.pretrained else " / ".join(names),
        "documents": rows,
        "held_out": len(data.held_out.labels),
        "vocab_size": len(data.vocabulary.tokens),
        "length": config.length,
        "parameters": parameter_count(model),
        "longest": corpus.longest,
        "steps": total_steps(config, rows),
    }


def _finished_message(config: TrainConfig, done: TrainSummary) -> str:
    more = (
        f"`steps={2 * done.steps}`" if config.epochs is None else f"`epochs={2 * config.epochs:g}`"
    )
    return (
        f"{config.out} is finished: it has made all of its {done.steps:,} steps. To extend it, "
        f"resume it with {more} or any larger number"
    )


def _evaluations(history: list[Record], config: TrainConfig, task: str) -> Evaluations:
    evaluations = _hook_records(history, "eval/")
    if not evaluations:
        raise InputError(
            f"{config.out / LOG} lacks evaluations of this run, which ended before: put it back, "
            f"or {_ANEW}"
        )

    def worth(record: Measured) -> tuple[float, float]:
        loss = math.inf if record["loss"] is None else record["loss"]
        return (record["accuracy"] or 0.0) if task == "classify" else 0.0, -loss

    return Evaluations(evaluations[0], max(evaluations, key=worth), evaluations[-1])


def _hook_records(history: list[Record], prefix: str) -> list[Measured]:
    """Records of a hook, with their steps and without its prefix."""
    return [
        {"step": record["step"]}
        | {k.removeprefix(prefix): v for k, v in record.items() if k.startswith(prefix)}
        for record in history
        if any(name.startswith(prefix) for name in record)
    ]

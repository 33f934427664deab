"""Training run: from a configuration to a trained model, and loading from the run's folder."""

import contextlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh

from jaxpe._core.arrays import auto_mesh
from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder, remove_files, write_file
from jaxpe._core.hub import local_model_options, model_name
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.results import load_result
from jaxpe.data import open_tokenizer
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.nn import functionalize, save_huggingface
from jaxpe.nn.functionalize import parameter_count
from jaxpe.training.build import (
    build_loss,
    build_model,
    build_optimizer,
    build_probe,
    total_steps,
    trained_params,
    with_params,
)
from jaxpe.training.checkpoints import Checkpoints
from jaxpe.training.config import (
    TrainConfig,
    as_json,
    check_config,
    check_resumption,
    differences,
    encoding_entries,
    load_config,
    save_config,
    tokenizer_name,
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
from jaxpe.training.log import Record
from jaxpe.training.loop import FitResult, Hook, every_n_steps, fit
from jaxpe.training.memory import check_memory
from jaxpe.training.placement import ROWS
from jaxpe.training.probe import as_record
from jaxpe.training.processes import (
    join_processes,
    require_equal_values,
    run_on_first_process,
)
from jaxpe.training.step import Metrics, Step, TrainState, evaluate, init_state, train_step

Params = Any
# A step, and the numbers of a hook at this step by name; None if a number is not finite.
Measured = dict[str, int | float | None]

LOG, SUMMARY, CHECKPOINTS, MODEL = "log.jsonl", "summary.json", "checkpoints", "model"
_VOCABULARY = "vocabulary.json"
_ANEW = "pass another `out` to train anew"


class _Run(NamedTuple):
    """A run that is being made: what its parts share."""

    config: TrainConfig
    data: Data
    model: Any
    counts: Any  # of the corpus; None if neither a probe nor an encoding needs them
    mesh: Mesh | None
    steps: int


class Evaluations(NamedTuple):
    """Evaluations on the held-out documents: step, loss and metrics of the task.

    The best evaluation has the largest accuracy for classify, else the smallest loss.

    Attributes:
        first: metrics before training.
        best: metrics at the best evaluation.
        last: metrics at the end.
    """

    first: Measured
    best: Measured
    last: Measured


class TrainSummary(NamedTuple):
    """Summary of a run.

    Attributes:
        encoding: names of the encodings joined by +, or the pretrained model's name.
        documents: number of training documents.
        parameters: number of parameters of the model.
        seconds: duration of the run, since it was last resumed.
        tokens_per_second: median over steps, without padding; None for fewer than three steps.
        evaluation: evaluations on the held-out documents.
        probe: geometry of the encoding at the "first" and the "last" step; empty without a probe.
        longest: tokens of the longest document before it was cut; None in runs of old versions.
        resumed_at: step at which `seconds` starts.
        extended_after: last step before the run was extended, if its learning rates differ from the
            longer run's; 0 for none.
        source: name or path of the corpus.
        task: classify, mlm or causal.
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
    """Result of a finished run.

    Attributes:
        model: model with its trained parameters.
        apply: `(params, ids, **options) -> HeadOutput`.
        params: parameters after the last step, or their average with `config.average`.
        history: one record per step, as in log.jsonl: metrics, "eval/..." and "probe/...".
        evaluation: metrics on the held-out documents after the last step; None if not finite.
        summary: content of summary.json.
        out: folder with config.json, vocabulary.json, log.jsonl, summary.json and checkpoints/; for
            BERT and MPNet also model/, in Hugging Face's format.
    """

    model: Any
    apply: Callable[..., Any]
    params: Params
    history: list[Record]
    evaluation: Measured
    summary: TrainSummary
    out: Path


class LoadedRun(NamedTuple):
    """Model loaded from the folder of a run.

    Attributes:
        model: model with the parameters of the newest checkpoint.
        apply: `(params, ids, **options) -> HeadOutput`.
        params: parameters of the newest checkpoint, or their average with `config.average`.
        step: number of updates.
        config: configuration of the run.
        vocabulary: tokens and class names.
    """

    model: Any
    apply: Callable[..., Any]
    params: Params
    step: int
    config: TrainConfig
    vocabulary: Vocabulary

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids and mask of new texts, cut to the length of the run.

        Raises:
            InputError: a run on ids, which has no tokenizer of texts.
        """
        name, tokens = tokenizer_name(self.config), None
        if vocabulary_occurs(name):  # [MASK], which mlm adds last, occurs in no text
            tokens = self.vocabulary.tokens[: self.vocabulary.mask_id]
        special = self.config.special or self.config.pretrained is not None
        tokenizer = open_tokenizer(name, special=special, vocabulary=tokens)
        return tokenizer.encode(texts, length=self.config.length)


def train(
    config: TrainConfig,
    *,
    on_record: Callable[[Record], Any] | None = None,
    progress: Progress = SILENT,
) -> TrainResult:
    """Train a model as configured, and write the run into `config.out`.

    `train(load_config(out))` resumes an interrupted run. It ends with the same parameters and log
    as an uninterrupted run. With more `steps` or `epochs` a finished run is extended: it keeps its
    state and its position in the data, and the learning rate continues as in the longer run. With
    `decay="constant"` and `warmup=0`, learning rates do not depend on the number of steps. An
    extended run then has bit for bit the parameters of a run of the full length.

    Args:
        config: settings of the training.
        on_record: receives each complete record, as in `fit`.
        progress: receives progress, a line at the start and one at every evaluation.

    Raises:
        InputError: invalid options or documents, too little memory or disk, a folder that holds
            another run or is being written, or other settings for a resumed run.
        NonFiniteLoss: names the step, and has the state before it.

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
    if config.distributed:
        join_processes()
    progress = SILENT if jax.process_index() else progress
    config = local_model_options(config, "pretrained")
    saved = _check_folder(config)
    check_config(config)
    finished = finished_summary(config) if config.resume else None
    if finished is not None:
        unit = "steps" if config.epochs is None else "epochs"
        progress.say(
            f"{config.out} is finished, after {finished.steps:,} steps; resume it with more "
            f"`{unit}` to extend it"
        )
    check_memory(config)
    mesh = _mesh(config)
    data = load_data(config, progress=progress)
    check_memory(config, vocab_size=len(data.vocabulary.tokens))
    # Fitted encodings and the probe need counts of the corpus.
    fitted = config.pretrained is None and any(e.fitted for e in encoding_entries(config))
    counts = count_documents(data.train) if config.probe_at or fitted else None
    model = build_model(config, data.vocabulary, counts=counts, mesh=mesh)
    rows = len(data.train.labels)
    run = _Run(config, data, model, counts, mesh, total_steps(config, rows))
    facts = _facts(run)
    progress.say(
        "{source}: {task}, {documents:,} documents, {vocab_size:,} tokens in the vocabulary\n"
        "{encoding}: {parameters:,} parameters, {steps:,} steps".format(**facts)
    )
    before = run.steps if saved is None else total_steps(saved, rows)
    if run.steps < before:
        raise InputError(
            f"{config.out} has {before:,} steps: pass more `steps` or `epochs` to extend it, or "
            "leave both out to resume it"
        )
    if run.steps > before:
        progress.say(f"extended from {before:,} to {run.steps:,} steps")
    end, times = _fit(run, hooks=_hooks(run, progress), on_record=on_record, progress=progress)
    times["seconds"] = time.perf_counter() - started
    if finished is not None:  # no step was made, so the timings of the earlier run stay
        times = {name: getattr(finished, name) for name in times}
    return _saved_result(run, end, facts | times)


def _fit(run: _Run, **options: Any) -> tuple[FitResult, dict[str, Any]]:
    """Train in the folder of the run; return the result, and fields of the summary.

    `options` are further arguments of `fit`.
    """
    config, mesh = run.config, run.mesh
    optimizer, schedule = build_optimizer(config, steps=run.steps)
    loss = build_loss(config, run.model, run.data.vocabulary, train=True)
    step = train_step(loss, optimizer, accumulate=config.accumulate, schedule=schedule, mesh=mesh)
    params, key = functionalize(run.model)[1], jax.random.key(config.seed)
    state = init_state(params, optimizer, key=key, mesh=mesh)
    batches, documents = train_batches(config, run.data.train), fingerprint(run.data)
    require_equal_values(as_json(config) | documents)
    with contextlib.ExitStack() as stack:
        run_on_first_process(lambda: stack.enter_context(locked_folder(config.out)))
        run_on_first_process(lambda: _prepare_folder(config, run.data.vocabulary, documents))
        timed, folder = _TimedStep(step), config.out / CHECKPOINTS
        with Checkpoints(folder, keep=config.keep, config=documents) as checkpoints:
            resumed_at = checkpoints.latest() or 0
            end = fit(
                state, timed, batches, steps=run.steps, log=config.out / LOG,
                checkpoints=checkpoints, checkpoint_every=config.checkpoint_every, **options,
            )  # fmt: skip
    return end, {"resumed_at": resumed_at, "tokens_per_second": timed.tokens_per_second}


def _saved_result(run: _Run, end: FitResult, facts: dict[str, Any]) -> TrainResult:
    """Result of a finished run, whose summary and model are written."""
    config, params = run.config, trained_params(run.config, end.state)
    model = with_params(run.model, params)
    # Hugging Face has no classifier of the mean vector.
    if config.pretrained is not None and getattr(model, "pooling", "first") == "first":
        whole = with_params(model, process_allgather(params, tiled=True))
        run_on_first_process(
            lambda: save_huggingface(whole, config.out / MODEL, source=config.pretrained)
        )
    probes = _hook_records(end.history, "probe/")
    summary = TrainSummary(
        **facts,
        evaluation=_evaluations(end.history, config, facts["task"]),
        probe={"first": probes[0], "last": probes[-1]} if probes else {},
        extended_after=_extended_after(run, end.history),
    )
    text = json.dumps(to_json(summary), indent=2) + "\n"
    run_on_first_process(lambda: write_file(config.out / SUMMARY, text))
    last = {name: value for name, value in summary.evaluation.last.items() if name != "step"}
    apply, params = functionalize(model)
    return TrainResult(model, apply, params, end.history, last, summary, config.out)


def _extended_after(run: _Run, history: list[Record]) -> int:
    """Last step whose learning rate is not the rate of a run of as many steps; 0 for none."""
    with jax.numpy_dtype_promotion("standard"):  # Optax does not know the strict one
        schedule = jax.jit(build_optimizer(run.config, steps=run.steps)[1])
        planned = np.broadcast_to(schedule(np.arange(run.steps, dtype=np.int32)), (run.steps,))
    # Beyond rounding to float32.
    other = (
        record["step"]
        for record in history
        if record.get("learning_rate") is not None
        and not math.isclose(record["learning_rate"], planned[record["step"] - 1], rel_tol=1e-5)
    )
    return max(other, default=0)


def finished_summary(config: TrainConfig) -> TrainSummary | None:
    """Summary of a run that has made all its steps; None for another run.

    >>> finished_summary(TrainConfig(out=Path("nowhere"))) is None
    True
    """
    try:
        summary: TrainSummary = load_result(TrainSummary, config.out / SUMMARY)
    except InputError:  # unfinished, or damaged: `train` writes it again from the log
        return None
    return summary if summary.steps == total_steps(config, summary.documents) else None


def load_run(directory: str | Path) -> LoadedRun:
    """Load the model of a run of `train`, finished or not, from its newest checkpoint.

    A folder of `fit` has arrays alone: read it with `Checkpoints.restore`.

    Args:
        directory: folder of the run.

    Raises:
        InputError: a folder without a run or without a checkpoint, or a missing pretrained model.

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
        with Checkpoints(folder, read_only=True, config=documents) as checkpoints:
            restored = checkpoints.restore(like)
    if restored is None:
        raise InputError(f"{directory} has no checkpoint yet: resume the run first")
    state, step, _ = restored
    params = trained_params(config, state)
    model = with_params(model, params)
    return LoadedRun(model, functionalize(model)[0], params, step, config, vocabulary)


class _TimedStep:
    """Training step that records the time and the number of tokens of each call."""

    def __init__(self, step: Step):
        self.step = step
        self.calls: list[tuple[float, int]] = []

    def __call__(self, state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        self.calls.append((time.perf_counter(), int(batch["mask"].sum())))
        return self.step(state, batch)

    @property
    def tokens_per_second(self) -> float | None:
        """Median over steps, so that steps that compile or wait for a hook do not count."""
        if len(self.calls) < 3:
            return None
        times, tokens = np.array(self.calls).T
        return float(np.median(tokens[:-1] / np.diff(times)))


def _hooks(run: _Run, progress: Progress) -> list[Hook]:
    """Hooks that evaluate on the held-out documents and probe the encoding."""
    config, data = run.config, run.data
    loss = build_loss(config, run.model, data.vocabulary, train=False)
    held_out = evaluation_batches(config, data.held_out)

    def evaluation(step: int, state: TrainState) -> Record:
        means = evaluate(loss, trained_params(config, state), held_out, mesh=run.mesh)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in means.items())
        progress.say(f"step {step:>6,}   held out: {shown}")
        return {f"eval/{name}": value for name, value in means.items()}

    hooks = [Hook(at=every_n_steps(config.evaluate_every), run=evaluation)]
    if config.probe_at:
        scores = build_probe(run.model, data.train.corpus, run.counts, seed=config.seed)

        def probe(step: int, state: TrainState) -> Record:
            found = as_record(scores(trained_params(config, state)))
            return {f"probe/{name}": value for name, value in found.items()}

        hooks.append(Hook(at=set(config.probe_at), run=probe))
    return hooks


def _check_folder(config: TrainConfig) -> TrainConfig | None:
    """Configuration of the run to resume; None for a folder without a run."""
    if config.resume:
        saved = load_config(config.out)
        check_resumption(config, saved)
        return saved
    if any((config.out / name).exists() for name in ("config.json", LOG, CHECKPOINTS)):
        raise InputError(
            f"{config.out} already holds a run: add `resume=True` to resume it, or pass "
            "another `out`"
        )
    return None


def _prepare_folder(config: TrainConfig, vocabulary: Vocabulary, documents: dict[str, int]) -> None:
    """Write the configuration and the vocabulary of a run."""
    saved = _check_folder(config)  # again under the lock: another process may have been faster
    if saved is None:
        fields = vocabulary._asdict() | documents
        write_file(config.out / _VOCABULARY, json.dumps(fields, indent=2) + "\n")
    elif differences(config, saved):  # an extended run is no longer finished
        remove_files(config.out, [SUMMARY])
    save_config(config)


def read_vocabulary(out: Path) -> tuple[Vocabulary, dict[str, int]]:
    """Vocabulary of a run, and the fingerprint of its documents.

    Raises `InputError` for a missing or invalid file.
    """
    path = out / _VOCABULARY
    fields = read_json(path, remedy=_ANEW)
    documents = from_json(int, fields.pop("documents", None), where=f"{path}.documents")
    return from_json(Vocabulary, fields, where=str(path)), {"documents": documents}


def _mesh(config: TrainConfig) -> Mesh | None:
    """Mesh of the devices that share the work; None for a single device."""
    available, several = jax.device_count(), jax.process_count() > 1
    count = config.devices or available
    if count > available or (several and count < available):
        asked = "leave it out with several processes" if several else "pass at most as many"
        raise InputError(f"`devices` is {count}, but JAX has {available}: {asked}")
    together, rows = config.fsdp * config.tensor, count // config.tensor
    # JAX would say so in the first step only, when the folder is written. The axis "model" lies in
    # one process, which therefore has whole rows of a batch.
    for number, divisor, message in (
        (count, together, "number of devices: pass smaller `fsdp` and `tensor`"),
        (jax.local_device_count(), config.tensor, "devices of a process: pass a smaller `tensor`"),
        (config.batch_size, rows * config.accumulate, "`batch_size`: pass a multiple"),
    ):
        if number % divisor:
            raise InputError(f"{divisor} does not divide {number}, the {message}")
    if count == 1:
        return None
    shape, devices = (count // together, config.fsdp, config.tensor), jax.devices()[:count]
    return auto_mesh(jax.make_mesh(shape, (*ROWS, "model"), devices=devices))


def _facts(run: _Run) -> dict[str, Any]:
    """Fields of a summary that are known before the first step."""
    config, data = run.config, run.data
    names = "+".join(entry.name for entry in encoding_entries(config))
    return {
        "source": data.train.corpus.name,
        "task": data.vocabulary.task,
        "encoding": model_name(Path(config.pretrained)) if config.pretrained else names,
        "documents": len(data.train.labels),
        "held_out": len(data.held_out.labels),
        "vocab_size": len(data.vocabulary.tokens),
        "length": config.length,
        "parameters": parameter_count(run.model),
        "longest": data.train.corpus.longest,
        "steps": run.steps,
    }


def _evaluations(history: list[Record], config: TrainConfig, task: str) -> Evaluations:
    evaluations = _hook_records(history, "eval/")
    if not evaluations:
        raise InputError(
            f"{config.out / LOG} lacks the evaluations of this finished run: restore the file, or "
            f"{_ANEW}"
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

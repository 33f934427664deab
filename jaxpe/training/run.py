"""Training run: from a configuration to a trained model, and back from the folder of the run."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
from jax.sharding import AxisType, Mesh

from jaxpe._core.checkpoints import Checkpoints, newest_checkpoint
from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder, remove_files, write_file
from jaxpe._core.hub import local_model_options, model_name
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.results import load_result
from jaxpe.nn import functionalize, parameter_count, save_huggingface
from jaxpe.training.build import build_loss, build_model, build_optimizer, build_probe, steps_of
from jaxpe.training.config import (
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
from jaxpe.training.log import Record, read_log
from jaxpe.training.loop import FitResult, Hook, every_n_steps, fit
from jaxpe.training.memory import check_memory
from jaxpe.training.probe import as_record
from jaxpe.training.step import Metrics, Step, TrainState, evaluate, init_state, train_step

Params = Any
# A step and what a hook found there, by name; None for what was not finite.
Found = dict[str, int | float | None]

LOG, SUMMARY, CHECKPOINTS, MODEL = "log.jsonl", "summary.json", "checkpoints", "model"
_VOCABULARY = "vocabulary.json"
_TIMES = ("seconds", "tokens_per_second", "resumed_at")  # of a summary
_ANEW = "pass another `out` to train anew"


class Evaluations(NamedTuple):
    """The step, the loss and metrics of the task on the held-out documents, before and after.

    The best is that of the largest accuracy for classify, else of the least loss.

    Attributes:
        first: metrics before training.
        best: metrics at the best evaluation.
        last: metrics at the end.
    """

    first: Found
    best: Found
    last: Found


class TrainSummary(NamedTuple):
    """A run in numbers.

    Attributes:
        encoding: names of the encodings joined by +, or that of the pretrained model. Of an
            encoder–decoder those of the encoder, of the decoder and of the attention between them,
            joined by " / ".
        documents: trained on; `held_out` are those to judge by.
        parameters: numbers in the model.
        seconds: duration of the whole run, since it was last resumed.
        tokens_per_second: padding apart; None where too few steps were timed.
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
    probe: dict[str, Found]
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
    evaluation: Found
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
    """Train what a configuration asks for, and write the run into `config.out`.

    `train(load_config(out))` resumes an interrupted run. It ends with the same parameters and log
    as a run without interruption. With more `steps` or `epochs` a finished run is extended: state
    and place in the data stay, and from there the learning rate is that of the longer run. Where
    the rate of the first steps does not depend on their total (`decay="constant"`, `warmup=0`),
    the parameters equal those of the longer run, bit for bit.

    Args:
        config: settings of the training.
        progress: receiver of progress in reading and training; is told a line at the start and at
            every evaluation.

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
    done = finished_summary(config) if config.resume else None
    if done is not None:
        progress.say(_finished_line(config, done))
    check_memory(config)
    mesh = _mesh(config)
    data = load_data(config, progress=progress)
    check_memory(config, vocab_size=len(data.vocabulary.tokens))
    # An encoding may be made from the corpus, and the probe compares with it.
    fitted = config.pretrained is None and any(e.fitted for e in encoding_entries(config))
    counts = count_documents(data.train) if config.probe_at or fitted else None
    model = build_model(config, data.vocabulary, counts=counts)
    begun = _begun(config, data, model)
    progress.say(_opening(begun))
    if saved is not None and is_longer(config, saved):
        progress.say(extension_line(config, saved, rows=len(data.train.labels)))
    fitting = _fitting(config, data, counts, model, mesh, progress)
    with locked_folder(config.out):
        _check_folder(config)  # which another run may have made meanwhile
        _prepare_folder(config, data.vocabulary, fitting.documents)
        resumed_at = newest_checkpoint(config.out / CHECKPOINTS) or 0
        result = _fit(config, fitting, progress)
        params = result.state.params
        model = _with_params(model, params)
        _save_model(model, config)
        summary = _ended(begun, config, data, fitting, result)
        timed = done  # which trained what is there; nothing is trained now
        if timed is None:
            seconds = time.perf_counter() - started
            speed = fitting.step.speed
            timed = begun._replace(seconds=seconds, tokens_per_second=speed, resumed_at=resumed_at)
        summary = summary._replace(**{name: getattr(timed, name) for name in _TIMES})
        write_file(config.out / SUMMARY, json.dumps(to_json(summary), indent=2) + "\n")
    last = summary.evaluation.last
    evaluation = {name: value for name, value in last.items() if name != "step"}
    apply = functionalize(model)[0]
    return TrainResult(model, apply, params, result.history, evaluation, summary, config.out)


def finished_summary(config: TrainConfig) -> TrainSummary | None:
    """Summary of a run that has made all its steps; None of another.

    >>> finished_summary(TrainConfig(out=Path("nowhere"))) is None
    True
    """
    path = config.out / SUMMARY
    if not path.is_file():
        return None
    try:
        summary: TrainSummary = load_result(TrainSummary, path)
    except InputError:  # damaged, and made again from the log
        return None
    return summary if summary.steps == steps_of(config, summary.documents) else None


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
    options: dict[str, Any] = {"keep": config.keep, "config": documents, "read_only": True}
    folder, restored = config.out / CHECKPOINTS, None
    if folder.is_dir():
        with Checkpoints(folder, **options) as found:
            restored = found.restore(like)
    if restored is None:
        raise InputError(f"{directory} has no checkpoint yet: resume the run first")
    state, step = restored
    model = _with_params(model, state.params)
    return LoadedRun(model, functionalize(model)[0], state.params, step, config, vocabulary)


class _Clock:
    """A training step that also tells how many tokens a second it trains on."""

    # Steps count that neither compile nor wait for a hook: the time from a call to the next one.

    def __init__(self, step: Step):
        self.step = step
        self.seconds = 0.0
        self.tokens = 0
        self.seen: set[int] = set()
        self.running: tuple[float, int] | None = None

    def __call__(self, state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        now, width = time.perf_counter(), batch["ids"].shape[1]
        if self.running is not None:
            self.seconds += now - self.running[0]
            self.tokens += self.running[1]
        self.running = (now, int(batch["mask"].sum())) if width in self.seen else None
        self.seen.add(width)
        return self.step(state, batch)

    def pause(self) -> None:
        """Stop the clock: the time that follows is not of training."""
        self.running = None

    @property
    def speed(self) -> float | None:
        """Tokens a second, padding apart; None where too few steps were timed."""
        return self.tokens / self.seconds if self.tokens else None


class _Fitting(NamedTuple):
    """Parts of a training run, made before any file is written."""

    state: TrainState
    step: _Clock
    batches: Any
    steps: int
    hooks: list[Hook]
    documents: dict[str, int]


def _fitting(
    config: TrainConfig, data: Data, counts: Any, model: Any, mesh: Mesh | None, progress: Progress
) -> _Fitting:
    batches = train_batches(config, data.train)
    steps = steps_of(config, len(data.train.labels))
    optimizer, schedule = build_optimizer(config, steps=steps)
    loss = build_loss(config, model, data.vocabulary, train=True)
    options = {"accumulate": config.accumulate, "schedule": schedule, "mesh": mesh}
    clock = _Clock(train_step(loss, optimizer, **options))
    state = init_state(functionalize(model)[1], optimizer, key=jax.random.key(config.seed))
    hooks = _hooks(config, model, data, counts, clock, progress)
    return _Fitting(state, clock, batches, steps, hooks, fingerprint(data))


def _fit(config: TrainConfig, fitting: _Fitting, progress: Progress) -> FitResult:
    """The training itself."""
    folder, log = config.out / CHECKPOINTS, config.out / LOG
    read_records(log)  # refused before they are added to
    options: dict[str, Any] = {"steps": fitting.steps, "hooks": fitting.hooks, "log": log}
    options |= {"checkpoint_every": config.checkpoint_every, "progress": progress}
    with Checkpoints(folder, keep=config.keep, config=fitting.documents) as checkpoints:
        start = fitting.state, fitting.step, fitting.batches
        return fit(*start, checkpoints=checkpoints, **options)


def read_records(path: Path) -> list[Record]:
    """Log of a run, empty where there is none yet.

    Raises `InputError` for what its summary and figures cannot be made from: steps out of order, or
    values that are no numbers.
    """
    before, records = -1, read_log(path) if path.exists() else []
    for number, record in enumerate(records, 1):
        place = f"{path}:{number}"
        if record["step"] <= before:
            raise InputError(f"{place} is of step {record['step']} after {before}; {_ANEW}")
        before = record["step"]
        numbers = {name: value for name, value in record.items() if name != "error"}
        from_json(dict[str, float | None], numbers, place=place)
    return records


def _hooks(
    config: TrainConfig, model: Any, data: Data, counts: Any, clock: _Clock, progress: Progress
) -> list[Hook]:
    """Evaluation on the held-out documents, and the probe of the encoding."""
    loss = build_loss(config, model, data.vocabulary, train=False)
    held_out = evaluation_batches(config, data.held_out)
    longer = {n: evaluation_batches(config, part) for n, part in data.longer.items()}

    def evaluation(step: int, state: TrainState) -> Record:
        clock.pause()
        found = evaluate(loss, state.params, held_out)
        for length, batches in longer.items():
            found[f"exact_{length}"] = evaluate(loss, state.params, batches)["exact"]
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        progress.say(f"step {step:>6,}   held out: {shown}")
        return {f"eval/{name}": value for name, value in found.items()}

    hooks = [Hook(at=every_n_steps(config.evaluate_every), run=evaluation)]
    if not config.probe_at:
        return hooks
    look = build_probe(model, data.train.corpus, counts, seed=config.seed)

    def probe(step: int, state: TrainState) -> Record:
        clock.pause()
        return {f"probe/{name}": value for name, value in as_record(look(state.params)).items()}

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
    if config.resume:
        if differences(config, load_config(config.out)):  # longer, and so no longer finished
            remove_files(config.out, [SUMMARY])
            save_config(config)
        return
    fields = vocabulary._asdict() | documents
    write_file(config.out / _VOCABULARY, json.dumps(fields, indent=2) + "\n")
    save_config(config)


def read_vocabulary(out: Path) -> tuple[Vocabulary, dict[str, int]]:
    """The vocabulary of a run, and the fingerprint of its documents.

    Raises `InputError` for a file that is missing, or holds what cannot be.
    """
    path = out / _VOCABULARY
    fields = read_json(path, remedy=_ANEW)
    documents = from_json(int, fields.pop("documents", None), place=f"{path}.documents")
    vocabulary: Vocabulary = from_json(Vocabulary, fields, place=str(path))
    known = range(len(vocabulary.tokens))
    ids = {"mask_id": () if vocabulary.mask_id is None else (vocabulary.mask_id,)}
    for name, given in (ids | {"special_ids": vocabulary.special_ids}).items():
        if outside := [number for number in given if number not in known]:
            raise InputError(f"{path}: {name} is {outside[0]}, with {len(known)} tokens; {_ANEW}")
    if vocabulary.task == "mlm" and vocabulary.mask_id is None:
        raise InputError(f"{path}: no mask_id, which mlm needs; {_ANEW}")
    if vocabulary.task == "classify" and len(vocabulary.classes) < 2:
        raise InputError(f"{path}: {len(vocabulary.classes)} classes; {_ANEW}")
    return vocabulary, {"documents": documents}


def _mesh(config: TrainConfig) -> Mesh | None:
    """The devices that share each batch; None for one."""
    there = jax.local_device_count()
    count = there if config.devices is None else config.devices
    if count > there:
        raise InputError(f"`devices` is {count}, but there are {there}: pass at most as many")
    if config.batch_size % (count * config.accumulate):
        raise InputError(
            f"`batch_size={config.batch_size}` does not divide over {count} devices and "
            f"`accumulate={config.accumulate}`: pass a multiple, or fewer `devices`"
        )
    if count == 1:
        return None
    devices = jax.local_devices()[:count]
    return jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,), devices=devices)


def _with_params(model: Any, params: Params) -> Any:
    return functionalize(model, lambda merged: merged)[0](params)


def _save_model(model: Any, config: TrainConfig) -> None:
    """Save the model for Hugging Face, where Hugging Face has such a model."""
    if config.pretrained is not None and getattr(model, "pooling", "first") == "first":
        save_huggingface(model, config.out / MODEL, source=config.pretrained)


def _begun(config: TrainConfig, data: Data, model: Any) -> TrainSummary:
    """Summary before the first step, with its later fields empty."""
    names = _encoding_names(config)
    rows = len(data.train.labels)
    return TrainSummary(
        source=data.train.corpus.name,
        task=data.vocabulary.task,
        encoding=names if config.pretrained is None else model_name(Path(config.pretrained)),
        documents=rows,
        held_out=len(data.held_out.labels),
        vocab_size=len(data.vocabulary.tokens),
        length=config.length,
        parameters=parameter_count(model),
        longest=data.train.corpus.longest,
        steps=steps_of(config, rows),
        seconds=0.0,
        tokens_per_second=None,
        evaluation=Evaluations({}, {}, {}),
        probe={},
    )


def _encoding_names(config: TrainConfig) -> str:
    """Encodings joined by +; of an encoder–decoder those of the encoder, decoder and between."""

    def joined(side: Literal["encoding", "decoder_encoding", "cross_encoding"]) -> str:
        return "+".join(entry.name for entry in encoding_entries(config, side))

    if config.task != "translate":
        return joined("encoding")
    return f"{joined('encoding')} / {joined('decoder_encoding')} / {joined('cross_encoding')}"


def _ended(
    begun: TrainSummary, config: TrainConfig, data: Data, fitting: _Fitting, result: FitResult
) -> TrainSummary:
    """Summary after the last step, without the times."""
    return begun._replace(
        evaluation=_evaluations(result.history, data.vocabulary, config.out),
        probe=_probes(result.history),
        extended_after=extended_after(config, result.history, steps=fitting.steps),
    )


def _opening(facts: TrainSummary) -> str:
    return (
        f"{facts.source}: {facts.task}, {facts.documents:,} documents, "
        f"{facts.vocab_size:,} tokens in the vocabulary\n"
        f"{facts.encoding}: {facts.parameters:,} parameters, {facts.steps:,} steps"
    )


def _finished_line(config: TrainConfig, done: TrainSummary) -> str:
    more = (
        f"`steps={2 * done.steps}`" if config.epochs is None else f"`epochs={2 * config.epochs:g}`"
    )
    return (
        f"{config.out} is finished: it has made all of its {done.steps:,} steps. To extend it, "
        f"resume it with {more} or any larger number"
    )


def _evaluations(history: list[Record], vocabulary: Vocabulary, out: Path) -> Evaluations:
    evaluations = _records(history, "eval/")
    needed = {"loss", "accuracy"} if vocabulary.task == "classify" else {"loss"}
    if not evaluations or not all(needed <= found.keys() for found in evaluations):
        raise InputError(
            f"{out / LOG} lacks evaluations of this run, which ended before: put it back, or "
            f"{_ANEW}"
        )

    def worth(found: Found) -> tuple[float, float]:
        loss = math.inf if found["loss"] is None else found["loss"]
        return (found["accuracy"] or 0.0) if "accuracy" in needed else 0.0, -loss

    return Evaluations(evaluations[0], max(evaluations, key=worth), evaluations[-1])


def _probes(history: list[Record]) -> dict[str, Found]:
    """Records of the probe before and after training."""
    found = _records(history, "probe/")
    return {"first": found[0], "last": found[-1]} if found else {}


def _records(history: list[Record], prefix: str) -> list[Found]:
    """Records of a hook, with their steps and without its prefix."""
    found = (
        {"step": record["step"]}
        | {k.removeprefix(prefix): v for k, v in record.items() if k.startswith(prefix)}
        for record in history
    )
    return [record for record in found if len(record) > 1]

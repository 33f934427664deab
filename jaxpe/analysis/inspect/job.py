"""Stages of an inspection, each cached when finished."""

import dataclasses
import shlex
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.hub import local_model_options
from jaxpe._core.progress import SILENT, Clock, Progress, duration
from jaxpe.analysis.inspect.attention_result import AttentionStage
from jaxpe.analysis.inspect.attention_statistics import inspect_attention
from jaxpe.analysis.inspect.needles import SHORTEST, needle_retrieval
from jaxpe.analysis.inspect.options import STAGES, InspectOptions, Stage
from jaxpe.analysis.inspect.position_ablation import ablate_positions
from jaxpe.analysis.inspect.position_probe import hidden_states, probe_layers, probed_layers
from jaxpe.analysis.inspect.reach import embedding_reach
from jaxpe.analysis.inspect.result import (
    AblationStage,
    EncodingStage,
    GeometryStage,
    InspectFacts,
    InspectResult,
    LossStage,
    NeedleStage,
    ProbeStage,
)
from jaxpe.analysis.inspect.subject import InspectSubject, inspect_facts, read_inspect_subject
from jaxpe.analysis.inspect.token_loss import loss_by_position, text_windows
from jaxpe.analysis.inspect.torch_model import TorchModel
from jaxpe.analysis.inspect.weights import table_geometry
from jaxpe.analysis.stage_cache import StageCache, settings_stamp
from jaxpe.data.corpora.sources import source_paths
from jaxpe.data.formats.table import content_files

_ABLATED = 12  # documents
_TEXTS, _QUICK_TEXTS = 8, 4  # texts of loss, and of needles of each length
_NO_TABLE = (
    "The model adds no position vectors to its embeddings, so there is no table to compare with "
    "the corpus. Its positions act on attention."
)
_ENCODER_LOSS = (
    "An encoder predicts no next token, so it has no loss by position. The ablation of positions "
    "shows how much its output changes."
)
_ENCODER_NEEDLES = "An encoder generates no answer, so there is nothing to retrieve."


def inspect_model(
    options: InspectOptions, folder: Path | None = None, *, progress: Progress = SILENT
) -> InspectResult:
    """Inspect what position does in a model.

    Args:
        options: model, text and sizes.
        folder: folder in which finished stages are cached; the same options then resume. Nothing is
            cached when None.
        progress: receiver of progress of each stage.

    Raises:
        InputError: options out of range, a model or text that cannot be read, no tokenizer, a model
            larger than half of the memory, or text that is too short.

    >>> result = inspect_model(InspectOptions(model="all-MiniLM-L6-v2"))  # doctest: +SKIP
    >>> result.probe.r2.mean[-1]  # doctest: +SKIP
    0.98
    """
    options.check()
    sources = [options.source] if isinstance(options.source, str) else options.source
    command = shlex.join(["jaxpe", "inspect", options.model, *sources])
    options = local_model_options(options, "model")
    settings = {k: v for k, v in dataclasses.asdict(options).items() if k != "stages"}
    files = [file for path in source_paths(options.source) for file in content_files(path)]
    stamp = settings_stamp(settings, inputs=(options.model, *files))
    cache = StageCache(folder and folder / "stages", stamp)
    found = _run_stages(options, cache, read_inspect_subject, progress)
    return found._replace(facts=found.facts._replace(command=command))


def inspect_torch(
    model: Any,
    tokenizer: Any,
    options: InspectOptions | None = None,
    *,
    progress: Progress = SILENT,
) -> InspectResult:
    """Inspect what position does in a live model of transformers, through its own code.

    It runs the stages of `inspect_model`. Nothing is cached, and nothing is left on the
    model.

    Args:
        model: decoder or encoder of `transformers` in torch, with or without a head.
        tokenizer: fast tokenizer of the model, or the path of a tokenizer.json.
        options: text and sizes; its `model` names the model on the page.
        progress: receiver of progress of each stage.

    Raises:
        InputError: as `inspect_model`, and a model that `TorchModel` refuses.

    >>> result = inspect_torch(model, tokenizer)  # doctest: +SKIP
    >>> result.attention.overall.estimate  # doctest: +SKIP
    0.21
    """
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    options = InspectOptions(model=name) if options is None else options
    options.check()
    with tempfile.TemporaryDirectory() as folder:
        model.config.to_json_file(Path(folder, "config.json"))
        if isinstance(tokenizer, str | Path):
            path = str(tokenizer)
        elif (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
            backend.save(path := str(Path(folder, "tokenizer.json")))
        else:
            raise InputError(
                f"{type(tokenizer).__name__} has no `backend_tokenizer`: pass a fast tokenizer, or "
                "the path of a tokenizer.json"
            )
        module, shown = TorchModel(model), Path(options.model).name
        read = partial(read_inspect_subject, module=module, name=shown)
        live = dataclasses.replace(options, model=folder, tokenizer=path)
        return _run_stages(live, StageCache(None, ""), read, progress)


def _run_stages(
    options: InspectOptions, cache: StageCache, read: Callable[..., InspectSubject],
    progress: Progress,
) -> InspectResult:  # fmt: skip
    """Results of the stages that are not cached, and of those that are."""
    clock = Clock()
    results: dict[str, Any] = {}
    if (facts := cache.read("facts", InspectFacts)) is not None:
        cached = {stage: cache.read(stage, _STAGES[stage][0]) for stage in options.chosen}
        results = {stage: result for stage, result in cached.items() if result is not None}
    if results:
        progress.say(f"Kept from an earlier run: {', '.join(results)}.")
    absent: dict[str, str] = {
        stage: "This stage was not selected." for stage in STAGES if stage not in options.chosen
    }
    subject = None
    for stage in options.chosen:
        if stage in results:
            continue
        if subject is None:
            with clock.stage("reading"):
                subject = read(options, progress=progress)
                facts = inspect_facts(subject, seed=options.seed)
            cache.write("facts", facts)
        if reason := absence_reason(subject, stage):
            absent[stage] = reason
            continue
        results[stage] = _STAGES[stage][1](subject, progress)
        clock.lap(stage)
        cache.write(stage, results[stage])
        progress.say(_stage_line(stage, options.chosen, results, clock.laps))
    assert facts is not None  # from the cache, or from a stage that ran
    return InspectResult(facts=facts, absent=absent, seconds=clock.laps, **results)


def _stage_line(
    stage: Stage, chosen: tuple[Stage, ...], results: dict[str, Any], laps: dict[str, float]
) -> str:
    """Line on a stage that is done: its number and duration, and about how long the rest takes.

    The rest is estimated from stages that run the model, which `encoding` does not.
    """
    number = chosen.index(stage) + 1
    line = f"{stage}: done in {duration(laps[stage])} (stage {number} of {len(chosen)}"
    done = [name for name in results if name in laps and name != "encoding"]
    left = sum(_COSTS[name] for name in chosen[number:] if name not in results)
    if not left or not done:
        return f"{line})"
    pace = sum(laps[name] for name in done) / sum(_COSTS[name] for name in done)
    return f"{line}, about {duration(pace * left)} left)"


def absence_reason(subject: InspectSubject, stage: Stage) -> str:
    """Reason why a stage does not apply to a model; empty if it does.

    >>> absence_reason(subject, "needles")  # doctest: +SKIP
    'An encoder generates no answer, so there is nothing to retrieve.'
    """
    if reason := subject.inspected.absent().get(stage):
        return reason
    if stage == "geometry" and not (subject.most and subject.inspected.table_length is not None):
        return _NO_TABLE
    if stage not in ("loss", "needles"):
        return ""
    if subject.kind != "causal":
        return _ENCODER_LOSS if stage == "loss" else _ENCODER_NEEDLES
    if subject.most is not None and subject.longest > subject.most:
        return (
            f"The model has {subject.most:,} learned positions, fewer than the "
            f"{subject.longest:,} tokens of the longest text: pass a smaller `longest`."
        )
    if stage == "loss" and len(subject.stream) < 2 * subject.longest:
        return (
            f"Two texts of {subject.longest:,} tokens are needed, and the corpus has "
            f"{len(subject.stream):,} tokens."
        )
    return ""


def _encoding(subject: InspectSubject, progress: Progress) -> EncodingStage:
    n = subject.corpus.ids.shape[1]
    model = subject.inspected
    return model.describe_encoding(path=subject.path, length=n, most=subject.most)


def _geometry(subject: InspectSubject, progress: Progress) -> GeometryStage:
    table = subject.inspected.position_table(subject.corpus.ids.shape[1])
    return table_geometry(table, subject.corpus, seed=subject.sample.seed, progress=progress)


def _attention(subject: InspectSubject, progress: Progress) -> AttentionStage:
    return inspect_attention(
        subject.sample, corpus=subject.corpus, special_ids=subject.special_ids,
        rope=_encoding(subject, progress).rope, context=subject.context, progress=progress,
    )  # fmt: skip


def _probe(subject: InspectSubject, progress: Progress) -> ProbeStage:
    layers = probed_layers(subject.inspected.sizes.layers)
    hidden = hidden_states(subject.sample, layers, progress=progress)
    return probe_layers(hidden, layers=layers, progress=progress)


def _ablation(subject: InspectSubject, progress: Progress) -> AblationStage:
    sample = subject.sample
    if not subject.quick:
        sample = sample._replace(rows=sample.rows[:_ABLATED])
    mask_id = subject.subject.vocabulary.mask_id
    result = ablate_positions(sample, most=subject.most, mask_id=mask_id, progress=progress)
    ends = [np.asarray(x, np.int32) for x in (subject.tokenizer.prefix, subject.tokenizer.suffix)]
    text = slice(len(ends[0]), subject.longest - len(ends[1]))
    texts = _texts(subject, text.stop - text.start)
    if subject.inspected.causal or len(texts) < 2:
        return result
    parts = (np.tile(x, (len(texts), 1)) for x in ends)
    rows = np.insert(np.concatenate([next(parts), texts], axis=1), [text.stop], next(parts), axis=1)
    return result._replace(
        reach=embedding_reach(
            sample.module, rows, text=text, parts=not subject.quick, progress=progress
        )
    )


def _texts(subject: InspectSubject, length: int) -> np.ndarray:
    """Texts of one length for loss and reach."""
    count = _QUICK_TEXTS if subject.quick else _TEXTS
    return text_windows(subject.stream, count=count, length=length)


def _loss(subject: InspectSubject, progress: Progress) -> LossStage:
    texts, rope = _texts(subject, subject.longest), _encoding(subject, progress).rope
    return loss_by_position(
        subject.module, texts, context=subject.context, rope=rope, far=not subject.quick,
        prefix=subject.tokenizer.prefix, progress=progress,
    )  # fmt: skip


def _needles(subject: InspectSubject, progress: Progress) -> NeedleStage:
    most = min(subject.longest, subject.context or subject.longest)
    lengths = [SHORTEST << k for k in range(32) if SHORTEST << k <= most] or [most]
    return needle_retrieval(
        subject.module, subject.tokenizer, subject.stream, lengths=tuple(lengths),
        texts=_QUICK_TEXTS if subject.quick else _TEXTS, seed=subject.sample.seed,
        progress=progress,
    )  # fmt: skip


# Costs of stages in relation to each other, as measured on SmolLM2-135M and MiniLM.
_COSTS = {
    **{"encoding": 0.1, "geometry": 2, "attention": 4, "probe": 1},
    **{"ablation": 6, "loss": 6, "needles": 3},
}

# Type of the result, and what computes it.
_STAGES: dict[str, tuple[type, Callable[[InspectSubject, Progress], Any]]] = {
    "encoding": (EncodingStage, _encoding),
    "geometry": (GeometryStage, _geometry),
    "attention": (AttentionStage, _attention),
    "probe": (ProbeStage, _probe),
    "ablation": (AblationStage, _ablation),
    "loss": (LossStage, _loss),
    "needles": (NeedleStage, _needles),
}

"""Stages of an inspection, in order, and the reasons for which one is absent."""

import dataclasses
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Clock, Progress
from jaxpe.analysis.inspect.attention_result import AttentionStage, HeadStage, SpectralStage
from jaxpe.analysis.inspect.attention_statistics import inspect_attention
from jaxpe.analysis.inspect.head_ablation import head_drops
from jaxpe.analysis.inspect.head_spectra import logit_spectra
from jaxpe.analysis.inspect.needles import SHORTEST, needle_retrieval
from jaxpe.analysis.inspect.options import InspectOptions, Stage
from jaxpe.analysis.inspect.position_ablation import ablate_positions
from jaxpe.analysis.inspect.position_probe import hidden_states, probe_layers, probed_layers
from jaxpe.analysis.inspect.reach import embedding_reach
from jaxpe.analysis.inspect.result import (
    AblationStage,
    EncodingStage,
    GeometryStage,
    InspectResult,
    LossStage,
    NeedleStage,
    ProbeStage,
)
from jaxpe.analysis.inspect.subject import InspectSubject, inspect_facts, read_inspect_subject
from jaxpe.analysis.inspect.token_loss import loss_by_position, text_windows
from jaxpe.analysis.inspect.torch_model import TorchModel
from jaxpe.analysis.inspect.weights import table_geometry
from jaxpe.data.corpora.corpus import as_sources

_ABLATED = 12  # documents
_TEXTS, _QUICK_TEXTS = 8, 4  # texts of loss, and of needles of each length
_NO_TABLE = (
    "The model adds no position vectors to its embeddings, so there is no table to compare with "
    "the corpus. Its positions act on attention."
)
_NO_TEXT = "A run of `jaxpe train` reads ids of its own documents, and other text is not known."
_ENCODER_LOSS = (
    "An encoder predicts no next token, so it has no loss by position. The ablation of positions "
    "shows how much its output changes."
)
_ENCODER_NEEDLES = "An encoder generates no answer, so there is nothing to retrieve."


def inspect_model(options: InspectOptions, *, progress: Progress = SILENT) -> InspectResult:
    """Inspect what position does in a model.

    Args:
        options: model, text and sizes.
        progress: receiver of progress of each stage.

    Raises:
        InputError: options out of range, a model or text that cannot be read, no tokenizer, a model
            larger than half of the memory, or text that is too short.

    >>> result = inspect_model(InspectOptions(model="all-MiniLM-L6-v2"))  # doctest: +SKIP
    >>> result.probe.r2.mean[-1]  # doctest: +SKIP
    0.98
    """
    options.check()
    command = shlex.join(["jaxpe", "inspect", str(options.model), *as_sources(options.source)])
    found = _run_stages(options, progress)
    return found._replace(facts=found.facts._replace(command=command))


def inspect_torch(
    model: Any,
    tokenizer: Any,
    options: InspectOptions | None = None,
    *,
    progress: Progress = SILENT,
) -> InspectResult:
    """Inspect what position does in a live model of transformers, through its own code.

    It runs the stages of `inspect_model` but `spectral`, and nothing is left on the model.

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
    options = options or InspectOptions()
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
        live = dataclasses.replace(options, model=folder, tokenizer=path)
        shown = Path(options.model or name).name
        return _run_stages(live, progress, module=TorchModel(model), name=shown)


def _run_stages(options: InspectOptions, progress: Progress, **live: Any) -> InspectResult:
    """The selected stages that apply to the model, one after the other."""
    chosen = [stage for stage in STAGES if stage in (options.stages or set(STAGES) - {"heads"})]
    clock = Clock(progress, stages=1 + len(chosen))
    with clock.stage("reading"):
        subject = read_inspect_subject(options, progress=progress, **live)
    results: dict[str, Any] = {}
    left = [stage for stage in STAGES if stage not in chosen]
    absent: dict[str, str] = dict.fromkeys(left, "This stage was not selected.")
    for stage in chosen:
        with clock.stage(stage):
            if reason := absence_reason(subject, stage):
                absent[stage] = reason
            else:
                results[stage] = STAGES[stage](subject, progress)
    facts = inspect_facts(subject, seed=options.seed)
    return InspectResult(facts=facts, absent=absent, seconds=clock.laps, **results)


def absence_reason(subject: InspectSubject, stage: str) -> str:
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
    if subject.tokenizer is None:
        return _NO_TEXT
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
    return subject.inspected.describe_encoding(path=subject.path, length=n, most=subject.most)


def _geometry(subject: InspectSubject, progress: Progress) -> GeometryStage:
    table = subject.inspected.position_table(subject.corpus.ids.shape[1])
    return table_geometry(table, subject.corpus, seed=subject.sample.seed)


def _attention(subject: InspectSubject, progress: Progress) -> AttentionStage:
    return inspect_attention(
        subject.sample, corpus=subject.corpus, special_ids=subject.special_ids,
        rope=_encoding(subject, progress).rope, context=subject.context, progress=progress,
    )  # fmt: skip


def _spectral(subject: InspectSubject, progress: Progress) -> SpectralStage:
    return logit_spectra(subject.sample, progress=progress)


def _heads(subject: InspectSubject, progress: Progress) -> HeadStage:
    return head_drops(subject.sample, progress=progress)


def _probe(subject: InspectSubject, progress: Progress) -> ProbeStage:
    layers = probed_layers(subject.inspected.sizes.layers)
    hidden = hidden_states(subject.sample, layers, progress=progress)
    return probe_layers(hidden, layers=layers, progress=progress)


def _ablation(subject: InspectSubject, progress: Progress) -> AblationStage:
    sample, tokenizer = subject.sample, subject.tokenizer
    if not subject.quick:
        sample = sample._replace(rows=sample.rows[:_ABLATED])
    mask_id = subject.subject.vocabulary.mask_id
    result = ablate_positions(sample, most=subject.most, mask_id=mask_id, progress=progress)
    if subject.inspected.causal or tokenizer is None:
        return result
    before, after = (np.asarray(x, np.int32) for x in (tokenizer.prefix, tokenizer.suffix))
    text = slice(len(before), subject.longest - len(after))
    texts = _texts(subject, text.stop - text.start)
    if len(texts) < 2:
        return result
    rows = np.stack([np.concatenate([before, one, after]) for one in texts])
    parts = not subject.quick
    return result._replace(
        reach=embedding_reach(sample.module, rows, text=text, parts=parts, progress=progress)
    )


def _texts(subject: InspectSubject, length: int) -> np.ndarray:
    """Texts of one length for loss and reach."""
    count = _QUICK_TEXTS if subject.quick else _TEXTS
    return text_windows(subject.stream, count=count, length=length)


def _loss(subject: InspectSubject, progress: Progress) -> LossStage:
    texts, rope = _texts(subject, subject.longest), _encoding(subject, progress).rope
    assert subject.tokenizer is not None  # or the stage is absent
    return loss_by_position(
        subject.module, texts, context=subject.context, rope=rope, far=not subject.quick,
        prefix=subject.tokenizer.prefix, progress=progress,
    )  # fmt: skip


def _needles(subject: InspectSubject, progress: Progress) -> NeedleStage:
    most = min(subject.longest, subject.context or subject.longest)
    lengths = [SHORTEST << k for k in range(32) if SHORTEST << k <= most] or [most]
    assert subject.tokenizer is not None  # or the stage is absent
    return needle_retrieval(
        subject.module, subject.tokenizer, subject.stream, lengths=tuple(lengths),
        texts=_QUICK_TEXTS if subject.quick else _TEXTS, seed=subject.sample.seed,
        progress=progress,
    )  # fmt: skip


# All stages by name, in the order they run in; `InspectResult` has a field for each.
STAGES: dict[Stage, Callable[[InspectSubject, Progress], Any]] = {
    "encoding": _encoding,
    "geometry": _geometry,
    "attention": _attention,
    "spectral": _spectral,
    "heads": _heads,
    "probe": _probe,
    "ablation": _ablation,
    "loss": _loss,
    "needles": _needles,
}

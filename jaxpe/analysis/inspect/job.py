"""All stages of an inspection, each kept once it is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.hub import local_model_options
from jaxpe._core.progress import SILENT, Clock, Progress, duration
from jaxpe.analysis.inspect.attention_statistics import inspect_attention
from jaxpe.analysis.inspect.needles import SHORTEST, needle_retrieval
from jaxpe.analysis.inspect.options import STAGES, InspectOptions, Stage
from jaxpe.analysis.inspect.position_ablation import ablate_positions
from jaxpe.analysis.inspect.position_probe import hidden_states, probe_layers, probed_layers
from jaxpe.analysis.inspect.result import (
    AblationFound,
    AttentionFound,
    EncodingFound,
    GeometryFound,
    InspectFacts,
    InspectResult,
    LossFound,
    NeedlesFound,
    ProbeFound,
)
from jaxpe.analysis.inspect.stage_cache import kept_stages
from jaxpe.analysis.inspect.subject import Inspected, facts_of, read_inspected
from jaxpe.analysis.inspect.token_loss import cut_texts, loss_by_position
from jaxpe.analysis.inspect.weights import describe_encoding, table_geometry
from jaxpe.nn import position_table, trunk

_TEXTS = 8  # of loss, and of needles of each length
_QUICK_TEXTS = 4
_KINDS: dict[str, type] = {
    "encoding": EncodingFound,
    "geometry": GeometryFound,
    "attention": AttentionFound,
    "probe": ProbeFound,
    "ablation": AblationFound,
    "loss": LossFound,
    "needles": NeedlesFound,
}
_ENCODER_LOSS = (
    "An encoder predicts no next token: it has no loss by position. What its output loses where "
    "positions move is under ablation."
)
_NO_TABLE = (
    "The model adds no position vectors to its embeddings, whose geometry could be held against "
    "the corpus: its positions act on attention."
)
_ENCODER_NEEDLES = "An encoder generates no answer: there is nothing to retrieve."


def inspect_model(
    options: InspectOptions, folder: Path | None = None, *, progress: Progress = SILENT
) -> InspectResult:
    """Inspect what position does in a model.

    Args:
        options: model, text and how much of it is looked at.
        folder: folder in which each stage is kept once it is done; the same options then resume.
            Nothing is kept when None.
        progress: receiver of progress of each stage.

    Raises:
        InputError: options out of range, a model or text that cannot be read, no tokenizer, a model
            larger than half of the memory, or text that is too short.

    >>> found = inspect_model(InspectOptions(model="all-MiniLM-L6-v2"))  # doctest: +SKIP
    >>> found.probe.r2.mean[-1]  # doctest: +SKIP
    0.98
    """
    options.check()
    options = local_model_options(options, "model")
    kept, clock = kept_stages(options, folder), Clock()
    found: dict[str, Any] = {}
    if (facts := kept.read("facts", InspectFacts)) is not None:
        known = {stage: kept.read(stage, _KINDS[stage]) for stage in options.chosen}
        found = {stage: result for stage, result in known.items() if result is not None}
    if found:
        progress.say(f"Kept from an earlier run: {', '.join(found)}.")
    absent: dict[str, str] = dict.fromkeys(STAGES, "This stage was not selected.")
    inspected = None
    for stage in options.chosen:
        absent.pop(stage)
        if stage in found:
            continue
        if inspected is None:
            with clock.stage("reading"):
                inspected = read_inspected(options, progress=progress)
                facts = facts_of(inspected, seed=options.seed)
            kept.write("facts", facts)
        if why := why_absent(inspected, stage):
            absent[stage] = why
            continue
        result = _RUN[stage](inspected, progress)
        clock.lap(stage)
        kept.write(stage, result)
        found[stage] = result
        progress.say(f"{stage}: done in {duration(clock.laps[stage])}")
    assert facts is not None  # some stage was read, or run
    return InspectResult(facts=facts, absent=absent, seconds=clock.laps, **found)


def why_absent(found: Inspected, stage: Stage) -> str:
    """Why a stage does not apply to a model; empty where it does.

    >>> why_absent(found, "needles")  # doctest: +SKIP
    'An encoder generates no answer: there is nothing to retrieve.'
    """
    if stage == "geometry" and found.most is None:
        return _NO_TABLE
    if found.kind == "causal":
        if found.most is not None and found.longest > found.most and stage in ("loss", "needles"):
            return (
                f"Texts of {found.longest:,} tokens are longer than the {found.most:,} learned "
                "positions, beyond which the model has none: pass a smaller longest text."
            )
        if stage == "loss" and len(found.stream) < 2 * found.longest:
            return (
                f"The corpus has {len(found.stream):,} tokens, and two texts of {found.longest:,} "
                "are needed."
            )
        return ""
    return {"loss": _ENCODER_LOSS, "needles": _ENCODER_NEEDLES}.get(stage, "")


def _encoding(found: Inspected, progress: Progress) -> EncodingFound:
    n = found.corpus.ids.shape[1]
    return describe_encoding(found.module, path=found.path, length=n, most=found.most)


def _geometry(found: Inspected, progress: Progress) -> GeometryFound:
    table = np.asarray(position_table(found.module, length=found.corpus.ids.shape[1]))
    return table_geometry(table, found.corpus, seed=found.sample.seed, progress=progress)


def _attention(found: Inspected, progress: Progress) -> AttentionFound:
    return inspect_attention(
        found.sample, corpus=found.corpus, special_ids=found.special_ids, progress=progress
    )


def _probe(found: Inspected, progress: Progress) -> ProbeFound:
    layers = probed_layers(trunk(found.module).config.num_layers)
    hidden = hidden_states(found.sample, layers, progress=progress)
    return probe_layers(hidden, layers=layers, progress=progress)


def _ablation(found: Inspected, progress: Progress) -> AblationFound:
    sample = found.sample
    if not found.quick and len(sample.rows) > _ABLATED:
        sample = sample._replace(rows=sample.rows[:_ABLATED])
    mask_id = found.subject.vocabulary.mask_id
    return ablate_positions(sample, most=found.most, mask_id=mask_id, progress=progress)


def _loss(found: Inspected, progress: Progress) -> LossFound:
    texts = cut_texts(found.stream, count=_texts(found), length=found.longest)
    rope = _encoding(found, progress).rope
    return loss_by_position(
        found.module, texts, context=found.context, rope=rope, far=not found.quick,
        progress=progress,
    )  # fmt: skip


def _needles(found: Inspected, progress: Progress) -> NeedlesFound:
    most = found.longest if not found.context else min(found.longest, found.context)
    lengths = [SHORTEST << k for k in range(32) if SHORTEST << k <= most] or [most]
    return needle_retrieval(
        found.module, found.tokenizer, found.stream, lengths=tuple(lengths), texts=_texts(found),
        seed=found.sample.seed, progress=progress,
    )  # fmt: skip


def _texts(found: Inspected) -> int:
    return _QUICK_TEXTS if found.quick else _TEXTS


_ABLATED = 12  # documents
_RUN: dict[str, Callable[[Inspected, Progress], Any]] = {
    "encoding": _encoding,
    "geometry": _geometry,
    "attention": _attention,
    "probe": _probe,
    "ablation": _ablation,
    "loss": _loss,
    "needles": _needles,
}

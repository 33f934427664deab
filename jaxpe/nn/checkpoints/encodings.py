"""Encoding of a released model, from the plans of its layers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.encodings import (
    Encoding,
    LayerPattern,
    alibi,
    attention_chunks,
    chain,
    identity,
    learned,
    position_temperature,
    rope,
    rope_frequencies,
    sliding_window,
    t5,
)
from jaxpe.encodings.combine import moved_positions
from jaxpe.nn.checkpoints.architecture import Architecture, Fields
from jaxpe.nn.config import TransformerConfig
from jaxpe.plans import read_config
from jaxpe.plans.configuration import unread_fields
from jaxpe.plans.families import find_family
from jaxpe.plans.fields import CHUNKED
from jaxpe.plans.result import LayerPlan


def read_plans(path: Path, architecture: Architecture) -> tuple[LayerPlan, ...]:
    """Plans of the layers of a config.json or .gguf, by the newest transformers or llama.cpp.

    Raises:
        InputError: a configuration that the program refuses, or positional fields that no rule
            uses, which may change the computation.
    """
    config = read_config(path)
    if config.configuration.form == "gguf":  # its weights are loaded in the pairing of the class
        pairing = class_pairing(architecture)
        return tuple(
            plan._replace(pairing=pairing) if plan.turns else plan for plan in config.plan()
        )
    plans = config.plan()
    unread = unread_fields(config.configuration)
    if unread := [name for name in unread if name not in architecture.allowed]:
        raise InputError(
            f"{path} has {', '.join(unread)}, which this architecture does not use: whether it "
            "changes positions is unknown; remove it if not"
        )
    return plans


def class_pairing(architecture: Architecture) -> str:
    """Pairing of rotated entries in the class of transformers, "half" or "interleaved"."""
    family = find_family(architecture.model_type)
    return "half" if family is None else family.pairing


def model_encoding(
    architecture: Architecture,
    fields: Fields,
    config: TransformerConfig,
    plans: Sequence[LayerPlan],
) -> Encoding | LayerPattern:
    """Encoding of a released model: by its plans, or without rotation the positions of its row."""
    if {plan.kind for plan in plans} <= {"rotary", "none"}:
        return plan_encoding(plans)
    parts = []
    if "table" in architecture.positions:
        offset = _unused_rows(fields) + architecture.offset
        table = learned(length=table_length(fields) + offset, dim=config.dim)
        parts.append(offset_positions(table, offset))
    if "t5" in architecture.positions:
        parts.append(t5(num_heads=config.num_heads))
    if "alibi" in architecture.positions:
        parts.append(alibi(num_heads=config.num_heads))
    return chain(*parts) if len(parts) > 1 else parts[0]


def table_length(fields: Fields) -> int:
    """Number of positions of a learned table; raises `InputError` for none."""
    rows, unused = fields["max_position_embeddings"], _unused_rows(fields)
    if rows <= unused:
        raise InputError(
            f"max_position_embeddings is {rows}, but tokens do not use the first {unused} rows: "
            "pass more"
        )
    return rows - unused


def _unused_rows(fields: Fields) -> int:
    """Rows of a table that are of no position: of padding, and those before it, as in RoBERTa."""
    return fields.get("pad_token_id", -1) + 1


def plan_encoding(plans: Sequence[LayerPlan]) -> Encoding | LayerPattern:
    """Encoding of the layers of plans, one if all layers are alike.

    Args:
        plans: groups of layers, which together have every layer once.

    Raises:
        InputError: layers without a number, or with positions that have no encoding in Flax.

    >>> plan = jaxpe.plans.simple_plan(head_dim=8, window=4, layers=(0, 1))
    >>> plan_encoding([plan]).defines("query"), plan_encoding([plan]).defines("mask")
    (True, True)
    """
    layers = dict[int, Encoding]()
    for plan in plans:
        if plan.layers is None:
            raise InputError("the configuration has no number of layers")
        layers |= dict.fromkeys(plan.layers, _layer_encoding(plan))
    if len(plans) == 1:
        return layers[0]
    return LayerPattern(tuple(layers[i] for i in sorted(layers)))


def _layer_encoding(plan: LayerPlan) -> Encoding:
    """Encoding of a group of layers: rotation, query scaling and window."""
    if plan.kind not in ("rotary", "none") or plan.place != "first" or plan.logit_factor != 1:
        raise InputError(f"{plan.name} layers of kind {plan.kind!r} have no encoding in Flax")
    parts = [_rotation(plan)] if plan.turns else []
    if (growth := plan.query_scaling) is not None:
        period, first = int(growth.period), growth.offset
        parts.append(position_temperature(scale=growth.beta, period=period, first=first))
    if plan.window is not None:
        mask = attention_chunks if plan.name == CHUNKED else sliding_window
        parts.append(mask(size=plan.window))
    return chain(*parts) if len(parts) > 1 else (*parts, identity())[0]


def _rotation(plan: LayerPlan) -> Encoding:
    """Rotation by the frequencies of a plan, from its scaling, which may depend on the length."""
    whole = plan.rope_type == "proportional"  # slow frequencies are zero
    arguments: dict[str, Any] = {
        "head_dim": plan.head_dim,
        "base": plan.base,
        "fraction": 1.0 if whole else plan.turning / plan.head_dim,
        "scaling": plan.scaling,
    }
    planned = [*np.asarray(plan.frequencies), plan.attention_factor]

    def gives(length: int) -> bool:
        found = rope_frequencies(**arguments, length=length)
        numbers = [*np.asarray(found.inverse)[: plan.turning // 2], found.attention_factor]
        return np.allclose(numbers, planned, rtol=1e-6, atol=0)

    # Those of the longest text, which may be longer than a window.
    if not gives(plan.reach) and not gives(2**30):
        raise InputError(f"{plan.name} layers have frequencies that their scaling does not give")
    with np.errstate(all="ignore"):  # logits carry the square of the factor
        largest = [max(planned[:-1], default=0.0) * plan.reach, plan.attention_factor**2]
        largest = np.asarray(largest, np.float32)
    if not np.isfinite(largest).all():
        raise InputError(f"phases or logits of {plan.name} layers are not finite in float32")
    layout = "interleaved" if plan.pairing == "interleaved" else "half"  # or sections of halves
    return rope(**arguments, layout=layout)


def offset_positions(encoding: Encoding, offset: int) -> Encoding:
    """Encoding whose positions start at `offset`."""
    return moved_positions(encoding, lambda positions: positions + offset) if offset else encoding

"""Known faults of rotary configurations: one function for each cause.

Each takes the facts, the results of the readers and the frequencies, and returns a warning or None.
The threads are those in which users reported the cause. Faults that no configuration shows are not
here: positions of packed rows, and of padding on the left.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import nearest
from jaxpe.analysis.rope.defaults import BASE, class_default, is_known
from jaxpe.analysis.rope.facts import RopeFacts
from jaxpe.analysis.rope.readers import ALL, FULL, YARNS
from jaxpe.analysis.rope.result import LayerRotation, PhaseError, Reading, RopeWarning, Severity
from jaxpe.encodings.rope_scaling import ROPE_TYPES

_ORIGINAL = "original_max_position_embeddings"
_SAME = 1e-6
_RADIANS = 0.01  # error of a float32 phase from which on it is told


class Found(NamedTuple):
    """Input of a check.

    Attributes:
        facts: of the configuration.
        length: longest text that is judged.
        readings: of every reader.
        layers: frequencies by kind of layer.
        precision: errors of phases.
        ignored: keys that the first reader ignores.
    """

    facts: RopeFacts
    length: int
    readings: tuple[Reading, ...]
    layers: tuple[LayerRotation, ...]
    precision: tuple[PhaseError, ...]
    ignored: tuple[str, ...]

    def of(self, reader: str) -> Reading | None:
        """The reading of a reader, in layers that reach furthest; None where it refuses."""
        own = [r for r in self.readings if r.reader == reader and r.problem is None]
        return next((r for r in own if r.layers in (ALL, FULL)), own[0] if own else None)

    @property
    def first(self) -> Reading | None:
        """The reading that others are held against: of the first reader that takes it."""
        known = (self.of(reader) for reader in dict.fromkeys(r.reader for r in self.readings))
        return next((reading for reading in known if reading is not None), None)

    @property
    def entry(self) -> Mapping[str, Any]:
        """The entry of the layers that reach furthest, as the file has it."""
        entry = self.facts.entry
        parts = {k: v for k, v in entry.items() if isinstance(v, Mapping)}
        return parts.get(FULL, next(iter(parts.values()), {})) if parts else entry

    @property
    def kind(self) -> str:
        """Type of the scaling as the file names it."""
        return str(self.entry.get("rope_type") or self.entry.get("type") or "default")


Text = tuple[Severity, str, str]
Check = Callable[[Found], Text | None]


def base_missing(found: Found) -> Text | None:
    """No θ anywhere: every reader takes a default, and not the same."""
    facts = found.facts
    if found.entry.get("rope_theta") or facts.stated("rope_theta", "rotary_emb_base"):
        return None
    if facts.form == "gguf":
        return "risk", f"rope.freq_base is absent: llama.cpp takes {BASE:,.0f}.", _SET_BASE
    default = class_default(facts.model_type)
    bases = sorted({default.base_4, default.base_5, BASE})
    of_class = f"{default.base_5:,.0f}"
    if default.base_4 != default.base_5:
        of_class = f"{default.base_4:,.0f} in transformers 4 and {default.base_5:,.0f} in 5"
    text = f"rope_theta is absent: the class of {facts.model_type} takes {of_class}"
    if not is_known(facts.model_type):
        text = f"rope_theta is absent, and the default of {facts.model_type} is not known here"
    if len(bases) == 1:
        return "note", f"{text}; {BASE:,.0f} was used.", "Write rope_theta into the file."
    text = f"{text}; a program without that class takes {BASE:,.0f}."
    own = " or ".join(f"{base:,.0f}" for base in sorted({default.base_4, default.base_5}))
    return "risk", text, f"Write rope_theta into the file ({own})."


def base_unseen_by_4(found: Found) -> Text | None:
    """θ inside of `rope_parameters`, where transformers 4 does not look."""
    old, new = found.of("transformers 4.57"), found.first
    inside = found.entry.get("rope_theta") is not None
    if not inside or old is None or new is None or math.isclose(old.base, new.base):
        return None
    text = (
        f"θ = {new.base:,.0f} stands in rope_parameters, which transformers 4 does not read: it "
        f"silently takes {old.base:,.0f}, and so does vLLM on transformers 4."
    )
    return "wrong", text, "Write rope_theta beside the entry too, or require transformers 5."


def scaling_unseen_by_4(found: Found) -> Text | None:
    """A scaling in `rope_parameters` alone."""
    fields, old = found.facts.fields, found.of("transformers 4.57")
    scaled = found.kind != "default" and not fields.get("rope_scaling")
    if not scaled or not fields.get("rope_parameters") or old is None or old.rope_type != "default":
        return None
    text = (
        f"The scaling ({found.kind}) stands in rope_parameters alone: transformers 4 does not read "
        "it and turns by unscaled frequencies."
    )
    return "wrong", text, "Write it into rope_scaling too, or require transformers 5."


def share_unseen_by_4(found: Found) -> Text | None:
    """The share of a head that turns, inside of `rope_parameters` alone."""
    share, old, new = (
        found.entry.get("partial_rotary_factor"),
        found.of("transformers 4.57"),
        found.first,
    )
    if share is None or old is None or new is None or old.rotated == new.rotated:
        return None
    text = (
        f"partial_rotary_factor = {share:g} stands in rope_parameters, which transformers 4 does "
        f"not read: it turns {old.rotated} entries of a head, not {new.rotated}."
    )
    return "wrong", text, "Write partial_rotary_factor beside the entry too."


def layers_unseen_by_4(found: Found) -> Text | None:
    """One entry for each kind of layer, which transformers 4 does not know."""
    nested = [k for k, v in found.facts.entry.items() if isinstance(v, Mapping)]
    if not nested or found.of("transformers 4.57") is None:
        return None
    listed = ", ".join(nested)
    text = f"The entry has a part for each kind of layer ({listed}); transformers 4 reads none."
    return "wrong", text, "Require transformers 5, or write the fields of version 4 beside it."


def two_entries(found: Found) -> Text | None:
    """Both names of the entry, with other contents."""
    old, new = (found.facts.fields.get(n) for n in ("rope_scaling", "rope_parameters"))
    if not old or not new:
        return None
    differing = sorted(k for k in {*old, *new} - {"rope_theta", "type"} if old.get(k) != new.get(k))
    if not differing:
        return None
    text = (
        f"rope_scaling and rope_parameters are both there and differ in {', '.join(differing)}; "
        "transformers takes rope_scaling."
    )
    return "risk", text, "Keep one of the two."


def two_types(found: Found) -> Text | None:
    """`type` and `rope_type` that differ."""
    names = found.entry.get("type"), found.entry.get("rope_type")
    if (
        None in names
        or names[0] == names[1]
        or set(names) in ({"su", "longrope"}, {"mrope", "default"})
    ):
        return None
    text = (
        f"type is {names[0]!r} and rope_type is {names[1]!r}: transformers 4 takes the first, "
        "version 5 the second."
    )
    return "wrong", text, "Keep rope_type."


def name_of_one_reader(found: Found) -> Text | None:
    """A type that only one program has, or a first name of a type."""
    kind = found.kind
    if kind in (*ROPE_TYPES, "default", "mrope", "none"):
        return None
    meant = "longrope" if kind == "su" else "yarn" if kind in YARNS else nearest(kind, ROPE_TYPES)
    text = f"The type {kind!r} is not one of transformers"
    if kind in ("su", *YARNS):
        return (
            "risk",
            f"{text}; it is taken as {meant} here.",
            f"Write {meant!r} where it means that.",
        )
    near = f"; did you mean {meant!r}?" if meant else "."
    return "wrong", f"{text}{near}", f"Use one of {', '.join(sorted(ROPE_TYPES))}."


def keys_ignored(found: Found) -> Text | None:
    """Keys that the scaling does not take, misspelt ones among them."""
    reading = found.first
    if reading is None or not found.ignored:
        return None
    fields = getattr(ROPE_TYPES.get(reading.rope_type), "_fields", ())
    meant = {key: nearest(key, set(fields) - set(found.entry)) for key in found.ignored}
    shown = [f"{key} ({near}?)" if near else key for key, near in meant.items()]
    text = f"Nothing reads {', '.join(shown)} of a scaling of type {reading.rope_type}."
    return "risk", text, "Correct the name, or take the key out."


def mscale_ignored(found: Found) -> Text | None:
    """`mscale` that a reader ignores, or that has no partner."""
    given = [name for name in ("mscale", "mscale_all_dim") if found.entry.get(name)]
    if not given or found.kind not in YARNS or found.entry.get("attention_factor") is not None:
        return None
    if len(given) == 1:
        missing = ({"mscale", "mscale_all_dim"} - set(given)).pop()
        text = f"{given[0]} is without {missing}, so transformers takes 0.1·ln s + 1 and neither."
        return "risk", text, f"Give both, or attention_factor, and take {given[0]} out."
    new, other = found.first, found.of("vLLM 0.25")
    if new is None or other is None or _close(new.attention_factor, other.attention_factor):
        return None
    text = (
        f"mscale and mscale_all_dim make the attention factor {new.attention_factor:.4g} in "
        f"transformers; vLLM 0.25 does not read them and takes {other.attention_factor:.4g}, which "
        f"multiplies logits by {(other.attention_factor / new.attention_factor) ** 2:.3g}."
    )
    return (
        "wrong",
        text,
        'For vLLM up to 0.25 add "apply_yarn_scaling": false; later ones read mscale.',
    )


def attention_factor_ignored(found: Found) -> Text | None:
    """An explicit attention factor that readers replace by their own."""
    stated, new = found.entry.get("attention_factor"), found.first
    if stated is None or new is None:
        return None
    others = {
        r.reader: r.attention_factor
        for r in found.readings
        if r.layers == new.layers and r.problem is None and r.rope_type == new.rope_type
        and not _close(r.attention_factor, new.attention_factor)
    }  # fmt: skip
    if not others:
        return None
    listed = ", ".join(f"{name} {value:.4g}" for name, value in others.items())
    text = (
        f"attention_factor is {new.attention_factor:.4g}, but others compute their own: {listed}."
    )
    return (
        "wrong",
        text,
        "Check what your reader does with it; sglang multiplies it by its own again.",
    )


def length_scaled_twice(found: Found) -> Text | None:
    """A length that is scaled already, multiplied by the factor again."""
    context, original = found.facts.context, found.entry.get(_ORIGINAL)
    factor = found.entry.get("factor") or 1.0
    own = [r for r in found.readings if r.layers in (ALL, FULL) and r.longest > context]
    if not own or (_close(own[0].longest, (original or context) * factor) and found.kind == "yarn"):
        return None
    said = (
        f"{own[0].reader} multiplies max_position_embeddings ({context:,}) by the factor and "
        f"allows {own[0].longest:,.0f} positions"
    )
    remedy = f"Pass the maximal length yourself (vLLM: max_model_len {context})."
    if original and original < context:
        scaled = f"which is scaled already, from {original:,}: more than its table of cosines has."
        return "wrong", f"{said}, {scaled}", remedy
    return "risk", f"{said}. Where {context:,} is the scaled length, that is too many.", remedy


def factor_without_effect(found: Found) -> Text | None:
    """A factor that a reader replaces by a ratio of lengths, or that no scaling uses."""
    stated, new = found.entry.get("factor"), found.first
    if stated is None or new is None:
        return None
    if new.rope_type == "default":
        if found.kind not in ("default", "mrope"):
            return None
        text = f"factor is {stated:g}, but the type is {found.kind!r}, which scales nothing."
        return "wrong", text, "Give rope_type, or take the factor out."
    others = {
        r.reader: r.factor
        for r in found.readings
        if r.layers == new.layers and r.rope_type == new.rope_type and not _close(r.factor, stated)
    }
    if not others:
        return None
    listed = ", ".join(f"{name} {value:.4g}" for name, value in others.items())
    text = (
        f"factor is {stated:g}, but max_position_embeddings / {_ORIGINAL} is taken in its place: "
        f"{listed}."
    )
    extended = (found.entry.get(_ORIGINAL) or found.facts.context) * stated
    return (
        "wrong",
        text,
        f"Set max_position_embeddings to {extended:,.0f}, or use transformers 4.56 on.",
    )


def two_lengths(found: Found) -> Text | None:
    """`max_position_embeddings` is the length before or after scaling."""
    original, factor = found.entry.get(_ORIGINAL), found.entry.get("factor")
    context = found.facts.context
    if found.kind not in YARNS or not original or not factor or original == context:
        return None
    if _close(original * factor, context):
        text = (
            f"max_position_embeddings ({context:,}) is the length after scaling; before it is "
            f"{original:,}. A program that takes the former for L0 turns by other frequencies."
        )
        return "note", text, f"Where a program asks for one length, give YaRN {original:,}."
    text = (
        f"{_ORIGINAL} × factor is {original * factor:,.0f}, and max_position_embeddings is "
        f"{context:,}: it is neither the length before scaling nor that after it."
    )
    return "risk", text, "Make the three numbers agree."


def original_missing(found: Found) -> Text | None:
    """No L0: it is taken from `max_position_embeddings`, or the configuration is refused."""
    if found.kind not in (*YARNS, "llama3", "longrope", "su") or found.entry.get(_ORIGINAL):
        return None
    if found.facts.stated(_ORIGINAL) or (found.facts.form == "gguf" and found.kind == "longrope"):
        return None
    text = (
        f"{_ORIGINAL} is absent: max_position_embeddings ({found.facts.context:,}) is taken for "
        "it, also where that is the length after scaling."
    )
    return "risk", text, f"Write {_ORIGINAL} into the entry."


def dynamic_original(found: Found) -> Text | None:
    """L0 of a dynamic scaling, which transformers does not read."""
    original = found.entry.get(_ORIGINAL)
    if found.kind != "dynamic" or not original or original == found.facts.context:
        return None
    text = (
        f"{_ORIGINAL} is {original:,}, which dynamic scaling does not read: it begins at "
        f"max_position_embeddings, {found.facts.context:,}."
    )
    return "wrong", text, f"Set max_position_embeddings to {original:,}."


def dynamic_dropped(found: Found) -> Text | None:
    """Dynamic scaling does not reach llama.cpp, and changes while a text grows."""
    if found.kind != "dynamic":
        return None
    text = (
        "Frequencies depend on the length of the text: keys in a cache keep those of their time in "
        "transformers, vLLM computes them for its longest text, and GGUF files do not have them."
    )
    return "risk", text, "Use YaRN, or fix the length before generating."


def query_scaling_ignored(found: Found) -> Text | None:
    """Queries that grow with position in one reader and not in another."""
    new = found.first
    values = {r.reader: r.query_factor for r in found.readings if r.problem is None}
    values = {name: value for name, value in values.items() if new and name != new.reader}
    without = [
        name for name, value in values.items() if new and not _close(value, new.query_factor)
    ]
    if new is None or not without:
        return None
    text = (
        f"Queries are multiplied by {new.query_factor:.4g} at position {found.length - 1:,} "
        f"(llama_4_scaling_beta); {', '.join(without)} does not."
    )
    remedy = (
        f"For vLLM up to 0.25 write beta and {_ORIGINAL} into llama_4_scaling, beside the entry."
    )
    return "wrong", text, remedy


def query_scaling_needed(found: Found) -> Text | None:
    """Query scaling that every reader listed here applies, and others may not."""
    new = found.first
    if new is None or _close(new.query_factor, 1.0) or query_scaling_ignored(found):
        return None
    text = (
        f"Queries are multiplied by {new.query_factor:.4g} at position {found.length - 1:,}, in "
        f"{'layers without RoPE' if found.facts.model_type == 'llama4_text' else 'all layers'}. "
        "It is no part of the rotation, so a program that builds its own RoPE leaves it out."
    )
    return "note", text, "Check that your reader has it: short texts do not show it."


def logit_scale_missing(found: Found) -> Text | None:
    """The YaRN temperature of latent attention, which is apart from that of cos and sin."""
    new = found.first
    own = [r for r in found.readings if r.problem is None]
    without = sorted(
        {r.reader for r in own if new and not _close(r.logit_factor, new.logit_factor)}
    )
    if new is None or (not without and _close(new.logit_factor, 1.0)):
        return None
    text = (
        f"mscale_all_dim multiplies all logits by {new.logit_factor:.4g}, beside the attention "
        f"factor {new.attention_factor:.4g} of cos and sin."
    )
    if not without:
        return "note", f"{text} The two are apart: a program may have one alone.", "Check both."
    return "wrong", f"{text} {', '.join(without)} leaves it out.", "Use a later version of it."


def ignored_with_sections(found: Found) -> Text | None:
    """YaRN beside sections of multimodal positions, which some programs do not read."""
    if found.kind not in YARNS or "mrope_section" not in found.entry:
        return None
    layer = found.layers[0]
    text = (
        "YaRN stands beside mrope_section. Programs that build multimodal frequencies from θ alone "
        f"silently leave it out: then {layer.never_round} frequencies reach phases at "
        f"{found.length:,} positions that training did not have."
    )
    return "risk", text, "Compare the frequencies of your reader with those here."


def beyond_scaling(found: Found) -> Text | None:
    """A text longer than what training and the scaling cover; nothing refuses it."""
    context = found.facts.context
    covered = max(context, (found.entry.get(_ORIGINAL) or 0) * (found.entry.get("factor") or 1.0))
    if found.length <= covered * (1 + _SAME) or not any(layer.unseen for layer in found.layers):
        return None
    layer = max(found.layers, key=lambda one: one.unseen)
    text = (
        f"A text of {found.length:,} positions is longer than the {covered:,.0f} that the "
        f"configuration covers: {layer.unseen} frequencies reach phases that training did not "
        "have, and no reader computes anything else for it unless it is told to."
    )
    original = found.entry.get(_ORIGINAL) or context
    entry = {"rope_type": "yarn", "factor": math.ceil(found.length / original), _ORIGINAL: original}
    return "risk", text, f"Pass `scaling='{json.dumps(entry)}'` to see what YaRN would do."


def low_precision(found: Found) -> Text | None:
    """A 16-bit model, whose phases must not be 16-bit."""
    name = str(found.facts.stated("dtype", "torch_dtype") or "").removeprefix("torch.")
    errors = {(e.dtype, e.rounded): e for e in found.precision if e.length == found.length}
    if (name, "all") not in errors or name == "float32":
        return None
    whole, part = errors[name, "all"], errors[name, "frequencies"]
    text = (
        f"The model is {name}. Phases in {name} are off by up to {whole.largest:.2g} radians near "
        f"position {found.length:,} ({whole.lost} frequencies by more than 0.1), and by up to "
        f"{part.largest:.2g} where the frequencies alone are rounded to it."
    )
    return "note", text, "Compute frequencies and phases in float32, and round cos and sin."


def float32_precision(found: Found) -> Text | None:
    """Positions at which a product in float32 is no longer good."""
    own = (e for e in found.precision if e.length == found.length)
    error = next(e for e in own if e.dtype == "float32")
    if error.largest < _RADIANS:
        return None
    text = (
        f"The float32 product of frequency and position is off by up to {error.largest:.2g} "
        f"radians near position {found.length:,}."
    )
    return "note", text, "Reduce phases in float64 or by whole turns, as `jaxpe.rope` does."


def ramp_rounded(found: Found) -> Text | None:
    """YaRN's ramp between whole frequencies although `truncate` is false."""
    new, other = found.first, found.of("llama.cpp")
    if found.entry.get("truncate") is not False or new is None or other is None:
        return None
    apart = np.abs(other.inverse / new.inverse - 1)
    if not (apart > _SAME).any():
        return None
    text = (
        f"truncate is false, but llama.cpp rounds the ends of YaRN's ramp: {(apart > _SAME).sum()} "
        f"frequencies differ, by up to {100 * apart.max():.3g} %."
    )
    return "wrong", text, "Expect small differences between llama.cpp and other readers."


def window_of_longrope(found: Found) -> Text | None:
    """Two lists of divisors, between which readers choose by other rules."""
    reading = found.of("vLLM 0.25")
    if (
        reading is None
        or reading.rope_type != "longrope"
        or found.facts.context <= reading.original
    ):
        return None
    text = (
        f"Up to {reading.original:,} positions transformers takes short_factor; vLLM takes "
        "long_factor for every text once its longest may exceed that, so short texts differ."
    )
    return "risk", text, f"For short texts set vLLM's max_model_len to {reading.original:,}."


def readers_refuse(found: Found) -> Text | None:
    """Readers that cannot read the configuration."""
    refused = {r.reader: r.problem for r in found.readings if r.problem}
    if not refused:
        return None
    listed = "; ".join(f"{name}: {problem}" for name, problem in refused.items())
    every = len({r.reader for r in found.readings}) == len(refused)
    return ("wrong" if every else "note"), f"Not read by all: {listed}.", "See the problem named."


_SET_BASE = "Convert the file again from a configuration that has rope_theta."
CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "base_missing": (base_missing, ("lyogavin/airllm#369",)),
    "base_unseen_by_4": (
        base_unseen_by_4,
        ("vllm-project/vllm#44158", "deepspeedai/DeepSpeed#8345", "THUDM/slime#1720"),
    ),
    "scaling_unseen_by_4": (scaling_unseen_by_4, ("sgl-project/sglang#26187",)),
    "share_unseen_by_4": (share_unseen_by_4, ()),
    "layers_unseen_by_4": (layers_unseen_by_4, ("vllm-project/vllm#28542",)),
    "two_entries": (two_entries, ()),
    "two_types": (two_types, ("lablup/mlxcel#1355",)),
    "name_of_one_reader": (name_of_one_reader, ("vllm-project/vllm#56446",)),
    "keys_ignored": (keys_ignored, ("huggingface/transformers#33783",)),
    "mscale_ignored": (mscale_ignored, ("vllm-project/vllm#48621",)),
    "attention_factor_ignored": (
        attention_factor_ignored, ("vllm-project/vllm#46280", "sgl-project/sglang#33558"),
    ),
    "length_scaled_twice": (
        length_scaled_twice, ("vllm-project/vllm#56446", "vllm-project/vllm#53634"),
    ),
    "factor_without_effect": (factor_without_effect, ("huggingface/transformers#38224",)),
    "two_lengths": (two_lengths, ("NVIDIA/Megatron-LM#1418",)),
    "original_missing": (original_missing, ("huggingface/transformers#33783",)),
    "dynamic_original": (dynamic_original, ("huggingface/transformers#33783",)),
    "dynamic_dropped": (dynamic_dropped, ("vllm-project/vllm#10537",)),
    "query_scaling_ignored": (query_scaling_ignored, ("vllm-project/vllm#48621",)),
    "query_scaling_needed": (query_scaling_needed, ("vllm-project/vllm#16439",)),
    "logit_scale_missing": (
        logit_scale_missing, ("huggingface/transformers#47435", "onnxruntime/mobius#548"),
    ),
    "ignored_with_sections": (ignored_with_sections, ("jundot/omlx#3347",)),
    "beyond_scaling": (beyond_scaling, ("jundot/omlx#3347",)),
    "ramp_rounded": (ramp_rounded, ("vllm-project/vllm#27722",)),
    "window_of_longrope": (window_of_longrope, ()),
    "low_precision": (
        low_precision,
        ("huggingface/candle#3520", "sgl-project/sglang-jax#1472", "ml-explore/mlx-lm#1076"),
    ),
    "float32_precision": (float32_precision, ("kekzl/imp#1325",)),
    "readers_refuse": (readers_refuse, ()),
}  # fmt: skip
_ORDER = ("wrong", "risk", "note")


def warnings(found: Found) -> tuple[RopeWarning, ...]:
    """Every warning of a configuration, the worst first."""
    result = []
    for code, (check, reports) in CHECKS.items():
        if (told := check(found)) is not None:
            result.append(RopeWarning(code, *told, reports))
    return tuple(sorted(result, key=lambda one: _ORDER.index(one.severity)))


def _close(one: float | int, other: float | int) -> bool:
    return math.isclose(one, other, rel_tol=_SAME) or (math.isnan(one) and math.isnan(other))

"""The programs that read a configuration, each as a function to the entry that it computes with.

An entry is a `rope_parameters` of transformers 5 for one kind of layer, complete: θ, type and all
numbers of the scaling. `jaxpe.rope_from_hf` takes it, so one parser serves every reader. The rules
are those of transformers 4.55.4, 4.57.6 and 5.23.0, vLLM 0.25 on transformers 5 (later versions
follow transformers for YaRN: vllm-project/vllm#56446), and llama.cpp with its converter of 2026.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from jaxpe.analysis.rope.defaults import ONLY_5, class_default
from jaxpe.analysis.rope.facts import RopeFacts

ReaderName = Literal[
    "transformers 5", "transformers 4.57", "transformers 4.55", "vLLM 0.25", "llama.cpp"
]
Entry = dict[str, Any]
Entries = dict[str, Entry]  # by kind of layer; of one kind, ALL

ALL, FULL, SLIDING = "all", "full_attention", "sliding_attention"
_ORIGINAL = "original_max_position_embeddings"
_WITH_ORIGINAL = ("llama3", "longrope")
_CONVERTED = ("default", "linear", "yarn", "llama3", "longrope")  # what the converter writes
# Names of YaRN in checkpoints with code of their own; of the readers here, only vLLM has all.
YARNS = ("yarn", "deepseek_yarn", "telechat3-yarn")


class UnreadableError(ValueError):
    """A reader refuses a configuration."""


class QueryScaling(NamedTuple):
    """Queries times a number that grows with their position i.

    Attributes:
        beta: slope β of the scaling.
        period: positions until it first grows.
        offset: 1 for 1 + β·ln(1 + ⌊(i + 1)/period⌋), as Llama 4; 0 for ⌊i/period⌋, as Ministral 3.
        layers: those that have it: "all" or "without RoPE".
    """

    beta: float
    period: float
    offset: int
    layers: str

    def at(self, position: int) -> float:
        """The number at a position."""
        return 1 + self.beta * math.log1p((position + self.offset) // self.period)


def transformers_4(facts: RopeFacts) -> Entries:
    """`rope_scaling` with θ and the share of a head beside it; `rope_parameters` is not looked at.

    Where `type` and `rope_type` differ, `type` counts; in version 5 it is the other.

    Raises:
        UnreadableError: a model type that came later, or a llama3 without L0.
    """
    if facts.model_type in ONLY_5:
        raise UnreadableError(f"the model type {facts.model_type} came with version 5")
    default, fields = class_default(facts.model_type), facts.fields
    entry = dict(fields.get("rope_scaling") or _own_scaling(facts) or {})
    entry["rope_type"] = _kind({**entry, "rope_type": entry.get("type") or entry.get("rope_type")})
    entry["rope_theta"] = _stated(fields, _BASE_NAMES, default.base_4)
    entry["partial_rotary_factor"] = _fraction(facts)
    if entry["rope_type"] == "longrope":
        outside = fields.get(_ORIGINAL)
        entry[_ORIGINAL] = outside or facts.context
        if outside:
            entry["factor"] = facts.context / outside
    elif entry["rope_type"] == "yarn":
        entry[_ORIGINAL] = entry.get(_ORIGINAL) or facts.context
    elif entry["rope_type"] == "llama3" and entry.get(_ORIGINAL) is None:
        raise UnreadableError(f"{_ORIGINAL} must be in rope_scaling")
    return _with_local(facts, entry, default.local)


def transformers_4_55(facts: RopeFacts) -> Entries:
    """Reading of 4.57, with max_position_embeddings / L0 as YaRN's `factor` where L0 is given."""
    entries = transformers_4(facts)
    given = (facts.fields.get("rope_scaling") or {}).get(_ORIGINAL)
    for entry in entries.values():
        if entry["rope_type"] == "yarn" and given:
            entry["factor"] = facts.context / given
    return entries


def transformers_5(facts: RopeFacts) -> Entries:
    """`rope_scaling`, else `rope_parameters`; θ and share of a head from there, else beside it.

    Raises:
        UnreadableError: Phi-3's first name of longrope without L0 in the entry.
    """
    given = facts.entry
    if _stated_kind(given) == "su" and given.get(_ORIGINAL) is None:
        raise UnreadableError(f"the type su needs {_ORIGINAL} inside of the entry")
    return _entries_5(facts)


def _entries_5(facts: RopeFacts) -> Entries:
    fields, default = facts.fields, class_default(facts.model_type)
    given = fields.get("rope_scaling") or fields.get("rope_parameters") or _own_scaling(facts) or {}
    nested = {name: part for name, part in given.items() if isinstance(part, Mapping)}
    if default.local is not None and not nested:
        nested = {FULL: given, SLIDING: {}}
    if not nested:
        return {ALL: _completed_5(facts, dict(given), _base_5(facts))}
    bases = {SLIDING: _stated(fields, _LOCAL_NAMES, default.local or default.base_5)}
    return {
        name: _completed_5(facts, dict(part), bases.get(name, _base_5(facts)))
        for name, part in nested.items()
    }


def vllm(facts: RopeFacts) -> Entries:
    """Reading of transformers 5, with a YaRN of its own, and one list of longrope for every text.

    Raises:
        UnreadableError: as `transformers_5`, whose configuration classes it uses.
    """
    entries = transformers_5(facts)
    latent = facts.stated("kv_lora_rank") is not None
    for entry in entries.values():
        if entry["rope_type"] in YARNS:
            entry["rope_type"] = "yarn"
            _vllm_yarn(entry, latent=latent)
        elif entry["rope_type"] == "longrope" and facts.context > entry[_ORIGINAL]:
            entry["short_factor"] = entry["long_factor"]
    return entries


def llama_cpp(facts: RopeFacts) -> Entries:
    """Entries that conversion to GGUF keeps, as llama.cpp computes them."""
    entries = _entries_5(facts)
    for entry in entries.values():
        kind = entry["rope_type"]
        if kind not in _CONVERTED:
            _reduce(entry, "default")
        elif kind == "yarn":
            entry |= {"truncate": True, "attention_factor": _llama_cpp_factor(facts, entry)}
        elif kind == "longrope" and "attention_factor" not in entry:
            entry["factor"] = facts.context / entry[_ORIGINAL]
    return entries


def _llama_cpp_factor(facts: RopeFacts, entry: Entry) -> float:
    """Factor of cos and sin: a ratio where the converter writes `mscale_all_dim`, else YaRN's."""
    multiplier = facts.gguf.get("rope.scaling.yarn_log_multiplier")
    all_dim = entry.get("mscale_all_dim") if multiplier is None else multiplier
    ratio = facts.model_type in ("ministral3", "mistral3", "mistral4") and all_dim
    if facts.stated("kv_lora_rank") is not None or facts.model_type == "deepseek2":
        return 1.0  # the temperature is in the scale of the logits
    log = 0.1 * math.log(max(float(entry["factor"]), 1.0))
    return (log + 1) / (log * float(all_dim) + 1) if ratio else log + 1


# What each program makes of a configuration, by its name.
READERS: dict[ReaderName, Callable[[RopeFacts], Entries]] = {
    "transformers 5": transformers_5,
    "transformers 4.57": transformers_4,
    "transformers 4.55": transformers_4_55,
    "vLLM 0.25": vllm,
    "llama.cpp": llama_cpp,
}


def readers_of(facts: RopeFacts) -> tuple[ReaderName, ...]:
    """Readers of files of this form; the others are compared with the first."""
    return ("llama.cpp",) if facts.form == "gguf" else tuple(READERS)


def logit_factor(reader: ReaderName, facts: RopeFacts, entry: Entry) -> float:
    """Factor on all logits of latent attention under YaRN: (0.1·mscale_all_dim·ln s + 1)²."""
    all_dim = entry.get("mscale_all_dim")
    if entry["rope_type"] != "yarn" or not all_dim or facts.stated("kv_lora_rank") is None:
        return 1.0
    if reader.startswith("transformers 4") and facts.model_type == "deepseek_v2":
        return 1.0  # its class had none until transformers#47435
    return (0.1 * float(all_dim) * math.log(max(float(entry["factor"]), 1.0)) + 1) ** 2


def query_scaling(reader: ReaderName, facts: RopeFacts, entry: Entry) -> QueryScaling | None:
    """The query scaling that a reader applies."""
    if facts.model_type in ("llama4_text", "llama4"):
        if not facts.fields.get("attn_temperature_tuning", True):
            return None
        beta, period = (facts.stated("attn_scale") or 0.1, facts.stated("floor_scale") or 8192)
        return QueryScaling(float(beta), float(period), 1, "without RoPE")
    beside = facts.fields.get("llama_4_scaling") or {}
    beta, period = entry.get("llama_4_scaling_beta"), entry.get(_ORIGINAL)
    if reader == "vLLM 0.25":  # looks beside the entry alone
        beta, period = beside.get("beta"), beside.get(_ORIGINAL)
    elif reader == "llama.cpp" and facts.form == "gguf":
        beta = facts.gguf.get("attention.temperature_scale")
        period = period or facts.context
    return QueryScaling(float(beta), float(period), 0, "all") if beta and period else None


def longest(reader: ReaderName, facts: RopeFacts) -> float:
    """The longest text that a reader allows when it is asked for none.

    Transformers, llama.cpp: `max_position_embeddings`. vLLM 0.25 multiplies by `factor`, of YaRN
    from L0 on, but not where the type is longrope or llama3, nor for Gemma 3.
    """
    start, factor = float(facts.context), 1.0
    if reader != "vLLM 0.25" or "gemma3" in facts.model_type:
        return start
    stated = facts.entry
    parts = [part for part in stated.values() if isinstance(part, Mapping)] or [stated]
    for part in parts:
        kind = _stated_kind(part)
        if kind not in ("su", "longrope", "llama3", "default", "mrope"):
            factor = float(part.get("factor") or 1.0)
            start = float(part.get(_ORIGINAL) or start) if kind == "yarn" else start
    return start * factor


_BASE_NAMES = ("rope_theta", "rotary_emb_base", "global_rope_theta")
_LOCAL_NAMES = ("rope_local_base_freq", "local_rope_theta")
_FRACTION_NAMES = ("partial_rotary_factor", "rotary_pct")


def _fraction(facts: RopeFacts) -> float:
    """Share of a head that turns: a field of its own, or `rotary_dim` of it, as GPT-J has."""
    entries, default = facts.stated("rotary_dim"), class_default(facts.model_type).fraction
    default = default if entries is None else entries / facts.head_dim
    return float(_stated(facts.fields, _FRACTION_NAMES, default))


def _stated(fields: Mapping[str, Any], names: tuple[str, ...], default: Any) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), default)


def _stated_kind(entry: Mapping[str, Any]) -> str:
    return entry.get("rope_type") or entry.get("type") or "default"


def _kind(entry: Mapping[str, Any]) -> str:
    """The type, of those that were renamed the name of today."""
    kind = _stated_kind(entry)
    return {"su": "longrope", "mrope": "default"}.get(kind, kind)


def _own_scaling(facts: RopeFacts) -> Entry | None:
    """The scaling that a class has where its configuration gives none."""
    if facts.model_type == "gpt_oss":
        shared = {"rope_type": "yarn", "factor": 32.0, "truncate": False, _ORIGINAL: 4096}
        return {**shared, "beta_fast": 32.0, "beta_slow": 1.0}
    if facts.model_type == "ministral3":
        shared = {"rope_type": "yarn", "factor": 16.0, _ORIGINAL: 16_384, "mscale": 1.0}
        return {**shared, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
    return None


def _base_5(facts: RopeFacts) -> float:
    return float(_stated(facts.fields, _BASE_NAMES, class_default(facts.model_type).base_5))


def _completed_5(facts: RopeFacts, entry: Entry, base: float) -> Entry:
    """An entry with what stands beside it, as version 5 completes it."""
    fields = facts.fields
    fraction = _fraction(facts)
    entry["rope_type"] = _kind(entry)
    for name, value in (("rope_theta", base), ("partial_rotary_factor", fraction)):
        if entry.get(name) is None:
            entry[name] = value
    if entry["rope_type"] in (*_WITH_ORIGINAL, *YARNS):
        given = entry.get(_ORIGINAL) or facts.context
        entry[_ORIGINAL] = fields.get(_ORIGINAL) or given
    if entry["rope_type"] in ("longrope", *YARNS) and entry.get("factor") is None:
        entry["factor"] = facts.context / entry[_ORIGINAL]
    return entry


def _with_local(facts: RopeFacts, entry: Entry, local: float | None) -> Entries:
    if local is None:
        return {ALL: entry}
    base = _stated(facts.fields, _LOCAL_NAMES, local)
    shared = {"rope_type": "default", "partial_rotary_factor": entry["partial_rotary_factor"]}
    return {FULL: entry, SLIDING: {**shared, "rope_theta": base}}


def _vllm_yarn(entry: Entry, *, latent: bool) -> None:
    """YaRN of vLLM 0.25: cos and sin times (0.1·ln s + 1)·attn_factor, whatever else is said."""
    log = 0.1 * math.log(max(float(entry["factor"]), 1.0)) + 1
    if latent:  # a class of its own, which takes mscale
        entry.pop("attention_factor", None)
        return
    scaled = entry.get("apply_yarn_scaling", True)
    entry["attention_factor"] = (log if scaled else 1.0) * float(entry.get("attn_factor") or 1.0)


def _reduce(entry: Entry, kind: str) -> None:
    """Leave an entry its base and its share of a head."""
    kept = {name: entry[name] for name in ("rope_theta", "partial_rotary_factor")}
    entry.clear()
    entry |= {"rope_type": kind, **kept}

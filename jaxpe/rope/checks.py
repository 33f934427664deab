"""Known faults of rotary configurations: one function for each cause.

A check returns the code of a finding and the values of its text, or None. `findings.toml` has the
texts, remedies and threads. Positions of packed or left-padded rows are not checked.
"""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jaxpe._core.errors import nearest
from jaxpe.rope.comparison import SAME, largest_ratio, same_frequencies
from jaxpe.rope.configuration import Configuration
from jaxpe.rope.families import OWN_CODE, thread_names
from jaxpe.rope.fields import is_finite
from jaxpe.rope.programs.base import (
    FACTOR_BY_LENGTHS,
    ONE_LIST,
    ORIGINAL,
    VERSION_4,
    YARNS,
    type_of,
)
from jaxpe.rope.programs.facts import program_facts
from jaxpe.rope.result import SEVERITIES, Finding, Program, Reading, RopeAnalysis
from jaxpe.rope.scaling import ROPE_TYPES

Code = tuple[str, dict[str, Any]]
_RADIANS = 0.01  # error of a float32 phase from which on it is told


class Found:
    """Input of a check.

    Attributes:
        configuration: fields of the file.
        analysis: result so far.
        model: the text model, or the decoder.
        name: type of that model.
        given: fields of that model, as the file has them.
        widest: the rotating layers that reach furthest.
        first: the program that others are held against; None if there is none, or no rule knows the
            model.
        context: configured length.
        length: longest text.
        whole: scaling entry of the file, and `parts`, its parts by kind of layer.
        entry: its part for the widest layers.
        kind: scaling type, as the file names it.
        original: L0 of the entry, and `factor`, its s; None if absent or not positive.
        scaled: length after scaling.
    """

    def __init__(self, configuration: Configuration, analysis: RopeAnalysis):
        self.configuration, self.analysis = configuration, analysis
        self.model, self.widest = configuration.models[-1], analysis.widest
        self.name, self.given = self.model.family.model_type, self.model.fields.given
        own = (p for p in analysis.readers if p.name == analysis.numbers_of)
        self.first = next(own, None) if self.model.known else None
        self.context, self.length = analysis.context, analysis.length
        self.whole = self.given.get("rope_scaling") or self.given.get("rope_parameters") or {}
        self.whole = self.whole if isinstance(self.whole, Mapping) else {}
        self.parts = {k: v for k, v in self.whole.items() if isinstance(v, Mapping)}
        every = (self.parts.get(self.widest.name if self.widest else ""), *self.parts.values())
        self.entry = next((one for one in every if one is not None), self.whole)
        self.kind = type_of(self.entry)
        self.original, self.factor = self.number(ORIGINAL), self.number("factor")
        self.scaled = (self.original or self.context) * (self.factor or 1.0)

    def number(self, name: str) -> float | None:
        """Positive number of the entry; None for any other value."""
        value = self.entry.get(name)
        return float(value) if is_finite(value) and value > 0 else None

    def reading(self, trait: str = "") -> Reading | None:
        """Numbers of the first program, or the first with a trait, for the widest layers."""
        program = self.with_trait(trait) if trait else self.first
        return None if program is None else self.widest_of(program)

    def with_trait(self, trait: str) -> Program | None:
        """First program with a trait that reads the configuration."""
        programs = self.analysis.readers
        return next((p for p in programs if trait in p.traits and not p.problem), None)

    def widest_of(self, program: Program) -> Reading | None:
        """Numbers of a program in the layers that reach furthest."""
        none = program.problem or self.widest is None
        return None if none else program.readings[self.analysis.groups.index(self.widest)]

    def told_apart(self, what: str) -> Iterable[tuple[str, str]]:
        """Disagreements about a quantity: group, and values by program."""
        for group, kind, values in self.analysis.disagreements:
            if kind == what and group is not None:
                listed = ", ".join(f"{name} {value}" for name, value in values.items())
                yield self.analysis.groups[group].name, listed


def refused(found: Found) -> Code | None:
    """Programs that cannot read the configuration."""
    problems: dict[str, list[str]] = {}
    for one in found.analysis.readers:
        if one.problem:
            problems.setdefault(one.problem, []).append(one.name)
    listed = "; ".join(f"{', '.join(names)}: {problem}" for problem, names in problems.items())
    code = "refused" if found.analysis.readers[0].problem else "refused_by_some"
    return (code, {"listed": listed}) if problems else None


def own_code(found: Found) -> Code | None:
    """Type without a class in transformers."""
    return ("own_code", {"name": found.name}) if found.model.family.since == OWN_CODE else None


def unlikely(found: Found) -> Code | None:
    """Numbers that make no sense; transformers only warns of them."""
    row = texts()["unlikely"]
    values = row["usual"] | {k: v for k, v in found.entry.items() if isinstance(v, int | float)}
    pairs = [(one, least, values.get(least, least)) for one, least in row["least"].items()]
    listed = ", ".join(f"{one} below {least}" for one, least, value in pairs if values[one] < value)
    scaled = found.kind not in ("default", "mrope") and found.configuration.form != "gguf"
    return ("unlikely", {"listed": listed}) if scaled and listed else None


def unread(found: Found) -> Code | None:
    """Positional keys that no rule has used."""
    names = found.analysis.unread
    return ("unread", {"names": ", ".join(names)}) if names else None


def type_unknown(found: Found) -> Code | None:
    """Scaling type that transformers does not have."""
    kind, known = found.kind, sorted({*ROPE_TYPES} - {"ntk", "ntk_by_parts"})
    if kind in (*known, *found.model.family.types, "default", "mrope", "none", "axial"):
        return None
    near = {"su": "longrope"}.get(kind, "yarn" if kind in YARNS else nearest(kind, known))
    meant = f"Write {near!r} if you mean that." if near else f"Use one of {', '.join(known)}."
    return "type_unknown", {"kind": kind, "meant": meant}


def types_differ(found: Found) -> Code | None:
    """`type` and `rope_type` that differ."""
    names = found.entry.get("type"), found.entry.get("rope_type")
    differ = all(isinstance(name, str) for name in names) and names[0] != names[1]
    differ = differ and sorted(map(str, names)) not in texts()["types_differ"]["alike"]
    return ("types_differ", {"first": names[0], "second": names[1]}) if differ else None


def entries_differ(found: Found) -> Code | None:
    """`rope_scaling` and `rope_parameters` with different contents."""
    old, new = (found.given.get(name) for name in ("rope_scaling", "rope_parameters"))
    if not (old and new and isinstance(old, Mapping) and isinstance(new, Mapping)):
        return None
    keys = sorted(k for k in {*old, *new} - {"rope_theta", "type"} if old.get(k) != new.get(k))
    return ("entries_differ", {"keys": ", ".join(keys)}) if keys else None


def flat_entry_lost(found: Found) -> Code | None:
    """Single entry for a class that reads and completes a sub-entry for each kind of layer."""
    parted = found.model.family.bases and not found.given.get("rope_scaling")
    stated = type_of(found.whole) != "default" or "rope_theta" in found.whole
    lost = parted and stated and not found.parts
    return ("flat_entry_lost", {"name": found.name}) if lost else None


def parts_lost(found: Found) -> Code | None:
    """Entries by kind of layer for a class that reads a single entry."""
    family, reading = found.model.family, found.reading()
    if not found.parts or reading is None or family.by_kind or family.bases or family.convert:
        return None
    return "parts_lost", {"name": found.name, "parts": ", ".join(found.parts), "base": reading.base}


def keys_ignored(found: Found) -> Code | None:
    """Keys that the scaling does not use, misspelt keys included."""
    family, entry = found.model.family, found.entry
    kind = family.types.get(found.kind, found.kind)
    kind = "yarn" if kind in YARNS else kind
    if found.first is None or kind not in (*ROPE_TYPES, "default", "mrope"):
        return None
    beside = texts()["keys_ignored"]["beside"]
    taken = {*getattr(ROPE_TYPES.get(kind), "_fields", ()), *beside["all"], *beside.get(kind, ())}
    taken |= {*beside["alpha"]} if family.alpha else set()
    ignored = sorted(key for key, value in entry.items() if key not in taken and value is not None)
    share = found.number("partial_rotary_factor") or 1
    ignored += ["partial_rotary_factor"] * (kind == "default" and not family.share and share != 1)
    meant = ((key, nearest(key, taken - set(entry))) for key in ignored)
    shown = [f"{key} (is it {near}?)" if near else key for key, near in meant]
    return ("keys_ignored", {"kind": kind, "keys": ", ".join(shown)}) if ignored else None


def share_ignored(found: Found) -> Code | None:
    """Share of the head that the model's class does not use."""
    share, reading = found.given.get("partial_rotary_factor"), found.reading()
    used = found.model.family.share or found.model.family.latent or share == 1
    if used or not isinstance(share, int | float) or not reading or reading.rope_type != "default":
        return None
    return "share_ignored", {"share": share, "name": found.name, "turning": reading.turning}


def base_missing(found: Found) -> Code | None:
    """Absent θ: each program uses its default, and the defaults differ."""
    reading, form = found.reading(), found.configuration.form
    names = {"rope_theta", "rotary_emb_base", "rope_ratio", "default_theta"}
    names |= {name for name, _ in found.model.family.bases.values()}
    stated = names & {key for key, value in found.given.items() if value is not None}
    if reading is None or stated or "rope_theta" in found.entry or form == "options":
        return None
    field = found.model.family.nested_base
    nested = found.model.fields.number(field)
    said = {"name": found.name, "base": reading.base, "field": field, "nested": nested}
    if nested is not None:
        return None if nested == reading.base else ("base_nested", said)
    of_class = "base_missing" if math.isclose(reading.base, 1e4) else "base_of_class_missing"
    return "base_of_gguf_missing" if form == "gguf" else of_class, said


def unseen_by_4(found: Found) -> Code | None:
    """Entries only in `rope_parameters`, which transformers 4 does not read."""
    old, new = found.reading(VERSION_4), found.reading()
    if old is None or new is None or not found.given.get("rope_parameters"):
        return None
    lost = []
    if not _close(old.base, new.base):
        lost.append(f"the base is {old.base:,.0f} instead of {new.base:,.0f}")
    if old.rope_type != new.rope_type:
        lost.append(f"the scaling is {old.rope_type} instead of {new.rope_type}")
    if old.turning != new.turning:
        lost.append(f"{old.turning} entries of a head turn instead of {new.turning}")
    return ("unseen_by_4", {"lost": ", and ".join(lost)}) if lost else None


def second_base_lost(found: Found) -> Code | None:
    """OLMo 3: base that applies only to layers with full attention."""
    bases = {group.base for group in found.analysis.groups if group.turns}
    stated = found.given.get("rope_theta")
    lost = found.name == "olmo3" and isinstance(stated, int | float) and len(bases) > 1
    return ("second_base_lost", {"stated": stated, "other": min(bases)}) if lost else None


def mscale_alone(found: Found) -> Code | None:
    """`mscale` without `mscale_all_dim`, or the reverse."""
    given = [name for name in ("mscale", "mscale_all_dim") if found.number(name)]
    if len(given) != 1 or found.kind not in YARNS or found.number("attention_factor"):
        return None
    missing = "mscale_all_dim" if given == ["mscale"] else "mscale"
    return "mscale_alone", {"given": given[0], "missing": missing}


def turning_differs(found: Found) -> Code | None:
    """Programs that do not rotate the same layers."""
    listed = "; ".join(f"{name}: {values}" for name, values in found.told_apart("turns"))
    return ("turning_differs", {"listed": listed}) if listed else None


def pairing_differs(found: Found) -> Code | None:
    """Programs that pair the entries of a head differently."""
    name, listed = next(iter(found.told_apart("pairing")), ("", ""))
    return ("pairing_differs", {"group": name, "listed": listed}) if listed else None


def factor_replaced(found: Found) -> Code | None:
    """YaRN's factor in transformers up to 4.55, computed from two lengths."""
    stated, program = found.factor, found.with_trait(FACTOR_BY_LENGTHS)
    old = None if program is None else found.widest_of(program)
    if program is None or old is None or old.rope_type != "yarn":
        return None
    said = {"program": program.name, "stated": stated, "used": old.factor, "scaled": found.scaled}
    return None if stated is None or _close(old.factor, stated) else ("factor_replaced", said)


def frequencies_differ(found: Found) -> Code | None:
    """Programs that compute other frequencies in any group of layers."""
    first, groups = found.first, found.analysis.groups
    told = {VERSION_4} if unseen_by_4(found) else set()
    told |= {FACTOR_BY_LENGTHS} if factor_replaced(found) else set()
    if (base_missing(found) or ("",))[0] == "base_nested":  # told with its remedy
        return None
    texts: dict[str, list[str]] = {}
    for program in found.analysis.readers if first is not None else ():
        for reading, own in zip(program.readings, first.readings if first else (), strict=False):
            both = reading.turns and own.turns and not told & set(program.traits)
            if both and not same_frequencies(reading.frequencies, own.frequencies):
                where = f", {groups[own.group].name}" if len(groups) > 1 else ""
                texts.setdefault(f"{where}: {_ratio(reading, own)}", []).append(program.name)
    if first is None or not texts:
        return None
    listed = "; ".join(f"{', '.join(names)}{text}" for text, names in texts.items())
    alone = found.name == "phimoe" and found.kind in ("longrope", "su")  # one list of two
    code = "short_list_alone" if alone and VERSION_4 not in first.traits else "frequencies_differ"
    return code, {"first": first.name, "listed": listed}


def _ratio(reading: Reading, own: Reading) -> str:
    ratio = largest_ratio(reading.frequencies, own.frequencies)
    if math.isnan(ratio):
        return f"{reading.turning} entries turn, not {own.turning}"
    off = f"by up to {ratio:.3g} times"
    if not _close(reading.base, own.base):
        return f"base {reading.base:,.0f}, not {own.base:,.0f}, {off}"
    if reading.rope_type != own.rope_type:
        return f"{reading.rope_type}, not {own.rope_type}, {off}"
    if not math.isnan(reading.factor) and not _close(reading.factor, own.factor):
        return f"factor {reading.factor:.4g}, not {own.factor:.4g}, {off}"
    return off


def attention_factor_differs(found: Found) -> Code | None:
    """Programs that multiply cos and sin by another factor."""
    own, others = _others(found, "attention_factor")
    parts = (f"{k} uses {v:.4g} ({(v / own) ** 2:.3g} times the logits)" for k, v in others.items())
    said = {"own": own, "listed": "; ".join(parts)}
    return ("attention_factor_differs", said) if others else None


def logit_factor_differs(found: Found) -> Code | None:
    """YaRN temperature of latent attention, separate from the factor on cos and sin."""
    own, others = _others(found, "logit_factor")
    listed = ", ".join(f"{name} uses {value:.4g}" for name, value in others.items())
    if listed:
        return "logit_factor_differs", {"own": own, "listed": listed}
    return None if _close(own, 1.0) else ("logit_factor", {"own": own})


def query_scaling_differs(found: Found) -> Code | None:
    """Factor on queries by position, applied by some programs only."""
    readers = [one for one in found.analysis.readers if one.readings and found.first]
    values = {one.name: max(r.query_factor for r in one.readings) for one in readers}
    own = next(iter(values.values()), 1.0)
    others = (f"{name} by {one:.4g}" for name, one in values.items() if not _close(one, own))
    said = {"own": own, "last": found.length - 1, "listed": ", ".join(others)}
    if said["listed"]:
        return "query_scaling_differs", said
    return None if _close(own, 1.0) else ("query_scaling", said)


def length_multiplied(found: Found) -> Code | None:
    """Length after scaling, multiplied by the factor again."""
    longer = [one for one in found.analysis.readers if one.longest > found.context]
    if found.kind == "yarn":
        longer = [one for one in longer if not _close(one.longest, found.scaled)]
    listed = ", ".join(f"{one.name} allows {one.longest:,.0f}" for one in longer)
    return ("length_multiplied", {"context": found.context, "listed": listed}) if longer else None


def lengths(found: Found) -> Code | None:
    """`max_position_embeddings` that is the length after scaling, or contradicts the factor."""
    original, factor, context = found.original, found.factor, found.context
    if found.kind not in YARNS or not original or not factor or original == context:
        return None
    said = {"context": context, "original": int(original), "factor": factor, "scaled": found.scaled}
    return "length_is_scaled" if _close(found.scaled, context) else "lengths_contradict", said


def original_missing(found: Found) -> Code | None:
    """Absent L0, replaced by `max_position_embeddings`."""
    stated = found.entry.get(ORIGINAL) or found.given.get(ORIGINAL)
    missing = not stated and found.kind in (*YARNS, "llama3", "longrope", "su")
    return ("original_missing", {"context": found.context}) if missing else None


def dynamic_length(found: Found) -> Code | None:
    """Dynamic scaling, which depends on the length of the text."""
    if found.kind != "dynamic" or (found.model.family.alpha and found.number("alpha")):
        return None
    differs = found.original and found.original != found.context
    said = {"original": int(found.original or 0), "context": found.context}
    return "dynamic_original" if differs else "dynamic_length", said


def own_dynamic(found: Found) -> Code | None:
    """Qwen 1: base that the model's code stretches beyond the training length."""
    on = [name for name in ("use_dynamic_ntk", "use_logn_attn") if found.given.get(name) is True]
    told = on and all(name in found.model.fields.used for name in on)
    said = {"names": " and ".join(on), "context": found.context}
    return ("own_dynamic", said) if told else None


def scaling_with_sections(found: Found) -> Code | None:
    """Scaling with multimodal sections, which some programs omit."""
    scaled = found.kind in (*YARNS, "linear", "dynamic") and "mrope_section" in found.entry
    return ("scaling_with_sections", {"kind": found.kind}) if scaled else None


def beyond_scaling(found: Found) -> Code | None:
    """A text longer than what training and the scaling cover, or than the file says."""
    covered = max(found.context, found.scaled if found.original else 0)
    unseen = found.widest.unseen if found.widest is not None else 0
    said: dict[str, Any] = {"length": found.length, "context": found.context, "kind": found.kind}
    said |= {"covered": covered, "unseen": unseen}
    if not unseen or found.length <= covered * (1 + SAME):
        beyond = {g.kind for g in found.analysis.groups} - {"linear", "axial"}
        return ("beyond_context", said) if beyond and found.length > found.context else None
    stretched = found.kind in (*YARNS, "default", "mrope", "proportional")
    return "beyond_scaling" if stretched else "beyond_own_scaling", said


def linear_original(found: Found) -> Code | None:
    """Linear scaling, which has no field for the length before scaling."""
    linear = found.kind == "linear" and found.widest and not found.original
    return ("linear_original", {"context": found.context}) if linear else None


def longrope_lists(found: Found) -> Code | None:
    """Two lists of divisors, with different rules of choice in each program."""
    reading = found.reading(ONE_LIST)
    chosen = reading and reading.rope_type == "longrope" and found.context > reading.original > 0
    return ("longrope_lists", {"original": reading.original}) if reading and chosen else None


def kinds_of_layers(found: Found) -> Code | None:
    """Kinds of layers with separate tables, which programs with a single table get wrong."""
    turning = [group for group in found.analysis.groups if group.turns]
    tables = {(g.base, g.rope_type, g.turning, g.head_dim, g.attention_factor) for g in turning}
    still = [g for g in found.analysis.groups if g.kind == "none"]
    if len(tables) < 2 and not (still and turning):
        return None
    parts = [f"{g.name}: base {g.base:,.0f}, {g.rope_type}, {g.turning} entries" for g in turning]
    parts += [f"{g.name}: no rotation" for g in still]
    return "kinds_of_layers", {"listed": "; ".join(parts)}


def low_precision(found: Found) -> Code | None:
    """A 16-bit model, whose phases must not be 16-bit."""
    fields = {**found.configuration.outside, **found.given}
    name = str(fields.get("dtype") or fields.get("torch_dtype") or "").removeprefix("torch.")
    error = _error(found, name)
    return ("low_precision", {"name": name, **error}) if error and name != "float32" else None


def float32_precision(found: Found) -> Code | None:
    """Positions at which a float32 product is inaccurate."""
    error = _error(found, "float32")
    return ("float32_precision", error) if error and error["largest"] >= _RADIANS else None


def _error(found: Found, name: str) -> dict[str, Any]:
    """Error of phases in a dtype at the longest text; empty if it was not computed."""
    sought = (found.length, name, "all")
    return next((one._asdict() for one in found.analysis.precision if one[:3] == sought), {})


def reported(found: Found) -> Code | None:
    """Threads in which users met faults of programs with this type of model."""
    return ("reported", {"name": found.name}) if thread_names(found.name) else None


def _others(found: Found, what: str) -> tuple[float, dict[str, float]]:
    """Value of the first program, and values that differ under the same scaling type."""
    new = found.reading()
    if new is None:
        return 1.0, {}
    own, readings = getattr(new, what), {p.name: found.widest_of(p) for p in found.analysis.readers}
    alike = {n: r for n, r in readings.items() if r and r.turns and r.rope_type == new.rope_type}
    values = {name: getattr(reading, what) for name, reading in alike.items()}
    return own, {name: value for name, value in values.items() if not _close(value, own)}


def _close(one: float | int, other: float | int) -> bool:
    return math.isclose(one, other, rel_tol=SAME) or (math.isnan(one) and math.isnan(other))


CHECKS: tuple[Callable[[Found], Code | None], ...] = (
    refused, own_code, unlikely, unread, type_unknown, types_differ, entries_differ,
    flat_entry_lost, parts_lost, keys_ignored, share_ignored, base_missing, unseen_by_4,
    second_base_lost, mscale_alone, turning_differs, pairing_differs, factor_replaced,
    frequencies_differ, attention_factor_differs, logit_factor_differs, query_scaling_differs,
    length_multiplied, lengths, original_missing, dynamic_length, own_dynamic,
    scaling_with_sections, beyond_scaling, linear_original, longrope_lists, kinds_of_layers,
    low_precision, float32_precision, reported,
)  # fmt: skip


@cache
def texts() -> Mapping[str, Any]:
    """Severity, text, remedy and threads of each finding, by its code."""
    return tomllib.loads(files("jaxpe.rope").joinpath("findings.toml").read_text("utf-8"))


def findings(found: Found) -> tuple[Finding, ...]:
    """Findings of a configuration, most severe first."""
    result, gguf = [], found.configuration.form == "gguf"
    for check in CHECKS:
        code, values = check(found) or ("", {})
        row = texts().get(code, {})
        if row and not (gguf and row.get("config_only")):
            threads = thread_names(found.name) if code == "reported" else row.get("threads", ())
            text, remedy = (row[part].format(**values) for part in ("text", "remedy"))
            for name, own in program_facts("llama_cpp")["keys"].items() if gguf else ():
                text, remedy = text.replace(name, own), remedy.replace(name, own)
            result.append(Finding(code, row["severity"], text, remedy, tuple(threads)))
    return tuple(sorted(result, key=lambda one: SEVERITIES.index(one.severity)))

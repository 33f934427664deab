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
from jaxpe.rope.result import SEVERITIES, Finding, PhaseError, Program, Reading, RopeAnalysis
from jaxpe.rope.scaling import ROPE_TYPES

Code = tuple[str, dict[str, Any]]
_RADIANS = 0.01  # error of a float32 phase from which on it is told


class Case:
    """Input of a check.

    Attributes:
        configuration: fields of the file.
        analysis: result so far.
        model: the text model, or the decoder.
        name: type of that model.
        stated: fields of that model, as the file has them.
        widest: the rotating layers that reach furthest.
        first: the program that others are held against; None if there is none, or no rule knows the
            model.
        context: configured length.
        length: longest text.
        scaling_entry: scaling entry of the file, and `parts`, its parts by kind of layer.
        entry: its part for the widest layers.
        kind: scaling type, as the file names it.
        original: L0 of the entry, and `factor`, its s; None if absent or not positive.
        scaled: length after scaling.
    """

    def __init__(self, configuration: Configuration, analysis: RopeAnalysis):
        self.configuration, self.analysis = configuration, analysis
        self.model, self.widest = configuration.models[-1], analysis.widest
        self.name, self.stated = self.model.family.model_type, self.model.fields.stated
        newest = (p for p in analysis.readers if p.name == analysis.numbers_of)
        self.first = next(newest, None) if self.model.known else None
        self.context, self.length = analysis.context, analysis.length
        entry = self.stated.get("rope_scaling") or self.stated.get("rope_parameters")
        self.scaling_entry = entry if isinstance(entry, Mapping) else {}
        self.parts = {k: v for k, v in self.scaling_entry.items() if isinstance(v, Mapping)}
        every = (self.parts.get(self.widest.name if self.widest else ""), *self.parts.values())
        self.entry = next((one for one in every if one is not None), self.scaling_entry)
        self.kind = type_of(self.entry)
        self.original, self.factor = self.number(ORIGINAL), self.number("factor")
        self.scaled = (self.original or self.context) * (self.factor or 1.0)

    def number(self, name: str) -> float | None:
        """Positive number of the entry; None for any other value."""
        value = self.entry.get(name)
        return float(value) if is_finite(value) and value > 0 else None

    def program_with_trait(self, trait: str) -> Program | None:
        """First program with a trait that reads the configuration."""
        return next((p for p in self.analysis.accepted_by if trait in p.traits), None)

    def reading(self, program: Program | None) -> Reading | None:
        """Numbers of a program for the layers that reach furthest."""
        none = program is None or program.problem or self.widest is None
        return None if none else program.readings[self.analysis.groups.index(self.widest)]

    def phase_error(self, name: str) -> PhaseError | None:
        """Error of phases in a dtype at the longest text; None if it was not computed."""
        sought = (self.length, name, "all")
        return next((one for one in self.analysis.precision if one[:3] == sought), None)

    def told_apart(self, what: str) -> Iterable[tuple[str, str]]:
        """Disagreements about a quantity: group, and values by program."""
        for group, kind, values in self.analysis.disagreements:
            if kind == what and group is not None:
                listed = ", ".join(f"{name} {value}" for name, value in values.items())
                yield self.analysis.groups[group].name, listed


def refused(case: Case) -> Code | None:
    """Programs that cannot read the configuration."""
    problems: dict[str, list[str]] = {}
    for one in case.analysis.readers:
        if one.problem:
            problems.setdefault(one.problem, []).append(one.name)
    listed = "; ".join(f"{', '.join(names)}: {problem}" for problem, names in problems.items())
    code = "refused" if case.analysis.readers[0].problem else "refused_by_some"
    return (code, {"listed": listed}) if problems else None


def own_code(case: Case) -> Code | None:
    """Type without a class in transformers."""
    return ("own_code", {"name": case.name}) if case.model.family.since == OWN_CODE else None


def unlikely(case: Case) -> Code | None:
    """Numbers that make no sense; transformers only warns of them."""
    row = texts()["unlikely"]
    values = row["usual"] | {k: v for k, v in case.entry.items() if isinstance(v, int | float)}
    pairs = [(one, least, values.get(least, least)) for one, least in row["least"].items()]
    listed = ", ".join(f"{one} below {least}" for one, least, value in pairs if values[one] < value)
    scaled = case.kind not in ("default", "mrope") and case.configuration.form != "gguf"
    return ("unlikely", {"listed": listed}) if scaled and listed else None


def unread(case: Case) -> Code | None:
    """Positional keys that no rule has used."""
    names = case.analysis.unread
    return ("unread", {"names": ", ".join(names)}) if names else None


def type_unknown(case: Case) -> Code | None:
    """Scaling type that transformers does not have."""
    kind, known = case.kind, sorted({*ROPE_TYPES} - {"ntk", "ntk_by_parts"})
    if kind in (*known, *case.model.family.types, "default", "mrope", "none", "axial"):
        return None
    near = {"su": "longrope"}.get(kind, "yarn" if kind in YARNS else nearest(kind, known))
    meant = f"Write {near!r} if you mean that." if near else f"Use one of {', '.join(known)}."
    return "type_unknown", {"kind": kind, "meant": meant}


def types_differ(case: Case) -> Code | None:
    """`type` and `rope_type` that differ."""
    names = case.entry.get("type"), case.entry.get("rope_type")
    differ = all(isinstance(name, str) for name in names) and names[0] != names[1]
    differ = differ and sorted(map(str, names)) not in texts()["types_differ"]["alike"]
    return ("types_differ", {"first": names[0], "second": names[1]}) if differ else None


def entries_differ(case: Case) -> Code | None:
    """`rope_scaling` and `rope_parameters` with different contents."""
    old, new = (case.stated.get(name) for name in ("rope_scaling", "rope_parameters"))
    if not (old and new and isinstance(old, Mapping) and isinstance(new, Mapping)):
        return None
    keys = sorted(k for k in {*old, *new} - {"rope_theta", "type"} if old.get(k) != new.get(k))
    return ("entries_differ", {"keys": ", ".join(keys)}) if keys else None


def flat_entry_lost(case: Case) -> Code | None:
    """Single entry for a class that reads and completes a sub-entry for each kind of layer."""
    parted = case.model.family.bases and not case.stated.get("rope_scaling")
    stated = type_of(case.scaling_entry) != "default" or "rope_theta" in case.scaling_entry
    lost = parted and stated and not case.parts
    return ("flat_entry_lost", {"name": case.name}) if lost else None


def parts_lost(case: Case) -> Code | None:
    """Entries by kind of layer for a class that reads a single entry."""
    family, reading = case.model.family, case.reading(case.first)
    if not case.parts or reading is None or family.by_kind or family.bases or family.convert:
        return None
    return "parts_lost", {"name": case.name, "parts": ", ".join(case.parts), "base": reading.base}


def keys_ignored(case: Case) -> Code | None:
    """Keys that the scaling does not use, misspelt keys included."""
    family, entry = case.model.family, case.entry
    kind = family.types.get(case.kind, case.kind)
    kind = "yarn" if kind in YARNS else kind
    if case.first is None or kind not in (*ROPE_TYPES, "default", "mrope"):
        return None
    beside = texts()["keys_ignored"]["beside"]
    taken = {*getattr(ROPE_TYPES.get(kind), "_fields", ()), *beside["all"], *beside.get(kind, ())}
    taken |= {*beside["alpha"]} if family.alpha else set()
    ignored = sorted(key for key, value in entry.items() if key not in taken and value is not None)
    share = case.number("partial_rotary_factor") or 1
    ignored += ["partial_rotary_factor"] * (kind == "default" and not family.share and share != 1)
    meant = ((key, nearest(key, taken - set(entry))) for key in ignored)
    shown = [f"{key} (is it {near}?)" if near else key for key, near in meant]
    return ("keys_ignored", {"kind": kind, "keys": ", ".join(shown)}) if ignored else None


def share_ignored(case: Case) -> Code | None:
    """Share of the head that the model's class does not use."""
    share, reading = case.stated.get("partial_rotary_factor"), case.reading(case.first)
    used = case.model.family.share or case.model.family.latent or share == 1
    if used or not isinstance(share, int | float) or not reading or reading.rope_type != "default":
        return None
    return "share_ignored", {"share": share, "name": case.name, "turning": reading.turning}


def base_missing(case: Case) -> Code | None:
    """Absent θ: each program uses its default, and the defaults differ."""
    reading, form = case.reading(case.first), case.configuration.form
    names = {"rope_theta", "rotary_emb_base", "rope_ratio", "default_theta"}
    names |= {name for name, _ in case.model.family.bases.values()}
    stated = names & {key for key, value in case.stated.items() if value is not None}
    if reading is None or stated or "rope_theta" in case.entry or form == "options":
        return None
    field = case.model.family.nested_base
    nested = case.model.fields.number(field)
    said = {"name": case.name, "base": reading.base, "field": field, "nested": nested}
    if nested is not None:
        return None if nested == reading.base else ("base_nested", said)
    of_class = "base_missing" if math.isclose(reading.base, 1e4) else "base_of_class_missing"
    return "base_of_gguf_missing" if form == "gguf" else of_class, said


def unseen_by_4(case: Case) -> Code | None:
    """Entries only in `rope_parameters`, which transformers 4 does not read."""
    old, new = case.reading(case.program_with_trait(VERSION_4)), case.reading(case.first)
    if old is None or new is None or not case.stated.get("rope_parameters"):
        return None
    differences = {
        f"the base is {old.base:,.0f} instead of {new.base:,.0f}": not _close(old.base, new.base),
        f"the scaling is {old.rope_type} instead of {new.rope_type}": old.rope_type
        != new.rope_type,
        f"{old.turning} entries of a head turn instead of {new.turning}": old.turning
        != new.turning,
    }
    lost = ", and ".join(text for text, differs in differences.items() if differs)
    return ("unseen_by_4", {"lost": lost}) if lost else None


def second_base_lost(case: Case) -> Code | None:
    """OLMo 3: base that applies only to layers with full attention."""
    bases = {group.base for group in case.analysis.turning}
    stated = case.stated.get("rope_theta")
    lost = case.name == "olmo3" and isinstance(stated, int | float) and len(bases) > 1
    return ("second_base_lost", {"stated": stated, "other": min(bases)}) if lost else None


def mscale_alone(case: Case) -> Code | None:
    """`mscale` without `mscale_all_dim`, or the reverse."""
    given = [name for name in ("mscale", "mscale_all_dim") if case.number(name)]
    if len(given) != 1 or case.kind not in YARNS or case.number("attention_factor"):
        return None
    missing = "mscale_all_dim" if given == ["mscale"] else "mscale"
    return "mscale_alone", {"given": given[0], "missing": missing}


def turning_differs(case: Case) -> Code | None:
    """Programs that do not rotate the same layers."""
    listed = "; ".join(f"{name}: {values}" for name, values in case.told_apart("turns"))
    return ("turning_differs", {"listed": listed}) if listed else None


def pairing_differs(case: Case) -> Code | None:
    """Programs that pair the entries of a head differently."""
    name, listed = next(iter(case.told_apart("pairing")), ("", ""))
    return ("pairing_differs", {"group": name, "listed": listed}) if listed else None


def factor_replaced(case: Case) -> Code | None:
    """YaRN's factor in transformers up to 4.55, computed from two lengths."""
    stated, program = case.factor, case.program_with_trait(FACTOR_BY_LENGTHS)
    old = case.reading(program)
    if (
        not program
        or not old
        or not stated
        or old.rope_type != "yarn"
        or _close(old.factor, stated)
    ):
        return None
    said = {"program": program.name, "stated": stated, "used": old.factor, "scaled": case.scaled}
    return "factor_replaced", said


def frequencies_differ(case: Case) -> Code | None:
    """Programs that compute other frequencies in any group of layers."""
    first, groups = case.first, case.analysis.groups
    told = {VERSION_4} if unseen_by_4(case) else set()
    told |= {FACTOR_BY_LENGTHS} if factor_replaced(case) else set()
    if (base_missing(case) or ("",))[0] == "base_nested":  # told with its remedy
        return None
    names: dict[str, list[str]] = {}
    for program in case.analysis.readers if first is not None else ():
        for reading, usual in zip(program.readings, first.readings if first else (), strict=False):
            both = reading.turns and usual.turns and not told & set(program.traits)
            if both and not same_frequencies(reading.frequencies, usual.frequencies):
                where = f", {groups[usual.group].name}" if len(groups) > 1 else ""
                names.setdefault(f"{where}: {_ratio(reading, usual)}", []).append(program.name)
    if first is None or not names:
        return None
    listed = "; ".join(f"{', '.join(programs)}{text}" for text, programs in names.items())
    alone = case.name == "phimoe" and case.kind in ("longrope", "su")  # one list of two
    code = "short_list_alone" if alone and VERSION_4 not in first.traits else "frequencies_differ"
    return code, {"first": first.name, "listed": listed}


def _ratio(reading: Reading, usual: Reading) -> str:
    ratio = largest_ratio(reading.frequencies, usual.frequencies)
    if math.isnan(ratio):
        return f"{reading.turning} entries turn, not {usual.turning}"
    cause = ""
    if not _close(reading.base, usual.base):
        cause = f"base {reading.base:,.0f}, not {usual.base:,.0f}, "
    elif reading.rope_type != usual.rope_type:
        cause = f"{reading.rope_type}, not {usual.rope_type}, "
    elif not math.isnan(reading.factor) and not _close(reading.factor, usual.factor):
        cause = f"factor {reading.factor:.4g}, not {usual.factor:.4g}, "
    return f"{cause}by up to {ratio:.3g} times"


def attention_factor_differs(case: Case) -> Code | None:
    """Programs that multiply cos and sin by another factor."""
    own, others = _others(case, "attention_factor")
    parts = (f"{k} uses {v:.4g} ({(v / own) ** 2:.3g} times the logits)" for k, v in others.items())
    return (
        ("attention_factor_differs", {"own": own, "listed": "; ".join(parts)}) if others else None
    )


def logit_factor_differs(case: Case) -> Code | None:
    """YaRN temperature of latent attention, separate from the factor on cos and sin."""
    own, others = _others(case, "logit_factor")
    listed = ", ".join(f"{name} uses {value:.4g}" for name, value in others.items())
    code = "logit_factor_differs" if listed else "logit_factor"
    return (code, {"own": own, "listed": listed}) if listed or not _close(own, 1.0) else None


def query_scaling_differs(case: Case) -> Code | None:
    """Factor on queries by position, applied by some programs only."""
    readers = [one for one in case.analysis.readers if one.readings and case.first]
    values = {one.name: max(r.query_factor for r in one.readings) for one in readers}
    own = next(iter(values.values()), 1.0)
    others = (f"{name} by {one:.4g}" for name, one in values.items() if not _close(one, own))
    listed = ", ".join(others)
    code = "query_scaling_differs" if listed else "query_scaling"
    said = {"own": own, "last": case.length - 1, "listed": listed}
    return (code, said) if listed or not _close(own, 1.0) else None


def length_multiplied(case: Case) -> Code | None:
    """Length after scaling, multiplied by the factor again."""
    longer = [one for one in case.analysis.readers if one.longest > case.context]
    if case.kind == "yarn":
        longer = [one for one in longer if not _close(one.longest, case.scaled)]
    listed = ", ".join(f"{one.name} allows {one.longest:,.0f}" for one in longer)
    return ("length_multiplied", {"context": case.context, "listed": listed}) if longer else None


def lengths(case: Case) -> Code | None:
    """`max_position_embeddings` that is the length after scaling, or contradicts the factor."""
    original, factor, context = case.original, case.factor, case.context
    if case.kind not in YARNS or not original or not factor or original == context:
        return None
    said = {"context": context, "original": int(original), "factor": factor, "scaled": case.scaled}
    return "length_is_scaled" if _close(case.scaled, context) else "lengths_contradict", said


def original_missing(case: Case) -> Code | None:
    """Absent L0, replaced by `max_position_embeddings`."""
    stated = case.entry.get(ORIGINAL) or case.stated.get(ORIGINAL)
    missing = not stated and case.kind in (*YARNS, "llama3", "longrope", "su")
    return ("original_missing", {"context": case.context}) if missing else None


def dynamic_length(case: Case) -> Code | None:
    """Dynamic scaling, which depends on the length of the text."""
    if case.kind != "dynamic" or (case.model.family.alpha and case.number("alpha")):
        return None
    differs = case.original and case.original != case.context
    said = {"original": int(case.original or 0), "context": case.context}
    return "dynamic_original" if differs else "dynamic_length", said


def own_dynamic(case: Case) -> Code | None:
    """Qwen 1: base that the model's code stretches beyond the training length."""
    on = [name for name in ("use_dynamic_ntk", "use_logn_attn") if case.stated.get(name) is True]
    told = on and all(name in case.model.fields.used for name in on)
    said = {"names": " and ".join(on), "context": case.context}
    return ("own_dynamic", said) if told else None


def scaling_with_sections(case: Case) -> Code | None:
    """Scaling with multimodal sections, which some programs omit."""
    scaled = case.kind in (*YARNS, "linear", "dynamic") and "mrope_section" in case.entry
    return ("scaling_with_sections", {"kind": case.kind}) if scaled else None


def beyond_scaling(case: Case) -> Code | None:
    """A text longer than what training and the scaling cover, or than the file says."""
    covered = max(case.context, case.scaled if case.original else 0)
    unseen = case.widest.unseen if case.widest is not None else 0
    said: dict[str, Any] = {"length": case.length, "context": case.context, "kind": case.kind}
    said |= {"covered": covered, "unseen": unseen}
    if not unseen or case.length <= covered * (1 + SAME):
        beyond = {g.kind for g in case.analysis.groups} - {"linear", "axial"}
        return ("beyond_context", said) if beyond and case.length > case.context else None
    stretched = case.kind in (*YARNS, "default", "mrope", "proportional")
    return "beyond_scaling" if stretched else "beyond_own_scaling", said


def linear_original(case: Case) -> Code | None:
    """Linear scaling, which has no field for the length before scaling."""
    linear = case.kind == "linear" and case.widest and not case.original
    return ("linear_original", {"context": case.context}) if linear else None


def longrope_lists(case: Case) -> Code | None:
    """Two lists of divisors, with different rules of choice in each program."""
    reading = case.reading(case.program_with_trait(ONE_LIST))
    chosen = reading and reading.rope_type == "longrope" and case.context > reading.original > 0
    return ("longrope_lists", {"original": reading.original}) if reading and chosen else None


def kinds_of_layers(case: Case) -> Code | None:
    """Kinds of layers with separate tables, which programs with a single table get wrong."""
    turning = case.analysis.turning
    tables = {(g.base, g.rope_type, g.turning, g.head_dim, g.attention_factor) for g in turning}
    still = [g for g in case.analysis.groups if g.kind == "none"]
    if len(tables) < 2 and not (still and turning):
        return None
    parts = [f"{g.name}: base {g.base:,.0f}, {g.rope_type}, {g.turning} entries" for g in turning]
    parts += [f"{g.name}: no rotation" for g in still]
    return "kinds_of_layers", {"listed": "; ".join(parts)}


def low_precision(case: Case) -> Code | None:
    """A 16-bit model, whose phases must not be 16-bit."""
    fields = {**case.configuration.outside, **case.stated}
    name = str(fields.get("dtype") or fields.get("torch_dtype") or "").removeprefix("torch.")
    error = case.phase_error(name)
    low = error is not None and name != "float32"
    return ("low_precision", {"name": name, **error._asdict()}) if low else None


def float32_precision(case: Case) -> Code | None:
    """Positions at which a float32 product is inaccurate."""
    error = case.phase_error("float32")
    return ("float32_precision", error._asdict()) if error and error.largest >= _RADIANS else None


def reported(case: Case) -> Code | None:
    """Threads in which users met faults of programs with this type of model."""
    return ("reported", {"name": case.name}) if thread_names(case.name) else None


def _others(case: Case, what: str) -> tuple[float, dict[str, float]]:
    """Value of the first program, and values that differ under the same scaling type."""
    first = case.reading(case.first)
    if first is None:
        return 1.0, {}
    own, readings = getattr(first, what), {p.name: case.reading(p) for p in case.analysis.readers}
    alike = {n: r for n, r in readings.items() if r and r.turns and r.rope_type == first.rope_type}
    values = {name: getattr(reading, what) for name, reading in alike.items()}
    return own, {name: value for name, value in values.items() if not _close(value, own)}


def _close(one: float | int, other: float | int) -> bool:
    return math.isclose(one, other, rel_tol=SAME) or (math.isnan(one) and math.isnan(other))


CHECKS: tuple[Callable[[Case], Code | None], ...] = (
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


def findings(case: Case) -> tuple[Finding, ...]:
    """Findings of a configuration, most severe first."""
    result, gguf = [], case.configuration.form == "gguf"
    for check in CHECKS:
        code, values = check(case) or ("", {})
        row = texts().get(code, {})
        if row and not (gguf and row.get("config_only")):
            threads = thread_names(case.name) if code == "reported" else row.get("threads", ())
            text, remedy = (row[part].format(**values) for part in ("text", "remedy"))
            for name, own in program_facts("llama_cpp")["keys"].items() if gguf else ():
                text, remedy = text.replace(name, own), remedy.replace(name, own)
            result.append(Finding(code, row["severity"], text, remedy, tuple(threads)))
    return tuple(sorted(result, key=lambda one: SEVERITIES.index(one.severity)))

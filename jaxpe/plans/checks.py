"""Known faults of rotary configurations.

A check yields the codes of its findings, with values of their texts. `findings.toml` has the texts,
remedies and threads. Positions of packed or left-padded rows are not checked.
"""

import itertools
import math
import reprlib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jaxpe._core.errors import nearest
from jaxpe.plans.comparison import (
    SAME,
    alike,
    largest_ratio,
    same_frequencies,
    shown_error,
    shown_factor,
)
from jaxpe.plans.configuration import Configuration
from jaxpe.plans.evaluation import ModelGroup, program_result
from jaxpe.plans.families import REMOTE_CODE, thread_names
from jaxpe.plans.fields import ORIGINAL, is_finite
from jaxpe.plans.layers import layer_groups
from jaxpe.plans.programs.base import (
    ONE_LIST,
    VERSION_4,
    YARNS,
    Program,
    scaling_type,
    yarn_scale,
)
from jaxpe.plans.programs.facts import program_facts
from jaxpe.plans.programs.keys import COMPUTED, stated_keys
from jaxpe.plans.programs.table import choose_programs
from jaxpe.plans.result import SEVERITIES, Finding, GroupNumbers, ProgramResult, RopeAnalysis
from jaxpe.plans.scaling import ROPE_TYPES

Code = tuple[str, dict[str, Any]]
Codes = Iterator[Code]
_FACTORS = ("attention_factor", "logit_factor", "query_factor")
_RADIANS = 0.01  # smallest error of a float32 phase that is reported


class Case:
    """Configuration and its analysis, with the quantities that checks share.

    Attributes:
        configuration: fields of the file.
        analysis: result without findings.
        model: text model, or the decoder.
        name: model type of `model`.
        stated: fields of `model`, as the file has them.
        widest: rotating layers that reach furthest.
        first: reference program, which others are compared with; None if every program refuses the
            file, or if the model type has no rules.
        context: configured length.
        length: longest text.
        scaling_entry: scaling entry of the file.
        parts: parts of `scaling_entry` by kind of layer.
        entry: part for the widest layers.
        kind: scaling type, as the file names it.
        original: L0 of the entry; None if absent or not positive.
        factor: s of the entry; None if absent or not positive.
        scaled: length after scaling.
        reference: numbers of `first` for the widest layers.
    """

    def __init__(self, configuration: Configuration, analysis: RopeAnalysis):
        self.configuration, self.analysis = configuration, analysis
        self.model, self.widest = configuration.models[-1], analysis.widest
        self.name, self.stated = self.model.family.model_type, self.model.fields.stated
        newest = (p for p in analysis.programs if p.name == analysis.numbers_of)
        self.first = next(newest, None) if self.model.has_rules else None
        self.context, self.length = analysis.context, analysis.length
        entry = self.stated.get("rope_scaling") or self.stated.get("rope_parameters")
        self.scaling_entry = entry if isinstance(entry, Mapping) else {}
        self.parts = {k: v for k, v in self.scaling_entry.items() if isinstance(v, Mapping)}
        every = (self.parts.get(self.widest.name if self.widest else ""), *self.parts.values())
        self.entry = next((one for one in every if one is not None), self.scaling_entry)
        self.kind = scaling_type(self.entry)
        self.original, self.factor = self.number(ORIGINAL), self.number("factor")
        self.scaled = (self.original or self.context) * (self.factor or 1.0)
        self.reference = self.numbers(self.first)

    def number(self, name: str) -> float | None:
        """Positive number of the entry; None for any other value."""
        value = self.entry.get(name)
        return float(value) if is_finite(value) and value > 0 else None

    def program_with_trait(self, trait: str) -> ProgramResult | None:
        """First program with a trait that reads the configuration."""
        return next((p for p in self.analysis.accepted_by if trait in p.traits), None)

    def numbers(self, program: ProgramResult | None) -> GroupNumbers | None:
        """Numbers of a program for the layers that reach furthest."""
        if program is None or program.problem or self.widest is None:
            return None
        return program.numbers[self.analysis.groups.index(self.widest)]

    def changed_results(
        self, programs: Iterable[Program], changed: Mapping[str, Any], context: int
    ) -> list[ProgramResult]:
        """Numbers of programs for the file with changed fields of the text model."""
        fields = self.model.fields.replaced({**self.stated, **changed})
        last = self.model._replace(fields=fields, context=context)
        models = *self.configuration.models[:-1], last
        turning = (one for one in models if one.family.kind != "axial")
        groups = [ModelGroup(one, group) for one in turning for group in layer_groups(one)]
        changed_file = self.configuration._replace(models=models)
        return [program_result(one, changed_file, groups, context) for one in programs]

    def _changed_numbers(self, programs: Iterable[Program], changed: Mapping[str, Any]):
        return list(map(self.numbers, self.changed_results(programs, changed, self.context)))

    @cached_property
    def ignored_keys(self) -> dict[str, list[dict[str, GroupNumbers]]]:
        """Keys of the entry that some programs use and others ignore, with the numbers of both.

        A program uses a key if it computes other numbers without it. Others ignore it if these are
        their numbers.
        """
        name = "rope_scaling" if self.stated.get("rope_scaling") else "rope_parameters"
        part = next((k for k, v in self.parts.items() if v is self.entry), None)
        accepting = {one.name for one in self.analysis.accepted_by
                     if name == "rope_scaling" or VERSION_4 not in one.traits}  # fmt: skip
        every = choose_programs(None, self.configuration.form)
        programs = [one for one in every if one.name in accepting]
        keys = sorted(COMPUTED.intersection(stated_keys(self.entry))) if self.reference else ()
        result = dict[str, list[dict[str, GroupNumbers]]]()
        numbers = self._changed_numbers(programs, {}) if keys else []
        for key in keys:
            without = {k: v for k, v in self.entry.items() if k != key}
            whole = without if part is None else {**self.scaling_entry, part: without}
            using, others = dict[str, GroupNumbers](), dict[str, GroupNumbers]()
            usual = None
            changed = self._changed_numbers(programs, {name: whole})
            for one, now, then in zip(programs, numbers, changed, strict=True):
                if now is not None and then is not None and now.turns:
                    same = alike(now, then)
                    (others if same else using)[one.name] = now
                    usual = usual if same or usual else then
            others = {k: v for k, v in others.items() if usual and alike(v, usual)}
            result |= {key: [using, others]} if others else {}
        return result

    @cached_property
    def explained(self) -> set[str]:
        """Programs that differ from the reference for a reason that another finding tells."""
        first, sides = self.analysis.numbers_of, itertools.chain(*self.ignored_keys.values())
        names = {name for side in sides if first not in side for name in side}
        old = self.program_with_trait(VERSION_4) if version_4_code(self) else None
        return names | ({old.name} if old else set())

    def differences(self, what: str) -> Iterator[tuple[str, str]]:
        """Disagreements about a quantity: group, and values by program."""
        for group, kind, values in self.analysis.disagreements:
            if kind == what and group is not None:
                listed = ", ".join(f"{name} {value}" for name, value in values.items())
                yield self.analysis.groups[group].name, listed


def program_codes(case: Case) -> Codes:
    """Programs that refuse the configuration, implausible numbers, and keys that no rule uses."""
    problems: dict[str, list[str]] = {}
    for one in case.analysis.programs:
        if one.problem:
            problems.setdefault(one.problem, []).append(one.name)
    if problems:
        listed = "; ".join(f"{', '.join(names)}: {problem}" for problem, names in problems.items())
        code = "refused" if case.analysis.programs[0].problem else "refused_by_some"
        yield code, {"listed": listed}
    if case.model.family.since == REMOTE_CODE:  # transformers has no class
        yield "own_code", {}
    # transformers only warns of these numbers.
    row = texts()["unlikely"]
    values = row["usual"] | {k: v for k, v in case.entry.items() if isinstance(v, int | float)}
    pairs = [(one, least, values.get(least, least)) for one, least in row["least"].items()]
    listed = ", ".join(f"{one} below {least}" for one, least, value in pairs if values[one] < value)
    if listed and case.kind not in ("default", "mrope") and case.configuration.form != "gguf":
        yield "unlikely", {"listed": listed}
    if case.analysis.unread:
        keys = {name: name.partition(".")[2] for name in case.analysis.unread
                if name.startswith("rope_")}  # fmt: skip
        near = {name: nearest(key, COMPUTED - case.entry.keys()) for name, key in keys.items()
                if key not in COMPUTED}  # fmt: skip
        shown = (f"{name} (is it {near[name]}?)" if near.get(name) else name
                 for name in case.analysis.unread)  # fmt: skip
        yield "unread", {"names": ", ".join(shown)}


def type_codes(case: Case) -> Codes:
    """Scaling types that transformers does not have, and entries that contradict each other."""
    kind, types = case.kind, sorted({*ROPE_TYPES} - {"ntk", "ntk_by_parts"})
    if kind not in (*types, *case.model.family.types, "default", "mrope", "none", "axial"):
        near = {"su": "longrope"}.get(kind, "yarn" if kind in YARNS else nearest(kind, types))
        meant = f"Write {near!r} if you mean that." if near else f"Use one of {', '.join(types)}."
        yield "type_unknown", {"meant": meant}
    names = case.entry.get("type"), case.entry.get("rope_type")
    differ = all(isinstance(name, str) for name in names) and names[0] != names[1]
    if differ and sorted(map(str, names)) not in texts()["types_differ"]["alike"]:
        yield "types_differ", {"first": names[0], "second": names[1]}
    old, new = (case.stated.get(name) for name in ("rope_scaling", "rope_parameters"))
    if old and new and isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted(k for k in {*old, *new} - {"rope_theta", "type"} if old.get(k) != new.get(k))
        if keys:
            yield "entries_differ", {"keys": ", ".join(keys)}


def key_codes(case: Case) -> Codes:
    """Keys and entries that the model's class ignores."""
    family, numbers = case.model.family, case.reference
    stated = scaling_type(case.scaling_entry) != "default" or "rope_theta" in case.scaling_entry
    if family.bases and stated and not case.stated.get("rope_scaling") and not case.parts:
        yield "flat_entry_lost", {}  # its class completes an entry for each kind of layer
    if case.parts and numbers and not (family.by_kind or family.bases or family.convert):
        yield "parts_lost", {"parts": ", ".join(case.parts), "base": numbers.base}
    share = case.stated.get("partial_rotary_factor") or case.entry.get("partial_rotary_factor")
    unused = isinstance(share, int | float) and share != 1 and not (family.share or family.latent)
    if unused and numbers and numbers.rope_type == "default":
        yield "share_ignored", {"share": share, "turning": numbers.turning}
    listed = [
        f"{key} = {reprlib.repr(case.entry[key])} is used by {', '.join(using)} and ignored by "
        f"{', '.join(others)}: {_difference(*(next(iter(x.values())) for x in (using, others)))}"
        for key, (using, others) in case.ignored_keys.items()
    ]
    if listed:
        yield "keys_ignored", {"listed": "; ".join(listed)}


def _difference(one: GroupNumbers, other: GroupNumbers) -> str:
    """Text of the quantities that two programs compute differently."""
    names = {"attention_factor": "cos and sin", "logit_factor": "logits", "query_factor": "queries"}
    pairs = {what: [shown_factor(getattr(x, name)) for x in (one, other)]
             for name, what in names.items()}  # fmt: skip
    parts = [f"{what} times {a:g}, not {b:g}" for what, (a, b) in pairs.items() if a != b]
    if not same_frequencies(one.frequencies, other.frequencies):
        parts.append(f"frequencies differ {_ratio(one, other)}")
    return ", ".join(parts)


def base_code(case: Case) -> Code | None:
    """Absent base θ: each program uses its default, and the defaults differ."""
    numbers, form = case.reference, case.configuration.form
    names = {"rope_theta", "rotary_emb_base", "rope_ratio", "default_theta"}
    names |= {name for name, _ in case.model.family.bases.values()}
    stated = names & {key for key, value in case.stated.items() if value is not None}
    if numbers is None or stated or "rope_theta" in case.entry or form == "options":
        return None
    field = case.model.family.nested_base
    nested = case.model.fields.number(field)
    values = {"base": numbers.base, "field": field, "nested": nested}
    if nested is not None:
        return None if nested == numbers.base else ("base_nested", values)
    code = "base_missing" if math.isclose(numbers.base, 1e4) else "base_of_class_missing"
    return "base_of_gguf_missing" if form == "gguf" else code, values


def version_4_code(case: Case) -> Code | None:
    """Entries in `rope_parameters` alone, which transformers 4 does not read."""
    old, new = case.numbers(case.program_with_trait(VERSION_4)), case.reference
    if old is None or new is None or not case.stated.get("rope_parameters"):
        return None
    lost = [f"the base is {old.base:,.0f} instead of {new.base:,.0f}"]
    lost *= not _close(old.base, new.base)
    if old.rope_type != new.rope_type:
        lost.append(f"the scaling is {old.rope_type} instead of {new.rope_type}")
    if old.turning != new.turning:
        lost.append(f"{old.turning} entries of a head rotate instead of {new.turning}")
    return ("unseen_by_4", {"lost": ", and ".join(lost)}) if lost else None


def number_codes(case: Case) -> Codes:
    """Bases and attention factors that are absent or incomplete in the file."""
    yield from filter(None, (base_code(case), version_4_code(case)))
    bases = {group.base for group in case.analysis.turning}
    stated = case.stated.get("rope_theta")  # OLMo 3: applies to full attention alone
    if case.name == "olmo3" and isinstance(stated, int | float) and len(bases) > 1:
        yield "second_base_lost", {"stated": stated, "other": min(bases)}
    stated = [name for name in ("mscale", "mscale_all_dim") if case.number(name)]
    if len(stated) == 1 and case.kind in YARNS and not case.number("attention_factor"):
        missing = "mscale_all_dim" if stated == ["mscale"] else "mscale"
        yield "mscale_alone", {"key": stated[0], "missing": missing}


def difference_codes(case: Case) -> Codes:
    """Quantities that programs compute differently."""
    turns = "; ".join(f"{name}: {values}" for name, values in case.differences("turns"))
    if turns:
        yield "turning_differs", {"listed": turns}
    for name, listed in itertools.islice(case.differences("pairing"), 1):
        yield "pairing_differs", {"group": name, "listed": listed}
    yield from filter(None, [_frequency_code(case)])
    for what in _FACTORS if case.first else ():
        values = _factors(case, what)
        reference = values.pop(case.analysis.numbers_of, 1.0)
        others = {k: v for k, v in values.items() if shown_factor(v) != shown_factor(reference)}
        code = f"{what}_differs" if others else what
        if code in texts() and (others or not _close(reference, 1.0)):
            listed = ", ".join(f"{name} uses {value:.4g}" for name, value in others.items())
            known = {"reference": reference, "listed": listed, "last": case.length - 1}
            yield code, known | {"first": case.analysis.numbers_of}


def _factors(case: Case, what: str) -> dict[str, float]:
    """A factor by program: of the widest layers under the same scaling, or of queries anywhere."""
    programs = (one for one in case.analysis.programs if one.name not in case.explained)
    if what == "query_factor":
        return {
            one.name: max(x.query_factor for x in one.numbers) for one in programs if one.numbers
        }
    numbers, first = {one.name: case.numbers(one) for one in programs}, case.reference
    return {name: getattr(one, what) for name, one in numbers.items()
            if one and first and one.turns and one.rope_type == first.rope_type}  # fmt: skip


def _frequency_code(case: Case) -> Code | None:
    """Programs that compute other frequencies in any group of layers."""
    first, groups = case.first, case.analysis.groups
    if first is None or (base_code(case) or ("",))[0] == "base_nested":  # has a finding already
        return None
    names: dict[str, list[str]] = {}
    for program in case.analysis.programs:
        for numbers, usual in zip(program.numbers, first.numbers, strict=False):
            both = numbers.turns and usual.turns and program.name not in case.explained
            if both and not same_frequencies(numbers.frequencies, usual.frequencies):
                where = f", {groups[usual.group].name}" if len(groups) > 1 else ""
                names.setdefault(f"{where}: {_ratio(numbers, usual)}", []).append(program.name)
    if not names:
        return None
    listed = "; ".join(f"{', '.join(programs)}{text}" for text, programs in names.items())
    return "frequencies_differ", {"first": first.name, "listed": listed}


def _ratio(numbers: GroupNumbers, usual: GroupNumbers) -> str:
    ratio = largest_ratio(numbers.frequencies, usual.frequencies)
    if math.isnan(ratio):
        return f"{numbers.turning} entries rotate, not {usual.turning}"
    cause = ""
    for name, text in (("base", ",.0f"), ("rope_type", ""), ("factor", ".4g")):
        one, other = (f"{getattr(x, name):{text}}" for x in (numbers, usual))
        if not cause and one != other and "nan" not in (one, other):  # not stated
            cause = f"{name} {one}, not {other}, ".removeprefix("rope_type ")
    return f"{cause}up to {max(ratio, 1 / ratio):.3g} times {'higher' if ratio > 1 else 'lower'}"


def length_codes(case: Case) -> Codes:
    """Lengths before and after scaling that contradict each other, or that programs misread."""
    original, factor, context = case.original, case.factor, case.context
    longer = [one for one in case.analysis.programs if one.longest > context]
    if case.kind == "yarn":
        longer = [one for one in longer if not _close(one.longest, case.scaled)]
    if longer:  # the length after scaling, multiplied by the factor again
        listed = ", ".join(f"{one.name} allows {one.longest:,.0f}" for one in longer)
        options = {_length_option(one.name): one.name.split()[0] for one in longer}
        named = " and ".join(f"{option} {context} for {name}" for option, name in options.items())
        yield "length_multiplied", {"listed": listed, "options": named}
    if case.kind in YARNS and original and factor and original != context:
        yield "length_is_scaled" if _close(case.scaled, context) else "lengths_contradict", {}
    missing = not case.entry.get(ORIGINAL) and not case.stated.get(ORIGINAL)
    if missing and case.kind in (*YARNS, "llama3", "longrope", "su"):
        yield "original_missing", {}
    if case.kind == "dynamic" and not (case.model.family.alpha and case.number("alpha")):
        yield "dynamic_original" if original and original != context else "dynamic_length", {}
    # Qwen 1: its code stretches the base beyond the training length.
    on = [name for name in ("use_dynamic_ntk", "use_logn_attn") if case.stated.get(name) is True]
    if on and case.model.fields.used.issuperset(on):
        yield "own_dynamic", {"names": " and ".join(on)}
    metadata = case.configuration.gguf
    extended = metadata.get("rope.scaling.original_context_length")
    shorter = isinstance(extended, int) and 0 < extended < context
    if not case.entry and (shorter or metadata.get("rope.scaling.type") == "longrope"):
        short = f" from {extended:,}" if shorter else ""
        yield "factors_missing", {"short": short}
    if case.kind in (*YARNS, "linear", "dynamic") and "mrope_section" in case.entry:
        yield "scaling_with_sections", {}
    # A text longer than what training and the scaling cover, or than the file says.
    covered = max(context, case.scaled if original else 0)
    unseen = case.widest.unseen if case.widest is not None else 0
    if unseen and case.length > covered * (1 + SAME):
        stretched = case.kind in (*YARNS, "default", "mrope", "proportional")
        code = "beyond_scaling" if stretched else "beyond_own_scaling"
        yield code, {"covered": covered, "unseen": unseen}
    elif case.length > context and {g.kind for g in case.analysis.groups} - {"linear", "axial"}:
        yield "beyond_context", {}
    stated = case.number("attention_factor")  # the formula's value follows the new factor
    usual = {1.0, shown_factor(yarn_scale(factor or 1.0))}
    if case.analysis.recipes and stated and shown_factor(stated) not in usual:
        yield "attention_factor_reset", {"stated": stated}
    if case.kind == "linear" and case.widest and not original:
        yield "linear_original", {}
    numbers = case.numbers(case.program_with_trait(ONE_LIST))
    if numbers and numbers.rope_type == "longrope" and context > numbers.original > 0:
        yield "longrope_lists", {"original": numbers.original}


def _length_option(program: str) -> str:
    return program_facts("programs")[program]["length_option"]


def model_codes(case: Case) -> Codes:
    """Properties that are easily overlooked: several tables, precision, reported faults."""
    turning = case.analysis.turning
    tables = {(g.base, g.rope_type, g.turning, g.head_dim, g.attention_factor) for g in turning}
    still = [g for g in case.analysis.groups if g.kind == "none"]
    if len(tables) > 1 or (still and turning):  # programs with a single table get it wrong
        rows = [(g, f"base {g.base:,.0f}, {g.rope_type}, {g.turning} entries") for g in turning]
        rows += [(g, "no rotation") for g in still]
        names = [g.name for g, _ in rows]
        layers = [f" {reprlib.repr(g.layers)}" * (names.count(g.name) > 1) for g, _ in rows]
        parts = [f"{g.name}{which}: {text}" for (g, text), which in zip(rows, layers, strict=True)]
        yield "kinds_of_layers", {"listed": "; ".join(parts)}
    longest = {e[1]: e for e in case.analysis.precision if (e[0], e[2]) == (case.length, "all")}
    fields = {**case.configuration.outside, **case.stated}
    dtype = str(fields.get("dtype") or fields.get("torch_dtype") or "").removeprefix("torch.")
    if dtype in longest and dtype != "float32":
        error = longest[dtype]
        yield "low_precision", {"name": dtype, "error": shown_error(error), "lost": error.lost}
    if "float32" in longest and longest["float32"].largest >= _RADIANS:
        yield "float32_precision", {"error": shown_error(longest["float32"])}
    if thread_names(case.name) and case.analysis.disagreements:
        yield "reported", {}


def _close(one: float | int, other: float | int) -> bool:
    return math.isclose(one, other, rel_tol=SAME) or (math.isnan(one) and math.isnan(other))


CHECKS: tuple[Callable[[Case], Codes], ...] = (
    program_codes, type_codes, key_codes, number_codes, difference_codes, length_codes, model_codes,
)  # fmt: skip


@cache
def texts() -> Mapping[str, Any]:
    """Severity, text, remedy and threads of each finding, by its code."""
    return tomllib.loads(Path(__file__).with_name("findings.toml").read_text("utf-8"))


def findings(case: Case) -> tuple[Finding, ...]:
    """Findings of a configuration, most severe first."""
    result, gguf = [], case.configuration.form == "gguf"
    shared = {name: getattr(case, name) for name in ("name", "kind", "context", "length", "scaled")}
    shared |= {"original": int(case.original or 0), "factor": case.factor}
    for code, values in itertools.chain.from_iterable(check(case) for check in CHECKS):
        row = texts()[code]
        if gguf and row.get("config_only"):
            continue
        threads = thread_names(case.name) if code == "reported" else row.get("threads", ())
        text, remedy = (row[part].format(**shared | values) for part in ("text", "remedy"))
        for name, key in program_facts("llama_cpp")["keys"].items() if gguf else ():
            text, remedy = text.replace(name, key), remedy.replace(name, key)
        result.append(Finding(code, row["severity"], text, remedy, tuple(threads)))
    return tuple(sorted(result, key=lambda one: SEVERITIES.index(one.severity)))

"""Page of a rotary configuration. It does not import JAX."""

import math
import re
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxpe.plans import RopeAnalysis
from jaxpe.plans.comparison import SAME, shown_error
from jaxpe.plans.result import GroupNumbers, LayerPlan
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import number, ranges
from jaxpe.report.writing import page

KINDS = {
    "rotary": "rotates", "axial": "rotates by axis", "none": "no positions", "linear": "recurrence",
    "bias": "bias", "table": "position table", "convolution": "position convolution",
}  # fmt: skip
# What the columns mean, by table.
NOTES = {
    "Layers": "layers, +6: every sixth from there. rotated: entries of a query head. pairs, half: "
    "entry i with i + half; interleaved: 2i with 2i + 1; 24+20+20: frequencies of time, height and "
    "width. window: positions that a query sees, itself included; ±: to both sides.",
    "What programs compute": "≠: differs from the first. s, L0: scaling factor, length before "
    "scaling. cos, sin: factor on both. logits, queries: further factors, on all logits and on the "
    "last query. evidence, run: compared with the program; read from source: rules not run.",
    "Frequencies": "never: complete no rotation within the trained positions, before scaling. at "
    "reach: within the longest text and the window, after scaling. unseen: slow, with phases "
    "beyond all of training. kept, ÷ s: not changed by scaling, or divided by its full factor.",
    "Phases": "rounded: all numbers, or frequencies alone. π (lost): the largest error there is. "
    "off by 0.1: frequencies with a larger error.",
}
_PLACES = {
    "first": "", "last": ", last entries", "latent": ", rope part", "indexer": ", indexer",
    "indexer, last": ", indexer, last entries",
}  # fmt: skip
_OF_GGUF = (
    " Pairs are those of this file: where its converter reorders rows of queries and keys, "
    "config.json has the other pairing."
)
_NOT_COMPARED = {"–", "as weights"}
_QUIET = {"logits": "1", "queries": "1", "frequencies": "as the first"}  # rows without news


@page.register
def rope_page(result: RopeAnalysis) -> Page:
    """Page of a configuration: layers, programs, frequencies, faults and settings to paste."""
    about = [result.model_type, f"{result.context:,} positions", result.status]
    if result.numbers_of and result.numbers_of != result.programs[0].name:
        about.append(f"numbers of {result.numbers_of}")
    programs = [
        (one.name, one.versions, number(one.longest) if one.problem is None else "–")
        for one in result.programs
    ]
    header = ("program", "versions with the same numbers", "longest text by default")
    found = (
        Section("What to check", _faults(result)),
        Section("Layers and programs", tables=tables_of(result), figures=figures_of(result)),
        Section(f"Settings for {result.length:,} positions", _settings(result), folded=True),
        Section("Programs", tables=[Table("Programs", header, programs)], folded=True),
    )
    return Page(
        "rope",
        f"Rotary positions: {result.source}",
        ", ".join(filter(None, about)),
        _lead(result),
        [each for each in found if each.findings or each.tables],
    )


def _lead(result: RopeAnalysis) -> list[Finding]:
    """Base, frequencies without a rotation, factor, phase error, and whether programs agree."""
    if result.status != "judged":
        todo = "Compare the model's own code with a plan that you write down."
        paste = "jaxpe.conformance.check_rotary(apply, jaxpe.plans.simple_plan(head_dim=128))"
        return [Finding("rules", "not judged", sentence=result.reason, todo=todo, paste=paste)]
    widest, programs = result.widest, result.accepted_by
    if not programs:
        return [Finding("programs that read the file", 0, unit="count")]
    agreement = _agreement(result)
    if widest is None:
        kinds = ", ".join(sorted({kind_text(group.kind) for group in result.groups}))
        none = Finding("layers that rotate along one axis", 0, unit="count", against=kinds)
        return [none, agreement]
    which = f", {kind_name(widest)} layers" * (len(result.turning) > 1)
    float32 = next(x for x in result.precision if x[:2] == (result.length, "float32"))
    size, count = f"{widest.turning} of {widest.head_dim} turn", f"of {len(widest.frequencies)}"
    never, trained = widest.never_round, f"within {widest.trained:,} training positions"
    label = "frequencies that never complete a rotation in training"
    near = f"near position {result.length:,}"
    return [
        Finding(f"base{which}", widest.base, against=size),
        Finding(f"{label}{which}", never, unit=count, against=trained),
        Finding(f"factor on cos and sin{which}", widest.attention_factor, against=widest.rope_type),
        Finding("phase error in float32", float32.largest, unit="rad", against=near),
        agreement,
    ]


def _agreement(result: RopeAnalysis) -> Finding:
    """Whether programs compute the same numbers, and what to do where they do not."""
    programs, odd = result.accepted_by, result.differing
    if len(programs) == 1:
        said = "No second program was chosen, or reads the file."
        if result.form == "gguf":
            said = (
                "The rules of transformers, vLLM and SGLang were not read: they need config.json."
            )
        return Finding("programs judged", 1, unit="count", against=programs[0].name, sentence=said)
    stands = ", for the file as it stands" if result.length > result.context else ""
    one = Finding(
        "programs that agree", len(programs) - len(odd), unit=f"of {len(programs)}",
        against=f"with {programs[0].name}{stands}",
    )  # fmt: skip
    if odd:
        one = one._replace(verdict=f"{short_names(odd)} differ")
    elif not result.unread and all(each.severity == "note" for each in result.findings):
        one = one._replace(sentence="The file needs no change.")
    if not odd or result.form == "options" or "keys_ignored" in {x.code for x in result.findings}:
        return one
    todo = "Check another program against golden vectors before it serves the model."
    paste = shlex.join(["jaxpe", "golden", result.source, "--out", "vectors"])
    return one._replace(todo=todo, paste=paste)


def _faults(result: RopeAnalysis) -> list[Finding]:
    """Faults, risks and notes; the first two are things to do."""
    rows = []
    for one in result.findings:
        met = f" Reported in {', '.join(one.references)}." * bool(one.references)
        said, note = f"{one.text} {one.remedy}{met}", one.severity == "note"
        name = one.code.replace("_", " ")
        rows.append(Finding(name, one.severity, sentence=said * note, todo=said * (not note)))
    return rows


def _settings(result: RopeAnalysis) -> list[Finding]:
    """Settings for a longer text, by program."""
    said = (
        "This YaRN is static: it changes the numbers of every text, short ones too. Use these "
        f"settings only where texts are longer than {result.context:,}. "
    )
    name = f"settings for {result.length:,} positions"
    return [
        Finding(name, one.program, todo=f"{said * (not k)}For {one.program}:", paste=one.text)
        for k, one in enumerate(result.recipes)
    ]


def kind_text(kind: str) -> str:
    """Text about what layers of a kind do.

    >>> kind_text("bias+table")
    'bias and position table'
    """
    return " and ".join(KINDS[part] for part in kind.split("+"))


def kind_name(one: LayerPlan) -> str:
    """Kind of layer, as its class names it."""
    return one.name.removesuffix("_attention").replace("_", " ")


def tables_of(result: RopeAnalysis) -> list[Table]:
    """Tables of layers, programs, frequencies and phases; each note of `NOTES` once."""
    header = ("kind", "layers", "does", "rotated", "base", "scaling", "window", "pairs")
    stacks = {"Layers": result.groups, "Other models": result.towers}.items()
    tables = [Table(title, header, [*map(_layer_row, one)]) for title, one in stacks if one]
    if result.status == "judged" and result.accepted_by:
        numbers = enumerate(result.accepted_by[0].numbers)
        tables += [_program_table(result, index) for index, one in numbers if one.turns]
    if result.turning:
        tables += [_frequency_table(result), _phase_table(result)]
    notes = dict(NOTES)
    if result.form == "gguf":
        notes["Layers"] += _OF_GGUF
    kinds = (re.split(" (?:in|near) ", each.title)[0] for each in tables)
    return [x._replace(note=notes.pop(kind, "")) for x, kind in zip(tables, kinds, strict=True)]


def _frequency_table(result: RopeAnalysis) -> Table:
    header = ("layers", "trained", "reach", "never", "at reach", "unseen", "kept", "÷ s")
    rows = []
    for one in result.turning:
        never = f"{one.never_round} of {len(one.frequencies)}"
        counts = (one.never_round_at_reach, one.unseen, one.kept, one.divided)
        lengths = f"{one.trained:,}", f"{one.reach:,}"
        rows.append((kind_name(one), *lengths, never, *map(str, counts)))
    return Table("Frequencies", header, rows)


def _phase_table(result: RopeAnalysis) -> Table:
    header = ("type", "rounded", "error, rad", "off by 0.1")
    rows = [
        (x.dtype, x.rounded, shown_error(x), f"{x.lost}")
        for x in result.precision
        if x.length == result.length
    ]
    return Table(f"Phases near position {result.length:,}", header, rows)


def _layer_row(one: LayerPlan) -> tuple[str, ...]:
    window = "–" if one.window is None else f"{'±' if one.two_sided else ''}{one.window:,}"
    kind, axial = kind_name(one) + f" in {one.part}" * bool(one.part), one.kind == "axial"
    turned = ("–", "–", "–")
    if axial or one.turns:
        scaling, place = (one.layout, "") if axial else (one.rope_type, _PLACES[one.place])
        base = f"{one.base:,.0f}" if math.isfinite(one.base) else "–"
        turned = f"{one.turning} of {one.head_dim}{place}", base, scaling
    pairs = [one.pairing or "–", "+".join(map(str, one.sections * (not axial)))]
    layers = "all" if one.layers is None else layer_ranges(one.layers)
    return kind, layers, kind_text(one.kind), *turned, window, ", ".join(filter(None, pairs))


def layer_ranges(layers: tuple[int, ...]) -> str:
    """Short text of layer indices: ranges, or the first two of equally spaced indices.

    >>> layer_ranges((0, 1, 2, 5)), layer_ranges((5, 11, 17, 23)), layer_ranges(())
    ('0–2, 5', '5, 11 +6 to 23', 'none')
    """
    steps = set(np.diff(layers).tolist())
    if len(layers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{layers[0]}, {layers[1]} +{steps.pop()} to {layers[-1]}"
    return ranges(np.isin(np.arange(max(layers, default=0) + 1), layers)) or "none"


def _program_table(result: RopeAnalysis, index: int) -> Table:
    """Table with one column for programs that agree, by evidence; ≠ marks a difference.

    Programs that refuse the file have no column: a finding names them.
    """
    programs, group = result.accepted_by, result.groups[index]
    first = programs[0].numbers[index]
    usual, columns = _cells(first, first), dict[tuple[str, ...], list[str]]()
    for program in programs:
        one = program.numbers[index]
        own = _cells(one, first) if one.turns else {"type": "does not rotate"}
        cells = (_marked(own.get(name, "–"), text) for name, text in usual.items())
        columns.setdefault((*cells, program.evidence), []).append(program.name)
    named = zip((*usual, "evidence"), *columns, strict=True)
    rows = [row for row in named if not {*row[1:]} <= {"–", _QUIET.get(row[0])}]
    names = [short_names(each) for each in columns.values()]
    title = "What programs compute"
    if len(result.turning) > 1:
        title += f" in {kind_name(group)} layers"
        title += f" of {group.part}" * bool(group.part)
    return Table(title, ("quantity", *names), rows)


def _marked(cell: str, usual: str) -> str:
    """A cell, with ≠ where it differs from that of the first program."""
    return f"≠ {cell}" if cell != usual and not {cell, usual} & _NOT_COMPARED else cell


def _cells(one: GroupNumbers, first: GroupNumbers) -> dict[str, str]:
    """Numbers of a program as texts, its frequencies as ratios to those of the first."""
    frequencies = f"{len(one.frequencies)} of them"
    if len(one.frequencies) == len(first.frequencies):
        ratios = one.frequencies / first.frequencies
        ratios = np.sort(ratios[abs(ratios - 1) > SAME])
        ends = dict.fromkeys(f"{x:.4g}" for x in (*ratios[:1], *ratios[-1:]))
        frequencies = f"× {' to '.join(ends)}" if ends else "as the first"
    unscaled = math.isnan(one.factor) or one.rope_type == "proportional"
    return {
        "type": one.rope_type,
        "base": f"{one.base:,.0f}",
        "rotated": str(one.turning),
        "s": "–" if unscaled else f"{one.factor:.4g}",
        "L0": f"{one.original:,}" if one.original else "–",
        "cos, sin": f"{one.attention_factor:.4g}",
        "logits": f"{one.logit_factor:.4g}",
        "queries": f"{one.query_factor:.4g}",
        "pairs": one.pairing.split(",")[0] if "permuted" not in one.pairing else "as weights",
        "frequencies": frequencies,
    }


def short_names(names: Sequence[str]) -> str:
    """Program names, each followed by its versions: "transformers 5.24, 4.57"."""
    versions: dict[str, list[str]] = {}
    for name in names:
        program, _, version = name.partition(" ")
        versions.setdefault(program, []).append(version)
    return ", ".join(f"{program} {', '.join(parts)}".strip() for program, parts in versions.items())


def figures_of(result: RopeAnalysis) -> list[Figure]:
    """Wavelengths before and after scaling."""
    widest = result.widest
    if widest is None:
        return []
    waves = {
        one.name.replace("_", " "): (
            2 * np.pi / one.unscaled,
            2 * np.pi / np.asarray(one.frequencies),
        )
        for one in result.turning
    }
    lengths = {"training": widest.trained, "longest": widest.reach}
    never = f"{widest.never_round} of {len(widest.frequencies)}"
    caption = (
        "Positions in which a frequency completes a rotation, before scaling (faint) and after. "
        "Above the training line, no rotation is complete in training."
    )
    title = f"{never} frequencies never complete a rotation in training"
    return [Figure("wavelengths", title, caption, [partial(plot_wavelengths, waves, lengths)])]


def plot_wavelengths(
    waves: dict[str, tuple[np.ndarray, np.ndarray]], lengths: dict[str, int], ax: Any
) -> None:
    """Wavelengths before and after scaling, against the lengths of training and use."""
    for name, (before, after) in waves.items():
        (line,) = ax.plot(before, lw=1.2, alpha=0.4)
        ax.plot(after, color=line.get_color(), label=name)
    for (name, length), dash in zip(lengths.items(), ("--", ":"), strict=True):
        ax.axhline(length, color="#555555", lw=1.0, ls=dash, label=f"{name}: {length:,}")
    ax.set(xlabel="frequency k", ylabel="wavelength, positions", yscale="log")
    ax.legend()

"""Page of a rotary configuration. It does not import JAX."""

import functools
import itertools
import math
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpe.plans import GroupNumbers, LayerPlan, PhaseError, ProgramResult, RopeAnalysis
from jaxpe.plans.comparison import SAME, same_frequencies, shown_error
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import number
from jaxpe.report.writing import page

KINDS = {
    "rotary": "rotates",
    "axial": "rotates by axis",
    "none": "no positions",
    "linear": "recurrence",
    "bias": "bias",
    "table": "position table",
    "convolution": "position convolution",
}
LEGEND = Table(
    "What the columns mean",
    ("column", "meaning"),
    (
        ("layers", "indices from 0; “+6” after two indices means every sixth layer from there"),
        ("rotated", "rotated entries of a query head, out of all its entries"),
        (
            "pairs",
            "half: entry i rotates with i + half; interleaved: entry 2i rotates with 2i + 1; "
            "numbers such as 24+20+20: frequencies of time, height and width",
        ),
        ("window", "positions that a query sees, itself included; ±: to both sides"),
        ("s", "scaling factor"),
        ("L0", "length before scaling"),
        ("cos, sin", "factor on both; logits are multiplied by its square"),
        ("logits", "additional factor on all logits"),
        ("queries", "factor on a query at the last position of the longest text"),
        ("trained", "training positions of the unscaled frequencies"),
        ("reach", "positions of the longest text, within the window"),
        ("never", "frequencies that never complete a rotation within the trained positions"),
        ("at reach", "frequencies that never complete one within the reach, after scaling"),
        ("unseen", "slow frequencies whose phase within the reach exceeds every training phase"),
        ("kept", "frequencies that scaling does not change"),
        ("÷ s", "frequencies that scaling divides by its full factor"),
        ("π (lost)", "error of half a rotation, the largest there is"),
        ("evidence", "run: compared with the program; read from source: rules read, not run"),
        ("≠", "value that differs from the first program"),
    ),
)
_PLACES = {
    "first": "", "last": ", last entries", "latent": ", rope part", "indexer": ", indexer",
    "indexer, last": ", indexer, last entries",
}  # fmt: skip
_NOT_COMPARED = {"–", "as weights"}
_ROUNDED = {"all": "all numbers", "frequencies": "frequencies only"}
_LAYER_HEADER = ("kind", "layers", "does", "rotated", "base", "scaling", "window", "pairs")
_ROWS = (
    "type", "base", "rotated", "s", "L0", "cos, sin", "logits", "queries", "pairs", "frequencies",
)  # fmt: skip


@page.register
def rope_page(result: RopeAnalysis) -> Page:
    """Page of a configuration: layers, programs, frequencies, faults and settings to paste."""
    context, shown_of = f"{result.context:,} positions", ""
    if result.numbers_of and result.numbers_of != result.programs[0].name:
        shown_of = f", numbers of {result.numbers_of}"
    programs = [
        (one.name, one.versions, one.evidence, number(one.longest) if one.problem is None else "–")
        for one in result.programs
    ]
    header = ("program", "versions with the same numbers", "evidence", "longest text by default")
    numbers = Section("Layers and programs", tables=tables_of(result), figures=figures_of(result))
    faults = Section("What to check", _faults(result))
    return Page(
        name="rope",
        title=f"Rotary positions: {result.source}",
        about=f"{result.model_type}, {context}, {result.status}{shown_of}",
        lead=_lead(result),
        sections=(
            *([faults] if result.findings else []),
            numbers,
            *([_settings(result)] if result.recipes else []),
            Section("Programs", tables=[Table("Programs", header, programs)], folded=True),
            Section(LEGEND.title, tables=[LEGEND], folded=True),
        ),
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
        return [
            Finding("layers that rotate along one axis", 0, unit="count", against=kinds),
            agreement,
        ]
    which = f", {kind_name(widest)} layers" * (len(result.turning) > 1)
    float32 = next(error for error in longest_phase_errors(result) if error.dtype == "float32")
    never, count = widest.never_round, len(widest.frequencies)
    return [
        Finding(f"base{which}", widest.base, against=f"{widest.turning} of {widest.head_dim} turn"),
        Finding(
            f"frequencies that never complete a rotation{which}", never, unit=f"of {count}",
            against=f"within {widest.trained:,} training positions",
        ),
        Finding(f"factor on cos and sin{which}", widest.attention_factor, against=widest.rope_type),
        Finding(
            "phase error in float32", float32.largest, unit="rad",
            against=f"near position {result.length:,}",
        ),
        agreement,
    ]  # fmt: skip


def _agreement(result: RopeAnalysis) -> Finding:
    """Whether programs compute the same numbers, and what to do where they do not."""
    programs, odd = result.accepted_by, result.differing
    serious = [one for one in result.findings if one.severity != "note"]
    sentence = "" if serious or result.unread or odd else "The file needs no change."
    told = {one.code for one in result.findings} & {"keys_ignored"}
    check = odd and not told and result.form != "options"
    stands = ", for the file as it stands" if result.length > result.context else ""
    return Finding(
        "programs that agree",
        len(programs) - len(odd),
        unit=f"of {len(programs)}",
        against=f"with {programs[0].name}{stands}",
        verdict=f"{short_names(odd)} differ" if odd else "",
        sentence=sentence,
        todo="Check another program against golden vectors before it serves the model."
        if check
        else "",
        paste=shlex.join(["jaxpe", "golden", result.source, "--out", "vectors"]) if check else "",
    )


def _faults(result: RopeAnalysis) -> list[Finding]:
    """Faults, risks and notes; the first two are things to do."""
    rows = []
    for one in result.findings:
        said, note = f"{one.text} {one.remedy}", one.severity == "note"
        said += f" Reported in {', '.join(one.references)}." if one.references else ""
        name, todo = one.code.replace("_", " "), "" if note else said
        rows.append(Finding(name, one.severity, sentence=said if note else "", todo=todo))
    return rows


def _settings(result: RopeAnalysis) -> Section:
    """Settings for a longer text, by program."""
    said = (
        "This YaRN is static: it changes the numbers of every text, short ones too. Use these "
        f"settings only where texts are longer than {result.context:,}. "
    )
    name = f"settings for {result.length:,} positions"
    rows = []
    for one in result.recipes:
        todo = f"{'' if rows else said}For {one.program}:"
        rows.append(Finding(name, one.program, todo=todo, paste=one.text))
    return Section(f"Settings for {result.length:,} positions", rows)


def longest_phase_errors(result: RopeAnalysis) -> list[PhaseError]:
    """Phase errors at the longest text."""
    return [error for error in result.precision if error.length == result.length]


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
    """Tables of layers, programs, frequencies and phases."""
    parts = len({group.part for group in result.groups}) > 1
    stacks = ("Layers", result.groups, parts), ("Other models", result.towers, True)
    tables = [
        Table(title, _LAYER_HEADER, [_layer_row(one, part) for one in plans])
        for title, plans, part in stacks if plans
    ]  # fmt: skip
    if result.status == "judged" and result.accepted_by:
        numbers = enumerate(result.accepted_by[0].numbers)
        tables += [_program_table(result, index, parts) for index, one in numbers if one.turns]
    if not result.turning:
        return tables
    header = ("layers", "trained", "reach", "never", "at reach", "unseen", "kept", "÷ s")
    rows = [
        (
            kind_name(one),
            *(f"{one.trained:,}", f"{one.reach:,}", f"{one.never_round} of {len(one.frequencies)}"),
            *map(str, (one.never_round_at_reach, one.unseen, one.kept, one.divided)),
        )
        for one in result.turning
    ]
    phases = [
        (one.dtype, _ROUNDED[one.rounded], shown_error(one), f"{one.lost}")
        for one in longest_phase_errors(result)
    ]
    title = f"Phases near position {result.length:,}"
    return [
        *tables,
        Table("Frequencies", header, rows),
        Table(title, ("type", "rounded", "error, rad", "off by 0.1"), phases),
    ]


def _layer_row(one: LayerPlan, part: bool) -> tuple[str, ...]:
    window = "–" if one.window is None else f"{'±' if one.two_sided else ''}{one.window:,}"
    kind = kind_name(one) + (f" in {one.part}" if part and one.part else "")
    axial, turned, pairs = one.kind == "axial", ("–", "–", "–"), "–"
    if axial or one.turns:
        scaling, place = (one.layout, "") if axial else (one.rope_type, _PLACES[one.place])
        turned = f"{one.turning} of {one.head_dim}{place}", f"{one.base:,.0f}", scaling
        sections = "" if axial or not one.sections else f", {'+'.join(map(str, one.sections))}"
        pairs = f"{one.pairing}{sections}" if one.pairing else "–"
    return kind, layer_ranges(one.layers), kind_text(one.kind), *turned, window, pairs


def layer_ranges(layers: tuple[int, ...] | None) -> str:
    """Short text of layer indices: ranges, or the first two of equally spaced indices.

    >>> layer_ranges((0, 1, 2, 5)), layer_ranges((5, 11, 17, 23)), layer_ranges(None)
    ('0-2, 5', '5, 11 +6 to 23', 'all')
    """
    if not layers:
        return "all" if layers is None else "none"
    steps = {b - a for a, b in itertools.pairwise(layers)}
    if len(layers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{layers[0]}, {layers[1]} +{steps.pop()} to {layers[-1]}"
    runs = itertools.groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0])
    ranges = ([layer for _, layer in run] for _, run in runs)
    texts = ["-".join(map(str, dict.fromkeys((one[0], one[-1])))) for one in ranges]
    if len(texts) > 4:
        return f"{len(layers)}: {', '.join(texts[:3])} … {texts[-1]}"
    return ", ".join(texts)


def _program_table(result: RopeAnalysis, index: int, parts: bool) -> Table:
    """Table with one column for programs that agree, by evidence; ≠ marks a difference."""
    first, group = result.accepted_by[0].numbers[index], result.groups[index]
    columns: dict[tuple[str, ...], list[str]] = {}
    for program in result.programs:
        column = (*_program_column(program, index, first), program.evidence)
        columns.setdefault(column, []).append(program.name)
    names = [short_names(programs) for programs in columns.values()]
    usual = _program_column(result.accepted_by[0], index, first)
    rows = [
        (name, *(_marked(column[row], usual[row], column[0]) for column in columns))
        for row, name in enumerate(_ROWS)
    ]
    rows.append(("evidence", *(column[-1] for column in columns)))
    header = ("quantity", *(["all programs"] if len(names) == 1 < len(result.programs) else names))
    several = len(result.turning) > 1
    suffix = f" in {group.name.replace('_', ' ')} layers" if several else ""
    suffix += f" of {group.part}" if several and group.part and parts else ""
    return Table(f"What programs compute{suffix}", header, rows)


def _marked(cell: str, usual: str, kind: str) -> str:
    """A cell, with ≠ where a program that reads the file differs from the first."""
    differs = cell != usual and not {cell, usual} & _NOT_COMPARED and kind != "refused"
    return f"≠ {cell}" if differs else cell


def short_names(names: Sequence[str]) -> str:
    """Program names, each followed by its versions: "transformers 5.24, 4.57"."""
    versions: dict[str, list[str]] = {}
    for name in names:
        program, _, version = name.partition(" ")
        versions.setdefault(program, []).append(version)
    return ", ".join(f"{program} {', '.join(parts)}".strip() for program, parts in versions.items())


def _program_column(program: ProgramResult, index: int, first: GroupNumbers) -> tuple[str, ...]:
    empty = ("–",) * (len(_ROWS) - 1)
    if program.problem is not None:
        return ("refused", *empty)
    one = program.numbers[index]
    if not one.turns:
        return ("does not rotate", *empty)
    if same_frequencies(one.frequencies, first.frequencies):
        frequencies = "as the first"
    elif len(one.frequencies) != len(first.frequencies):
        frequencies = f"{len(one.frequencies)} of them"
    else:
        ratios = one.frequencies / first.frequencies
        ratios = ratios[abs(ratios - 1) > SAME]
        ends = dict.fromkeys(f"{one:.4g}" for one in (ratios.min(), ratios.max()))
        frequencies = f"× {' to '.join(ends)}"
    return (
        one.rope_type,
        f"{one.base:,.0f}",
        str(one.turning),
        "–" if math.isnan(one.factor) or one.rope_type == "proportional" else f"{one.factor:.4g}",
        f"{one.original:,}" if one.original else "–",
        f"{one.attention_factor:.4g}",
        f"{one.logit_factor:.4g}",
        f"{one.query_factor:.4g}",
        one.pairing.split(",")[0] if "permuted" not in one.pairing else "as weights",
        frequencies,
    )


def figures_of(result: RopeAnalysis) -> list[Figure]:
    """Wavelengths before and after scaling, and phase errors."""
    widest, turning = result.widest, result.turning
    if widest is None:
        return []
    count, names = len(widest.frequencies), [one.name.replace("_", " ") for one in turning]
    waves = [(2 * np.pi / one.unscaled, 2 * np.pi / np.asarray(one.frequencies)) for one in turning]
    lengths = {"training": widest.trained, "longest": widest.reach}
    return [
        Figure(
            "wavelengths",
            f"{widest.never_round} of {count} frequencies never complete a rotation",
            "Positions in which a frequency completes a rotation, before scaling (faint) and "
            "after. Above the training line, no rotation is complete in training.",
            [functools.partial(plot_wavelengths, names, waves, lengths)],
        ),
        Figure(
            "precision",
            "Phase error by dtype",
            "Largest phase error over the last 256 positions of a text, at most π. Solid: all "
            "numbers are rounded to the dtype. Dashed: only frequencies are.",
            [functools.partial(plot_precision, result.precision)],
        ),
    ]


def plot_wavelengths(
    names: Sequence[str],
    waves: Sequence[tuple[np.ndarray, np.ndarray]],
    lengths: dict[str, int],
    ax: Any,
) -> None:
    """Wavelengths before and after scaling, against the lengths of training and use."""
    for name, (before, after) in zip(names, waves, strict=True):
        (line,) = ax.plot(before, lw=1.2, alpha=0.4)
        ax.plot(after, color=line.get_color(), label=name)
    for (name, length), dash in zip(lengths.items(), ("--", ":"), strict=True):
        ax.axhline(length, color="#555555", lw=1.0, ls=dash, label=f"{name}: {length:,}")
    ax.set(xlabel="frequency k", ylabel="wavelength, positions", yscale="log")
    ax.legend()


def plot_precision(errors: Sequence[PhaseError], ax: Any) -> None:
    """Largest phase error against the length of a text, a colour for each dtype."""
    colours: dict[str, str] = {}
    for name, rounded in dict.fromkeys((error.dtype, error.rounded) for error in errors):
        curve = [e for e in errors if (e.dtype, e.rounded) == (name, rounded)]
        lengths, largest = [e.length for e in curve], [max(e.largest, 1e-9) for e in curve]
        dash, label = ("-", name) if rounded == "all" else ("--", f"{name} frequencies")
        (line,) = ax.plot(
            lengths, largest, dash, color=colours.get(name), marker="o", ms=3, label=label
        )
        colours.setdefault(name, line.get_color())
    ax.axhline(math.pi, color="#555555", lw=0.8, ls=":")
    ax.set(xlabel="length of the text", ylabel="error, radians", xscale="log", yscale="log")
    ax.legend()

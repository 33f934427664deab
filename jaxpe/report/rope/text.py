"""Sentences and tables of a rotary configuration."""

import itertools
import math
from typing import TYPE_CHECKING

from jaxpe.plans import Finding, GroupNumbers, LayerPlan, PhaseError, ProgramResult, RopeAnalysis
from jaxpe.plans.comparison import SAME, same_frequencies, shown_error
from jaxpe.report.tables import table_group
from jaxpe.report.text import Headline, plural, visible

if TYPE_CHECKING:
    import rich.console

Rows = list[tuple[str, ...]]
KINDS = {
    "rotary": "rotates",
    "axial": "rotates by axis",
    "none": "no positions",
    "linear": "recurrence",
    "bias": "bias",
    "table": "position table",
    "convolution": "position convolution",
}
_PLACES = {
    "first": "", "last": ", last entries", "latent": ", rope part", "indexer": ", indexer",
    "indexer, last": ", indexer, last entries",
}  # fmt: skip
# Columns of the tables, and their meanings.
ROPE_LEGEND = (
    ("layers", "indices from 0; “+6” after two indices means every sixth layer from there"),
    ("rotated", "rotated entries of a query head, out of all its entries"),
    (
        "pairs",
        "half: entry i rotates with i + half; interleaved: entry 2i rotates with 2i + 1; numbers "
        "such as 24+20+20: frequencies of time, height and width",
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
    ("at reach", "frequencies that never complete a rotation within the reach, after scaling"),
    ("unseen", "slow frequencies whose phase within the reach exceeds every training phase"),
    ("kept", "frequencies that scaling does not change"),
    ("÷ s", "frequencies that scaling divides by its full factor"),
    ("π (lost)", "error of half a rotation, the largest there is"),
    ("evidence", "run: compared with the program; read from source: rules read, not run"),
    ("≠", "value that differs from the first program"),
)


def kind_text(kind: str) -> str:
    """Text about what layers of a kind do.

    >>> kind_text("bias+table")
    'bias and position table'
    """
    return " and ".join(KINDS[part] for part in kind.split("+"))


def rope_summary(result: RopeAnalysis) -> str:
    """Paragraph of layers, reach, programs and the first serious finding, to be read alone.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> rope_summary(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048)))
    'All layers rotate 64 of 64 entries of a head, base 10,000, ...'
    """
    return " ".join(part for part in (plan_summary(result), _todo(result)) if part)


def plan_summary(result: RopeAnalysis) -> str:
    """Sentences on layers, reach and agreement of programs, without the findings.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> plan_summary(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048)))
    'All layers rotate 64 of 64 entries of a head, base 10,000, ...'
    """
    if result.status == "not judged":
        return f"Not judged: {result.reason}."
    parts = [_layers(result), _reach(result), _programs(result)]
    return " ".join(part.strip() for part in parts if part)


def _layers(result: RopeAnalysis) -> str:
    groups, accepting = result.groups, result.accepted_by
    if not accepting:
        return "No program reads this file."
    if accepting[0] is not result.programs[0]:
        newest, other = result.programs[0].name, accepting[0].name
        refusal = f"{newest} gives no numbers for this file."
        if not result.numbers_of:
            return f"{refusal} {other} does."
        others = result._replace(programs=tuple(accepting))
        return f"{refusal} Those shown are of {other}. {_layers(others)}"
    if not any(group.turns or group.kind == "axial" for group in groups):
        kinds = sorted({kind_text(group.kind) for group in groups})
        return f"No layer rotates queries and keys ({', '.join(kinds)})."
    if len(groups) > 1:
        several = _several_parts(groups)
        shared = {_scaling_sentence(group) for group in result.turning}
        once = shared.pop() if len(result.turning) > 1 and len(shared) == 1 else ""
        sentences = (_layer_sentence(one, _name(one, several), brief=bool(once)) for one in groups)
        return " ".join(sentences) + once
    return _layer_sentence(groups[0], "All layers")


def _several_parts(groups: tuple[LayerPlan, ...]) -> bool:
    return len({group.part for group in groups}) > 1


def _name(group: LayerPlan, several: bool) -> str:
    name = visible(group.name.replace("_", " "))
    count = "" if group.layers is None else f"{plural(len(group.layers), 'layer')} of "
    phrase = f"{count}{name}"
    if several and group.part:
        phrase += f" in {visible(group.part)}"
    return phrase[0].upper() + phrase[1:]


def _layer_sentence(group: LayerPlan, name: str, *, brief: bool = False) -> str:
    axial = group.kind == "axial"
    if not group.turns and not axial:
        return f"{name}: {kind_text(group.kind)}."
    verb = "rotates" if group.layers is not None and len(group.layers) == 1 else "rotate"
    text = (
        f"{name} {verb} {group.turning} of {group.head_dim} entries of a head, base "
        f"{group.base:,.0f}, {group.pairing} pairing"
    )
    if axial:
        return f"{text}, by {' and '.join(map(visible, group.axes))}."
    window = f", within {group.window:,} positions" if group.window else ""
    return f"{text}{window}.{'' if brief else _scaling_sentence(group)}"


def _scaling_sentence(group: LayerPlan) -> str:
    if group.rope_type in ("default", "proportional"):
        return ""
    between = len(group.frequencies) - group.kept - group.divided
    return (
        f" {group.rope_type} keeps {group.kept} frequencies, divides {group.divided} by the full "
        f"factor and {between} by less; cos and sin are multiplied by {group.attention_factor:.4g}."
    )


def _reach(result: RopeAnalysis) -> str:
    widest = result.widest
    if widest is None:
        return ""
    text = (
        f"{widest.never_round} of {len(widest.frequencies)} frequencies never complete a rotation "
        f"within the {widest.trained:,} training positions."
    )
    if widest.unseen:
        text += (
            f" At {widest.reach:,} positions, the phases of {widest.unseen} of them exceed every "
            "training phase."
        )
    return text


def _programs(result: RopeAnalysis) -> str:
    accepting = result.accepted_by
    if len(accepting) < 2 or result.widest is None:
        return ""
    odd = differing_programs(result)
    if not odd:
        scope = ", for the file as it stands" if result.length > result.context else ""
        scope += ", without scaling" if scope and result.widest.rope_type == "default" else ""
        return f"All {len(accepting)} programs that read the file compute the same numbers{scope}."
    return f"{', '.join(odd)} differ{'s' if len(odd) == 1 else ''} from {accepting[0].name}."


def differing_programs(result: RopeAnalysis) -> list[str]:
    """Names of the programs that differ from the first in any quantity but the longest text."""
    odd = dict[str, None]()
    for group, what, values in result.disagreements:
        if group is not None and what != "rope_type":
            first = values.get(result.accepted_by[0].name)
            odd |= dict.fromkeys(name for name, value in values.items() if value != first)
    return list(odd)


def serious_findings(result: RopeAnalysis) -> list[Finding]:
    """Faults and risks, without notes."""
    return [one for one in result.findings if one.severity != "note"]


def _todo(result: RopeAnalysis) -> str:
    if serious := serious_findings(result):
        several = f"{len(serious)} points to check. The first: " if len(serious) > 1 else ""
        return f"{several}{serious[0].text} {serious[0].remedy}"
    if result.status != "judged" or result.unread or differing_programs(result):
        return ""
    return "The file needs no change."


def recipe_scope(result: RopeAnalysis) -> str:
    """Sentences on texts of which length the settings for a longer text are for.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> recipe_scope(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048, length=8192)))
    'This YaRN is static: ... only where texts are longer than 2,048.'
    """
    return (
        "This YaRN is static: it changes the numbers of every text, short ones too. Use these "
        f"settings only where texts are longer than {result.context:,}."
    )


def longest_phase_errors(result: RopeAnalysis) -> list[PhaseError]:
    """Phase errors at the longest text."""
    return [error for error in result.precision if error.length == result.length]


def headlines(result: RopeAnalysis) -> list[Headline]:
    """Numbers at the top of the page."""
    widest = result.widest
    if widest is None:
        return []
    float32 = next(error for error in longest_phase_errors(result) if error.dtype == "float32")
    programs, slow = result.accepted_by, f"{widest.never_round} of {len(widest.frequencies)}"
    agree = f"{len(programs) - len(differing_programs(result))} of {len(programs)}"
    within = f"frequencies, in {widest.trained:,} positions"
    which = f", {_kind_name(widest)} layers" * (len(result.turning) > 1)
    turn, factor = f"{widest.turning} of {widest.head_dim} turn", f"{widest.attention_factor:.4g}"
    return [
        Headline(f"Base{which}", f"{widest.base:,.0f}", turn),
        Headline(f"Never complete a rotation{which}", slow, within),
        Headline(f"On cos and sin{which}", factor, widest.rope_type),
        Headline("Float32 phase error", f"{shown_error(float32)} rad", f"at {result.length:,}"),
        Headline("Programs that agree", agree, f"with {programs[0].name}"),
    ]


def tables_of(result: RopeAnalysis) -> list[tuple[str, list[str], Rows]]:
    """Tables of layers, programs, frequencies and phases: title, header and rows of each."""
    several = _several_parts(result.groups)
    stacks = ("Layers", result.groups, several), ("Other models", result.towers, True)
    tables = [
        (title, _LAYER_HEADER, [_layer_row(one, part) for one in plans])
        for title, plans, part in stacks if plans
    ]  # fmt: skip
    if result.status == "judged" and result.accepted_by:
        numbers = enumerate(result.accepted_by[0].numbers)
        tables += [_program_table(result, index) for index, one in numbers if one.turns]
    if not result.turning:
        return tables
    header = ["layers", "trained", "reach", "never", "at reach", "unseen", "kept", "÷ s"]
    tables.append(("Frequencies", header, [_frequency_row(one) for one in result.turning]))
    rows: Rows = [
        (one.dtype, _ROUNDED[one.rounded], shown_error(one), f"{one.lost}")
        for one in longest_phase_errors(result)
    ]
    title = f"Phases near position {result.length:,}"
    return [*tables, (title, ["type", "rounded", "error, rad", "off by 0.1"], rows)]


_NOT_COMPARED = {"–", "as weights"}
_ROUNDED = {"all": "all numbers", "frequencies": "frequencies only"}
_LAYER_HEADER = ["kind", "layers", "does", "rotated", "base", "scaling", "window", "pairs"]
_ROWS = (
    "type", "base", "rotated", "s", "L0", "cos, sin", "logits", "queries", "pairs", "frequencies",
)  # fmt: skip


def _kind_name(one: LayerPlan) -> str:
    return visible(one.name.removesuffix("_attention").replace("_", " "))


def _layer_row(one: LayerPlan, part: bool) -> tuple[str, ...]:
    window = "–" if one.window is None else f"{'±' if one.two_sided else ''}{one.window:,}"
    kind = _kind_name(one) + (f" in {visible(one.part)}" if part and one.part else "")
    shared = kind, layer_ranges(one.layers), kind_text(one.kind)
    if one.kind == "axial":
        return (*shared, f"{one.turning} of {one.head_dim}", f"{one.base:,.0f}", one.layout, window,
                one.pairing or "–")  # fmt: skip
    if not one.turns:
        return (*shared, "–", "–", "–", window, "–")
    turns = f"{one.turning} of {one.head_dim}{_PLACES[one.place]}"
    sections = f", {'+'.join(map(str, one.sections))}" if one.sections else ""
    pairs = f"{one.pairing}{sections}" if one.pairing else "–"
    return (*shared, turns, f"{one.base:,.0f}", one.rope_type, window, pairs)


def layer_ranges(layers: tuple[int, ...] | None) -> str:
    """Short text of layer indices: ranges, or the first two of equally spaced indices.

    >>> layer_ranges((0, 1, 2, 5)), layer_ranges((5, 11, 17, 23)), layer_ranges(None)
    ('0-2, 5', '5, 11 +6 to 23', 'all')
    """
    if layers is None:
        return "all"
    if not layers:
        return "none"
    steps = {b - a for a, b in itertools.pairwise(layers)}
    if len(layers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{layers[0]}, {layers[1]} +{steps.pop()} to {layers[-1]}"
    runs = itertools.groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0])
    ranges = ([layer for _, layer in run] for _, run in runs)
    texts = ["-".join(map(str, dict.fromkeys((one[0], one[-1])))) for one in ranges]
    if len(texts) > 4:
        return f"{len(layers)}: {', '.join(texts[:3])} … {texts[-1]}"
    return ", ".join(texts)


def _program_table(result: RopeAnalysis, index: int) -> tuple[str, list[str], Rows]:
    """Table with one column for programs that agree, by evidence; ≠ marks a difference."""
    columns: dict[tuple[str, ...], list[ProgramResult]] = {}
    first = result.accepted_by[0].numbers[index]
    for program in result.programs:
        column = *_program_column(program, index, first), program.evidence
        columns.setdefault(column, []).append(program)
    names = [short_names([one.name for one in programs]) for programs in columns.values()]
    reference = _program_column(result.accepted_by[0], index, first)
    marked = [
        tuple(f"≠ {cell}" if cell != usual and not {cell, usual} & _NOT_COMPARED else cell
              for cell, usual in zip(column, (*reference, column[-1]), strict=True))
        if column[0] != "refused" else column
        for column in columns
    ]  # fmt: skip
    header = ["", *(["all programs"] if len(names) == 1 < len(result.programs) else names)]
    cells: Rows = [(name, *row) for name, *row in zip((*_ROWS, "evidence"), *marked, strict=True)]
    several = len(result.turning) > 1
    group = result.groups[index]
    suffix = f" in {visible(group.name.replace('_', ' '))} layers" if several else ""
    if several and group.part and _several_parts(result.groups):
        suffix += f" of {visible(group.part)}"
    return f"What programs compute{suffix}", header, cells


def short_names(names: list[str]) -> str:
    """Program names, each followed by its versions: "transformers 5.24, 4.57"."""
    versions: dict[str, list[str]] = {}
    for name in names:
        program, _, version = name.partition(" ")
        versions.setdefault(program, []).append(version)
    return ", ".join(f"{program} {', '.join(parts)}".strip() for program, parts in versions.items())


def _program_column(program: ProgramResult, index: int, first: GroupNumbers) -> tuple[str, ...]:
    if program.problem is not None:
        return ("refused", *["–"] * (len(_ROWS) - 1))
    one = program.numbers[index]
    if not one.turns:
        return ("does not rotate", *["–"] * (len(_ROWS) - 1))
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


def _frequency_row(one: LayerPlan) -> tuple[str, ...]:
    counts = one.never_round_at_reach, one.unseen, one.kept, one.divided
    never = f"{one.never_round} of {len(one.frequencies)}"
    return (_kind_name(one), f"{one.trained:,}", f"{one.reach:,}", never, *map(str, counts))


def rope_table(result: RopeAnalysis) -> "rich.console.Group":
    """Tables of layers, programs, frequencies and phases for a console: use `rich.print(...)`.

    Raises `MissingExtraError` without the extra `report`.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> found = explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048))
    >>> len(rope_table(found).renderables)
    4
    """
    return table_group(tables_of(result))


def thread_address(name: str) -> str:
    """Address of a thread on GitHub.

    >>> thread_address("vllm-project/vllm#56446")
    'https://github.com/vllm-project/vllm/issues/56446'
    """
    repository, _, number = name.partition("#")
    return f"https://github.com/{repository}/issues/{number}"

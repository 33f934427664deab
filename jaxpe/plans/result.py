"""Results of `jaxpe rope`."""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from jaxpe.plans.layers import Kind
from jaxpe.plans.programs.base import QueryScaling
from jaxpe.plans.scaling import RopeScaling

Severity = Literal["wrong", "risk", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # the worst first
Status = Literal["judged", "not judged"]


class LayerPlan(NamedTuple):
    """Plan of a group of layers, with the numbers of the reference program.

    The reference is `RopeAnalysis.numbers_of`. If it is empty, base is NaN, turning is 0 and
    frequencies are empty.

    Attributes:
        name: kind of layer, as the model's class names it.
        part: model of the file, such as "text_config"; empty for the whole file.
        layers: indices, from 0; None if the file does not give their number.
        kind: "rotary", "none", "linear", "bias", "table" or "axial".
        window: positions that a query sees, itself included; None for all.
        two_sided: whether the window extends to both sides of the query.
        head_dim: width of a query at the logits; 0 without rotation.
        turning: number of rotated entries of the head.
        place: place of the rotated entries: "first" or "last" in the head, "latent" for a separate
            part, "indexer" for the first and "indexer, last" for the last entries of the heads of
            sparse attention's indexer.
        pairing: "half" for entry i with i + turning/2, "interleaved" for 2i with 2i + 1; None
            without rotation.
        sections: numbers of frequencies of each axis of multimodal positions; empty for one axis.
        section_order: order of the sections: "contiguous"; "interleaved", pair by pair while an
            axis has pairs left; "alternating"; "height and width first", pairs of axes 1 and 2
            alternate before axis 0; "entries", sections divide the entries instead of the pairs,
            so the two entries of a pair rotate by different axes; empty for one axis.
        axes: names of the axes of axial layers.
        layout: layout of the axes in the head, for axial layers: "sections", the pairs of an axis
            are adjacent; "blocks", the entries of an axis are adjacent and pair among themselves;
            "alternating", the axes alternate pair by pair; "mixed sections", they alternate while
            both have pairs left; "crossed", frequencies are ordered for the other pairing, so the
            two entries of a pair rotate by different angles.
        unit: unit of a position, for axial layers: "patch"; "half image", from -1 to 1 over the
            image; "half base size", from -1 to 1 over a fixed size; "grid", the image is stretched
            over a fixed grid; "area", the grid has a fixed area; "frame"; "pixel".
        base: θ; NaN without rotation.
        rope_type: type of the scaling; "default" for none, "rope_freqs" for that tensor of a .gguf.
        attention_factor: factor on cos and sin; logits carry its square.
        logit_factor: additional factor on all logits.
        query_factor: factor on a query at the longest position.
        query_scaling: factor on queries by position; None for unscaled queries.
        frequencies: ω_k of the rotated entries in radians per position, for the longest text,
            `[turning / 2]`; for axial layers one array per axis.
        unscaled: ω_k before scaling.
        trained: number of training positions before scaling, at most the window.
        reach: number of positions of the longest text, at most the window.
        never_round: number of frequencies that never complete a rotation in `trained` positions,
            before scaling.
        never_round_at_reach: number that never complete a rotation within `reach`, after scaling.
        unseen: number in `never_round` whose phase at `reach` exceeds every training phase.
        kept: number of frequencies that scaling does not change.
        divided: number of frequencies that scaling divides by its full factor s.
        scaling: scaling with its numbers, as `jaxpe.encodings.rope` takes it; None for "default".
    """

    name: str
    part: str
    layers: tuple[int, ...] | None
    kind: Kind
    window: int | None
    two_sided: bool
    head_dim: int
    turning: int = 0
    place: str = "first"
    pairing: str | None = None
    sections: tuple[int, ...] = ()
    section_order: str = ""
    axes: tuple[str, ...] = ()
    layout: str = ""
    unit: str = ""
    base: float = math.nan
    rope_type: str = ""
    attention_factor: float = 1.0
    logit_factor: float = 1.0
    query_factor: float = 1.0
    query_scaling: QueryScaling | None = None
    frequencies: np.ndarray | tuple[np.ndarray, ...] = np.zeros(0)
    unscaled: np.ndarray = np.zeros(0)
    trained: int = 0
    reach: int = 0
    never_round: int = 0
    never_round_at_reach: int = 0
    unseen: int = 0
    kept: int = 0
    divided: int = 0
    scaling: RopeScaling | None = None

    @property
    def turns(self) -> bool:
        """Whether these layers rotate queries and keys along one axis."""
        return self.kind == "rotary" and self.turning > 0


class GroupNumbers(NamedTuple):
    """Numbers that one program computes for one group of layers.

    Attributes:
        group: index of the group.
        turns: whether the program rotates the group.
        rope_type: type of the scaling; "default" for none.
        base: θ.
        turning: number of rotated entries of the head.
        factor: s of the scaling; NaN without one.
        original: L0, the length before scaling; 0 without one.
        attention_factor: factor on cos and sin; logits carry its square.
        logit_factor: additional factor on all logits.
        query_factor: factor on a query at the longest position; 1 for unscaled queries.
        query_scaling: factor on queries by position; None for unscaled queries.
        pairing: pairing of the entries.
        frequencies: ω_k in radians per position, for the longest text.
        scaling: scaling with its numbers; None for "default".
    """

    group: int
    turns: bool
    rope_type: str = ""
    base: float = math.nan
    turning: int = 0
    factor: float = math.nan
    original: int = 0
    attention_factor: float = 1.0
    logit_factor: float = 1.0
    query_factor: float = 1.0
    query_scaling: QueryScaling | None = None
    pairing: str = ""
    frequencies: np.ndarray = np.zeros(0)
    scaling: RopeScaling | None = None


class ProgramResult(NamedTuple):
    """A program, and its numbers by group of layers.

    Attributes:
        name: program and version.
        versions: versions that compute the same numbers.
        evidence: "run" if tests compare the numbers with the program, "read from source", or "code
            of the model" if transformers has no class.
        traits: traits that findings depend on; see `jaxpe.plans.programs.base`.
        problem: reason why the program refuses the configuration; None if it reads it.
        longest: longest text that the program allows by default; NaN if it refuses.
        numbers: numbers by group; empty if it refuses.
    """

    name: str
    versions: str
    evidence: str
    traits: tuple[str, ...]
    problem: str | None = None
    longest: float = math.nan
    numbers: tuple[GroupNumbers, ...] = ()


class PhaseError(NamedTuple):
    """Phase error of a floating-point type, near the end of a text.

    Attributes:
        length: length of the text.
        dtype: floating-point type.
        rounded: numbers in this type: "all" for frequency, position and product, "frequencies" if
            the others are float32.
        largest: largest error in radians, at most π, over the last 256 positions and all
            frequencies; π if the product is not finite.
        lost: number of frequencies whose error exceeds 0.1 radians.
    """

    length: int
    dtype: str
    rounded: Literal["all", "frequencies"]
    largest: float
    lost: int


class Disagreement(NamedTuple):
    """A quantity that programs compute differently.

    Attributes:
        group: index of the group of layers; None for a quantity of the whole model.
        what: field of `GroupNumbers`, or "problem" or "longest".
        values: value of each program, as text.
    """

    group: int | None
    what: str
    values: dict[str, str]


class Finding(NamedTuple):
    """Fault, risk or note about a configuration.

    Attributes:
        code: short name, the same for the same cause.
        severity: "wrong" if the file contradicts itself or the newest transformers refuses it;
            "risk" if programs may read the file differently; "note" otherwise.
        text: finding, with its numbers.
        remedy: change that removes the cause.
        references: public threads in which users reported the cause.
    """

    code: str
    severity: Severity
    text: str
    remedy: str
    references: tuple[str, ...]


class Recipe(NamedTuple):
    """Setting for a longer text, ready to paste.

    Attributes:
        program: program that it is for, or "config.json" for every program.
        text: command, call or part of a file.
    """

    program: str
    text: str


class RopeAnalysis(NamedTuple):
    """Plan of the layers of a configuration, and the numbers of each program.

    Attributes:
        source: file, or "options".
        form: kind of the source.
        status: "judged", or "not judged" if the model type has no rules.
        reason: reason for not judging; else empty.
        model_type: model type of the configuration.
        context: `max_position_embeddings`.
        length: longest text that was judged.
        groups: groups of layers, in the order of their first layers.
        towers: groups of layers of the other models of the file, such as a vision tower.
        programs: programs and their numbers, the newest transformers first.
        precision: phase errors of the group that reaches furthest, at doubling lengths up to the
            longest.
        disagreements: quantities that programs compute differently.
        findings: findings, the most severe first.
        recipes: settings for this length, by program.
        unread: positional keys that no rule uses.
        numbers_of: reference program, whose numbers `groups` has: the newest transformers, or
            llama.cpp for a GGUF file. If it refuses the file, the first program that reads it, if
            at least half do; else empty.
    """

    source: str
    form: str
    status: Status
    reason: str
    model_type: str
    context: int
    length: int
    groups: tuple[LayerPlan, ...]
    towers: tuple[LayerPlan, ...]
    programs: tuple[ProgramResult, ...]
    precision: tuple[PhaseError, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    findings: tuple[Finding, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    unread: tuple[str, ...] = ()
    numbers_of: str = ""

    @property
    def turning(self) -> list[LayerPlan]:
        """Groups of layers that rotate queries and keys."""
        return [group for group in self.groups if group.turns]

    @property
    def widest(self) -> LayerPlan | None:
        """Rotating layers that reach furthest."""
        return max(self.turning, key=lambda group: group.reach, default=None)

    @property
    def accepted_by(self) -> list[ProgramResult]:
        """Programs that read the configuration without refusing it."""
        return [program for program in self.programs if program.problem is None]

    @property
    def differing(self) -> list[str]:
        """Names of programs that differ from the first in any quantity but the longest text."""
        odd = dict[str, None]()
        for group, what, values in self.disagreements:
            if group is not None and what != "rope_type":
                first = values.get(self.accepted_by[0].name)
                odd |= dict.fromkeys(name for name, value in values.items() if value != first)
        return list(odd)

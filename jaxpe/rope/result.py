"""Results of `jaxpe rope`."""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from jaxpe.rope.layers import Kind

Severity = Literal["wrong", "risk", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # the worst first
Status = Literal["judged", "not judged"]


class LayerPlan(NamedTuple):
    """Plan of a group of layers, with the numbers of the newest transformers.

    Where `RopeAnalysis.numbers_of` is empty, base is NaN, turning 0 and frequencies are empty.

    Attributes:
        name: kind of layer, as the model's class names it.
        part: model of the file, such as "text_config"; empty for the whole file.
        layers: indices, from 0; None if the file does not give their number.
        kind: "rotary", "none", "linear", "bias", "table" or "axial".
        window: positions that a query sees, itself included; None for all.
        two_sided: whether the window reaches to both sides.
        head_dim: width of a query at the logits; 0 without rotation.
        turning: rotated entries of the head.
        place: place of those entries in the head: "first", "last", "latent" for a separate part,
            "indexer" for the heads of sparse attention's indexer.
        pairing: "half" for entry i with i + turning/2, "interleaved" for 2i with 2i + 1; None
            without rotation.
        sections: numbers of frequencies of each axis of multimodal positions; empty for one axis.
        axes: names of the axes of axial layers.
        layout: layout of the axes in the head, for axial layers: "sections" (the pairs of an axis
            stand together), "blocks" (the entries of an axis do, and are paired among themselves),
            "alternating" (the axes take turns, pair by pair), "mixed sections" (they take turns as
            long as both have pairs left) or "crossed" (frequencies stand as the other pairing has
            them, so the entries of a pair turn by angles of their own).
        unit: unit of a position, for axial layers: "patch", "half image" (from -1 to 1 over it),
            "half base size" (from -1 to 1 over a fixed size), "grid" (the image is stretched over a
            fixed grid), "area" (the grid has a fixed area), "frame" or "pixel".
        base: θ; NaN without rotation.
        rope_type: type of the scaling; "default" for none, "rope_freqs" for that tensor of a .gguf.
        attention_factor: factor on cos and sin; logits carry its square.
        logit_factor: additional factor on all logits.
        query_factor: factor on a query at the longest position.
        frequencies: ω_k of the rotated entries, in radians per position, at the longest text,
            `[turning / 2]`; for axial layers one array per axis.
        unscaled: ω_k before scaling.
        trained: training positions of the unscaled frequencies, within the window.
        reach: positions of the longest text, within the window.
        never_round: number of frequencies that never complete a rotation in `trained` positions,
            before scaling.
        never_round_at_reach: number that never complete a rotation within `reach`, after scaling.
        unseen: number in `never_round` whose phase at `reach` exceeds every training phase.
        kept: number of frequencies that scaling does not change.
        divided: number of frequencies that scaling divides by its full factor s.
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
    axes: tuple[str, ...] = ()
    layout: str = ""
    unit: str = ""
    base: float = math.nan
    rope_type: str = ""
    attention_factor: float = 1.0
    logit_factor: float = 1.0
    query_factor: float = 1.0
    frequencies: np.ndarray | tuple[np.ndarray, ...] = np.zeros(0)
    unscaled: np.ndarray = np.zeros(0)
    trained: int = 0
    reach: int = 0
    never_round: int = 0
    never_round_at_reach: int = 0
    unseen: int = 0
    kept: int = 0
    divided: int = 0

    @property
    def turns(self) -> bool:
        """Whether these layers rotate queries and keys along one axis."""
        return self.kind == "rotary" and self.turning > 0


class Reading(NamedTuple):
    """Numbers of one program for one group of layers.

    Attributes:
        group: index of the group.
        turns: whether the program rotates it.
        rope_type: type of the scaling; "default" for none.
        base: θ.
        turning: entries of a head that turn.
        factor: s of the scaling; NaN where it has none.
        original: L0, the length before scaling; 0 where the scaling has none.
        attention_factor: factor on cos and sin; logits carry its square.
        logit_factor: further factor on all logits.
        query_factor: factor on a query at the longest position; 1 where queries are not scaled.
        pairing: pairing of the entries.
        frequencies: ω_k in radians a position at the longest text.
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
    pairing: str = ""
    frequencies: np.ndarray = np.zeros(0)


class Program(NamedTuple):
    """Numbers of a program, by group of layers.

    Attributes:
        name: program and version.
        versions: versions that compute the same.
        evidence: "run" where its numbers were compared with those of the program itself, "read
            from source", or "code of the model" where transformers has no class.
        traits: habits that its findings name; see `jaxpe.rope.programs.base`.
        problem: reason to refuse the configuration; None if the program reads it.
        longest: longest text that it allows by default; NaN if it refuses.
        readings: numbers by group; empty if it refuses.
    """

    name: str
    versions: str
    evidence: str
    traits: tuple[str, ...]
    problem: str | None = None
    longest: float = math.nan
    readings: tuple[Reading, ...] = ()


class PhaseError(NamedTuple):
    """Phase error in a floating-point type, near the end of a text.

    Attributes:
        length: length of the text.
        dtype: dtype of the numbers.
        rounded: "all" where frequency, position and product are; "frequencies" where only these are
            and the rest is float32.
        largest: error in radians, at most π, over the last 256 positions and all frequencies; π
            where the product is no finite number.
        lost: frequencies whose error exceeds 0.1 radians.
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
        what: field of `Reading`, or "problem" or "longest".
        values: value of each program, as text.
    """

    group: int | None
    what: str
    values: dict[str, str]


class Finding(NamedTuple):
    """Fault, risk or note about a configuration.

    Attributes:
        code: short name, the same for the same cause.
        severity: "wrong" where a program computes something else than the model was made with,
            "risk" where it depends on the program or on how it is used, "note" otherwise.
        text: finding, with the numbers.
        remedy: change that removes the cause.
        references: threads in which users reported it.
    """

    code: str
    severity: Severity
    text: str
    remedy: str
    references: tuple[str, ...]


class Recipe(NamedTuple):
    """Change that is ready to paste.

    Attributes:
        program: program that reads it.
        text: command, call or part of a file.
    """

    program: str
    text: str


class RopeAnalysis(NamedTuple):
    """Plan of the layers of a configuration, and the numbers of each program.

    Attributes:
        source: file, or "options".
        form: kind of the source.
        status: "judged", or "not judged" where no rule knows the model.
        reason: reason that it is not judged; empty if it is.
        model_type: model type of the configuration.
        context: `max_position_embeddings`.
        length: longest text that was judged.
        groups: groups of layers, in the order of their first layers.
        towers: groups of layers of the other models of the file.
        readers: programs and their numbers, the newest transformers first.
        precision: errors of phases, of the group that reaches furthest, at lengths that double up
            to the longest.
        disagreements: quantities that programs compute differently.
        findings: the worst first.
        recipes: changes for this length, by program.
        unread: positional keys that no rule has used.
        numbers_of: program whose numbers `groups` has: the newest transformers (llama.cpp for a
            GGUF file), else the first that reads the file if half of them do, else none.
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
    readers: tuple[Program, ...]
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
    def accepted_by(self) -> list[Program]:
        """Programs that read the configuration, rather than refuse it."""
        return [program for program in self.readers if program.problem is None]

"""Sentences on models at the number that decides them, and at the numbers next to it."""

import dataclasses
import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jaxpe.report.audit.page import _side, audit_summary
from jaxpe.report.extrapolation import text as extrapolation_text
from jaxpe.report.rope.text import _layer_sentence, _programs, layer_ranges, rope_summary

from jaxpe.analysis.corpus import Interval
from jaxpe.analysis.corpus.sites import _alphabet
from jaxpe.analysis.corpus.where import first_reached
from jaxpe.analysis.extrapolation import Comparison, SeedInterval
from jaxpe.analysis.inspect.flax_model import scaling_reason
from jaxpe.analysis.inspect.job import absence_reason
from jaxpe.analysis.inspect.position_ablation import moved_positions
from jaxpe.analysis.inspect.reach import _first_lasting
from jaxpe.analysis.inspect.subject import InspectSubject
from jaxpe.plans import Finding, RopeOptions
from jaxpe.plans.checks import Case, length_codes, model_codes
from jaxpe.plans.job import read_plans
from jaxpe.plans.result import Disagreement, PhaseError
from jaxpe.report import training_figures, training_run
from tests.report import test_extrapolation as extrapolation
from tests.report.test_predicates import LEAST, above, below

NUMBERS, TOKENS = extrapolation.numbers(), extrapolation.tokens()
INTERVAL = SeedInterval(*np.array([0.1, -0.1, 0.3]))


def beats_zero(mean: float, high: float) -> bool:
    errors = SeedInterval(*(np.full(4, x) for x in (mean, mean, high)))
    one = NUMBERS[0]._replace(summary=NUMBERS[0].summary | {"relative_mse": errors})
    return "none" not in extrapolation_text._zero_text([one])[0]


def learned(metric: str, *ends: float) -> bool:
    """Whether a cell with these ends at T, and chance 0.5, has learned."""
    cell = NUMBERS[0] if metric == "relative_mse" else TOKENS[0]._replace(chance=0.5)
    return cell._replace(summary={metric: SeedInterval(*(np.array([x]) for x in ends))}).learned


def compared(lead: float, *, low: float = -0.1, decided: bool = False, seeds: int = 0) -> str:
    """What is said of the second encoding of a task, by its lead."""
    ends = INTERVAL._replace(mean=np.array(lead), low=np.array(low))
    pair = Comparison("strings", "copy", "none", "rope", ends, decided, seeds)
    said = extrapolation_text._best_text("copy", TOKENS[:2], [pair])
    kinds = ("share", "not decided", "one seed", "agree", "even", "about 7", "decided")
    return next(kind for kind in kinds[:1] + kinds[2:6] + kinds[1:2] + kinds[6:] if kind in said)


def largest_rate(rates: tuple[float, ...], rate: float) -> bool:
    cell = NUMBERS[0]._replace(rates=rates, rate=rate)
    return bool(extrapolation_text._largest_rates([cell]))


def extrapolation_advice(*decided: bool) -> tuple[bool, bool]:
    """Whether encodings are recommended, and whether undecided comparisons are named."""
    pairs = [Comparison("strings", "copy", "none", "rope", INTERVAL, x, 0) for x in decided]
    result = extrapolation.report(TOKENS)._replace(comparisons=tuple(pairs))
    said = extrapolation_text._advice(result)
    return ", try" in said, "undecided" in said


def audited(holds: int, refuted: int, trained: bool) -> list[str]:
    """Verbs of a summary, and a last word on the model."""
    outcomes = ["holds"] * holds + ["refuted"] * refuted
    statements = [SimpleNamespace(outcome=x, name="A", status="proved") for x in outcomes]
    facts = SimpleNamespace(trained=trained)
    said = audit_summary(SimpleNamespace(statements=statements, facts=facts))
    keys = ("1 holds", "2 hold ", "1 is refuted", "2 are refuted", "as initialised", "Refuted: A")
    return [key for key in keys if key in said]


ROPE = read_plans(RopeOptions(head_dim=64, base=1e4, context=2048))


def rope_said(**fields: Any) -> list[str]:
    """Key words of a summary of plain RoPE with other fields."""
    keys = ("points to check", "needs no change", "exceed every", "FINDING", "Not judged")
    said = rope_summary(ROPE[1]._replace(**fields))
    return [key for key in keys if key in said]


def rope_findings(*severities: Any) -> list[str]:
    found = tuple(Finding("a", severity, "FINDING", "", ()) for severity in severities)
    return rope_said(findings=found)


def rope_codes(check: Any = length_codes, /, *, unseen: int = 0, **fields: Any) -> set[str]:
    """Codes of plain RoPE with other quantities; the reference has been told of no scaling."""
    configuration, found = ROPE
    plan = found.groups[0]._replace(unseen=unseen)
    case = Case(configuration, found._replace(groups=(plan,)))
    vars(case).update(fields)
    return {code for code, _ in check(case)}


def rope_precision(largest: float) -> set[str]:
    error = PhaseError(2048, "float32", "all", largest, 0)
    return rope_codes(model_codes, analysis=ROPE[1]._replace(precision=(error,)))


def programs_said(differences: tuple[tuple[int | None, str], ...], odd: int = 1) -> str:
    """What a summary says of three programs, of which some differ from the first."""
    names = ("one", "two", "three")
    programs = tuple(ROPE[1].programs[0]._replace(name=name) for name in names)
    values = {name: str(k) if k <= odd else "0" for k, name in enumerate(names)}
    found = [Disagreement(*difference, values) for difference in differences]
    said = _programs(ROPE[1]._replace(programs=programs, disagreements=tuple(found)))
    return next(x for x in ("two differs", "two, three differ ", "All 3") if x in said)


def layers_said(count: int, **fields: Any) -> str:
    """Verb of a group of so many layers, and whether a scaling is told."""
    plan = ROPE[1].groups[0]._replace(layers=tuple(range(count)), **fields)
    said = _layer_sentence(plan, "Layers")
    parts = re.search(r"Layers (rotates?) .*?(within 9 positions)?\.( \w+ keeps)?", said)
    return " ".join(filter(None, parts.groups()))


def absent(
    stage: Any, kind: str = "causal", *, most: int = 64, longest: int = 64, stream: int = 128
):
    """First words of the reason why a stage does not apply to a model of 64 positions."""
    model = SimpleNamespace(absent=dict, kind=kind, table_length=None)
    parts = {"inspected": model, "kind": kind, "most": 64}
    subject = type("Subject", (InspectSubject,), parts)(
        **dict.fromkeys(InspectSubject._fields)
        | {"tokenizer": "known", "longest": longest, "stream": np.zeros(stream, np.int32)}
    )
    return " ".join(absence_reason(subject, stage).split(" ")[:2])


def trend_text(**fields: Any) -> str:
    """Kind of advice after a run whose held-out loss goes somewhere."""
    trend = training_run.Trend("level", -0.01, 6, 1.0, SimpleNamespace(step=4, loss=2.0))
    run = SimpleNamespace(config=SimpleNamespace(decay=fields.pop("decay", "constant")))
    advised = getattr(training_run._advice, "__wrapped__", training_run._advice)
    said = advised(run, trend._replace(**fields))
    kinds = ("before training", "overfits", "still falling", "decays", "fell by only", "rose by")
    return next(kind for kind in kinds if kind in said)


def curve(*losses: float) -> str:
    history = [{"step": k, "eval/loss": loss} for k, loss in enumerate(losses)]
    return training_figures._curves_title(history).split(",")[0].removeprefix("Held-out loss ")


def moves(n: int, most: int | None) -> set[str]:
    """Ablations of which a model with so many positions is capable."""
    return {"shifted", "doubled"} & moved_positions(n, text=slice(0, n), most=most).keys()


PREDICATES: dict[str, tuple[Callable[[Any], Any], dict[Any, Any]]] = {
    "percentages outwards": (
        lambda ends: extrapolation_text.percent_ends(*ends),
        {(0.29, 0.29): "[29–29]", (0.07, 0.07): "[7–7]", (0.068, 0.072): "[6–8]"},
    ),
    "better than saying 0": (
        lambda ends: beats_zero(*ends),
        {
            **{(0.5, below(1.0)): True, (0.5, 1.0): False},
            **{(below(1.0), math.nan): True, (1.0, math.nan): False},
        },
    ),
    "a task learned": (
        lambda ends: learned(*ends),
        {
            **{("accuracy", 0.9, 0.5, 1.0): False, ("accuracy", 0.9, above(0.5), 1.0): True},
            **{("accuracy", above(0.5), math.nan, 1.0): True},
            **{("accuracy", 0.5, math.nan, 1.0): False},
            **{("relative_mse", 0.1, 0.0, 1.0): False},
            **{("relative_mse", 0.1, 0.0, below(1.0)): True},
        },
    ),
    "encodings that tie": (compared, {below(1e-6): "share", 1e-6: "even", -1e-6: "even"}),
    "seeds that would decide": (
        lambda case: compared(0.1, **dict(case)),
        {
            **{(("seeds", 7),): "about 7", (("seeds", 0),): "even"},
            **{(("low", math.nan),): "agree", (("decided", True),): "decided"},
        },
    ),
    "one seed": (
        lambda count: (
            "one seed"
            in " ".join(
                text
                for find in (extrapolation_text._rank_text, extrapolation_text._zero_text)
                for text in find(extrapolation.numbers(count))
            )
        ),
        {1: True, 2: False},
    ),
    "larger rates": (
        lambda case: largest_rate(*case),
        {((1.0,), 1.0): False, ((1.0, 2.0), 2.0): True, ((1.0, 2.0), 1.0): False},
    ),
    "a comparison decided": (
        lambda decided: extrapolation_advice(*decided),
        {
            **{(True,): (True, False), (False,): (False, True), (True, False): (True, True)},
            (): (False, False),
        },
    ),
    "budgets": (
        lambda case: re.findall(
            "fresh|training rows|length 4|lengths up to 4|1 seed,|2 seeds",
            extrapolation_text._budget(dataclasses.replace(extrapolation.TOKENS, **dict(case))),
        ),
        {
            (("seeds", 1),): ["fresh", "training rows", "lengths up to 4", "1 seed,"],
            (("rows", 64), ("exact", True), ("seeds", 2)): ["training rows", "length 4", "2 seeds"],
        },
    ),
    "the best at T": (  # of relative errors 0.1 and 0.05
        lambda name: "the best" in extrapolation_text._at_t("running_sum", NUMBERS, name),
        {"sinusoidal": True, "learned": False},
    ),
    "the best at the end": (
        lambda score: extrapolation_text._accuracy_text(
            [TOKENS[0], extrapolation.scored(TOKENS[1], {"accuracy": np.full((3, 4), score)})]
        )[0].count("“"),
        {0.19: 2, 0.2: 3, 0.21: 2},  # quotation marks: of the suite, and of encodings that tie
    ),
    "few encodings by name": (
        lambda case: extrapolation_text._names("abcdefgh"[: case[0]], case[1])[:4],
        {(0, 1): "none", (1, 1): "“a”", (2, 2): "all", (4, 5): "“a”,", (5, 6): "5 of"},
    ),
    "sides of a comparison": (
        _side,
        {
            **{0.0: "0", below(1e-6): "1.00e-06", 1e-6: "1e-06", 1e6: "1.00e+06"},
            **{below(1e6): "1,000,000", -1e6: "-1.00e+06", math.inf: "∞", -math.inf: "−∞"},
        },
    ),
    "verbs of an audit": (
        lambda case: audited(*case),
        {
            (1, 1, True): ["1 holds", "1 is refuted", "Refuted: A"],
            (2, 2, True): ["2 hold ", "2 are refuted", "Refuted: A"],
            (1, 0, False): ["1 holds", "as initialised"],
        },
    ),
    "layers by index": (
        layer_ranges,
        {
            **{(): "none", (0, 2, 4): "0, 2, 4", (0, 2, 4, 6): "0, 2 +2 to 6"},
            **{(0, 1, 2, 3): "0-3", (0, 1, 3, 4): "0-1, 3-4", (0, 2, 4, 7): "0, 2, 4, 7"},
            (0, 2, 4, 7, 9): "5: 0, 2, 4 … 9",
        },
    ),
    "findings of a file": (
        lambda severities: rope_findings(*severities),
        {
            **{(): ["needs no change"], ("note",): ["needs no change"], ("risk",): ["FINDING"]},
            ("wrong", "risk"): ["points to check", "FINDING"],
        },
    ),
    "keys that no rule uses": (
        lambda names: rope_said(unread=names),
        {(): ["needs no change"], ("a",): []},
    ),
    "phases that exceed training": (
        lambda count: rope_said(groups=(ROPE[1].groups[0]._replace(unseen=count),)),
        {0: ["needs no change"], 1: ["needs no change", "exceed every"]},
    ),
    "programs that differ": (
        lambda case: programs_said(*case),
        {
            **{((),): "All 3", (((None, "longest"),),): "All 3", (((0, "rope_type"),),): "All 3"},
            **{(((0, "base"),),): "two differs", (((0, "base"),), 2): "two, three differ "},
        },
    ),
    "layers of one kind": (
        lambda case: layers_said(case[0], **dict(case[1:])),
        {
            **{(1,): "rotates", (2,): "rotate", (2, ("window", 9)): "rotate within 9 positions"},
            **{(2, ("rope_type", "yarn")): "rotate  yarn keeps"},
            (2, ("rope_type", "proportional")): "rotate",
        },
    ),
    "a text beyond the context": (
        lambda case: rope_codes(length=case[0], unseen=case[1]),
        {
            **{(2048, 1): set(), (2049, 0): {"beyond_context"}, (2049, 1): {"beyond_scaling"}},
            (2048, 0): set(),
        },
    ),
    "a text beyond its scaling": (
        lambda length: rope_codes(
            kind="llama3",
            entry={"original_max_position_embeddings": 2048},
            original=2048.0,
            scaled=8192.0,
            unseen=1,
            length=length,
        ),
        {8192: {"beyond_context"}, 8193: {"beyond_own_scaling"}},
    ),
    "lengths that contradict": (
        lambda case: rope_codes(
            kind="yarn",
            entry={"original_max_position_embeddings": 1},
            original=case[0],
            factor=case[1],
            scaled=case[2],
        ),
        {
            **{(2048.0, 4.0, 8192.0): set(), (512.0, 4.0, 2048.0): {"length_is_scaled"}},
            **{(512.0, 2.0, 1024.0): {"lengths_contradict"}, (512.0, None, 512.0): set()},
        },
    ),
    "dynamic scaling": (
        lambda original: rope_codes(kind="dynamic", original=original),
        {
            **{original: {"dynamic_length"} for original in (None, 2048.0)},
            1024.0: {"dynamic_original"},
        },
    ),
    "linear scaling": (
        lambda original: rope_codes(kind="linear", original=original),
        {None: {"linear_original"}, 1024.0: set()},
    ),
    "phases in float32": (rope_precision, {below(0.01): set(), 0.01: {"float32_precision"}}),
    "advice after training": (
        lambda case: trend_text(**dict(case)),
        {
            (("direction", "rising"), ("fall", 0.0)): "before training",
            (("direction", "rising"), ("fall", LEAST)): "overfits",
            (("direction", "falling"),): "still falling",
            (("decay", "cosine"),): "decays",
            (("change", -LEAST),): "fell by only",
            (("change", 0.0),): "rose by",
        },
    ),
    "curves of a loss": (
        lambda losses: curve(*losses),
        {
            **{(2.0,): "Training", (2.0, below(2.0)): "falls", (2.0, 2.0): "does not fall"},
            (2.0, 3.0, 1.0): "falls",
        },
    ),
    "a smoothed curve": (
        lambda count: training_figures.smoothed(np.arange(count) ** 2.0)[1],
        {39: 1.0, 40: 5 / 3},
    ),
    "perplexity": (
        lambda loss: math.isinf(training_figures.perplexity_of(loss)),
        {below(700.0): False, 700.0: True},
    ),
    "durations": (
        training_run.duration,
        {
            **{0.0: "1 second", 1.0: "1 second", below(120.0): "120 seconds"},
            **{120.0: "2 minutes", below(7200.0): "120 minutes", 7200.0: "2 hours"},
        },
    ),
    "shifted and doubled positions": (
        lambda case: moves(*case),
        {
            **{(4, None): {"shifted", "doubled"}, (4, 7): {"shifted", "doubled"}},
            **{(4, 6): {"shifted"}, (4, 5): {"shifted"}, (4, 4): set()},
        },
    ),
    "models that a scaling fits": (  # of heads of 64 entries
        lambda case: scaling_reason(
            case[0], ROPE[1]._replace(groups=ROPE[1].groups * case[1]), case[2], others=case[3]
        ).split(" ")[0],
        {
            **{(1, 1, 64, False): "", (0, 1, 64, False): "the", (1, 2, 64, False): "layers"},
            **{
                (1, 0, 64, False): "layers",
                (1, 1, 65, False): "only",
                (1, 1, 64, True): "positions",
            },
        },
    ),
    "where a curve reaches 0": (
        lambda end: first_reached(np.array([[-1.0, 0.0, 1.0], [-1.0, -1.0, end], [1.0, 1.0, 1.0]])),
        {0.0: Interval(1, 0, 2), -LEAST: Interval(1, 0, math.inf)},
    ),
    "sequences by their letters": (
        lambda letters: _alphabet([*letters], np.ones(len(letters), bool))[::2],
        {
            **{"ACGT": ("nucleotides", 4), "ACGTU": ("nucleotides", 5)},
            **{"ACGE": ("amino acids", 20), "ACGN-": ("nucleotides", 4), "ACG1": ("", 4)},
        },
    ),
    "stages that do not apply": (
        lambda case: absent(*case[:2], **dict(case[2:])),
        {
            **{("loss", "causal"): "", ("loss", "causal", ("longest", 65)): "The model"},
            **{("loss", "causal", ("stream", 127)): "Two texts"},
            **{("needles", "causal", ("stream", 127)): ""},
            **{("needles", "causal", ("longest", 65)): "The model"},
            **{("probe", "causal", ("longest", 65)): ""},
        },
    ),
    "first lasting": (
        lambda reached: _first_lasting(np.array(reached)),
        {
            **{(True, True): 0, (False, True): 1, (True, False): 1, (False, False): 1},
            (True, False, True): 2,
        },
    ),
}


@pytest.mark.parametrize("name", PREDICATES)
def test_what_is_said_changes_at_its_number(name):
    predicate, values = PREDICATES[name]
    assert {value: predicate(value) for value in values} == values

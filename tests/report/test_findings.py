import math

import numpy as np
import pytest

from jaxpe.analysis.corpus import Interval
from jaxpe.data import NeighbourSimilarity
from jaxpe.report import findings, summary
from jaxpe.report.corpus.text import (
    alike,
    by_family,
    corrected_best,
    headlines,
    named_findings,
    nearness,
)
from tests.report import factory
from tests.report.factory import N, analysis, score

OWN = "Fitted encoding, held-out stress"
FIXED = "Best fixed encoding, held-out stress"
FULL = {"rare_positions": np.array([], int), "documents_per_position": np.full(N, 100)}


def said(**overrides) -> dict[str, str]:
    found = named_findings(analysis(**overrides))
    return {name: text.replace("\N{NO-BREAK SPACE}", " ") for name, text in found.items()}


def shown(**overrides) -> dict[str, str]:
    lines = headlines(analysis(**overrides))
    return {h.label: f"{h.value}; {h.detail}".replace("\N{NO-BREAK SPACE}", " ") for h in lines}


def holds(text: str, *parts: str) -> bool:
    """Whether all of these numbers and names stand in a text."""
    return all(part in text for part in parts)


def test_the_usual_case_says_each_thing_once():
    text = said()
    assert list(text) == [
        *("shares", "dimensions", "reach", "own fit", "held-out fit"),
        *("nearness", "gaps", "doubts"),
    ]
    assert findings(analysis()) == list(named_findings(analysis()).values())
    assert holds(text["dimensions"], "2 significant dimensions", "0.04", "44")
    assert holds(text["shares"], "90 % (87 % to 93 %)", "4 % (3 % to 5 %)", "6 % (5 % to 7 %)")
    assert holds(text["reach"], "position 45", "12,480", "cohort")
    assert holds(text["own fit"], "2 coordinates", "0.05 (0.04 to 0.06)", "0.07 (0.03 to 0.11)")
    assert holds(text["held-out fit"], "alibi", "0.12 (0.1 to 0.14)")
    assert holds(text["nearness"], "more similar", "0.31 (0.25 to 0.37)")
    assert holds(text["gaps"], "6 positions", "40–45", "3 positions", "0, 46–47")
    assert "16 folds" in text["doubts"]


def test_one_dimension_is_singular():
    text = said(position={"significant_rank": 1})["dimensions"]
    assert holds(text, "1 significant dimension:", "1 eigenvalue ")


def test_without_structure_nothing_is_claimed():
    case = {"position": {"significant_rank": 0, "p_value": 0.4}}
    text = said(**case)
    assert holds(text["dimensions"], "No effect of position", "p = 0.4", "12,480 documents")
    assert not {"own fit", "held-out fit", "nearness"} & text.keys()
    assert nearness(analysis(**case)) == 0
    assert shown(**case)[OWN] == shown(**case)[FIXED] == "none; nothing to fit"
    assert shown(**case)["Significant dimensions"].startswith("0;")
    assert "nothing to fit" in summary(analysis(**case))


def test_documents_of_one_token_have_no_structure_to_speak_of():
    documents = np.where(np.arange(N) == 0, 100, 0)
    text = said(plug_in={"trace": 0.0}, documents_per_position=documents)["dimensions"]
    assert holds(text, "one position has tokens", "one token each", "characters")
    assert "distribution" not in text


def test_without_judged_positions_more_documents_are_asked_for():
    nothing = {
        "position": {"present": np.zeros(N, bool), "significant_rank": 0},
        "intervals": {},
    }
    text = said(**nothing)
    assert "more documents" in text["dimensions"]
    assert not {"shares", "reach"} & text.keys()
    assert "more documents" not in said(**nothing, groups=1)["dimensions"]
    assert shown(**nothing)["Position's share of the variance"].startswith("n/a;")


def test_shares_are_within_bounds_and_equal_ends_are_said_once():
    noise = {"noise_share": Interval(1.02, 0.999, 1.05)}
    below = Interval(-0.01, -0.02, 0.0)
    rest = {"composition_share": below, "position_share": below}
    text = said(intervals=noise | rest)
    assert holds(text["shares"], "100 % (over 99 % to 100 %)", "0 % (0 %)")
    assert "nearness" not in text
    assert shown(intervals=noise | rest)["Nearness (0: no order)"] == "n/a; no interval"
    assert "shares" not in said(plug_in={"trace": 0.0})


@pytest.mark.parametrize(("correlation", "said_so"), [(0.9, True), (0.1, False)])
def test_a_first_dimension_like_composition_is_named(correlation, said_so):
    text = said(position={"composition_correlation": correlation})["reach"]
    assert ("0.90" in text) == said_so
    everyone = said(documents_per_position=np.full(N, 12_480))["reach"]
    assert holds(everyone, "12,480 of 12,480")
    assert "cohort" not in everyone


def test_what_is_found_and_what_to_do():
    text = summary(analysis()).replace("\N{NO-BREAK SPACE}", " ")
    assert holds(text, "2 dimensions", "90 %", "0.05 (0.04 to 0.06)", "alibi", "encoding.npz")
    usual = analysis().held_out
    undecided = usual._replace(gain=Interval(0.01, -0.01, 0.03))
    assert "encoding.npz" not in summary(analysis(held_out=undecided))
    assert "nothing to fit" in summary(
        analysis(position={"present": np.zeros(N, bool), "significant_rank": 0})
    )


def test_other_widths_with_another_best_are_named():
    usual = analysis().held_out
    other = usual._replace(best=[["alibi"], ["alibi"], ["alibi"], ["rope", "sinusoidal"]])
    assert "rope and sinusoidal at 128" in said(held_out=other)["held-out fit"]
    assert "other widths" not in said()["held-out fit"]


def test_the_same_distances_are_no_tie_of_two():
    same = {"position_scaled_stress": 0.1}
    case = {"encodings": [score("rope", **same), score("sinusoidal", **same)]}
    assert [[s.name for s in group] for group in alike(case["encodings"])] == [
        ["rope", "sinusoidal"]
    ]
    assert "rope (= sinusoidal), 0.08" in shown(**case)[FIXED]


def test_alike_is_up_to_scale_and_not_more():
    a, scaled, other = score("random"), score("learned"), score("cosine", scaled_stress=0.029)
    assert [len(group) for group in alike([a, scaled, other])] == [2, 1]
    nothing = score("a", distances=np.zeros((N, N)))
    assert len(alike([nothing, nothing])) == 2


def test_families_keep_their_order():
    families = by_family([score(name) for name in ("rope", "mds", "alibi", "rope_partial")])
    assert list(families) == ["rotary", "fitted", "bias"]
    assert [s.name for s in families["rotary"]] == ["rope", "rope_partial"]


def test_no_encodings():
    assert shown(encodings=[])[FIXED] == "none; nothing to fit"


def test_scores_that_are_not_numbers_never_win():
    broken = score("rope", scaled_stress=math.nan, position_scaled_stress=math.nan)
    case = analysis(encodings=[broken, score("alibi")])
    assert [s.name for s in corrected_best(case)] == ["alibi"]


@pytest.mark.parametrize(
    ("interval", "verdict", "words"),
    [
        (Interval(0.2, 0.1, 0.3), 1, "more similar"),
        (Interval(0.2, -0.1, 0.5), 0, "not decided"),
        (Interval(-0.2, -0.3, -0.1), -1, "less similar"),
    ],
)
def test_nearness(interval, verdict, words):
    intervals = analysis().intervals | {"nearness": interval}
    assert nearness(analysis(intervals=intervals)) == verdict
    assert words in said(intervals=intervals)["nearness"]


def test_one_rare_and_one_absent_position_are_singular():
    case = {"rare_positions": [3], "documents_per_position": 100 * (np.arange(N) != 5)}
    text = said(**case)["gaps"]
    assert holds(text, "1 position (3) has ", "1 position (5) holds ")


def test_nothing_rare_and_nothing_absent_needs_no_sentence():
    assert "gaps" not in said(**FULL)
    assert shown(**FULL)["Documents at the last position"] == "100; of 12,480"


def test_counts_say_their_folds_their_groups_and_their_bins():
    case = {"folds": 4, "from_counts": True, "group_field": "author", "edges": (0, 4, 8, 16)}
    text = said(**case)
    assert holds(text["doubts"], "4 folds", "'author'")
    assert "'author'" in text["dimensions"]
    assert holds(text["bins"], "3 bins", "4 to 8", "16")
    assert "group_field" in said(from_counts=True)["doubts"]


def test_pieces_of_others_are_counted():
    assert holds(said(groups=9000)["dependence"], "12,480", "9,000")
    assert "dependence" not in said(groups=12_000)
    alike = NeighbourSimilarity(0.11, 0.001, 0.005, 12_480)
    assert holds(said(neighbours=alike)["dependence"], "0.11", "p = 0.005", "group_field")
    assert holds(said(group_field="author", groups=40)["dependence"], "40 groups", "'author'")


def test_the_fixture_is_what_it_claims():
    found = factory.analysis().position
    assert np.sum(found.eigenvalues > found.null_eigenvalue) == found.significant_rank

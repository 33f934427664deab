import math

import numpy as np
import pytest

from jaxpe.analysis.corpus.result import Interval
from jaxpe.report import findings
from jaxpe.report.corpus.findings import (
    alike,
    best,
    by_family,
    corrected_best,
    headlines,
    nearness,
)
from tests.report import factory
from tests.report.factory import N, analysis, score


def said(**overrides) -> str:
    return "\n".join(findings(analysis(**overrides))).replace("\N{NO-BREAK SPACE}", " ")


def shown(**overrides) -> dict[str, str]:
    lines = headlines(analysis(**overrides))
    return {h.label: f"{h.value}; {h.detail}".replace("\N{NO-BREAK SPACE}", " ") for h in lines}


def test_the_usual_case_says_each_thing_once():
    text = said()
    assert "about 2 real dimensions: 2 eigenvalues rise above" in text
    assert "About 97 % of the plug-in variance" in text
    assert "(interval 95 % to 98 %)" in text
    assert "random fits the plug-in distances best at equal scale (scaled stress 0.029;" in text
    assert "Against the noise-corrected geometry, alibi fits best (scaled stress 0.12)" in text
    assert "mds and smacof are fitted to the plug-in distances" in text
    assert "Raw stress, Eq. (4), would choose alibi (0.498)" in text
    assert "Nearer positions tend to hold more similar tokens" in text
    assert "6 positions (40–45) have too few documents" in text
    assert "3 positions (0, 46–47) hold no tokens and take no part." in text
    assert "200 bootstrap resamples" in text
    assert len(findings(analysis())) == 8


def test_one_dimension_is_singular():
    assert "about 1 real dimension: 1 eigenvalue rises above" in said(effective_rank=1)


def test_without_structure_nothing_is_claimed():
    text = said(effective_rank=0)
    assert "No positional structure can be told from noise here" in text
    assert "12,480 documents can show" in text
    assert "Against the noise-corrected geometry" not in text
    assert shown(effective_rank=0)["Best fixed encoding, noise-corrected"] == "none; nothing to fit"


def test_without_judged_positions_more_documents_are_asked_for():
    nothing = {"judged": np.zeros(N, bool), "effective_rank": 0, "intervals": {}}
    text = said(**nothing)
    assert "Use more documents or a shorter length" in text
    assert "sampling noise" not in text
    assert shown(**nothing)["Noise in the plug-in variance"] == "n/a; no interval"


@pytest.mark.parametrize(
    ("plug_in", "split_half", "sentence", "headline"),
    [
        (10.0, -0.2, "noise-corrected variance came out negative (-0.2)", "all of it"),
        (0.0, 0.0, "All positions have the same token distribution", "n/a"),
        (1.0, 1.1, "No sampling noise is visible", "none seen"),
        (1.0, 0.5, "About 50 % of the plug-in variance", "50 %"),
    ],
)
def test_noise(plug_in, split_half, sentence, headline):
    case = {"plug_in_trace": plug_in, "split_half_trace": split_half, "intervals": {}}
    assert sentence in said(**case)
    assert shown(**case)["Noise in the plug-in variance"] == f"{headline}; no interval"


def test_ties_are_called_ties():
    tied = [score(name, scaled_stress=0.2 + k / 1000) for k, name in enumerate(["rope", "alibi"])]
    text = said(encodings=tied)
    assert (
        "all fixed encodings (rope and alibi) fit equally well (scaled stress 0.2 to 0.201)" in text
    )
    assert "fitted to the plug-in" not in text


def test_a_tie_of_some_is_named():
    names = ["sinusoidal", "cosine", "alibi"]
    text = said(
        encodings=[score(name, scaled_stress=0.1 * (k > 1)) for k, name in enumerate(names)]
    )
    assert "sinusoidal and cosine fit the plug-in distances best" in text
    assert "random vectors" not in text


def test_the_same_distances_are_no_tie_of_two():
    case = {"encodings": [score("rope", split_half_scaled_stress=0.1), score("sinusoidal")]}
    assert [[s.name for s in group] for group in alike(case["encodings"])] == [
        ["rope", "sinusoidal"]
    ]
    text = said(**case)
    assert "rope (= sinusoidal) fits the plug-in distances best" in text
    assert "Encodings joined by = have the same distances" in text
    assert "rope (= sinusoidal); scaled" in shown(**case)["Best fixed encoding, plug-in"]
    assert "joined by" not in said()


def test_alike_is_up_to_scale_and_not_more():
    a, scaled, other = score("random"), score("learned"), score("cosine", scaled_stress=0.029)
    assert [len(group) for group in alike([a, scaled, other])] == [2, 1]
    nothing = score("a", distances=np.zeros((N, N)))
    assert len(alike([nothing, nothing])) == 2


@pytest.mark.parametrize(
    ("tied", "words"), [(3, "a, bb and ccc fit"), (4, "a, bb and 2 others fit"), (9, "7 others")]
)
def test_long_ties_name_two(tied, words):
    scores = [score("abcdefghi"[k] * (k + 1), scaled_stress=0.1) for k in range(tied)]
    case = {"encodings": [*scores, score("alibi", scaled_stress=0.9)]}
    assert words in said(**case)
    assert len(shown(**case)["Best fixed encoding, plug-in"]) < 60


def test_what_will_be_trained_cannot_win():
    case = analysis(encodings=[score("learned", scaled_stress=0.0), score("alibi")])
    assert [s.name for s in best(case, "scaled_stress")] == ["alibi"]


def test_families_keep_their_order():
    families = by_family([score(name) for name in ("rope", "mds", "alibi", "rope_partial")])
    assert list(families) == ["rotary", "fitted", "bias"]
    assert [s.name for s in families["rotary"]] == ["rope", "rope_partial"]


def test_that_random_wins_is_explained():
    assert "distances are nearly all equal, as noise makes them" in said()


def test_raw_stress_is_silent_where_it_agrees():
    assert "Raw stress" not in said(encodings=[score("alibi", stress=0.1, scaled_stress=0.1)])


def test_no_encodings():
    text = said(encodings=[])
    assert "fit" not in text
    assert shown(encodings=[])["Best fixed encoding, plug-in"] == "none; nothing to fit"


def test_one_fitted_encoding_is_singular():
    assert "mds is fitted to" in said(encodings=[score("mds"), score("rope")])


def test_scores_that_are_not_numbers_never_win():
    broken = score("rope", scaled_stress=math.nan, split_half_scaled_stress=math.nan)
    case = analysis(encodings=[broken, score("alibi")])
    assert [s.name for s in best(case, "scaled_stress")] == ["alibi"]
    assert [s.name for s in corrected_best(case)] == ["alibi"]


@pytest.mark.parametrize(
    ("rate", "interval", "verdict", "sentence"),
    [
        (0.3, None, 1, "Nearer positions tend to hold more similar tokens:"),
        (0.48, None, 0, "cannot be told from chance"),
        (0.7, None, -1, "tend to hold less similar tokens"),
        (0.40, Interval(0.40, 0.28, 0.52), 0, "40 % (interval 28 % to 52 %)"),
        (0.48, Interval(0.48, 0.47, 0.49), 1, "Nearer positions tend to hold more similar tokens:"),
    ],
)
def test_nearness(rate, interval, verdict, sentence):
    intervals = {"split_half_violation_rate": interval} if interval else {}
    case = {"split_half_violation_rate": rate, "intervals": intervals}
    assert nearness(analysis(**case)) == verdict
    assert sentence in said(**case)


def test_without_a_noise_corrected_rate_nothing_is_said_of_nearness():
    case = {"split_half_violation_rate": math.nan, "intervals": {}}
    assert nearness(analysis(**case)) == 0
    assert "triples" not in said(**case)
    assert shown(**case)["Order violated"] == "n/a; of triples; 50 % is chance"


def test_one_rare_and_one_absent_position_are_singular():
    text = said(rare=np.arange(N) == 3, documents_per_position=100 * (np.arange(N) != 5))
    assert "1 position (3) has too few documents" in text
    assert "1 position (5) holds no tokens and takes no part." in text


def test_nothing_rare_and_nothing_absent_needs_no_sentence():
    full = {"rare": np.zeros(N, bool), "documents_per_position": np.full(N, 100)}
    assert "too few" not in said(**full)
    assert shown(**full)["Positions too rare to judge"] == "0 of 48; every position holds tokens"


def test_without_bootstrap_there_are_no_intervals():
    text = said(bootstrap=0, intervals={})
    assert "No intervals were computed (bootstrap = 0)" in text
    assert "interval 9" not in text


def test_the_fixture_is_what_it_claims():
    case = factory.analysis()
    assert np.sum(case.split_half_eigenvalues > case.null_eigenvalue) == case.effective_rank

import math

import numpy as np
import pytest

from jaxpe.analysis.corpus import Interval, Where
from jaxpe.analysis.corpus.result import SHARES
from jaxpe.data import Choice, NeighbourSimilarity
from jaxpe.report import findings, summary
from jaxpe.report.corpus.advice import advice
from jaxpe.report.corpus.headlines import headlines, where_table
from jaxpe.report.corpus.letters import letter_table
from jaxpe.report.corpus.predicates import (
    best_fixed,
    distance_groups,
    families,
    main_positions,
    nearness,
)
from jaxpe.report.corpus.text import encoding_findings, keyed_sentences, named_findings
from tests.report import factory
from tests.report.factory import REACH, WHERE, N, analysis, score

FITTED = "Fitted encoding, held-out stress"
FIXED = "Best fixed encoding, held-out stress"
FULL = {"rare_positions": np.array([], int), "documents_per_position": np.full(N, 100)}
NOBODY = {"position": {"present": np.zeros(N, bool), "significant_rank": 0}, "intervals": {}}


def topics(**overrides) -> dict[str, str]:
    texts = named_findings(analysis(**overrides))
    return {name: text.replace("\N{NO-BREAK SPACE}", " ") for name, text in texts.items()}


def cards(**overrides) -> dict[str, str]:
    lines = headlines(analysis(**overrides))
    return {h.label: f"{h.value}; {h.detail}".replace("\N{NO-BREAK SPACE}", " ") for h in lines}


def test_the_usual_case_has_each_number_under_its_topic():
    text = topics()
    numbers = {
        "shares": ["90 % (87 % to 93 %)", "4 % (3 % to 5 %)", "6 % (5 % to 7 %)"],
        "dimensions": ["2 significant dimensions", "0.04", "44"],
        "letters": ["position 7. ", "1.40 bits (1.30 to 1.60) of 2.00", "19.0 bits"],
        "standing out": ["1 position stands", "7", "At position 7, 80 % ", "nearest two, 20 %"],
        "reach": ["position 45", "12,480", "cohort"],
        "fitted": ["2 coordinates", "0.05 (0.04 to 0.06)", "0.07 (0.03 to 0.11)"],
        "fixed": ["alibi", "0.12 (0.10 to 0.14)"],
        "nearness": ["more similar", "0.31 (0.25 to 0.37)"],
        "gaps": ["6 positions", "40–45", "3 positions", "0, 46–47"],
        "doubts": ["16 folds"],
    }
    assert list(text) == list(numbers)
    assert findings(analysis()) == list(named_findings(analysis()).values())
    for topic, parts in numbers.items():
        assert all(part in text[topic] for part in parts), topic


OTHER_WIDTH = analysis().held_out._replace(best=[["alibi"]] * 3 + [["rope", "sinusoidal"]])
AT_EQUAL = analysis().held_out._replace(over_equal=Interval(0.03, 0.01, 0.05))
ALL_RARE = {"rare_positions": np.arange(N)}
SEQUENCES = {"letters": analysis().letters._replace(alphabet="nucleotides")}
KMERS = SEQUENCES | {"tokenizer": "kmer:3"}
# Overrides of the usual case, a topic, and words of it; None where the topic is left out.
TOPICS = [
    ({"position": {"significant_rank": 1}}, "dimensions", "1 significant dimension. 1 eigenvalue "),
    ({"position": {"significant_rank": 0, "p_value": 0.4}}, "dimensions", "p = 0.4"),
    ({"position": {"significant_rank": 0}}, "fitted", None),
    ({"position": {"significant_rank": 0}}, "fixed", None),
    ({"position": {"significant_rank": 0}}, "nearness", None),
    ({"documents_per_position": 9 * (np.arange(N) == 0)}, "dimensions", "one position has tokens"),
    ({"plug_in": {"trace": 0.0}}, "dimensions", "no variance"),
    (NOBODY, "dimensions", "both halves"),
    (NOBODY, "shares", None),
    (NOBODY, "reach", None),
    (NOBODY | {"groups": 1}, "dimensions", "copies or pieces"),
    ({"position": {"composition_correlation": 0.9}}, "reach", "(0.90)"),
    ({"documents_per_position": np.full(N, 12_480)}, "reach", "12,480 of 12,480"),
    ({"held_out": OTHER_WIDTH}, "fixed", "rope at 128"),
    ({"held_out": AT_EQUAL}, "fixed", "No fixed encoding of width 64 or less fits much better"),
    (ALL_RARE, "dimensions", "No position can be judged alone"),
    ({"letters": None, "standing_out": []}, "letters", None),
    ({"letters": None, "standing_out": []}, "standing out", None),
    ({"origin": 20}, "reach", "position +25"),
    ({"where": WHERE}, "where", "saves 0.10 (0.05 to 0.20) bits per token. The first position has"),
    ({"where": WHERE}, "where", "has half of these bits, the first 3 (2 or more) 90 %. Knowing"),
    ({"where": WHERE, "origin": 20}, "where", "bits per token. 9 of 12,480 documents are longer"),
    ({"where": WHERE._replace(start=None)}, "where", "from the end, in documents that were not"),
    ({"position": {"half_distance": Interval(5, 4, 9)}}, "where", "at offset 5 (4 to 9)"),
    ({}, "where", None),
    ({"origin": 20}, "gaps", "(+20 to +25)"),
    ({"origin": 20}, "standing out", "positions: −13. At position −13, 80 %"),
    ({"rare_positions": [3]}, "gaps", "1 position (3) cannot be judged alone"),
    (FULL, "gaps", None),
    (SEQUENCES, "letters", "19.0 bits. That counts unequal"),
    (
        SEQUENCES,
        "letters",
        "43 positions that do not differ (A 70 %, C 10 %, G 10 %, T 10 %), it is 9.5",
    ),
    (
        SEQUENCES,
        "letters",
        "2 positions differ from the composition of the others: 6–7. Of these, 6",
    ),
    (SEQUENCES | {"where": WHERE}, "letters", "The 0.1 bits per token are a mean"),
    (KMERS, "letters", "A 3-mer at position p covers p to p + 2."),
    ({"from_counts": True, "group_field": "author"}, "dimensions", "'author'"),
    ({"from_counts": True, "group_field": "author"}, "doubts", "'author'"),
    ({"from_counts": True}, "doubts", "group_field"),
    ({"edges": (0, 4, 8, 16)}, "bins", "4 to 8 positions: 3 bins over the first 16"),
    ({"groups": 9000}, "dependence", "12,480 documents form 9,000 independent groups"),
    ({"groups": 12_000}, "dependence", None),
    ({"group_field": "author", "groups": 40}, "dependence", "40 groups by 'author'"),
    ({"neighbours": NeighbourSimilarity(0.11, 0.001, 0.005, 12_480)}, "dependence", "cosine 0.11"),
]


@pytest.mark.parametrize(("overrides", "topic", "words"), TOPICS)
def test_every_topic_follows_the_numbers(overrides, topic, words):
    text = topics(**overrides)
    assert topic not in text if words is None else words in text[topic]


@pytest.mark.parametrize("rare", [np.arange(N), np.arange(N - 1, N)])
def test_documents_that_the_limit_left_out_are_asked_for_first(rare):
    assert not any("--limit" in step.paste for step in advice(analysis(rare_positions=rare)))
    choices = (Choice("documents", "2,000 of 67,349", "a random sample", "leave `limit` out"),)
    case = analysis(rare_positions=rare, choices=choices, given={"limit": "2000"})
    assert advice(case)[0].paste.endswith("--limit 8000")
    assert "Add" not in advice(case)[0].text


def test_pages_of_sequences_are_about_their_letters():
    case = analysis(**SEQUENCES, origin=20, given={"align": "500", "tokenizer": "kmer:2"})
    assert not {FITTED, FIXED, "Nearness (0: no order)"} & {h.label for h in headlines(case)}
    assert "stress" not in summary(case) + " ".join(findings(case)[:-1])
    assert len(encoding_findings(case)) == 2
    assert not nearness(case)
    _, header, rows = letter_table(case)
    row = dict(zip(header, rows[7], strict=True))
    assert (row["position"], row["bits"], row["consensus"], row["share"]) == (
        "-13", "1.400", "A", "0.700"
    )  # fmt: skip
    assert (row["differs"], row["stands out"]) == ("yes", "yes")
    assert letter_table(analysis()) is None
    assert "19.0" not in " ".join(topics(**KMERS).values())
    paste = "jaxpe report background.fa --align 500 --tokenizer kmer:2"
    assert [step.paste for step in advice(case)][-1] == paste
    assert "train" not in "".join(step.paste for step in advice(analysis(**SEQUENCES)))


def test_without_structure_nothing_is_claimed():
    case = {"position": {"significant_rank": 0, "p_value": 0.4}}
    assert not nearness(analysis(**case))
    assert cards(**case)[FITTED] == cards(**case)[FIXED] == "none; nothing to fit"
    assert cards(encodings=[])[FIXED] == "none; nothing to fit"
    assert cards(**NOBODY)["Position's share of the observed variance"].startswith("n/a;")
    for overrides in (case, NOBODY):
        assert "nothing to fit" in summary(analysis(**overrides))


def test_shares_are_within_bounds_and_equal_ends_are_said_once():
    below = Interval(-0.01, -0.02, 0.0)
    shares = {"composition_share": below, "position_share": below}
    shares |= {"noise_share": Interval(1.02, 0.999, 1.05)}
    text = topics(intervals=shares)["shares"]
    assert "100 % (over 99 % to 100 %) is sampling noise. Composition makes up 0 %" in text
    assert "do not add up" in text
    assert "do not add up" not in topics()["shares"]
    shares = {f"{name}_share": Interval(0.004, 0.001, 0.02) for name in SHARES}
    assert "0.4 % (0.1 % to 2.0 %) is sampling" in topics(intervals=shares)["shares"]
    assert cards(intervals=shares)["Nearness (0: no order)"] == "n/a; no interval"
    shares |= {"position_share": Interval(0.0512, 0.048, 0.0526)}
    assert "position 5.1 % (4.8 % to 5.3 %)." in topics(intervals=shares)["shares"]
    card = cards(intervals=shares, where=WHERE)["Position's share of the observed variance"]
    assert card.startswith("5.1 %; 4.8 % to 5.3 %; noise")


def test_bits_of_an_end_that_are_not_significant_have_their_documents():
    end = REACH._replace(bits=Interval(0.06, -0.0007, 0.1), half=None, most=None)
    case = analysis(where=Where(REACH, end, 9, 1204), letters=None)
    _, _, rows = where_table(case)
    assert rows[3][1:] == ("0.060", "-0.001 to 0.100, not significant", "1,204")
    assert [row[0] for row in rows].count("First positions with 90 % of the bits") == 1
    assert next(iter(cards(where=WHERE))) == "Bits per token, from the start"
    assert summary(case).startswith(
        "Knowing the position saves 0.10 (0.05 to 0.20) bits per token."
    )
    assert "no bits from the end" in keyed_sentences(case)


def test_the_summary_advises_where_the_difference_is_significant():
    text = summary(analysis()).replace("\N{NO-BREAK SPACE}", " ")
    parts = ("2 significant dimensions", "90 %", "0.05 (0.04 to 0.06)", "alibi", "encoding.npz")
    assert all(part in text for part in parts)
    undecided = analysis().held_out._replace(gain=Interval(0.01, -0.01, 0.03))
    assert "encoding.npz" not in summary(analysis(held_out=undecided))


def test_encodings_that_tie_are_named_together():
    tied = {"position_scaled_stress": 0.13}
    case = {"encodings": [score("alibi"), score("rope", **tied), score("sinusoidal", **tied)]}
    assert [s.name for s in best_fixed(analysis(**case))] == ["alibi", "rope", "sinusoidal"]
    assert "rope (= sinusoidal) is not significantly worse" in topics(**case)["fixed"]
    assert "alibi, 0.10 to 0.14; 1 not" in cards(**case)[FIXED]
    wider = {"position": {"significant_rank": 3}, "held_out": analysis().held_out}  # fitted to 2
    assert "dimension 2, the widest tried" in cards(**wider)[FITTED]


def test_groups_have_equal_distances_up_to_scale():
    a, scaled, other = score("random"), score("learned"), score("cosine", scaled_stress=0.029)
    assert [len(group) for group in distance_groups([a, scaled, other])] == [2, 1]
    nothing = score("a", distances=np.zeros((N, N)))
    assert len(distance_groups([nothing, nothing])) == 2


def test_families_keep_their_order():
    by_family = families([score(name) for name in ("rope", "mds", "alibi", "rope_partial")])
    assert list(by_family) == ["rotary", "fitted", "bias"]
    assert [s.name for s in by_family["rotary"]] == ["rope", "rope_partial"]


def test_scores_that_are_not_numbers_never_win():
    broken = score("rope", scaled_stress=math.nan, position_scaled_stress=math.nan)
    case = analysis(encodings=[broken, score("alibi")])
    assert [s.name for s in best_fixed(case)] == ["alibi"]


@pytest.mark.parametrize(
    ("interval", "verdict", "words"),
    [
        (Interval(0.2, 0.1, 0.3), "more", "more similar"),
        (Interval(0.2, -0.1, 0.5), "undecided", "not decided"),
        (Interval(-0.2, -0.3, -0.1), "mixed", "not change steadily"),
    ],
)
def test_nearness(interval, verdict, words):
    intervals = analysis().intervals | {"nearness": interval}
    assert nearness(analysis(intervals=intervals)) == verdict
    assert words in topics(intervals=intervals)["nearness"]


def test_nearness_rests_on_offsets_with_enough_pairs():
    curve = analysis().position.by_offset
    last = np.flatnonzero(np.isfinite(curve[0]))[-1]
    falls = np.where(np.arange(N - 1) > last - 1, 0, curve)
    assert nearness(analysis(position={"by_offset": falls})) == "more"
    falls = np.where(np.arange(N - 1) > last - 6, 0, curve)
    assert nearness(analysis(position={"by_offset": falls})) == "rises and falls"
    noisy = curve.copy()
    noisy[:, last - 5 :] = curve[:, [last - 6]] - 0.015  # of intervals of ±0.01, which overlap
    assert nearness(analysis(position={"by_offset": noisy})) == "more"


def test_main_positions_have_their_share_of_squared_distances_to_the_centroid():
    x = 0.1 * np.sin(np.arange(N))
    x[[5, 30]] = 3, 2
    case = analysis(position={"squared_distances": (x[:, None] - x) ** 2})
    away = np.where(case.position.present, x - x[case.position.present].mean(), 0) ** 2
    positions, share = main_positions(case)
    assert (positions.tolist(), share) == ([5, 30], pytest.approx(away[[5, 30]].sum() / away.sum()))


def test_the_fixture_is_what_it_claims():
    position = factory.analysis().position
    assert np.sum(position.eigenvalues > position.null_eigenvalue) == position.significant_rank


@pytest.mark.parametrize(
    ("power", "tau", "shown"),
    [
        (-0.5, 0.3, ("(1 + i/τ)^a", "τ = 0.3 and", "a = -0.5,")),
        (0.0, 0.03, ("log(1 + i/τ)", "τ = 0.03 (the least tried)")),
        (1.0, 30.0, ("τ = 30 (the largest tried)", "a = 1 (the largest tried)")),
    ],
)
def test_one_number_for_each_position_has_its_stress_and_parameters(power, tau, shown):
    held_out = analysis().held_out._replace(power=power, tau=tau)
    text = " ".join(findings(analysis()._replace(held_out=held_out)))
    sentence = text[text.index("One number for each position") :]
    for number in (*shown, "0.25 (0.20 to 0.30)"):
        assert number in sentence

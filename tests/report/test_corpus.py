"""Page of a corpus: values, verdicts at the numbers that decide them, figures and steps."""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jaxpe.analysis.corpus import Interval, LetterInformation
from jaxpe.analysis.corpus.options import CorpusOptions
from jaxpe.data import Choice, NeighbourSimilarity
from jaxpe.data.corpora.load import MARKUP, SAMPLE
from jaxpe.plot.axes import offset_quantiles
from jaxpe.report.drawing import draw
from jaxpe.report.findings import Finding
from jaxpe.report.pages import corpus, letters
from jaxpe.report.writing import page, references
from tests.report.factory import REACH, WHERE, N, analysis, score

REPORT = analysis()  # of two significant dimensions
LEAST = math.ulp(0.0)


def above(x: float) -> float:
    return math.nextafter(x, math.inf)


def below(x: float) -> float:
    return math.nextafter(x, -math.inf)


def changed(**fields: Any) -> Any:
    """The usual report with other fields; of a nested one, some of its own as a dict."""
    nested = {
        name: getattr(REPORT, name)._replace(**value)
        for name, value in fields.items()
        if isinstance(value, dict) and name != "intervals"
    }
    return REPORT._replace(**fields | nested)


def share(name: str, *ends: float) -> dict[str, Any]:
    return {"intervals": REPORT.intervals | {name: Interval(*ends)}}


def found(name: str, **fields: Any) -> Finding | None:
    """The first finding whose name starts so."""
    shown = page(changed(**fields)).findings
    return next((one for one in shown if one.name.startswith(name)), None)


def verdict(name: str, fields: Callable[[Any], dict[str, Any]]) -> Callable[[Any], str | None]:
    """Verdict of a finding by the number that decides it; None without the finding."""

    def judge(value: Any) -> str | None:
        one = found(name, **fields(value))
        return None if one is None else one.verdict

    return judge


def nearness_of(low: float, high: float, *, sign: int = 1) -> str:
    """Nearness by its interval, of distances that grow with the offset, or fall."""
    curve = {"by_offset": np.sort(sign * REPORT.position.by_offset, axis=0)[[1, 0, 2]]}
    return corpus.nearness(changed(position=curve, **share("nearness", 0.0, low, high)))


def start(bits: Interval, half: Interval | None = REACH.half) -> dict[str, Any]:
    return {"where": WHERE._replace(start=REACH._replace(bits=bits, half=half), end=None)}


MORE, MIXED = "nearer positions are more alike", "distance does not change steadily"
FEW, NEAR = "few reach it", "alike: intervals are too short"
VERDICTS: dict[str, tuple[Callable[[Any], Any], dict[Any, Any]]] = {
    "share of position": (
        verdict("position’s share", lambda low: share("position_share", 0.1, low, 0.2)),
        {0.0: "not shown: the interval includes 0", LEAST: "found", math.nan: "not judged"},
    ),
    "null, by the share": (
        verdict("position’s share", lambda high: share("position_share", -0.1, -0.2, high)),
        {-LEAST: corpus._NULL_FAILS, 0.0: "not shown: the interval includes 0"},
    ),
    "null, by the bits": (
        verdict("bits per token", lambda high: start(Interval(-0.1, -0.2, high), None)),
        {-LEAST: corpus._NULL_FAILS, 0.0: "not significant"},
    ),
    "bits": (
        verdict("bits per token", lambda half: start(Interval(0.1, 0.0, 0.2), half)),
        {None: "not significant", REACH.half: "significant"},
    ),
    "shares outside of 0 to 1": (
        lambda x: "bound" in found("share of noise", **share("noise_share", x, x, x)).sentence,
        {1.004: False, 1.006: True, -0.004: False, -0.006: True},
    ),
    "dimensions": (
        verdict("significant dim", lambda rank: {"position": {"significant_rank": rank}}),
        {0: "none above chance", 1: "above chance"},
    ),
    "few reach": (
        verdict("documents at", lambda last: {"documents_per_position": np.full(N, last)}),
        {11_231: FEW, 11_232: ""},  # of 12,480 documents
    ),
    "few reach the last position with tokens": (
        verdict(
            "documents at",
            lambda last: {"documents_per_position": np.append([last] * (N - 1), 0)},
        ),
        {11_231: FEW, 11_232: ""},
    ),
    "like composition": (
        verdict("correlation", lambda r: {"position": {"composition_correlation": r}}),
        {below(0.3): None, 0.3: "both may change towards the end"},
    ),
    "neighbours' p-value": (
        verdict("cosine", lambda p: {"neighbours": NeighbourSimilarity(0.11, 0.001, p, 99)}),
        {below(0.01): NEAR, 0.01: "no more alike"},
    ),
    "neighbours' similarity": (
        verdict("cosine", lambda x: {"neighbours": NeighbourSimilarity(x, 0.001, 0.001, 99)}),
        {0.01: "no more alike", above(0.01): NEAR},
    ),
    "groups": (
        verdict("groups", lambda count: {"facts": {"groups": count}}),
        {11_232: "", 11_233: None},
    ),
    "gain": (
        verdict("stress of", lambda ends: {"held_out": {"gain": Interval(0.0, *ends)}}),
        {
            (LEAST, 1.0): "the fitted one is better",
            (0.0, 1.0): "not decided",
            (-1.0, 0.0): "not decided",
            (-1.0, -LEAST): "the fixed one is better",
        },
    ),
    "over equal distances, by an interval": (
        verdict(
            "held-out", lambda low: {"held_out": {"over_equal": Interval(0.2, low, 0.3)}}
        ),
        {0.0: "not shown to beat equal distances", LEAST: "best of the fixed encodings"},
    ),
    "over equal distances, by a tenth": (  # of 0.48
        verdict("held-out", lambda x: {"held_out": {"over_equal": Interval(x, 0.01, 0.3)}}),
        {0.047: "little better than equal distances", 0.049: "best of the fixed encodings"},
    ),
    "nearness": (
        lambda ends: nearness_of(*ends),
        {(LEAST, 1.0): MORE, (0.0, 1.0): "not decided", (-1.0, 0.0): "not decided"},
    ),
    "nearness, by the trend of distances": (
        lambda case: nearness_of(*case[1:], sign=case[0]),
        {
            (1, 0.1, 0.3): MORE,
            (-1, 0.1, 0.3): MIXED,
            (1, -0.3, -0.1): MIXED,
            (-1, -0.3, -0.1): "nearer positions are less alike",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_change_at_their_number(name):
    judge, expected = VERDICTS[name]
    assert {value: judge(value) for value in expected} == expected


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("one position", {"documents_per_position": np.eye(N, dtype=int)[3]}),
        ("no variance", {"observed": {"eigenvalues": np.zeros(N)}}),
        ("no halves", {"position": {"present": np.zeros(N, bool)}}),
        ("one group", {"position": {"present": np.zeros(N, bool)}, "facts": {"groups": 1}}),
        ("only rare", {"position": {"standard_errors": np.full(N, 1e9)}}),
    ],
)
def test_what_cannot_be_judged_is_named(kind, fields):
    result = analysis(**fields)
    assert corpus.dimensions_kind(result) == kind
    one = corpus.dimensions(result)
    assert (one.verdict, one.sentence, one.todo) == corpus._DIMENSIONS[kind]
    steps = [step.paste for step in page(result).steps]
    assert any("--tokenizer characters" in x for x in steps) == (kind == "one position")
    assert not any("train" in x for x in steps) or kind == "no variance"


def test_values_of_findings_are_those_of_the_result():
    shown = {one.name: one for one in page(REPORT).findings}
    position, held_out, reach = REPORT.position, REPORT.held_out, REPORT.where.start
    intervals = {
        "position’s share of the variance": REPORT.intervals["position_share"],
        "share of noise": REPORT.intervals["noise_share"],
        "share of composition": REPORT.intervals["composition_share"],
        "nearness": REPORT.intervals["nearness"],
        "bits per token, from the start": reach.bits,
        "first positions with half of the bits": reach.half,
        "first positions with 90 % of the bits": reach.most,
        "held-out stress of alibi": held_out.fixed["alibi"],
        "held-out stress of the fitted encoding, dimension 2": held_out.own[1],
        "stress of alibi less the fitted one": held_out.gain,
    }
    for name, interval in intervals.items():
        assert (shown[name].value, shown[name].low, shown[name].high) == interval, name
    values = {
        "significant dimensions": (2, 44),
        "largest eigenvalue, weighted by documents": (
            position.rank_eigenvalues[0],
            position.null_eigenvalue,
        ),
        "positions too noisy to judge alone": (6, N),
        "documents at position 45": (REPORT.documents_per_position[45], 12_480),
        "documents cut at 48 tokens": (9, 12_480),
        "cosine of neighbours in the source": (0.002, 0.001),
    }
    for name, expected in values.items():
        assert (shown[name].value, shown[name].reference) == expected, name
    assert shown["largest information, at position 7"].value == pytest.approx(1.4)
    assert shown["information of all positions"].value == pytest.approx(0.4 * 45 + 1)


def test_rows_of_the_encodings_are_by_family_with_held_out_stress():
    rows = {row[0]: row for row in corpus._encoding_table(REPORT).rows}
    assert rows["alibi"] == (
        "alibi", "bias, width 1", "0.31", "0.12", "0.12 (0.10–0.14)", "22\xa0%", "0.69",
    )  # fmt: skip
    assert rows["mds"][4] == ""
    families = [row[1].split(",")[0] for row in corpus._encoding_table(REPORT).rows]
    assert len(list(dict.fromkeys(families))) == sum(
        a != b for a, b in zip(["", *families], families, strict=False)
    )


def test_rows_of_letters_have_their_bits_shares_and_verdicts():
    given = REPORT.letters._replace(alphabet="nucleotides")
    table = letters.letter_table(changed(letters=given, facts={"origin": 8}))
    assert table.rows[7] == (
        "−1", "1.400", "1.300", "1.600", "0.700", "A", "0.700", "90", "yes", "yes",
    )  # fmt: skip
    assert table.rows[0] == ("−8", "", "", "", "", "", "", "0", "", "")


def test_sequences_begin_with_their_letters_and_no_command_names_an_absent_file():
    given = REPORT.letters._replace(alphabet="nucleotides")
    shown = page(changed(letters=given, facts={"origin": 8}))
    assert [one.name for one in shown.lead[:2]] == [
        "positions that differ from the background", "information against the background",
    ]  # fmt: skip
    assert shown.sections[0].figures[0].name == "logo"
    assert next(x for x in shown.sections if x.title == "Encodings").folded
    assert len(shown.figures) == 5
    assert [step.paste for step in shown.steps] == [""] * 2  # noise, and a background


@pytest.mark.parametrize(
    ("rare", "fields", "paste"),
    [
        ([45], {}, "jaxpe report --length 44"),  # 3 positions are empty
        ([3, 45], {}, ""),
        ([45], {"choices": (Choice(SAMPLE, "400 of 67,349", "", ""),)},
         "jaxpe report --limit 1600"),
        ([45], {"choices": (Choice(SAMPLE, "400 of 900", "", ""),)}, "jaxpe report --limit 900"),
        ([45], {"facts": {"origin": 8}}, ""),
        ([45], {"facts": {"from_counts": True}}, ""),
    ],
)  # fmt: skip
def test_noise_is_lessened_by_documents_or_a_shorter_length(rare, fields, paste):
    errors = np.where(np.isin(np.arange(N), rare), 1e9, 0.0)
    position = {"standard_errors": errors, "present": np.ones(N, bool)}
    one = found("positions too noisy", position=position, **fields)
    assert (one.value, one.paste) == (len(rare), paste)
    assert one.todo


def test_tags_and_options_of_the_report_are_in_the_next_steps():
    options = CorpusOptions(source="my films.csv", text_field="review", dim=32)
    choices = (Choice(MARKUP, "in 9 %", "read as text", "remove them with `sed`"),)
    steps = page(changed(options=options, choices=choices)).steps
    assert "HTML tags" in {step.name for step in steps}
    commands = [step.paste for step in steps if "jaxpe" in step.paste]
    assert all("'my films.csv'" in x and "--text-field review" in x for x in commands)
    assert [re.findall(r"--encoding (\w+)", x) for x in commands][-1] == ["shaw", "rope"]
    assert dataclasses.replace(options, limit=9).limit == 9  # as the commands are made


def test_methods_have_the_numbers_and_the_references_of_the_result():
    result = changed(options=CorpusOptions(source="sst2"), facts={"unknown_tokens": 1_234})
    text = corpus.methods(result)
    for words in (
        "12,480 documents in 12,480 groups",
        "the first 48 positions",
        "20 rotated",
        "the 19,000 words",
        "(1,207 tokens)",
        "1,234 outside",
        "SST-2 [@socher2013]",
    ):
        assert words in text  # fmt: skip
    cited = set(re.findall(r"@(\w+)", text))
    assert cited == set(re.findall(r"^@\w+{(\w+),", references(text), re.M))
    counted = changed(facts={"from_counts": True, "edges": tuple(range(0, 2 * N + 1, 2))})
    assert "the first 96 positions, in 48 bins" in corpus.methods(counted)
    assert "20 rotated" not in corpus.methods(counted)


def test_vectors_are_a_file_only_where_something_is_fitted():
    assert page(REPORT).files["encoding.npz"]
    nothing = page(analysis(position={"significant_rank": 0}))
    assert nothing.files == {"encoding.npz": None}
    assert nothing.lead[-1].verdict == "nothing to fit"


def test_figures_have_the_arrays_of_the_result():
    drawn = {one.name: draw(one) for one in page(changed(letters=None)).figures}
    position, observed = REPORT.position, REPORT.observed
    assert list(drawn) == ["shares", "distances", "spectrum", "map", "offset"]
    bars, reach = drawn["shares"].axes
    assert [bar.get_width() for bar in bars.patches] == [0.9, 0.04, 0.06]
    assert reach.collections[0].get_paths()[0].vertices[:, 1].max() == max(
        REPORT.documents_per_position
    )
    left, right = [ax.images[0].get_array() for ax in drawn["distances"].axes[:2]]
    np.testing.assert_array_equal(left[1, 2:46], observed.distances[1, 2:46])
    expected = np.sqrt(np.clip(position.squared_distances, 0, None))
    np.testing.assert_array_equal(right[1, 2:44], expected[1, 2:44])
    values, level = drawn["spectrum"].axes[0].lines
    shown = position.rank_eigenvalues[np.abs(position.rank_eigenvalues) > 1e-12]
    np.testing.assert_array_equal(values.get_ydata(), shown)
    assert level.get_ydata()[0] == position.null_eigenvalue
    points = drawn["map"].axes[0].collections[0].get_offsets()
    np.testing.assert_array_equal(points, position.coordinates[position.present, :2])
    as_observed, curve = drawn["offset"].axes[0].lines
    np.testing.assert_array_equal(curve.get_ydata(), position.by_offset[0])
    squares = offset_quantiles(observed.distances**2, observed.present)[0]
    np.testing.assert_array_equal(as_observed.get_ydata(), squares)


def test_a_logo_has_rows_about_its_site(monkeypatch):
    monkeypatch.setattr(letters, "_LOGO_ROW", 4)
    monkeypatch.setattr(letters, "_LOGO_ROWS", 2)
    axes = draw(letters.logo_figure(changed(facts={"origin": 20}))).axes
    assert [ax.get_xlim() for ax in axes] == [(-2.5, 1.5), (1.5, 5.5)]
    last = draw(letters.logo_figure(changed(facts={"origin": 47}))).axes
    assert [ax.get_xlim() for ax in last] == [(-7.5, -3.5), (-3.5, 0.5)]
    (mean, _, _), bars = REPORT.letters.bits[:, 18:22], axes[0].containers[0]
    np.testing.assert_allclose(bars[2][0].get_segments()[0][:, 1], [0.3, mean[0] + 0.2])


def test_k_mers_do_not_add_up_and_few_sequences_are_not_judged():
    given = REPORT.letters._replace(alphabet="nucleotides")
    assert isinstance(given, LetterInformation)
    names = [one.name for one in letters.findings(changed(letters=given))]
    assert "information against the background" in names
    k_mers = letters.findings(changed(letters=given, facts={"tokenizer": "kmer:3"}))
    assert not [one for one in k_mers if "all positions" in one.name]
    assert letters.kmer_length(changed(facts={"tokenizer": "kmer:1"})) == 0
    few = given._replace(documents=np.full(N, 9))  # three positions have no bits
    one = letters.findings(changed(letters=few))[-1]
    assert (one.value, one.verdict) == (3, "not judged")
    flat = {"significant_rank": 0}
    assert letters.findings(changed(letters=given, position=flat))[0].value == len(given.differing)
    assert not letters.findings(changed(letters=given._replace(alphabet=""), position=flat))


def test_main_positions_have_their_share_of_squared_distances_to_the_centroid():
    points = np.zeros(N)
    points[7] = 1.0
    squares = np.subtract.outer(points, points) ** 2
    position = {"squared_distances": squares, "present": np.ones(N, bool),
                "standard_errors": np.zeros(N)}  # fmt: skip
    main, part = corpus.main_positions(changed(position=position))
    assert main.tolist() == [7]
    assert part == pytest.approx((1 - 1 / N) ** 2 / ((1 - 1 / N) ** 2 + (N - 1) / N**2))
    spread = position | {"squared_distances": np.subtract.outer(*[np.arange(N) * 1.0] * 2) ** 2}
    assert not len(corpus.main_positions(changed(position=spread))[0])


def test_scores_that_are_not_numbers_are_shown_as_such():
    rows = corpus._encoding_table(analysis(encodings=[score("rope", mantel_r=math.nan)])).rows
    assert rows[0][-1] == "n/a"

"""Page of a corpus: values of its findings, advice, tables and figures are those of the result."""

import re
from typing import Any

import numpy as np
import pytest

from jaxpe._core.options import Choice
from jaxpe.analysis.corpus import CorpusOptions
from jaxpe.analysis.corpus.result import Interval, StandingOut, TokenShift
from jaxpe.data.corpora.groups import NeighbourSimilarity
from jaxpe.data.corpora.load import MARKUP, SAMPLE
from jaxpe.plot.axes import offset_quantiles
from jaxpe.report import draw, page
from jaxpe.report.findings import Finding
from jaxpe.report.numbers import number, percent
from jaxpe.report.writing import references
from tests.report.factory import STORED, N, analysis, letters

NUCLEOTIDES = letters([*"ACGT"], "nucleotides")


def share(name: str, *ends: float) -> dict[str, Any]:
    return {"intervals": STORED.intervals | {name: Interval(*ends)}}


def found(name: str, **fields: Any) -> Finding:
    """The first finding whose name starts so."""
    return next(one for one in page(analysis(**fields)).findings if one.name.startswith(name))


def nearness(sign: int, *ends: float) -> dict[str, Any]:
    """Distances that grow with the offset, or fall, and nearness by its interval."""
    curve = np.linspace(1, 2, N - 1)[::sign]
    of_all = {"by_offset": np.stack([curve, curve - 0.1, curve + 0.1])}
    return {"position": of_all, **share("nearness", 0.0, *ends)}


def bits(*ends: float) -> dict[str, Any]:
    reach = STORED.where.start._replace(bits=Interval(*ends), half=None)
    return {"where": STORED.where._replace(start=reach, end=None)}


def over_equal(*ends: float) -> dict[str, Any]:  # equal distances have 0.61
    return {"held_out": {"over_equal": Interval(*ends)}}


FAILS = "the null does not hold"
# A finding under other fields, and its verdict.
VERDICTS = [
    ("position’s share", share("position_share", 0.1, 0.01, 0.2), "found"),
    ("position’s share", share("position_share", 0.1, -0.01, 0.2), "not shown"),
    ("position’s share", share("position_share", -0.1, -0.2, -0.01), FAILS),
    ("bits per token", bits(-0.1, -0.2, -0.01), FAILS),
    ("bits per token", bits(0.1, -0.1, 0.2), "not significant"),
    ("significant dim", {"position": {"significant_rank": 0}}, "none"),
    ("cosine", {"neighbours": NeighbourSimilarity(0.11, 0.001, 0.001, 99)}, "alike"),
    ("cosine", {"neighbours": NeighbourSimilarity(0.11, 0.001, 0.02, 99)}, "no more"),
    ("stress of", {"held_out": {"gain": Interval(0.1, 0.01, 0.2)}}, "the fitted one is better"),
    ("stress of", {"held_out": {"gain": Interval(0.1, -0.1, 0.2)}}, "not decided"),
    ("held-out", over_equal(0.2, -0.1, 0.3), "not shown"),
    ("held-out", over_equal(0.04, 0.01, 0.3), "little better"),
    ("held-out", over_equal(0.2, 0.1, 0.3), "best"),
    ("nearness", nearness(1, 0.1, 0.3), "nearer positions are more alike"),
    ("nearness", nearness(-1, 0.1, 0.3), "distance does not"),
    ("nearness", nearness(-1, -0.3, -0.1), "nearer positions are less alike"),
    ("nearness", nearness(1, -0.1, 0.3), "not decided"),
]


@pytest.mark.parametrize(("name", "fields", "verdict"), VERDICTS)
def test_verdicts_follow_the_intervals(name, fields, verdict):
    assert found(name, **fields).verdict.startswith(verdict)


@pytest.mark.parametrize(
    "fields",
    [
        {"documents_per_position": np.eye(N, dtype=int)[3]},
        {"observed": {"eigenvalues": np.zeros(N)}},
        {"position": {"present": np.zeros(N, bool)}},
        {"position": {"standard_errors": np.full(N, 1e9)}},
    ],
)
def test_where_nothing_can_be_judged_no_dimension_is_claimed(fields):
    one = found("significant dimensions", **fields)
    assert re.match("not judged|no ", one.verdict)


def test_values_of_findings_are_those_of_the_result():
    result = analysis(letters=NUCLEOTIDES, facts={"tokenizer": "characters"})
    shown = {one.name: one for one in [*page(STORED).findings, *page(result).findings]}
    position, held_out, where = STORED.position, STORED.held_out, STORED.where
    intervals = {
        "position’s share of the variance": STORED.intervals["position_share"],
        "share of noise": STORED.intervals["noise_share"],
        "share of composition": STORED.intervals["composition_share"],
        "nearness": STORED.intervals["nearness"],
        "half-distance": position.half_distance,
        "bits per token, from the start": where.start.bits,
        "bits per token, from the end": where.end.bits,
        "first positions with half of the bits": where.start.half,
        "last positions with 90 % of the bits": where.end.most,
        "held-out stress of log_position": held_out.fixed["log_position"],
        "held-out stress of the fitted encoding, dimension 5": held_out.own[4],
        "stress of log_position less the fitted one": held_out.gain,
    }
    for name, interval in intervals.items():
        assert (shown[name].value, shown[name].low, shown[name].high) == interval, name
    largest = position.rank_eigenvalues[0], position.null_eigenvalue
    values = {
        "significant dimensions": (5, STORED.observed.rank),
        "largest eigenvalue, weighted by documents": largest,
        "positions too noisy to judge alone": (len(STORED.rare_positions), N),
        f"documents at position {N - 1}": (STORED.documents_per_position[-1], 8254),
        f"documents cut at {N} tokens": (643, 8254),
        "cosine of neighbours in the source": STORED.neighbours[:2],
    }
    for name, expected in values.items():
        assert (shown[name].value, shown[name].reference) == expected, name
    assert shown["largest information, at position 7"].value == pytest.approx(1.4)
    assert shown["information of all positions"].value == pytest.approx(0.4 * 12 + 1)


def test_rows_of_tables_are_those_of_the_result():
    standing = [StandingOut(7, [TokenShift("A", 0.8, 0.2, 0.01)])]
    result = analysis(letters=NUCLEOTIDES, facts={"origin": 8}, standing_out=standing)
    shown = {table.title: table.rows for table in page(result).tables}
    fit = {row[0]: row[1:] for row in shown["Fit of the encodings"]}
    held_out = {name: x.estimate for name, x in STORED.held_out.fixed.items()}
    for one in STORED.encodings:
        family, observed, position, held, violated, r = fit[one.name]
        assert family.startswith(one.family)
        estimate = float(held.split(" ")[0]) if held else None
        assert estimate == pytest.approx(held_out.get(one.name), abs=0.006)
        expected = [number(one.scaled_stress), number(one.position_scaled_stress)]
        expected += [percent(one.violation_rate), number(one.mantel_r, 2)]
        assert [observed, position, violated, r] == expected
    (information,) = (rows for rows in shown.values() if len(rows) == N)
    assert information[7] == (
        "−1", "1.400", "0.700", "0.650", "0.800", "A", "0.700", "90", "yes", "yes",
    )  # fmt: skip
    assert shown["Most frequent tokens"][0] == ("−8", "return 1,205", "returns 246", "a 242")


def test_sequences_begin_with_their_letters_and_no_command_names_an_absent_file():
    shown = page(analysis(letters=NUCLEOTIDES, facts={"origin": 8}))
    assert shown.lead[0].value == len(NUCLEOTIDES.differing)
    assert shown.sections[0].figures[0].name == "logo"
    assert not any("--length" in step.paste or "train" in step.paste for step in shown.steps)
    k_mers = page(analysis(letters=NUCLEOTIDES, facts={"tokenizer": "kmer:3"}))  # they overlap
    assert "information of all positions" not in [one.name for one in k_mers.findings]


@pytest.mark.parametrize(
    ("rare", "fields", "paste"),
    [
        ([N - 1], {}, f"jaxpe report --length {N - 1}"),
        ([3, N - 1], {}, ""),
        ([N - 1], {"choices": (Choice(SAMPLE, "400 of 67,349", "", ""),)},
         "jaxpe report --limit 1600"),
        ([N - 1], {"facts": {"from_counts": True}}, ""),
    ],
)  # fmt: skip
def test_noise_is_lessened_by_documents_or_a_shorter_length(rare, fields, paste):
    errors = np.where(np.isin(np.arange(N), rare), 1e9, 0.0)
    position = {"standard_errors": errors, "present": np.ones(N, bool)}
    one = found("positions too noisy", position=position, **fields)
    assert (one.value, one.paste, bool(one.todo)) == (len(rare), paste, True)


def test_tags_and_options_of_the_report_are_in_the_next_steps():
    options = CorpusOptions(source="my films.csv", text_field="review", dim=32)
    choices = (Choice(MARKUP, "in 9 %", "read as text", "remove them with `sed`"),)
    steps = page(analysis(options=options, choices=choices)).steps
    assert "HTML tags" in {step.name for step in steps}
    commands = [step.paste for step in steps if "jaxpe" in step.paste]
    assert all("'my films.csv'" in x and "--text-field review" in x for x in commands)


def test_methods_have_the_numbers_and_the_references_of_the_result():
    options, facts = CorpusOptions(source="sst2"), {"unknown_tokens": 1_234}
    text = page(analysis(options=options, facts=facts)).methods
    for value in ("8,254", "6,009", "300,414", "128", "5,373", "292,939", "7,475", "1,234"):
        assert re.search(rf"\b{value}\b", text), value
    cited = set(re.findall(r"@(\w+)", text))
    assert "socher2013" in cited
    assert cited == set(re.findall(r"^@\w+{(\w+),", references(text), re.M))


def test_vectors_are_a_file_only_where_something_is_fitted():
    assert page(STORED).files["encoding.npz"]
    nothing = page(analysis(held_out={"dim": 0}))
    assert nothing.files == {"encoding.npz": None}
    assert nothing.lead[-1].verdict == "nothing to fit"


def test_figures_have_the_arrays_of_the_result():
    drawn = {one.name: draw(one) for one in page(STORED).figures}
    position, observed = STORED.position, STORED.observed
    bars, reach = drawn["shares"].axes
    shares = [STORED.intervals[f"{x}_share"][0] for x in ("noise", "composition", "position")]
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], shares)
    reached = reach.collections[0].get_paths()[0].vertices[:, 1]
    assert reached.max() == max(STORED.documents_per_position)
    left, right = [ax.images[0].get_array() for ax in drawn["distances"].axes[:2]]
    np.testing.assert_array_equal(left[1, 2:], observed.distances[1, 2:])
    expected = np.sqrt(np.clip(position.squared_distances, 0, None))
    np.testing.assert_array_equal(right[1, 2:40], expected[1, 2:40])
    values, level = drawn["spectrum"].axes[0].lines
    shown = position.rank_eigenvalues[np.abs(position.rank_eigenvalues) > 1e-12]
    np.testing.assert_array_equal(values.get_ydata()[:20], shown[:20])
    assert level.get_ydata()[0] == position.null_eigenvalue
    points = drawn["map"].axes[0].collections[0].get_offsets()
    np.testing.assert_array_equal(points, position.coordinates[position.present, :2])
    as_observed, curve = drawn["offset"].axes[0].lines
    np.testing.assert_array_equal(curve.get_ydata(), position.by_offset[0])
    squares = offset_quantiles(observed.distances**2, observed.present)[0]
    np.testing.assert_array_equal(as_observed.get_ydata(), squares)


def test_main_positions_have_their_share_of_squared_distances_to_the_centroid():
    points = np.zeros(N)
    points[7] = 1.0
    squares, every = np.subtract.outer(points, points) ** 2, np.ones(N, bool)
    position = {"squared_distances": squares, "present": every, "standard_errors": np.zeros(N)}
    share_of_7 = (1 - 1 / N) ** 2 / ((1 - 1 / N) ** 2 + (N - 1) / N**2)
    one = found("share of position’s variance at 7", position=position)
    assert one.value == pytest.approx(share_of_7)

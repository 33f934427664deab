"""Words, figures and numbers of an analysis of attention, true of its arrays."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result
from jaxpe.analysis.attention.result import (
    AttentionAnalysis,
    AttentionFacts,
    HeadDrops,
    MeanLogits,
    Pairs,
    PartShares,
    SingleDocuments,
    Variance,
    residual,
)
from jaxpe.report import write
from jaxpe.report.attention import figures as drawn
from jaxpe.report.attention import page, text
from jaxpe.report.attention.advice import advice
from jaxpe.report.attention.page import spectral_table
from jaxpe.report.files import remove_other_figures
from jaxpe.report.methods import methods, references
from jaxpe.report.style import Rendered, render


def report(*, layers=3, heads=4, n=10, causal=False, rotary=False, ablated=True, **overrides):
    """Made up: every head prefers one offset, head 1 of layer 2 alone is worth something."""
    rng = np.random.default_rng(0)
    size = (layers, heads)
    diagonals = rng.normal(size=(*size, 2 * n - 1))
    diagonals[1, 2, n - 2] = 50.0  # offset −1
    logits = rng.normal(size=(*size, n, n))
    if causal:
        logits = np.where(np.tri(n, dtype=bool), logits, np.nan)
    values = -np.sort(-rng.uniform(size=(*size, n)))
    one = rng.uniform(0.1, 0.9, size)
    offset = np.full(size, 0.1)
    offset[1, 2] = 0.6
    drop = np.full(size, 0.01)
    drop[2, 1] = 0.5
    p_value = np.where(drop > 0.1, 0.001, 0.9)
    drops = HeadDrops("zero", 8, -3.0, drop, drop - 0.005, drop + 0.005, p_value, (2, 1),
                      (0.8, 0.7, 0.9), 0.2, 0.3)  # fmt: skip
    fields = {
        "source": "stdlib",
        "model": "a model",
        "facts": AttentionFacts(layers, heads, 4, n, 8, "causal", True, 0, "0"),
        "causal": causal,
        "means": MeanLogits(logits, one, one, diagonals, diagonals[..., :5] + 1j, one, values,
                            values, 5 * one, np.full(size, np.inf), one),
        "single": SingleDocuments(one, one, one, one),
        "variance": variance(offset, np.full(size, 0.05)),
        "parts": PartShares(*(np.full((*size, 5), 0.25) for _ in range(3)), np.full(size, -0.25)),
        "embedded": PartShares(*(np.full((1, heads, 5), 0.2),) * 3, np.zeros((1, heads))),
        "pairs": Pairs(np.array([1.0, 0.01]), np.full((*size, 2), (0.2, 0.3))) if rotary else None,
        "ablations": [drops] if ablated else [],
        "seconds": {"logits": 1.0},
    }  # fmt: skip
    return AttentionAnalysis(**fields | overrides)


def variance(offset, place):
    level, total, shuffled = np.zeros_like(offset), np.ones_like(offset), np.full_like(offset, 0.12)
    return Variance(level, total, offset, place, shuffled, residual(offset, place))


def flat(report):
    """Logits that are one number, which explain nothing and have no spectrum."""
    layers, heads, n, _ = report.means.logits.shape
    none = np.zeros((layers, heads))
    means = report.means._replace(
        logits=np.zeros_like(report.means.logits),
        diagonals=np.zeros((layers, heads, 2 * n - 1)),
        singular=np.zeros((layers, heads, n)),
        effective_rank=none,
        circulant=np.full_like(none, np.nan),
    )
    drops = report.ablations[0]._replace(
        drop=none, low=none, high=none, p_value=none + 1, head=(0, 0), largest_share=(0.0, 0.0, 0.0)
    )
    nothing = PartShares(*(np.full((layers, heads, 5), np.nan),) * 3, none * np.nan)
    return report._replace(
        means=means,
        variance=Variance(*(none,) * 5, none * np.nan),
        parts=nothing,
        embedded=PartShares(*(x[:1] for x in nothing[:4])),
        ablations=[drops],
    )


CASES = {
    "plain": report(),
    "rotary and causal": report(causal=True, rotary=True),
    "without ablation": report(ablated=False),
    "one layer and head, few positions": report(layers=3, heads=3, n=4, causal=True),
    "flat": flat(report()),
}


def test_a_report_is_a_page_numbers_and_figures(tmp_path, monkeypatch):
    case = CASES["rotary and causal"]
    assert drawn.shown_figures(case) == list(drawn.FIGURES)
    # Files of the others are looked at where the command writes them.
    monkeypatch.setattr(drawn, "FIGURES", [drawn.FIGURES[-2]])
    page = write(case, tmp_path)
    figures = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    assert figures == {"frequencies"}
    for path in (tmp_path / "figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "NaN" not in (tmp_path / "spectral.json").read_text()
    saved = load_result(AttentionAnalysis, tmp_path / "spectral.json")
    np.testing.assert_array_equal(saved.means.logits, case.means.logits)
    np.testing.assert_array_equal(saved.variance.residual, case.variance.residual)
    np.testing.assert_array_equal(saved.means.symbol, case.means.symbol)
    assert saved.facts == case.facts
    assert "<script" not in page.read_text()
    assert len(spectral_table(case).rows) == 3


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_drawn(name):
    case = CASES[name]
    shown = drawn.shown_figures(case)
    titles = [draw(case).get_suptitle() for _, draw, *_ in shown]
    assert all(titles)
    assert case.pairs is None or numbers(titles[-2])[:2] == [1, 2]  # of two pairs, the second
    assert ("ablation" in [figure[0] for figure in shown]) == bool(case.ablations)
    assert ("frequencies" in [figure[0] for figure in shown]) == (case.pairs is not None)


@pytest.mark.parametrize(("layers", "causal"), [(12, False), (30, True)])
def test_large_models_make_light_figures(layers, causal):
    case = report(layers=layers, heads=12, n=62, causal=causal)
    (figure,) = render(case, ("logits", drawn.logits_figure, ""))
    assert len(figure.svg) < 200_000
    assert figure.svg == render(case, ("logits", drawn.logits_figure, ""))[0].svg


def numbers(text):
    """The numbers of a text, in order."""
    text = text.replace("\N{MINUS SIGN}", "-")
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", text)]


def test_findings_say_what_the_numbers_do():
    case = CASES["rotary and causal"]
    offset, _, _, _, parts, pairs, heads = text.spectral_findings(case)
    assert numbers(offset) == [2, 1, 60, -1]  # head and layer, its share, and where it looks
    assert numbers(parts)[-3:] == [-25, -25, -25]  # cross terms, and their range
    assert numbers(pairs)[:4] == [2, 1, 10, 60]
    share_and_chance = [80, 70, 90, 20, 8]
    assert numbers(heads) == [1, 2, 0.5, 0.495, 0.505, *share_and_chance, 1, 12]
    assert "no more than" not in heads


def test_what_is_no_more_than_chance_is_said():
    case = report()
    drops = case.ablations[0]
    # Intervals of each head alone may well be above 0.
    weak = case._replace(ablations=[drops._replace(p_value=np.full((3, 4), 0.06))])
    said = text.spectral_findings(weak)[-1]
    assert "no drop" in said
    assert numbers(said) == [8, 1, 2, 0.5]
    assert "No drop" in drawn.ablation_figure(weak).get_suptitle()
    assert "within noise" in text.spectral_headlines(weak)[-1].detail
    assert "within the noise" in text.spectral_summary(weak)
    other = np.full((3, 4), 0.9)
    other[0, 3] = 0.01
    small = case._replace(ablations=[drops._replace(p_value=other)])
    said = text.spectral_findings(small)[-1]
    assert "within noise" in said
    assert numbers(said) == [1, 2, 0.5, 3, 0, 0.01]
    assert "within noise" in drawn.ablation_figure(small).get_suptitle()
    spread = case._replace(ablations=[drops._replace(share_by_chance=0.85)])
    assert "no more than" in text.spectral_findings(spread)[-1]
    flat = " ".join(text.spectral_findings(CASES["flat"]))
    assert "In no head" in flat
    assert "logits are 0" in flat


def test_a_cosine_with_what_was_there_is_not_tested():
    case = report()
    drops = case.ablations[0]._replace(p_value=np.full((3, 4), np.nan))
    case = case._replace(ablations=[drops], facts=case.facts._replace(score="embedding"))
    said = text.spectral_findings(case)[-1]
    assert numbers(said) == [1, 2, 0.5, 0.495, 0.505, 80, 70, 90, 8]
    assert "noise" not in said
    assert "by chance" not in said
    assert "noise" not in text.spectral_headlines(case)[-1].detail
    assert numbers(drawn.ablation_figure(case).get_suptitle()) == [80]


def test_there_is_a_dash_where_there_is_no_number():
    case = report()
    place = np.full((3, 4), 0.005)
    place[1] = 0.1
    parts = case.parts._replace(cross=np.full((3, 4), np.nan))
    case = case._replace(variance=variance(np.full((3, 4), 0.001), place), parts=parts)
    cells = [text.position_cells(case, layer)[-1] for layer in range(3)]
    assert cells == ["–", "over 99\N{NO-BREAK SPACE}%", "–"]
    assert text.part_rows(case)[-1][1] == "–"


def test_names_from_outside_are_escaped(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "shown_figures", lambda report: [])
    case = report(source="<b>x</b>\u202e", model="<script>alert(1)</script>")
    html = write(case, tmp_path).read_text()
    assert "<script" not in html
    assert "<b>x" not in html
    assert "\u202e" not in html


def test_figures_of_an_earlier_report_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "shown_figures", lambda report: [])
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("ablation.png", "ablation.svg", "mine.png", "ablation.txt"):
        (folder / name).touch()
    write(CASES["without ablation"], tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["ablation.txt", "mine.png"]
    (folder / "ablation.png").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*make room"):
        write(CASES["without ablation"], tmp_path)


def test_only_figures_that_are_not_drawn_are_removed(tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("old.svg", "old.png", "new.svg", "other.svg"):
        (folder / name).touch()
    drawn = [Rendered("new", "", Figure)]
    remove_other_figures(tmp_path, "old|new", drawn)
    assert sorted(path.name for path in folder.iterdir()) == ["new.svg", "other.svg"]


def test_blocks_are_means_of_what_is_seen():
    matrix = np.arange(16.0).reshape(4, 4)
    matrix[0, 2:] = matrix[1, 2:] = np.nan
    assert np.isnan(drawn._blocks(matrix, 2)[0, 1])
    assert drawn._blocks(matrix, 2)[1].tolist() == [10.5, 12.5]
    np.testing.assert_array_equal(drawn._blocks(matrix, 4), matrix)


def test_methods_have_the_numbers_and_the_entries_they_cite():
    text = methods(report(), command="jaxpe spectral", date="2026-01-01", inputs=["a.txt"])
    assert "3 layers of 4 heads" in text
    assert text.endswith("Command: `jaxpe spectral`. Data: a.txt.")
    keys = set(re.findall(r"@([a-z]+[0-9]*)", text))
    assert keys == set(re.findall(r"^@\w+{([a-z]+[0-9]*),", references(report()), re.M))
    assert f"version={{{jaxpe.__version__}}}" in references(report())


def test_the_summary_names_the_cause_and_what_can_express_it():
    case = report()
    assert "both causes" in text.spectral_summary(case)  # 12 of 19 %
    none, most = np.zeros((3, 4)), np.full((3, 4), 0.3)
    of_offset = variance(most, none)._replace(shuffled=most)
    found = case._replace(variance=of_offset)
    assert "not words" in text.spectral_summary(found)
    of_words = variance(none, most)._replace(shuffled=none)
    found = case._replace(variance=of_words)
    assert "not the encoding" in text.spectral_summary(found)
    untrained = case._replace(facts=case.facts._replace(trained=False))
    assert text.spectral_summary(untrained).startswith("This model has not been trained")
    assert "jaxpe train" in advice(untrained)[0].paste
    assert "can express" not in text.spectral_summary(untrained)


def test_cards_are_short():
    cards = text.spectral_headlines(CASES["plain"])
    assert [card.value for card in cards[:2]] == ["19\N{NO-BREAK SPACE}%", "14\N{NO-BREAK SPACE}%"]
    assert all(len(card.value) < 12 for card in cards)


def test_scores_are_in_their_units():
    case = report()
    for score, shown in (("accuracy", "50.0 points"), ("masked", "0.5 nats"), ("embedding", "0.5")):
        own = case._replace(facts=case.facts._replace(score=score))
        assert text.drop_words(own, 0.5) == shown
        assert text.worst_drop(own, 2) == (shown.split()[0], "1")

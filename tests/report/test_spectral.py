"""Words, figures and numbers of a spectral report, true of the arrays they are made from."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.attention.result import (
    HeadDrops,
    MeanLogits,
    Pairs,
    PartShares,
    SpectralReport,
    Variance,
)
from jaxpe.report import spectral_json, spectral_table, write_spectral
from jaxpe.report.attention import figures as drawn
from jaxpe.report.attention import logit_figures, page, words
from jaxpe.report.style import render


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
        "facts": {"layers": layers, "heads": heads, "documents": 8, "positions": n,
                  "score": "causal"},
        "causal": causal,
        "means": MeanLogits(logits, one, one, diagonals, diagonals[..., :5] + 1j, one, values,
                            values, 5 * one, np.full(size, np.inf), one),
        "single": dict.fromkeys(("toeplitz", "szego", "effective_rank", "range"), one),
        "variance": Variance(np.zeros(size), np.ones(size), offset, np.full(size, 0.05),
                             np.full(size, 0.12)),
        "parts": PartShares(*(np.full((*size, 5), 0.25) for _ in range(3)), np.full(size, -0.25)),
        "embedded": PartShares(*(np.full((1, heads, 5), 0.2),) * 3, np.zeros((1, heads))),
        "pairs": Pairs(np.array([1.0, 0.01]), np.full((*size, 2), 0.3)) if rotary else None,
        "ablations": [drops] if ablated else [],
        "seconds": {"logits": 1.0},
    }  # fmt: skip
    return SpectralReport(**fields | overrides)


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
        variance=Variance(*(none,) * 5),
        parts=nothing,
        embedded=PartShares(*(x[:1] for x in nothing)),
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
    page = write_spectral(case, tmp_path)
    figures = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    assert figures == {"frequencies"}
    for path in (tmp_path / "figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "NaN" not in (tmp_path / "spectral.json").read_text()
    assert json.loads((tmp_path / "spectral.json").read_text()) == spectral_json(case)
    assert "<script" not in page.read_text()
    assert len(spectral_table(case).rows) == 3


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_drawn(name):
    case = CASES[name]
    shown = drawn.shown_figures(case)
    titles = [draw(case).get_suptitle() for _, draw, *_ in shown]
    assert all(titles)
    assert ("ablation" in [figure[0] for figure in shown]) == bool(case.ablations)
    assert ("frequencies" in [figure[0] for figure in shown]) == (case.pairs is not None)


@pytest.mark.parametrize(("layers", "causal"), [(12, False), (30, True)])
def test_large_models_make_light_figures(layers, causal):
    case = report(layers=layers, heads=12, n=62, causal=causal)
    figure = render(case, "logits", drawn.logits_figure, "")
    assert len(figure.svg) < 200_000
    assert figure == render(case, "logits", drawn.logits_figure, "")


def test_findings_say_what_the_numbers_do():
    found = " ".join(words.spectral_findings(CASES["rotary and causal"]))
    found = found.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")
    assert "Place in the document explains 28 % of the variance of the logits in layer 1" in found
    assert "with the tokens of each document in random order it is 12 % in layer 1." in found
    assert "most in head 2 of layer 1, 60 %" in found
    assert "that head looks hardest at offset -1" in found
    assert "cross terms are -25 %, between -25 % and -25 %" in found
    assert "50% lies in the 1 that turn" in found.replace(" %", "%")
    assert "head 1 of layer 2 costs most, 0.5 nats (interval 0.495 to 0.505 by" in found
    assert "with all heads considered, 1 head of 12 can be told from none" in found
    assert "holds 80 % of the sum of all drops (interval 70 % to 90 %), more than the 20 %" in found


def test_what_is_no_more_than_chance_is_said():
    case = report()
    drops = case.ablations[0]
    # Intervals of each head alone may well be above 0.
    weak = case._replace(ablations=[drops._replace(p_value=np.full((3, 4), 0.06))])
    said = words.spectral_findings(weak)[-1]
    assert "no loss can be told from none over 8 documents" in said
    assert "the largest is that of head 1 of layer 2, 0.5 nats." in said
    assert drawn.ablation_figure(weak).get_suptitle() == "No drop can be told from none"
    card = words.spectral_headlines(weak)[-1]
    assert card.detail == "head 1 of layer 2, not told from none"
    other = np.full((3, 4), 0.9)
    other[0, 3] = 0.01
    small = case._replace(ablations=[drops._replace(p_value=other)])
    said = words.spectral_findings(small)[-1]
    assert "of head 1 of layer 2, 0.5 nats, cannot be told from none" in said
    assert "of those that can, the largest is that of head 3 of layer 0, 0.01 nats." in said
    assert drawn.ablation_figure(small).get_suptitle() == (
        "The largest drop cannot be told from none"
    )
    spread = case._replace(ablations=[drops._replace(share_by_chance=0.85)])
    assert "no more than the 85" in words.spectral_findings(spread)[-1]
    flat = " ".join(words.spectral_findings(CASES["flat"]))
    assert "In no head does place explain" in flat
    assert "The logits are 0: there is nothing to take apart." in flat


def test_a_cosine_with_what_was_there_is_not_tested():
    case = report()
    drops = case.ablations[0]._replace(p_value=np.full((3, 4), np.nan))
    case = case._replace(ablations=[drops], facts=case.facts | {"score": "embedding"})
    said = words.spectral_findings(case)[-1]
    assert "head 1 of layer 2 costs most, 0.5 (interval" in said
    assert "These are sizes alone" in said
    assert "told from none" not in said
    assert "by chance" not in said
    assert "told" not in words.spectral_headlines(case)[-1].detail
    assert "The largest drop is 80" in drawn.ablation_figure(case).get_suptitle()


def test_there_is_a_dash_where_there_is_no_number():
    case = report()
    place = np.full((3, 4), 0.005)
    place[1] = 0.1
    variance = case.variance._replace(offset=np.full((3, 4), 0.001), place=place)
    parts = case.parts._replace(cross=np.full((3, 4), np.nan))
    case = case._replace(variance=variance, parts=parts)
    cells = [words.position_cells(case, layer)[-1] for layer in range(3)]
    assert cells == ["–", "0.99", "–"]
    assert words.part_rows(case)[-1][1] == "–"
    found = spectral_json(case)
    assert found["variance"]["residual"][0] == [None] * 4
    assert found["parts"]["cross"][0] == [None] * 4


def test_names_from_outside_are_escaped(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "shown_figures", lambda report: [])
    case = report(source="<b>x</b>\u202e", model="<script>alert(1)</script>")
    html = write_spectral(case, tmp_path).read_text()
    assert "<script" not in html
    assert "<b>x" not in html
    assert "\u202e" not in html


def test_figures_of_an_earlier_report_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "shown_figures", lambda report: [])
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("ablation.png", "ablation.svg", "mine.png", "ablation.txt"):
        (folder / name).touch()
    write_spectral(CASES["without ablation"], tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["ablation.txt", "mine.png"]
    (folder / "ablation.png").mkdir()
    with pytest.raises(InputError, match="cannot write the report into"):
        write_spectral(CASES["without ablation"], tmp_path)


def test_blocks_are_means_of_what_is_seen():
    matrix = np.arange(16.0).reshape(4, 4)
    matrix[0, 2:] = matrix[1, 2:] = np.nan
    assert np.isnan(logit_figures._blocks(matrix, 2)[0, 1])
    assert logit_figures._blocks(matrix, 2)[1].tolist() == [10.5, 12.5]
    np.testing.assert_array_equal(logit_figures._blocks(matrix, 4), matrix)


def test_cards_are_short():
    cards = words.spectral_headlines(CASES["plain"])
    assert [card.value for card in cards[:2]] == ["19\N{NO-BREAK SPACE}%", "14\N{NO-BREAK SPACE}%"]
    assert all(len(card.value) < 12 for card in cards)


def test_scores_are_in_their_units():
    case = report()
    for score, shown in (("accuracy", "50.0 points"), ("masked", "0.5 nats"), ("embedding", "0.5")):
        own = case._replace(facts=case.facts | {"score": score})
        assert words.drop_words(own, 0.5) == shown
        assert words.worst_drop(own, 2) == (shown.split()[0], "1")

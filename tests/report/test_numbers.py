"""Which numbers sentences, headlines and rows state, in their order."""

import math
import re
from typing import Any

import numpy as np
import pytest
from jaxpe.report.rope.text import headlines as rope_headlines
from jaxpe.report.rope.text import tables_of

from jaxpe.analysis.corpus import Interval, Where
from jaxpe.analysis.training_run import read_run
from jaxpe.data import Choice
from jaxpe.data.corpora.load import SAMPLE
from jaxpe.report import training_figures, training_run
from jaxpe.report.corpus.advice import advice
from jaxpe.report.corpus.headlines import headlines, where_table
from jaxpe.report.corpus.letters import letter_table
from jaxpe.report.methods import methods
from tests.analysis.runs import make_run
from tests.report.factory import REACH, WHERE, N, analysis
from tests.report.test_figure_values_jobs import SCALED


def numbers(said: str | list[str]) -> list[float]:
    """Numbers of sentences in their order, without commas and with plain minus signs."""
    joined = said if isinstance(said, str) else " ".join(said)
    plain = joined.replace("−", "-").replace("\N{NO-BREAK SPACE}", " ")
    return [float(x.replace(",", "")) for x in re.findall(r"-?\d[\d,]*(?:\.\d+)?(?!\d)", plain)]


def cells(found: Any) -> list[list[str]]:
    return [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in found]


def test_headlines_of_a_corpus():
    found = analysis(where=WHERE)
    last = int(found.documents_per_position[45])
    assert cells(headlines(found)) == [
        ["Bits per token, from the start", "0.10", "0.05 to 0.20"],
        ["Bits per token, from the end", "0.10", "0.05 to 0.20"],
        ["Position's share of the observed variance", "6 %",
         "5 % to 7 %; noise 90 %, composition 4 %"],
        ["Significant dimensions", "2", "p ≤ 0.048; 44 with noise"],
        ["Fitted encoding, held-out stress", "0.05", "dimension 2, 0.04 to 0.06"],
        ["Best fixed encoding, held-out stress", "0.12", "alibi, 0.10 to 0.14"],
        ["Nearness (0: no order)", "0.31", "0.25 to 0.37"],
        ["Documents at the last position", f"{last:,}", "of 12,480; 6 positions too noisy"],
    ]  # fmt: skip


def test_rows_on_where_the_bits_are():
    end = REACH._replace(bits=Interval(0.3, 0.2, 0.4), half=Interval(2, 1, 4))
    half = {"half_distance": Interval(5, 4, 9)}
    case = analysis(where=Where(REACH, end, 9, 1204), position=half)
    assert cells(headlines(case)[:2]) == [
        ["Bits per token, from the end", "0.3", "0.2 to 0.4; 1,204 documents not cut"],
        ["Bits per token, from the start", "0.10", "0.05 to 0.20"],
    ]  # the larger first
    _, _, rows = where_table(case)
    assert [row[1:] for row in rows] == [
        ("0.3", "0.2 to 0.4", "1,204"), ("2", "1 to 4", "1,204"), ("3", "2 or more", "1,204"),
        ("0.10", "0.05 to 0.20", "12,480"), ("1", "1", "12,480"), ("3", "2 or more", "12,480"),
        ("5", "4 to 9", "12,480"), ("9", "", "12,480"),
    ]  # fmt: skip


def test_rows_of_letters_have_their_bits_shares_and_verdicts():
    letters = analysis().letters
    shares = letters.shares.copy()
    shares[3] = [0.1, 0.2, 0.6, 0.1]
    relative = letters.relative.copy()
    relative[0, 3] = -0.0001
    own = letters._replace(alphabet="nucleotides", shares=shares, relative=relative)
    _, _, rows = letter_table(analysis(letters=own, origin=5))
    assert rows[3] == (
        "-2", "0.400", "0.300", "0.600", "0.000", "G", "0.600", "90", "", "",
    )  # fmt: skip
    assert rows[6][-2:] == ("yes", "")
    assert rows[0] == ("-5", "", "", "", "", "", "", "0", "", "")


@pytest.mark.parametrize(
    ("fields", "expected"),  # documents, groups, tokens, and positions
    [
        ({}, [12_480, 12_480, 431_207, 48]),
        ({"origin": 20}, [12_480, 12_480, 431_207, 48]),
        ({"edges": (0, 4, 16), "length": 2}, [12_480, 12_480, 431_207, 16, 2]),
        (
            {"choices": (Choice(SAMPLE, "2,000 of 67,349", "", ""),)},
            [2000, 67_349, 12_480, 431_207, 48],
        ),
        ({"group_field": "author", "groups": 40}, [12_480, 40, 431_207, 48]),
    ],
)
def test_methods_say_which_documents_and_positions_were_counted(fields, expected):
    (first, *_), field = methods(analysis(**fields)).split(". "), fields.get("group_field")
    assert numbers(first) == expected
    assert (f"equal {field!r}" in first) == (field is not None)


def test_headlines_of_a_run_have_what_it_began_and_ended_with(tmp_path):
    def shown(task: str, losses: dict[int, float]) -> list[tuple[str, str]]:
        run = read_run(make_run(tmp_path / task, losses, task=task))
        return [(x.value, x.detail) for x in training_run.headlines(run)]

    losses = {0: 3.0, 4: 1.0, 8: 2.0}
    sizes = [("8", "of 32 documents"), ("1,234", "learned")]
    assert shown("causal", losses) == [
        ("2", "3 before"), (f"{math.exp(2):.3g}", f"{math.exp(3):.3g} before"), *sizes
    ]  # fmt: skip
    found = shown("classify", losses)
    assert found[1] == ("50\N{NO-BREAK SPACE}%", "of 10 documents")
    run = read_run(tmp_path / "causal")
    assert [row[1:] for row in training_figures.summary_rows(run.summary)] == [
        ("0", "4", "8"), ("3", "1", "2"),
        tuple(f"{math.exp(x):.3g}" for x in (3, 1, 2)), ("50\N{NO-BREAK SPACE}%",) * 3,
    ]  # fmt: skip


def test_rows_of_a_rotary_configuration():
    plan, layers = (
        SCALED.widest,
        {title.split(" ")[0]: rows for title, _, rows in tables_of(SCALED)},
    )
    slow = int((np.asarray(plan.unscaled) * plan.trained < 2 * np.pi).sum())
    assert [x.value for x in rope_headlines(SCALED)][:3] == ["10,000", f"{slow} of 8", "1"]
    assert layers["Layers"][0][2:7] == ("rotates", "16 of 16", "10,000", "linear", "–")
    (row,) = layers["Frequencies"]
    at_reach = int((np.asarray(plan.frequencies) * 512 < 2 * np.pi).sum())
    assert row[1:5] == (f"{plan.trained:,}", "512", f"{slow} of 8", str(at_reach))
    assert row[6:] == ("0", "8")


def test_few_documents_are_raised_to_four_times_as_many_or_all():
    def limit(read: str) -> str:
        choices = (Choice(SAMPLE, read, "", ""),)
        given = {"limit": "2"}
        case = analysis(rare_positions=np.arange(N), choices=choices, given=given)
        return advice(case)[0].paste.rpartition(" ")[2]

    assert [limit("2 of 9"), limit("2 of 8"), limit("2 of 7")] == ["8", "8", "7"]


def test_far_positions_are_left_out_only_where_they_are_the_rare_ones():
    def steps(rare: list[int]) -> list[str]:
        return [step.paste for step in advice(analysis(rare_positions=np.array(rare)))]

    for rare in ([43, 44, 45], [42, 43, 44]):  # three others are empty
        assert any("--length 42" in paste for paste in steps(rare))
    assert not any("--length" in paste for paste in steps([3, 44, 45]))

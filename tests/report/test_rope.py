"""The page of a rotary configuration: its rules, its cells, and what it imports."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxpe._core.results import load_result
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope
from jaxpe.report import draw, page, write
from jaxpe.report.pages.rope import _cells, _layer_row, figures_of, tables_of
from tests.plans.conftest import read

CONFIGS = read("published") | read("reported")
LINEAR = '{"rope_type": "linear", "factor": 4.0}'
SCALED = explain_rope(RopeOptions(head_dim=16, base=1e4, context=256, scaling=LINEAR, length=512))
PLAN, NUMBERS = SCALED.groups[0], SCALED.programs[0].numbers[0]
COLUMN = ["linear", "10,000", "16", "4", "–", "1", "2", "3", "half", "as the first"]


@pytest.fixture
def explained(tmp_path):
    """The analysis of the configuration of a model by name."""

    def call(name, length=None, **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**CONFIGS[name], **changes}))
        return explain_rope(RopeOptions(config=str(path), length=length))

    return call


@pytest.mark.parametrize(
    ("fields", "cell", "value"),
    [
        ({}, 0, "linear"),
        ({"original": 2048}, 4, "2,048"),
        ({"attention_factor": 1.25}, 5, "1.25"),
        ({"factor": float("nan")}, 3, "–"),
        ({"frequencies": NUMBERS.frequencies * np.where(np.arange(8) < 2, 1, 2.0)}, 9, "× 2"),
        ({"frequencies": NUMBERS.frequencies * np.linspace(1, 3, 8)}, 9, "× 1.286 to 3"),
        ({"frequencies": NUMBERS.frequencies[:4]}, 9, "4 of them"),
        ({"pairing": "half, permuted"}, 8, "as weights"),
    ],
)
def test_what_a_program_computes(fields, cell, value):
    own = NUMBERS._replace(logit_factor=2.0, query_factor=3.0, **fields)
    assert [*_cells(own, NUMBERS).values()] == [*COLUMN[:cell], value, *COLUMN[cell + 1 :]]


def test_rows_of_layers():
    plan = PLAN._replace(
        name="full_attention", layers=(0, 2), window=9, two_sided=True, place="last",
        sections=(4, 2, 2), part="decoder",
    )  # fmt: skip
    assert _layer_row(plan) == (
        "full in decoder", "0, 2", "rotates", "16 of 16, last entries", "10,000", "linear", "±9",
        "half, 4+2+2",
    )  # fmt: skip
    counts = PLAN._replace(never_round_at_reach=1, unseen=2, kept=3, divided=4, never_round=5)
    (table,) = (x for x in tables_of(SCALED._replace(groups=(counts,))) if x.title == "Frequencies")
    assert table.rows[0][3:] == ("5 of 8", "1", "2", "3", "4")


def test_cards_have_the_numbers_of_the_result():
    base, never, factor, error, agree = page(SCALED).lead
    (float32,) = (
        x.largest for x in SCALED.precision
        if (x.dtype, x.rounded, x.length) == ("float32", "all", 512)
    )  # fmt: skip
    assert (base.value, never.value, error.value) == (1e4, PLAN.never_round, float32)
    assert factor.value == PLAN.attention_factor
    assert agree.value == len(SCALED.accepted_by) - len(SCALED.differing)


def test_the_figure_has_the_numbers_of_the_result():
    (figure,) = figures_of(SCALED)
    before, after, trained, longest = (x.get_ydata() for x in draw(figure).axes[0].lines)
    np.testing.assert_allclose(after, 4 * before)
    np.testing.assert_allclose(after, 2 * np.pi / PLAN.frequencies)
    assert (trained[0], longest[0]) == (PLAN.trained, 512)


@pytest.mark.parametrize("name", CONFIGS)
def test_faults_are_to_do_and_notes_are_not(explained, name):
    found = explained(name)
    shown = page(found)
    rows = [one for section in shown.sections for one in section.findings]
    severity = {one.code.replace("_", " "): one.severity for one in found.findings}
    checked = [one for one in rows if one.name in severity]
    assert len(checked) == len(found.findings)
    assert all(bool(one.todo) == (one.value != "note") for one in checked)
    assert all(bool(one.todo) != bool(one.sentence) for one in checked)


def test_programs_that_differ_are_named_and_checked_with_golden_vectors(explained):
    found = explained("Gemma 2 9B", rope_scaling={"rope_type": "linear", "factor": 8.0})
    agree = page(found).lead[-1]  # SGLang ignores it
    assert found.differing == ["SGLang 0.5.23"]
    assert agree.verdict == "SGLang 0.5.23 differ"
    assert agree.paste == f"jaxpe golden {found.source} --out vectors"
    cells = {cell for table in tables_of(found) for row in table.rows for cell in row}
    assert {"≠ × 8", "π (lost)"} <= cells
    assert not page(explained("DeepSeek-V3")).lead[-1].todo


def test_settings_for_a_longer_text_have_the_vendors_numbers(explained):
    """Qwen 3's YaRN starts from 32,768, though max_position_embeddings is 40,960."""
    shown = {one.value: one.paste for one in page(explained("Qwen3 8B", 131_072)).steps}
    entry = json.loads(shown["config.json"])["rope_parameters"]
    assert (entry["factor"], entry["original_max_position_embeddings"]) == (4.0, 32_768)
    assert "--max-model-len 131072" in shown["vLLM 0.33"]


def test_one_program_agrees_with_none():
    alone = SCALED._replace(programs=SCALED.programs[:1])
    assert page(alone).lead[-1].name == "programs judged"
    file = alone._replace(form="gguf")
    assert "config.json" in page(file).lead[-1].sentence
    assert "config.json" in tables_of(file)[0].note
    assert "config.json" not in tables_of(SCALED)[0].note


def test_what_no_rule_knows_is_not_judged(explained):
    (lead,) = page(explained("Qwen3 8B", model_type="of_my_own")).lead
    assert lead.value == "not judged"
    assert "check_rotary" in lead.paste


def test_the_files_repeat_and_names_are_no_markup(explained, tmp_path):
    name = '"><script>alert(1)</script>'
    found = explained("Llama 2 7B", model_type=name)
    written = write(found, tmp_path / "page")
    again = load_result(RopeAnalysis, tmp_path / "page" / "rope.json")
    assert write(again, tmp_path / "again").read_bytes() == written.read_bytes()
    assert "<script>alert" not in written.read_text()


def test_the_page_needs_no_jax():
    code = (
        "import sys; from jaxpe.plans import RopeOptions, explain_rope; from jaxpe.report import "
        "page; page(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048))); "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

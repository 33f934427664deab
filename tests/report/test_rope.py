"""The page of a rotary configuration: its cells, its advice, and its files."""

import json

import numpy as np
import pytest

from jaxpe._core.results import load_result
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope
from jaxpe.report import draw, page, write
from tests.plans.conftest import read

CONFIGS = read("published") | read("reported")
LINEAR = '{"rope_type": "linear", "factor": 4.0}'
SCALED = explain_rope(RopeOptions(head_dim=16, base=1e4, context=256, scaling=LINEAR, length=512))
PLAN, PROGRAM = SCALED.groups[0], SCALED.programs[0]


def tables(found):
    return {table.title: table for table in page(found).tables}


@pytest.fixture
def explained(tmp_path):
    """The analysis of the configuration of a model by name."""

    def call(name, length=None, **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**CONFIGS[name], **changes}))
        return explain_rope(RopeOptions(config=str(path), length=length))

    return call


def test_rows_have_what_programs_compute_and_layers_do():
    numbers = PROGRAM.numbers[0]
    twice = numbers._replace(frequencies=2 * numbers.frequencies, logit_factor=2.0,
                             query_factor=3.0, original=2048, attention_factor=1.25)  # fmt: skip
    programs = (PROGRAM, PROGRAM._replace(name="other", numbers=(twice,)))
    rows = tables(SCALED._replace(programs=programs))["What programs compute"].rows
    first, other = ({row[0]: row[k].removeprefix("≠ ") for row in rows} for k in (1, 2))
    assert (first["s"], first["base"], first["frequencies"]) == ("4", "10,000", "as the first")
    names = ("L0", "cos, sin", "logits", "queries", "frequencies")
    assert [other[name] for name in names] == ["2,048", "1.25", "2", "3", "× 2"]
    plan = PLAN._replace(layers=(0, 2), window=9, two_sided=True, never_round_at_reach=1, unseen=2,
                         kept=3, divided=4, never_round=5)  # fmt: skip
    found = tables(SCALED._replace(groups=(plan,)))
    assert found["Frequencies"].rows[0][3:] == ("5 of 8", "1", "2", "3", "4")
    _, layers, _, rotated, *rest = found["Layers"].rows[0]
    assert (layers, rotated, *rest) == ("0, 2", "16 of 16", "10,000", "linear", "±9", "half")


def test_cards_and_curves_have_the_numbers_of_the_result():
    base, never, factor, error, agree = page(SCALED).lead
    (float32,) = (
        x.largest for x in SCALED.precision
        if (x.dtype, x.rounded, x.length) == ("float32", "all", 512)
    )  # fmt: skip
    assert (base.value, never.value, error.value) == (1e4, PLAN.never_round, float32)
    assert factor.value == PLAN.attention_factor
    assert agree.value == len(SCALED.accepted_by) - len(SCALED.differing)
    (figure,) = page(SCALED).figures
    before, after, trained, longest = (x.get_ydata() for x in draw(figure).axes[0].lines)
    np.testing.assert_allclose(after, 4 * before)
    np.testing.assert_allclose(after, 2 * np.pi / PLAN.frequencies)
    assert (trained[0], longest[0]) == (PLAN.trained, 512)


def test_faults_are_to_do_and_notes_are_not(explained):
    for name in CONFIGS:
        found = explained(name)
        severity = {one.code.replace("_", " "): one.severity for one in found.findings}
        rows = [one for section in page(found).sections for one in section.findings]
        checked = [one for one in rows if one.name in severity]
        assert len(checked) == len(found.findings), name
        assert all(bool(one.todo) == (one.value != "note") for one in checked), name


def test_programs_that_differ_are_named_and_checked_with_golden_vectors(explained):
    found = explained("Gemma 2 9B", rope_scaling={"rope_type": "linear", "factor": 8.0})
    agree = page(found).lead[-1]  # SGLang ignores it
    assert found.differing == ["SGLang 0.5.23"]
    assert agree.verdict.startswith("SGLang 0.5.23")
    assert agree.paste == f"jaxpe golden {found.source} --out vectors"
    assert "≠ × 8" in {cell for x in page(found).tables for row in x.rows for cell in row}
    assert not page(explained("DeepSeek-V3")).lead[-1].todo
    unknown = page(explained("Qwen3 8B", model_type="of_my_own")).lead[0]
    assert (unknown.value, "check_rotary" in unknown.paste) == ("not judged", True)


def test_settings_for_a_longer_text_have_the_vendors_numbers(explained):
    """Qwen 3's YaRN starts from 32,768, though max_position_embeddings is 40,960."""
    shown = {one.value: one.paste for one in page(explained("Qwen3 8B", 131_072)).steps}
    entry = json.loads(shown["config.json"])["rope_parameters"]
    assert (entry["factor"], entry["original_max_position_embeddings"]) == (4.0, 32_768)
    assert "--max-model-len 131072" in shown["vLLM 0.33"]


def test_the_files_repeat_and_names_are_no_markup(explained, tmp_path):
    found = explained("Llama 2 7B", model_type='"><script>alert(1)</script>')
    written = write(found, tmp_path / "page")
    again = load_result(RopeAnalysis, tmp_path / "page" / "rope.json")
    assert write(again, tmp_path / "again").read_bytes() == written.read_bytes()
    assert "<script>alert" not in written.read_text()

"""The view of a positional configuration, and the command."""

import json

import pytest
from rich.console import Console

from jaxpe._core.results import load_result
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope
from jaxpe.report import rope_summary, rope_table, write
from jaxpe.report.rope.advice import advice
from jaxpe.report.rope.figures import rope_figures
from jaxpe.report.rope.text import recipe_scope, tables_of
from tests.plans.conftest import read

CONFIGS = read("published") | read("reported")


@pytest.fixture
def configured(tmp_path):
    """The path of a config.json by the name of its model."""

    def call(name, **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**CONFIGS[name], **changes}))
        return str(path)

    return call


def explained(path):
    return explain_rope(RopeOptions(config=path))


def test_the_page_is_complete_and_repeats(configured, tmp_path):
    found = explained(configured("Ministral 3 8B"))
    page = write(found, tmp_path / "page")
    text = page.read_text()
    figures = {file.stem for file in (page.parent / "figures").glob("*.svg")}
    assert figures == {"wavelengths", "precision", "scaling"}
    assert [one.code for one in found.findings if f'id="{one.code}"' not in text] == []
    assert "vllm-project/vllm#48621" in text
    again = load_result(RopeAnalysis, page.parent / "rope.json")
    assert write(again, tmp_path / "again").read_bytes() == page.read_bytes()


def test_other_frequencies_have_a_figure_of_their_own(configured):
    found = explained(configured("a v5 entry, read by v4 (vllm-project/vllm#44158)"))
    assert {figure.name for figure in rope_figures(found)} == {
        "wavelengths",
        "precision",
        "programs",
    }


def test_a_model_named_like_a_script_stays_a_name(configured, tmp_path):
    name = '"><script>alert(1)</script>'
    found = explained(configured("Llama 2 7B", model_type=name))
    assert "<script>alert" not in write(found, tmp_path / "page").read_text()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_has_a_summary_and_tables_of_80_columns(configured, name):
    found = explained(configured(name))
    serious = [one for one in found.findings if one.severity != "note"]
    summary = rope_summary(found)
    assert not serious or serious[0].text.replace("`", "") in summary
    console = Console(width=80, record=True, file=None, quiet=True)
    console.print(rope_table(found))
    assert "…" not in console.export_text()


def test_steps_name_the_programs_that_agree_or_the_notes(configured):
    linear = {"rope_type": "linear", "factor": 8.0}  # SGLang ignores it
    found = explained(configured("Gemma 2 9B", rope_scaling=linear))
    assert [step.text for step in advice(found) if "5.24, 4.57" in step.text and step.paste]
    assert not [step.text for step in advice(found) if "SGLang" in step.text and step.paste]
    cells = {cell for *_, rows in tables_of(found) for row in rows for cell in row}
    assert {"≠ × 8", "π (lost)"} <= cells
    found = explained(configured("DeepSeek-V3"))
    assert {one.severity for one in found.findings} == {"note"}
    assert f"{len(found.findings)} notes" in advice(found)[0].text
    assert advice(found._replace(findings=())) == []


def test_agreement_is_told_of_the_file_and_not_of_longer_texts(configured):
    path = configured("Qwen2 7B")
    plain, longer = (explain_rope(RopeOptions(config=path, length=n)) for n in (None, 262_144))
    assert "without scaling" not in rope_summary(plain)
    assert "without scaling" in rope_summary(longer)
    assert f"{plain.context:,}" in recipe_scope(longer)


def test_the_command_tells_and_exits_with_0(command, configured):
    code, out, err = command("rope", configured("DeepSeek-V2-Lite"))
    assert (code, err) == (0, "")
    assert "transformers#47435" in out.replace("\n", "")


def test_the_command_prints_json_alone(command, configured):
    code, out, _ = command("rope", configured("Qwen3 8B"), "--length", 163_840, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["length"] == 163_840
    assert {"status", "model_type", "groups", "programs", "findings", "unread"} <= found.keys()
    group = found["groups"][0]
    assert (group["kind"], group["turning"], group["pairing"]) == ("rotary", 128, "half")
    assert len(group["frequencies"]) == 64
    assert {recipe["program"] for recipe in found["recipes"]} >= {"config.json", "vLLM 0.33"}


def test_what_is_not_judged_exits_with_3(command, configured):
    code, out, err = command("rope", configured("Qwen3 8B", model_type="of_my_own"), "--json")
    assert (code, err) == (3, "")
    assert json.loads(out)["status"] == "not judged"


def test_the_columns_are_explained_when_asked(command, configured):
    plain, explained = (
        command("rope", configured("Qwen3 8B"), *words)[1] for words in ((), ("--explain",))
    )
    assert "never complete a rotation within the trained" not in plain
    assert "never complete a rotation within the trained" in " ".join(explained.split())


def test_recipes_have_the_vendors_numbers(command, configured):
    """Qwen 3's YaRN starts from 32,768, though max_position_embeddings is 40,960."""
    _, out, _ = command("rope", configured("Qwen3 8B"), "--length", "128k", "--json")
    recipes = {one["program"]: one["text"] for one in json.loads(out)["recipes"]}
    entry = json.loads(recipes["config.json"])["rope_parameters"]
    assert (entry["factor"], entry["original_max_position_embeddings"]) == (4.0, 32_768)
    assert "--yarn-orig-ctx 32768" in recipes["llama.cpp"]
    assert "--max-model-len 131072" in recipes["vLLM 0.33"]


def test_the_command_takes_options_alone_and_writes_a_page(command, tmp_path):
    scaling = '{"rope_type": "linear", "factor": 2.0}'
    words = ("--head-dim", 8, "--context", 64, "--scaling", scaling)
    code, out, _ = command("rope", *words, "--out", tmp_path / "page")
    assert code == 0
    assert "rope.html" in out.replace("\n", "")
    assert (tmp_path / "page" / "rope.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "pass config, a config.json or a .gguf, or at least --head-dim"),
        (("nowhere.json",), "nowhere.json does not exist; pass a config.json"),
        (("--head-dim", 8, "--length", 1), "--length is 1; pass at least 2"),
    ],
)
def test_bad_input_is_one_line(command, words, said):
    code, out, err = command("rope", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err

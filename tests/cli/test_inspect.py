"""`jaxpe inspect` as a person types it: its page and files; what it refuses."""

import json
import shutil

from tests.analysis.inspect.folders import PARITY, text, with_tokenizer


def test_page_table_and_numbers(command, tmp_path):
    model = with_tokenizer("tiny_bert", tmp_path / "model")
    source, out = text(tmp_path / "text.txt"), tmp_path / "out"
    words = ("--quick", "--length", 16, "--examples", 8, "--stages", "encoding", "ablation")
    code, printed, err = command("inspect", model, source, "--out", out, *words)
    assert code == 0, err
    assert "ablation" in err
    found = json.loads((out / "inspect.json").read_text())
    assert found["facts"]["layers"] == 2
    others = {"geometry", "attention", "spectral", "heads", "probe", "loss", "needles"}
    assert set(found["absent"]) == others
    copy = shutil.copytree(out, tmp_path / "copy")
    code, compared, err = command("compare", out, copy, "--out", tmp_path / "both")
    assert code == 0, err
    assert f"{tmp_path / 'both'}/" in compared.replace("\n", "")
    assert f"Page: {out / 'inspect.html'}" in printed.replace("\n", "")


def test_bad_input_is_one_line(command, tmp_path):
    source = text(tmp_path / "text.txt")
    for words, said in (
        ((PARITY / "tiny_llama", source), "no tokenizer.json"),
        (("nowhere", source), "nowhere does not exist"),
        ((with_tokenizer("tiny_bert", tmp_path / "m"), source, "--length", 3), "--length is 3"),
    ):
        code, _, err = command("inspect", *words, "--out", tmp_path / "out")
        assert code == 2
        *_, last = err.splitlines()  # after the stages
        assert last.startswith("jaxpe: ")
        assert said in last

"""Options from words, messages of the library as those of a command, and progress."""

import dataclasses
from pathlib import Path

import pytest

from jaxpe._core.errors import InputError
from jaxpe.cli import pages
from jaxpe.cli.commands import options_class
from jaxpe.cli.console import Lines
from jaxpe.cli.parsing import parse, plain, with_flags
from jaxpe.report.findings import Finding
from jaxpe.training import ModelConfig, TrainConfig

TRAIN = options_class("train")


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("`special` is on", "--special is on"),
        ("pass `special=False`", "pass --no-special"),
        ("`model.kv_heads=3` is odd", "--model.kv-heads 3 is odd"),
        ("`source=poems.txt` is empty", "poems.txt is empty"),
        ("`jaxpe encodings` lists `rope`", "`jaxpe encodings` lists `rope`"),
        ("`out=a b/c.d`: full", "--out a b/c.d: full"),
        ([Finding("rank", 3.0, todo="pass `seed`")], [Finding("rank", 3.0, todo="pass --seed")]),
    ],
)
def test_arguments_become_flags(message, written):
    assert with_flags(message, TRAIN) == written


def test_options_of_a_job_are_those_of_its_command():
    words = ["poems.txt", "b.txt", "--model.dim", "8", "--out", "there", "--special"]
    options = parse(TRAIN, words)
    config = TrainConfig(
        source=("poems.txt", "b.txt"), model=ModelConfig(dim=8), out=Path("there"), special=True
    )
    assert plain(options, TrainConfig) == config
    again = parse(TRAIN, ["--no-special"], default=plain(config, TRAIN))
    assert plain(again, TrainConfig) == dataclasses.replace(config, special=False)


def test_lengths_are_read_as_people_write_them():
    texts = {"128k": 131_072, "1m": 1_048_576, "131,072": 131_072, "1_000": 1000, "None": None}
    for text, length in texts.items():
        assert parse(options_class("rope"), ["--length", text]).length == length
    for text in ("128kb", "1,5", "12,3456", "128 k", "1e5", "", "٣k"):
        with pytest.raises(InputError, match="length"):
            parse(options_class("rope"), ["--length", text])


def test_stages_have_a_line_and_messages_the_flags():
    said: list[str] = []
    with Lines(options_class("merge"), say=said.append) as lines:
        for _ in lines.track((None,), "stage 1 of 1: reading"):
            lines.say("pass `weights=3`")
    assert [line.split("  ")[-1] for line in said] == ["stage 1 of 1: reading", "pass --weights 3"]


def test_a_file_is_named_with_its_hash(tmp_path):
    (tmp_path / "a").write_text("abc")  # the example of FIPS 180-2
    assert "(sha256 ba7816bf8f01cfea" in pages.file_identity(tmp_path / "a")

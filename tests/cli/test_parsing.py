"""Options from words, and messages of the library as those of a command."""

import dataclasses
from pathlib import Path

import pytest

from jaxpe._core.errors import InputError
from jaxpe.cli.commands import options_class
from jaxpe.cli.parsing import parse, plain, with_flags
from jaxpe.report import Finding
from jaxpe.training import ModelConfig, TrainConfig

TRAIN = options_class("train")


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("`special` is on", "--special is on"),
        ("pass `special=False`", "pass --no-special"),
        ("pass `special=True`", "pass --special"),
        ("`model.kv_heads=3` is odd", "--model.kv-heads 3 is odd"),
        ("leave `source` out", "leave source out"),
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


@pytest.mark.parametrize(
    ("words", "length"),
    [
        ("--length 128k", 131_072),
        ("--length=128K", 131_072),
        ("--length 1m", 1_048_576),
        ("--length 131,072", 131_072),
        ("--length 1_000", 1000),
        ("--length -3", -3),
        ("--length None", None),
        ("--context 2k --scaling 4k", None),
    ],
)
def test_lengths_are_read_as_people_write_them(words, length):
    options = parse(options_class("rope"), words.split())
    assert options.length == length
    assert (options.context, options.scaling) in ((None, None), (2048, "4k"))


@pytest.mark.parametrize("text", ["128kb", "1.5k", "k", "1,5", "12,3456", "128 k", "1e5", "", "٣k"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(InputError, match=r"`length` is .*; pass a whole number, with k for 1,024"):
        parse(options_class("rope"), ["--length", text])

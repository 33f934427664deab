"""Options from words, and messages of the library as those of a command."""

import dataclasses

import pytest
from tyro.conf import Positional

from jaxpe._core.errors import InputError
from jaxpe.cli.parsing import command_docstring, command_line, flag_message, parse, plain


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes.

    Attributes:
        head_dim: width of a head.
    """

    head_dim: int = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Do something.

    Attributes:
        source: of the words.
        model: sizes.
        special: whether special.
    """

    source: str = "stdlib"
    model: Sizes = Sizes()
    special: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Options):
    __doc__ = command_docstring(Options, out="folder of the results.")
    source: Positional[str] = Options.source
    out: str = "here"


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("`special` is on", "--special is on"),
        ("pass `special=False`", "pass --no-special"),
        ("pass `special=True`", "pass --special"),
        ("`model.head_dim=3` is odd", "--model.head-dim 3 is odd"),
        ("leave `source` out", "leave source out"),
        ("`source=poems.txt` is empty", "poems.txt is empty"),
        ("`jaxpe encodings` lists `rope`", "`jaxpe encodings` lists `rope`"),
        ("another `out`", "another --out"),
        ("`out=a b/c.d`: full", "--out a b/c.d: full"),
    ],
)
def test_arguments_become_flags(message, written):
    assert flag_message(message, Command) == written


def test_options_of_a_job_are_those_of_its_command():
    options = parse(Command, ["poems.txt", "--model.head-dim", "8", "--out", "there"])
    assert (options.source, options.model.head_dim, options.out) == ("poems.txt", 8, "there")
    assert plain(options, Options) == Options(source="poems.txt", model=Sizes(8))
    again = parse(Command, ["--no-special"], default=options)
    assert (again.special, again.out) == (False, "there")


def test_help_has_a_line_for_each_option(capsys):
    with pytest.raises(SystemExit):
        parse(Command, ["--help"])
    told = capsys.readouterr().out
    for words in ("Do something", "of the words", "width of a head", "folder of the results"):
        assert words in told


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Lengths.

    Attributes:
        length: of a text.
        context: of training.
        out: name.
    """

    length: int | None = None
    context: int = 1
    out: str = ""


@pytest.mark.parametrize(
    ("words", "length"),
    [
        ("--length 128k", 131_072),
        ("--length=128K", 131_072),
        ("--length 1m", 1_048_576),
        ("--length 131,072", 131_072),
        ("--length 1_000", 1000),
        ("--length 4096", 4096),
        ("--length -3", -3),
        ("--length None", None),
        ("--context 2k --out 4k", None),
    ],
)
def test_lengths_are_read_as_people_write_them(words, length):
    options = parse(Lengths, words.split())
    assert options.length == length
    assert (options.context, options.out) in ((1, ""), (2048, "4k"))


@pytest.mark.parametrize("text", ["128kb", "1.5k", "k", "1,5", "12,3456", "128 k", "1e5", "", "٣k"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(InputError, match=r"`length` is .*; pass a whole number, with k for 1,024"):
        parse(Lengths, ["--length", text])


def test_values_that_are_false_are_on_a_command_line():
    options = Command(special=False, model=Sizes(0), source="")
    assert plain(parse(Command, command_line(options).split()[2:]), Options).special is False
    assert "--model.head-dim 0" in command_line(options)
    assert " '' " in command_line(options)

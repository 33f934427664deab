"""Options from words, and messages of the library as those of a command."""

import dataclasses

import pytest
from tyro.conf import Positional

from jaxpe.cli.parsing import described, in_flags, parse, plain


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
    __doc__ = described(Options, out="folder of the results.")
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
    assert in_flags(message, Command) == written


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

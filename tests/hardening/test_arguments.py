"""Words where a command expects numbers: one line and exit status 2, before anything is written."""

import typing

import numpy as np
import pytest

from jaxpe.cli.commands import options_class

# Options that make a command quick where a word is taken.
QUICK = {
    "report": ("--dim", 4, "--splits", 2, "--length", 6),
    "count": ("--length", 6, "--folds", 4, "--nulls", 2),
    "audit": ("--examples", 8, "--length", 6, "--steps", 2),
    "train": ("--steps", 2, "--batch-size", 8),
    "extrapolate": ("--tasks", "parity", "--encodings", "none", "--seeds", 2, "--steps", 2),
    "encodings": ("sinusoidal", "--dim", 8, "--length", 32),
    "compare": ("nowhere", "elsewhere"),
    "rope": ("--head-dim", 16),
}
NO_NUMBERS = ("", " ", "x", "1,5", "--5", "0x10", "\u0663x", "True", "9" * 5000, "nan")
WORDS = {
    int: (*NO_NUMBERS, "1.5", "inf", "-1000000007", "1" + "0" * 30),
    float: (*NO_NUMBERS, "1e309"),
}
TURNS = 3


def numbers_of(name):
    """Options of a command that are numbers, or lists of them, with their type."""
    hints = typing.get_type_hints(options_class(name))
    if name == "train":
        sizes = typing.get_type_hints(hints["model"])
        hints |= {f"model.{field}": kind for field, kind in sizes.items()}
    for field, kind in hints.items():
        for number in (int, float):
            if number in _parts(kind):
                yield f"--{field.replace('_', '-')}", number


def _parts(kind):
    arguments = typing.get_args(kind)
    if not arguments or typing.get_origin(kind) is typing.Literal:
        return {kind}
    return set().union(*map(_parts, arguments))


@pytest.mark.parametrize("name", QUICK)
def test_what_is_no_number_in_range_is_one_line(command, films, tmp_path, name):
    rng, out = np.random.default_rng(0), tmp_path / "out"
    source = (films,) if name in ("report", "count", "audit", "train") else ()
    to = () if name == "encodings" else ("--out", out)
    wrong = []
    for option, kind in [*numbers_of(name)] * TURNS:
        word = f"{option}={WORDS[kind][rng.integers(len(WORDS[kind]))]}"
        code, _, said = command(name, *source, *QUICK[name], *to, word)
        told = [line for line in said.splitlines() if line.startswith("jaxpe: ")]
        named = option in said or option[2:].replace("-", "_") in said
        is_one = named if "Value error" in said else len(told) == 1  # of the parser
        if code != 2 or not is_one or "Traceback" in said or out.exists():
            wrong.append((word[:60], code, said[-300:]))
    assert wrong == []

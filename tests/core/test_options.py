"""Options out of range or without effect, of all commands: one line and exit 2, before any work."""

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.options import check_range, check_seed

# A command line, and what its one line must name.
REFUSED = {
    "report film.txt --dim 1000000000": "--dim",
    "report film.txt --seed -1": "--seed",
    "report film.txt --data-dir .": "--data-dir",
    "report --counts c --cohort": "--cohort",
    "encodings --about overview --length 1000000000": "--length",
    "train --model.dim 1000000000 --model.heads 1000000000": "--model.dim",
    "train --model.dropout nan": "--model.dropout",
    "train --batch-size 1000000000 --model.remat": "--batch-size",
    "train --epochs 1e300": "--epochs",
    f"train --init-seed {2**64}": "--init-seed",
    "train --mask-rate 0.3": "--mask-rate",
    "train film.tsv --task mlm --label-field by": "--label-field",
    "audit --steps -1": "--steps",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_is_one_line_and_leaves_nothing(command, free, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert REFUSED[line] in err
    assert list(tmp_path.rglob("*.html")) == list(tmp_path.rglob("*.json")) == []


@pytest.fixture
def free(monkeypatch):
    """A gigabyte, so that what is refused does not depend on this host."""
    monkeypatch.setattr("jaxpe._core.memory.available_bytes", lambda: 10**9)


def test_ranges_end_where_they_are_said_to():
    check_range("a", None, least=1, most=2)
    check_range("a", 1, least=1, most=2)
    check_range("a", 2, least=1, most=2)
    check_seed("seed", 2**32 - 1)
    for value in (0, 3, float("nan")):
        with pytest.raises(InputError, match="`a`"):
            check_range("a", value, least=1, most=2)
    for end in ({"least": 1}, {"most": 2}):
        with pytest.raises(InputError, match="nan"):
            check_range("a", float("nan"), **end)

"""Options out of range or without effect, of all commands: one line and exit 2, before any work."""

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.options import check_range, check_seed

FAR = 10**23  # beyond 64 bits

# A command line, and what its one line must name.
REFUSED = [
    ("report film.txt --dim 1000000000", "--dim 1000000000 needs 128.0 GB"),
    ("report film.txt --splits 100000000", "--splits is 100000000"),
    ("report film.txt --length 1000000000", "--length is 1000000000"),
    ("report film.txt --seed -1", "--seed is -1"),
    ("report film.txt --data-dir .", "--data-dir is for sst2 and imdb, and the source is film.txt"),
    ("report --counts c --cohort", "leave --cohort out"),
    ("report --counts c --tokenizer bytes", "leave --tokenizer out"),
    ("encodings --about overview --length 1000000000", "--length 1000000000 needs"),
    ("encodings --about overview --dim 1000000000", "--dim 1000000000, "),
    ("encodings --about overview --heads 100000000", "--heads 100000000, "),
    ("encodings --about overview --head-dim 1000000000", "--head-dim 1000000000, "),
    ("train --model.dim 1000000000", "--model.dim 1000000000"),
    ("train --model.dim 1000000000 --model.heads 1000000000", "--model.dim 1000000000"),
    ("train --model.layers 1000000000", "--model.layers is 1000000000"),
    ("train --model.hidden 2000000000", "needs"),
    ("train --model.dropout nan", "--model.dropout is nan"),
    ("train --model.embedding-scale inf", "--model.embedding-scale is inf"),
    ("train --batch-size 1000000000 --model.remat", "--batch-size 1000000000 "),
    ("train --epochs 1e300", "--epochs is 1e+300"),
    (f"train --init-seed {2**64}", f"--init-seed is {2**64}"),
    ("train --probe-at -5", "--probe-at is -5"),
    ("train --mask-rate 0.3", "--mask-rate is for --task mlm"),
    ("train --task causal --model.pooling mean", "--model.pooling is for --task classify"),
    ("train film.tsv --task mlm --label-field by", "--label-field is for --task classify"),
    ("audit --examples 0", "--examples is 0"),
    ("audit --steps -1", "--steps is -1"),
    ("audit --seed -1", "--seed is -1"),
    ("audit --length 1000000000", "--length is 1000000000"),
    ("audit film.txt --data-dir .", "--data-dir is for sst2 and imdb"),
]


@pytest.mark.parametrize(("line", "said"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    command, free, tmp_path, monkeypatch, line, said
):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("jaxpe: ")
    assert err.count("\n") == 1
    assert said in err
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
        with pytest.raises(InputError, match=rf"`a` is {value}; pass at (least 1|most 2)"):
            check_range("a", value, least=1, most=2)
    for end in ({"least": 1}, {"most": 2}):
        with pytest.raises(InputError, match="`a` is nan"):
            check_range("a", float("nan"), **end)

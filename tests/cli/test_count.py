"""`jaxpe count` and `jaxpe merge` as a person types them, and what they leave when they fail."""

import numpy as np
import pytest

from jaxpe._core.files import locked_folder
from jaxpe.analysis import counts as counting
from tests.conftest import small_disk

SMALL = ("--length", 8, "--folds", 4, "--nulls", 3)


@pytest.fixture(scope="module")
def poems(tmp_path_factory):
    """Two shards of 50 documents whose first word tells the position."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("poems")
    words = [f"word{k}" for k in range(30)]
    for name in ("a", "b"):
        lines = [" ".join(["The", *rng.choice(words, rng.integers(3, 12))]) for _ in range(50)]
        (folder / f"{name}.txt").write_text("\n".join(lines))
    return folder


def test_a_vocabulary_cut_and_handed_on_makes_counts_that_merge(command, poems, tmp_path):
    def run(*words):
        code, _, errors = command(*words)
        assert code == 0, errors

    sample = ("--max-vocab", 9, "--out", tmp_path / "sample")
    run("count", poems / "*.txt", *SMALL, *sample)
    vocabulary = ("--vocab", tmp_path / "sample")
    for name in "ab":
        run("count", poems / f"{name}.txt", *SMALL, *vocabulary, "--out", tmp_path / name)
    run("count", poems / "*.txt", *SMALL, *vocabulary, "--out", tmp_path / "both")
    run("merge", tmp_path / "b", tmp_path / "a", "--out", tmp_path / "merged")
    for part in (0, 1):
        parts = ("--part", part, "--parts", 2, "--out", tmp_path / f"{part}")
        run("count", poems / "*.txt", *SMALL, *vocabulary, *parts)
    run("merge", tmp_path / "1", tmp_path / "0", "--out", tmp_path / "machines")
    both, *others = (
        (tmp_path / name / "counts.npz").read_bytes() for name in ("both", "merged", "machines")
    )
    assert others == [both] * 2
    tokens = counting.read_counts(tmp_path / "merged").header.tokens
    assert (len(tokens), tokens[-1]) == (9, "[UNK]")
    for words in ((tmp_path / "a", tmp_path / "both"), (tmp_path / "merged", tmp_path / "a")):
        assert command("merge", *words, "--out", tmp_path / "merged")[0] == 2  # a.txt, twice
    assert (tmp_path / "merged" / "counts.npz").read_bytes() == both


def test_runs_into_a_locked_folder_or_a_full_disk_leave_nothing(command, poems, tmp_path):
    out, words = tmp_path / "out", ("count", poems / "a.txt", *SMALL, "--tokenizer", "bytes")
    with locked_folder(out):
        code, _, errors = command(*words, "--out", out)
        assert (code, "another run" in errors) == (2, True)
        assert [path.name for path in out.iterdir()] == [".lock"]
    parts = [tmp_path / name for name in "ab"]
    for part in parts:
        bytes_of = ("count", poems / f"{part.name}.txt", *words[2:])
        assert command(*bytes_of, "--out", part)[0] == 0
    with locked_folder(out):
        assert command("merge", *parts, "--out", out)[0] == 2
    with small_disk((parts[0] / "counts.npz").stat().st_size // 2):
        code, printed, errors = command("merge", *parts, "--out", tmp_path / "full")
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert str(tmp_path / "full" / "counts.npz") in errors
    assert not (tmp_path / "full").exists()
    assert command("merge", *parts, "--out", out)[0] == 0

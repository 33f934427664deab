"""Corpora compared from their counts, with vocabularies of their own."""

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.corpora import compare_counts
from jaxpe.analysis.counts import CountOptions, count, merge
from jaxpe.report import draw, page

OPTIONS = {"length": 6, "folds": 8, "nulls": 0}
CHOICES = {"dim": 2, "permutations": 39}
ORDERS = {"a": [*range(6)], "b": [*range(6)], "c": [0, 0, 0, 3, 4, 4]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two samples of one population, and one whose first positions are as one another."""
    folder, words = (
        tmp_path_factory.mktemp("corpora"),
        np.array(["the", "of", "and", "to", "in", "is"]),
    )
    for seed, (name, order) in enumerate(ORDERS.items()):
        rng = np.random.default_rng(seed)
        ids = np.where(rng.random((320, 6)) < 0.4, rng.integers(0, 6, (320, 6)), order)
        (folder / f"{name}.txt").write_text("\n".join([*map(" ".join, words[ids]), f"only {name}"]))
        count(CountOptions(sources=(str(folder / f"{name}.txt"),), **OPTIONS), folder / name)
    return folder


def test_what_differs_is_told_and_what_does_not_is_not(folders):
    found = compare_counts([folders / name for name in "abc"], **CHOICES)
    assert [pair.first + pair.second for pair in found.pairs] == ["ab", "ac", "bc"]
    alike, *others = found.pairs
    assert alike.p_value > 0.05
    for pair in others:
        assert pair.p_value == 1 / 40
        assert pair.distance > max(pair.chance, alike.distance)
        assert pair.overlap < alike.overlap < 1
    np.testing.assert_allclose([pair.p_adjusted for pair in others], 3 / 40)  # Holm
    assert [each.documents for each in found.corpora] == [321] * 3
    shown = page(found)
    lines = draw(shown.figures[0]).axes[0].lines
    np.testing.assert_array_equal(lines[2].get_xydata(), found.corpora[1].coordinates)
    assert {one.value for one in shown.lead} == {pair.distance for pair in found.pairs}
    for adjusted, verdict in ((0.05, "they differ"), (0.0501, "no significant difference")):
        only = found._replace(pairs=(alike._replace(p_adjusted=adjusted),))
        (row,) = page(only).lead
        assert (row.verdict, row.value, row.reference) == (verdict, alike.distance, alike.chance)
        assert bool(row.todo) == (adjusted == 0.05)


def test_position_alone_is_compared_where_both_have_null_corpora(folders, tmp_path):
    options = OPTIONS | {"nulls": 3}
    for name in "ac":
        count(CountOptions(sources=(str(folders / f"{name}.txt"),), **options), tmp_path / name)
    (pair,) = compare_counts([tmp_path / "a", tmp_path / "c"], dim=2, permutations=199).pairs
    assert (pair.of_position, pair.folds) == (True, 4)
    assert pair.p_value == pair.p_adjusted < 0.05
    # Vocabularies differ, and null corpora are aligned as counts are.
    same = compare_counts([tmp_path / "a", tmp_path / "a"], dim=2, permutations=199)
    assert same.pairs[0].distance < 1e-6


def test_shared_shards_are_told_and_other_settings_refused(folders, tmp_path):
    merge([folders / "a", folders / "b"], tmp_path / "both")
    found = compare_counts([tmp_path / "both", folders / "a"], **CHOICES)
    assert found.pairs[0].shared == 1
    less = [x for x in page(found).findings if x.verdict == "less comparable"]
    assert ("both, a", "1 shard shared") in [(one.name, one.value) for one in less]
    for option, value in (("length", 5), ("tokenizer", "bytes")):
        options = CountOptions(sources=(str(folders / "a.txt"),), **OPTIONS | {option: value})
        count(options, tmp_path / option)
        with pytest.raises(InputError, match=option):
            compare_counts([folders / "a", tmp_path / option])
    for folder, options in (([folders / "a"], {}), ([folders / "a"] * 2, {"permutations": 0})):
        with pytest.raises(InputError, match=r"two|permutations"):
            compare_counts(folder, **options)

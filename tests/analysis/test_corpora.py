"""Corpora compared from their counts, with vocabularies of their own."""

import json

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis import load_result
from jaxpe.analysis.corpora import CorporaComparison, compare_counts
from jaxpe.analysis.counts import CountOptions, count, merge
from jaxpe.report import draw, page


def warned(found):
    rows = [one for section in page(found).sections for one in section.findings]
    return [one for one in rows if one.verdict == "less comparable"]


OPTIONS = {"length": 6, "folds": 8, "nulls": 0}
CHOICES = {"dim": 2, "permutations": 39}


def documents(seed, order, number=320):
    rng = np.random.default_rng(seed)
    words = ["the", "of", "and", "to", "in", "is"]
    rows = []
    for _ in range(number):
        noisy = rng.random(6) < 0.4
        rows.append(
            [words[rng.integers(6)] if n else words[i] for i, n in zip(order, noisy, strict=True)]
        )
    return [" ".join(row) for row in rows]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two samples of one population, and one whose first positions are as one another."""
    folder = tmp_path_factory.mktemp("corpora")
    corpora = {"a": (0, [*range(6)]), "b": (1, [*range(6)]), "c": (2, [0, 0, 0, 3, 4, 4])}
    for name, (seed, order) in corpora.items():
        rows = [*documents(seed, order), f"only {name}"]
        (folder / f"{name}.txt").write_text("\n".join(rows))
        count(CountOptions(sources=(str(folder / f"{name}.txt"),), **OPTIONS), folder / name)
    return folder


def test_what_differs_is_told_and_what_does_not_is_not(folders):
    found = compare_counts([folders / name for name in "abc"], **CHOICES)
    assert [(pair.first, pair.second) for pair in found.pairs] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    alike, *others = found.pairs
    assert alike.p_value > 0.05
    for pair in others:
        assert pair.p_value == 1 / 40
        assert pair.distance > pair.chance
        assert pair.distance > alike.distance
        assert pair.overlap < alike.overlap < 1
    assert [each.documents for each in found.corpora] == [321] * 3
    lines = draw(page(found).figures[0]).axes[0].lines
    np.testing.assert_array_equal(lines[2].get_xydata(), found.corpora[1].coordinates)
    np.testing.assert_allclose([pair.p_adjusted for pair in others], 3 / 40)  # Holm
    assert not any(pair.of_position for pair in found.pairs)
    shown = page(found)
    assert [one.verdict for one in shown.lead] == ["no significant difference"] * 3  # 3/40 by Holm
    assert [one.value for one in warned(found)] == ["without null corpora"] * 3 + [
        "no `group_field`"
    ]
    for adjusted, verdict in ((0.05, "they differ"), (0.0501, "no significant difference")):
        only = found._replace(pairs=(alike._replace(p_adjusted=adjusted),))
        (row,) = page(only).lead
        assert (row.verdict, row.value, row.reference) == (verdict, alike.distance, alike.chance)
        assert bool(row.todo) == (adjusted == 0.05)


def test_position_alone_is_compared_where_both_have_null_corpora(folders, tmp_path):
    options = OPTIONS | {"nulls": 3}
    for name in "ac":
        count(CountOptions(sources=(str(folders / f"{name}.txt"),), **options), tmp_path / name)
    found = compare_counts([tmp_path / "a", tmp_path / "c"], dim=2, permutations=199)
    (pair,) = found.pairs
    assert pair.of_position
    assert pair.folds == 4
    assert pair.p_value == pair.p_adjusted < 0.05
    turned = found._replace(pairs=(pair._replace(angles=np.radians([10.0, 40.0])),))
    assert "40°" in page(turned).tables[0].rows[0]  # the largest angle
    assert not any(one.value == "without null corpora" for one in warned(found))
    # Vocabularies differ, and null corpora are aligned as counts are.
    same = compare_counts([tmp_path / "a", tmp_path / "a"], dim=2, permutations=199)
    assert same.pairs[0].distance < 1e-6


def test_what_is_less_comparable_is_told(folders, tmp_path):
    (tmp_path / "few.txt").write_text("\n".join(documents(5, range(6), 64)))
    count(CountOptions(sources=(str(tmp_path / "few.txt"),), **OPTIONS), tmp_path / "few")
    merge([folders / "a", folders / "b"], tmp_path / "both")
    found = compare_counts([tmp_path / "few", tmp_path / "both", folders / "a"], **CHOICES)
    assert ("both, a", "1 shard shared") in [(one.name, one.value) for one in warned(found)]
    # As many tokens of both are compared, at most those of the smaller one.
    assert {pair.tokens for pair in found.pairs[:2]} <= {*range(1, 6 * 64 // 8 + 1)}


def test_what_does_not_compare_is_refused(folders, tmp_path):
    source = (str(folders / "a.txt"),)
    with pytest.raises(InputError, match="pass two folders or more"):
        compare_counts([folders / "a"])
    for option, value in (("length", 5), ("tokenizer", "bytes")):
        count(CountOptions(sources=source, **OPTIONS | {option: value}), tmp_path / option)
        with pytest.raises(InputError, match=f"counted differently: {option} is"):
            compare_counts([folders / "a", tmp_path / option])
    with pytest.raises(InputError, match="`permutations` is 0"):
        compare_counts([folders / "a", folders / "b"], permutations=0)


def test_the_command_writes_a_page(command, folders, tmp_path):
    out = tmp_path / "out"
    words = ("compare", folders / "a", folders / "c", "--mds-dim", 2, "--permutations", 39)
    code, printed, errors = command(*words, "--out", out)
    assert code == 0, errors
    assert "0.025" in printed
    assert "<svg" in (out / "figures" / "configurations.svg").read_text()
    assert json.loads((out / "corpora.json").read_text())["pairs"][0]["folds"] == 8
    assert load_result(CorporaComparison, out / "corpora.json").pairs[0].p_value == 1 / 40
    code, _, errors = command("compare", folders / "a", folders, "--out", out)
    assert code == 2
    assert str(folders) in errors

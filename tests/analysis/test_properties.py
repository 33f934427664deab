"""The properties job: rows, what is refused, and JSON and back."""

import json

import pytest

from jaxpe import InputError
from jaxpe._core.results import result_files
from jaxpe.analysis import load_result
from jaxpe.analysis.properties import PropertyOptions, PropertyTable, _needed_bytes, tabulate
from jaxpe.encodings import encoding_properties, resolve

SMALL = {"dim": 16, "heads": 2, "head_dim": 8, "length": 32}


def test_a_row_is_what_the_public_function_gives():
    options = PropertyOptions(names=("learned",), about="overview", **SMALL)
    (row,) = tabulate(options).encodings
    assert row == encoding_properties(resolve("learned"), sizes=options.sizes)


@pytest.mark.parametrize(
    ("about", "numbers"), [("names", 8 * 32 * 16), ("overview", 8 * 32 * 16 + 8 * 6 * 16 * 16)]
)
def test_needed_bytes_are_of_a_table_and_of_projections(about, numbers):
    assert _needed_bytes(PropertyOptions(about=about, **SMALL)) == numbers


@pytest.mark.parametrize("about", ["names", "overview"])
def test_saved_tables_come_back(about, tmp_path):
    table = tabulate(PropertyOptions(names=("none", "learned"), about=about, **SMALL))
    for name, content in result_files(table, "table").items():
        (tmp_path / name).write_bytes(content)
    assert repr(load_result(PropertyTable, tmp_path / "table.json")) == repr(table)
    saved = json.loads((tmp_path / "table.json").read_text())
    assert [row["name"] for row in saved["encodings"]] == ["none", "learned"]


def test_order_and_progress_are_those_of_the_names():
    seen = []

    class Listing:
        def track(self, items, description, *, total=None):
            seen.append(len(items))
            return items

        def say(self, line):
            raise AssertionError

    options = PropertyOptions(names=("t5", "alibi"), about="names", **SMALL)
    table = tabulate(options, progress=Listing())
    assert [row.name for row in table.encodings] == ["t5", "alibi"]
    assert seen == [2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dim": 0}, "`dim` is 0"),
        ({"dim": 15}, "`dim` must be even, not 15"),
        ({"head_dim": 6}, "`head_dim` must be a multiple of 4"),
        ({"length": 31}, "`length` is 31; pass at least 32"),
        ({"dim": 2**30, "length": 2**30}, f"`dim={2**30}`"),
        ({"names": ("alibli",)}, "did you mean 'alibi'"),
    ],
)
def test_sizes_that_no_encoding_can_have_are_refused(changed, message):
    with pytest.raises(InputError, match=message):
        tabulate(PropertyOptions(**{"names": ("alibi",), **SMALL, **changed}))

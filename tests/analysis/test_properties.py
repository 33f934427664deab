"""The properties job: rows, what is refused, and JSON and back."""

import json
import math

import pytest

from jaxpe import InputError
from jaxpe._core.results import result_files
from jaxpe.analysis import load_result
from jaxpe.analysis.properties import (
    BIAS_SCALES,
    PropertyOptions,
    PropertyTable,
    _needed_bytes,
    tabulate,
)
from jaxpe.encodings import (
    encoding_cost,
    encoding_extrapolation,
    encoding_generalisation,
    encoding_properties,
    resolve,
)

SMALL = {"dim": 16, "heads": 2, "head_dim": 8, "length": 32}
OF_ROW = {
    "overview": encoding_properties,
    "generalisation": encoding_generalisation,
    "extrapolation": encoding_extrapolation,
    "cost": encoding_cost,
}


@pytest.mark.parametrize("about", OF_ROW)
def test_a_row_is_what_the_public_function_gives(about):
    options = PropertyOptions(names=("learned",), about=about, **SMALL)
    (row,) = tabulate(options).encodings
    found = OF_ROW[about](resolve("learned"), sizes=options.sizes)
    assert repr({name: getattr(row, name) for name in found._fields}) == repr(found._asdict())
    assert row.name == "learned"


@pytest.mark.parametrize(
    ("about", "numbers"),
    [
        ("cost", 24 * 32 * 16),  # a table and its two copies, in float64
        ("overview", 24 * 32 * 16 + 12 * 6 * 16 * 16),
        ("generalisation", 24 * 32 * 16 + 12 * BIAS_SCALES[-1] * 32 * 16),
    ],
)
def test_needed_bytes_are_of_numbers_and_of_rounded_ones(about, numbers):
    assert _needed_bytes(PropertyOptions(about=about, **SMALL)) == numbers


@pytest.mark.parametrize("about", ["overview", "expressiveness", "extrapolation"])
def test_saved_tables_come_back(about, tmp_path):
    table = tabulate(PropertyOptions(names=("none", "learned"), about=about, **SMALL))
    for name, content in result_files(table, "table").items():
        (tmp_path / name).write_bytes(content)
    assert repr(load_result(PropertyTable, tmp_path / "table.json")) == repr(table)
    saved = json.loads((tmp_path / "table.json").read_text())
    assert [row["name"] for row in saved["encodings"]] == ["none", "learned"]
    if about == "extrapolation":  # of learned rows, which are NaN beyond
        assert saved["encodings"][1]["stretches"][0] == {
            "state": "undefined",
            "smallest": None,
            "mean": None,
        }
        assert math.isnan(table.encodings[1].stretches[0].mean)


def test_order_and_progress_are_those_of_the_names():
    seen = []

    class Listing:
        def track(self, items, description, *, total=None):
            seen.append(len(items))
            return items

        def say(self, line):
            raise AssertionError

    options = PropertyOptions(names=("t5", "alibi"), about="cost", **SMALL)
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

"""The properties job: rows, what is refused, and JSON and back."""

import pytest

from jaxpe._core.results import result_files
from jaxpe.analysis import load_result
from jaxpe.analysis.properties import PropertyOptions, PropertyTable, tabulate
from jaxpe.encodings import encoding_properties
from jaxpe.encodings.entries import resolve

SMALL = {"dim": 16, "heads": 2, "head_dim": 8, "length": 32}


@pytest.mark.parametrize("about", ["names", "overview"])
def test_rows_are_what_the_public_function_gives_and_come_back(about, tmp_path):
    options = PropertyOptions(names=("t5", "learned"), about=about, **SMALL)
    table = tabulate(options)
    assert [row.name for row in table.encodings] == ["t5", "learned"]
    if about == "overview":
        expected = encoding_properties(resolve("learned"), sizes=options.sizes)
        assert table.encodings[1] == expected
    for name, content in result_files(table, "table").items():
        (tmp_path / name).write_bytes(content)
    assert repr(load_result(PropertyTable, tmp_path / "table.json")) == repr(table)

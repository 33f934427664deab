"""The pages of the checks print what they show, and have every check and fault.

`python -m tests.conformance.test_pages` writes what the blocks print into the pages.
"""

import contextlib
import io
import re
import tempfile
from pathlib import Path

import flax
import pytest
from flax import nnx

from experiments.conformance.mutants import MUTANTS
from jaxpe.conformance.attention import ATTENTION_CHECKS
from jaxpe.conformance.rotary import ROTARY_CHECKS
from tests.test_readme import as_a_reader

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {name: DOCS / name for name in ("conformance.md", "batches.md")}
EXAMPLE = re.compile(r"```python3\n(rope = .*?)```\n\n(?P<shown>```text\n.*?```)", re.DOTALL)
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n(?P<shown>```text\n.*?```))?", re.DOTALL)


def output_of(code, names):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "page", "exec"), names)
    return f"```text\n{output.getvalue().rstrip()}\n```"


def printed(text, folder):
    """Blocks of a page that show what they print, each with what it prints now."""
    names = {}
    with contextlib.chdir(folder), as_a_reader():
        found = [(match, output_of(match[1], names)) for match in BLOCK.finditer(text)]
    return [(match, output) for match, output in found if match["shown"]]


def without_rounding(text):
    """Text without errors of checks that passed, which differ between machines."""
    return re.sub(r"(passed .*largest error) [^,]+", r"\1", text)


@pytest.mark.parametrize("page", PAGES)
def test_pages_print_what_they_show(page, tmp_path):
    text = PAGES[page].read_text("utf-8")
    for match, output in printed(text, tmp_path):
        assert without_rounding(output) == without_rounding(match["shown"])


FIRST_WITH_ROPE, LAST_WITH_FAULT = (0, 12, 9), (0, 12, 12)  # versions of Flax


def test_rope_of_flax_forgets_the_position_of_a_decoded_query(tmp_path):
    """The example of a cache, as each version of Flax that has `nnx.RoPE` runs it."""
    version = tuple(int(part) for part in flax.__version__.split(".")[:3])
    assert hasattr(nnx, "RoPE") == (version >= FIRST_WITH_ROPE)
    if version < FIRST_WITH_ROPE:
        pytest.skip(f"Flax {flax.__version__} has no nnx.RoPE; 0.12.9 is the first with it")
    text = PAGES["conformance.md"].read_text("utf-8")
    example, names = EXAMPLE.search(text), {}
    before = "".join(match[1] for match in BLOCK.finditer(text, 0, example.start()))
    with contextlib.chdir(tmp_path), as_a_reader():
        output_of(before, names)
        found = output_of(example[1], names)
    if version > LAST_WITH_FAULT and ": passed" in found:
        pytest.fail(f"Flax {flax.__version__} has mended it: say so on the page, and in this test")
    assert without_rounding(found) == without_rounding(example["shown"])


def test_every_check_and_fault_is_on_the_page_of_faults():
    page = (DOCS / "faults.md").read_text("utf-8")
    rows = "".join(row for row in page.splitlines() if row.startswith("|"))
    assert [one for one in {*ROTARY_CHECKS, *ATTENTION_CHECKS} if f"`{one}`" not in rows] == []
    sections = re.findall(r"^### (.*)", page, re.MULTILINE)
    assert len(sections) == len(set(sections))
    assert {name for mutant in MUTANTS for name in mutant.expected} <= set(sections)
    anchors = {name.lower().replace(" ", "-") for name in sections}
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= anchors


if __name__ == "__main__":
    for path in PAGES.values():
        text = path.read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            found = printed(text, folder)
        for match, output in reversed(found):
            text = text[: match.start("shown")] + output + text[match.end("shown") :]
        path.write_text(text, "utf-8")
    print(f"{len(PAGES)} pages")

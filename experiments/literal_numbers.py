"""Numbers that a template of `sections/` has as text, where a file should give them.

Text may hold: whole numbers below 10; numbers of tables, sections, equations and years; what stands
in `code`, in quotation marks and in headings; the columns `theirs`, `published`, `claim` and
`command` of a table, and rows that begin with these words. Anything else is an expression, or is in
a comment above its paragraph or row, which says what was set or published rather than measured:

    {# given 20, 5,000: seeds and documents #}

It holds up to the next blank line or the next such comment; between rows, for one row. A number of
ours never stands there. One that is in no file, or was not found in one yet, is listed as
`{# untraced 0.712 #}`; a test knows how many there are.
"""

import re
from collections.abc import Iterator

NAMES = (
    "Algorithm|Appendix|Assumption|Conjecture|Corollary|Definition|Eq|Equation|Figure|Lemma|Proposition"
    "|Remark|Sec|Section|Table|Task|Theorem|check|erratum|line"
)
NUMBER = r"\(?\d+(?:\.\d+)*\)?"
LITERAL = (
    r"`[^`]*`",
    r"\]\([^)]*\)",
    r'"[^"]*"',
    rf"\b(?:{NAMES})(?:s|as|\.)?\s+{NUMBER}(?:(?:,| and| to| or)\s+{NUMBER})*",
    r"\(\d{1,2}\)",  # an equation
    r"\b(?:19|20)\d\d\b",
)
FOUND = re.compile(r"(?<![\w.,^])(?:\d[\d,]*\d|\d)?(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
GIVEN = re.compile(r"\{#-?\s*(given|untraced)\s([^:#]*)(?::[^#]*)?#\}")
TAGS = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", flags=re.DOTALL)
CODE = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)
COLUMNS = re.compile(r"theirs|published|\bclaim\b|command", flags=re.IGNORECASE)


def numbers(text: str) -> list[str]:
    """Numbers of a line of text, without those that a line may always hold."""
    for pattern in LITERAL:
        text = re.sub(pattern, "`", text)
    found = []
    for match in FOUND.finditer(text):
        number = match[0]
        small = re.fullmatch(r"\d", number) and not re.match(r"\s?%", text[match.end() :])
        if number and not small:
            found.append(number)
    return found


def literal_numbers(template: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Lines and numbers that stand as text; and those listed as given that do not."""
    literal, unused = [], []
    for block in _blocks(_without_tags(template)):
        left = dict.fromkeys(block.given)
        seen = [(at, number) for at, line in block.lines for number in numbers(line)]
        literal += [(at, number) for at, number in seen if number not in left]
        used = {number for _, number in seen}
        unused += [(block.first, number) for number in left if number not in used]
    return literal, unused


def untraced(template: str) -> list[str]:
    """Numbers of ours that are in no file."""
    listed = [at[2] for at in GIVEN.finditer(template) if at[1] == "untraced"]
    return [number for numbers in listed for number in re.split(r",\s+|\s+", numbers.strip())]


class _Block:
    """Lines under one `given`."""

    def __init__(self, first: int, given: list[str]) -> None:
        self.first, self.given, self.lines = first, given, []


def _without_tags(template: str) -> str:
    """The text without code, every tag as one character, and as many lines as before."""

    def kept(tag: re.Match[str]) -> str:
        given = GIVEN.fullmatch(tag[0])
        marked = f"\0{given[2].strip()}\0" if given and _begins_a_line(tag) else "~"
        return marked + "\n" * tag[0].count("\n")

    return TAGS.sub(kept, CODE.sub(lambda code: "\n" * code[0].count("\n"), template))


def _begins_a_line(tag: re.Match[str]) -> bool:
    return tag.start() == 0 or tag.string[tag.start() - 1] == "\n"


def _blocks(text: str) -> Iterator[_Block]:
    block, header, of_a_row = _Block(1, []), None, False
    for at, line in enumerate(text.splitlines(), 1):
        given = re.match(r"\s*\0(.*?)\0", line)
        if given or not line.strip():
            listed = re.split(r",\s+|\s+", given[1]) if given else []
            if given and not block.lines:
                block.given += listed
            else:
                yield block
                block = _Block(at, listed)
            of_a_row = given is not None and header is not None
        elif line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            header = header or cells
            block.lines.append((at, " | ".join(_own_cells(cells, header))))
            if of_a_row:
                yield block
                block, of_a_row = _Block(at, []), False
        elif not line.startswith("#"):
            block.lines.append((at, line))
        if not (line.startswith("|") or given or set(line) <= {"~", " "}):
            header = None
    yield block


def _own_cells(cells: list[str], header: list[str]) -> list[str]:
    """Cells of a row that say what we found."""
    if COLUMNS.match(cells[0].strip(" *")) and cells is not header:
        return []
    columns = header if len(header) == len(cells) else [""] * len(cells)
    return [
        cell
        for cell, column in zip(cells, columns, strict=True)
        if cells is header or not COLUMNS.search(column)
    ]

"""Published statements and their words, from `statements.toml` of each paper."""

import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Literal, NamedTuple

# Verdicts of the page "Results".
Status = Literal[
    "reproduced", "reproduced under a stated reading", "not decided", "not reproduced",
    "false as stated", "vacuous", "inference invalid",
]  # fmt: skip

# Comparison without pairs: 0 ≤ 0.
NOTHING_COMPARED = "Every divergence is infinite: nothing can be compared."

# One, or one by "holds" and one by "fails", or by "finite" one of pairs that can be compared.
Sentence = str | Mapping[str, str]


class Statement(NamedTuple):
    """A published statement and its status in general.

    Attributes:
        name: name in its paper, such as "Lemma 16".
        title: subject, in a few words.
        source: paper and section.
        claim: the statement.
        status: verdict on it in general, for any model or corpus, in the words of the page
            "Results" of the documentation.
        finding: the reason, and what is true instead.
        sentences: sentence of each comparison of an audit, by "if", "then" or "instead" and the
            comparison's name; none for statements about models that their experiments make.
    """

    name: str
    title: str
    source: str
    claim: str
    status: Status
    finding: str
    sentences: Mapping[str, Sentence] = {}  # never modified

    def sentence(self, claim: str, sides: Any, *, number: Callable[[float], str] = str) -> str:
        """The sentence of a comparison ("then (13)"), with both of its numbers."""
        text = self.sentences[claim]
        if isinstance(text, Mapping) and "finite" in text:
            text = NOTHING_COMPARED if sides.lhs == sides.rhs == 0 else text["finite"]
        elif isinstance(text, Mapping):
            text = text["holds" if sides.holds else "fails"]
        return text.format(lhs=number(sides.lhs), rhs=number(sides.rhs))


def read_statements(paper: str) -> tuple[Statement, ...]:
    """The statements of a paper, by the name of its package, in the order of the paper.

    >>> [statement.name for statement in read_statements("kazemnejad2023")]
    ['NoPE Theorem 1', 'NoPE Theorem 2']
    """
    text = files(f"jaxpe.theory.{paper}").joinpath("statements.toml").read_text("utf-8")
    table = _unwrapped(tomllib.loads(text))
    shared = table.get("shared", {})
    statements = []
    for row in table["statement"]:
        named = {name: shared[name.replace("Lemma 11: ", "")] for name in row.pop("shared", ())}
        statements.append(Statement(**row | {"sentences": named | row.get("sentences", {})}))
    return tuple(statements)


def _unwrapped(value: Any) -> Any:
    """The same values, with the lines of each text joined by spaces."""
    if isinstance(value, dict):
        return {key: _unwrapped(item) for key, item in value.items()}
    return [*map(_unwrapped, value)] if isinstance(value, list) else " ".join(value.split())

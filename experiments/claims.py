"""`make results`: claims of the papers, their verdicts, and the pages that are made of them.

Each folder of a paper holds its scripts and `claims.toml`: a title, an introduction, and claims
(theorems and proofs of the geometry paper are in `statements.toml`).

    id, where     the anchor, and the place in the text; the name of the statement when left out
    claim         the claim in at most 12 words
    quote         its own words with their conditions, where we have the text; `…` where cut
    published     what was published, in at most 12 words
    ours          what we found, in at most 12 words: Jinja, numbers from the results
    tolerance     a number that the predicate may use
    budget        the published budget and ours
    verdict       one of VERDICTS; that of the statement when left out
    predicate     a Jinja expression that must be true of the stored results for this verdict
    why           what decides the verdict: Jinja, no comparison
    findings      sentences that compare, each with a predicate of its own
    details       tables: Jinja
    given         numbers in this text that were set or published, not measured
    was, because  an earlier verdict, and why it changed
    statement     its name in `jaxpe/theory/*/statements.toml`
    script, test  what computes it; `r` is the file of results of the script
    figure        a file of `results/`

`make results` writes RESULTS.md from `templates/`, a page for each folder into `docs/results/`, and
the pages of the site that quote numbers, from `pages/`.
"""

import json
import math
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2

from experiments import provenance

EXPERIMENTS = Path(__file__).parent
RESULTS = EXPERIMENTS / "results"
THEORY = EXPERIMENTS.parent / "jaxpe" / "theory"
DOCS = EXPERIMENTS.parent / "docs"
NONE = "–"
VERDICTS = {
    "reproduced": "by the published definition, within the stated tolerance or interval",
    "reproduced under a stated reading": "the text leaves something open, and one named reading "
    "gives the published result",
    "not decided": "intervals overlap, the budget is below the published one, or the model differs",
    "not reproduced": "no reading that we tried, each named, gives the published result",
    "false as stated": "a counterexample meets every hypothesis, standing ones included",
    "vacuous": "the hypotheses cannot hold together, so the statement says nothing",
    "inference invalid": "a step of a proof does not follow, whether or not its conclusion is true",
    "measured": "nothing was claimed: an open question, or our own work",
}


class Results(dict):
    """Results by the name of their file, read when they are asked for, without what made them."""

    def __missing__(self, name: str) -> Any:
        path = RESULTS / f"{name}.json"
        if not path.is_file():
            raise KeyError(f"there is no {path.name} in experiments/results")
        self[name] = json.loads(path.read_text())
        self[name].pop(provenance.KEY, None)
        return self[name]

    def names(self) -> set[str]:
        """Names of the files of results."""
        return {path.stem for path in RESULTS.glob("*.json")}


class Environment(jinja2.Environment):
    """Jinja in which `a.b` is a key of a result, and never a method of the dictionary."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Claim) and hasattr(Claim, attribute):
            return getattr(obj, attribute)
        return self.getitem(obj, attribute) if isinstance(obj, dict) else getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            return obj[argument]
        except (KeyError, IndexError, TypeError) as error:
            keys = ", ".join(map(repr, list(obj)[:12])) if isinstance(obj, Iterable) else repr(obj)
            raise jinja2.UndefinedError(f"{argument!r} is not in {keys}") from error


def f(value: float | None, spec: str = "") -> str:
    """A number as RESULTS.md writes it, `–` for None.

    `spec` is that of `format`, with these differences: `.1%` writes `79.6 %` and `.1p` the same
    without its sign; `.1es` writes `7.1e-8` where `.1e` has `7.1e-08`; a minus sign is one.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    if spec.endswith("p"):
        value, spec = 100 * value, spec[:-1] + "f"
    text = format(value, spec.removesuffix("s"))
    if spec.endswith("s"):
        text = re.sub(r"e([+-])0*(\d)", lambda at: f"e{at[1].strip('+')}{at[2]}", text)
    text = text.removeprefix("-") if not re.search(r"[1-9]", text) else text
    return re.sub(r"^-", "−", text).replace("%", " %")


def pm(value: Mapping[str, float], spec: str = "", spread: str | None = None) -> str:
    """A mean and its `half` of an interval, or `interval`, or `sd`: `0.884 ± 0.360`."""
    half = next(value[name] for name in ("half", "interval", "sd") if name in value)
    return f"{f(value['mean'], spec)} ± {f(half, spread or spec)}"


def share(value: Mapping[str, Any], spec: str = "") -> str:
    """A share with the range of its seeds, or its interval within [0, 1]: `0.98 (0.94 to 1)`."""
    mean, half = value["mean"], value["half"]
    ends = value.get("seeds") or (max(0.0, mean - half), min(1.0, mean + half))
    return f"{f(mean, spec)} ({span(ends, spec)})"


def each(values: Iterable[Any], spec: str = "", separator: str = ", ") -> str:
    """Several numbers, of a list or a dictionary, with commas between them."""
    values = values.values() if isinstance(values, Mapping) else values
    return separator.join(f(value, spec) for value in values)


def span(values: Iterable[float], spec: str = "") -> str:
    """The least and the largest: `0.22 to 0.25`."""
    values = list(values.values() if isinstance(values, Mapping) else values)
    return f"{f(min(values), spec)} to {f(max(values), spec)}"


def values(mapping: Mapping[str, Any]) -> list[Any]:
    """Values of a dictionary, for other filters."""
    return list(mapping.values())


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def geometric_mean(values: Iterable[float]) -> float:
    values = list(values)
    return math.prod(values) ** (1 / len(values))


def column_means(rows: Iterable[Iterable[float]]) -> list[float]:
    """Mean of each column of a table, given by its rows."""
    return [mean(column) for column in zip(*rows, strict=True)]


def apart(values: Iterable[float], others: Iterable[float]) -> float:
    """Largest difference of two lists, relative to the second."""
    return max(abs(a - b) / abs(b) for a, b in zip(values, others, strict=True))


def zero(value: float, spec: str, below: float = 5e-7) -> str:
    """A number, as `0` where it is rounding."""
    return "0" if abs(value) < below else f(value, spec)


def to(value: Mapping[str, float], spec: str = "") -> str:
    """An interval with `low` and `high`: `(0.729 to 0.983)`."""
    return f"({f(value['low'], spec)} to {f(value['high'], spec)})"


def made_by(name: str) -> dict[str, Any]:
    """What made a file, with its commit as the page has it."""
    by = json.loads((RESULTS / f"{name}.json").read_text())[provenance.KEY]
    if by.get("from") == "history":
        return by | {"text": f"{by['commit']} or older"}
    changed = ", ".join(f"`{path}`" for path in by["changed"])
    if len(by["changed"]) > 3:
        changed = f"{len(by['changed'])} files"
    return by | {"text": by["commit"] + (f" and changes in {changed}" if changed else "")}


@cache
def environment() -> jinja2.Environment:
    made = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(EXPERIMENTS),
    )
    filters = (f, pm, share, each, span, to, zero, mean, geometric_mean, values)
    filters += (column_means, apart, median)
    made.filters |= {function.__name__: function for function in filters}
    functions: tuple[Any, ...] = (near, overlap, below, each_below, min, max)
    functions += (abs, all, any, len, zip)
    known: Any = {function.__name__: function for function in functions}
    made.globals.update(known | {"pi": math.pi, "inf": math.inf})
    return made


@cache
def expression(predicate: str) -> Callable[..., Any]:
    return environment().compile_expression(predicate, undefined_to_none=False)


def near(ours: Any, published: Any, tolerance: float, *, relative: bool = False) -> bool:
    """Whether each number is within `tolerance` of the published one, or that share of it."""
    ours, published = (x if isinstance(x, list | tuple) else [x] for x in (ours, published))
    return all(
        abs(a - b) <= tolerance * (abs(b) if relative else 1)
        for a, b in zip(ours, published, strict=True)
    )


def overlap(one: float | Mapping[str, float], *others: float | Mapping[str, float]) -> bool:
    """Whether an interval, or a number, overlaps each of the others, of which there are some."""
    low, high = ends(one)
    return bool(others) and all(a <= high and low <= b for a, b in map(ends, others))


def each_below(rows: Iterable[Any], smaller: str | float, larger: str | float) -> bool:
    """Whether in every row, of which there are some, one is below the other: names or numbers."""
    rows = list(rows)

    def entry(row: Any, names: str | float) -> Any:
        for name in names.split(".") if isinstance(names, str) else ():
            row = row[name]
        return row if isinstance(names, str) else names

    return bool(rows) and all(below(entry(row, smaller), entry(row, larger)) for row in rows)


def below(*items: float | Mapping[str, float]) -> bool:
    """Whether each number, or all of an interval, is below the next."""
    bounds = [ends(item) for item in items]
    return len(bounds) > 1 and all(one[1] < other[0] for one, other in pairwise(bounds))


def ends(interval: float | Mapping[str, float]) -> tuple[float, float]:
    """Ends of an interval, between which its estimate is; both are the number where it is one."""
    if not isinstance(interval, Mapping):
        return interval, interval
    inside = [interval[x] for x in ("estimate", "mean", "rho", "median") if x in interval]
    half = next((interval[x] for x in ("half", "interval") if x in interval), 0.0)
    low, high = interval.get("low", inside[0] - half), interval.get("high", inside[0] + half)
    if not all(low <= value <= high for value in inside):
        raise ValueError(f"not an interval about its estimate: {interval}")
    return low, high


class Claim(dict):
    """A claim of a folder, with the keys of `claims.toml`; a missing one is empty."""

    def __missing__(self, key: str) -> Any:
        return [] if key in ("findings", "given") else ""

    @property
    def command(self) -> str:
        if self["test"]:
            return f"pytest {self['test']}"
        script = self["script"] if "." in self["script"] else f"{self['folder']}.{self['script']}"
        return f"python -m experiments.{script}"

    def scope(self, results: Results) -> dict[str, Any]:
        """What its expressions may name."""
        known = {"results": results, "c": self, "tolerance": self["tolerance"]}
        name = self["result"] or self["script"].split(".")[-1]
        return known | ({"r": results[name]} if (RESULTS / f"{name}.json").is_file() else {})

    def holds(self, predicate: str, results: Results) -> Any:
        """The value of a predicate of the stored results."""
        return expression(predicate)(**self.scope(results))

    def render(self, text: str, results: Results) -> str:
        """A text of the claim, with its numbers."""
        return environment().from_string(text).render(self.scope(results)).strip()

    def text(self, key: str, results: Results) -> str:
        return self.render(str(self[key]), results)


@cache
def statements() -> dict[str, dict[str, str]]:
    """What a claim has from its statement in `jaxpe.theory`, by the statement's name."""
    tables = [tomllib.loads(path.read_text()) for path in THEORY.glob("*/statements.toml")]
    rows = [row for table in tables for row in table["statement"]]
    return {row["name"]: {"where": row["name"], "verdict": row["status"]} for row in rows}


def folders() -> dict[str, Claim]:
    """Papers by folder, each with its claims."""
    ours = ("beyond", "benchmarks")  # after the papers
    found: dict[str, Claim] = {}
    paths = [*EXPERIMENTS.glob("*/claims*.toml"), *EXPERIMENTS.glob("*/statements.toml")]
    for path in sorted(paths, key=lambda path: (path.parent.name in ours, path)):
        name, part = path.parent.name, tomllib.loads(path.read_text())
        paper = found.setdefault(name, Claim(claims=[]))
        for claim in part.pop("claim"):
            from_statement = statements()[claim["statement"]] if "statement" in claim else {}
            paper["claims"].append(Claim(from_statement | claim, folder=name))
        paper |= part
    return found


def pages() -> dict[Path, str]:
    """Files that `make results` writes, and their text."""
    results, papers = Results(), folders()
    everything = [claim for paper in papers.values() for claim in paper["claims"]]
    known = {"results": results, "papers": papers, "claims": everything, "verdicts": VERDICTS}
    files = {name: made_by(name) for name in sorted(results.names())}
    known |= {"files": files, "untimed": [by for by in files.values() if "seconds" not in by]}

    def page(template: str, **more: Any) -> str:
        try:
            return environment().get_template(template).render(known | more)
        except jinja2.TemplateError as error:
            raise SystemExit(f"{template} {more.get('name', '')}: {error}") from error

    site = {EXPERIMENTS / "RESULTS.md": page("templates/front.md", base="../docs/results/")}
    contents = "\n".join([*papers, "costs"])
    toctree = "\n```{toctree}\n:hidden:\n\nresults/" + contents.replace("\n", "\nresults/")
    site[DOCS / "results.md"] = page("templates/front.md", base="results/") + toctree + "\n```\n"
    site[DOCS / "results" / "costs.md"] = page("templates/costs.md")
    for name, paper in papers.items():
        site[DOCS / "results" / f"{name}.md"] = page("templates/paper.md", name=name, paper=paper)
    for path in sorted((EXPERIMENTS / "pages").glob("*.md")):
        site[DOCS / path.name] = page(f"pages/{path.name}")
    return site


def main() -> None:
    """Write the pages."""
    for name in sorted(Results().names()):
        provenance.complete(RESULTS / f"{name}.json")
    for path, text in pages().items():
        changed = not path.is_file() or path.read_text() != text
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"{path.name}: {'written' if changed else 'as it was'}", file=sys.stderr)


if __name__ == "__main__":
    main()

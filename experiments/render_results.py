"""`make results`: RESULTS.md, from the templates in `sections/` and the numbers in `results/`.

A template is Markdown with Jinja expressions. `r` is the file of the section, `results.NAME` any
other, and `contents.txt` lists the sections in their order:

    {{ r.sst2.uniform.rank }} of {{ r.sst2.uniform.trace | f(".1f") }}

Pages of the site that quote numbers are written in the same way, from `sections/pages`.
"""

import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import provenance  # pyrefly: ignore

EXPERIMENTS = Path(__file__).parent
SECTIONS = EXPERIMENTS / "sections"
RESULTS = EXPERIMENTS / "results"
PAGE = EXPERIMENTS / "RESULTS.md"
DOCS = EXPERIMENTS.parent / "docs"
NONE = "–"


class Results(dict):
    """Results by the name of their file, read when they are asked for, without what made them."""

    def __missing__(self, name: str) -> Any:
        path = RESULTS / f"{name}.json"
        if not path.is_file():
            raise KeyError(f"there is no {path.name} in experiments/results")
        self[name] = json.loads(path.read_text())
        self[name].pop(provenance.KEY, None)
        return self[name]


class Environment(jinja2.Environment):
    """Jinja in which `a.b` is a key of a result, and never a method of the dictionary."""

    def getattr(self, obj: Any, attribute: str) -> Any:
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


def si(value: float, spec: str = ".3g") -> str:
    """A large number in thousands or millions: `16.9k`, `4.75M`."""
    for size, sign in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f(value / size, spec) + sign
    return f(value, spec)


def values(mapping: Mapping[str, Any]) -> list[Any]:
    """Values of a dictionary, for other filters."""
    return list(mapping.values())


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(mean(map(math.log, values)))


def column_means(rows: Iterable[Iterable[float]]) -> list[float]:
    """Mean of each column of a table, given by its rows."""
    return [mean(column) for column in zip(*rows, strict=True)]


def apart(values: Iterable[float], others: Iterable[float]) -> float:
    """Largest difference of two lists, relative to the second."""
    return max(abs(a - b) / abs(b) for a, b in zip(values, others, strict=True))


def first_above(values: Iterable[float], least: float, places: Iterable[Any]) -> Any:
    """Place of the first value that is larger than `least`."""
    return next(place for value, place in zip(values, places, strict=True) if value > least)


def zero(value: float, spec: str, below: float = 5e-7) -> str:
    """A number, as `0` where it is rounding."""
    return "0" if abs(value) < below else f(value, spec)


def to(value: Mapping[str, float], spec: str = "") -> str:
    """An interval with `low` and `high`: `(0.729 to 0.983)`."""
    return f"({f(value['low'], spec)} to {f(value['high'], spec)})"


@cache
def environment() -> jinja2.Environment:
    made = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    filters = (f, pm, share, each, span, to, zero, si, mean, geometric_mean, values)
    filters += (column_means, apart, first_above, median)
    made.filters |= {function.__name__: function for function in filters}
    return made


def section_names() -> list[str]:
    return (SECTIONS / "contents.txt").read_text().split()


def render(text: str, results: Results, *, own: str | None = None) -> str:
    """One template; `own` is the name of the file that it calls `r`."""
    known: dict[str, Any] = {"results": results, "files": result_names(), "made_by": made_by}
    known["pi"] = math.pi
    if own in results or (RESULTS / f"{own}.json").is_file():
        known["r"] = results[own]
    return environment().from_string(text).render(known)


def made_by(name: str) -> str:
    """The commit that made a file, as the page has it."""
    by = json.loads((RESULTS / f"{name}.json").read_text()).get(provenance.KEY)
    if by is None:
        return "not recorded"
    if by.get("from") == "history":
        return f"{by['commit']} or older"
    changed = ", ".join(f"`{path}`" for path in by["changed"])
    if len(by["changed"]) > 3:
        changed = f"{len(by['changed'])} files"
    return by["commit"] + (f" and changes in {changed}" if changed else "")


def result_names() -> list[str]:
    return sorted(path.stem for path in RESULTS.glob("*.json"))


def pages() -> dict[Path, str]:
    """Files that `make results` writes, and their text."""
    results = Results()
    parts = [_rendered(SECTIONS / f"{name}.md", results, own=name) for name in section_names()]
    templates = sorted((SECTIONS / "pages").glob("*.md"))
    site = {DOCS / path.name: _rendered(path, results) for path in templates}
    return {PAGE: "\n".join(parts)} | site


def _rendered(path: Path, results: Results, *, own: str | None = None) -> str:
    try:
        return render(path.read_text(), results, own=own)
    except jinja2.TemplateError as error:
        raise SystemExit(f"{path.relative_to(SECTIONS)}{_line(error)}: {error}") from error


def _line(error: BaseException) -> str:
    """The line of the template that an error comes from."""
    lines, at = [], error.__traceback__
    while at:
        if at.tb_frame.f_code.co_filename == "<template>":
            lines.append(at.tb_lineno)
        at = at.tb_next
    number = getattr(error, "lineno", None) or (lines[-1] if lines else None)
    return f", line {number}" if number else ""


def main() -> None:
    for name in result_names():
        if name != "costs":  # of many runs
            provenance.complete(RESULTS / f"{name}.json")
    for path, text in pages().items():
        changed = not path.is_file() or path.read_text() != text
        path.write_text(text)
        print(f"{path.name}: {'written' if changed else 'as it was'}", file=sys.stderr)


if __name__ == "__main__":
    main()

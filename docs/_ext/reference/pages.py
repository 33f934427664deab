"""Documents of the reference, as text: what Sphinx reads, and what is in them."""

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference import docstrings, names
from reference.signatures import written

FOLDER = "api"


def page_name(path: str) -> str:
    """The document that describes a public name."""
    return f"{FOLDER}/{path}"


def sources() -> Iterator[tuple[str, str]]:
    """Documents and their text."""
    for name in names.public_names():
        yield page_name(name.path), stub(name.name, "public-name", name.path, orphan=True)
    for package in names.packages():
        yield page_name(package), stub(package, "public-package", package, orphan=True)


def stub(title: str, directive: str, argument: str, *, orphan: bool = False) -> str:
    """A document with a title and one directive."""
    first = ":orphan:\n\n" if orphan else ""
    return f"{first}{title}\n{'=' * len(title)}\n\n.. {directive}:: {argument}\n"


def write(folder: Path, pages: Iterator[tuple[str, str]]) -> None:
    """Write documents that changed, and remove those that are no more."""
    kept = set()
    for page, text in pages:
        place = folder / f"{page}.rst"
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or place.read_text("utf-8") != text:
            place.write_text(text, "utf-8")
        kept.add(place)
    for place in {path.parent for path in kept}:
        for stale in set(place.glob("*.rst")) - kept:
            stale.unlink()


def signature(path: str, value: Any) -> str:
    """A call as it is written, a parameter a line where it is long."""
    try:
        found = names.call_of(value)
    except (TypeError, ValueError):
        return path
    parts = list(map(str, _shown(found).parameters.values()))
    marks = _marks(list(found.parameters.values()))
    for place in sorted(marks, reverse=True):
        parts.insert(place, marks[place])
    result = found.return_annotation
    arrow = "" if result is inspect.Signature.empty else f" -> {written(result)}"
    line = f"{path}({', '.join(parts)}){arrow}"
    if len(line) <= 72:
        return line
    inside = "\n".join(_wrapped(f"{part},", 4) for part in parts)
    return f"{path}(\n{inside}\n{_wrapped(f'){arrow}', 0)}"


def _wrapped(text: str, indent: int) -> str:
    """Lines of at most 88 characters, broken at spaces."""
    options = {"break_long_words": False, "break_on_hyphens": False}
    first, rest = " " * indent, " " * (indent + 4)
    return textwrap.fill(text, 88, initial_indent=first, subsequent_indent=rest, **options)


def _shown(found: inspect.Signature) -> inspect.Signature:
    class Text(str):
        __repr__ = str.__str__

    def annotation(value: Any) -> Any:
        return value if value is inspect.Parameter.empty else Text(written(value))

    def default(value: Any) -> Any:
        if value is inspect.Parameter.empty or isinstance(value, bool | int | float | str | None):
            return value
        text = getattr(value, "__name__", None) or repr(value)
        return Text(text if len(text) < 60 and "<" not in text else "...")

    parameters = [
        p.replace(annotation=annotation(p.annotation), default=default(p.default))
        for p in found.parameters.values()
    ]
    return found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def _marks(parameters: list[inspect.Parameter]) -> dict[int, str]:
    """Where the star stands."""
    kinds = [p.kind for p in parameters]
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.KEYWORD_ONLY not in kinds:
        return {}
    return {kinds.index(inspect.Parameter.KEYWORD_ONLY): "*"}


def described_fields(value: type) -> list[tuple[str, str, str]]:
    """Fields of a class: name, type, and what is said of it or, where it inherits, was said."""
    said: dict[str, str] = {}
    for place in reversed(value.__mro__):
        if place.__module__.startswith("jaxpe"):
            said |= docstrings.parse(inspect.getdoc(place) or "").described("Attributes")
    said = names.field_comments(value) | said
    kinds: dict[str, Any] = {}
    for place in reversed(value.__mro__):
        kinds |= inspect.get_annotations(place)
    return [
        (name, written(kinds[name]) if name in kinds else "", said.get(name, ""))
        for name in names.fields(value)
    ]

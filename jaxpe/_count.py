"""What `jaxpe count` does between its options and the counting."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax

import jaxpe
from jaxpe._errors import InputError
from jaxpe.counting import StoredCounts, count_settings, count_shards, is_counted
from jaxpe.data import Shard, Tokenizer, find_shards, open_tokenizer, vocabulary_of
from jaxpe.data._tokenize import UNKNOWN, vocabulary_occurs

_VOCABULARY = "vocabulary.json"


def run(
    sources: Sequence[str],
    out: Path,
    *,
    tokenizer: str,
    vocab: Path | None,
    max_vocab: int | None,
    special: bool,
    settings: Mapping[str, Any],
    bins: int | None,
    spacing: Literal["equal", "log"],
    options: Mapping[str, Any],
    data_dir: Path | None,
    trace: Path | None,
    say: Callable[[str], None],
) -> StoredCounts:
    """Find the shards and the tokenizer, look at the settings, and count."""
    shards = find_shards(sources, data_dir=data_dir)
    edges = None if bins is None else _edges(settings["length"], bins, spacing)
    settings = {**settings, "edges": edges}
    opened = _tokenizer(shards, out, tokenizer, vocab, max_vocab, special, settings, options, say)
    chosen = count_settings(opened, **settings)
    with _profile(trace) if trace else contextlib.nullcontext():
        return count_shards(shards, out, tokenizer=opened, settings=chosen, say=say, **options)


def _profile(folder: Path) -> contextlib.AbstractContextManager[None]:
    """A profile of what is annotated and of the devices; every call of Python would bury it."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return jax.profiler.trace(str(folder), profiler_options=options)


def _tokenizer(
    shards: Sequence[Shard],
    out: Path,
    name: str,
    vocab: Path | None,
    max_vocab: int | None,
    special: bool,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    say: Callable[[str], None],
) -> Tokenizer:
    """The tokenizer; for words and characters with a vocabulary, made where none is given."""
    if not vocabulary_occurs(name):
        if vocab is not None or max_vocab is not None:
            raise InputError(f"{name} has a vocabulary of its own; leave vocab and max_vocab out")
        return open_tokenizer(name, special=special)
    if vocab is not None:
        if max_vocab is not None:
            raise InputError("vocab is there already; leave max_vocab out")
        return open_tokenizer(name, special=special, vocabulary=_read_vocabulary(vocab)["tokens"])
    # What is wrong with the options is told before the first pass.
    count_settings(open_tokenizer(name, special=special, vocabulary=[UNKNOWN]), **settings)
    made = out / _VOCABULARY
    wanted = {
        "tokenizer": name,
        "length": settings["length"],
        "max_vocab": max_vocab,
        "text_field": options["text_field"],
        "shards": [shard.identity for shard in shards],
    }
    if not made.is_file() or _read_vocabulary(made) | wanted != _read_vocabulary(made):
        if is_counted(out):
            raise InputError(f"{out} holds other counts, of another vocabulary; pass another --out")
        # Groups are not needed here, but a wrong column is told before the first pass, too.
        fields = {"text_field": options["text_field"], "group_field": settings["group_field"]}
        _make_vocabulary(shards, made, wanted, fields, options["skip_unreadable"], say)
    return open_tokenizer(name, special=special, vocabulary=_read_vocabulary(made)["tokens"])


def _make_vocabulary(
    shards: Sequence[Shard],
    path: Path,
    wanted: Mapping[str, Any],
    fields: Mapping[str, str | None],
    skip_unreadable: bool,
    say: Callable[[str], None],
) -> None:
    """A pass over the documents, for the words in them."""
    name = wanted["tokenizer"]
    if jax.process_count() > 1:
        raise InputError(
            f"several processes need one vocabulary of {name}: make it beforehand, with a count "
            f"by one process or from a sample, and pass its {_VOCABULARY} as --vocab"
        )
    say(f"first pass, for the vocabulary of {name}")
    readable = (_readable(shard, fields, skip_unreadable) for shard in shards)
    documents = itertools.chain.from_iterable(readable)
    sizes = {"length": wanted["length"], "max_vocab": wanted["max_vocab"]}
    found = vocabulary_of(documents, tokenizer=name, **sizes)
    if not found:
        raise InputError(f"no {name} in {len(shards)} shards; pass files with text")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps({**wanted, "tokens": found}, indent=0), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path} ({error.strerror}): pass another --out") from error
    say(f"{len(found):,} {name}: {path}")


def _readable(
    shard: Shard, fields: Mapping[str, str | None], skip_unreadable: bool
) -> Iterator[str]:
    """The texts of a shard; up to where it breaks, where it will be left out."""
    try:
        for document in shard.documents(**fields):
            yield document.text
    except InputError:
        if not skip_unreadable:
            raise


def _read_vocabulary(path: Path) -> dict[str, Any]:
    """What `jaxpe count` wrote, or just tokens: a JSON list, or text with one a line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        # Not splitlines, which splits at characters that are tokens, such as U+2028.
        value = json.loads(text) if path.suffix == ".json" else [*filter(None, text.split("\n"))]
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is no vocabulary ({error}); pass the {_VOCABULARY} of a count, or text with "
            "one token a line"
        ) from error
    value = {"tokens": value} if isinstance(value, list) else value
    tokens = value.get("tokens") if isinstance(value, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise InputError(f"{path} is no vocabulary; pass a JSON list of strings")
    return value


def _edges(length: int, bins: int, spacing: Literal["equal", "log"]) -> tuple[int, ...]:
    try:
        edges = jaxpe.position_bins(length, bins=bins, spacing=spacing)
    except ValueError as error:
        raise InputError(str(error)) from error
    return tuple(int(edge) for edge in edges)

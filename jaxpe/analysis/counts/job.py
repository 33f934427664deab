"""What `jaxpe count` does between its options and the counting."""

import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.folders import claimed, write_whole
from jaxpe._core.json_values import from_json, parse_json, read_json, read_small, seal
from jaxpe._core.memory import check_bytes
from jaxpe.analysis.counts import (
    CountSettings,
    StoredCounts,
    count_settings,
    count_shards,
    is_counted,
)
from jaxpe.analysis.counts.processes import agreed
from jaxpe.analysis.counts.settings import INT32_MAX, in_short
from jaxpe.data import Shard, Tokenizer, find_shards, open_tokenizer, vocabulary_of
from jaxpe.data._shards import content_hash
from jaxpe.data._tokenize import UNKNOWN, vocabulary_occurs

_VOCABULARY = "vocabulary.json"
_EDGE_BYTES = 128  # of an edge of a bin, while edges are made and as one of the settings


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

    def prepared() -> tuple[Sequence[Shard], Tokenizer, CountSettings]:
        if trace is not None:
            _check_trace(trace)
        shards = find_shards(sources, data_dir=data_dir)
        edges = None if bins is None else _edges(settings["length"], bins, spacing)
        wanted: dict[str, Any] = {**settings, "edges": edges}
        opened = _tokenizer(shards, out, tokenizer, vocab, max_vocab, special, wanted, options, say)
        return shards, opened, count_settings(opened, **wanted)

    shards, opened, chosen = agreed(prepared)
    with _profile(trace) if trace else contextlib.nullcontext():
        return count_shards(shards, out, tokenizer=opened, settings=chosen, say=say, **options)


def _check_trace(folder: Path) -> None:
    """Profiles are written at the end, which is late to find out that they cannot be."""
    try:
        with tempfile.TemporaryFile(dir=folder) if folder.exists() else contextlib.nullcontext():
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"`trace={folder}`: {error.strerror}; pass a folder that you may write to"
        ) from error


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
        return open_tokenizer(name, special=special, vocabulary=_read_vocabulary(vocab))
    # What is wrong with the options is told before the first pass.
    count_settings(open_tokenizer(name, special=special, vocabulary=[UNKNOWN]), **settings)
    # Groups are not needed here, but a wrong column is told before the first pass, too.
    fields = {"text_field": options["text_field"], "group_field": settings["group_field"]}
    wanted = _Vocabulary(name, settings["length"], max_vocab, options["text_field"])
    tokens = _own_vocabulary(shards, out, wanted, fields, options["skip_unreadable"], say)
    return open_tokenizer(name, special=special, vocabulary=tokens)


class _Vocabulary(NamedTuple):
    """What a count writes about the vocabulary that it made; without tokens, what it would make.

    - `shards`: hashes of their content, empty where one could not be read.
    """

    tokenizer: str
    length: int
    max_vocab: int | None
    text_field: str | None
    shards: list[str] = []  # noqa: RUF012
    tokens: list[str] = []  # noqa: RUF012
    seal: str = ""

    def sealed(self) -> "_Vocabulary":
        """With a checksum of all the rest."""
        return self._replace(seal=seal(self._replace(seal="")._asdict()))


def _own_vocabulary(
    shards: Sequence[Shard],
    out: Path,
    wanted: _Vocabulary,
    fields: Mapping[str, str | None],
    skip_unreadable: bool,
    say: Callable[[str], None],
) -> list[str]:
    """The vocabulary that is in the folder already, or one that is made."""
    path = out / _VOCABULARY
    if path.exists():
        made = _made_vocabulary(path)
        if wanted == made._replace(shards=[], tokens=[], seal="") and _same_shards(made, shards):
            return made.tokens
    if is_counted(out):
        raise InputError(f"{out} holds other counts, of another vocabulary; pass another `out`")
    if jax.process_count() > 1:
        raise InputError(
            f"several processes need one vocabulary of {wanted.tokenizer}: make it beforehand, "
            f"with a count by one process or from a sample, and pass its {_VOCABULARY} as `vocab`"
        )
    with claimed(out):
        say(f"first pass, for the vocabulary of {wanted.tokenizer}")
        made = _make_vocabulary(shards, wanted, fields, skip_unreadable)
        write_whole(path, json.dumps(made.sealed()._asdict(), indent=0) + "\n")
    say(f"{len(made.tokens):,} {wanted.tokenizer}: {path}")
    return made.tokens


def _made_vocabulary(path: Path) -> _Vocabulary:
    remedy = "delete it, and it is made anew"
    made = from_json(_Vocabulary, read_json(path, remedy=remedy), place=str(path))
    if made.seal != made.sealed().seal:
        raise InputError(f"{path} is damaged: its seal is not of its values; {remedy}")
    return made


def _same_shards(made: _Vocabulary, shards: Sequence[Shard]) -> bool:
    """Whether the vocabulary is of the content of these shards."""
    known = [*zip(made.shards, shards, strict=False)]
    return len(made.shards) == len(shards) and all(
        not digest or digest == shard.digest() for digest, shard in known
    )


def _make_vocabulary(
    shards: Sequence[Shard],
    wanted: _Vocabulary,
    fields: Mapping[str, str | None],
    skip_unreadable: bool,
) -> _Vocabulary:
    """A pass over the documents, for the words in them."""
    digests: list[str] = []

    def texts(shard: Shard) -> Iterator[str]:
        """Of a shard; up to where it breaks, where it will be left out."""
        content = content_hash()
        try:
            for document in shard.documents(**fields, content=content):
                yield document.text
            digests.append(content.hexdigest())
        except InputError:
            if not skip_unreadable:
                raise
            digests.append("")

    found = vocabulary_of(
        itertools.chain.from_iterable(map(texts, shards)),
        tokenizer=wanted.tokenizer,
        length=wanted.length,
        max_vocab=wanted.max_vocab,
    )
    if not found:
        raise InputError(f"no {wanted.tokenizer} in {len(shards)} shards; pass files with text")
    return wanted._replace(shards=digests, tokens=found)


def _read_vocabulary(path: Path) -> list[str]:
    """The tokens of what `jaxpe count` wrote, or just tokens: a JSON list, or one a line."""
    remedy = f"pass the {_VOCABULARY} of a count, a JSON list of strings, or one token a line"
    content = read_small(path, remedy=remedy)
    if path.suffix != ".json":
        return _lines(content, path, remedy)
    value = parse_json(content, place=path, remedy=remedy)
    if isinstance(value, list):
        return from_json(list[str], value, place=str(path))
    if isinstance(value, dict) and "seal" in value:
        return _made_vocabulary(path).tokens
    raise InputError(f"{path} is no vocabulary; {remedy}")


def _lines(content: bytes, path: Path, remedy: str) -> list[str]:
    try:
        # Not splitlines, which splits at characters that are tokens, such as U+2028.
        return [*filter(None, content.decode("utf-8-sig").replace("\r\n", "\n").split("\n"))]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no vocabulary ({error}); {remedy}") from error


def _edges(length: int, bins: int, spacing: Literal["equal", "log"]) -> tuple[int, ...]:
    if not 1 <= bins <= length <= INT32_MAX:
        raise InputError(
            f"`bins` is {in_short(bins)} and `length={in_short(length)}`; pass at least 1 bin, no "
            f"more than the length, and no length beyond {INT32_MAX:,}"
        )
    check_bytes(_EDGE_BYTES * bins, what=f"`bins={bins}`", remedy="pass fewer")
    return tuple(jaxpe.geometry.position_bins(length, bins=bins, spacing=spacing).tolist())

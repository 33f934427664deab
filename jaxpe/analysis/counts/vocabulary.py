"""Vocabularies of words and characters: read from a file, or made in a first pass."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder, write_file
from jaxpe._core.json_values import from_json, parse_json, read_json, read_small
from jaxpe._core.options import check_range
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.count_files import is_counted
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.data import Shard
from jaxpe.data.formats.files import decoded
from jaxpe.data.tokens.vocabulary import (
    DEFAULT_TOKENIZER,
    add_occurring,
    most_frequent,
    refuse_undivided,
)
from jaxpe.data.tokens.workers import count_words

VOCABULARY = "vocabulary.json"


class Vocabulary(NamedTuple):
    """Record of a count's vocabulary; without tokens before it is made.

    - `shards`: hashes of their content, empty if unreadable.
    """

    tokenizer: str
    length: int
    max_vocab: int | None
    text_field: str | None
    shards: list[str] = []  # noqa: RUF012
    tokens: list[str] = []  # noqa: RUF012


def corpus_vocabulary(
    shards: Sequence[Shard],
    out: Path,
    options: CountOptions,
    *,
    workers: int = 0,
    progress: Progress = SILENT,
) -> list[str]:
    """Vocabulary of the corpus, from an earlier count in the folder or from a first pass."""
    path, name = out / VOCABULARY, options.tokenizer or DEFAULT_TOKENIZER
    record = Vocabulary(name, options.length, options.max_vocab, options.text_field)
    if path.exists():
        saved = _saved_vocabulary(path)
        if record == saved._replace(shards=[], tokens=[]) and _matches_shards(saved, shards):
            return saved.tokens
    if is_counted(out):
        raise InputError(f"{out} holds other counts, of another vocabulary; pass another `out`")
    if jax.process_count() > 1:
        raise InputError(
            f"several processes need one vocabulary of {name}: make it beforehand, with a count by "
            f"one process or from a sample, and pass its {VOCABULARY} as `vocab`"
        )
    with locked_folder(out):
        progress.say(f"first pass, for the vocabulary of {name}")
        tokens, digests = _first_pass(shards, options, name, workers)
        record = record._replace(shards=digests, tokens=tokens)
        write_file(path, json.dumps(record._asdict(), indent=0) + "\n")
    progress.say(f"{len(tokens):,} {name}: {path}")
    return tokens


def read_vocabulary(path: Path) -> list[str]:
    """Vocabulary from a file: one from `jaxpe count`, a JSON list, or one token a line."""
    remedy = f"pass the {VOCABULARY} of a count, a JSON list of strings, or one token a line"
    content = read_small(path, remedy=remedy)
    if path.suffix != ".json":
        # Not splitlines, which splits at characters that are tokens, such as U+2028.
        return [*filter(None, decoded(content, str(path)).replace("\r\n", "\n").split("\n"))]
    value = parse_json(content, where=path, remedy=remedy)
    if isinstance(value, list):
        return from_json(list[str], value, where=str(path))
    if isinstance(value, dict) and "tokens" in value:
        return _saved_vocabulary(path).tokens
    raise InputError(f"{path} is no vocabulary; {remedy}")


def _saved_vocabulary(path: Path) -> Vocabulary:
    remedy = "delete it, and it is made anew"
    return from_json(Vocabulary, read_json(path, remedy=remedy), where=str(path))


def _matches_shards(saved: Vocabulary, shards: Sequence[Shard]) -> bool:
    """Whether the vocabulary was made from the content of these shards."""
    return len(saved.shards) == len(shards) and all(
        not digest or digest == shard.digest()
        for digest, shard in zip(saved.shards, shards, strict=True)
    )


def _first_pass(
    shards: Sequence[Shard], options: CountOptions, name: str, workers: int
) -> tuple[list[str], list[str]]:
    """Vocabulary of the documents, and the hash of each shard."""
    check_range("max_vocab", options.max_vocab, least=2)
    digests: list[str] = []

    def texts(shard: Shard) -> Iterator[str]:
        """Texts of a shard; if unreadable shards are left out, up to the damage."""
        try:
            for document in shard.documents(
                text_field=options.text_field,
                group_field=options.group_field,  # a wrong one is refused before the second pass
                skip_nulls=options.skip_nulls,
            ):
                yield str(document.text)
            digests.append(shard.digest())
        except InputError:
            if not options.skip_unreadable:
                raise
            digests.append("")

    documents = itertools.chain.from_iterable(map(texts, shards))
    counts: Counter[str] = Counter()
    if workers:
        counts = count_words(documents, processes=workers, tokenizer=name, length=options.length)
    else:
        add_occurring(counts, documents, tokenizer=name, length=options.length)
    if not counts:
        raise InputError(f"no {name} in {len(shards)} shards; pass files with text")
    if options.tokenizer is None:
        refuse_undivided(counts, ", ".join(shard.name for shard in shards[:3]))
    return most_frequent(counts, options.max_vocab), digests

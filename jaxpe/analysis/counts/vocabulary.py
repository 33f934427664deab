"""The vocabulary of words or characters that a count needs: given, made before, or made now."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder, write_file
from jaxpe._core.json_values import from_json, parse_json, read_json, read_small
from jaxpe._core.options import check_range
from jaxpe._core.progress import Progress
from jaxpe.analysis.counts.count_files import is_counted
from jaxpe.data import Shard
from jaxpe.data.formats.files import decoded
from jaxpe.data.tokens.vocabulary import add_occurring, most_frequent, refuse_undivided
from jaxpe.data.tokens.workers import occurring

VOCABULARY = "vocabulary.json"


class Vocabulary(NamedTuple):
    """Record of the vocabulary that a count made; without tokens, of the one it would make.

    - `shards`: hashes of their content, empty where one could not be read.
    """

    tokenizer: str
    length: int
    max_vocab: int | None
    text_field: str | None
    shards: list[str] = []  # noqa: RUF012
    tokens: list[str] = []  # noqa: RUF012


def own_vocabulary(
    shards: Sequence[Shard],
    out: Path,
    wanted: Vocabulary,
    *,
    group_field: str | None,
    skip_unreadable: bool,
    skip_nulls: bool,
    workers: int,
    progress: Progress,
    by_default: bool = False,
) -> list[str]:
    """The vocabulary that is in the folder already, or one that is made in a first pass.

    The column of the groups is not needed here, but a wrong one is told at once. Text without
    spaces is refused where the tokenizer was not asked for.
    """
    path = out / VOCABULARY
    if path.exists():
        made = _made_vocabulary(path)
        if wanted == made._replace(shards=[], tokens=[]) and _same_shards(made, shards):
            return made.tokens
    if is_counted(out):
        raise InputError(f"{out} holds other counts, of another vocabulary; pass another `out`")
    if jax.process_count() > 1:
        raise InputError(
            f"several processes need one vocabulary of {wanted.tokenizer}: make it beforehand, "
            f"with a count by one process or from a sample, and pass its {VOCABULARY} as `vocab`"
        )
    with locked_folder(out):
        progress.say(f"first pass, for the vocabulary of {wanted.tokenizer}")
        fields = {"text_field": wanted.text_field, "group_field": group_field}
        fields |= {"skip_nulls": skip_nulls}
        made = _make_vocabulary(shards, wanted, fields, skip_unreadable, workers, by_default)
        write_file(path, json.dumps(made._asdict(), indent=0) + "\n")
    progress.say(f"{len(made.tokens):,} {wanted.tokenizer}: {path}")
    return made.tokens


def read_vocabulary(path: Path) -> list[str]:
    """The tokens of what `jaxpe count` wrote, or just tokens: a JSON list, or one a line."""
    remedy = f"pass the {VOCABULARY} of a count, a JSON list of strings, or one token a line"
    content = read_small(path, remedy=remedy)
    if path.suffix != ".json":
        # Not splitlines, which splits at characters that are tokens, such as U+2028.
        return [*filter(None, decoded(content, str(path)).replace("\r\n", "\n").split("\n"))]
    value = parse_json(content, place=path, remedy=remedy)
    if isinstance(value, list):
        return from_json(list[str], value, place=str(path))
    if isinstance(value, dict) and "tokens" in value:
        return _made_vocabulary(path).tokens
    raise InputError(f"{path} is no vocabulary; {remedy}")


def _made_vocabulary(path: Path) -> Vocabulary:
    remedy = "delete it, and it is made anew"
    return from_json(Vocabulary, read_json(path, remedy=remedy), place=str(path))


def _same_shards(made: Vocabulary, shards: Sequence[Shard]) -> bool:
    """Whether the vocabulary is of the content of these shards."""
    known = [*zip(made.shards, shards, strict=False)]
    return len(made.shards) == len(shards) and all(
        not digest or digest == shard.digest() for digest, shard in known
    )


def _make_vocabulary(
    shards: Sequence[Shard],
    wanted: Vocabulary,
    fields: dict[str, Any],
    skip_unreadable: bool,
    workers: int,
    by_default: bool,
) -> Vocabulary:
    """A pass over the documents, for the words in them, in this process or in so many others."""
    digests: list[str] = []

    def texts(shard: Shard) -> Iterator[str]:
        """Texts of a shard; where unreadable shards are left out, up to the damage."""
        try:
            for document in shard.documents(**fields):
                yield str(document.text)
            digests.append(shard.digest())
        except InputError:
            if not skip_unreadable:
                raise
            digests.append("")

    documents = itertools.chain.from_iterable(map(texts, shards))
    options: dict[str, Any] = {"tokenizer": wanted.tokenizer, "length": wanted.length}
    check_range("max_vocab", wanted.max_vocab, least=2)
    counts: Counter[str] = Counter()
    if workers:
        counts = occurring(documents, processes=workers, **options)
    else:
        add_occurring(counts, documents, **options)
    if not counts:
        raise InputError(f"no {wanted.tokenizer} in {len(shards)} shards; pass files with text")
    if by_default:
        refuse_undivided(counts, ", ".join(shard.name for shard in shards[:3]))
    return wanted._replace(shards=digests, tokens=most_frequent(counts, wanted.max_vocab))

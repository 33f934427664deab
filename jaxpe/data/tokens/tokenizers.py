"""Tokenizers: words, characters, bytes, BERT's WordPiece, any `tokenizer.json` or .gguf."""

import itertools
import json
import os
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import Choice, check_range
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.results import short_repr
from jaxpe.data.corpora.corpus import Corpus, Source, TokenCorpus, group_labels
from jaxpe.data.tokens.pretrained import open_pretrained
from jaxpe.data.tokens.ragged import Ragged, joined, ragged
from jaxpe.data.tokens.vocabulary import (
    DEFAULT_TOKENIZER,
    LARGEST_VOCABULARY,
    Encode,
    all_that_occur,
    most_frequent_first,
    refuse_undivided,
    text_encoder,
    vocabulary_occurs,
)

_DEFAULT = Choice(
    "tokenizer",
    DEFAULT_TOKENIZER,
    "the default for text: words and punctuation marks in lower case",
    "pass characters, bytes, or the path of a vocab.txt or tokenizer.json as `tokenizer`",
)
DEFAULT_LENGTH = 128
_CELL = 2 * (4 + 1)  # bytes of an id and its mask, twice during construction
_AT_ONCE = 1000  # documents per call; pretrained tokenizers encode them on all cores


class Tokenizer(NamedTuple):
    """Tokenizer of texts, or of documents that are ids already.

    Attributes:
        name, exclude: fields `tokenizer` and `exclude` of `TokenCorpus`.
        rows: function from texts and a length (None: entire texts) to a `Ragged` of ids without
            special tokens. Ids beyond the length may be missing.
        tokens: text of each id; a growing vocabulary gets longer with each call.
        prefix, suffix: ids of special tokens before and after each document.
        checksum: hash of everything that determines the ids of a text; the name of a tokenizer with
            a growing vocabulary.
        choices: settings that differ from the file: dropout is switched off.
    """

    name: str
    rows: Encode
    tokens: Sequence[str]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()
    checksum: str = ""
    choices: tuple[Choice, ...] = ()

    @property
    def added(self) -> int:
        """Number of special tokens that each document gets."""
        return len(self.prefix) + len(self.suffix)

    def encode(
        self, texts: Any, *, length: int
    ) -> tuple[Int32[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]:
        """Ids and mask of texts, truncated and padded to `length`, special tokens included.

        Args:
            texts: list of texts; for `tokenizer_of_ids`, a list of arrays or a `Ragged`.
            length: number of positions.

        Raises:
            InputError: a text that the vocabulary cannot encode.

        >>> open_tokenizer("bytes").encode(["ab", "abcd"], length=3)[0]
        array([[97, 98,  0],
               [97, 98, 99]], dtype=int32)
        """
        return _padded_ids(self, self.rows(texts, length), length)

    __repr__ = short_repr


def tokenize(
    corpus: Corpus,
    *,
    tokenizer: Source | None = None,
    length: int | None = None,
    special: bool = False,
    progress: Progress = SILENT,
) -> TokenCorpus:
    """Tokenize documents, and truncate and pad them to one length.

    - `"words"`: words and single symbols in lower case. Marks, joiners and format characters do not
      divide them (UAX #29, WB4). Marks and joiners stay. Format characters, such as soft hyphens,
      directions and U+FEFF, are removed. U+200B separates words.
    - `"characters"`: code points. `"bytes"`: UTF-8, 256 ids.
    - `"kmer:3"`: overlapping substrings of 3 characters, or of 1 to 12. `"codons"`: every third of
      them, from the first character.
    - the path of a BERT `vocab.txt`: WordPiece as in bert-base-uncased, or as in the cased models
      if the vocabulary has capitals.
    - the path of a Hugging Face `tokenizer.json`, of a .gguf, or of a directory with such a file.

    For words, characters and k-mers, the vocabulary is every token that occurs after truncation,
    most frequent first.

    Args:
        corpus: documents of text.
        tokenizer: one of the above. Default: words, which raise for text that spaces do not divide,
            such as Chinese, Thai or strings of DNA.
        length: number of positions, at least 2; it may exceed the longest document. Default: the
            length that 5 % of the documents reach, at most 128.
        special: add the model's special tokens, [CLS] first and [SEP] last, also in a truncated
            document, and list them in `exclude`.
        progress: receiver of progress.

    Raises:
        InputError: an unknown tokenizer, an unusable tokenizer file, an invalid length, `special`
            for a tokenizer without special tokens, documents without tokens, or text without
            spaces if no tokenizer is passed.

    >>> tokenize(Corpus("two", ["To be, or not", "to be!"]), length=3).ids
    array([[1, 0, 3],
           [1, 0, 2]], dtype=int32)
    """
    name = os.fspath(tokenizer or DEFAULT_TOKENIZER)
    opened = open_tokenizer(name, special=special, progress=progress)
    check_length(length, special=opened.added)
    rows = _all_rows(opened, corpus.documents, progress)
    if not len(rows.values):
        raise InputError(f"{corpus.name} has no tokens; pass documents with text")
    tokens = padded_corpus(corpus.name, opened, rows, length)
    choices = [*corpus.choices, *opened.choices, *([_DEFAULT] if tokenizer is None else [])]
    choices += tokens.choices
    if vocabulary_occurs(name):
        ids, counts = most_frequent_first(tokens.ids, tokens.mask, tokens.tokens)
        if tokenizer is None:
            refuse_undivided(counts, corpus.name)
        choices.append(all_that_occur(name, len(counts), ids.shape[1]))
        tokens = tokens._replace(ids=ids, vocab_size=len(counts), tokens=list(counts))
    return tokens._replace(
        choices=tuple(choices),
        group_labels=group_labels(corpus.groups),
        null_texts=corpus.null_texts,
    )


def padded_corpus(name: str, opened: Tokenizer, rows: Ragged, length: int | None) -> TokenCorpus:
    """Corpus of encoded documents, truncated and padded to one length."""
    lengths, choices = opened.added + rows.lengths, ()
    if length is None:
        length, choice = _default_length(lengths, least=opened.added + 1)
        choices = (choice,)
    check_bytes(
        len(rows) * length * _CELL,
        what=f"length {length:,} of {len(rows):,} documents",
        remedy="pass a smaller `length`, or fewer documents",
    )
    ids, mask = _padded_ids(opened, rows, length)
    return TokenCorpus(
        name=name,
        tokenizer=opened.name,
        ids=ids,
        mask=mask,
        vocab_size=len(opened.tokens),
        exclude=opened.exclude,
        tokens=list(opened.tokens),
        longest=int(lengths.max()),
        choices=choices,
        cut=lengths > length,
    )


def open_tokenizer(
    tokenizer: Source = "words",
    *,
    special: bool = False,
    vocabulary: Sequence[str] | None = None,
    progress: Progress = SILENT,
) -> Tokenizer:
    """Open a tokenizer as in `tokenize`, to encode documents in several calls.

    Args:
        tokenizer, special: arguments of `tokenize`.
        vocabulary: text of each id, for words, characters and k-mers. If the last text is
            `"[UNK]"`, it replaces unknown tokens; otherwise a document with an unknown token
            raises. Default: a growing vocabulary, numbered by first occurrence; `tokens` of the
            result grows with each call.
        progress: receiver of progress; it shows a line if dropout is switched off.

    Raises:
        InputError: as in `tokenize`; a superfluous, empty or repetitive vocabulary.

    >>> words = open_tokenizer("words")
    >>> words.encode(["To be, or not to be"], length=4)[0]
    array([[0, 1, 2, 3]], dtype=int32)
    >>> words.encode(["not to"], length=2)[0], words.tokens
    (array([[4, 0]], dtype=int32), ['to', 'be', ',', 'or', 'not'])
    >>> words = open_tokenizer("words", vocabulary=["be", "to", "[UNK]"])
    >>> words.encode(["To be, or not to be"], length=4)[0]
    array([[1, 0, 2, 2]], dtype=int32)
    """
    name = os.fspath(tokenizer)
    grows = vocabulary_occurs(name)
    if special and (grows or name == "bytes"):
        raise InputError(f"the tokenizer {name!r} has no special tokens; leave `special` out")
    if vocabulary is not None and not grows:
        raise InputError(f"{name} has a fixed vocabulary; leave `vocabulary` out")
    if grows:
        checksum = name if vocabulary is None else _checksum([name, list(vocabulary)])
        return Tokenizer(name, *text_encoder(name, vocabulary), checksum=checksum)
    if name == "bytes":
        return Tokenizer("bytes", _bytes, [*map(_byte_text, range(256))], checksum="bytes")
    opened = _pretrained_tokenizer(tokenizer, special)
    for choice in opened.choices:
        progress.say(f"{choice.setting}: {choice.value}, although {choice.why}")
    return opened


def tokenizer_of_ids(
    tokenizer: Source = "ids", *, vocab_size: int | None = None, special: bool = False
) -> Tokenizer:
    """Tokenizer for documents that are token ids already: it checks them, and has their texts.

    Args:
        tokenizer: `vocab.txt`, `tokenizer.json` or `"bytes"` that made the ids; `"ids"` if it is
            unknown.
        vocab_size: number of ids, for `"ids"`.
        special: leave the tokenizer's special tokens, which the documents contain, out of the
            counts.

    Raises:
        InputError: as in `open_tokenizer`; a vocabulary size that is missing, superfluous or out of
            range; words and characters, whose ids depend on a corpus.

    >>> tokenizer_of_ids(vocab_size=3).encode([np.array([2, 1])], length=3)[0].tolist()
    [[2, 1, 0]]
    """
    name = os.fspath(tokenizer)
    if vocabulary_occurs(name):
        remedy = "pass the file that made them as `tokenizer`, or `tokenizer=ids` and `vocab_size`"
        raise InputError(f"{name} are made from text, and the documents are ids already; {remedy}")
    if name == "ids":
        if vocab_size is None:
            raise InputError("`tokenizer=ids` does not set the number of ids; pass `vocab_size`")
        check_range("vocab_size", vocab_size, least=1, most=LARGEST_VOCABULARY)
        tokens = [f"id {number}" for number in range(vocab_size)]
        return Tokenizer("ids", _unchanged, tokens, checksum=f"ids {vocab_size}")
    if vocab_size is not None:
        raise InputError(f"{name} has a fixed vocabulary; leave `vocab_size` out")
    opened = open_tokenizer(tokenizer, special=special)
    return opened._replace(rows=_unchanged, prefix=(), suffix=(), choices=())


def _unchanged(rows: Any, length: int | None) -> Ragged:
    """Documents that are ids already."""
    return ragged(rows)


def _pretrained_tokenizer(tokenizer: Source, special: bool) -> Tokenizer:
    opened = open_pretrained(tokenizer)
    prefix, suffix = opened.special_tokens() if special else ((), ())
    exclude = tuple(sorted({*prefix, *suffix, *opened.padding})) if special else ()

    def rows(texts: list[str], length: int | None) -> Ragged:
        return ragged([ids[:length] for ids in opened.encode(texts)])

    checksum = _checksum([opened.text, prefix, suffix, exclude])
    return Tokenizer(
        opened.name, rows, opened.tokens, prefix, suffix, exclude, checksum, opened.choices
    )


def _checksum(values: list[Any]) -> str:
    return f"{zlib.crc32(json.dumps(values).encode()):08x}"


def _bytes(texts: list[str], length: int | None) -> Ragged:
    # Cut first: each character has at least one byte.
    encoded = [text[:length].encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return Ragged(np.frombuffer(b"".join(encoded), np.uint8), lengths)


def _byte_text(byte: int) -> str:
    return chr(byte) if 0x20 < byte < 0x7F else f"0x{byte:02x}"


def check_length(length: int | None, *, special: int = 0) -> None:
    """Raise `InputError` for a length below 2, or without room for text and special tokens."""
    check_range("length", length, least=max(2, special + 1))


def _all_rows(opened: Tokenizer, documents: list[str], progress: Progress) -> Ragged:
    description = f"Tokenizing into {opened.name}"
    texts = iter(progress.track(documents, description, total=len(documents)))
    parts = []
    while batch := [*itertools.islice(texts, _AT_ONCE)]:
        parts.append(opened.rows(batch, None))
    return joined(parts)


def _default_length(lengths: Int[np.ndarray, " documents"], *, least: int) -> tuple[int, Choice]:
    """Length that 5 % of the documents reach, within limits, and the reason for it."""
    reached = int(np.sort(lengths)[::-1][int(np.ceil(0.05 * len(lengths))) - 1])
    length = min(max(2, least, reached), max(least, DEFAULT_LENGTH))
    if reached > length:
        longer = int(np.sum(lengths > length))
        why = f"the largest default; {longer:,} of {len(lengths):,} documents are longer"
    elif reached < length:
        why = "the smallest length; fewer than 5 % of the documents are as long"
    else:
        part = "all" if int(lengths.min()) == int(lengths.max()) else "5 % of the"
        why = f"{part} documents are as long or longer, the longest {int(lengths.max()):,}"
    return length, Choice("length", f"{length}", why, "pass a number of positions as `length`")


def _padded_ids(
    opened: Tokenizer, rows: Ragged, length: int
) -> tuple[Int32[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]:
    """Ids and mask `[documents, length]` of rows, checked, with special tokens added."""
    ids, mask = rows.padded(length - opened.added)
    size, lowest, highest = len(opened.tokens), ids.min(initial=0), ids.max(initial=0)
    if mask.any() and (lowest < 0 or highest >= size):  # a growing vocabulary starts empty
        fault = f"id {lowest if lowest < 0 else highest}, and {opened.name} has {size:,}"
        raise InputError(f"a document has {fault}; pass its tokenizer, or a larger `vocab_size`")
    ids = ids.astype(np.int32, copy=False)
    if not opened.added:
        return ids, mask
    first, last = len(opened.prefix), len(opened.suffix)
    ends = first + mask.sum(axis=1, keepdims=True)
    ids = np.pad(ids, ((0, 0), (first, last)))
    ids[:, :first] = opened.prefix
    np.put_along_axis(ids, ends + np.arange(last), np.array(opened.suffix, np.int32), axis=1)
    return ids, np.arange(length) < ends + last

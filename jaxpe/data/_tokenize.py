"""Tokenizers: words, characters, bytes, BERT's WordPiece, any `tokenizer.json`."""

import contextlib
import functools
import itertools
import json
import os
import re
import sys
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32

from jaxpe._core.errors import InputError, require
from jaxpe._core.json_values import read_small
from jaxpe.data._files import decoded, is_text, quoted
from jaxpe.data._ids import DEFAULT_LENGTH, LARGEST_VOCABULARY, check_length, check_table
from jaxpe.data._types import Corpus, Progress, Source, TokenCorpus, no_progress

_PADDING = ("[PAD]", "<pad>")
_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CHUNK = 1000
_LARGEST_FILE = 2**27  # bytes; those of large models have a quarter of it
_SHOWN = 300  # characters of what the library says of an error
_STANDARD_ERROR = 2
_LONG = 2**20  # characters of a document whose words are not all listed at once
UNKNOWN = "[UNK]"


class Tokenizer(NamedTuple):
    """A tokenizer of a fixed vocabulary, so that documents can be read in any order and number.

    - `name`: as in `TokenCorpus.tokenizer`.
    - `encode`: texts and a length to ids without special tokens, one sequence for each; what is
      beyond the length may be missing.
    - `tokens`: the text of each id.
    - `prefix`, `suffix`: ids of special tokens before and after each document.
    - `exclude`: ids that are never counted.
    - `checksum`: of all that decides which ids a text becomes.
    """

    name: str
    encode: Callable[[list[str], int], list[Any]]
    tokens: list[str]
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    exclude: tuple[int, ...]
    checksum: str

    def padded(
        self, texts: list[str], *, length: int
    ) -> tuple[Int32[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]:
        """Ids and mask `[documents, length]` of texts, truncated and padded."""
        ids, mask = _padded(self.encode(texts, length), self.prefix, self.suffix, length)
        _check_ids(ids, len(self.tokens), self.name)
        return ids, mask


class _Encoded(NamedTuple):
    """Documents of any length as ids, before truncation and padding."""

    tokenizer: str
    rows: list[Any]  # integers, one sequence for each document
    text: Callable[[int], str]  # of an id
    vocab_size: int | None  # None: the vocabulary is what occurs
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()


def tokenize(
    corpus: Corpus,
    *,
    tokenizer: Source = "words",
    length: int | None = None,
    special: bool = False,
    progress: Progress | None = None,
) -> TokenCorpus:
    """Turn documents into token ids, truncated and padded to one length.

    - `"words"`: lower case; words and single punctuation marks.
    - `"characters"`: code points. `"bytes"`: UTF-8, 256 ids.
    - the path of a BERT `vocab.txt`: WordPiece as bert-base-uncased does it (as the cased models
      do when the vocabulary has capitals).
    - the path of a Hugging Face `tokenizer.json`, or of a directory with either file.

    For words and characters the vocabulary is what occurs after truncation, most frequent first.

    Args:
        corpus: the documents.
        tokenizer: one of the above.
        length: positions to keep, at least 2; it may exceed the longest document. Default: what at
            least 5 % of the documents reach, at most 128.
        special: add the model's special tokens ([CLS] in front, [SEP] at the end, also of a
            truncated document) and list them in `exclude`.
        progress: wraps an iterable to show progress, `(iterable, description, total) -> iterable`.

    Raises:
        InputError: unknown tokenizer, unusable tokenizer file, bad length, `special` where there
            are no special tokens, or documents without a single token.

    >>> tokenize(Corpus("two", ["To be, or not", "to be!"]), length=3).ids
    array([[1, 0, 3],
           [1, 0, 2]], dtype=int32)
    """
    check_length(length)
    encoded = _encode(corpus.documents, tokenizer, special, progress or no_progress)
    lengths = _lengths(encoded)
    longest = int(lengths.max(initial=0))
    added = len(encoded.prefix) + len(encoded.suffix)
    if longest <= added:
        raise InputError(f"{corpus.name} has no tokens; pass documents with text")
    check_length(length, special=added)
    length = max(added + 1, _default_length(lengths)) if length is None else length
    check_table(len(encoded.rows), length)
    ids, mask = _padded(encoded.rows, encoded.prefix, encoded.suffix, length)
    ids, tokens = _vocabulary(encoded, ids, mask)
    return TokenCorpus(
        name=corpus.name,
        tokenizer=encoded.tokenizer,
        ids=ids,
        mask=mask,
        vocab_size=len(tokens),
        exclude=encoded.exclude,
        tokens=tokens,
        longest=longest,
    )


def open_tokenizer(
    tokenizer: Source = "words",
    *,
    special: bool = False,
    vocabulary: Sequence[str] | None = None,
) -> Tokenizer:
    """A tokenizer as in `tokenize`, but of a vocabulary that is fixed beforehand.

    Args:
        tokenizer, special: as in `tokenize`.
        vocabulary: of words and characters, which have none of their own: the text of each id. With
            `"[UNK]"` as the last, that stands for what the others do not have; without it such a
            document is an error. `vocabulary_of` makes one from documents.

    Raises:
        InputError: as `tokenize`; a vocabulary too many or missing, or with repeats.

    >>> words = open_tokenizer("words", vocabulary=["be", "to", "[UNK]"])
    >>> words.padded(["To be, or not to be"], length=4)[0]
    array([[1, 0, 2, 2]], dtype=int32)
    """
    if vocabulary_occurs(os.fspath(tokenizer)):
        _refuse_special(tokenizer, special)
        return _of_vocabulary(os.fspath(tokenizer), vocabulary)
    if vocabulary is not None:
        raise InputError(f"{tokenizer} has a vocabulary of its own; leave vocabulary out")
    if os.fspath(tokenizer) == "bytes":
        _refuse_special(tokenizer, special)
        tokens = [_byte_text(byte) for byte in range(256)]
        return Tokenizer("bytes", _encode_bytes, tokens, (), (), (), "bytes")
    return _opened_file(_pretrained_file(tokenizer), special)


def vocabulary_of(
    documents: Iterable[str],
    *,
    tokenizer: Source = "words",
    length: int | None = None,
    max_vocab: int | None = None,
) -> list[str]:
    """The words or characters of documents, most frequent first: a vocabulary for a stream.

    Memory grows with the words that differ, not with the documents.

    Args:
        documents: texts.
        tokenizer: `"words"` or `"characters"`.
        length: positions of each document that are looked at; all when absent.
        max_vocab: the largest vocabulary; rarer ones become `"[UNK]"`, its last.

    >>> vocabulary_of(["to be", "or not to be"], max_vocab=3)
    ['be', 'to', '[UNK]']
    """
    if not vocabulary_occurs(os.fspath(tokenizer)):
        raise InputError(f"{tokenizer} has a vocabulary of its own; use it as it is")
    if max_vocab is not None and max_vocab < 2:
        raise InputError(f"max_vocab is {max_vocab}; pass at least 2, one word and {UNKNOWN}")
    split = _splitter(os.fspath(tokenizer))
    counts: Counter[str] = Counter()
    for text in documents:
        counts.update(split(text, length))
    order = sorted(counts, key=lambda token: (-counts[token], token))
    if max_vocab is None or len(order) <= max_vocab:
        return order
    return [*order[: max_vocab - 1], UNKNOWN]


def vocabulary_occurs(tokenizer: str) -> bool:
    """Whether a tokenizer makes its vocabulary from the corpus, so that it can be cut."""
    return tokenizer in ("words", "characters")


def _of_vocabulary(name: str, vocabulary: Sequence[str] | None) -> Tokenizer:
    if vocabulary is None:
        raise InputError(
            f"{name} have no vocabulary of their own; pass one, a list of tokens or its file"
        )
    numbers = {token: number for number, token in enumerate(vocabulary)}
    if len(numbers) < len(vocabulary) or not numbers:
        raise InputError("the vocabulary is empty or has a token twice; give each one line")
    for token in numbers:
        if not is_text(token):
            raise InputError(
                f"the vocabulary has {quoted(token)}, half of a surrogate pair, which is no "
                "character; leave it out"
            )
    unknown = len(numbers) - 1 if vocabulary[-1] == UNKNOWN else None
    split = _splitter(name)

    def ids_of(text: str, length: int) -> Int32[np.ndarray, " tokens"]:
        # A vocabulary may be of what stands inside of the length alone.
        tokens = split(text, length)
        try:
            found = [numbers.get(token, unknown) for token in tokens]
            return np.array(found, np.int32)
        except TypeError as error:
            missing = next(token for token in tokens if token not in numbers)
            raise InputError(
                f"{quoted(missing)} is not in the vocabulary; make the vocabulary from these "
                f"documents too, or end it with {UNKNOWN}"
            ) from error

    tokens = list(vocabulary)
    checksum = f"{zlib.crc32(json.dumps([name, tokens]).encode()):08x}"

    def encode(texts: list[str], length: int) -> list[Any]:
        return [ids_of(text, length) for text in texts]

    return Tokenizer(name, encode, tokens, (), (), (), checksum)


def _splitter(name: str) -> Callable[[str, int | None], list[str]]:
    """Text to its first tokens, as text; to all of them where no length is given."""
    if name == "characters":
        return lambda text, length: list(text[:length])
    return lambda text, length: list(itertools.islice(_words_of(text), length))


def _words_of(text: str) -> Iterable[str]:
    pattern = _word_pattern()
    if len(text) <= _LONG:
        return pattern.findall(text.lower())
    return (found[0] for found in pattern.finditer(text.lower()))


def _opened_file(path: Path, special: bool) -> Tokenizer:
    opened = _opened_model(path)
    prefix, suffix = _special_tokens(opened, list("a1."), path) if special else ((), ())
    exclude = tuple(sorted({*prefix, *suffix, *opened.padding})) if special else ()
    own = json.dumps([opened.text, prefix, suffix, exclude])
    return Tokenizer(
        name=_name_of(path),
        encode=lambda texts, length: _ids_of(opened.model, texts, path),
        tokens=[opened.token(i) for i in range(opened.size)],
        prefix=prefix,
        suffix=suffix,
        exclude=exclude,
        checksum=f"{zlib.crc32(own.encode()):08x}",
    )


def _encode(documents: list[str], tokenizer: Source, special: bool, progress: Progress) -> _Encoded:
    encode = _BUILT_IN.get(os.fspath(tokenizer))
    if encode is None:
        return _pretrained(documents, _pretrained_file(tokenizer), special, progress)
    _refuse_special(tokenizer, special)
    return encode(progress(documents, f"Tokenizing into {tokenizer}", len(documents)))


def _refuse_special(tokenizer: Source, special: bool) -> None:
    if special:
        raise InputError(
            f"the tokenizer {tokenizer!r} has no special tokens; leave special out, "
            "or pass a vocab.txt or tokenizer.json"
        )


def _words(documents: Any) -> _Encoded:
    numbers = defaultdict(itertools.count().__next__)
    rows = [np.fromiter(map(numbers.__getitem__, _words_of(t)), np.int32) for t in documents]
    return _Encoded("words", rows, list(numbers).__getitem__, None)


@functools.cache
def _word_pattern() -> re.Pattern[str]:
    # Python's \w leaves out combining marks, so that it would cut words of Hindi or Arabic apart.
    # The look ahead spares ASCII the search through them, which takes four times as long.
    points = map(chr, range(sys.maxunicode + 1))
    marks = "".join(point for point in points if unicodedata.category(point)[0] == "M")
    return re.compile(rf"\w+(?:(?![\x00-\x7f])[{marks}]+\w*)*|[^\w\s]")


def _characters(documents: Any) -> _Encoded:
    rows = [np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<i4") for text in documents]
    return _Encoded("characters", rows, chr, None)


def _bytes(documents: Any) -> _Encoded:
    rows = [np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8) for text in documents]
    return _Encoded("bytes", rows, _byte_text, 256)


def _encode_bytes(texts: list[str], length: int) -> list[Any]:
    return _bytes(texts).rows


def _byte_text(byte: int) -> str:
    return chr(byte) if 0x20 < byte < 0x7F else f"0x{byte:02x}"


_BUILT_IN = {"words": _words, "characters": _characters, "bytes": _bytes}


def _pretrained_file(tokenizer: Source) -> Path:
    path = Path(tokenizer)
    if path.is_dir():
        for name in ("tokenizer.json", "vocab.txt"):
            if (path / name).is_file():
                return path / name
        raise InputError(f"{path} holds neither tokenizer.json nor vocab.txt")
    if not path.exists():
        raise InputError(
            f"unknown tokenizer {os.fspath(tokenizer)!r}: no such file; pass "
            f"{', '.join(_BUILT_IN)}, or the path of a vocab.txt or tokenizer.json"
        )
    return path


def _pretrained(documents: list[str], path: Path, special: bool, progress: Progress) -> _Encoded:
    opened = _opened_model(path)
    prefix, suffix = _special_tokens(opened, documents, path) if special else ((), ())
    # The chunks are for the bar; within one, the library runs on every core.
    starts = range(0, len(documents), _CHUNK)
    chunks = (
        _ids_of(opened.model, documents[start : start + _CHUNK], path)
        for start in progress(starts, "Tokenizing", len(starts))
    )
    return _Encoded(
        tokenizer=_name_of(path),
        rows=[*itertools.chain.from_iterable(chunks)],
        text=opened.token,
        vocab_size=opened.size,
        prefix=prefix,
        suffix=suffix,
        exclude=tuple(sorted({*prefix, *suffix, *opened.padding})) if special else (),
    )


def _name_of(path: Path) -> str:
    return "tokenizer.json" if path.suffix == ".json" else "wordpiece"


class _Opened(NamedTuple):
    """The model of a file, which neither pads nor truncates."""

    model: Any
    text: str  # of the file
    size: int  # every id is below it
    padding: set[int]  # ids that would pad

    def token(self, number: int) -> str:
        """The text of an id."""
        return self.model.id_to_token(number) or f"id {number}"


def _opened_model(path: Path) -> _Opened:
    tokenizers = require("tokenizers", extra="data")
    remedy = "pass a vocab.txt or tokenizer.json"
    text = decoded(read_small(path, remedy=remedy, largest=_LARGEST_FILE), str(path))
    is_json = path.suffix == ".json"
    what = f"{path} is not a {'tokenizer.json' if is_json else 'vocab.txt'}"
    with _errors_of(what), _silent_panics():
        made = tokenizers.Tokenizer.from_str if is_json else functools.partial(_wordpiece, path)
        model = made(text)
        padding = _padding_ids(model, model.padding)
        model.no_padding()
        model.no_truncation()
        size = 1 + max(model.get_vocab(with_added_tokens=True).values(), default=-1)
    if not 0 < size <= LARGEST_VOCABULARY:
        raise InputError(
            f"{path} has ids up to {size - 1:,}; pass a tokenizer of 1 to {LARGEST_VOCABULARY:,}"
        )
    return _Opened(model, text, size, padding & {*range(size)})


@contextlib.contextmanager
def _errors_of(what: str, remedy: str = "pass a Hugging Face tokenizer") -> Iterator[None]:
    """The library raises bare Exceptions, and panics of Rust that are none, as an `InputError`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, InputError) or not (
            isinstance(error, Exception) or type(error).__name__ == "PanicException"
        ):
            raise
        reason = " ".join(str(error).split())[:_SHOWN]
        raise InputError(f"{what}: {reason}; {remedy}") from error


@contextlib.contextmanager
def _silent_panics() -> Iterator[None]:
    """Keep what Rust prints of a panic from standard error; the error says it in one line."""
    try:
        saved = os.dup(_STANDARD_ERROR)
    except OSError:  # closed
        yield
        return
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(saved, _STANDARD_ERROR)
            os.close(saved)


def _ids_of(model: Any, texts: list[str], path: Path) -> list[list[int]]:
    """Texts as ids, without special tokens."""
    remedy = "pass a tokenizer with an unknown token"
    with _errors_of(f"{path} cannot encode a text", remedy):
        return [row.ids for row in model.encode_batch_fast(texts, add_special_tokens=False)]


def _wordpiece(path: Path, text: str) -> Any:
    tokenizers = require("tokenizers", extra="data")
    if (lines := text.count("\n")) > LARGEST_VOCABULARY:
        raise InputError(
            f"{path} has {lines:,} lines; pass a vocabulary of at most {LARGEST_VOCABULARY:,}"
        )
    # Not splitlines, which splits at characters that are pieces, such as U+2028.
    pieces = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    ids = {piece: i for i, piece in enumerate(pieces)}
    if "[UNK]" not in ids:
        raise InputError(f"{path} has no line [UNK]; pass the vocab.txt of a BERT model")
    special = [token for token in _BERT_SPECIAL if token in ids]
    # An uncased vocabulary has no capitals outside its special tokens.
    uncased = all(piece == piece.lower() for piece in ids.keys() - special)
    model = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    model.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=uncased)
    model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    model.add_special_tokens(special)
    if "[CLS]" in ids and "[SEP]" in ids:
        model.post_processor = tokenizers.processors.BertProcessing(
            ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
        )
    return model


def _special_tokens(
    opened: _Opened, documents: list[str], path: Path
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that the model's own post-processor puts before and after a document."""
    if not opened.model.num_special_tokens_to_add(False):
        raise InputError(
            f"{path} adds no special tokens to a document; leave special out, "
            "or pass a tokenizer with [CLS] and [SEP]"
        )
    with _errors_of(f"{path} cannot add its special tokens"), _silent_panics():
        for encoding in map(opened.model.encode, documents):
            inside = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
            if inside.size:
                _check_ids(encoding.ids, opened.size, str(path))
                return tuple(encoding.ids[: inside[0]]), tuple(encoding.ids[inside[-1] + 1 :])
    return (), ()


def _check_ids(ids: Any, size: int, name: str) -> None:
    largest = int(np.max(ids, initial=0))
    if largest >= size:
        raise InputError(
            f"{name} gives id {largest}, and its vocabulary has {size}; pass a whole tokenizer"
        )


def _padding_ids(model: Any, padding: dict[str, Any] | None) -> set[int]:
    if padding:
        return {padding["pad_id"]}
    return {i for token in _PADDING if (i := model.token_to_id(token)) is not None}


def _lengths(encoded: _Encoded) -> Int[np.ndarray, " documents"]:
    added = len(encoded.prefix) + len(encoded.suffix)
    return np.array([added + len(row) for row in encoded.rows], np.int64)


def _default_length(lengths: Int[np.ndarray, " documents"]) -> int:
    reached = np.sort(lengths)[::-1][int(np.ceil(0.05 * len(lengths))) - 1]
    return int(np.clip(reached, 2, DEFAULT_LENGTH))


def _padded(
    rows: Sequence[Any], prefix: tuple[int, ...], suffix: tuple[int, ...], length: int
) -> tuple[Int32[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]:
    first, last = len(prefix), len(suffix)
    rows = [row[: length - first - last] for row in rows]
    ends = first + np.fromiter(map(len, rows), np.int64, len(rows))
    columns = np.arange(length)
    ids = np.zeros((len(rows), length), np.int32)
    ids[:, :first] = prefix
    ids[(columns >= first) & (columns < ends[:, None])] = _joined(rows)
    for offset, token in enumerate(suffix):
        ids[np.arange(len(rows)), ends + offset] = token
    return ids, columns < ends[:, None] + last


def _joined(rows: Sequence[Any]) -> Int32[np.ndarray, " tokens"]:
    """Sequences of ids end to end; an array for each list would cost more than the ids in it."""
    if all(isinstance(row, np.ndarray) for row in rows):
        return np.concatenate(rows).astype(np.int32)
    return np.fromiter(itertools.chain.from_iterable(rows), np.int32)


def _vocabulary(
    encoded: _Encoded,
    ids: Int32[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"],
) -> tuple[Int32[np.ndarray, "documents n"], list[str]]:
    """Number what occurs by descending frequency, then text; leave a fixed vocabulary alone."""
    if encoded.vocab_size is not None:
        _check_ids(ids, encoded.vocab_size, encoded.tokenizer)
        return ids, [encoded.text(i) for i in range(encoded.vocab_size)]
    counts = np.bincount(ids[mask])
    texts = {int(i): encoded.text(int(i)) for i in np.flatnonzero(counts)}
    order = sorted(texts, key=lambda i: (-counts[i], texts[i]))
    numbers = np.zeros(len(counts), np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return np.where(mask, numbers[ids], 0).astype(np.int32), [texts[i] for i in order]

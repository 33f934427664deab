"""Corpora as TFDS datasets, for reuse by any reader of ArrayRecord.

TFDS writes them, but does not read them here: it imports the modules that a dataset names, and
follows its templates of file names. All that is read is `metadata.json`, of a schema of our own,
and the records of the files whose names we give.
"""

import contextlib
import functools
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, SupportsIndex

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import Content, content_hash
from jaxpe._core.json_values import from_json, read_json, seal
from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.corpora.corpus import Corpus, Source, TokenCorpus
from jaxpe.data.formats.array_records import Records
from jaxpe.data.formats.files import check_text, is_text, name_of, readable
from jaxpe.data.formats.rows import held
from jaxpe.data.formats.saved_datasets import is_saved

_INFO, _METADATA = "dataset_info.json", "metadata.json"  # as TFDS names them
_SHARD = "jaxpe_corpus-train.array_record-{:05d}-of-{:05d}"
_ANY_SHARD = re.compile(r"jaxpe_corpus-train\.array_record-\d{5}-of-\d{5}")
_AGAIN = "export the corpus again"
_LARGEST_METADATA = 2**27  # bytes; ten million tokens have less
Row = dict[str, Any]


class _TextAbout(NamedTuple):
    """Content of `metadata.json` for a corpus of text."""

    kind: Literal["text"]
    name: str
    documents: int  # rows
    digest: str  # a hash of the rows, in order
    checksum: str  # a hash of the other fields


class _TokensAbout(NamedTuple):
    """Content of `metadata.json` for a corpus of tokens."""

    kind: Literal["tokens"]
    name: str
    tokenizer: str
    vocab_size: int
    exclude: tuple[int, ...]
    tokens: list[str]
    longest: int
    length: int  # of a row
    documents: int
    digest: str
    checksum: str


def export_corpus(corpus: Corpus | TokenCorpus, directory: Source) -> Path:
    """Write a corpus as a TFDS dataset (ArrayRecord, documents in order), without TensorFlow.

    A row holds `text`, or `ids` and `mask`. Read it back with `open_corpus`, with `load_corpus` or
    `load_tokens`, or with `tfds.builder_from_directory`.

    Args:
        corpus: text or tokens.
        directory: folder for the dataset; it must not exist, or be empty. It is returned.

    Raises:
        InputError: the directory is in use or cannot be written, the corpus has no documents, or
            one holds half of a surrogate pair.
        MissingExtraError: TFDS is not installed.

    >>> import tempfile
    >>> folder = export_corpus(Corpus("two", ["to be", "or not"]), tempfile.mkdtemp())
    >>> open_corpus(folder)[1]
    {'text': b'or not'}
    """
    target = Path(directory)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target} is in use; pass a new or an empty directory")
    for module in ("tensorflow_datasets", "importlib_resources"):  # TFDS does not declare it
        require(module, extra="data")
    metadata = _metadata(corpus)
    from jaxpe.data.tfds_corpus import JaxpeCorpus

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            builder = JaxpeCorpus(
                corpus=corpus,
                rows=rows_of(corpus),
                metadata=metadata,
                data_dir=work,
                file_format="array_record",
            )
            with _silence():
                builder.download_and_prepare()
            os.replace(builder.data_path, target)
    except (OSError, RuntimeError) as error:  # the latter from the writer of records
        raise InputError(
            f"{target} cannot be written: {error}; pass a directory with room and permission"
        ) from error
    return target


def open_corpus(directory: Source) -> Any:
    """Open an exported corpus for random access: a sequence of rows that Grain reads as it is.

    It has `len(source)`, and `source[i]` is a dictionary with `text` (bytes), or with `ids` int32
    `[length]` and `mask` bool `[length]`; `source.__getitems__` gives several. Rows are checked
    each by itself; `load_corpus` and `load_tokens` also hold all of them against the digest of what
    was exported.

    Raises:
        InputError: the directory holds no exported corpus, or a damaged one; a damaged row is
            noticed when it is read.

    >>> import grain, tempfile
    >>> folder = export_corpus(Corpus("two", ["to be", "or not"]), tempfile.mkdtemp())
    >>> rows = grain.MapDataset.source(open_corpus(folder))
    >>> [text for text in rows.map(lambda row: row["text"].decode())]
    ['to be', 'or not']
    """
    return _Rows(os.fspath(directory))


def is_exported(directory: str) -> bool:
    """Whether the directory looks like a TFDS dataset."""
    return (Path(directory) / _INFO).is_file() and not is_saved(directory)


def kind(directory: str) -> str:
    """`"text"` or `"tokens"`."""
    return _about(directory).kind


def read_text(directory: str, *, progress: Progress) -> Corpus:
    """An exported corpus of text."""
    rows = _Rows(directory)
    texts = (row["text"].decode() for row in rows.in_order(progress))
    return Corpus(rows.about.name, held(texts, sys.getsizeof, what=directory))


def read_tokens(directory: str, *, progress: Progress) -> TokenCorpus:
    """An exported corpus of tokens."""
    rows = _Rows(directory)
    about = rows.about
    shape = about.documents, about.length
    cell = np.dtype(np.int32).itemsize + np.dtype(np.bool_).itemsize
    check_bytes(cell * shape[0] * shape[1], what=directory, remedy="export fewer documents")
    ids, mask = np.zeros(shape, np.int32), np.zeros(shape, bool)
    for number, row in enumerate(rows.in_order(progress)):
        ids[number], mask[number] = row["ids"], row["mask"]
    fields = {name: getattr(about, name) for name in TokenCorpus._fields if hasattr(about, name)}
    return TokenCorpus(ids=ids, mask=mask, **fields)


def iter_texts(directory: str) -> Iterator[str]:
    """The documents of an exported corpus of text, one by one."""
    return (row["text"].decode() for row in _Rows(directory).in_order(SILENT))


def record_files(directory: str) -> list[str]:
    """The files with the records of an exported corpus, in order; `InputError` where some lack."""
    with readable(directory, OSError):
        entries = [entry for entry in os.scandir(directory) if _ANY_SHARD.fullmatch(entry.name)]
        modes = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries}
    names = [_SHARD.format(number, len(modes)) for number in range(len(modes))]
    if not names or sorted(modes) != names:
        raise InputError(
            f"{directory} lacks some of its files {_SHARD.format(0, 1)[:-14]}...; {_AGAIN}"
        )
    for name in names:
        if not stat.S_ISREG(modes[name]):
            raise InputError(f"{directory}/{name} is a link or no file; {_AGAIN}, or copy it there")
    return [str(Path(directory) / name) for name in names]


class _Rows:
    """The rows of an exported corpus by number; it can be pickled, for the processes of Grain."""

    def __init__(self, directory: str):
        _example()  # so that what is not installed is told before the first row
        self._directory = directory
        self.about = _about(directory)
        self._records = Records(record_files(directory))
        if len(self._records) != self.about.documents:
            raise InputError(
                f"{directory} has {len(self._records):,} documents, and {_METADATA} says "
                f"{self.about.documents:,}; {_AGAIN}"
            )

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: SupportsIndex) -> Row:
        return self._row(self._records[index])

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Row]:
        return [self._row(record) for record in self._records.__getitems__(indices)]

    def __iter__(self) -> Iterator[Row]:
        return map(self._row, self._records)

    def __repr__(self) -> str:
        return f"open_corpus({self._directory!r})"

    def in_order(self, progress: Progress) -> Iterator[Row]:
        """All rows; at their end they must be those that were written."""
        content = content_hash()
        description = f"Reading {name_of(self._directory)}"
        for row in progress.track(self, description, total=len(self)):
            _hash_row(row, content)
            yield row
        if content.hexdigest() != self.about.digest:
            raise InputError(
                f"{self._directory}: its documents are not those of {_METADATA}; {_AGAIN}"
            )

    def _row(self, record: bytes) -> Row:
        try:
            features = _example().FromString(record).features.feature
            if self.about.kind == "tokens":
                return _tokens_row(features, self.about)
            (text,) = _values(features, ["text"])[0].bytes_list.value
            text.decode()
            return {"text": text}
        # What protocol buffers raise of a damaged record is of their own kind.
        except Exception as error:
            raise InputError(
                f"{self._directory} holds a damaged document: {error}; {_AGAIN}"
            ) from error


def _tokens_row(features: Any, about: _TokensAbout) -> Row:
    ids, mask = (
        np.array(values.int64_list.value, np.int64) for values in _values(features, ["ids", "mask"])
    )
    for array, below in ((ids, about.vocab_size), (mask, 2)):
        if array.shape != (about.length,) or not ((array >= 0) & (array < below)).all():
            raise ValueError(f"it is not {about.length} numbers below {below}")
    return {"ids": ids.astype(np.int32), "mask": mask.astype(bool)}


def _values(features: Any, names: list[str]) -> list[Any]:
    if sorted(features) != names:
        raise ValueError(f"it has not the fields {', '.join(names)}")
    return [features[name] for name in names]


@functools.cache
def _example() -> Any:
    """The protocol buffer that a record is."""
    return require("tensorflow_datasets.proto", extra="data").tf_example_pb2.Example


def _hash_row(row: Row, content: Content) -> None:
    for name in sorted(row):
        value = row[name]
        data = value if isinstance(value, bytes) else value.tobytes()
        content.update(len(data).to_bytes(8, "little"))
        content.update(data)


def rows_of(corpus: Corpus | TokenCorpus) -> Iterable[Row]:
    """The rows that a corpus is exported as."""
    if isinstance(corpus, Corpus):
        return ({"text": text.encode()} for text in corpus.documents)
    pairs = zip(corpus.ids.astype("<i4"), corpus.mask, strict=True)
    return ({"ids": ids, "mask": mask} for ids, mask in pairs)


def _metadata(corpus: Corpus | TokenCorpus) -> dict[str, Any]:
    """Content of `metadata.json`, to be written."""
    content, documents = content_hash(), 0
    try:
        for row in rows_of(corpus):
            _hash_row(row, content)
            documents += 1
    except UnicodeEncodeError as error:
        raise InputError(
            f"document {documents} of {corpus.name} holds half of a surrogate pair, which is no "
            "character; leave it out"
        ) from error
    if not documents:
        raise InputError(f"{corpus.name} has no documents; pass at least one")
    fields: dict[str, Any] = {"kind": "text", "name": corpus.name}
    if isinstance(corpus, TokenCorpus):
        own = {name: getattr(corpus, name) for name in TokenCorpus._fields}
        for name in ("ids", "mask", "null_texts", "choices", "group_labels"):  # of the reading
            del own[name]
        fields |= {"kind": "tokens", **own, "length": corpus.ids.shape[1]}
    names = "".join([corpus.name, *fields.get("tokens", ())])
    check_text(names, what="the name or a token of the corpus", remedy="replace it")
    fields |= {"documents": documents, "digest": content.hexdigest()}
    return fields | {"checksum": seal(fields)}


def _about(directory: str) -> Any:
    """Content of `metadata.json`, if it is one that we write."""
    if not is_exported(directory):
        raise InputError(f"{directory} holds no corpus; pass a directory that export_corpus wrote")
    path = Path(directory) / _METADATA
    if not path.exists():
        raise InputError(
            f"{directory} is a data set that export_corpus did not write; pass its .parquet or "
            ".arrow files, or save its texts as .jsonl"
        )
    fields = read_json(path, remedy=_AGAIN, largest=_LARGEST_METADATA)
    schema = _TokensAbout if fields.get("kind") == "tokens" else _TextAbout
    try:
        about = from_json(schema, fields, place=str(path))
    except InputError as error:  # of an older version, too, which wrote no digest
        raise InputError(f"{error}; {_AGAIN}") from error
    if about.checksum != seal(fields, but_for="checksum"):
        raise InputError(f"{path} is damaged (its checksum differs); {_AGAIN}")
    if not is_text(about.name):
        raise InputError(f"{path} has a name that is no text; {_AGAIN}")
    if about.kind == "tokens" and not _is_whole(about):
        raise InputError(f"{path} contradicts itself; {_AGAIN}")
    return about


def _is_whole(about: _TokensAbout) -> bool:
    return (
        len(about.tokens) == about.vocab_size > 0
        and all(0 <= number < about.vocab_size for number in about.exclude)
        and about.length >= 2
        and about.longest >= 0
        and is_text("".join([about.tokenizer, *about.tokens]))
    )


@contextlib.contextmanager
def _silence() -> Generator[None]:
    # TFDS prints and draws bars of its own; the terminal belongs to the caller.
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        yield

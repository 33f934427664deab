"""Shards: the files of a corpus that may be larger than memory."""

import glob
import json
import operator
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.files import Content, content_hash
from jaxpe._core.progress import SILENT
from jaxpe.data.corpora import export
from jaxpe.data.corpora.corpus import Document, Source
from jaxpe.data.corpora.load import BUILT_IN, load_corpus
from jaxpe.data.corpora.published import NAMED, named_file
from jaxpe.data.formats.array_records import Records
from jaxpe.data.formats.columns import Fields, Found, Row, group_of, with_text
from jaxpe.data.formats.files import (
    STANDARD_INPUT,
    SUPPORTED,
    TABLES,
    hash_file,
    name_of,
    open_regular,
    readable,
    text_ending,
)
from jaxpe.data.formats.json_rows import json_rows
from jaxpe.data.formats.rows import iter_rows
from jaxpe.data.formats.saved_datasets import is_saved, saved_files
from jaxpe.data.formats.token_files import (
    MEMORY_MAPS,
    Stream,
    files_of_ids,
    holds_ids,
    id_blocks,
    id_documents,
)
from jaxpe.data.tokens.ragged import Ragged

_ARRAY_RECORD = (".array_record", ".arrayrecord")
_SUPPORTED = f"{SUPPORTED}, .array_record, {', '.join(MEMORY_MAPS)}"
_ENDS = 2**16  # bytes at either end of a file that its checksum is of


class Shard(NamedTuple):
    """A file of documents, or a built-in corpus.

    Attributes:
        path: path, or built-in name.
        name: last part of the path.
        bytes: size of the file in bytes.
        checksum: CRC-32 of the first and last 64 kB.
    """

    path: str
    name: str
    bytes: int
    checksum: str

    @property
    def identity(self) -> str:
        """Identity of the shard before it is read, the same for copies in other folders."""
        return f"{self.name}, {self.bytes:,} bytes, CRC-32 {self.checksum}"

    def digest(self) -> str:
        """Hash of the whole content, 32 hexadecimal digits: the same for copies of any name.

        Raises:
            InputError: it cannot be read.
        """
        content = content_hash()
        _hash_all(self.path, content)
        return content.hexdigest()

    def documents(
        self,
        *,
        text_field: str | None = None,
        group_field: str | None = None,
        skip_nulls: bool = False,
        stream: Stream | None = None,
        found: Found | None = None,
        content: Content | None = None,
    ) -> Iterator[Document]:
        """Texts of the shard, or with `stream` its token ids, without the blank ones.

        Args:
            text_field: column or key with the text.
            group_field: column or key with what documents share that are not independent.
            skip_nulls: whether rows whose text is null or missing are left out.
            stream: of token ids, which `holds_ids` tells; None for text.
            found: is told how many were, with the last document.
            content: hash from `content_hash`; it is of the whole content after the last document.

        Raises:
            InputError: it cannot be read, at the place where it cannot, or has no such columns.
        """
        self.check_fields(text_field=text_field, group_field=group_field)
        fields = Fields(text_field, group_field, "group_field", skip_nulls)
        found = Found() if found is None else found
        if stream is not None:
            rows = id_documents(self.path, fields, stream, found=found, content=content)
            return (Document(ids, group_of(label, self.path)) for ids, label in rows)
        if self.path in BUILT_IN:
            return _built_in(self.path, content)
        if _is_records(self.path):
            return _records(self.path, fields, found, content)
        if export.is_exported(self.path):
            return _exported(self.path, content)
        return _rows(self.path, fields, found, content)

    def id_blocks(
        self,
        *,
        text_field: str | None = None,
        group_field: str | None = None,
        skip_nulls: bool = False,
        stream: Stream,
        found: Found | None = None,
        content: Content | None = None,
    ) -> Iterator[tuple[Ragged, list[str | None] | None]]:
        """The token ids of `documents`, and their groups, many documents at once."""
        self.check_fields(text_field=text_field, group_field=group_field)
        fields = Fields(text_field, group_field, "group_field", skip_nulls)
        for ids, labels in id_blocks(self.path, fields, stream, found=found, content=content):
            yield ids, None if labels is None else [group_of(label, self.path) for label in labels]

    def holds_ids(self, text_field: str | None = None) -> bool:
        """Whether the shard holds token ids: `jaxpe.data.token_files.holds_ids`.

        Raises:
            InputError: a table that cannot be read.
        """
        return self.path not in BUILT_IN and holds_ids(self.path, text_field)

    def check_fields(
        self, *, text_field: str | None = None, group_field: str | None = None
    ) -> None:
        """Refuse columns of what has none, with `InputError`."""
        if _is_records(self.path) or text_ending(self.path) in TABLES:
            return
        for name, field in (("text_field", text_field), ("group_field", group_field)):
            if field is not None:
                raise InputError(
                    f"{self.path} has no columns for `{name}` {field!r}; pass {', '.join(TABLES)} "
                    "or .array_record with JSON, or leave it out"
                )


def find_shards(sources: Iterable[Source], *, data_dir: Source | None = None) -> list[Shard]:
    """The shards that paths, globs and built-in names stand for, each once, globs sorted.

    Args:
        sources: paths and globs (`**` goes into folders) of the files of text that `load_corpus`
            reads, of .array_record (a text, or with a text field a JSON object, a record), of
            directories that `export_corpus` wrote or Hugging Face datasets saved to disk; of token
            ids, .bin (with .idx beside it, or a stream), .npy, and lists of integers in .parquet
            and .arrow; `stdlib`, `sst2`, `imdb`.
        data_dir: argument of `load_corpus`.

    Raises:
        InputError: nothing there, or of no such kind, or no regular file.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("b.txt", "a.txt"):
    ...     _ = (folder / name).write_text("To be, or not to be\\n")
    >>> [shard.name for shard in find_shards([folder / "*.txt"])]
    ['a.txt', 'b.txt']
    """
    found = {}
    for source in sources:
        for path in _paths(os.fspath(source), data_dir):
            found.setdefault(os.path.realpath(path) if os.path.exists(path) else path, path)
    if not found:
        raise InputError(f"no shards; pass paths or globs of {_SUPPORTED}")
    return [_shard(path, data_dir) for path in found.values()]


def _paths(source: str, data_dir: Source | None) -> Sequence[str]:
    if source == STANDARD_INPUT:
        raise InputError("standard input cannot be read again from its middle; pass a file")
    if source in NAMED:
        return [named_file(source, data_dir=data_dir) or source]
    if source == "stdlib":
        return [source]
    # A file may have a star in its name.
    paths = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    if not paths:
        raise InputError(f"no such file: {source}; pass paths or globs of {_SUPPORTED}")
    for path in paths:
        _check_kind(path)
    return [file for path in paths for file in (saved_files(path) if is_saved(path) else [path])]


def _check_kind(path: str) -> None:
    if is_saved(path):
        return
    if export.is_exported(path):
        if export.kind(path) == "text":
            return
        raise InputError(f"{path} holds token ids; pass text, which the tokenizer reads")
    if Path(path).is_dir():
        raise InputError(f"{path} is a directory; pass a glob of its files, such as {path}/*.jsonl")
    if not (text_ending(path) or _is_records(path) or path.lower().endswith(MEMORY_MAPS)):
        raise InputError(f"{path}: unknown kind of file; supported are {_SUPPORTED}")


def _is_records(path: str) -> bool:
    return path.lower().endswith(_ARRAY_RECORD)


def _shard(path: str, data_dir: Source | None) -> Shard:
    if path in BUILT_IN:
        content = _built_in_bytes(load_corpus(path, data_dir=data_dir).documents)
        return Shard(path, path, len(content), f"{zlib.crc32(content):08x}")
    checksum, size = 0, 0
    with readable(path, OSError):
        for file in _files(path):
            checksum, size = _ends(file, checksum), size + os.path.getsize(file)
    return Shard(path, name_of(path), size, f"{checksum:08x}")


def _files(path: str) -> list[str]:
    """The files that the content of a shard is."""
    return export.record_files(path) if os.path.isdir(path) else files_of_ids(path)


def _ends(path: str, checksum: int) -> int:
    """CRC-32 of the first and the last bytes of a file."""
    with open_regular(path) as file:
        checksum = zlib.crc32(file.read(_ENDS), checksum)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ENDS))
        return zlib.crc32(file.read(_ENDS), checksum)


def _hash_all(path: str, content: Content) -> None:
    """Put the whole content into a hash, without looking at the documents."""
    if path in BUILT_IN:
        content.update(_built_in_bytes(load_corpus(path).documents))
        return
    with readable(path, OSError):
        for each in _files(path):
            hash_file(each, content)


def _built_in_bytes(documents: Sequence[str]) -> bytes:
    return json.dumps(documents).encode()


def _built_in(name: str, content: Content | None) -> Iterator[Document]:
    """The documents of a corpus by name."""
    documents = load_corpus(name).documents
    if content is not None:
        content.update(_built_in_bytes(documents))
    yield from map(Document, documents)


def _rows(path: str, fields: Fields, found: Found, content: Content | None) -> Iterator[Document]:
    """The documents of a file of text."""
    rows = iter_rows(path, fields, found=found, content=content, progress=SILENT)
    if fields.label is None:  # what millions of documents go through
        return map(Document, map(operator.attrgetter("text"), rows))
    return (Document(row.text, group_of(row.label, row.place)) for row in rows)


def _records(
    path: str, fields: Fields, found: Found, content: Content | None
) -> Iterator[Document]:
    """The documents of an ArrayRecord file."""
    records = Records([path])
    if content is not None:  # the reader, in C++, goes to and fro
        _hash_all(path, content)
    texts = (_decoded(record, f"{path}, record {n}") for n, record in enumerate(records))
    if fields.text is None and fields.label is None:
        rows = (Row(text, None, place) for place, text in texts)
    else:
        rows = with_text(json_rows(texts, fields, found), fields, found)
    return (Document(row.text, group_of(row.label, row.place)) for row in rows if row.text.strip())


def _exported(path: str, content: Content | None) -> Iterator[Document]:
    """The texts of a folder that `export_corpus` wrote."""
    texts = export.iter_texts(path)
    if content is not None:
        _hash_all(path, content)
    yield from map(Document, texts)


def _decoded(record: bytes, place: str) -> tuple[str, str]:
    """The place of a record, and its text."""
    try:
        return place, record.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{place} is not UTF-8: {error}; write texts as UTF-8") from error

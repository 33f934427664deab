"""Shards: the files of a corpus that may be larger than memory."""

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash
from jaxpe._core.progress import SILENT
from jaxpe.data.corpora.corpus import Document, Source
from jaxpe.data.corpora.load import check_fields, load_corpus
from jaxpe.data.corpora.published import NAMED, named_file
from jaxpe.data.corpora.sources import BUILT_IN, source_paths
from jaxpe.data.formats.columns import Fields, ReadLog, group_name
from jaxpe.data.formats.files import STANDARD_INPUT, file_name, hash_file, open_regular, readable
from jaxpe.data.formats.table import content_files, holds_ids, id_blocks, iter_rows
from jaxpe.data.formats.tfds_folders import is_tfds
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.ragged import Ragged

_ENDS = 2**16  # bytes at each end of a file that its checksum covers


class Shard(NamedTuple):
    """File of documents, or a built-in corpus.

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
        """Identity of the shard, known before it is read; copies in other folders share it."""
        return f"{self.name}, {self.bytes:,} bytes, CRC-32 {self.checksum}"

    def digest(self) -> str:
        """Hash of the content, 32 hexadecimal digits; it does not depend on the name.

        Raises:
            InputError: a shard that cannot be read.
        """
        if self.path in BUILT_IN:
            return content_hash(_builtin_content(self.path)).hexdigest()
        content = content_hash()
        with readable(self.path, OSError):
            for file in content_files(self.path):
                hash_file(file, content)
        return content.hexdigest()

    def documents(
        self,
        *,
        text_field: str | None = None,
        group_field: str | None = None,
        skip_nulls: bool = False,
        log: ReadLog | None = None,
    ) -> Iterator[Document]:
        """Texts of the shard, without blank ones.

        Args:
            text_field: column or key with the text.
            group_field: column or key of the author or source.
            skip_nulls: whether rows whose text is null or missing are skipped.
            log: receives the number of skipped rows.

        Raises:
            InputError: a shard that cannot be read, with the line, or that lacks a column.
        """
        check_fields([self.path], text_field, group_field)
        if self.path in BUILT_IN:
            return map(Document, load_corpus(self.path).documents)
        fields = Fields(text_field, group_field, "group_field", skip_nulls)
        rows = iter_rows(self.path, fields, log or ReadLog(), SILENT)
        return (Document(row.text, group_name(row.label, row.location)) for row in rows)

    def id_blocks(
        self,
        *,
        text_field: str | None = None,
        group_field: str | None = None,
        skip_nulls: bool = False,
        stream: Stream,
        log: ReadLog | None = None,
    ) -> Iterator[tuple[Ragged, list[str | None] | None]]:
        """Token ids of the shard and their groups, many documents at once."""
        check_fields([self.path], text_field, group_field)
        fields = Fields(text_field, group_field, "group_field", skip_nulls)
        for ids, labels in id_blocks(self.path, fields, stream, log or ReadLog()):
            groups = labels and [group_name(label, self.path) for label in labels]
            yield ids, groups


def find_shards(sources: Iterable[Source], *, data_dir: Source | None = None) -> list[Shard]:
    """Find the shards of paths, folders, patterns and built-in names, by `source_paths`.

    Args:
        sources: names, paths and patterns that `load_corpus` and `load_tokens` read, except
            standard input; of datasets with several splits, train. An .array_record has one text
            per record, or with a text field one JSON object.
        data_dir: argument of `load_corpus`.

    Raises:
        InputError: as `source_paths`; standard input, or an exported corpus of tokens.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("b.txt", "a.txt"):
    ...     _ = (folder / name).write_text("To be, or not to be\\n")
    >>> [shard.name for shard in find_shards([folder / "*.txt"])]
    ['a.txt', 'b.txt']
    """
    given = [os.fspath(source) for source in sources]
    if STANDARD_INPUT in given:
        raise InputError("standard input cannot be read again to resume; pass a file")
    files = {name: named_file(name, data_dir=data_dir) or name for name in NAMED}
    paths = source_paths([files.get(source, source) for source in given])
    for path in paths:
        if path == "synthetic" or (is_tfds(path) and holds_ids(path)):
            raise InputError(f"{path} holds token ids; pass text, which the tokenizer reads")
    return [_shard(path, data_dir) for path in paths]


def _shard(path: str, data_dir: Source | None) -> Shard:
    if path in BUILT_IN:
        content = _builtin_content(path, data_dir)
        return Shard(path, path, len(content), f"{zlib.crc32(content):08x}")
    checksum, size = 0, 0
    with readable(path, OSError):
        for file in content_files(path):
            checksum, size = _end_checksum(file, checksum), size + os.path.getsize(file)
    return Shard(path, file_name(path), size, f"{checksum:08x}")


def _end_checksum(path: str, checksum: int) -> int:
    with open_regular(path) as file:
        checksum = zlib.crc32(file.read(_ENDS), checksum)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ENDS))
        return zlib.crc32(file.read(_ENDS), checksum)


def _builtin_content(name: str, data_dir: Source | None = None) -> bytes:
    return json.dumps(load_corpus(name, data_dir=data_dir).documents).encode()

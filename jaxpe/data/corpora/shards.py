"""Shards: the files of a corpus that may be larger than memory."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash
from jaxpe._core.progress import SILENT
from jaxpe.data.corpora.corpus import Document, Source
from jaxpe.data.corpora.load import load_corpus
from jaxpe.data.corpora.published import NAMED, named_file
from jaxpe.data.corpora.sources import BUILT_IN, chosen_fields, source_paths
from jaxpe.data.formats.columns import Fields, ReadLog, group_name
from jaxpe.data.formats.files import STANDARD_INPUT, file_name, open_regular, readable
from jaxpe.data.formats.table import IdBlock, content_files, id_blocks, iter_rows
from jaxpe.data.formats.token_files import Stream


class Shard(NamedTuple):
    """File of documents, or a built-in corpus.

    Attributes:
        path: path, or built-in name.
        name: last part of the path.
        bytes: size of the file in bytes.
    """

    path: str
    name: str
    bytes: int

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
                with open_regular(file) as stream:
                    hashlib.file_digest(stream, lambda: content)
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
            text_field: column or key with the text, as `chosen_fields` chose it for all shards; a
                shard without it has null texts. Default: chosen from this shard. Shards without
                columns have one text per document.
            group_field: column or key of the author or source.
            skip_nulls: whether rows whose text is null or missing are skipped.
            log: receives the number of skipped rows, and choices of the reader.

        Raises:
            InputError: a shard that cannot be read, with the line, or that lacks a column.
        """
        if self.path in BUILT_IN:
            return map(Document, load_corpus(self.path).documents)
        log = log or ReadLog()
        fields = self._chosen(Fields(text_field, group_field, "group_field", skip_nulls), log)
        rows = iter_rows(self.path, fields, log, SILENT)
        return (Document(row.text, group_name(row.label, row.location)) for row in rows)

    def id_blocks(
        self,
        *,
        text_field: str | None = None,
        group_field: str | None = None,
        skip_nulls: bool = False,
        stream: Stream,
        log: ReadLog | None = None,
    ) -> Iterator[IdBlock]:
        """Token ids of the shard and their groups, many documents at once; see `documents`."""
        log = log or ReadLog()
        fields = self._chosen(Fields(text_field, group_field, "group_field", skip_nulls), log)
        return id_blocks(self.path, fields, stream, log)

    def _chosen(self, fields: Fields, log: ReadLog) -> Fields:
        return fields if fields.text is not None else chosen_fields([self.path], fields, log)


def find_shards(
    sources: Iterable[Source], *, data_dir: Source | None = None, log: ReadLog | None = None
) -> list[Shard]:
    """Find the shards of paths, folders, patterns and built-in names, by `source_paths`.

    Args:
        sources: names, paths and patterns that `load_corpus` and `load_tokens` read, except
            standard input; of datasets with several splits, train.
        data_dir: argument of `load_corpus`.
        log: receives the split, where a source has several.

    Raises:
        InputError: as `source_paths`; standard input, or the corpus `"synthetic"`.

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
    paths = source_paths([files.get(source, source) for source in given], log=log)
    if "synthetic" in paths:
        raise InputError("synthetic holds token ids; pass text, which the tokenizer reads")
    return [Shard(path, file_name(path), _bytes(path, data_dir)) for path in paths]


def _bytes(path: str, data_dir: Source | None) -> int:
    if path in BUILT_IN:
        return len(_builtin_content(path, data_dir))
    with readable(path, OSError):
        return sum(os.path.getsize(file) for file in content_files(path))


def _builtin_content(name: str, data_dir: Source | None = None) -> bytes:
    return json.dumps(load_corpus(name, data_dir=data_dir).documents).encode()

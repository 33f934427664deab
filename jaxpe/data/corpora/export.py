"""Export of corpora as TFDS datasets (ArrayRecord), which TFDS and Grain read."""

import contextlib
import io
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import Progress
from jaxpe.data.corpora.corpus import Corpus, Source, TokenCorpus
from jaxpe.data.formats.files import check_text
from jaxpe.data.formats.tfds_folders import (
    Metadata,
    examples,
    read_metadata,
    tfds_source,
)


def export_corpus(corpus: Corpus | TokenCorpus, directory: Source) -> Path:
    """Write a corpus as a TFDS dataset (ArrayRecord, documents in order), without TensorFlow.

    A row has `text`, or `ids` and `mask`. `open_corpus`, `load_corpus`, `load_tokens` and
    `tfds.builder_from_directory` read the dataset.

    Args:
        corpus: text or tokens.
        directory: folder for the dataset, new or empty; it is returned.

    Raises:
        InputError: a directory that is in use or cannot be written, a corpus without documents, or
            a document with half of a surrogate pair.
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
    _check(corpus)
    from jaxpe.data.tfds_corpus import JaxpeCorpus

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            builder = JaxpeCorpus(
                corpus=corpus,
                rows=_rows(corpus),
                metadata=_metadata(corpus)._asdict(),
                data_dir=work,
                file_format="array_record",
            )
            # Suppresses the output of TFDS, since the terminal belongs to the caller.
            sink = io.StringIO()
            with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
                builder.download_and_prepare()
            os.replace(builder.data_path, target)
    except (OSError, RuntimeError) as error:  # RuntimeError from the writer of records
        raise InputError(
            f"{target} cannot be written: {error}; pass a directory with room and permission"
        ) from error
    return target


def open_corpus(directory: Source) -> Any:
    """Open an exported corpus for random access, as a TFDS data source, which Grain reads.

    `source[i]` is a dict with `text` (bytes), or with `ids` int32 `[length]` and `mask` bool
    `[length]`. `source.__getitems__` returns several rows.

    Raises:
        InputError: a directory without an exported corpus.

    >>> import grain, tempfile
    >>> folder = export_corpus(Corpus("two", ["to be", "or not"]), tempfile.mkdtemp())
    >>> rows = grain.MapDataset.source(open_corpus(folder))
    >>> [text for text in rows.map(lambda row: row["text"].decode())]
    ['to be', 'or not']
    """
    read_metadata(os.fspath(directory))
    return tfds_source(os.fspath(directory))


def read_tokens(directory: str, *, progress: Progress) -> TokenCorpus:
    """Read an exported corpus of tokens."""
    about = read_metadata(directory)
    source = tfds_source(directory)
    rows = examples(source, directory, progress)
    first = next(rows)
    shape = len(source), len(first["ids"])
    check_bytes(5 * shape[0] * shape[1], what=directory, remedy="export fewer documents")
    ids, mask = np.zeros(shape, np.int32), np.zeros(shape, bool)
    ids[0], mask[0] = first["ids"], first["mask"]
    for number, row in enumerate(rows, start=1):
        ids[number], mask[number] = row["ids"], row["mask"]
    if not 0 <= ids.min() <= ids.max() < about.vocab_size == len(about.tokens):
        raise InputError(
            f"{directory} has ids up to {ids.max():,} and names {len(about.tokens):,} tokens; "
            "export the corpus again"
        )
    fields = about._asdict()
    del fields["kind"]
    return TokenCorpus(ids=ids, mask=mask, **fields)


def _rows(corpus: Corpus | TokenCorpus) -> Iterable[dict[str, Any]]:
    if isinstance(corpus, Corpus):
        return ({"text": text.encode()} for text in corpus.documents)
    pairs = zip(corpus.ids.astype("<i4"), corpus.mask, strict=True)
    return ({"ids": ids, "mask": mask} for ids, mask in pairs)


def _metadata(corpus: Corpus | TokenCorpus) -> Metadata:
    if isinstance(corpus, Corpus):
        return Metadata("text", corpus.name)
    return Metadata("tokens", *(getattr(corpus, name) for name in Metadata._fields[1:]))


def _check(corpus: Corpus | TokenCorpus) -> None:
    """Raise `InputError` for an empty corpus, or for text that cannot be written as UTF-8."""
    texts = corpus.documents if isinstance(corpus, Corpus) else corpus.tokens
    if not len(texts if isinstance(corpus, Corpus) else corpus.ids):
        raise InputError(f"{corpus.name} has no documents; pass at least one")
    kind = "document" if isinstance(corpus, Corpus) else "token"
    check_text(corpus.name, what="the name of the corpus", remedy="replace it")
    for number, text in enumerate(texts):
        check_text(text, what=f"{kind} {number} of {corpus.name}", remedy="leave it out")

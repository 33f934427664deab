"""Loading of a corpus by name or path."""

import contextlib
import os
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.results import npy_header
from jaxpe.data.corpora import export
from jaxpe.data.corpora.corpus import Corpus, Source, TokenCorpus, group_labels
from jaxpe.data.corpora.published import NAMED, named_rows
from jaxpe.data.corpora.stdlib import stdlib_documents
from jaxpe.data.corpora.synthetic import three_regimes
from jaxpe.data.formats.columns import Fields, Found, group_of
from jaxpe.data.formats.files import (
    STANDARD_INPUT,
    SUPPORTED,
    TABLES,
    name_of,
    open_regular,
    text_ending,
)
from jaxpe.data.formats.rows import held, read_rows
from jaxpe.data.formats.saved_datasets import is_saved, saved_files
from jaxpe.data.formats.token_files import MEMORY_MAPS, Stream, holds_ids, id_documents
from jaxpe.data.tokens.token_ids import (
    DEFAULT_LENGTH,
    check_length,
    read_ids,
    resized,
    tokens_from_ids,
)
from jaxpe.data.tokens.tokenizers import corpus_of_ids, tokenize, tokenizer_of_ids
from jaxpe.data.tokens.vocabulary import DEFAULT_TOKENIZER

# Names of corpora that need no file, or are looked for in the data folder.
BUILT_IN = ("stdlib", *NAMED, "synthetic")
_SUPPORTED = f"{SUPPORTED}, {', '.join(MEMORY_MAPS)}, '-' for standard input"
_ROW_BYTES = 200  # of a document beside its ids


def load_corpus(
    source: Source,
    *,
    text_field: str | None = None,
    group_field: str | None = None,
    skip_nulls: bool = False,
    data_dir: Source | None = None,
    progress: Progress = SILENT,
) -> Corpus:
    """Read documents of text, by name or path.

    Names:

    - `"stdlib"`: the docstrings of the running Python's standard library, about 8,000 documents,
      without a download. Kept in `JAXPE_CACHE_DIR` or the user's cache folder.
    - `"sst2"`, `"imdb"`: the training texts, from `data_dir` or `JAXPE_DATA_DIR`
      (`sst2/train.tsv`, `imdb/train.jsonl.gz`), otherwise through TFDS.

    Paths: `.txt` (one document a line), `.tsv`, `.csv`, `.jsonl`, `.json` (an array of objects or
    of strings, or an object with one list of objects), each also with `.gz`, `.bz2`, `.xz` or
    `.zst` (extra `parquet`); `.parquet` and `.arrow` (extra `parquet`); a directory that
    `export_corpus` wrote, or a Hugging Face dataset saved to disk; `"-"` for lines from standard
    input. A line has at most 64 MiB (a row of .csv in all its lines), a `.json` at most 512 MiB;
    blank documents are left out. Pipes and devices are refused: pipe into standard input instead.

    The first bytes tell how text is compressed, whatever its name, and whether it is UTF-16 or
    UTF-32; without a byte order mark these are read where most characters are ASCII. All other text
    is UTF-8 without NULs. The delimiter of `.csv` is a comma, or else the most frequent of
    semicolon, tab and `|` in the header; a first line `sep=;` names it. Fields of `.csv` may be
    quoted. Fields of `.tsv` are taken as quoted where all quotation marks in the file quote a field
    and there is evidence of it: marks doubled within a field, tabs or line ends between them, marks
    around the header, around a field in every row, or around exactly the fields with commas. Other
    marks are text, as in GLUE. A file with both is refused. Rename a `.tsv` to `.csv` to have it
    read as quoted; `Corpus.choices` has what was chosen.

    Args:
        source: a name or a path; a name wins over a file of that name (write `./sst2`).
        text_field: the column that holds the text. Default: `text`, else `sentence`, else the only
            column of text.
        group_field: the column with the author, the source or whatever documents share that are
            not independent of each other; its values are in `Corpus.groups`.
        skip_nulls: whether rows whose text is null or missing are left out and counted
            (`null_texts`); the first is refused otherwise.
        data_dir: the directory with the named corpora.
        progress: is shown what is read.

    Raises:
        InputError: nothing there, no regular file, unreadable or undecodable text, a line that is
            too long, no header or several, no such column, a text that is null, a group that is no
            string or number, turns of a chat, fewer than two documents, more than memory holds, or
            token ids instead of text.
        MissingExtraError: `.parquet`, `.arrow` or `.zst` without the extra.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "poems.txt"
    >>> _ = path.write_text("The fog comes\\n\\non little cat feet.\\n")
    >>> load_corpus(path).documents
    ['The fog comes', 'on little cat feet.']
    """
    source = os.fspath(source)
    _check_fields(source, text_field, group_field)
    if source == "synthetic" or _holds_ids(source, text_field):
        raise InputError(f"{source} holds token ids, not text; read it with load_tokens")
    if source == "stdlib":
        corpus = Corpus(source, stdlib_documents(progress=progress))
    elif source in NAMED:
        rows = named_rows(source, data_dir=data_dir, progress=progress)
        corpus = Corpus(source, [row.text for row in rows])
    elif export.is_exported(source):
        corpus = export.read_text(source, progress=progress)
    else:
        check_file(source)
        found = Found()
        fields = Fields(text_field, group_field, "group_field", skip_nulls)
        options = {"found": found, "progress": progress}
        rows = [row for file in _files(source) for row in read_rows(file, fields, **options)]
        groups = None if group_field is None else [group_of(row.label, row.place) for row in rows]
        name = "stdin" if source == STANDARD_INPUT else name_of(source)
        corpus = Corpus(name, [row.text for row in rows], found.null_texts, found.choices, groups)
    return at_least_two(corpus, source)


def load_tokens(
    source: Source,
    *,
    tokenizer: Source | None = None,
    length: int | None = None,
    special: bool = False,
    text_field: str | None = None,
    group_field: str | None = None,
    skip_nulls: bool = False,
    data_dir: Source | None = None,
    progress: Progress = SILENT,
) -> TokenCorpus:
    """Read a corpus of text or of token ids, ready for the geometry.

    Text as `load_corpus` and `tokenize` read it. Token ids, which need no tokenizer:

    - `"synthetic"`: `three_regimes()`, with a geometry that is known exactly.
    - `.npy`: integers `[documents, n]`; `length` defaults to `n`, at most 128.
    - `.npy` of one axis, and `.bin` of 16 bits without an index: a stream, of which every `length`
      ids are a document; `.bin` with the `.idx` of Megatron beside it; a column of lists of
      integers in `.parquet`, `.arrow` or a Hugging Face dataset saved to disk. With `tokenizer`,
      the file that made them, the text of each id is known.
    - a directory that `export_corpus` wrote from a `TokenCorpus`.

    Raises:
        InputError: as `load_corpus`, `tokenize` and `tokens_from_ids`; a tokenizer or `special`
            for what is ids already.

    >>> corpus = load_tokens("synthetic")
    >>> corpus.ids.shape, corpus.vocab_size, bool(corpus.mask.all())
    ((5000, 32), 200, True)
    """
    source = os.fspath(source)
    if source != "synthetic" and not _holds_ids(source, text_field):
        corpus = load_corpus(
            source,
            text_field=text_field,
            group_field=group_field,
            skip_nulls=skip_nulls,
            data_dir=data_dir,
            progress=progress,
        )
        return tokenize(
            corpus, tokenizer=tokenizer, length=length, special=special, progress=progress
        )
    _check_fields(source, text_field, group_field)
    if _holds_documents(source):
        fields = Fields(text_field, group_field, "group_field", skip_nulls)
        return _load_documents(source, fields, tokenizer, length, special)
    corpus = _load_ids(source, length, progress)
    known = (DEFAULT_TOKENIZER, corpus.tokenizer)
    if special or (tokenizer is not None and os.fspath(tokenizer) not in known):
        raise InputError(f"{source} holds token ids already; leave `tokenizer` and `special` out")
    return corpus


def _load_ids(source: str, length: int | None, progress: Progress) -> TokenCorpus:
    if source == "synthetic":
        corpus = three_regimes()
        return tokens_from_ids(corpus.ids, name=corpus.name, length=length)
    if export.is_exported(source):
        corpus = export.read_tokens(source, progress=progress)
        return corpus if length is None else resized(corpus, length)
    check_file(source)
    return read_ids(source, length=length)._replace(name=name_of(source))


def _holds_ids(source: str, text_field: str | None) -> bool:
    if is_saved(source):
        return holds_ids(_files(source)[0], text_field)
    if export.is_exported(source):
        return export.kind(source) == "tokens"
    if not os.path.isfile(source):
        return source.lower().endswith(MEMORY_MAPS)
    return holds_ids(source, text_field)


def _holds_documents(source: str) -> bool:
    """Whether ids are of documents of different lengths, and not a stream to be cut."""
    if source == "synthetic" or not (os.path.isfile(source) or is_saved(source)):
        return False
    if not source.lower().endswith(".npy"):
        return True
    with (
        contextlib.suppress(Exception),
        open_regular(source) as file,
    ):  # read_ids says what is wrong
        return len(npy_header(file, os.path.getsize(source))[0]) == 1
    return False


def _files(source: str) -> list[str]:
    """The files of a dataset that was saved to disk, or the one."""
    return saved_files(source) if is_saved(source) else [source]


def _load_documents(
    source: str, fields: Fields, tokenizer: Source | None, length: int | None, special: bool
) -> TokenCorpus:
    """Documents that are ids already."""
    known = None if tokenizer in (None, DEFAULT_TOKENIZER, "ids") else tokenizer
    opened = None if known is None else tokenizer_of_ids(known, special=special)
    if opened is None and special:
        raise InputError(f"{source} holds token ids; pass the `tokenizer` that made them, too")
    check_length(length)
    size = 1 if opened is None else len(opened.tokens)
    stream, found = Stream(length=length or DEFAULT_LENGTH, vocab_size=size), Found()
    documents = (
        (ids, group_of(label, file))
        for file in _files(source)
        for ids, label in id_documents(file, fields, stream, found=found)
    )
    labelled = held(documents, lambda row: row[0].nbytes + _ROW_BYTES, what=source)
    rows = [ids for ids, _ in labelled]
    groups = None if fields.label is None else [group for _, group in labelled]
    if len(rows) < 2:
        raise InputError(
            f"{source} holds {len(rows)} documents of ids; pass at least two, as an array "
            "[documents, n]"
        )
    if opened is None:
        opened = tokenizer_of_ids(vocab_size=1 + max(int(row.max()) for row in rows))
    about = {"null_texts": found.null_texts, "group_labels": group_labels(groups)}
    return corpus_of_ids(name_of(source), rows, opened, length=length, **about)


def check_file(source: str) -> None:
    """Refuse a path that is not a file of a supported kind."""
    if source == STANDARD_INPUT:
        return
    path = Path(source)
    if not path.exists():
        raise InputError(
            f"no such file: {source}; pass a path, or one of the built-in corpora "
            f"{', '.join(BUILT_IN)}"
        )
    if path.is_dir() and is_saved(path):
        return
    if path.is_dir():
        raise InputError(
            f"{source} is a directory that export_corpus did not write; pass a file: {_SUPPORTED}"
        )
    if text_ending(source) is None and not source.lower().endswith(MEMORY_MAPS):
        raise InputError(f"{source}: unknown kind of file; supported are {_SUPPORTED}")


def _check_fields(source: str, text_field: str | None, group_field: str | None) -> None:
    if text_ending(source) in TABLES or is_saved(source):
        return
    for name, field in (("text_field", text_field), ("group_field", group_field)):
        if field is not None:
            raise InputError(
                f"{source} has no columns; leave `{name}` out (it is for {', '.join(TABLES)})"
            )


def at_least_two(corpus: Corpus, source: str) -> Corpus:
    """The corpus, refused where it holds fewer than two documents."""
    if len(corpus.documents) < 2:
        found = "only one document" if corpus.documents else "no documents"
        raise InputError(
            f"{'standard input' if source == STANDARD_INPUT else source} holds {found}; "
            "pass at least two (in .txt, one a line)"
        )
    return corpus

"""Loading of corpora by name or path."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice, check_range
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.corpora.corpus import (
    Corpus,
    Source,
    Sources,
    TokenCorpus,
    group_labels,
)
from jaxpe.data.corpora.sources import (
    TRAIN,
    chosen_fields,
    hold_ids,
    read_documents,
    source_name,
    source_paths,
)
from jaxpe.data.corpora.synthetic import three_regimes
from jaxpe.data.formats.columns import Fields, ReadLog, group_name
from jaxpe.data.formats.table import IdBlock, id_blocks, list_within_memory, usual_tokenizer
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.ragged import joined, ragged
from jaxpe.data.tokens.token_ids import corpus_from_ids
from jaxpe.data.tokens.tokenizers import DEFAULT_LENGTH, check_length, tokenize, tokenizer_of_ids
from jaxpe.data.tokens.vocabulary import DEFAULT_TOKENIZER

# Settings of `choices`.
SAMPLE, MARKUP = "documents", "HTML tags"
_LOOKED_AT, _MUCH_MARKUP = 2_000, 0.05  # documents, and share of them with tags
_TAG = re.compile(
    r"</?(a|b|br|code|div|em|h[1-6]|i|img|li|ol|p|pre|span|strong|table|td|tr|ul)\b[^<>]*>", re.I
)


def load_corpus(
    source: Sources,
    *,
    split: str = TRAIN,
    text_field: str | None = None,
    group_field: str | None = None,
    skip_nulls: bool = False,
    data_dir: Source | None = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Corpus:
    """Read documents of text, by names, paths and patterns.

    Names:

    - `"stdlib"`: the docstrings of the running Python's standard library, about 8,000 documents,
      without a download. They are cached in `JAXPE_CACHE_DIR` or the user's cache folder.
    - `"sst2"`, `"imdb"`: the training texts, from `data_dir` or `JAXPE_DATA_DIR`
      (`sst2/train.tsv`, `imdb/train.jsonl.gz`), otherwise through TFDS.

    Paths:

    - `.txt` with one document per line, `.tsv`, `.csv` and `.jsonl`, each also with `.gz`, `.bz2`,
      `.xz` or `.zst` (extra `parquet`); `.parquet` and `.arrow` (extra `parquet`).
    - FASTA (`.fa`, `.fasta`, `.fna`, `.ffn`, `.faa`, `.fas`) and FASTQ (`.fastq`, `.fq`), also
      compressed: one document per sequence, in upper case, without qualities.
    - a TFDS dataset in array_record files (extra `data`), and a Hugging Face dataset or
      `DatasetDict` saved to disk (extra `parquet`).
    - a folder of files of one of these kinds, read in the order of their names; patterns such as
      `"shards/*.jsonl.gz"`.
    - `"-"` for lines from standard input. Pipes and devices are refused as paths.

    Of several splits, one is read. TFDS and Hugging Face name the splits of their datasets; in
    other folders the names of files do, by a word such as train, valid or test
    (`train-00000-of-00002.parquet`, `en_test.jsonl`).

    A document has at most 64 MiB; blank documents are left out. The first bytes of a file, not its
    name, determine the compression. Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark.

    The delimiter of a `.csv` is a comma, or else the most frequent of semicolon, tab and `|` in the
    header; a first line `sep=;` names it. Fields of a `.csv` may be quoted. In a `.tsv`, quotation
    marks quote fields only if every mark does, and if the header or some field needs quotes: one
    with a tab, a line end or a doubled mark. Otherwise they are text, as in GLUE. Rename a `.tsv`
    to `.csv` to force quoting; `Corpus.choices` has the automatic choice.

    Args:
        source: name, path or pattern, or several of them; a name has priority over a file of this
            name (write `./sst2`).
        split: split of a source that has several.
        text_field: column that holds the text. Default, by the first thousand rows of all files:
            `text`, else `sentence`, else the only column of text beside numbers.
        group_field: column with the author, the source, or another property that dependent
            documents share; its values are in `Corpus.groups`.
        skip_nulls: whether rows whose text is null or missing are left out and counted
            (`null_texts`); otherwise the first one raises.
        data_dir: directory with the named corpora.
        limit: largest number of documents; of more, a random sample, in the order of the source.
        seed: random seed of the sample.
        progress: receiver of progress.

    Raises:
        InputError: a missing, irregular or undecodable file; a line that is too long; no header or
            several; a missing column; a null text; a group that is not a string or number; turns of
            a chat; fewer than two documents; too much text for the memory; or token ids.
        MissingExtraError: `.parquet`, `.arrow` or `.zst` without the extra.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "poems.txt"
    >>> _ = path.write_text("The fog comes\\n\\non little cat feet.\\n")
    >>> load_corpus(path).documents
    ['The fog comes', 'on little cat feet.']
    """
    log = ReadLog()
    paths = source_paths(source, split=split, log=log)
    if hold_ids(paths, text_field):
        raise InputError(f"{paths[0]} holds token ids, not text; read it with load_tokens")
    fields = Fields(text_field, group_field, "group_field", skip_nulls)
    rows = read_documents(paths, fields, log, split=split, data_dir=data_dir, progress=progress)
    chosen = sample_rows(len(rows), limit=limit, seed=seed)
    sampled, choices = [rows[i] for i in chosen], (*log.choices, *_sample_choice(chosen, len(rows)))
    groups = None
    if group_field is not None:
        groups = [group_name(row.label, row.location) for row in sampled]
    texts, name = [row.text for row in sampled], source_name(source)
    choices = (*choices, *_markup_choice(texts))
    return check_two_documents(Corpus(name, texts, log.null_texts, choices, groups))


def load_tokens(
    source: Sources,
    *,
    split: str = TRAIN,
    tokenizer: Source | None = None,
    length: int | None = None,
    special: bool = False,
    text_field: str | None = None,
    group_field: str | None = None,
    skip_nulls: bool = False,
    data_dir: Source | None = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> TokenCorpus:
    """Read a corpus of text or of token ids, as input of the geometry.

    Text is read by `load_corpus` and `tokenize`; sequences of FASTA and FASTQ as characters, unless
    a tokenizer is passed. Sources of token ids, which need no tokenizer:

    - `"synthetic"`: `three_regimes()`, whose geometry is known exactly.
    - `.npy`: integers `[documents, n]`; `length` defaults to `n`, at most 128.
    - `.npy` with one axis, or `.bin` with 16 or 32 bits per id: a stream, cut into documents of
      `length` ids.
    - a column of lists of integers in `.parquet`, `.arrow` or a Hugging Face dataset saved to disk.

    Args:
        source: source of `load_corpus` or of token ids, or several of one kind.
        split, group_field, skip_nulls, data_dir, limit, seed: arguments of `load_corpus`.
        tokenizer: tokenizer of text, as in `tokenize`. For token ids in files, the tokenizer that
            made them, which gives the text of each id.
        length: number of positions, as in `tokenize`; for a stream of ids, 128 by default.
        special: as in `tokenize`. For token ids, leave the tokenizer's special tokens, which the
            documents contain, out of the counts.
        text_field: column that holds the text or the ids; default as in `load_corpus`.
        progress: receiver of progress.

    Raises:
        InputError: as in `load_corpus`, `tokenize` and `tokens_from_ids`; a tokenizer or `special`
            for token ids that have none.

    >>> corpus = load_tokens("synthetic")
    >>> corpus.ids.shape, corpus.vocab_size, bool(corpus.mask.all())
    ((5000, 32), 200, True)
    """
    paths = source_paths(source, split=split)
    if not hold_ids(paths, text_field):
        columns: Any = {"text_field": text_field, "group_field": group_field}
        reading = columns | {"split": split, "skip_nulls": skip_nulls, "data_dir": data_dir}
        reading |= {"limit": limit, "seed": seed}
        corpus = load_corpus(source, **reading, progress=progress)
        if tokenizer is None and (tokenizer := usual_tokenizer(paths)) is not None:
            how = "pass kmer:3 (overlapping) or codons (every third) as `tokenizer`"
            choice = Choice("tokenizer", str(tokenizer), "the usual one for sequences", how)
            corpus = corpus._replace(choices=(*corpus.choices, choice))
        encoding: Any = {"tokenizer": tokenizer, "length": length, "special": special}
        return tokenize(corpus, **encoding, progress=progress)
    fields = Fields(text_field, group_field, "group_field", skip_nulls)
    corpus = _load_ids(paths, fields, tokenizer, length, special)
    rows = sample_rows(len(corpus.ids), limit=limit, seed=seed)
    choices = (*corpus.choices, *_sample_choice(rows, len(corpus.ids)))
    return corpus.chosen(rows)._replace(name=source_name(source), choices=choices)


def _load_ids(
    paths: list[str], fields: Fields, tokenizer: Source | None, length: int | None, special: bool
) -> TokenCorpus:
    """Documents of token ids."""
    opened, name = None, source_name(paths)
    known = None if tokenizer in (DEFAULT_TOKENIZER, "ids") else tokenizer
    if known is not None and "synthetic" not in paths:
        opened = tokenizer_of_ids(known, special=special)
    elif known is not None or special:
        remedy = "leave `tokenizer` and `special` out, or pass the `tokenizer` of ids in files"
        raise InputError(f"{name} holds token ids; {remedy}")
    check_length(length)
    vocab_size = 1 if opened is None else len(opened.tokens)
    stream, log = Stream(length=length or DEFAULT_LENGTH, vocab_size=vocab_size), ReadLog()
    fields = chosen_fields(paths, fields, log)

    def blocks() -> Iterator[IdBlock]:
        for path in paths:
            if path == "synthetic":
                yield ragged(three_regimes().ids), None
            else:
                yield from id_blocks(path, fields, stream, log)

    # Twice: the blocks, and all of them in one array.
    parts = list_within_memory(blocks(), lambda block: 2 * block[0].values.nbytes, what=name)
    corpus = corpus_from_ids(
        joined([ids for ids, _ in parts]), name, tokenizer=opened, length=length
    )
    groups = None
    if fields.label is not None:
        groups = group_labels([group for _, labels in parts for group in labels or ()])
    choices = (*log.choices, *corpus.choices)
    return corpus._replace(null_texts=log.null_texts, group_labels=groups, choices=choices)


def sample_rows(count: int, *, limit: int | None, seed: int) -> Int[np.ndarray, " rows"]:
    """Rows of a random sample without replacement, in order; all rows within the limit.

    Raises:
        InputError: a limit below 2.

    >>> sample_rows(9, limit=3, seed=0).tolist(), sample_rows(2, limit=3, seed=0).tolist()
    ([4, 5, 7], [0, 1])
    """
    check_range("limit", limit, least=2)
    if limit is None or limit >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))


def _sample_choice(rows: np.ndarray, count: int) -> list[Choice]:
    if len(rows) == count:
        return []
    how = "pass another `seed`, or leave `limit` out"
    return [Choice(SAMPLE, f"{len(rows):,} of {count:,}", "a random sample", how)]


def _markup_choice(texts: list[str]) -> list[Choice]:
    """Share of documents with HTML tags, of some of them, if it is large."""
    some = texts[:: 1 + len(texts) // _LOOKED_AT]
    share = sum(bool(_TAG.search(text)) for text in some) / max(len(some), 1)
    if share < _MUCH_MARKUP:
        return []
    how = "remove them from the text, as `sed -E 's/<[^>]*>/ /g'` does"
    value = f"in {100 * share:.0f}\N{NO-BREAK SPACE}% of the documents"
    return [Choice(MARKUP, value, "read as text", how)]


def check_two_documents(corpus: Corpus) -> Corpus:
    """Return the corpus; raise `InputError` for fewer than two documents."""
    if len(corpus.documents) < 2:
        number = "only one document" if corpus.documents else "no documents"
        raise InputError(f"{corpus.name} holds {number}; pass at least two (in .txt, one per line)")
    return corpus

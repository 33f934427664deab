"""Documents with labels for a classifier, and the held-out split."""

import os
import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.results import short_repr
from jaxpe.data.corpora.corpus import Corpus, Source, Sources, TokenCorpus
from jaxpe.data.corpora.load import check_two_documents
from jaxpe.data.corpora.seeds import generator
from jaxpe.data.corpora.sources import TRAIN, read_documents, source_name, source_paths
from jaxpe.data.formats.columns import Fields, ReadLog, Row
from jaxpe.data.formats.files import check_text, listed, quoted
from jaxpe.data.tokens.tokenizers import tokenize
from jaxpe.data.tokens.vocabulary import (
    DEFAULT_TOKENIZER,
    VOCABULARY,
    vocabulary_occurs,
    vocabulary_with_unknown,
)

_INTEGER = re.compile("0|-?[1-9][0-9]{0,99}")  # as Python writes integers


class LabelledTokens(NamedTuple):
    """Documents as token ids, with the class of each document.

    Attributes:
        corpus: token ids and mask.
        labels: int32 `[documents]`, indices into `names`; for translation, the answers as token
            ids `[documents, n]`.
        names: names of the classes.
        tokenizer: name or path of the tokenizer as passed, to read another split in the same way.
    """

    corpus: TokenCorpus
    labels: Int32[np.ndarray, "documents *n"]
    names: tuple[str, ...]
    tokenizer: str

    __repr__ = short_repr


def load_labelled(
    source: Sources,
    *,
    split: str = TRAIN,
    like: LabelledTokens | None = None,
    tokenizer: Source | None = None,
    length: int | None = None,
    special: bool = False,
    max_vocab: int | None = None,
    text_field: str | None = None,
    label_field: str = "label",
    skip_nulls: bool = False,
    data_dir: Source | None = None,
    progress: Progress = SILENT,
) -> LabelledTokens:
    """Read documents with labels, by name or path, as token ids.

    Names are `"sst2"`, with the splits train and dev, and `"imdb"`, with train and test; their
    classes are negative and positive. They are read from `data_dir` or `JAXPE_DATA_DIR`
    (`sst2/train.tsv`, `sst2/dev.tsv`, `imdb/train.jsonl.gz`, `imdb/test.jsonl.gz`), otherwise
    through TFDS. Paths and patterns are files and datasets with columns that `load_corpus` reads.
    Documents keep the order of the source; IMDB has all positive ones first. Blank documents are
    left out together with their labels.

    Labels are integers or strings; those of tables of text are strings, so `007` is not `7`.
    Classes are numbered in the order of the integers if every label is one, or else
    alphabetically. TFDS and Hugging Face datasets name their classes, in their own order
    (`ClassLabel`).

    A vocabulary of words or characters ends with the token `"[UNK]"`. It replaces tokens that
    `max_vocab` cuts, and tokens that `like` lacks. Pretrained tokenizers and bytes have fixed
    vocabularies.

    Args:
        source: name, path or pattern, or several of them.
        split: split of a source that has several, as in `load_corpus`; a file is one split.
        like: another split, whose tokenizer, vocabulary, length and classes are used.
        tokenizer, length, special: arguments of `tokenize`.
        max_vocab: largest vocabulary, `"[UNK]"` included; rarer words and characters become
            unknown.
        label_field: column of labels.
        text_field, skip_nulls, data_dir, progress: arguments of `load_corpus`.

    Raises:
        InputError: as in `load_corpus` and `tokenize`; no such split or column; a label that is
            missing, fractional, not finite or unknown to `like`; fewer than two classes.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.tsv"
    >>> _ = path.write_text("label\\ttext\\npos\\tgood fun\\nneg\\tno fun\\n")
    >>> train = load_labelled(path)
    >>> train.labels.tolist(), train.names, train.corpus.tokens
    ([1, 0], ('neg', 'pos'), ['fun', 'good', 'no', '[UNK]'])
    >>> _ = path.write_text("label\\ttext\\nneg\\tbad fun\\npos\\tgood\\n")
    >>> load_labelled(path, like=train).corpus.ids.tolist()
    [[3, 0], [1, 0]]
    """
    if like is not None:
        ignored = (None, DEFAULT_TOKENIZER, like.tokenizer)
        if tokenizer not in ignored or length or special or max_vocab:
            names = "`tokenizer`, `length`, `special` and `max_vocab`"
            raise InputError(f"`like` has the tokenizer and its vocabulary; leave {names} out")
        tokenizer, length = like.tokenizer, like.corpus.ids.shape[1]
        special = bool(like.corpus.exclude)
    log = ReadLog()
    fields = Fields(text_field, label_field, skip_nulls=skip_nulls)
    paths = source_paths(source, split=split, log=log)
    rows = read_documents(paths, fields, log, split=split, data_dir=data_dir, progress=progress)
    name = source_name(source) + ("" if split == TRAIN else f" {split}")
    texts = [row.text for row in rows]
    documents = check_two_documents(Corpus(name, texts, log.null_texts, log.choices))
    labels, names = _class_indices(rows, name, log.classes if like is None else like.names)
    corpus = tokenize(
        documents, tokenizer=tokenizer, length=length, special=special, progress=progress
    )
    if like is None:
        corpus = occurring_vocabulary(corpus, max_vocab)
    else:
        corpus = shared_vocabulary(like.corpus, corpus)
    return LabelledTokens(corpus, labels, names, os.fspath(tokenizer or DEFAULT_TOKENIZER))


def hold_out(
    labelled: LabelledTokens, *, fraction: float = 0.1, seed: int = 0
) -> tuple[LabelledTokens, LabelledTokens]:
    """Split a corpus into a training and a held-out part, without copies across the split.

    Groups from `dependent_groups` (copies, near-copies, pieces of longer documents) are drawn at
    random until they hold the fraction. Both parts keep the order of the documents.

    Args:
        labelled: documents with labels.
        fraction: share of the documents to hold out, in (0, 1); it may be exceeded by part of a
            group.
        seed: random seed of the split, in [0, 2**32).

    Returns:
        the training part, and the held-out part.

    Raises:
        InputError: a fraction or seed out of range, or a fraction that leaves one part empty.

    >>> from jaxpe import data
    >>> ids = np.arange(40).reshape(10, 4) % 7
    >>> labelled = LabelledTokens(
    ...     data.tokens_from_ids(ids), np.arange(10, dtype=np.int32) % 2, ("a", "b"), "ids")
    >>> rest, held_out = hold_out(labelled, fraction=0.3)
    >>> len(rest.labels), len(held_out.labels)    # 0 and 7, 1 and 8, 2 and 9 are equal
    (7, 3)
    """
    if not 0.0 < fraction < 1.0:
        raise InputError(f"`fraction` is {fraction}; pass a number between 0 and 1")
    corpus = labelled.corpus
    groups = corpus.groups()
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = generator(seed).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]
    drawn = np.zeros(len(sizes), bool)
    drawn[order[before < fraction * len(groups)]] = True
    if drawn.all():
        fault = f"{len(groups)} documents in {len(sizes)} groups of copies leave nothing to train"
        raise InputError(f"{corpus.name}: {fault}; pass a smaller `fraction`, or more documents")
    return _part(labelled, ~drawn[group]), _part(labelled, drawn[group])


def _part(labelled: LabelledTokens, rows: Bool[np.ndarray, " documents"]) -> LabelledTokens:
    corpus = labelled.corpus
    return labelled._replace(corpus=corpus.chosen(rows), labels=labelled.labels[rows])


def _class_indices(
    rows: list[Row], source: str, names: tuple[str, ...]
) -> tuple[Int32[np.ndarray, " documents"], tuple[str, ...]]:
    """Labels as indices into the names of the classes, and these names; default: all labels."""
    labels = [_label(row) for row in rows]
    if not names:
        classes = set(labels)
        integers = all(_INTEGER.fullmatch(name) for name in classes)
        names = tuple(sorted(classes, key=int if integers else str))
    if len(names) < 2:
        remedy = 'pass at least two classes, or `task="causal"`, which needs none'
        raise InputError(f"{source}: every label is {quoted(names[0])}; {remedy}")
    numbers = {name: number for number, name in enumerate(names)}
    for row, label in zip(rows, labels, strict=True):
        if label not in numbers:
            fault = f"{row.location}: unknown label {quoted(label)}"
            raise InputError(f"{fault}; pass one of {listed(names)}")
    return np.array([numbers[label] for label in labels], np.int32), names


def _label(row: Row) -> str:
    """Name of the class of a label: text as it is, a whole number in its shortest form."""
    value = row.label.strip() if isinstance(row.label, str) else row.label
    if isinstance(value, str) and value:
        what = f"{row.location}: label {quoted(value)}"
        check_text(value, what=what, remedy="give it another name")
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    fault = f"{row.location}: label {quoted(str(value))} is no class"
    raise InputError(f"{fault}; leave it out, or pass a column of integers or strings")


def occurring_vocabulary(corpus: TokenCorpus, max_vocab: int | None) -> TokenCorpus:
    """Cut the vocabulary of a corpus to its most frequent words, and add the unknown token."""
    if not vocabulary_occurs(corpus.tokenizer):
        if max_vocab is not None:
            raise InputError(f"{corpus.tokenizer} has a fixed vocabulary; leave `max_vocab` out")
        return corpus
    return _renumbered_corpus(corpus, vocabulary_with_unknown(corpus.tokens, max_vocab))


def shared_vocabulary(other: TokenCorpus, corpus: TokenCorpus) -> TokenCorpus:
    """Renumber a corpus for the vocabulary of another; tokens outside it become unknown."""
    if vocabulary_occurs(corpus.tokenizer):
        return _renumbered_corpus(corpus, other.tokens)
    if corpus.tokens != other.tokens:
        fault = f"the vocabulary of {corpus.tokenizer} differs from the one of `like`"
        raise InputError(f"{fault}; read both with one tokenizer file")
    return corpus


def _renumbered_corpus(corpus: TokenCorpus, tokens: list[str]) -> TokenCorpus:
    """Renumber the tokens for another vocabulary; tokens outside it become its last."""
    numbers = {token: number for number, token in enumerate(tokens)}
    table = np.array([numbers.get(token, len(tokens) - 1) for token in corpus.tokens], np.int32)
    ids = np.where(corpus.mask, table[corpus.ids], 0).astype(np.int32)
    choices = tuple(choice for choice in corpus.choices if choice.setting != VOCABULARY)
    return corpus._replace(ids=ids, tokens=tokens, vocab_size=len(tokens), choices=choices)

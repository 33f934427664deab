"""Types of corpora: documents of text, or rows of token ids."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32, Integer

from jaxpe._core.options import Choice
from jaxpe._core.results import short_repr
from jaxpe.data.corpora.groups import dependent_groups

Source = str | os.PathLike[str]
Sources = Source | Sequence[Source]


def as_sources(sources: Sources) -> list[str]:
    """One source or several, as a list of strings.

    >>> as_sources("a.txt")
    ['a.txt']
    """
    is_one = isinstance(sources, str | os.PathLike)
    return [os.fspath(source) for source in ([sources] if is_one else sources)]


class Corpus(NamedTuple):
    """Documents of text from a built-in name or a file, in order, without blank ones.

    Attributes:
        name: built-in name, or path of the file.
        documents: texts, in the order of the file.
        null_texts: number of rows left out because their text is null or missing.
        choices: settings that were chosen automatically.
        groups: author or source of each document, None for a document without; None without a
            `group_field`.
    """

    name: str
    documents: list[str]
    null_texts: int = 0
    choices: tuple[Choice, ...] = ()
    groups: list[str | None] | None = None

    __repr__ = short_repr


class Document(NamedTuple):
    """Document of a shard.

    Attributes:
        text: text, or token ids int `[n]`.
        group: author or source; None without a `group_field`, or for a document without.
    """

    text: str | Integer[np.ndarray, " n"]
    group: str | None = None


class TokenCorpus(NamedTuple):
    """Documents as token ids, the input of the geometry.

    Attributes:
        name: name of the corpus.
        tokenizer: `"words"`, `"characters"`, `"bytes"`, `"wordpiece"`, `"tokenizer.json"`,
            `"gguf"`, `"ids"`.
        ids: token at each position, 0 where `mask` is false.
        mask: false on padding.
        vocab_size: number of ids; every id is below it.
        exclude: ids of special tokens, which are never counted.
        tokens: text of each of the `vocab_size` ids; `"id 17"` if only the id is known.
        longest: length of the longest document before truncation, special tokens included.
        null_texts, choices: fields of `Corpus`; not exported.
        group_labels: label of the author or source of each document; None without a `group_field`.
            Not exported.
        cut: documents that were cut at the length; None if unknown. Not exported.
    """

    name: str
    tokenizer: str
    ids: Int32[np.ndarray, "documents length"]
    mask: Bool[np.ndarray, "documents length"]
    vocab_size: int
    exclude: tuple[int, ...]
    tokens: list[str]
    longest: int
    null_texts: int = 0
    choices: tuple[Choice, ...] = ()
    group_labels: Int32[np.ndarray, " documents"] | None = None
    cut: Bool[np.ndarray, " documents"] | None = None

    def groups(self) -> Int[np.ndarray, " documents"]:
        """`dependent_groups` of this corpus and its `group_labels`, int32.

        Raises:
            InputError: more than memory holds.

        >>> from jaxpe import data
        >>> films = data.Corpus("films", ["a great film", "dull", "A great film"])
        >>> data.tokenize(films).groups().tolist()
        [0, 1, 0]
        """
        return dependent_groups(self.ids, self.mask, exclude=self.exclude, groups=self.group_labels)

    def chosen(
        self, rows: Int[np.ndarray, " rows"] | Bool[np.ndarray, " documents"]
    ) -> "TokenCorpus":
        """Select documents by rows.

        Args:
            rows: numbers of documents, int `[rows]`, or a mask of them, bool `[documents]`.

        >>> corpus = jaxpe.data.tokens_from_ids([[3, 1], [0, 1], [2, 2]])
        >>> corpus.chosen(np.array([2, 0])).ids.tolist()
        [[2, 2], [3, 1]]
        """
        arrays = {name: getattr(self, name) for name in ("ids", "mask", "group_labels", "cut")}
        return self._replace(**{name: x[rows] for name, x in arrays.items() if x is not None})

    __repr__ = short_repr


def group_labels(groups: Sequence[str | None] | None) -> Int32[np.ndarray, " documents"] | None:
    """Labels of named groups: the index of their first document.

    A document without a group is a group by itself.

    >>> group_labels(["a", None, "a"]).tolist()
    [0, 1, 0]
    """
    if groups is None:
        return None
    first: dict[str | int, int] = {}
    names = (number if name is None else name for number, name in enumerate(groups))
    return np.array([first.setdefault(x, number) for number, x in enumerate(names)], np.int32)

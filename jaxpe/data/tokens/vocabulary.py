"""Words and characters: how they are cut from text, and the vocabularies they make."""

import functools
import itertools
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice, check_range
from jaxpe.data.corpora.corpus import Source
from jaxpe.data.formats.files import check_text, quoted
from jaxpe.data.tokens.ragged import Ragged

UNKNOWN = "[UNK]"
DEFAULT_TOKENIZER = "words"
VOCABULARY = "vocabulary"  # setting of a `Choice`

# Runs longer than words: of Chinese and Japanese, of Thai, Lao, Burmese and Khmer, of any script.
_RUN = re.compile(
    "[\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]{4}|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\uaa60-\uaadf]{13}|.{31}"
)

Encode = Callable[[list[str], int | None], Any]  # ids of texts, cut to a length if any


def vocabulary_of(
    documents: Iterable[str],
    *,
    tokenizer: Source | None = None,
    length: int | None = None,
    max_vocab: int | None = None,
) -> list[str]:
    """The words or characters of documents, most frequent first: a vocabulary for a stream.

    Memory grows with the words that differ, not with the documents.

    Args:
        documents: texts.
        tokenizer: `"words"` or `"characters"`. Default: words, refused as by `tokenize`.
        length: positions of each document that are looked at; all when None.
        max_vocab: the largest vocabulary; rarer ones become `"[UNK]"`, its last.

    Raises:
        InputError: another tokenizer, a `max_vocab` below 2, or text without spaces.

    >>> vocabulary_of(["to be", "or not to be"], max_vocab=3)
    ['be', 'to', '[UNK]']
    """
    name = os.fspath(tokenizer or DEFAULT_TOKENIZER)
    if not vocabulary_occurs(name):
        raise InputError(f"{name} has a vocabulary of its own; use it as it is")
    check_range("max_vocab", max_vocab, least=2)
    counts: Counter[str] = Counter()
    add_occurring(counts, documents, tokenizer=name, length=length)
    if tokenizer is None:
        refuse_undivided(counts, "the text")
    return most_frequent(counts, max_vocab)


def add_occurring(
    counts: Counter[str], documents: Iterable[str], *, tokenizer: str, length: int | None
) -> None:
    """Add how often each word or character occurs in documents, in their first `length`."""
    cut = _CUTS[tokenizer]
    for text in documents:
        counts.update(cut(text, length))


def refuse_undivided(counts: Mapping[str, int], name: str) -> None:
    """Refuse text that spaces do not divide into words: most of it is in runs longer than words.

    Words of Chinese and Japanese have up to 3 characters, of Thai, Lao, Burmese and Khmer up to 12,
    of other languages up to 30, in all but a small part of any text.

    Args:
        counts: number of times that each word occurs.
        name: the corpus, for the message.
    """
    sizes = {token: count * len(token) for token, count in counts.items()}
    runs = {token: size for token, size in sizes.items() if _RUN.search(token)}
    share = sum(runs.values()) / max(1, sum(sizes.values()))
    if share > 0.5:
        raise InputError(
            f"{name}: {100 * share:.0f} % of it is runs without a space that are longer than "
            f"words, such as {quoted(max(runs, key=sizes.__getitem__))}; pass "
            "`tokenizer=characters`, or `tokenizer=words` to take each run as a word"
        )


def most_frequent(counts: Mapping[str, int], max_vocab: int | None) -> list[str]:
    """The vocabulary that `vocabulary_of` makes of tokens that occur so often."""
    vocabulary = _most_frequent_first(counts)
    if max_vocab is None or len(vocabulary) <= max_vocab:
        return vocabulary
    return vocabulary_with_unknown(vocabulary, max_vocab)


def vocabulary_occurs(tokenizer: str) -> bool:
    """Whether a tokenizer makes its vocabulary from the corpus, so that it can be cut."""
    return tokenizer in _CUTS


def all_that_occur(tokenizer: str, size: int, length: int) -> Choice:
    """The choice of a vocabulary that is not cut."""
    why = f"all that occur in the first {length} positions"
    how = "cut it by `max_vocab` of jaxpe count, and pass the folder of the counts as `counts`"
    return Choice(VOCABULARY, f"{size:,} {tokenizer}", why, how)


def vocabulary_with_unknown(vocabulary: list[str], max_vocab: int | None) -> list[str]:
    """A vocabulary cut to a size and ended with `"[UNK]"`, which counts towards the size."""
    check_range("max_vocab", max_vocab, least=2)
    return [*vocabulary[: None if max_vocab is None else max_vocab - 1], UNKNOWN]


def sorted_vocabulary(tokens: Iterable[str]) -> list[str]:
    """A vocabulary sorted by text, with `"[UNK]"` as the last where it is among the tokens.

    >>> sorted_vocabulary(["to", "[UNK]", "be"])
    ['be', 'to', '[UNK]']
    """
    return sorted(tokens, key=lambda token: (token == UNKNOWN, token))


def fixed_encoder(name: str, vocabulary: Sequence[str]) -> Encode:
    """Ids of words or characters in a vocabulary, the text of each id.

    What is not in it is its last where that is `"[UNK]"`.

    Raises:
        InputError: repeats, or half of a surrogate pair; of the encoder, text that is not in a
            vocabulary without `"[UNK]"`.
    """
    numbers = _Fixed(vocabulary)
    if len(numbers) < len(vocabulary) or not numbers:
        raise InputError("the vocabulary is empty or has a token twice; give each one line")
    for token in numbers:
        check_text(token, what=f"the vocabulary: {quoted(token)}", remedy="leave it out")
    return _encoder(name, numbers)


def growing_encoder(name: str) -> tuple[Encode, Sequence[str]]:
    """Encoder that numbers words or characters as they first occur, and the text of each id."""
    numbers = _Growing()
    return _encoder(name, numbers), numbers.tokens


def most_frequent_first(
    ids: Int32[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"],
    tokens: Sequence[str],
) -> tuple[Int32[np.ndarray, "documents n"], list[str]]:
    """Ids of a growing encoder over the vocabulary that `vocabulary_of` would make, and that."""
    counts = np.bincount(ids[mask])
    occurring = {tokens[i]: i for i in np.flatnonzero(counts).tolist()}
    vocabulary = _most_frequent_first(
        dict(zip(occurring, counts[counts > 0].tolist(), strict=True))
    )
    numbers = np.zeros(len(counts), np.int32)
    numbers[[occurring[token] for token in vocabulary]] = np.arange(len(vocabulary))
    return np.where(mask, numbers[ids], 0).astype(np.int32), vocabulary


def _most_frequent_first(counts: Mapping[str, int]) -> list[str]:
    """Tokens by descending frequency, then text."""
    return sorted(counts, key=lambda token: (-counts[token], token))


class _Growing(dict[str, int]):
    """Numbers of tokens in the order in which they are first looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[str] = []

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self.tokens)
        self.tokens.append(token)
        return number


class _Fixed(dict[str, int]):
    """Numbers of the tokens of a vocabulary."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        super().__init__(zip(vocabulary, range(len(vocabulary)), strict=True))
        self._unknown = self.get(UNKNOWN) if vocabulary and vocabulary[-1] == UNKNOWN else None

    def __missing__(self, token: str) -> int:
        if self._unknown is None:
            raise InputError(
                f"{quoted(token)} is not in the vocabulary; make the vocabulary from these "
                f"documents too, or end it with {UNKNOWN}"
            )
        return self._unknown


def _encoder(name: str, numbers: dict[str, int]) -> Encode:
    cut, number = _CUTS[name], numbers.__getitem__

    def encode(texts: list[str], length: int | None) -> Ragged:
        cuts = [cut(text, length) for text in texts]
        lengths = np.fromiter(map(len, cuts), np.int64, len(cuts))
        tokens = itertools.chain.from_iterable(cuts)
        return Ragged(np.fromiter(map(number, tokens), np.int32, int(lengths.sum())), lengths)

    return encode


def _words(text: str, length: int | None) -> list[str]:
    """The words and single symbols of a text in lower case, the first `length`."""
    (pattern, formats), text = _word_patterns(), text.lower()
    if not text.isascii():
        text = formats.sub("", text)
    return pattern.findall(text)[:length]


# The others hold Chinese characters, private ones and nothing (a test searches them all).
_PLANES_WITH_MARKS = range(0xAD, 0x2_0000), range(0xE_0000, 0xE_1000)
# Joiners, colours of skin and tags of flags, which extend a symbol or word as marks do.
_EXTENDING = {0x200C, 0x200D, *range(0x1_F3FB, 0x1_F400), *range(0xE_0020, 0xE_0080)}


@functools.cache
def _word_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word or symbol, and of format characters, which are dropped before.

    By rule WB4 of UAX #29, marks, joiners and format characters do not cut a word. Marks and
    joiners stay in it, since they change what is read. A soft hyphen or a direction does not. A
    zero-width space ends a word.
    """
    kinds = {p: unicodedata.category(chr(p)) for p in itertools.chain(*_PLANES_WITH_MARKS)}
    extends = {p for p, kind in kinds.items() if kind[0] == "M"} | _EXTENDING
    formats = {p for p, kind in kinds.items() if kind == "Cf"} - extends - {0x200B}
    extending = "".join(map(chr, sorted(extends)))
    # Python's \w leaves out marks. The look ahead spares ASCII the search through them, which takes
    # four times as long.
    more = rf"(?![\x00-\x7f])[{extending}]+"
    other = rf"[^\w\s\u200b{extending}]"
    # Two letters make a flag, and a joiner makes one symbol of two (WB3c, WB15).
    symbol = rf"(?!\s)(?:[!-~]|[🇦-🇿]{{2}}|{other})(?:{more}(?:(?<=\u200d){other})?)*"
    dropped = "".join(map(chr, sorted(formats)))
    return re.compile(rf"\w+(?:{more}\w*)*|{symbol}"), re.compile(f"[{dropped}]+")


_CUTS: dict[str, Callable[[str, int | None], Sequence[str]]] = {
    "words": _words,
    "characters": lambda text, length: text[:length],
}

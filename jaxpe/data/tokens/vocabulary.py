"""Tokenization into words and characters, and their vocabularies."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice, check_range
from jaxpe.data.formats.files import check_text, quoted
from jaxpe.data.tokens.ragged import Ragged

UNKNOWN = "[UNK]"
UNKNOWNS = (UNKNOWN, "<unk>", "<UNK>")  # also in files of tokenizers
DEFAULT_TOKENIZER = "words"
VOCABULARY = "vocabulary"  # setting of a `Choice`
# Counts are as long as the vocabulary; an id in the billions is a hash, not an id.
LARGEST_VOCABULARY = 10_000_000

# Runs longer than words: of Chinese and Japanese, of Thai, Lao, Burmese and Khmer, of any script.
_RUN = re.compile(
    "[\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]{4}|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\uaa60-\uaadf]{13}|.{31}"
)

Encode = Callable[[list[str], int | None], Any]  # ids of texts, cut to a length if any


def refuse_undivided(counts: Mapping[str, int], name: str) -> None:
    """Raise for text that spaces do not divide into words: most of it is in longer runs.

    Almost all words of Chinese and Japanese have at most 3 characters. For Thai, Lao, Burmese and
    Khmer the limit is 12, for other languages 30.

    Args:
        counts: number of occurrences of each word.
        name: name of the corpus, for the message.
    """
    sizes = {token: count * len(token) for token, count in counts.items()}
    runs = {token: size for token, size in sizes.items() if _RUN.search(token)}
    share = sum(runs.values()) / max(1, sum(sizes.values()))
    if share > 0.5:
        longest = quoted(max(runs, key=sizes.__getitem__))
        raise InputError(
            f"{name}: {100 * share:.0f} % of it is in runs longer than words, such as {longest}; "
            "pass `tokenizer=characters`, or `tokenizer=words` to use each run as a word"
        )


def vocabulary_occurs(tokenizer: str) -> bool:
    """Whether a tokenizer's vocabulary comes from the corpus, as for words and characters."""
    return tokenizer in _CUTS


def all_that_occur(tokenizer: str, size: int, length: int) -> Choice:
    """Record of the choice of a complete vocabulary."""
    why = f"all that occur in the first {length} positions"
    how = "cut it by `max_vocab` of jaxpe count, and pass the folder of the counts as `counts`"
    return Choice(VOCABULARY, f"{size:,} {tokenizer}", why, how)


def vocabulary_with_unknown(vocabulary: list[str], max_vocab: int | None) -> list[str]:
    """Vocabulary cut to a size, with `"[UNK]"` as the last token, which counts in the size."""
    check_range("max_vocab", max_vocab, least=2)
    return [*vocabulary[: None if max_vocab is None else max_vocab - 1], UNKNOWN]


def sorted_vocabulary(tokens: Iterable[str]) -> list[str]:
    """Vocabulary sorted by text; `"[UNK]"` is last if it is among the tokens.

    >>> sorted_vocabulary(["to", "[UNK]", "be"])
    ['be', 'to', '[UNK]']
    """
    return sorted(tokens, key=lambda token: (token == UNKNOWN, token))


def text_encoder(
    name: str, vocabulary: Sequence[str] | None = None
) -> tuple[Encode, Sequence[str]]:
    """Encoder of words, characters or k-mers, and the text of each id.

    Args:
        name: name of the tokenizer.
        vocabulary: text of each id. If the last text is `"[UNK]"`, it replaces unknown tokens.
            Default: tokens are numbered by first occurrence.

    Raises:
        InputError: an empty vocabulary, repeated tokens, or half of a surrogate pair. The encoder
            raises it for unknown tokens if the vocabulary has no `"[UNK]"`.
    """
    numbers = _Growing() if vocabulary is None else _Fixed(vocabulary)
    cut, number = _CUTS[name], numbers.__getitem__

    def encode(texts: list[str], length: int | None) -> Ragged:
        cuts = [cut(text, length) for text in texts]
        lengths = np.fromiter(map(len, cuts), np.int64, len(cuts))
        tokens = itertools.chain.from_iterable(cuts)
        return Ragged(np.fromiter(map(number, tokens), np.int32, int(lengths.sum())), lengths)

    return encode, numbers.tokens


def most_frequent_first(
    ids: Int32[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"],
    tokens: Sequence[str],
) -> tuple[Int32[np.ndarray, "documents n"], dict[str, int]]:
    """Ids renumbered by descending frequency, then text, and the count of each token."""
    counts = np.bincount(ids[mask]).tolist()
    occurring = (i for i, count in enumerate(counts) if count)
    order = sorted(occurring, key=lambda i: (-counts[i], tokens[i]))
    numbers = np.zeros(len(counts), np.int32)
    numbers[order] = np.arange(len(order))
    return np.where(mask, numbers[ids], 0), {tokens[i]: counts[i] for i in order}


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
        self.tokens = list(vocabulary)
        super().__init__((token, number) for number, token in enumerate(self.tokens))
        if len(self) < len(self.tokens) or not self:
            raise InputError("the vocabulary is empty or has a token twice; give each one line")
        for token in self:
            check_text(token, what=f"the vocabulary: {quoted(token)}", remedy="leave it out")
        self._unknown = self[UNKNOWN] if self.tokens[-1] == UNKNOWN else None

    def __missing__(self, token: str) -> int:
        if self._unknown is None:
            remedy = f"add it, or end the vocabulary with {UNKNOWN}"
            raise InputError(f"{quoted(token)} is not in the vocabulary; {remedy}")
        return self._unknown


# The pattern of `_word_patterns` on ASCII, in three quarters of the time.
_ASCII_WORD = re.compile(r"\w+|[^\w\s\x1c-\x1f]", re.ASCII)


def _words(text: str, length: int | None) -> list[str]:
    """First `length` words and single symbols of a text, in lower case."""
    text = text.lower()
    if text.isascii():
        return _ASCII_WORD.findall(text)[:length]
    pattern, formats = _word_patterns()
    return pattern.findall(formats.sub("", text))[:length]


# Other planes have Chinese and private characters alone, as a test checks.
_PLANES_WITH_MARKS = range(0xAD, 0x2_0000), range(0xE_0000, 0xE_1000)
# Joiners, colours of skin and tags of flags, which extend a symbol or word as marks do.
_EXTENDING = {0x200C, 0x200D, *range(0x1_F3FB, 0x1_F400), *range(0xE_0020, 0xE_0080)}


@functools.cache
def _word_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word or symbol, and of format characters, which are removed first.

    By rule WB4 of UAX #29, marks, joiners and format characters do not divide a word. Marks and
    joiners stay, since they change the text. Soft hyphens and directions do not. A zero-width space
    ends a word.
    """
    kinds = {p: unicodedata.category(chr(p)) for p in itertools.chain(*_PLANES_WITH_MARKS)}
    extends = {p for p, kind in kinds.items() if kind[0] == "M"} | _EXTENDING
    formats = {p for p, kind in kinds.items() if kind == "Cf"} - extends - {0x200B}
    extending = "".join(map(chr, sorted(extends)))
    # Python's \w lacks marks. The lookahead skips the search through them for ASCII, which would
    # take four times as long.
    more = rf"(?![\x00-\x7f])[{extending}]+"
    other = rf"[^\w\s\u200b{extending}]"
    # Two letters make a flag, and a joiner makes one symbol of two (WB3c, WB15).
    symbol = rf"(?!\s)(?:[!-~]|[🇦-🇿]{{2}}|{other})(?:{more}(?:(?<=\u200d){other})?)*"
    dropped = "".join(map(chr, sorted(formats)))
    return re.compile(rf"\w+(?:{more}\w*)*|{symbol}"), re.compile(f"[{dropped}]+")


def _kmers(text: str, length: int | None, *, k: int, step: int) -> list[str]:
    """First `length` substrings of k characters, one every `step` characters."""
    starts = range(0, len(text) - k + 1, step)[:length]
    return [text[start : start + k] for start in starts]


_CUTS: dict[str, Callable[[str, int | None], Sequence[str]]] = {
    "words": _words,
    "characters": lambda text, length: text[:length],
    "codons": functools.partial(_kmers, k=3, step=3),
    **{f"kmer:{k}": functools.partial(_kmers, k=k, step=1) for k in range(1, 13)},
}

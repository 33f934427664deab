"""Pretrained tokenizers from their files: `tokenizer.json`, BERT's `vocab.txt`, and .gguf.

The library `tokenizers` does the work; here is what it does not do: limits for files from outside,
and errors of one line.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.json_values import read_small
from jaxpe._core.options import Choice
from jaxpe.data.corpora.corpus import Source
from jaxpe.data.formats.files import decoded
from jaxpe.data.tokens.gguf_tokenizer import tokenizer_of_gguf
from jaxpe.data.tokens.token_ids import LARGEST_VOCABULARY

_PADDING = ("[PAD]", "<pad>")
_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LARGEST_FILE = 2**27  # bytes; those of large models have a quarter of it
_LONGEST_PIECE = 1000  # letters; SentencePiece makes up to 16 where it is not asked for more
_SHOWN = 300  # characters of what the library says of an error
_STANDARD_ERROR = 2
_PROBES = 1000  # tokens that are tried in search of one that becomes ids


class Pretrained(NamedTuple):
    """The model of a file, which neither pads nor truncates."""

    path: Path
    model: Any  # of the library
    text: str  # the content of the file
    tokens: list[str]  # the text of each id
    padding: set[int]  # ids that would pad
    choices: tuple[Choice, ...] = ()  # settings that are not those of the file

    @property
    def name(self) -> str:
        """The kind of the file: "tokenizer.json", "wordpiece" or "gguf"."""
        return {".json": "tokenizer.json", ".gguf": "gguf"}.get(self.path.suffix, "wordpiece")

    def rows(self, texts: list[str], length: int | None) -> list[list[int]]:
        """Whole texts as ids, without special tokens, on every core."""
        remedy = "pass a tokenizer with an unknown token"
        with _errors_of(f"{self.path} cannot encode a text", remedy):
            rows = self.model.encode_batch_fast(texts, add_special_tokens=False)
            return [row.ids for row in rows]

    def special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids that the model's own post-processor puts before and after a document."""
        if not self.model.num_special_tokens_to_add(False):
            raise InputError(
                f"{self.path} adds no special tokens to a document; leave `special` out, "
                "or pass a tokenizer with [CLS] and [SEP]"
            )
        with _errors_of(f"{self.path} cannot add its special tokens"), _silent_panics():
            encoding = self._encoded_probe()
        if encoding is None:
            return (), ()
        inside = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
        check_ids(encoding.ids, len(self.tokens), str(self.path))
        return tuple(encoding.ids[: inside[0]]), tuple(encoding.ids[inside[-1] + 1 :])

    def _encoded_probe(self) -> Any:
        """Some text that becomes ids, encoded with special tokens; None where none does."""
        refused = None
        # A tokenizer of another script may have no Latin letter, but it has its own tokens.
        for probe in itertools.chain("a1.", self.tokens[:_PROBES]):
            try:
                encoding = self.model.encode(probe)
            except BaseException as error:  # of a letter that it does not know, or of any
                if not _of_library(error):
                    raise
                refused = error
                continue
            if 0 in encoding.special_tokens_mask:
                return encoding
        if refused is not None:
            raise refused
        return None


def open_pretrained(tokenizer: Source) -> Pretrained:
    """The tokenizer of a file or of a directory with one; `InputError` where it is unusable."""
    path = _file_of(tokenizer)
    kind, made = {
        ".json": ("tokenizer.json", _of_json),
        ".gguf": (".gguf with a tokenizer", _of_gguf),
    }.get(path.suffix, ("vocab.txt", _of_vocabulary))
    with _errors_of(f"{path} is not a {kind}"), _silent_panics():
        model, text = made(path)
        padding = _padding_ids(model, model.padding)
        model.no_padding()
        model.no_truncation()
        choices = _without_dropout(model.model)
        size = 1 + max(model.get_vocab(with_added_tokens=True).values(), default=-1)
    if not 0 < size <= LARGEST_VOCABULARY:
        raise InputError(
            f"{path} has ids up to {size - 1:,}; pass a tokenizer of 1 to {LARGEST_VOCABULARY:,}"
        )
    tokens = [model.id_to_token(number) or f"id {number}" for number in range(size)]
    return Pretrained(path, model, text, tokens, padding & {*range(size)}, choices)


def tokenizer_of_model(path: Path) -> Path:
    """The file with the tokenizer of a model in a folder or a .gguf.

    A .gguf has its own, and a `tokenizer.json` or `vocab.txt` beside it comes first. `InputError`
    where there is none.
    """
    folder = path.parent if path.is_file() else path
    files = [folder / "tokenizer.json", folder / "vocab.txt"]
    files += [path] if path.is_file() else sorted(folder.glob("*.gguf"))
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise InputError(
            f"{folder} holds no tokenizer.json, vocab.txt or .gguf: put one there, or pass one as "
            "`tokenizer`"
        )
    return found


def check_ids(ids: Any, size: int, name: str) -> None:
    """Refuse ids that are not below the size of the vocabulary."""
    largest = int(np.max(ids, initial=0))
    if largest >= size:
        raise InputError(
            f"{name} gives id {largest}, and its vocabulary has {size}; pass a whole tokenizer"
        )


def _file_of(tokenizer: Source) -> Path:
    path = Path(tokenizer)
    if path.is_dir():
        return tokenizer_of_model(path)
    if not path.exists():
        raise InputError(
            f"unknown tokenizer {os.fspath(tokenizer)!r}: no such file; pass words, characters, "
            "bytes, or the path of a tokenizer.json, a vocab.txt or a .gguf"
        )
    return path


def _content(path: Path) -> str:
    remedy = "pass a vocab.txt or tokenizer.json"
    return decoded(read_small(path, remedy=remedy, largest=_LARGEST_FILE), str(path))


def _of_json(path: Path) -> tuple[Any, str]:
    tokenizers = require("tokenizers", extra="data")
    text = _content(path)
    # The library keeps pieces letter by letter, and runs out of stack where one is very long.
    model = json.loads(text)["model"] if '"Unigram"' in text else {}
    pieces = model["vocab"] if model.get("type") == "Unigram" else []
    if (longest := max((len(piece) for piece, _ in pieces), default=0)) > _LONGEST_PIECE:
        raise InputError(
            f"{path} has a piece of {longest:,} letters; pass a tokenizer without such pieces"
        )
    return tokenizers.Tokenizer.from_str(text), text


def _of_gguf(path: Path) -> tuple[Any, str]:
    model = tokenizer_of_gguf(path)
    return model, model.to_str()


def _of_vocabulary(path: Path) -> tuple[Any, str]:
    text = _content(path)
    return _wordpiece(path, text), text


def _wordpiece(path: Path, text: str) -> Any:
    tokenizers = require("tokenizers", extra="data")
    if (lines := text.count("\n")) > LARGEST_VOCABULARY:
        raise InputError(
            f"{path} has {lines:,} lines; pass a vocabulary of at most {LARGEST_VOCABULARY:,}"
        )
    # Not splitlines, which splits at characters that are pieces, such as U+2028.
    pieces = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    ids = {piece: i for i, piece in enumerate(pieces)}
    if "[UNK]" not in ids:
        raise InputError(f"{path} has no line [UNK]; pass the vocab.txt of a BERT model")
    special = [token for token in _BERT_SPECIAL if token in ids]
    # An uncased vocabulary has no capitals outside its special tokens.
    uncased = all(piece == piece.lower() for piece in ids.keys() - special)
    model = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    model.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=uncased)
    model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    model.add_special_tokens(special)
    if "[CLS]" in ids and "[SEP]" in ids:
        model.post_processor = tokenizers.processors.BertProcessing(
            ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
        )
    return model


def _padding_ids(model: Any, padding: dict[str, Any] | None) -> set[int]:
    if padding:
        return {padding["pad_id"]}
    return {i for token in _PADDING if (i := model.token_to_id(token)) is not None}


def _without_dropout(model: Any) -> tuple[Choice, ...]:
    """Switch the dropout of byte-pair encoding off, which draws other tokens at each call."""
    if not (share := getattr(model, "dropout", None)):
        return ()
    model.dropout = None
    why = f"its file has {share:g}: the tokens of a text would differ from run to run"
    return (Choice("dropout of the tokenizer", "0", why, 'set `"dropout": null` in the file'),)


@contextlib.contextmanager
def _errors_of(what: str, remedy: str = "pass a Hugging Face tokenizer") -> Iterator[None]:
    """Context in which errors of the library become an `InputError`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, InputError) or not _of_library(error):
            raise
        reason = " ".join(str(error).split())[:_SHOWN]
        raise InputError(f"{what}: {reason}; {remedy}") from error


def _of_library(error: BaseException) -> bool:
    """Whether the library may have raised it: exceptions, and panics of Rust, which are none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextlib.contextmanager
def _silent_panics() -> Iterator[None]:
    """Keep what Rust prints of a panic from standard error; the error says it in one line."""
    try:
        saved = os.dup(_STANDARD_ERROR)
    except OSError:  # closed
        yield
        return
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(saved, _STANDARD_ERROR)
            os.close(saved)

"""Pretrained tokenizers from their files: `tokenizer.json`, BERT's `vocab.txt`, and .gguf."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError, reason, require
from jaxpe._core.json_values import read_small
from jaxpe._core.options import Choice
from jaxpe.data.corpora.corpus import Source
from jaxpe.data.formats.files import decoded
from jaxpe.data.tokens.gguf_tokenizer import read_gguf_tokenizer
from jaxpe.data.tokens.vocabulary import LARGEST_VOCABULARY

_PADDING = ("[PAD]", "<pad>")
_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LARGEST_FILE = 2**27  # bytes; four times the file of a large model
_CONVERT = (
    "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers writes a "
    "tokenizer.json"
)
# How files of other libraries begin: with the first piece and its score in a protobuf; with a token
# in base64 and its rank.
_OTHER_LIBRARIES = {
    "SentencePiece": re.compile(rb"\n.\n.[^\n]*?\x15.{4}", re.DOTALL),
    "tiktoken": re.compile(rb"[A-Za-z0-9+/]+=* 0\r?\n"),
}


class Pretrained(NamedTuple):
    """Tokenizer of a file, without padding and truncation."""

    path: Path
    model: Any  # `tokenizers.Tokenizer`
    text: str  # content of the file
    tokens: list[str]  # text of each id
    padding: set[int]  # ids of padding
    choices: tuple[Choice, ...] = ()  # settings that differ from the file's
    cut: int = 0  # tokens at which the file truncates texts; 0 if it does not

    @property
    def name(self) -> str:
        """Kind of the file: "tokenizer.json", "wordpiece" or "gguf"."""
        return {".json": "tokenizer.json", ".gguf": "gguf"}.get(self.path.suffix, "wordpiece")

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Encode texts without special tokens, on every core."""
        remedy = "pass a tokenizer with an unknown token"
        with _library_errors(f"{self.path} cannot encode a text", remedy):
            rows = self.model.encode_batch_fast(texts, add_special_tokens=False)
            return [row.ids for row in rows]

    def special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids that the model's post-processor puts before and after a document."""
        if not self.model.num_special_tokens_to_add(False):
            raise InputError(f"{self.path} adds no special tokens; leave `special` out")
        tokenizers = require("tokenizers", extra="data")
        # A document of one token by another tokenizer, since this one may lack any letter.
        document = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a")).encode("a")
        with _library_errors(f"{self.path} cannot add special tokens", "leave `special` out"):
            encoding = self.model.post_process(document)
        if max(encoding.ids) >= len(self.tokens):
            fault = f"adds id {max(encoding.ids)}, but its vocabulary has {len(self.tokens)}"
            raise InputError(f"{self.path} {fault}; pass a complete tokenizer")
        at = encoding.special_tokens_mask.index(0)
        return tuple(encoding.ids[:at]), tuple(encoding.ids[at + 1 :])


def open_pretrained(tokenizer: Source) -> Pretrained:
    """Open the tokenizer of a file or folder; raises `InputError` if it is unusable."""
    path = _tokenizer_file(tokenizer)
    with _library_errors(f"{path} has no tokenizer that can be read"):
        if path.suffix == ".gguf":
            model = read_gguf_tokenizer(path)
            text = model.to_str()
        else:
            text = _file_text(path)
            is_json = path.suffix == ".json"
            library = require("tokenizers", extra="data")
            model = library.Tokenizer.from_str(text) if is_json else _wordpiece(path, text)
        padding = _padding_ids(model)
        model.no_padding()
        cut = (model.truncation or {}).get("max_length", 0)
        model.no_truncation()
        choices = _disable_dropout(model.model)
        size = 1 + max(model.get_vocab(with_added_tokens=True).values(), default=-1)
    if not 0 < size <= LARGEST_VOCABULARY:
        raise InputError(
            f"{path} has ids up to {size - 1:,}; pass a tokenizer of 1 to {LARGEST_VOCABULARY:,}"
        )
    tokens = [model.id_to_token(number) or f"id {number}" for number in range(size)]
    return Pretrained(path, model, text, tokens, padding & {*range(size)}, choices, cut)


def _file_text(path: Path) -> str:
    """Text of a tokenizer.json or vocab.txt; raises `InputError` for files of other libraries."""
    content = read_small(path, remedy="pass a vocab.txt or tokenizer.json", largest=_LARGEST_FILE)
    for kind, beginning in _OTHER_LIBRARIES.items():
        if beginning.match(content):
            raise InputError(
                f"{path} is a {kind} model; pass the tokenizer.json or .gguf of its model, or copy "
                f"it as tokenizer.model into an empty folder, where {_CONVERT} (tiktoken: right if "
                "the model splits words as GPT-4 does)"
            )
    return decoded(content, str(path))


def model_tokenizer_file(path: Path) -> Path:
    """File of a model's tokenizer, from the model's folder or .gguf.

    A `tokenizer.json` or `vocab.txt` next to a .gguf has priority. Raises `InputError` for a model
    without a tokenizer.
    """
    folder = path.parent if path.is_file() else path
    files = [folder / "tokenizer.json", folder / "vocab.txt"]
    files += [path] if path.is_file() else sorted(folder.glob("*.gguf"))
    for file in files:
        if file.is_file():
            return file
    fault = f"{folder} holds no tokenizer.json, vocab.txt or .gguf"
    raise InputError(f"{fault}; pass one as `tokenizer`; {_CONVERT}")


def _tokenizer_file(tokenizer: Source) -> Path:
    path = Path(tokenizer)
    if path.is_dir():
        return model_tokenizer_file(path)
    if not path.exists():
        names = "words, characters, bytes, or the path of a tokenizer.json, vocab.txt or .gguf"
        raise InputError(f"unknown tokenizer {os.fspath(tokenizer)!r}: no such file; pass {names}")
    return path


def _wordpiece(path: Path, text: str) -> Any:
    """BERT's WordPiece tokenizer, from the lines of its vocabulary."""
    tokenizers = require("tokenizers", extra="data")
    # Not `splitlines`, which also splits at characters that are pieces, such as U+2028.
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


def _padding_ids(model: Any) -> set[int]:
    if model.padding:
        return {model.padding["pad_id"]}
    return {i for token in _PADDING if (i := model.token_to_id(token)) is not None}


def _disable_dropout(model: Any) -> tuple[Choice, ...]:
    """Switch off the dropout of byte-pair encoding, which would make tokens random."""
    if not (share := getattr(model, "dropout", None)):
        return ()
    model.dropout = None
    why = f"its file has {share:g}: the tokens of a text would differ from run to run"
    return (Choice("dropout of the tokenizer", "0", why, 'set `"dropout": null` in the file'),)


@contextlib.contextmanager
def _library_errors(what: str, remedy: str = "pass a Hugging Face tokenizer") -> Iterator[None]:
    """Context in which errors of the library, and panics of its Rust code, become `InputError`."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        # A panic is not an `Exception`, and has no public type.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what}: {reason(error)}; {remedy}") from error

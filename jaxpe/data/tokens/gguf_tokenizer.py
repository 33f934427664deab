"""Tokenizers that files of llama.cpp (.gguf) carry, as models of the library `tokenizers`.

Two kinds of byte-pair encoding occur in decoders: "gpt2" lists its merges and names the rule by
which text is split into words before; "llama" (SentencePiece) has a score for each token, and two
tokens are merged in the order of the score of what they make.
"""

import functools
import itertools
import os
from collections.abc import Mapping
from typing import Any

from jaxpe._core.errors import InputError, require
from jaxpe._core.gguf import read_gguf

_PREFIX = "tokenizer.ggml."
_CONTROL, _USER_DEFINED = 3, 4  # kinds of tokens that are found in the text as they are
_SPACE = "\u2581"
# Both several times what 260,000 tokens need: of 49,152 (SmolLM2) 107,441 and 2.8 million.
_MOST_MERGES = 2**21
_MOST_LETTERS = 2**26  # of the parts of tokens that are looked up
# The splitting rules of llama.cpp (`llama-vocab.cpp`) and the names that files have for them.
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_RULES = {
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "dbrx": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "qwen2": _LLAMA3.replace("{1,3}", ""),
    "stablelm2": _LLAMA3.replace("{1,3}", ""),
    "deepseek-r1-qwen": _LLAMA3.replace("{1,3}", ""),
    # The rule of GPT-2, which `tokenizers` implements, after single digits or at once.
    "smollm": "digits",
    "starcoder": "digits",
    "refact": "digits",
    "command-r": "digits",
    "gpt-2": "",
    "phi-2": "",
    "olmo": "",
    "mpt": "",
}
_WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3")  # words that are tokens are not merged


def tokenizer_of_gguf(path: str | os.PathLike[str]) -> Any:
    """The tokenizer in a .gguf file, as a `tokenizers.Tokenizer`.

    `InputError` for a file without one, of another kind, or with a splitting rule that is not
    known here.
    """
    found = os.stat(path)
    return _opened(os.fspath(path), found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=1)
def _opened(path: str, modified: int, size: int) -> Any:
    """The tokenizer of a file as it is now: merges of 260,000 scores take seconds to find."""
    metadata, _ = read_gguf(path, whole=_PREFIX)
    own = {key.removeprefix(_PREFIX): value for key, value in metadata.items()}
    kind = own.get("model")
    make = {"gpt2": _of_merges, "llama": _of_scores}.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise InputError(
            f"{path} has a tokenizer of kind {kind!r}; gpt2 and llama can be read: pass the "
            "tokenizer.json of the model as `tokenizer`"
        )
    tokens = own.get("tokens")
    if not isinstance(tokens, list) or len(set(tokens)) != len(tokens):
        raise InputError(f"{path}: {_PREFIX}tokens is not a list of different tokens")
    model = make(path, own, {token: i for i, token in enumerate(tokens)})
    _add_special(model, own, tokens)
    return model


def _of_merges(path: Any, own: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    """Byte pairs of a list of merges."""
    tokenizers = require("tokenizers", extra="data")
    name, merges = own.get("pre"), own.get("merges")
    if name not in _RULES:
        raise InputError(
            f"{path}: its tokenizer splits words by the rule {name!r}; {', '.join(_RULES)} can be "
            "read: pass the tokenizer.json of the model as `tokenizer`"
        )
    pairs = [tuple(pair.split(" ")) for pair in merges or ()]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocabulary, pairs, ignore_merges=name in _WHOLE_FIRST)
    )
    first, of_gpt2 = _split(tokenizers.pre_tokenizers, _RULES[name])
    by_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=of_gpt2)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*first, by_bytes])
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def _split(available: Any, rule: str) -> tuple[list[Any], bool]:
    """Pre-tokenizers before the split into bytes, and whether GPT-2's rule is part of that."""
    if rule == "digits":
        return [available.Digits(individual_digits=True)], True
    if rule:
        return [available.Split(require("tokenizers", extra="data").Regex(rule), "isolated")], False
    return [], True


def _of_scores(path: Any, own: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    """Byte pairs in the order of scores; characters without a token are encoded as bytes."""
    tokenizers = require("tokenizers", extra="data")
    scores = own.get("scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise InputError(f"{path}: {_PREFIX}scores is not a list of a score for each token")
    unknown = _token(own, "unknown", [*vocabulary])
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocabulary,
            _merges(path, vocabulary, scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback="<0x00>" in vocabulary,
        )
    )
    prefixed = own.get("add_space_prefix", True)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    spaces = normalizers.Replace(" ", _SPACE)
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(_SPACE), spaces] if prefixed else [spaces]
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([decoders.Strip(" ", 1, 0)] if prefixed else [])
    )
    return made


def _merges(path: Any, vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """All pairs of tokens that make a token, by its score, the best first."""
    tokens, sizes = [*vocabulary], sorted({*map(len, vocabulary)})
    lengths, found, letters = {*sizes}, list[tuple[float, int, int]](), 0
    for token, number in vocabulary.items():
        shorter = itertools.takewhile(len(token).__gt__, sizes)
        for cut in (size for size in shorter if len(token) - size in lengths):
            letters += len(token)
            left, right = vocabulary.get(token[:cut]), vocabulary.get(token[cut:])
            if left is not None and right is not None:
                found.append((-scores[number], left, right))
        if letters > _MOST_LETTERS or len(found) > _MOST_MERGES:
            raise InputError(
                f"{path}: its {len(tokens):,} tokens of up to {sizes[-1]:,} letters have too many "
                "merges to list: pass the tokenizer.json of the model as `tokenizer`"
            )
    return [(tokens[left], tokens[right]) for _, left, right in sorted(found)]


def _add_special(model: Any, own: Mapping[str, Any], tokens: list[str]) -> None:
    """Add tokens that are found as they are, and those before and after a document."""
    tokenizers = require("tokenizers", extra="data")
    kinds = own.get("token_type", [])
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        found = [token for token, its in zip(tokens, kinds, strict=False) if its == kind]
        added = [tokenizers.AddedToken(t, special=special, normalized=False) for t in found if t]
        (model.add_special_tokens if special else model.add_tokens)(added)
    # As in llama.cpp, where the file has no entry.
    first = own.get("model") == "llama" or own.get("pre") in _WHOLE_FIRST
    ends = {
        name: token
        for name, default in (("bos", first), ("eos", False))
        if own.get(f"add_{name}_token", default) and (token := _token(own, name, tokens))
    }
    if ends:
        # By names of their own: the text of a token may mean something else in a template.
        added_ends = [{"id": n, "ids": [tokens.index(t)], "tokens": [t]} for n, t in ends.items()]
        template = " ".join(part for part in ("bos", "$A", "eos") if part in {"$A", *ends})
        model.post_processor = tokenizers.processors.TemplateProcessing(
            single=template, special_tokens=added_ends
        )


def _token(own: Mapping[str, Any], name: str, tokens: list[str]) -> str | None:
    """The token that a file has for a use, such as the beginning of a document."""
    number = own.get(f"{name}_token_id")
    known = isinstance(number, int) and 0 <= number < len(tokens)
    return tokens[number] if known else None

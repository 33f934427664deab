"""Tokenizers of llama.cpp's files (.gguf), as models of the library `tokenizers`.

Decoders have two kinds of byte-pair encoding. "gpt2" lists its merges, and names the rule that
first splits text into words. "llama" (SentencePiece) has a score for each token, and merges the
pair whose result has the best score.
"""

import os
from collections.abc import Mapping
from typing import Any

from jaxpe._core.errors import InputError, require
from jaxpe._core.gguf import read_gguf

_PREFIX = "tokenizer.ggml."
_CONTROL, _USER_DEFINED = 3, 4  # types of tokens that are matched in the text before splitting
_SPACE = "\u2581"
_REMEDY = "pass the tokenizer.json of the model as `tokenizer`"
# The splitting rules of llama.cpp (`llama-vocab.cpp`), by the names in files.
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_DIGITS = r"\p{N}"  # single digits, then the rule of GPT-2
_RULES = (
    dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"), _LLAMA3)
    | dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen"), _QWEN2)
    | dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), _DIGITS)
    | dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt"), None)  # the rule of GPT-2 alone
)
_UNMERGED = ("llama-bpe", "llama3", "llama-v3")  # words that are tokens are not merged


def read_gguf_tokenizer(path: str | os.PathLike[str]) -> Any:
    """Tokenizer of a .gguf file, as a `tokenizers.Tokenizer`.

    Raises `InputError` for a file without a tokenizer, another kind of tokenizer, or an unknown
    splitting rule.
    """
    metadata, _ = read_gguf(path, full_prefix=_PREFIX)
    fields = {key.removeprefix(_PREFIX): value for key, value in metadata.items()}
    kind, tokens = fields.get("model"), fields.get("tokens")
    if kind not in ("gpt2", "llama"):
        raise InputError(
            f"{path} has a tokenizer of kind {kind!r}; gpt2 and llama can be read: {_REMEDY}"
        )
    if not isinstance(tokens, list) or len(set(tokens)) != len(tokens):
        raise InputError(f"{path}: {_PREFIX}tokens is not a list of different tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    make = _merge_tokenizer if kind == "gpt2" else _score_tokenizer
    model = make(path, fields, vocabulary)
    _add_special(model, fields, tokens)
    return model


def _merge_tokenizer(path: Any, fields: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    """Byte-pair encoding by a list of merges."""
    tokenizers = require("tokenizers", extra="data")
    name = fields.get("pre")
    if name not in _RULES:
        raise InputError(
            f"{path}: its tokenizer splits words by the rule {name!r}; {', '.join(_RULES)} can be "
            f"read: {_REMEDY}"
        )
    merges = [tuple(pair.split(" ")) for pair in fields.get("merges") or ()]
    model = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocabulary, merges, ignore_merges=name in _UNMERGED)
    )
    rule, steps = _RULES[name], tokenizers.pre_tokenizers
    split = [] if rule is None else [steps.Split(tokenizers.Regex(rule), "isolated")]
    as_bytes = steps.ByteLevel(add_prefix_space=False, use_regex=rule in (None, _DIGITS))
    model.pre_tokenizer = steps.Sequence([*split, as_bytes])
    return model


def _score_tokenizer(path: Any, fields: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    """Byte-pair encoding in the order of scores; characters without a token become bytes."""
    tokenizers = require("tokenizers", extra="data")
    scores = fields.get("scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise InputError(f"{path}: {_PREFIX}scores is not a list of a score for each token")
    model = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocabulary,
            _merges(vocabulary, scores),
            unk_token=_special_token(fields, "unknown", [*vocabulary]),
            fuse_unk=True,
            byte_fallback="<0x00>" in vocabulary,
        )
    )
    steps = tokenizers.normalizers
    prefix = [steps.Prepend(_SPACE)] if fields.get("add_space_prefix", True) else []
    model.normalizer = steps.Sequence([*prefix, steps.Replace(" ", _SPACE)])
    return model


def _merges(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Pairs of tokens whose concatenation is a token, by its score, the best first."""
    pairs = [
        (-scores[number], vocabulary[token[:cut]], vocabulary[token[cut:]])
        for token, number in vocabulary.items()
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    tokens = [*vocabulary]
    return [(tokens[left], tokens[right]) for _, left, right in sorted(pairs)]


def _add_special(model: Any, fields: Mapping[str, Any], tokens: list[str]) -> None:
    """Add tokens that are matched before splitting, and tokens before and after a document."""
    tokenizers = require("tokenizers", extra="data")
    types = fields.get("token_type", [])
    model.add_tokens(
        [
            tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, types, strict=False)
            if token and kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    # Defaults of llama.cpp, if the file has no entry.
    starts = fields.get("model") == "llama" or fields.get("pre") in _UNMERGED
    added = {"bos": fields.get("add_bos_token", starts), "eos": fields.get("add_eos_token")}
    ends = {name: _special_token(fields, name, tokens) for name in added if added[name]}
    # Under other names, since the text of a token may have a meaning in a template.
    names = [name for name in ("bos", "$A", "eos") if name == "$A" or ends.get(name)]
    special = [
        {"id": name, "ids": [tokens.index(token)], "tokens": [token]}
        for name, token in ends.items()
        if token
    ]
    if special:  # a template of nothing but the text would take a tenth of the time
        model.post_processor = tokenizers.processors.TemplateProcessing(
            single=" ".join(names), special_tokens=special
        )


def _special_token(fields: Mapping[str, Any], name: str, tokens: list[str]) -> str | None:
    """Token with a role, such as "bos"; None without one."""
    number = fields.get(f"{name}_token_id")
    is_token = isinstance(number, int) and 0 <= number < len(tokens)
    return tokens[number] if is_token else None

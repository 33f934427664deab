"""Tokenizers in files of llama.cpp, against llama.cpp's own ids and by hand."""

import json
from pathlib import Path

import gguf
import pytest

from jaxpe import InputError
from jaxpe._core.gguf import read_gguf
from jaxpe.data import open_tokenizer
from jaxpe.data.tokens import gguf_tokenizer
from jaxpe.data.tokens.pretrained import open_pretrained
from tests.parity.test_transformers_models import real_directory
from tools.parity.make_gguf_models import REAL, RULES, TEXTS

STORED = json.loads(
    Path(__file__).parents[1].joinpath("parity", "gguf_tokenizers.json").read_text()
)
PIECES = ["<pad>", "<bos>", "<unk>", "<end>", "\u2581", "a", "b", "ab", "\u2581a", "\u2581ab"]


def write(path, **entries):
    """A .gguf without tensors, of these entries of its tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
    for name, value in entries.items():
        add.get(type(value), writer.add_array)(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pairs(path, pre="smollm", **changes):
    """Byte pairs of two letters and three digits."""
    tokens = ["<|end|>", "a", "b", "1", "2", "3", "Ġ", "Ġa", "ab", "12", "123"]
    entries = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [3] + [1] * (len(tokens) - 1),
        "merges": ["Ġ a", "a b", "1 2", "12 3"],
    }
    return write(path, **(entries | changes))


def pieces(path, **changes):
    """Pieces with scores; "ab" is better than " a"."""
    scores = [0.0] * 7 + [-1.0, -2.0, -3.0]
    entries = {
        "model": "llama",
        "tokens": PIECES,
        "scores": scores,
        "token_type": [3, 3, 2, 4] + [1] * 6,
        "bos_token_id": 1,
        "unknown_token_id": 2,
    }
    return write(path, **(entries | changes))


def test_each_rule_gives_the_ids_of_llama_cpp(monkeypatch):
    path, start = next(real_directory(REAL).glob("*.gguf")), "tokenizer.ggml."
    entries, tensors = read_gguf(path, full_prefix=start)
    wanted = {start + name for name in ("model", "tokens", "token_type", "merges")}
    for rule in RULES:
        found = {name: entries[name] for name in wanted} | {f"{start}pre": rule}
        monkeypatch.setattr(
            gguf_tokenizer, "read_gguf", lambda *_, found=found, **__: (found, tensors)
        )
        assert open_pretrained(path).encode(list(TEXTS)) == STORED[rule], rule


def test_gemma_has_the_ids_of_llama_cpp():
    opened = open_pretrained(real_directory("gemma-3-270m"))
    assert opened.encode(list(TEXTS)) == STORED["gemma"]
    assert opened.special_tokens() == ((2,), ())
    # A space in front comes again behind each token that is found as it is: texts without such.
    spaced, whole = STORED["gemma with a space in front"], (1, 4)
    rows = opened.encode([f" {TEXTS[i]}" for i in whole])
    assert rows == [spaced[i] for i in whole]


# A word of a letter behind a mark, numbers, and a token that no merge makes, by the rule.
SPLITS = {
    "llama-bpe llama3 llama-v3": ["(a", "123", "aba"],
    "dbrx smaug-bpe": ["(a", "123", *"aba"],
    "qwen2 stablelm2 deepseek-r1-qwen": ["(a", *"123", *"aba"],
    "smollm starcoder refact command-r": ["(", "a", *"123", *"aba"],
    "gpt-2 phi-2 olmo mpt": ["(", "a", "123", *"aba"],
}


@pytest.mark.parametrize("rules", SPLITS)
def test_every_rule_splits_as_it_says(tmp_path, rules):
    tokens, merges = [*"ab123(", "(a", "12", "123", "aba"], ["( a", "1 2", "12 3"]
    for rule in rules.split():
        path = pairs(tmp_path / "x.gguf", rule, tokens=tokens, merges=merges, token_type=[1] * 10)
        opened = open_pretrained(path)
        (row,) = opened.encode(["(a123aba"])
        assert [opened.tokens[i] for i in row] == SPLITS[rules], rule
    (row,) = open_pretrained(pairs(tmp_path / "x.gguf")).encode([" ab<|end|>"])
    assert row == [7, 2, 0]


def test_pieces_are_merged_by_their_score(tmp_path):
    path = pieces(tmp_path / "x.gguf")
    opened = open_tokenizer(path, special=True)
    assert (opened.prefix, opened.suffix) == ((1,), ())
    # A space in front: "ab" is made before " a", and then " ab".
    rows = opened.rows(["ab a", "a<end>b", "ac"], None)
    texts = [[opened.tokens[i] for i in row] for row in rows]
    assert texts[0] == ["\u2581ab", "\u2581a"]
    assert texts[1][:2] == ["\u2581a", "<end>"]
    assert texts[2] == ["\u2581a", "<unk>"]
    plain = open_pretrained(pieces(path, add_space_prefix=False, add_bos_token=False))
    assert plain.encode(["ab a"]) == [[7, 8]]
    assert plain.model.num_special_tokens_to_add(False) == 0


def test_bytes_stand_for_what_no_piece_does(tmp_path):
    values = [f"<0x{value:02X}>" for value in range(256)]
    kinds = [3, 3, 2, 4] + [1] * 6 + [6] * 256
    path = pieces(tmp_path / "x.gguf", tokens=PIECES + values, scores=[0.0] * 266, token_type=kinds)
    (row,) = open_pretrained(path).encode(["é"])
    assert row == [4, 10 + 0xC3, 10 + 0xA9]


def test_merges_are_all_pairs_that_make_a_token():
    vocabulary = {word: number for number, word in enumerate(["a", "b", "ab", "aab", "aabb"])}
    found = gguf_tokenizer._merges(vocabulary, [0.0, 0.0, -2.0, -3.0, -1.0])
    assert found == [("aab", "b"), ("a", "b"), ("a", "ab")]


def test_special_tokens_may_read_like_parts_of_a_template(tmp_path):
    tokens = ["$A", "a b", "c:1", "a"]
    options = {"tokens": tokens, "scores": [0.0] * 4, "token_type": [3, 3, 3, 1]}
    for first, last in ((0, 1), (1, 2), (2, 0)):
        ends = {"bos_token_id": first, "eos_token_id": last, "add_eos_token": True}
        opened = open_pretrained(pieces(tmp_path / "x.gguf", **options, **ends))
        assert opened.special_tokens() == ((first,), (last,))
        assert opened.encode(["a"])[0][-1] == 3


UNREADABLE = [
    (pairs, {"model": "bert"}, "'bert'"),
    (pairs, {"pre": "tekken"}, "'tekken'"),
    (pairs, {"tokens": ["a", "a"]}, "tokens"),
    (pairs, {"merges": ["a z"]}, "no tokenizer"),
    (pieces, {"scores": [0.0, 1.0]}, "scores"),
]


@pytest.mark.parametrize(("make", "changes", "word"), UNREADABLE)
def test_what_cannot_be_read_says_why(tmp_path, make, changes, word):
    with pytest.raises(InputError, match=word):
        open_pretrained(make(tmp_path / "x.gguf", **changes))


def test_a_tokenizer_json_beside_it_comes_first(tmp_path):
    pairs(tmp_path / "x.gguf")
    assert open_pretrained(tmp_path).name == "gguf"
    open_pretrained(tmp_path).model.save(str(tmp_path / "tokenizer.json"))
    assert open_pretrained(tmp_path).name == "tokenizer.json"

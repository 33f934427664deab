"""Tokenizers in files of llama.cpp, against llama.cpp's own ids and by hand."""

import json
import random
from pathlib import Path

import gguf
import pytest

from jaxpe import InputError
from jaxpe._core.gguf import read_gguf
from jaxpe.data import open_tokenizer
from jaxpe.data.tokens import gguf_tokenizer
from jaxpe.data.tokens.pretrained import open_pretrained
from tests.parity.test_transformers_models import real_directory
from tools.parity.make_gguf_tokenizers import RULES, TEXTS
from tools.parity.make_llama import REAL

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


@pytest.fixture(scope="module")
def real():
    return read_gguf(next(real_directory(REAL).glob("*.gguf")), full_prefix="tokenizer.ggml.")[0]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_gives_the_ids_of_llama_cpp(tmp_path, real, rule):
    entries = {name.removeprefix("tokenizer.ggml."): real[name] for name in real}
    wanted = ("model", "tokens", "token_type", "merges")
    path = write(tmp_path / "x.gguf", pre=rule, **{name: entries[name] for name in wanted})
    assert open_pretrained(path).encode(list(TEXTS)) == STORED[rule]


def test_gemma_has_the_ids_of_llama_cpp():
    opened = open_pretrained(real_directory("gemma-3-270m"))
    assert opened.encode(list(TEXTS)) == STORED["gemma"]
    assert opened.special_tokens() == ((2,), ())
    # A space in front comes again behind each token that is found as it is: texts without such.
    spaced, whole = STORED["gemma with a space in front"], (1, 4)
    rows = opened.encode([f" {TEXTS[i]}" for i in whole])
    assert rows == [spaced[i] for i in whole]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("smollm", ["Ġa", "b", "1", "2", "3", "<|end|>"]),
        ("qwen2", ["Ġa", "b", "1", "2", "3", "<|end|>"]),
        ("llama-bpe", ["Ġa", "b", "123", "<|end|>"]),
        ("gpt-2", ["Ġa", "b", "123", "<|end|>"]),
    ],
)
def test_digits_are_split_as_the_rule_says(tmp_path, pre, expected):
    opened = open_pretrained(pairs(tmp_path / "x.gguf", pre))
    assert opened.name == "gguf"
    (row,) = opened.encode([" ab123<|end|>"])
    assert [opened.tokens[i] for i in row] == expected


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
    rng = random.Random(0)
    words = {"".join(rng.choices("ab", k=rng.choice((1, 2, 3, 5, 8)))) for _ in range(60)}
    vocabulary = {word: number for number, word in enumerate(sorted(words))}
    scores = [rng.random() for _ in words]
    cuts = [(word[:k], word[k:], word) for word in words for k in range(1, len(word))]
    made = {(a, b): word for a, b, word in cuts if a in words and b in words}
    found = gguf_tokenizer._merges(vocabulary, scores)
    assert {*found} == {*made}
    assert len(found) == len(made) > 20
    order = [scores[vocabulary[made[pair]]] for pair in found]
    assert order == sorted(order, reverse=True)


def test_special_tokens_may_read_like_parts_of_a_template(tmp_path):
    tokens = ["$A", "a b", "c:1", "a"]
    options = {"tokens": tokens, "scores": [0.0] * 4, "token_type": [3, 3, 3, 1]}
    for first, last in ((0, 1), (1, 2), (2, 0)):
        ends = {"bos_token_id": first, "eos_token_id": last, "add_eos_token": True}
        opened = open_pretrained(pieces(tmp_path / "x.gguf", **options, **ends))
        assert opened.special_tokens() == ((first,), (last,))
        assert opened.encode(["a"])[0][-1] == 3


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (pairs, {"model": "bert"}, r"a tokenizer of kind 'bert'; gpt2 and llama can be read"),
        (pairs, {"pre": "tekken"}, r"splits words by the rule 'tekken'; .*qwen2, .*tokenizer.json"),
        (pairs, {"tokens": ["a", "a"]}, r"tokens is not a list of different tokens"),
        (pairs, {"merges": ["a z"]}, r"x.gguf has no tokenizer that can be read"),
        (pieces, {"scores": [0.0, 1.0]}, r"scores is not a list of a score for each token"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, make, changes, message):
    with pytest.raises(InputError, match=message):
        open_pretrained(make(tmp_path / "x.gguf", **changes))


def test_a_tokenizer_json_beside_it_comes_first(tmp_path):
    pairs(tmp_path / "x.gguf")
    assert open_pretrained(tmp_path).name == "gguf"
    open_pretrained(tmp_path).model.save(str(tmp_path / "tokenizer.json"))
    assert open_pretrained(tmp_path).name == "tokenizer.json"

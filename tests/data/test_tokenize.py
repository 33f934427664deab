"""Tokenizers: laws that hold for all of them, and what each does to text."""

import itertools
import json
import re
import sys
import unicodedata

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from jaxpe.data import (
    Corpus,
    dependent_groups,
    load_labelled,
    load_tokens,
    open_tokenizer,
    tokenize,
)
from jaxpe.data.tokens import pretrained
from jaxpe.data.tokens import vocabulary as vocabularies
from tests.data.reading import refused
from tests.progress import Told

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "!", "nai", "a"]
GROWING = ("words", "characters", "kmer:2", "codons")
TEXTS = Corpus("cats", ["The CATS sat!", "the cat", "The cats sat the cats sat!", "zebra naï"])


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return path


@pytest.fixture(params=[*GROWING, "bytes", "wordpiece", "special", "tokenizer.json"])
def options(request, vocabulary):
    match request.param:
        case "wordpiece":
            return {"tokenizer": vocabulary}
        case "special":
            return {"tokenizer": vocabulary, "special": True}
        case "tokenizer.json":
            return {"tokenizer": bert_json(vocabulary.parent), "special": True}
    return {"tokenizer": request.param}


def bert_json(folder):
    """The same vocabulary as a tokenizer.json, which cuts and pads."""
    path = folder / "tokenizer.json"
    model = pretrained.open_pretrained(folder / "vocab.txt").model
    model.enable_truncation(4)
    model.enable_padding(length=50)
    model.save(str(path))
    return path


def texts_of(corpus, row):
    return [corpus.tokens[i] for i in corpus.ids[row][corpus.mask[row]]]


@pytest.mark.parametrize("length", [None, 3, 5, 40])
def test_shapes_padding_and_ranges(options, length):
    corpus = tokenize(TEXTS, length=length, **options)
    assert corpus.ids.dtype == np.int32
    assert corpus.ids.shape == corpus.mask.shape
    assert length in (None, corpus.ids.shape[1])
    assert not corpus.ids[~corpus.mask].any()
    assert (np.diff(corpus.mask.astype(int), axis=1) <= 0).all()
    assert corpus.mask.sum(1).max() == min(corpus.longest, corpus.ids.shape[1])
    assert 0 <= corpus.ids.min() <= corpus.ids.max() < corpus.vocab_size == len(corpus.tokens)
    expected = dependent_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    np.testing.assert_array_equal(corpus.groups(), expected)


def test_truncation_keeps_a_prefix(options):
    whole, cut = tokenize(TEXTS, length=40, **options), tokenize(TEXTS, length=5, **options)
    inner = 4 if options.get("special") else 5
    for row in range(len(TEXTS.documents)):
        shorter = min(inner, len(texts_of(whole, row)))
        assert texts_of(cut, row)[:shorter] == texts_of(whole, row)[:shorter]
    assert cut.longest == whole.longest
    assert np.array_equal(cut.cut, whole.mask.sum(axis=1) > 5)
    assert cut.cut.any() > whole.cut.any()


def test_a_fixed_vocabulary_gives_the_ids_of_the_corpus(options):
    corpus = tokenize(TEXTS, length=6, **options)
    own = {"vocabulary": corpus.tokens} if corpus.tokenizer in GROWING else {}
    opened = open_tokenizer(**options, **own)
    ids, mask = opened.encode(TEXTS.documents, length=6)
    np.testing.assert_array_equal(ids, corpus.ids)
    np.testing.assert_array_equal(mask, corpus.mask)
    assert (opened.name, opened.tokens) == (corpus.tokenizer, corpus.tokens)
    assert opened.exclude == corpus.exclude


@pytest.mark.parametrize("name", GROWING)
def test_a_growing_vocabulary_has_the_tokens_of_the_corpus(name):
    corpus = tokenize(TEXTS, tokenizer=name, length=6)
    opened = open_tokenizer(name)
    parts = [opened.encode([text], length=6) for text in TEXTS.documents]
    ids, mask = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    np.testing.assert_array_equal(mask, corpus.mask)
    assert [opened.tokens[i] for i in ids[mask]] == [corpus.tokens[i] for i in corpus.ids[mask]]
    assert list(dict.fromkeys(ids[mask].tolist())) == [*range(len(corpus.tokens))]


def test_more_documents_than_are_encoded_at_once(monkeypatch):
    many = Corpus("x", [f"a{number}" for number in range(2500)])
    corpus = tokenize(many, length=2)
    assert [corpus.tokens[first] for first in corpus.ids[:, 0]] == many.documents


def test_words_outside_the_vocabulary():
    words = ["to", "be", "[UNK]"]
    ids, _ = open_tokenizer(vocabulary=words).encode(["to see, or be"], length=5)
    assert ids.tolist() == [[0, 2, 2, 2, 1]]
    refused(["to see, or be"], "'see'", open_tokenizer(vocabulary=words[:2]).encode, length=5)


REFUSED = {
    "empty": {"vocabulary": []},
    "twice": {"vocabulary": ["a", "a"]},
    "surrogate": {"vocabulary": ["a", "\ud800"]},
    "special": {"vocabulary": ["a"], "special": True},
    "fixed vocabulary": {"tokenizer": "bytes", "vocabulary": ["a"]},
    "unknown tokenizer": {"tokenizer": "none.json"},
}


@pytest.mark.parametrize("word", REFUSED)
def test_tokenizers_refused(word):
    refused(REFUSED[word], word, lambda options: open_tokenizer(**options))


def test_the_checksum_is_of_all_that_decides_the_ids(vocabulary):
    opened = [open_tokenizer(name) for name in ("bytes", "words", "characters", vocabulary)]
    opened += [open_tokenizer(vocabulary=tokens) for tokens in (["a", "b"], ["b", "a"])]
    opened.append(open_tokenizer("characters", vocabulary=["a", "b"]))
    opened.append(open_tokenizer(vocabulary, special=True))
    vocabulary.write_text("\n".join([*PIECES, "b"]) + "\n")
    opened.append(open_tokenizer(vocabulary))
    assert len({tokenizer.checksum for tokenizer in opened}) == len(opened)


def test_all_marks_and_formats_are_in_the_planes_that_are_searched():
    searched = {*itertools.chain(*vocabularies._PLANES_WITH_MARKS)}
    others = (chr(c) for c in range(sys.maxunicode + 1) if c not in searched)
    assert not any(unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf") for c in others)


# Segments of UAX #29 by ICU 72.1 (`BreakIterator.createWordInstance`), with which uniseg 0.10.1 and
# regex 2026.11.19 (`\\b` with WORD and V1) agree. A bar stands between two segments.
SEGMENTS = {
    "Persian": "می\u200cخواهم| |کتاب\u200cهایم| |را| |بخوانم",
    "Hindi": "क्\u200dष| |और| |क्\u200cष| |में| |अंतर|,| |हिन्दी",
    "Tamil, Malayalam": "தமிழ்\u200cநாடு| |മലയാളം\u200d",
    "Hebrew": "שׁלום| |עליכם|,| |עַל",
    "Arabic": "العـربيّة| \u061c|من",
    "Mongolian": "ᠮᠣᠩᠭᠣᠯ\u180eᠠ| |a\u180eb",
    "soft hyphens": "co\xadop\xader\xada\xadtion| |works",
    "directions": "the| \u200e|first\u200f| \u202a|second\u202c| |(\u2066|third\u2069|)",
    "U+FEFF, U+2060": "one\ufefftwo| \ufeff|three| |four\u2060five",
    "zero-width space": "x|\u200b|y",
    "emoji": "👨\u200d👩\u200d👧| |❤\ufe0f| |👍🏽| |🏳\ufe0f\u200d🌈| |🤷🏽\u200d♀\ufe0f",
    "head shaking": "🙂\u200d↔\ufe0f",
    "two emoji": "👨\u200d👩\u200d👧\u200d👦|👍",
    "flags": "🇩🇪|🇫🇷| |a| |🇩🇪",
    "tags": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f| |ok",
    "keycaps": "1\ufe0f\u20e3| |#\ufe0f\u20e3| |‼\ufe0f",
    "variation selectors": "a\u034fb| |c\ufe00d",
    "numbers": "\u0600|١٢٣| |abc\u06dd٤",
    "annotations": "\ufff9|a\ufffab\ufffb",
    "combining accents": "e\u0301te\u0301| |o\u0308l",
}

# Dropped by `words`: format characters without joiners and tags.
FORMATS = re.compile(
    "[\xad\u0600\u061c\u06dd\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)


@pytest.mark.parametrize("name", SEGMENTS)
def test_words_are_those_of_unicode(name):
    segments = SEGMENTS[name].split("|")
    corpus = tokenize(Corpus("x", ["".join(segments), "a"]), length=20)
    assert texts_of(corpus, 0) == [found for s in segments if (found := FORMATS.sub("", s).strip())]


def test_ascii_text_has_the_words_of_other_text():
    (pattern, _), ascii_characters = vocabularies._word_patterns(), map(chr, range(128))
    for text in map("".join, itertools.product(ascii_characters, repeat=2)):
        assert vocabularies._words(text, None) == pattern.findall(text.lower())


def test_words():
    texts = [
        "Don't stop, naïve_2 world!",
        "stop नमस्ते",
        "\u0301a \u200d \u200c\u200d \ufe0f b\u0301",
    ]
    corpus = tokenize(Corpus("x", [*texts, "\u200b\xad\u2060\ufeff"]), length=9)
    assert texts_of(corpus, 0) == ["don", "'", "t", "stop", ",", "naïve_2", "world", "!"]
    assert texts_of(corpus, 1) == ["stop", "नमस्ते"]
    assert texts_of(corpus, 2) == ["a", "b\u0301"]  # what extends a word is none by itself
    assert texts_of(corpus, 3) == []
    assert corpus.tokens == ["stop", *sorted(set(corpus.tokens) - {"stop"})]


UNDIVIDED = {
    "Chinese": "今天天气很好，我们去公园散步吧。",
    "Thai": "วันนี้อากาศดีมากเราไปเดินเล่นที่สวนสาธารณะกัน",
    "DNA": "ACGTTGCAAC" * 6,
}
DIVIDED = {
    "Chinese with spaces": "今天 天气 很 好 ， 我们 去 公园 散步 吧 。",
    "Khmer with U+200B": "ថ្ងៃនេះ\u200bអាកាសធាតុ\u200bល្អ\u200bណាស់\u200bយើង\u200bទៅ\u200bដើរ\u200bលេង",
    "German": "Die Donaudampfschifffahrtsgesellschaft fährt heute nicht, das Wetter ist schlecht",
    "English with some Chinese": "A sentence such as 今天天气很好我们去公园 has no spaces",
}


@pytest.mark.parametrize("name", UNDIVIDED)
def test_text_without_spaces_is_refused_unless_words_are_asked_for(name, tmp_path):
    texts = [UNDIVIDED[name], UNDIVIDED[name][::-1], "an English line"]
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{t}\t{i}\n" for i, t in enumerate(texts)))
    for read in (load_tokens, load_labelled):
        refused(path, "`tokenizer=characters`", read)
    assert load_tokens(path, tokenizer="characters").longest == max(map(len, texts))
    assert load_tokens(path, tokenizer="words").longest < 8


def test_half_of_the_characters_decide_that_spaces_divide_no_words():
    runs = {"中文中文": 10}  # as many characters as 40 words of one letter
    vocabularies.refuse_undivided(runs | {"a": 40}, "x")
    refused(runs | {"a": 39}, "51 %", vocabularies.refuse_undivided, name="x")


@pytest.mark.parametrize("name", DIVIDED)
def test_text_with_spaces_is_read_as_words(name):
    corpus = tokenize(Corpus("x", [DIVIDED[name], "one"]))
    assert [choice.value for choice in corpus.choices if choice.setting == "tokenizer"] == ["words"]


def test_vocabulary_is_what_occurs_after_truncation():
    corpus = tokenize(Corpus("x", ["a b c d", "b a e"]), length=2)
    assert (corpus.tokens, corpus.vocab_size, corpus.longest) == (["a", "b"], 2, 4)


def test_characters_and_bytes():
    corpus = Corpus("x", ["é猫 ", "éa"])
    characters = tokenize(corpus, tokenizer="characters", length=3)
    assert texts_of(characters, 0) == ["é", "猫", " "]
    assert characters.tokens[0] == "é"
    raw = tokenize(corpus, tokenizer="bytes", length=9)
    assert bytes(raw.ids[0][raw.mask[0]].tolist()).decode() == "é猫 "
    assert (raw.vocab_size, raw.tokens[65], raw.tokens[10]) == (256, "A", "0x0a")


def test_wordpiece(vocabulary, tmp_path):
    plain = tokenize(TEXTS, tokenizer=vocabulary, length=10)
    assert texts_of(plain, 0) == ["the", "cat", "##s", "sat", "!"]
    assert texts_of(plain, 3) == ["[UNK]", "nai"]
    assert (plain.tokenizer, plain.exclude, plain.vocab_size) == ("wordpiece", (), len(PIECES))
    vocabulary.write_text("[UNK]\nThe\nthe\ncafé\n")  # has capitals, so it is cased
    corpus = tokenize(Corpus("x", ["The café", "the"]), tokenizer=tmp_path)
    assert texts_of(corpus, 0) == ["The", "café"]


@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json"])
def test_special_tokens_surround_every_document(vocabulary, form):
    path = vocabulary.parent if form == "vocab.txt" else bert_json(vocabulary.parent)
    assert pretrained.open_pretrained(path).cut == (0 if form == "vocab.txt" else 4)
    corpus = tokenize(TEXTS, tokenizer=path, length=4, special=True)
    assert texts_of(corpus, 0) == ["[CLS]", "the", "cat", "[SEP]"]
    assert texts_of(corpus, 1) == ["[CLS]", "the", "cat", "[SEP]"]
    assert (corpus.exclude, corpus.longest, corpus.tokens) == ((0, 2, 3), 11, PIECES)
    short = tokenize(TEXTS, tokenizer=path, length=12, special=True)
    assert texts_of(short, 3) == ["[CLS]", "[UNK]", "nai", "[SEP]"]


def test_dropout_of_byte_pairs_is_switched_off_and_said(tmp_path):
    merges = [("a", "b"), ("ab", "c"), ("abc", "d"), ("c", "d"), ("b", "c")]
    numbers = {token: i for i, token in enumerate([*"abcd", *map("".join, merges)])}
    made = tokenizers.Tokenizer(models.BPE(numbers, merges, dropout=0.5))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    lines: list[str] = []
    corpus = tokenize(Corpus("x", ["abcd " * 40]), tokenizer=path, progress=Told(lines))
    assert texts_of(corpus, 0) == ["abcd"] * 40
    assert any("dropout" in line for line in lines)
    assert [choice.value for choice in corpus.choices if "dropout" in choice.setting] == ["0"]
    content = json.loads(path.read_text())
    for share in (0.0, None):
        content["model"]["dropout"] = share
        path.write_text(json.dumps(content))
        assert not open_tokenizer(path).choices


def test_default_length_is_what_one_document_in_twenty_reaches():
    documents = ["a b c d e f g h", "a b c"] + ["a"] * 38
    assert tokenize(Corpus("x", documents)).ids.shape == (40, 3)
    assert tokenize(Corpus("x", ["a"] * 9)).ids.shape == (9, 2)
    assert tokenize(Corpus("x", ["a " * 500] * 2)).ids.shape == (2, 128)


def test_what_cannot_be_done(vocabulary, tmp_path):
    refused(TEXTS, "'words'", tokenize, special=True)
    refused(TEXTS, "`length` is 1", tokenize, length=1)
    refused(TEXTS, "`length` is 2", tokenize, length=2, tokenizer=vocabulary, special=True)
    refused(TEXTS, "length 1,000,000,000,000", tokenize, length=10**12)
    for documents in ([" ", ""], []):
        refused(Corpus("x", documents), "no tokens", tokenize)
    folder = tmp_path / "empty"
    folder.mkdir()
    refused(TEXTS, "holds no tokenizer.json", tokenize, tokenizer=folder)


# SentencePiece 0.2.3 and tiktoken begin their files so.
SENTENCEPIECE = b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x0c\n\x03<s>\x15\0"
NO_TOKENIZERS = [
    ("vocab.txt", b"a\n", r"\[UNK\]"),
    ("vocab.txt", b"[UNK]\n\xff\n", "line 2: byte 0xff"),
    ("vocab.txt", b"[UNK]\n" + b"a\n" * 100, "206 bytes, more than 200"),
    ("vocab.txt", SENTENCEPIECE, "SentencePiece"),
    ("tokenizer.model", b"IQ== 0\nIg== 1\nIw== 2\n", "tiktoken"),
    ("tokenizer.json", b"{}", "no tokenizer"),
]


@pytest.mark.parametrize(("name", "content", "word"), NO_TOKENIZERS)
def test_files_that_hold_no_tokenizer(tmp_path, monkeypatch, name, content, word):
    monkeypatch.setattr(pretrained, "_LARGEST_FILE", 200)
    path = tmp_path / name
    path.write_bytes(content)
    refused(path, word, open_tokenizer)
    path.unlink()
    path.symlink_to("/dev/zero")
    refused(path, "regular file", open_tokenizer)


@pytest.fixture
def model():
    """A tokenizer.json as values."""
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "cats": 4}
    made = tokenizers.Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return json.loads(made.to_str())


def test_ids_and_special_tokens_outside_of_the_vocabulary(tmp_path, model):
    path = tmp_path / "tokenizer.json"
    words, special = model["model"]["vocab"], model["post_processor"]["special_tokens"]
    for changed, word in (
        (lambda: special["[CLS]"].update(ids=[5]), "id 5"),
        (lambda: special.pop("[CLS]"), "special"),  # the library panics
        (lambda: words.update(cats=2**32 - 1), "ids up to 4,294,967,295"),
    ):
        changed()
        path.write_text(json.dumps(model))
        refused(path, word, open_tokenizer, special=True)


def test_text_that_a_tokenizer_cannot_take(tmp_path, model):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(model))
    refused(Corpus("half", ["a", "\ud800"]), "encode", tokenize, tokenizer=path)
    del model["model"]["vocab"]["[UNK]"]
    model["model"]["vocab"] |= {"cats": 1, "猫": 4}  # no Latin letter is needed for special tokens
    path.write_text(json.dumps(model))
    corpus = tokenize(Corpus("cats", ["猫", "猫 猫"]), tokenizer=path, special=True)
    assert texts_of(corpus, 1) == ["[CLS]", "猫", "猫", "[SEP]"]
    refused(["b"], "encode", open_tokenizer(path).encode, length=2)

"""Tokenizers: laws that hold for all of them, and what each does to text."""

import itertools
import json
import re
import sys
import unicodedata

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import (
    Corpus,
    dependent_groups,
    load_corpus,
    load_labelled,
    load_tokens,
    open_tokenizer,
    tokenize,
)
from jaxpe.data.tokens import pretrained
from jaxpe.data.tokens import vocabulary as vocabularies
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
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    model = Tokenizer(models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer()
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    model.enable_truncation(4)
    model.enable_padding(length=50)
    path = folder / "tokenizer.json"
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


def test_deterministic(options):
    first, second = tokenize(TEXTS, **options), tokenize(TEXTS, **options)
    np.testing.assert_array_equal(first.ids, second.ids)
    assert first.tokens == second.tokens


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
    assert len(opened.tokens) == corpus.vocab_size


@pytest.mark.parametrize("name", GROWING)
def test_a_growing_vocabulary_has_the_tokens_of_the_corpus(name):
    corpus = tokenize(TEXTS, tokenizer=name, length=6)
    opened = open_tokenizer(name)
    assert opened.tokens == []
    parts = [opened.encode([text], length=6) for text in TEXTS.documents]
    ids, mask = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    np.testing.assert_array_equal(mask, corpus.mask)
    assert [opened.tokens[i] for i in ids[mask]] == [corpus.tokens[i] for i in corpus.ids[mask]]
    assert sorted(opened.tokens) == sorted(corpus.tokens)
    first = list(dict.fromkeys(ids[mask].tolist()))
    assert first == [*range(len(opened.tokens))]


def test_words_outside_the_vocabulary():
    vocabulary = ["to", "be", "[UNK]"]
    ids, _ = open_tokenizer(vocabulary=vocabulary).encode(["to see, or be"], length=5)
    assert ids.tolist() == [[0, 2, 2, 2, 1]]
    with pytest.raises(InputError, match=r"'see' is not in the vocabulary.*\[UNK\]"):
        open_tokenizer(vocabulary=vocabulary[:2]).encode(["to see, or be"], length=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": []}, "empty or has a token twice"),
        ({"vocabulary": ["a", "a"]}, "empty or has a token twice"),
        ({"vocabulary": ["a", "\ud800"]}, "half of a surrogate pair"),
        ({"vocabulary": ["a"], "special": True}, "no special tokens"),
        ({"tokenizer": "bytes", "vocabulary": ["a"]}, "bytes has a fixed vocabulary"),
        ({"tokenizer": "bytes", "special": True}, "no special tokens"),
        ({"tokenizer": "none.json"}, "unknown tokenizer 'none.json'"),
    ],
)
def test_tokenizers_refused(options, message):
    with pytest.raises(InputError, match=message):
        open_tokenizer(**options)


def test_the_checksum_is_of_all_that_decides_the_ids(vocabulary):
    opened = [
        open_tokenizer("bytes"),
        open_tokenizer("words"),
        open_tokenizer("characters"),
        open_tokenizer(vocabulary=["a", "b"]),
        open_tokenizer(vocabulary=["b", "a"]),
        open_tokenizer("characters", vocabulary=["a", "b"]),
        open_tokenizer(vocabulary),
        open_tokenizer(vocabulary, special=True),
    ]
    vocabulary.write_text("\n".join([*PIECES, "b"]) + "\n")
    opened.append(open_tokenizer(vocabulary))
    assert len({tokenizer.checksum for tokenizer in opened}) == len(opened)


def test_a_tokenizer_that_fails_on_a_text_says_so(tmp_path):
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="[UNK]"))
    model.save(str(tmp_path / "tokenizer.json"))
    opened = open_tokenizer(tmp_path)
    assert opened.encode(["a"], length=2)[1].sum() == 1
    with pytest.raises(InputError, match=r"tokenizer\.json cannot encode a text: .*UNK"):
        opened.encode(["b"], length=2)


def test_groups_are_of_documents_inside_of_others(options):
    corpus = tokenize(TEXTS, length=40, **options)
    expected = dependent_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    np.testing.assert_array_equal(corpus.groups(), expected)


def test_all_marks_and_formats_are_in_the_planes_that_are_searched():
    kinds = {c: unicodedata.category(chr(c)) for c in range(sys.maxunicode + 1)}
    found = {c for c, kind in kinds.items() if kind[0] == "M" or kind == "Cf"}
    assert found <= {*itertools.chain(*vocabularies._PLANES_WITH_MARKS)}


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
    expected = [found for s in segments if (found := FORMATS.sub("", s).strip())]
    text = "".join(segments)
    assert vocabularies._words(text, None) == expected
    corpus = tokenize(Corpus("x", [text, "a"]), length=20)
    assert texts_of(corpus, 0) == expected


def test_ascii_text_has_the_words_of_other_text():
    (pattern, _), ascii_characters = vocabularies._word_patterns(), map(chr, range(128))
    for text in map("".join, itertools.product(ascii_characters, repeat=2)):
        assert vocabularies._words(text, None) == pattern.findall(text.lower())


def test_characters_that_extend_a_word_are_none_by_themselves():
    assert vocabularies._words("\u0301a \u200d \u200c\u200d \ufe0f b\u0301", None) == [
        "a",
        "b\u0301",
    ]
    assert vocabularies._words("\u200b\xad\u2060\ufeff", None) == []


def test_words():
    corpus = tokenize(Corpus("x", ["Don't stop, naïve_2 world!", "stop नमस्ते"]), length=9)
    assert texts_of(corpus, 0) == ["don", "'", "t", "stop", ",", "naïve_2", "world", "!"]
    assert texts_of(corpus, 1) == ["stop", "नमस्ते"]
    assert corpus.tokens == ["stop", *sorted(set(corpus.tokens) - {"stop"})]


UNDIVIDED = {
    "Chinese": "今天天气很好，我们去公园散步吧。",
    "Japanese": "今日は天気がとても良いので、公園を散歩しました。",
    "Thai": "วันนี้อากาศดีมากเราไปเดินเล่นที่สวนสาธารณะกัน",
    "Lao": "ມື້ນີ້ອາກາດດີຫຼາຍພວກເຮົາໄປຍ່າງຫຼິ້ນຢູ່ສວນສາທາລະນະ",
    "Khmer": "ថ្ងៃនេះអាកាសធាតុល្អណាស់យើងទៅដើរលេងនៅសួនច្បារ",
    "Burmese": "ဒီနေ့ရာသီဥတုအရမ်းကောင်းလို့ ကျွန်တော်တို့ပန်းခြံမှာလမ်းလျှောက်ကြတယ်",
    "DNA": "ACGTTGCAAC" * 6,
    "protein": "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVG",
}
DIVIDED = {
    "Chinese with spaces": "今天 天气 很 好 ， 我们 去 公园 散步 吧 。",
    "Japanese with spaces": "コンピューター を 使っ て 日本語 の 文章 を 書く",
    "Thai with spaces": "วันนี้ อากาศ ดี มาก เรา ไป เดินเล่น ที่ สวนสาธารณะ กัน",
    "Khmer with U+200B": "ថ្ងៃនេះ\u200bអាកាសធាតុ\u200bល្អ\u200bណាស់\u200bយើង\u200bទៅ\u200bដើរ\u200bលេង",
    "Korean": "오늘은 날씨가 매우 좋아서 우리는 공원에 산책을 갔습니다",
    "Greenlandic": "Kalaallit Nunaanni inatsisartut ataatsimiinnissaminnut aggersarneqarput",
    "German": "Die Donaudampfschifffahrtsgesellschaft fährt heute nicht, das Wetter ist schlecht",
    "English with some Chinese": "A sentence such as 今天天气很好我们去公园 has no spaces",
    "labels": "positive",
}


@pytest.mark.parametrize("name", UNDIVIDED)
def test_text_without_spaces_is_refused_unless_words_are_asked_for(name, tmp_path):
    texts = [UNDIVIDED[name], UNDIVIDED[name][::-1], "an English line"]
    path = tmp_path / "x.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    corpus = Corpus("x.txt", texts)
    for read in (tokenize, lambda _: load_tokens(path)):
        with pytest.raises(InputError, match=r"`tokenizer=characters`, or `tokenizer=words`"):
            read(corpus)
    assert load_tokens(path, tokenizer="characters").longest == max(map(len, texts))
    assert load_tokens(path, tokenizer="words").longest < 8
    (tmp_path / "x.tsv").write_text(
        "text\tlabel\n" + "".join(f"{t}\t{i}\n" for i, t in enumerate(texts)), encoding="utf-8"
    )
    with pytest.raises(InputError, match=r"`tokenizer=characters`"):
        load_labelled(tmp_path / "x.tsv")


@pytest.mark.parametrize(("words", "refused"), [(40, False), (39, True)])
def test_half_of_the_characters_decide_that_spaces_divide_no_words(words, refused):
    """A run of 4 Chinese characters ten times, and words of one letter."""
    counts = {"\u4e2d\u6587\u4e2d\u6587": 10, "a": words}
    if not refused:
        vocabularies.refuse_undivided(counts, "x")
    else:
        with pytest.raises(InputError, match=r"51 %.*characters"):
            vocabularies.refuse_undivided(counts, "x")


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
    assert raw.vocab_size == 256
    assert (raw.tokens[65], raw.tokens[10]) == ("A", "0x0a")


def test_wordpiece(vocabulary):
    plain = tokenize(TEXTS, tokenizer=vocabulary, length=10)
    assert texts_of(plain, 0) == ["the", "cat", "##s", "sat", "!"]
    assert texts_of(plain, 3) == ["[UNK]", "nai"]
    assert (plain.tokenizer, plain.exclude, plain.vocab_size) == ("wordpiece", (), len(PIECES))


@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json", "folder"])
def test_special_tokens_surround_every_document(vocabulary, form):
    path = {"vocab.txt": vocabulary, "folder": vocabulary.parent}.get(form)
    path = path or bert_json(vocabulary.parent)
    assert pretrained.open_pretrained(path).cut == (4 if form == "tokenizer.json" else 0)
    corpus = tokenize(TEXTS, tokenizer=path, length=4, special=True)
    assert texts_of(corpus, 0) == ["[CLS]", "the", "cat", "[SEP]"]
    assert texts_of(corpus, 1) == ["[CLS]", "the", "cat", "[SEP]"]
    assert corpus.exclude == (0, 2, 3)
    assert corpus.longest == 11


def test_json_and_vocabulary_agree(vocabulary):
    one = tokenize(TEXTS, tokenizer=vocabulary, special=True)
    other = tokenize(TEXTS, tokenizer=bert_json(vocabulary.parent), special=True)
    np.testing.assert_array_equal(one.ids, other.ids)
    assert (one.tokens, other.tokenizer) == (other.tokens, "tokenizer.json")


@pytest.fixture
def pairs_with_dropout(tmp_path):
    """A tokenizer.json of byte pairs whose merges are left out at random."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    merges = [("a", "b"), ("ab", "c"), ("abc", "d"), ("c", "d"), ("b", "c")]
    vocabulary = [*"abcd", *map("".join, merges)]
    numbers = {token: number for number, token in enumerate(vocabulary)}
    model = Tokenizer(models.BPE(numbers, merges, dropout=0.5))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_dropout_of_byte_pairs_is_switched_off_and_said(pairs_with_dropout):
    texts = Corpus("x", ["abcd " * 20, "abcd abc"])
    lines: list[str] = []
    corpus = tokenize(texts, tokenizer=pairs_with_dropout, progress=Told(lines))
    assert texts_of(corpus, 0) == ["abcd"] * 20
    assert any("0.5" in line and "dropout" in line for line in lines)
    (choice,) = (choice for choice in corpus.choices if "dropout" in choice.setting)
    assert (choice.value, "0.5" in choice.why) == ("0", True)
    opened = open_tokenizer(pairs_with_dropout)
    ids = [opened.encode(texts.documents, length=20)[0] for _ in range(5)]
    assert all((found == ids[0]).all() for found in ids)
    model = json.loads(pairs_with_dropout.read_text())
    for share in (0.0, None):
        model["model"]["dropout"] = share
        pairs_with_dropout.write_text(json.dumps(model))
        assert not open_tokenizer(pairs_with_dropout).choices


def test_a_vocabulary_with_capitals_is_cased(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nThe\nthe\ncafé\n")
    corpus = tokenize(Corpus("x", ["The café", "the"]), tokenizer=tmp_path)
    assert texts_of(corpus, 0) == ["The", "café"]


def test_default_length_is_what_one_document_in_twenty_reaches():
    documents = ["a b c d e f g h", "a b c"] + ["a"] * 38
    assert tokenize(Corpus("x", documents)).ids.shape == (40, 3)
    assert tokenize(Corpus("x", ["a"] * 9)).ids.shape == (9, 2)
    assert tokenize(Corpus("x", ["a " * 500] * 2)).ids.shape == (2, 128)


def test_progress_counts_the_documents(options, shown):
    corpus = tokenize(TEXTS, progress=shown, **options)
    assert shown.bars == [(f"Tokenizing into {corpus.tokenizer}", 4)]


def test_what_cannot_be_done(vocabulary, tmp_path):
    def fails(message, corpus=TEXTS, **options):
        with pytest.raises(InputError, match=message):
            tokenize(corpus, **options)

    fails("unknown tokenizer 'word': no such file; pass words, characters, bytes", tokenizer="word")
    fails("tokenizer 'words' has no special tokens; leave `special` out", special=True)
    fails("`length` is 1; pass at least 2", length=1)
    fails("`length` is 2; pass at least 3", length=2, tokenizer=vocabulary, special=True)
    fails("x has no tokens", corpus=Corpus("x", [" ", ""]))
    fails("x has no tokens", corpus=Corpus("x", []))
    folder = tmp_path / "empty"
    folder.mkdir()
    fails("holds no tokenizer.json, vocab.txt or .gguf", tokenizer=folder)
    (folder / "vocab.txt").write_text("[UNK]\na\n")
    fails("adds no special tokens", tokenizer=folder, special=True)
    (folder / "vocab.txt").write_text("a\n")
    fails(r"has no line \[UNK\]", tokenizer=folder)
    (folder / "vocab.txt").write_bytes(b"[UNK]\n\xff\n")
    fails(r"vocab\.txt, line 2: byte 0xff", tokenizer=folder)
    (folder / "tokenizer.json").write_text("{}")
    fails(r"tokenizer\.json has no tokenizer that can be read", tokenizer=folder)


# The beginnings of a model that SentencePiece 0.2.3 trained, and of a vocabulary of tiktoken.
OTHER_LIBRARIES = {
    "SentencePiece": b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x0c\n\x03<s>\x15\0",
    "tiktoken": b"IQ== 0\nIg== 1\nIw== 2\n",
}


@pytest.mark.parametrize("library", OTHER_LIBRARIES)
@pytest.mark.parametrize("name", ["tokenizer.model", "x.tiktoken", "vocab.txt"])
def test_files_of_other_libraries_are_named(tmp_path, library, name):
    (tmp_path / name).write_bytes(OTHER_LIBRARIES[library])
    with pytest.raises(InputError, match=rf"{name} is a {library} model.*save_pretrained"):
        open_tokenizer(tmp_path / name)


def test_tokenizer_files_that_are_no_regular_files(tmp_path):
    for name in ("tokenizer.json", "vocab.txt"):
        (tmp_path / name).symlink_to("/dev/zero")
        for read in (open_tokenizer, lambda path: tokenize(TEXTS, tokenizer=path)):
            with pytest.raises(InputError, match=f"{name} is not a regular file"):
                read(tmp_path / name)


def test_tokenizer_files_that_are_too_large(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\n" + "a\n" * 100)
    monkeypatch.setattr(pretrained, "_LARGEST_FILE", 100)
    with pytest.raises(InputError, match=r"vocab\.txt has 206 bytes, more than 100"):
        open_tokenizer(path)
    monkeypatch.undo()
    monkeypatch.setattr(pretrained, "LARGEST_VOCABULARY", 100)
    with pytest.raises(InputError, match=r"vocab\.txt has ids up to 100"):
        open_tokenizer(path)


@pytest.fixture
def model():
    """A tokenizer.json as values."""
    import tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "cats": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return json.loads(made.to_str())


def refused(tmp_path, model, message, **options):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(model))
    for read in (open_tokenizer, lambda path, **o: tokenize(TEXTS, tokenizer=path, **o)):
        with pytest.raises(InputError, match=message) as caught:
            read(path, **options)
        assert "\n" not in str(caught.value)


def test_ids_beyond_any_vocabulary(tmp_path, model):
    model["model"]["vocab"]["cats"] = 2**32 - 1
    refused(tmp_path, model, "has ids up to 4,294,967,295; pass a tokenizer of 1 to 10,000,000")
    model["model"]["vocab"] = {}
    refused(tmp_path, model, r"has ids up to -1|UNK")


def test_special_tokens_of_a_tokenizer_without_latin_letters(tmp_path, model):
    model["model"]["vocab"] = {"[PAD]": 0, "[CLS]": 2, "[SEP]": 3, "猫": 4}
    (tmp_path / "tokenizer.json").write_text(json.dumps(model))
    corpus = tokenize(Corpus("cats", ["猫", "猫 猫"]), tokenizer=tmp_path, special=True)
    assert texts_of(corpus, 1) == ["[CLS]", "猫", "猫", "[SEP]"]


def test_special_tokens_outside_of_the_vocabulary(tmp_path, model):
    model["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [5]
    refused(tmp_path, model, "id 5, but its vocabulary has 5", special=True)
    model["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [2**32 - 1]
    refused(tmp_path, model, "id 4294967295", special=True)


def test_a_panic_of_the_library_is_an_input_error(tmp_path, model):
    del model["post_processor"]["special_tokens"]["[CLS]"]
    refused(tmp_path, model, "cannot add special tokens", special=True)


def test_text_that_a_tokenizer_cannot_take(tmp_path, model):
    (tmp_path / "tokenizer.json").write_text(json.dumps(model))
    with pytest.raises(InputError, match="cannot encode a text"):
        tokenize(Corpus("half", ["a", "\ud800"]), tokenizer=tmp_path)
    with pytest.raises(InputError, match="cannot encode a text"):
        open_tokenizer(tmp_path).encode(["\ud800"], length=3)


def test_a_length_that_does_not_fit_memory():
    with pytest.raises(InputError, match="length 1,000,000,000,000 of 4 documents needs"):
        tokenize(TEXTS, length=10**12)


def counted(corpus):
    return (corpus.mask & ~np.isin(corpus.ids, corpus.exclude)).any(0)


def test_sst2_as_bert_sees_it(data_dir):
    corpus = load_tokens(
        "sst2",
        data_dir=data_dir,
        tokenizer=data_dir / "bert-base-uncased",
        special=True,
        length=128,
    )
    assert (len(corpus.ids), corpus.longest, corpus.vocab_size) == (67_349, 66, 30_522)
    assert np.flatnonzero(~counted(corpus)).tolist() == [0, *range(65, 128)]


def test_imdb_as_bert_sees_it(data_dir):
    # The first thousand reviews fill every position; all 25,000 take a quarter of a minute.
    reviews = load_corpus("imdb", data_dir=data_dir)
    assert len(reviews.documents) == 25_000
    corpus = tokenize(
        reviews._replace(documents=reviews.documents[:1000]),
        tokenizer=data_dir / "bert-base-uncased" / "vocab.txt",
        special=True,
        length=256,
    )
    assert corpus.exclude == (0, 101, 102)
    assert np.flatnonzero(~counted(corpus)).tolist() == [0, 255]


def test_sst2_words(data_dir):
    corpus = load_tokens("sst2", data_dir=data_dir)
    assert corpus.tokens[:3] == ["the", ",", "a"]
    assert 20 < corpus.ids.shape[1] < corpus.longest

"""Documents with labels: classes, vocabularies shared by splits, parts held out, refusals."""

import sys

import numpy as np
import pytest

from jaxpe._core import memory
from jaxpe.data import hold_out, load_labelled, load_tokens, tokens_from_ids
from jaxpe.data.corpora.labelled import LabelledTokens
from tests.data.reading import refused, write_lines

ROWS = [("pos", "good fun"), ("neg", "no fun, no"), ("pos", "  "), ("pos", "good good")]


def written(folder, name, rows, fields=("label", "text")):
    """A file of labels and texts in the format that its name announces."""
    path = folder / name
    if path.suffix == ".jsonl":
        return write_lines(path, *(dict(zip(fields, row, strict=True)) for row in rows))
    delimiter, cell = (",", '"{}"') if path.suffix == ".csv" else ("\t", "{}")
    lines = (delimiter.join(map(cell.format, row)) + "\n" for row in (fields, *rows))
    path.write_text("".join(lines))
    return path


def texts_of(corpus):
    pairs = zip(corpus.ids, corpus.mask, strict=True)
    return [" ".join(corpus.tokens[i] for i in ids[mask]) for ids, mask in pairs]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_every_format_gives_documents_and_labels_without_the_blank_ones(tmp_path, name):
    labelled = load_labelled(written(tmp_path, name, ROWS), length=4)
    assert (labelled.labels.tolist(), labelled.labels.dtype) == ([1, 0, 1], np.int32)
    assert labelled.names == ("neg", "pos")
    assert texts_of(labelled.corpus) == ["good fun", "no fun , no", "good good"]
    assert labelled.corpus.name == name
    # Columns may have any name, and a label of text is no document.
    path = written(tmp_path, name, ROWS, ("verdict", "review"))
    assert load_labelled(path, label_field="verdict").labels.tolist() == [1, 0, 1]


CLASSES = {
    "integers numerically": ([10, 9, -1], ("-1", "9", "10")),
    "integers of text": (["10", "9", " 9"], ("9", "10")),
    "strings": (["007", "7", "1_000"], ("007", "1_000", "7")),
    "numbers as Python reads them": (["1e3", "nan", "inf"], ("1e3", "inf", "nan")),
    "text alphabetically": (["b", "a", "10"], ("10", "a", "b")),
    "whole numbers": ([1.0, 0, 1], ("0", "1")),
    "booleans": ([False, True, False], ("false", "true")),
    "no integers": (["--5", "-7", "5-", "9" * 5000], ("--5", "-7", "5-", "9" * 5000)),
    "other digits": (["٣x", "²", "-7"], ("-7", "²", "٣x")),
    "wide integers": ([2**60, 2**60 + 1, 0], ("0", str(2**60), str(2**60 + 1))),
}


@pytest.mark.parametrize("case", CLASSES)
def test_classes_are_sorted(tmp_path, case):
    labels, names = CLASSES[case]
    rows = [(label, f"text {i}") for i, label in enumerate(labels)]
    for name in ("a.tsv", "a.jsonl")[case in ("whole numbers", "booleans") :]:
        labelled = load_labelled(written(tmp_path, name, rows))
        found = [labelled.names[number] for number in labelled.labels]
        assert labelled.names == names
        shown = [int(x) if isinstance(x, float) else x for x in labels]
        assert found == [str(x).strip().lower() for x in shown]


def test_like_shares_vocabulary_length_and_classes(tmp_path):
    train = load_labelled(written(tmp_path, "train.tsv", ROWS), length=3)
    dev = load_labelled(
        written(tmp_path, "dev.tsv", [("pos", "bad fun indeed yes"), ("pos", "no")]), like=train
    )
    assert dev.corpus.tokens == train.corpus.tokens
    assert dev.corpus.tokens[-1] == "[UNK]"
    assert dev.names == train.names
    assert dev.labels.tolist() == [1, 1]
    assert dev.corpus.ids.shape[1] == 3
    assert texts_of(dev.corpus) == ["[UNK] fun [UNK]", "no"]
    assert not dev.corpus.ids[~dev.corpus.mask].any()
    again = load_labelled(tmp_path / "train.tsv", like=train)
    np.testing.assert_array_equal(again.corpus.ids, train.corpus.ids)


@pytest.mark.parametrize("tokenizer", ["words", "characters"])
def test_without_a_cap_only_the_unknown_token_is_new(tmp_path, tokenizer):
    path = written(tmp_path, "a.tsv", ROWS)
    labelled = load_labelled(path, tokenizer=tokenizer).corpus
    plain = load_tokens(path, tokenizer=tokenizer)
    np.testing.assert_array_equal(labelled.ids, plain.ids)
    assert labelled.tokens == [*plain.tokens, "[UNK]"]
    assert labelled.vocab_size == plain.vocab_size + 1


def test_the_rarest_words_become_unknown(tmp_path):
    path = written(tmp_path, "a.tsv", ROWS)
    corpus = load_labelled(path, length=4, max_vocab=3).corpus
    assert corpus.tokens == ["good", "fun", "[UNK]"]
    assert texts_of(corpus)[1] == "[UNK] fun [UNK] [UNK]"


def test_a_fixed_vocabulary_stays(tmp_path):
    path = written(tmp_path, "a.tsv", ROWS)
    train = load_labelled(path, tokenizer="bytes")
    assert train.corpus.vocab_size == 256
    assert load_labelled(path, like=train).corpus.tokens == train.corpus.tokens
    refused(path, "`max_vocab`", load_labelled, tokenizer="bytes", max_vocab=9)


def test_like_reads_with_the_same_pretrained_tokenizer(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "fun", "no"]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(pieces))
    path = written(tmp_path, "a.tsv", ROWS)
    train = load_labelled(path, tokenizer=vocabulary, special=True, length=5)
    dev = load_labelled(path, like=train)
    np.testing.assert_array_equal(dev.corpus.ids, train.corpus.ids)
    assert dev.corpus.exclude == (0, 2, 3)
    vocabulary.write_text("\n".join([*pieces, "new"]))
    refused(path, "`like`", load_labelled, like=train)


GOOD = '{"label": 1, "text": "a"}\n'
BAD = {
    "missing.tsv": ("label\ttext\n1\ta\n\tb\n", "line 3: label ''"),
    "half.jsonl": (GOOD + '{"label": 0.5, "text": "a"}\n', "line 2: label '0.5'"),
    "inf.jsonl": (GOOD + '{"label": -Infinity, "text": "a"}\n', "line 2: label '-inf'"),
    "list.jsonl": (GOOD + '{"label": [1], "text": "a"}\n', "line 2: label "),
    "surrogate.jsonl": (GOOD + '{"label": "\\ud800", "text": "a"}\n', "line 2: label"),
    "none.tsv": ("class\ttext\n1\ta\n", "no column 'label'"),
    "none.jsonl": (GOOD + '{"text": "b"}\n', "line 2: no column 'label'"),
    "same.tsv": ("label\ttext\n1\ta\n1\tb\n", "every label is '1'"),
    "one.tsv": ("label\ttext\n1\ta\n0\t \n", "only one document"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_labels_are_named_with_the_line(tmp_path, name):
    text, word = BAD[name]
    (tmp_path / name).write_text(text)
    refused(tmp_path / name, word, load_labelled)


def test_the_label_of_a_blank_document_is_not_looked_at(tmp_path):
    path = written(tmp_path, "a.tsv", [("a", "x"), ("", " "), ("b", "y")])
    assert load_labelled(path).names == ("a", "b")


def test_options_that_cannot_be(tmp_path):
    path = written(tmp_path, "a.tsv", ROWS)
    train = load_labelled(path)
    other = written(tmp_path, "b.tsv", [("pos", "a"), ("mixed", "b")])
    refused(other, "line 3: unknown label 'mixed'", load_labelled, like=train)
    for option in ({"length": 4}, {"special": True}, {"max_vocab": 4}, {"tokenizer": "bytes"}):
        refused(path, "`like`", load_labelled, like=train, **option)
    for name in ("x.txt", "x.npy"):
        (tmp_path / name).touch()
    for source in ("stdlib", "synthetic", "-", tmp_path / "x.txt", tmp_path / "x.npy"):
        refused(source, "no columns", load_labelled)
    refused(path, "`max_vocab` is 1", load_labelled, max_vocab=1)
    refused(path, "no split 'dev'", load_labelled, split="dev")
    refused("sst2", "no split 'test'", load_labelled, split="test")
    refused("sst2", "no columns", load_labelled, text_field="sentence")


def test_named_corpora_have_splits_and_names_of_classes(tmp_path, monkeypatch):
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("label\tsentence\n1\tgood\n0\tbad\n")
    (tmp_path / "sst2" / "dev.tsv").write_text("label\tsentence\n0\tgood bad\n1\todd\n")
    train = load_labelled("sst2", data_dir=tmp_path)
    dev = load_labelled("sst2", split="dev", like=train, data_dir=tmp_path)
    assert train.names == dev.names == ("negative", "positive")
    assert (train.labels.tolist(), dev.labels.tolist()) == ([1, 0], [0, 1])
    assert (train.corpus.name, dev.corpus.name) == ("sst2", "sst2 dev")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    refused("imdb", "no file imdb/test", load_labelled, split="test", data_dir=tmp_path)


def numbered(ids):
    """Documents whose label is their number, so that each can be told after a split."""
    names = tuple(map(str, range(len(ids))))
    return LabelledTokens(tokens_from_ids(ids), np.arange(len(ids), dtype=np.int32), names, "ids")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_a_part_held_out_is_a_partition_without_copies_across(seed, fraction):
    ids = np.random.default_rng(7).integers(0, 4, (200, 3))  # 64 different documents
    whole = numbered(ids)
    rest, held_out = hold_out(whole, fraction=fraction, seed=seed)
    assert sorted([*rest.labels, *held_out.labels]) == list(range(200))
    for part in (rest, held_out):
        assert (np.diff(part.labels) > 0).all()
        np.testing.assert_array_equal(part.corpus.ids, ids[part.labels])
        assert part.corpus.mask.shape == part.corpus.ids.shape
    assert not set(map(tuple, rest.corpus.ids)) & set(map(tuple, held_out.corpus.ids))
    assert fraction * 200 <= len(held_out.labels) < fraction * 200 + 12
    same = hold_out(whole, fraction=fraction, seed=seed)[1]
    np.testing.assert_array_equal(same.labels, held_out.labels)
    other = hold_out(whole, fraction=fraction, seed=seed + 10)[1]
    assert set(other.labels) != set(held_out.labels)


def test_a_phrase_stays_with_the_document_it_was_cut_from(tmp_path):
    sentences = [f"a{i} b{i} c{i} d{i} e{i} f{i}" for i in range(20)]
    phrases = [" ".join(text.split()[1:5]) for text in sentences]
    path = written(tmp_path, "a.tsv", [(i % 2, t) for i, t in enumerate(sentences + phrases)])
    rest, held_out = hold_out(load_labelled(path), fraction=0.3)
    assert len(held_out.labels) == 12
    words = [set(" ".join(texts_of(part.corpus)).split()) for part in (rest, held_out)]
    assert not words[0] & words[1]


def test_what_cannot_be_held_out(monkeypatch):
    whole = numbered(np.arange(12).reshape(4, 3))
    for fraction in (0.0, 1.0, -1.0, float("nan")):
        refused(whole, "`fraction`", hold_out, fraction=fraction)
    for seed in (-1, 2**32):
        refused(whole, "`seed`", hold_out, seed=seed)
    refused(numbered(np.zeros((4, 3), int)), "nothing", hold_out, fraction=0.2)
    monkeypatch.setattr(memory, "available_bytes", lambda: 100)
    refused(whole, "grouping", hold_out)


def test_published_corpora_are_read_whole(data_dir):
    options = {"tokenizer": "bytes", "length": 8, "data_dir": data_dir}
    for name, split, documents, positive in (
        ("sst2", "train", 67_349, 37_569),
        ("sst2", "dev", 872, 444),
        ("imdb", "train", 25_000, 12_500),
    ):
        found = load_labelled(name, split=split, **options)
        assert found.names == ("negative", "positive")
        assert (len(found.labels), int(found.labels.sum())) == (documents, positive)
    assert found.labels[:12_500].all()  # ordered by label


def test_sst2_as_bert_sees_it(data_dir):
    options = {"tokenizer": data_dir / "bert-base-uncased", "special": True, "data_dir": data_dir}
    dev = load_labelled("sst2", split="dev", length=66, **options).corpus
    assert (dev.exclude, dev.longest, dev.vocab_size) == ((0, 101, 102), 55, 30_522)
    assert dev.mask.any(axis=0).sum() == 55

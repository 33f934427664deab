"""Reading text: every format, and what is said when a file is not what it seems."""

import csv
import gzip
import io
import json
import sys

import pytest

from jaxpe._errors import InputError
from jaxpe.data import load_corpus

TEXTS = ["The fog comes", 'on "little", cat feet', "naïve — 猫"]
FILES = {
    "a.txt": "\n\n".join(TEXTS) + "\n",
    "b.tsv": "label\tsentence\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(TEXTS)),
    "c.jsonl": "\n".join(json.dumps({"id": "x", "text": t, "label": 1}) for t in TEXTS),
    "d.csv": 'label,review\n1,The fog comes\n0,"on ""little"", cat feet"\n1,naïve — 猫\n',
    "e.jsonl": "".join(json.dumps({"review": t, "n": 1}, ensure_ascii=False) + "\n" for t in TEXTS),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "bom"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("packed", [False, True], ids=["", "gz"])
def test_every_format_gives_the_same_documents(tmp_path, name, start, end, packed):
    path = tmp_path / (name + ".gz" * packed)
    data = (start + FILES[name].replace("\n", end)).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    assert load_corpus(path) == (path.name, TEXTS)
    assert load_corpus(str(path)).documents == TEXTS


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\n\nb\n".encode())))
    assert load_corpus("-") == ("stdin", ["é", "b"])


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_text_field_chooses_the_column(tmp_path, name):
    path = tmp_path / name
    rows = {"x.csv": "text,title\na,b\nc,d\n", "x.jsonl": '{"text":"a","title":"b"}\n' * 2}
    path.write_text(rows[name])
    assert load_corpus(path).documents[0] == "a"
    assert load_corpus(path, text_field="title").documents[0] == "b"


def test_a_quotation_mark_in_tsv_is_text(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text('text\n"open\nsecond\n')
    assert load_corpus(path).documents == ['"open', "second"]


def test_a_long_csv_field_and_a_line_break_in_it(tmp_path):
    path, limit = tmp_path / "x.csv", csv.field_size_limit()
    path.write_text('text\n"' + "a" * (limit + 1) + '"\n"two\nlines"\n')
    assert load_corpus(path).documents[1] == "two\nlines"
    assert csv.field_size_limit() == limit


def test_progress_wraps_the_lines(tmp_path):
    seen = []

    def progress(iterable, description, total=None):
        seen.append((description, total))
        return iterable

    path = tmp_path / "x.txt"
    path.write_text("a\nb\n")
    load_corpus(path, progress=progress)
    assert seen == [("Reading x.txt", None)]


BAD = {
    "latin.txt": (b"fine\ncaf\xe9\n", r"latin\.txt, line 2: byte 0xe9 is not UTF-8.*iconv"),
    "latin.csv": (b"text\nfine\ncaf\xe9\n", r"latin\.csv, line 3: byte 0xe9"),
    "empty.txt": (b"", r"empty\.txt holds no documents; pass at least two"),
    "empty.csv": (b"", r"empty\.csv holds no documents"),
    "blank.jsonl": (b'{"text": " "}\n', r"holds no documents"),
    "one.txt": (b"only\n\n", r"only one document; pass at least two"),
    "bad.jsonl": (b'{"text": "a"}\n{"text": \n', r"bad\.jsonl, line 2: not JSON"),
    "list.jsonl": (b'["a"]\n', r"line 1: a JSON list, not an object"),
    "key.jsonl": (b'{"text": "a"}\n\n{"body": 1}\n', r"line 3: no column 'text'.*'body'"),
    "null.jsonl": (b'{"text": null}\n', r"line 1: 'text' is null, not a string"),
    "half.jsonl": (b'{"text": "\\ud800"}\n', r"line 1: 'text' holds half of a surrogate"),
    "two.csv": (b"title,body\na,b\n", r"which column holds the text.*'title', 'body'.*text_field"),
    "two.jsonl": (b'{"title":"a","body":"b"}\n', r"line 1: .*which column.*'title', 'body'"),
    "ragged.csv": (b"text,label\na,1\nb,c,1\n", r"ragged\.csv, line 3: 3 fields, .*names 2"),
    "quote.csv": (b'text\n"a\nb\n', r"quote\.csv, line 3: unexpected end of data"),
    "x.pdf": (b"a\nb\n", r"x\.pdf: unknown kind of file; supported are \.txt, \.tsv, \.csv"),
    "fake.txt.gz": (b"a\nb\n", r"fake\.txt\.gz cannot be read: Not a gzipped file"),
    "cut.txt.gz": (gzip.compress(b"a\nb\n" * 99)[:-9], r"cut\.txt\.gz cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named_with_the_line(tmp_path, name):
    data, message = BAD[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        load_corpus(tmp_path / name)


def test_what_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"no such file: .*nope.*stdlib, sst2, imdb, synthetic"):
        load_corpus(tmp_path / "nope.txt")
    with pytest.raises(InputError, match="a directory that export_corpus did not write"):
        load_corpus(tmp_path)
    (tmp_path / "x.csv").write_text("a,b\nc,d\n")
    with pytest.raises(InputError, match=r"no column 'z'; pass one of 'a', 'b'"):
        load_corpus(tmp_path / "x.csv", text_field="z")
    for source in ("stdlib", "sst2", "-", "x.txt"):
        with pytest.raises(InputError, match=r"has no columns; leave text_field out"):
            load_corpus(source, text_field="z")
    for source in ("synthetic", "x.npy"):
        with pytest.raises(InputError, match="read it with load_tokens"):
            load_corpus(source)

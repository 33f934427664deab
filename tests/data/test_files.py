"""Reading text: every format, and what is said when a file is not what it seems."""

import csv
import gzip
import io
import json
import os
import sys

import pytest

from jaxpe._core import memory
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe.data import Corpus, csv_rows, files, find_shards, load_corpus, load_labelled, rows
from jaxpe.data.fields import Fields
from jaxpe.data.rows import iter_rows

TEXTS = ["The fog comes", 'on "little", cat feet', "naïve — 猫"]
FILES = {
    "a.txt": "\n\n".join(TEXTS) + "\n",
    "b.tsv": "label\tsentence\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(TEXTS)),
    "c.jsonl": "\n".join(json.dumps({"id": "x", "text": t, "label": 1}) for t in TEXTS),
    "d.csv": 'label,review\n1,The fog comes\n0,"on ""little"", cat feet"\n1,naïve — 猫\n',
    "f.json": json.dumps([{"id": "x", "text": t, "label": 1} for t in TEXTS], indent=1),
    "g.json": json.dumps({"version": 1, "tags": [], "data": [{"review": t} for t in TEXTS]}),
    "h.json": json.dumps(TEXTS, ensure_ascii=False, indent=0),
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
    assert load_corpus(path)[:2] == (path.name, TEXTS)
    assert load_corpus(str(path)).documents == TEXTS


def test_a_list_of_strings_has_no_columns(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('["a", "b"]')
    with pytest.raises(InputError, match="without columns; leave `text_field` out"):
        load_corpus(path, text_field="text")
    with pytest.raises(InputError, match="without columns; leave `label_field` out"):
        load_labelled(path)


def test_a_large_array_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_FILE", 10_000)
    for name, content in (("x.json", b" " * 20_000), ("x.json.gz", gzip.compress(b" " * 10**6))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=r"more than 10,000 bytes.*\.jsonl"):
            load_corpus(tmp_path / name)


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\n\nb\n".encode())))
    assert load_corpus("-") == Corpus("stdin", ["é", "b"])


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


def test_readers_of_tables_do_not_disturb_each_other(tmp_path):
    limit = csv.field_size_limit()
    (tmp_path / "x.csv").write_text("text\na\nb\n")
    first, second = (
        iter_rows(str(tmp_path / "x.csv"), Fields(None, None), progress=SILENT) for _ in range(2)
    )
    next(first), next(second), list(first)
    assert csv.field_size_limit() == limit
    assert len(list(second)) == 1
    assert csv.field_size_limit() == limit


def test_progress_counts_the_lines(tmp_path, shown):
    path = tmp_path / "x.txt"
    path.write_text("a\nb\n")
    load_corpus(path, progress=shown)
    assert shown.bars == [("Reading x.txt", None)]


BAD = {
    "latin.txt": (b"fine\ncaf\xe9\n", r"latin\.txt, line 2: byte 0xe9 is not UTF-8.*iconv"),
    "latin.csv": (b"text\nfine\ncaf\xe9\n", r"latin\.csv, line 3: byte 0xe9"),
    "empty.txt": (b"", r"empty\.txt holds no documents; pass at least two"),
    "empty.csv": (b"", r"empty\.csv holds no documents"),
    "blank.jsonl": (b'{"text": " "}\n', r"holds no documents"),
    "one.txt": (b"only\n\n", r"only one document; pass at least two"),
    "bad.jsonl": (b'{"text": "a"}\n{"text": \n', r"bad\.jsonl, line 2 is not JSON"),
    "list.jsonl": (b'["a"]\n', r"line 1: a JSON list, not an object"),
    "key.jsonl": (
        b'{"text": "a"}\n\n{"body": 1}\n',
        r"line 3: 'text' is .*missing in 1 of 2 rows.*`skip_nulls=True`",
    ),
    "null.jsonl": (b'{"text": null}\n', r"line 1: 'text' is null or missing in 1 of 1 rows"),
    "empty.json": (b"", r"empty\.json holds no documents"),
    "none.json": (b"[]", r"none\.json holds no documents"),
    "lines.json": (b'{"text": "a"}\n{"text": "b"}\n', r"lines\.json is not JSON .*\.jsonl"),
    "one.json": (b'{"text": "a"}', r"one\.json is a JSON object with no list of objects"),
    "both.json": (b'{"a": [{}], "b": [{}]}', r"with 2 lists of objects \('a', 'b'\)"),
    "number.json": (b"3", r"number\.json: a JSON int, not an object"),
    "numbers.json": (b"[1, 2]", r"numbers\.json, record 0: a JSON int, not an object"),
    "mixed.json": (b'["a", 1]', r"mixed\.json, record 1: 'text' is 1, not a string"),
    "two.json": (b'[{"title":"a","body":"b"}]', r"record 0: .*which column.*'title', 'body'"),
    "deep.json": (b"[" * 100_000, r"deep\.json is not JSON \(nested too deeply\)"),
    "half.json": (b'["a", "\\ud800"]', r"record 1: 'text' holds half of a surrogate"),
    "cut.json.gz": (gzip.compress(b'["a", "b"]')[:-9], r"cut\.json\.gz cannot be read"),
    "half.jsonl": (b'{"text": "\\ud800"}\n', r"line 1: 'text' holds half of a surrogate"),
    "two.csv": (b"title,body\na,b\n", r"which column holds the text.*'title', 'body'.*text_field"),
    "two.jsonl": (b'{"title":"a","body":"b"}\n', r"line 1: .*which column.*'title', 'body'"),
    "ragged.csv": (b"text,label\na,1\nb,c,1\n", r"ragged\.csv, line 3: 3 fields, .*names 2"),
    "quote.csv": (b'text\n"a\nb\n', r"quote\.csv, line 3: unexpected end of data"),
    "x.pdf": (b"a\nb\n", r"x\.pdf: unknown kind of file; supported are \.txt, \.tsv, \.csv"),
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
        with pytest.raises(InputError, match=r"has no columns; leave `text_field` out"):
            load_corpus(source, text_field="z")
    for source in ("synthetic", "x.npy"):
        with pytest.raises(InputError, match="read it with load_tokens"):
            load_corpus(source)


def fails(source, message, **options):
    with pytest.raises(InputError, match=message) as caught:
        load_corpus(source, **options)
    assert len(str(caught.value)) < 4000  # the path, and no more of the file than a glance


@pytest.mark.parametrize("name", ["x.txt", "x.tsv", "x.csv", "x.jsonl"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path, monkeypatch, name, packed):
    monkeypatch.setattr(files, "LARGEST_TEXT", 10_000)
    path = tmp_path / (name + packed)
    first = b'{"text": "a"}\n' if name == "x.jsonl" else b"text\n"
    nothing = first + b"a" * 2**20
    path.write_bytes(gzip.compress(nothing) if packed else nothing)
    fails(path, r"line 2 has more than 10,000 bytes")


def test_a_line_may_have_sixty_four_megabytes(tmp_path):
    assert files.LARGEST_TEXT == 2**26
    path = tmp_path / "x.txt.gz"
    path.write_bytes(gzip.compress(b"a\n" + b"a" * (2**26 - 1) + b"\n", 1))
    assert [len(text) for text in load_corpus(path).documents] == [1, 2**26 - 1]


def test_a_quotation_mark_that_is_left_open_does_not_take_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_rows, "LARGEST_TEXT", 10_000)
    path = tmp_path / "x.csv"
    path.write_text('text\nfine\n"open\n' + "a line\n" * 10_000)
    fails(path, r"a row is longer than 10,000 characters; close the quotation mark")
    path.write_text('text\n"' + '\n","' * 10_000 + '"\n')
    fails(path, r"a row is longer than 10,000 characters")


def test_documents_that_outgrow_memory_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("a line\n" * 1000)
    monkeypatch.setattr(rows, "_STEP", 10_000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 300_000)
    assert len(load_corpus(path).documents) == 1000
    monkeypatch.setattr(memory, "available_bytes", lambda: 200_000)
    fails(path, r"x\.txt, of which .* are read, needs .* of memory.*jaxpe count")


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")  # nobody writes into it
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    (tmp_path / "zero.csv.gz").symlink_to("/dev/zero")
    for name in ("pipe.txt", "zero.jsonl", "zero.csv.gz"):
        fails(tmp_path / name, rf"{name} is not a regular file; .*standard input.*'-'")


def test_standard_input_that_is_closed(monkeypatch):
    closed = io.TextIOWrapper(io.BytesIO(b"a"))
    closed.close()
    for stdin in (None, closed, io.StringIO("a")):
        monkeypatch.setattr(sys, "stdin", stdin)
        fails("-", "standard input is closed")


def test_two_columns_of_one_name(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text,text,label,label,n,n\na,b,1,1,0,0\nc,d,2,2,0,0\n")
    fails(path, "2 columns are named 'text'; rename")
    path.write_text("text,title,n,n\na,b,0,0\nc,d,0,0\n")
    assert load_corpus(path).documents == ["a", "c"]


def test_messages_show_little_of_a_hostile_file(tmp_path):
    columns = ",".join(f"column{i}" for i in range(100_000))
    (tmp_path / "wide.csv").write_text(f"{columns}\na,b\n")
    fails(tmp_path / "wide.csv", r"2 fields, but the header names 100000: 'column0', .*\.\.\.")
    fails(tmp_path / "wide.csv", r"2 fields", text_field="x" * 100)
    (tmp_path / "wide.jsonl").write_text(json.dumps({"x" * 10**6: ["a" * 10**6]}) + "\n")
    fails(tmp_path / "wide.jsonl", r"no column 'z'; pass one of 'x*'\.\.\.", text_field="z")
    (tmp_path / "deep.jsonl").write_text('{"text": ' + "[" * 500 + "]" * 500 + "}\n")
    fails(tmp_path / "deep.jsonl", r"line 1: 'text' is a JSON list, not a string")
    (tmp_path / "deeper.jsonl").write_text('{"text": ' + "[" * 10**6)
    fails(tmp_path / "deeper.jsonl", r"line 1 is not JSON \(nested too deeply\)")


def test_a_name_that_is_not_utf8_is_marked(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    with open(path, "w") as file:
        file.write("a\nb\n")
    assert load_corpus(path).name == "caf\ufffd.txt"
    (shard,) = find_shards([path])
    assert shard.name == "caf\ufffd.txt"
    assert len(list(shard.documents())) == 2

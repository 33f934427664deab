"""Reading text: every format, and what is said when a file is not what it seems."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe._core import memory
from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe.data import Corpus, find_shards, load_corpus, load_labelled, load_tokens
from jaxpe.data.corpora.load import sample_rows
from jaxpe.data.formats import files

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
    assert load_corpus(path)[:2] == (path.name, TEXTS)
    assert load_corpus(str(path)).documents == TEXTS


def test_standard_input(monkeypatch):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO("é\n\nb\n".encode())))
    )
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
    path = tmp_path / "x.csv"
    path.write_text('text\n"' + "a" * 2**18 + '"\n"two\nlines"\n')
    assert load_corpus(path).documents[1] == "two\nlines"


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
        r"line 3: 'text' is .*missing .*; pass `skip_nulls=True`",
    ),
    "null.jsonl": (b'{"text": null}\n', r"not clear which column holds the text: 'text' \(null\)"),
    "half.jsonl": (b'{"text": "\\ud800"}\n', r"line 1: 'text' holds half of a surrogate"),
    "two.csv": (
        b"title,body\na,b\n",
        r"which column holds the text: 'title' \('a'\), 'body' .*text_field",
    ),
    "two.jsonl": (b'{"title":"a","body":"b"}\n', r"which column.*'title' \('a'\), 'body' \('b'\)"),
    "ragged.csv": (b"text,label\na,1\nb,c,1\n", r"ragged\.csv, line 3: 3 fields, .*names 2"),
    "quote.csv": (b'text\n"a\nb\n', r"quote\.csv, line 3: unexpected end of data"),
    "x.pdf": (b"a\nb\n", r"x\.pdf: unknown kind of file; pass paths, .* of \.txt, \.tsv, \.csv"),
    "no.fa": (b"ACGT\n>x\nAC\n", r"no\.fa, line 1: 'ACGT' begins no record"),
    "bad.fa": (b">x\nAC\nA7T\n", r"bad\.fa, line 3: '7' is no letter of a sequence"),
    "cut.fq": (b"@x\nAC\n+\n##\n@y\nACG\n+\n#", r"cut\.fq, line 5: .* 3 letters and 1 qualities"),
    "long.fq": (b"@x\nAC\n+\n##\n##\n", r"long\.fq, line 5: '##' begins no record"),
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
    with pytest.raises(InputError, match=r"is a folder without files to read; pass .* of \.txt"):
        load_corpus(tmp_path)
    (tmp_path / "x.csv").write_text("a,b\nc,d\n")
    with pytest.raises(InputError, match=r"no column 'z'; pass one of 'a', 'b'"):
        load_corpus(tmp_path / "x.csv", text_field="z")
    for source in ("stdlib", "sst2", "-"):
        with pytest.raises(InputError, match=r"has no columns; leave `text_field` out"):
            load_corpus(source, text_field="z")
    with pytest.raises(InputError, match="read it with load_tokens"):
        load_corpus("synthetic")


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


def test_documents_that_outgrow_memory_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("a line\n" * 1000)
    monkeypatch.setattr("jaxpe.data.formats.table._STEP", 10_000)
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
    fails(tmp_path / "deep.jsonl", r"which column holds the text: 'text' \(\[\[\[")
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


ROWS = [
    ("yes", "The fog comes"),
    ("no", 'on "little", cat feet'),
    ("no", "looking over\tharbor"),
    ("yes", "on silent haunches\nand then moves on"),
    ("no", '"And", he said'),
]
TABLE = [("label", "text"), *ROWS]
DOCUMENTS = [text for _, text in ROWS]


def table(rows, **dialect):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **dialect).writerows(rows)
    return file.getvalue()


def read_both_ways(path):
    """The documents, which are equal read whole and streamed."""
    corpus = load_corpus(path)
    (shard,) = find_shards([path])
    assert [document.text for document in shard.documents()] == corpus.documents
    return corpus


def marks(corpus):
    return next((c.value for c in corpus.choices if c.setting == "quotation marks"), None)


def zstd(content):
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(content)
    return file.getvalue().to_pybytes()


COMPRESSORS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
def test_what_follows_a_compressed_stream_is_not_dropped(tmp_path, suffix):
    path = tmp_path / f"x.txt{suffix}"
    one, two = (COMPRESSORS[suffix](text) for text in (b"one\n", b"two\n"))
    path.write_bytes(one + two)
    assert load_corpus(path).documents == ["one", "two"]
    for rest in (b"\1" + two[1:], b"\0" * 8 + two, two[:-1], b"trailing"):
        path.write_bytes(one + rest)
        with pytest.raises(InputError, match=f"x.txt{suffix} cannot be read: .*; check that"):
            load_corpus(path)


WRITERS = {
    "pandas": table(TABLE, delimiter="\t"),
    "all": table(TABLE, delimiter="\t", quoting=csv.QUOTE_ALL),
    "strings": table(
        [("n", "text"), *enumerate(DOCUMENTS)], delimiter="\t", quoting=csv.QUOTE_NONNUMERIC
    ),
    "crlf": table(TABLE, delimiter="\t").replace("\n", "\r\n"),
    "first": table([row[::-1] for row in TABLE], delimiter="\t"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_quoted_tsv_is_read_as_the_csv_of_its_rows(tmp_path, name):
    path = tmp_path / "x.tsv"
    path.write_bytes(WRITERS[name].encode())
    found = read_both_ways(path)
    assert [text.replace("\r\n", "\n") for text in found.documents] == DOCUMENTS
    assert marks(found) == "quoting"
    shutil.copy(path, tmp_path / "x.csv")  # as messages say; it has tabs, too
    assert read_both_ways(tmp_path / "x.csv").documents == found.documents


# What quotation marks are, and the documents.
TSV = {
    "excel": (
        'label\ttext\n1\t"Hello, world"\n0\tplain\n1\tfine\n',
        "text",
        ['"Hello, world"', "plain", "fine"],
    ),
    "every row": ('label\ttext\n1\t"great"\n0\t"bad"\n', "text", ['"great"', '"bad"']),
    "header": ('"label"\t"text"\n1\tgreat\n0\tbad\n', "quoting", ["great", "bad"]),
    "one column": ('text\n"two\nlines"\nand, one\n', "quoting", ["two\nlines", "and, one"]),
    "lone": ('label\ttext\n1\t"open\n0\ta "b" c\n', "text", ['"open', 'a "b" c']),
    "open and closed": (
        'label\ttext\n1\t"open\n0\tclosed"\n1\tb, c\n',
        "text",
        ['"open', 'closed"', "b, c"],
    ),
    "quotations": ('label\ttext\n1\t"great"\n0\tbad, b\n', "text", ['"great"', "bad, b"]),
    "mostly lone": (
        "label\ttext\n" + '1\ta "b" c\n' * 20 + '0\t"a ""b"""\n',
        "text",
        ['a "b" c'] * 20 + ['"a ""b"""'],
    ),
    "none": ("label\ttext\n1\tgreat\n0\tbad\n", None, ["great", "bad"]),
    "blank lines": ('\n\nlabel\ttext\n1\t"great"\n0\tbad, b\n', "text", ['"great"', "bad, b"]),
}


@pytest.mark.parametrize("name", TSV)
def test_quotation_marks_of_tsv_are_quoting_or_text(tmp_path, name):
    content, value, documents = TSV[name]
    path = tmp_path / "x.tsv"
    path.write_text(content)
    corpus = read_both_ways(path)
    assert (marks(corpus), corpus.documents) == (value, documents)


def test_a_tab_in_a_document_names_quoting(tmp_path):
    (tmp_path / "x.tsv").write_text('label\ttext\n1\ta "b" c\n0\ta\tb\n')
    fails(tmp_path / "x.tsv", r"line 3: 3 fields.*quotation marks are text: line 2 ")


DELIMITED = {
    "semicolon": table(TABLE, delimiter=";"),
    "tab": table(TABLE, delimiter="\t"),
    "bar": table(TABLE, delimiter="|"),
    "sep": "sep=;\n" + table(TABLE, delimiter=";"),
    "quoted sep": '\n"sep=|"\n' + table(TABLE, delimiter="|"),
}


@pytest.mark.parametrize("name", DELIMITED)
def test_delimiters_of_csv(tmp_path, name):
    (tmp_path / "x.csv").write_text(DELIMITED[name])
    assert read_both_ways(tmp_path / "x.csv").documents == DOCUMENTS
    assert len(load_labelled(tmp_path / "x.csv").labels) == len(ROWS)


def test_a_semicolon_in_a_text_and_commas_of_tables_by_semicolon(tmp_path):
    (tmp_path / "x.csv").write_text("text\nfirst; and\nsecond; or\n")
    assert load_corpus(tmp_path / "x.csv").documents == ["first; and", "second; or"]
    (tmp_path / "x.csv").write_text("id;score;text\n1;3,5;good, so\n2;4,5;bad\n")
    assert load_corpus(tmp_path / "x.csv").documents == ["good, so", "bad"]
    (tmp_path / "x.tsv").write_text("label,text\n1,good\n0,bad\n")
    assert load_corpus(tmp_path / "x.tsv").documents == ["good", "bad"]


HEADERS = {
    "numbers": ("0,The fog comes\n1,on cat feet\n0,it sits\n", r"line 1 .*names? columns"),
    "document": ("This is the very first review here\nfine\n", r"line 1 .*begin the file"),
    "comment": ("# exported by X, on Monday\nlabel,text\n1,good\n", r"line 1 "),
    "title": ("Report of films\n\nlabel,text\n1,good\n", r"line 3: 2 fields.*above the header"),
    "twice": ("label,text\n1,a\n0,b\nlabel,text\n1,a\n", r"line 4 is a header again"),
    "with a mark": ("label,text\n1,a\n\ufefflabel,text\n1,a\n", r"line 3 is a header again"),
    "other order": ("label,text\n1,a\ntext,label\na,1\n", r"line 3 is a header again"),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_what_is_no_header_is_refused(tmp_path, name, ending):
    content, message = HEADERS[name]
    path = tmp_path / f"x.{ending}"
    path.write_text(content if ending == "csv" else content.replace(",", "\t"))
    fails(path, message)


def test_columns_without_names_that_pandas_numbers(tmp_path):
    (tmp_path / "x.csv").write_text("0,1\n1,good\n0,bad\n")
    assert load_corpus(tmp_path / "x.csv").documents == ["good", "bad"]
    first = "0,The fog comes\n1,on cat feet\n0,it sits\n"
    (tmp_path / "x.csv").write_text(first)
    assert load_corpus(tmp_path / "x.csv", text_field="The fog comes").documents == [
        "on cat feet",
        "it sits",
    ]


ENCODINGS = ["utf-16", "utf-32"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_wide_encodings(tmp_path, name, encoding):
    (tmp_path / name).write_bytes(FILES[name].encode(encoding))
    assert read_both_ways(tmp_path / name).documents == TEXTS


RUSSIAN = "Мы идём домой\nОн один дома\n"
CHINESE = "我们在一起\n他是一个学生\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "fine\n“café”\n".encode("cp1252"),
            r"line 2: byte 0x93 .*iconv.*1252 if '“café”' is right",
        ),
        ("fine\n\x81café\n".encode("latin1"), r"^(?!.*1252).*line 2: byte 0x81 .*iconv"),
        ("naïve\n".encode() + "café\n".encode("latin1"), r"line 2: byte 0xe9 .*mend"),
        (b"fine\none\0two\n", r"line 2 holds a NUL.*tr -d"),
        (b"a line " * 2**18 + b"\none\0two\n", r"line 2 holds a NUL.*tr -d"),
        (b"fine\nmore" + bytes(4096), r"line 2 holds a NUL.*tr -d"),
    ],
    ids=["1252", "neither", "damaged", "nul", "late nul", "zeros"],
)
@pytest.mark.parametrize("name", ["x.txt", "x.csv"])
def test_bytes_that_are_not_utf8_are_named_for_what_they_are(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    fails(tmp_path / name, message)


def test_byte_order_marks_in_the_middle_of_files_put_together(tmp_path):
    content = b"".join(json.dumps({"text": text}).encode("utf-8-sig") + b"\n" for text in TEXTS)
    (tmp_path / "x.jsonl").write_bytes(content)
    assert read_both_ways(tmp_path / "x.jsonl").documents == TEXTS


@pytest.mark.parametrize("ending", COMPRESSORS)
@pytest.mark.parametrize("name", FILES)
def test_compressed_files_of_any_name(tmp_path, ending, name):
    content = COMPRESSORS[ending](FILES[name].encode())
    for path in (tmp_path / name, tmp_path / (name + ending), tmp_path / (name + ".gz")):
        path.write_bytes(content)
        assert read_both_ways(path).documents == TEXTS
    (tmp_path / (name + ending)).write_bytes(FILES[name].encode())  # unpacked by a browser
    assert load_corpus(tmp_path / (name + ending)).documents == TEXTS


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_damaged_compressed_files_are_one_line(tmp_path, monkeypatch, ending):
    path, content = tmp_path / "x.txt", "".join(f"line {n}\n" for n in range(9999)).encode()
    packed = COMPRESSORS[ending](content)
    path.write_bytes(packed + packed)
    assert len(read_both_ways(path).documents) == 2 * 9999
    half = packed[: len(packed) // 2]
    for damaged in (packed[:-5], half):
        path.write_bytes(damaged)
        fails(path, r"x\.txt cannot be read: .*check that it is complete")
    monkeypatch.setattr(files, "LARGEST_TEXT", 10_000)
    path.write_bytes(COMPRESSORS[ending](b"a" * 10**6))
    fails(path, r"line 1 has more than")
    path.write_bytes(COMPRESSORS[ending](packed))
    with pytest.raises(InputError):
        load_corpus(path)


def test_zstandard_without_its_extra_names_it(tmp_path, monkeypatch):
    (tmp_path / "x.txt").write_bytes(zstd(b"one\ntwo\n"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"jaxpe\[parquet\]"):
        load_corpus(tmp_path / "x.txt")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_standard_input_that_is_compressed(monkeypatch, encoding):
    content = io.BufferedReader(io.BytesIO(gzip.compress("one\ntwo\n".encode(encoding))))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    assert load_corpus("-").documents == ["one", "two"]
    assert not content.closed


TURNS = [{"role": "user", "content": 'hi "all"'}, {"role": "tool"}, {"role": "bot", "content": "é"}]
PARTS = [{"type": "text", "text": 'hi "all"'}, {"type": "image", "url": "x"}]
CHATS = {
    "messages": TURNS,
    "conversations": [{"from": turn["role"], "value": turn.get("content")} for turn in TURNS],
    "parts": [{"role": "user", "content": PARTS}, {"role": "bot", "content": "é"}],
    "it's": [{"role": "user", "content": ['hi "all"', "é"]}],
}


def texts_in(value):
    """Every text of a chat, in order."""
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    if isinstance(value, dict):
        named = (value[key] for key in ("content", "text", "value") if key in value)
        return [text for item in named for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.skipif(not shutil.which("jq"), reason="runs the command of the message, with jq")
@pytest.mark.parametrize("field", CHATS)
@pytest.mark.parametrize("more", [{}, {"id": "x1"}], ids=["alone", "id"])
def test_turns_of_a_chat_name_a_command_that_makes_text(tmp_path, field, more):
    path = tmp_path / "my chat.jsonl"
    lines = [json.dumps({**more, field: chat}) + "\n" for chat in (CHATS[field], [], CHATS[field])]
    assert "\n".join(texts_in(CHATS[field])) == 'hi "all"\né'
    for options in ({}, {"text_field": field}):
        path.write_text("".join(lines if options else lines[1:] + lines[:1]))
        with pytest.raises(InputError, match=r"make one: jq -c '(.*)'") as caught:
            load_corpus(path, **options)
        command = str(caught.value).partition("make one: ")[2]
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        assert load_corpus(tmp_path / "texts.jsonl").documents == ['hi "all"\né'] * 2
    if more:
        assert load_corpus(path, text_field="id").documents == ["x1"] * 3


def test_a_row_that_repeats_a_word_of_the_header_is_data(tmp_path):
    (tmp_path / "lemmas.csv").write_text("word,lemma\nwords,word\nword,word\n")
    corpus = load_corpus(tmp_path / "lemmas.csv", text_field="lemma")
    assert corpus.documents == ["word", "word"]


FASTA = b"; a comment\n>one first\nacgt\nACGT\n\n>two\nMKV*\n>three\n"
FASTQ = b"@one\nacgtac\nGT\n+one\n@@@@\n@@@@\n@two\nMKV\n+\n>@>\n"


@pytest.mark.parametrize(("name", "content"), [("x.fa", FASTA), ("x.fastq", FASTQ)])
def test_sequences_are_joined_and_in_upper_case(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        corpus = load_corpus(path)
        assert corpus.documents == ["ACGTACGT", "MKV"]
        (letters,) = corpus.choices
        assert letters.value == "upper case"
        assert letters.why.startswith(f"1 of {2 + (name == 'x.fa')} ")
    assert load_tokens(path).tokenizer == "characters"
    codons = load_tokens(path, tokenizer="codons")
    assert sorted(codons.tokens) == ["ACG", "MKV", "TAC"]
    assert codons.longest == 2
    assert load_tokens(path, tokenizer="kmer:4").tokens[0] == "ACGT"


def test_a_limit_draws_a_sample_and_tags_are_named(tmp_path):
    path, texts = tmp_path / "a.txt", [f"film{'<br />' * (i % 2)} {i}" for i in range(40)]
    path.write_text("\n".join(texts))
    found = load_corpus(path, limit=10, seed=1)
    at = [texts.index(text) for text in found.documents]
    assert len(at) == 10
    assert at == sorted(at)
    assert max(at) > 20
    assert load_corpus(path, limit=10).documents != found.documents
    chosen = {choice.setting: choice.value for choice in found.choices}
    assert chosen["documents"] == "10 of 40"
    assert re.fullmatch(r"in \d0\xa0% of the documents", chosen["HTML tags"])
    assert load_tokens(path, limit=10, seed=1).cut.tolist() == [False] * 10
    rows = sample_rows(5000, limit=10, seed=1)
    ids = load_tokens("synthetic", limit=10, seed=1).ids
    np.testing.assert_array_equal(ids, load_tokens("synthetic").ids[rows])
    assert load_corpus(path, limit=40).documents == texts
    with pytest.raises(InputError, match="`limit` is 1; pass at least 2"):
        load_tokens("synthetic", limit=1)

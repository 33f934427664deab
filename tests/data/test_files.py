"""Reading text: every format, encoding and compression; files that are not what they seem."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import random
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe._core import memory
from jaxpe.data import Corpus, load_corpus, load_tokens
from jaxpe.data.corpora.load import sample_rows
from jaxpe.data.corpora.shards import find_shards
from jaxpe.data.formats import files
from tests.data.reading import read_both_ways, refused, write_lines

TEXTS = ["The fog comes", 'on "little", cat feet', "naïve — 猫"]
FILES = {
    "a.txt": "\n\n".join(TEXTS) + "\n",
    "b.tsv": "label\tsentence\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(TEXTS)),
    "c.jsonl": "\n".join(json.dumps({"id": "x", "text": t, "label": 1}) for t in TEXTS),
    "d.csv": 'label,review\n1,The fog comes\n0,"on ""little"", cat feet"\n1,naïve — 猫\n',
    "e.jsonl": "".join(json.dumps({"review": t, "n": 1}, ensure_ascii=False) + "\n" for t in TEXTS),
}


def zstd(content):
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(content)
    return file.getvalue().to_pybytes()


COMPRESSORS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


@pytest.mark.parametrize("name", FILES)
def test_every_format_encoding_and_compression_gives_the_same_documents(tmp_path, name):
    text, path = FILES[name], tmp_path / name
    windows = text.replace("\n", "\r\n")
    utf8 = [x.encode() for x in (text, windows, "\ufeff" + text, "\ufeff" + windows)]
    marked = "".join(f"\ufeff{line}" for line in text.splitlines(keepends=True)).encode()
    for content in (*utf8, marked, text.encode("utf-16"), text.encode("utf-32")):
        path.write_bytes(content)
        found = read_both_ways(path)
        assert (found.name, found.documents) == (name, TEXTS)
    for ending, compress in COMPRESSORS.items():
        for packed in (path, tmp_path / (name + ending), tmp_path / (name + ".gz")):
            packed.write_bytes(compress(text.encode()))
            assert load_corpus(packed).documents == TEXTS
        packed.write_bytes(text.encode())  # unpacked by a browser
        assert load_corpus(packed).documents == TEXTS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_standard_input(monkeypatch, encoding):
    content = "é\n\nb\n".encode(encoding)
    for read in (content, gzip.compress(content)):
        stream = io.BufferedReader(io.BytesIO(read))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert load_corpus("-") == Corpus("stdin", ["é", "b"])
        assert not stream.closed
    closed = io.TextIOWrapper(io.BytesIO(b"a"))
    closed.close()
    for stdin in (None, closed, io.StringIO("a")):
        monkeypatch.setattr(sys, "stdin", stdin)
        refused("-", "closed")


def test_progress_is_told_what_is_read(tmp_path, shown):
    pa.parquet.write_table(pa.table({"text": TEXTS}), tmp_path / "x.parquet")
    load_tokens(tmp_path / "x.parquet", progress=shown)
    assert shown.bars == [("Reading x.parquet", 3), ("Tokenizing into words", 3)]


BAD = {
    "latin.txt": (b"fine\ncaf\xe9\n", "line 2: byte 0xe9"),
    "windows.txt": ("fine\n“café”\n".encode("cp1252"), "1252 if '“café”'"),
    "nul.txt": (b"fine\none\0two\n", "line 2 holds a NUL"),
    "zeros.txt": (b"fine\nmore" + bytes(4096), "line 2 holds a NUL"),
    "empty.txt": (b"", "no documents"),
    "blank.jsonl": (b'{"text": " "}\n', "no documents"),
    "one.txt": (b"only\n\n", "only one document"),
    "bad.jsonl": (b'{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
    "deeper.jsonl": (b'{"text": ' + b"[" * 10**6, "line 1 is not JSON"),
    "list.jsonl": (b'["a"]\n', "line 1: a JSON list"),
    "key.jsonl": (b'{"text": "a"}\n\n{"body": 1}\n', "line 3: 'text' is"),
    "null.jsonl": (b'{"text": null}\n', "not clear"),
    "half.jsonl": (b'{"text": "\\ud800"}\n', "line 1: 'text' holds half"),
    "two.csv": (b"title,body\na,b\n", r"'title' \('a'\), 'body' "),
    "ragged.csv": (b"text,label\na,1\nb,c,1\n", "line 3: 3 fields"),
    "tab.tsv": (b'label\ttext\n1\ta "b" c\n0\ta\tb\n', "line 3: 3 fields.* line 2 "),
    "quote.csv": (b'text\n"a\nb\n', "line 3: "),
    "twice.csv": (b"text,text,n,n\na,b,0,0\n", "2 columns are named 'text'"),
    "x.pdf": (b"a\nb\n", "unknown kind"),
    "no.fa": (b"ACGT\n>x\nAC\n", "line 1: 'ACGT'"),
    "bad.fa": (b">x\nAC\nA7T\n", "line 3: '7'"),
    "cut.fq": (b"@x\nAC\n+\n##\n@y\nACG\n+\n#", "line 5: .* 3 letters"),
    "long.fq": (b"@x\nAC\n+\n##\n##\n", "line 5: '##'"),
    # What is no header, so that a document is not taken for one, nor a header for a document.
    "numbers.csv": (b"0,The fog comes\n1,on cat feet\n0,it sits\n", "line 1 "),
    "document.tsv": (b"This is the very first review here\nfine\n", "line 1 "),
    "comment.csv": (b"# exported by X, on Monday\nlabel,text\n1,good\n", "line 1 "),
    "title.csv": (b"Report of films\n\nlabel,text\n1,good\n", "line 3: 2 fields"),
    "again.csv": (b"label,text\n1,a\n0,b\nlabel,text\n1,a\n", "line 4 is a header"),
    "marked.csv": ("label,text\n1,a\n\ufefflabel,text\n1,a\n".encode(), "line 3 is a header"),
    "order.csv": (b"label,text\n1,a\ntext,label\na,1\n", "line 3 is a header"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named_with_the_line(tmp_path, name):
    content, word = BAD[name]
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, word)
    if len(content) < 100 and not name.endswith(("pdf", "fa", "fq")):  # so are compressed ones
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        refused(tmp_path / f"{name}.gz", word)


def test_what_is_not_there(tmp_path):
    refused(tmp_path / "nope.txt", "no such file")
    refused(tmp_path, "folder without files")
    columns = ",".join(f"column{i}" for i in range(10_000))
    (tmp_path / "x.csv").write_text(f"{columns}\nc,d\n")
    refused(tmp_path / "x.csv", "2 fields", text_field="column0")  # little of it is shown
    for source in ("stdlib", "sst2", "-"):
        refused(source, "no columns", text_field="z")
    refused("synthetic", "load_tokens")


@pytest.mark.parametrize("name", ["x.txt", "x.tsv", "x.csv", "x.jsonl"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path, monkeypatch, name, packed):
    assert files.LARGEST_TEXT == 2**26
    monkeypatch.setattr(files, "LARGEST_TEXT", 10_000)
    path = tmp_path / (name + packed)
    compress = gzip.compress if packed else bytes
    first = b'{"text": "a"}\n' if name == "x.jsonl" else b"text\n"
    path.write_bytes(compress(first + b"a" * 2**20))
    refused(path, "line 2 has more")
    if name == "x.txt":
        path.write_bytes(compress(first + b"a" * 9_999 + b"\n"))
        assert [len(text) for text in load_corpus(path).documents] == [4, 9_999]


def test_documents_that_outgrow_memory_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("a line\n" * 1000)
    monkeypatch.setattr("jaxpe.data.formats.table._STEP", 10_000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 300_000)
    assert len(load_corpus(path).documents) == 1000
    monkeypatch.setattr(memory, "available_bytes", lambda: 200_000)
    refused(path, "memory")


def test_a_name_that_is_not_utf8_is_marked(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    with open(path, "w") as file:
        file.write("a\nb\n")
    assert read_both_ways(path).name == find_shards([path])[0].name == "caf\ufffd.txt"


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_damaged_compressed_files(tmp_path, monkeypatch, ending):
    path, lines = tmp_path / "x.txt", [f"{n} {random.random()}" for n in range(999)]
    packed, one = (COMPRESSORS[ending]("\n".join(x).encode()) for x in ([*lines, ""], ["one", ""]))
    path.write_bytes(packed + packed)  # of two streams, neither is dropped
    assert load_corpus(path).documents == 2 * lines
    damaged = [packed[:-5], packed[: len(packed) // 2], COMPRESSORS[ending](packed)]
    if ending in (".bz2", ".xz"):
        damaged += [packed + x for x in (b"\1" + one[1:], bytes(8) + one, one[:-1], b"trailing")]
    for content in damaged:
        path.write_bytes(content)
        refused(path, "x.txt")
    monkeypatch.setattr(files, "LARGEST_TEXT", 10_000)
    path.write_bytes(COMPRESSORS[ending](b"a" * 10**6))
    refused(path, "line 1 has more")


ROWS = [
    ("yes", "The fog comes"),
    ("no", 'on "little", cat feet'),
    ("no", "looking over\tharbor"),
    ("yes", "on silent haunches\nand then moves on"),
    ("no", '"And", he said'),
]
DOCUMENTS = [text for _, text in ROWS]


def table(rows, **dialect):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **dialect).writerows(rows)
    return file.getvalue()


def marks(corpus):
    return next((c.value for c in corpus.choices if c.setting == "quotation marks"), None)


TABS, NUMBERED = [("label", "text"), *ROWS], [("n", "text"), *enumerate(DOCUMENTS)]
WRITERS = {
    "pandas": table(TABS, delimiter="\t"),
    "strings": table(NUMBERED, delimiter="\t", quoting=csv.QUOTE_NONNUMERIC),
    "crlf": table(TABS, delimiter="\t").replace("\n", "\r\n"),
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
    "excel": ('label\ttext\n1\t"Hello, you"\n0\tfine\n', "text", ['"Hello, you"', "fine"]),
    "header": ('"label"\t"text"\n1\tgreat\n0\tbad\n', "quoting", ["great", "bad"]),
    "one column": ('text\n"two\nlines"\nand, one\n', "quoting", ["two\nlines", "and, one"]),
    "lone": ('label\ttext\n1\t"open\n0\ta "b" c\n', "text", ['"open', 'a "b" c']),
    "two lone": ('label\ttext\n1\t"open\n0\tclosed"\n', "text", ['"open', 'closed"']),
    "mostly": ('label\ttext\n1\ta "b"\n0\t"a ""b"""\n', "text", ['a "b"', '"a ""b"""']),
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


DELIMITED = {
    "semicolon": table(TABS, delimiter=";"),
    "bar": table(TABS, delimiter="|"),
    "quoted sep": '\n"sep=|"\n' + table(TABS, delimiter="|"),
}


@pytest.mark.parametrize("name", DELIMITED)
def test_delimiters_of_csv(tmp_path, name):
    (tmp_path / "x.csv").write_text(DELIMITED[name])
    assert read_both_ways(tmp_path / "x.csv").documents == DOCUMENTS


# Tables that are easily taken for another, with the column that is read.
TABLES = [
    ("x.csv", "text\nfirst; and\nsecond; or\n", None, ["first; and", "second; or"]),
    ("x.csv", "id;score;text\n1;3,5;good, so\n2;4,5;bad\n", None, ["good, so", "bad"]),
    ("x.tsv", "label,text\n1,good\n0,bad\n", None, ["good", "bad"]),
    ("x.tsv", 'text\n"open\nsecond\n', None, ['"open', "second"]),
    ("x.csv", f'text\n"{"a" * 2**18}"\n"two\nlines"\n', None, ["a" * 2**18, "two\nlines"]),
    ("x.csv", "text,title,n,n\na,b,0,0\nc,d,0,0\n", None, ["a", "c"]),
    ("x.csv", "text,title\na,b\nc,d\n", "title", ["b", "d"]),
    ("x.jsonl", '{"text":"a","title":"b"}\n' * 2, "title", ["b", "b"]),
    ("x.csv", "0,1\n1,good\n0,bad\n", None, ["good", "bad"]),  # columns that pandas numbers
    ("x.csv", "0,The fog\n1,on cat feet\n0,it sits\n", "The fog", ["on cat feet", "it sits"]),
    ("x.csv", "word,lemma\nwords,word\nword,word\n", "lemma", ["word", "word"]),  # no header again
]


@pytest.mark.parametrize(("name", "content", "field", "documents"), TABLES)
def test_tables_that_are_easily_taken_for_another(tmp_path, name, content, field, documents):
    (tmp_path / name).write_text(content)
    assert read_both_ways(tmp_path / name, text_field=field).documents == documents


PARTS = [{"type": "text", "text": 'hi "all"'}, {"type": "image", "url": "x"}]
CHATS = {
    "messages": [{"role": "user", "content": PARTS}, {"role": "bot", "content": "é"}],
    "it's": [{"from": "user", "value": 'hi "all"'}, {"from": "bot"}, {"value": "é"}],
}


@pytest.mark.skipif(not shutil.which("jq"), reason="runs the command of the message, with jq")
@pytest.mark.parametrize("field", CHATS)
def test_turns_of_a_chat_name_a_command_that_makes_text(tmp_path, field):
    chats = ({"id": "x1", field: chat} for chat in ([], CHATS[field], CHATS[field]))
    path = write_lines(tmp_path / "my chat.jsonl", *chats)
    with pytest.raises(ValueError, match="make one: jq") as caught:
        load_corpus(path)
    command = str(caught.value).partition("make one: ")[2]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert load_corpus(tmp_path / "texts.jsonl").documents == ['hi "all"\né'] * 2


FASTA = b"; a comment\n>one first\nacgt\nACGT\n\n>empty\n>two\nMKV*\n"
FASTQ = b"@one\nacgtac\nGT\n+one\n@@@@\n@@@@\n@two\nMKV\n+\n>@>\n"


@pytest.mark.parametrize(("name", "content"), [("x.fa", FASTA), ("x.fastq", FASTQ)])
def test_sequences_are_joined_and_in_upper_case(tmp_path, name, content):
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(content))
    corpus = read_both_ways(path)
    assert corpus.documents == ["ACGTACGT", "MKV"]
    assert [choice.value for choice in corpus.choices] == ["upper case"]
    assert load_tokens(path).tokenizer == "characters"
    codons = load_tokens(path, tokenizer="codons")
    assert (sorted(codons.tokens), codons.longest) == (["ACG", "MKV", "TAC"], 2)
    assert load_tokens(path, tokenizer="kmer:4").tokens[0] == "ACGT"


def test_a_limit_draws_a_sample_and_tags_are_named(tmp_path):
    path, texts = tmp_path / "a.txt", [f"film{'<br />' * (i % 2)} {i}" for i in range(40)]
    path.write_text("\n".join(texts))
    found = load_corpus(path, limit=10, seed=1)
    rows = [texts.index(text) for text in found.documents]
    assert len({*rows}) == 10
    assert rows == sorted(rows)
    assert max(rows) > 20
    assert load_corpus(path, limit=10).documents != found.documents
    chosen = {choice.setting: choice.value for choice in found.choices}
    assert chosen["documents"] == "10 of 40"
    assert "HTML tags" in chosen
    assert load_tokens(path, limit=10, seed=1).cut.tolist() == [False] * 10
    assert len({*sample_rows(50, limit=49, seed=1).tolist()}) == 49
    rows = sample_rows(5000, limit=10, seed=1)
    ids = load_tokens("synthetic", limit=10, seed=1).ids
    np.testing.assert_array_equal(ids, load_tokens("synthetic").ids[rows])
    assert load_corpus(path, limit=40).documents == texts
    refused("synthetic", "`limit`", load_tokens, limit=1)

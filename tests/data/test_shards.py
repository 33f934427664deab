"""Shards: which files a corpus is, each once, and what is refused."""

import gzip
import hashlib
import os
import shutil

import pytest

from jaxpe._core.files import content_hash
from jaxpe.data.corpora import sources
from jaxpe.data.corpora.shards import find_shards
from tests.data.reading import refused, write_lines
from tests.data.tfds_builder import tfds_folder

TEXTS = ["To be, or not", "to be", "that is"]


def names(sources):
    return [shard.name for shard in find_shards(sources)]


@pytest.fixture
def folder(tmp_path):
    """The same three texts in every kind of file, one of them in a folder below."""
    lines = "\n".join(TEXTS)
    (tmp_path / "b.txt").write_text(lines)  # no newline at the end
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + lines.replace("\n", "\r\n\r\n").encode())
    (tmp_path / "c.tsv").write_text("n\ttext\n" + "".join(f"0\t{text}\n" for text in TEXTS))
    write_lines(tmp_path / "d.jsonl", *({"text": text} for text in TEXTS))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    with gzip.open(tmp_path / "deep" / "er" / "e.txt.gz", "wt") as file:
        file.write(lines)
    return tmp_path


def texts(shard, **options):
    return [document.text for document in shard.documents(**options)]


def test_every_kind_of_file_gives_its_documents_in_the_order_of_the_sources(folder):
    sources = [folder / name for name in ("d.jsonl", "?.txt", "c.tsv", "**/*.gz")]
    assert names(sources) == ["d.jsonl", "a.txt", "b.txt", "c.tsv", "e.txt.gz"]
    for shard in find_shards(sources):
        assert texts(shard) == TEXTS, shard.name


def test_a_file_counts_once_however_it_is_named(folder, monkeypatch):
    (folder / "link.txt").symlink_to(folder / "a.txt")
    monkeypatch.chdir(folder)
    sources = ["a.txt", "*.txt", folder / "a.txt", "./deep/../a.txt", "link.txt"]
    assert names(sources) == ["a.txt", "b.txt"]
    (folder / "*.txt").write_text("star")  # a star in the name of a file is a star
    assert [texts(shard) for shard in find_shards([folder / "*.txt"])] == [["star"]]


@pytest.fixture
def short_stdlib(monkeypatch):
    monkeypatch.setattr(sources, "stdlib_documents", lambda progress: ["To map.", "To filter."])


def test_the_digest_is_of_the_whole_content_whatever_the_name(folder, short_stdlib):
    dataset = tfds_folder(folder / "g")
    shards = find_shards([folder / "*.*", folder / "**/*.gz", dataset, "stdlib"])
    digests = [shard.digest() for shard in shards]
    assert len(set(digests)) == len(digests) == 7
    for shard, digest in zip(shards, digests, strict=True):
        assert digest == shard.digest()
        if shard.path != "stdlib" and os.path.isfile(shard.path):
            renamed = folder / f"renamed.{shard.name.split('.', 1)[1]}"
            shutil.copy(shard.path, renamed)
            assert find_shards([renamed])[0].digest() == digest
            with open(shard.path, "rb") as file:
                assert hashlib.file_digest(file, content_hash).hexdigest() == digest


def test_a_change_in_the_middle_is_in_the_digest(tmp_path):
    path = tmp_path / "x.txt"
    content = b"a line\n" * 50_000
    path.write_bytes(content)
    (before,) = find_shards([path])
    digest = before.digest()
    path.write_bytes(content[:150_000] + b"?" + content[150_001:])
    (after,) = find_shards([path])
    assert after == before
    assert after.digest() != digest
    path.unlink()
    refused(after, "cannot be read", lambda shard: shard.digest())


def test_the_digest_is_of_all_files_of_a_split(tmp_path, monkeypatch):
    write_lines(tmp_path / "a.jsonl", {"text": "to be"})
    write_lines(tmp_path / "b.jsonl", {"text": "or not"})
    (shard,) = find_shards([tmp_path / "a.jsonl"])
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    monkeypatch.setattr("jaxpe.data.corpora.shards.content_files", lambda path: files)
    both = b"".join((tmp_path / name).read_bytes() for name in ("a.jsonl", "b.jsonl"))
    assert shard.digest() == content_hash(both).hexdigest()


def test_text_fields_and_groups(folder):
    rows = [("x", "p", "A"), ("y", "", 7), ("z", "q", None)]
    write_lines(folder / "two.jsonl", *({"text": a, "b": b, "by": by} for a, b, by in rows))
    (folder / "two.csv").write_text("text,b,by\nx,p,A\ny,,7\nz,q,\n")
    for shard in find_shards([folder / "two.*"]):
        assert texts(shard) == ["x", "y", "z"]
        assert texts(shard, text_field="b") == ["p", "q"]
        refused(shard, "'c' is null", texts, text_field="c")
        groups = [("x", "A"), ("y", "7"), ("z", None)]
        assert list(shard.documents(group_field="by")) == groups, shard.name
        refused(shard, "no column 'c'", texts, group_field="c")
    (listed,) = find_shards([write_lines(folder / "l.jsonl", {"text": "x", "by": ["A", "B"]})])
    refused(listed, "line 1: the group", texts, group_field="by")


def test_empty_files_and_first_cells(folder):
    for name in ("0.txt", "0.csv", "0.jsonl", "00.txt.gz"):
        (folder / name).touch()
    assert [texts(shard) for shard in find_shards([folder / "0*"])] == [[]] * 4
    (folder / "1.csv").write_text("by,text\n,x\n7,y\n")
    assert [texts(shard) for shard in find_shards([folder / "1.csv"])] == [["x", "y"]]


def test_built_in_corpora(tmp_path, monkeypatch, short_stdlib):
    monkeypatch.delenv("JAXPE_DATA_DIR", raising=False)
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("sentence\tlabel\na film\t1\n")
    (shard,) = find_shards(["sst2"], data_dir=tmp_path)
    assert (shard.name, texts(shard)) == ("train.tsv", ["a film"])
    assert find_shards(["sst2", tmp_path / "sst2" / "*"], data_dir=tmp_path) == [shard]
    (shard,) = find_shards(["stdlib", "stdlib"])
    assert (shard.name, texts(shard)) == ("stdlib", ["To map.", "To filter."])


REFUSED = {
    "none*.txt": "no such file",
    "": "no such file",
    "empty": "folder without files",
    "a.pdf": "unknown kind",
    "-": "standard input",
    "synthetic": "token ids",
    "pipe.txt": "regular file",
    "zero.txt": "regular file",
}


@pytest.mark.parametrize("source", REFUSED)
def test_refused(folder, monkeypatch, source):
    monkeypatch.chdir(folder)
    (folder / "a.pdf").touch()
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe.txt")  # nobody writes into it
    (folder / "zero.txt").symlink_to("/dev/zero")
    refused(["a.txt", source], REFUSED[source], find_shards)
    refused([], "no files", find_shards)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(folder):
    (folder / "a.txt").chmod(0)
    refused([folder / "a.txt"], "cannot be read", find_shards)

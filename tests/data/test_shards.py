"""Shards: which files a corpus is, each once, and what is refused."""

import gzip
import hashlib
import os
import shutil

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash
from jaxpe.data import find_shards
from tests.data.tfds_builder import tfds_folder

TEXTS = ["To be, or not", "to be", "that is"]


def names(shards):
    return [shard.name for shard in shards]


@pytest.fixture
def folder(tmp_path):
    """The same three texts in every kind of file, one of them in a folder below."""
    lines = "\n".join(TEXTS)
    (tmp_path / "b.txt").write_text(lines)  # no newline at the end
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + lines.replace("\n", "\r\n\r\n").encode())
    (tmp_path / "c.tsv").write_text("n\ttext\n" + "".join(f"0\t{text}\n" for text in TEXTS))
    (tmp_path / "d.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in TEXTS))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    with gzip.open(tmp_path / "deep" / "er" / "e.txt.gz", "wt") as file:
        file.write(lines)
    return tmp_path


def texts(documents):
    return [document.text for document in documents]


def test_every_kind_of_file_gives_its_documents(folder):
    sources = [folder / name for name in ("?.txt", "c.tsv", "*.jsonl", "**/*.gz")]
    shards = find_shards(sources)
    expected = ["a.txt", "b.txt", "c.tsv", "d.jsonl", "e.txt.gz"]
    assert names(shards) == expected
    for shard in shards:
        assert texts(shard.documents()) == TEXTS, shard.name


def test_order_is_that_of_the_sources_and_sorted_inside_of_a_glob(folder):
    assert names(find_shards([folder / "d.jsonl", folder / "*.txt"])) == [
        "d.jsonl",
        "a.txt",
        "b.txt",
    ]


def test_a_file_counts_once_however_it_is_named(folder, monkeypatch):
    (folder / "link.txt").symlink_to(folder / "a.txt")
    monkeypatch.chdir(folder)
    sources = ["a.txt", "*.txt", folder / "a.txt", "./deep/../a.txt", "link.txt"]
    assert names(find_shards(sources)) == ["a.txt", "b.txt"]


def test_a_star_in_a_file_name_is_a_star(folder):
    (folder / "*.txt").write_text("star")
    (shard,) = find_shards([folder / "*.txt"])
    assert texts(shard.documents()) == ["star"]


def test_the_digest_is_of_the_whole_content_whatever_the_name(folder, tmp_path):
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
    with pytest.raises(InputError, match=r"x\.txt cannot be read"):
        after.digest()


def test_text_fields(folder):
    (folder / "two.jsonl").write_text('{"a": "x", "b": "y"}\n{"a": "z", "b": ""}\n')
    (folder / "two.csv").write_text("a,b\nx,y\nz,\n")
    for shard in find_shards([folder / "two.*"]):
        assert texts(shard.documents(text_field="a")) == ["x", "z"]
        assert texts(shard.documents(text_field="b")) == ["y"]
        with pytest.raises(InputError, match=r"'c' is null or missing .*'a', 'b'"):
            texts(shard.documents(text_field="c"))


def test_groups(folder):
    (folder / "two.jsonl").write_text(
        '{"text": "x", "by": "A"}\n{"text": "y", "by": 7}\n{"text": "z", "by": null}\n'
    )
    (folder / "two.csv").write_text("by,text\nA,x\n7,y\n,z\n")
    for shard in find_shards([folder / "two.*"]):
        expected = [("x", "A"), ("y", "7"), ("z", None)]
        assert list(shard.documents(group_field="by")) == expected, shard.name
        with pytest.raises(InputError, match=r"no column 'c'; pass one of .* as `group_field`"):
            list(shard.documents(group_field="c"))
    (folder / "three.jsonl").write_text('{"text": "x", "by": ["A", "B"]}\n')
    with pytest.raises(InputError, match="line 1: the group is a list; pass a column of strings"):
        list(find_shards([folder / "three.jsonl"])[0].documents(group_field="by"))


def test_empty_files_hold_no_documents(folder):
    for name in ("0.txt", "0.csv", "0.jsonl", "00.txt.gz"):
        (folder / name).touch()
    for shard in find_shards([folder / "0*"]):
        assert texts(shard.documents()) == []


def test_built_in_corpora(tmp_path, monkeypatch):
    monkeypatch.delenv("JAXPE_DATA_DIR", raising=False)
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("sentence\tlabel\na film\t1\n")
    (shard,) = find_shards(["sst2"], data_dir=tmp_path)
    assert (shard.name, texts(shard.documents())) == ("train.tsv", ["a film"])
    assert find_shards(["sst2", tmp_path / "sst2" / "*"], data_dir=tmp_path) == [shard]


def test_the_standard_library_is_a_shard():
    (shard,) = find_shards(["stdlib", "stdlib"])
    assert shard.name == "stdlib"
    assert len(texts(shard.documents())) > 5000


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none*.txt", "no such file: none*.txt; pass paths, folders or patterns"),
        ("", "no such file: ;"),
        ("empty", "empty is a folder without files to read; pass"),
        ("a.pdf", "a.pdf: unknown kind of file; pass paths"),
        ("ids.pt", "ids.pt: unknown kind of file"),
        ("-", "standard input"),
        ("synthetic", "synthetic holds token ids; pass text"),
    ],
)
def test_refused(folder, monkeypatch, source, message):
    monkeypatch.chdir(folder)
    for name in ("a.pdf", "ids.pt"):
        (folder / name).touch()
    (folder / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        find_shards(["a.txt", source])
    assert message in str(caught.value)


def test_nothing_asked_for_is_refused():
    with pytest.raises(InputError, match="no files; pass paths, folders or patterns"):
        find_shards([])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(folder):
    (folder / "a.txt").chmod(0)
    with pytest.raises(InputError, match=r"a\.txt cannot be read.*permissions"):
        find_shards([folder / "a.txt"])


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")  # nobody writes into it
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name in ("pipe.txt", "zero.txt"):
        with pytest.raises(InputError, match=rf"{name} is not a regular file"):
            find_shards([tmp_path / name])


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("name", ["x.txt.gz", "x.txt", "x.jsonl"])
def test_a_damaged_shard_is_named_where_it_is_read(tmp_path, name):
    path = tmp_path / name
    match name:
        case "x.txt.gz":
            path.write_bytes(gzip.compress("\n".join(TEXTS * 50).encode()))
            cut(path)
        case "x.txt":
            path.write_bytes(b"fine\n\xff\n")
        case "x.jsonl":
            path.write_text('{"text": "fine"}\n{"text"\n')
    (shard,) = find_shards([path])
    with pytest.raises(InputError) as caught:
        texts(shard.documents())
    assert str(path) in str(caught.value)

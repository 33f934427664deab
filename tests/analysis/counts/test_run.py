"""A streamed count equals that of the whole, to the bit, however it is cut, killed and resumed."""

import errno
import functools
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe.analysis.counts import (
    check_memory,
    count_mesh,
    count_settings,
    count_shards,
    is_counted,
    job,
    needed_bytes,
    read_counts,
    start_processes,
)
from jaxpe.analysis.counts import shards as counting
from jaxpe.analysis.counts.vocabulary import VOCABULARY, corpus_vocabulary
from jaxpe.data import Shard, find_shards, open_tokenizer
from jaxpe.data.tokens import workers
from jaxpe.data.tokens.workers import TokenizerPool
from tests.analysis.counts.test_stored import equal
from tests.compilation import device_environment
from tests.progress import Told

ROOT = Path(__file__).parents[3]
BYTES = open_tokenizer("bytes")._replace(exclude=(32,))
SETTINGS = count_settings(BYTES, length=12, folds=4, nulls=2, null_folds=2, seed=3)
FEW = count_settings(BYTES, length=12, folds=4, nulls=0)  # the nulls take most of the compiling
FILES = ("counts.npz", "counts.json")


def texts():
    rng = np.random.default_rng(0)
    words = ["to", "be", "or", "not", "naïve", "x" * 30]
    documents = [" ".join(rng.choice(words, rng.integers(1, 6))) for _ in range(60)]
    return [*documents, *documents[:10]]  # copies share a fold and an offset


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """70 documents in three files, one of which is empty."""
    folder = tmp_path_factory.mktemp("shards")
    for name, part in zip("abc", (texts()[:45], [], texts()[45:]), strict=True):
        (folder / f"{name}.txt").write_text("\n".join(part))
    return find_shards([folder / "*"])


@pytest.fixture(scope="module")
def whole():
    ids, mask = BYTES.encode(texts(), length=12)
    return ids, mask


def count(shards, folder, *, settings=FEW, tokenizer=BYTES, progress=SILENT, **options):
    options = {"batch_size": 16, "save_every": 2, "workers": 0} | options
    return count_shards(
        shards,
        folder,
        job.CountOptions(sources=(), **options),
        tokenizer=tokenizer,
        settings=settings,
        progress=progress,
    )


@pytest.fixture(scope="module")
def counted(shards, tmp_path_factory):
    """The folder of a count that nothing happened to."""
    folder = tmp_path_factory.mktemp("counted")
    count(shards, folder)
    return folder


def same_files(a, b):
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in FILES)


@pytest.fixture(scope="module")
def with_nulls(shards, tmp_path_factory):
    return count(shards, tmp_path_factory.mktemp("nulls"), settings=SETTINGS)


def test_near_copies_among_the_first_documents_are_told(tmp_path):
    rng = np.random.default_rng(0)
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    base = letters[rng.integers(0, 26, (40, 12))]
    near = base.copy()
    near[:, 5] = "#"
    for name, documents in (("alone", base), ("near", np.concatenate([base, near]))):
        path, lines = tmp_path / f"{name}.txt", []
        path.write_text("\n".join(map("".join, documents)))
        shards = find_shards([path])
        stored = count(shards, tmp_path / name, batch_size=80, progress=Told(lines))
        told = [line for line in lines if "`group_field`" in line]
        assert [line.startswith("50%") for line in told] == ([] if name == "alone" else [True])
        # Counts stay those of contents, whatever the batches.
        other = count(shards, tmp_path / f"{name} again", batch_size=7)
        np.testing.assert_array_equal(stored.table, other.table)


def test_documents_of_a_group_share_a_fold(tmp_path):
    authors = [f"author {number % 9}" if number % 5 else None for number in range(70)]
    rows = [{"text": text, "by": by} for text, by in zip(texts(), authors, strict=True)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = count_settings(BYTES, length=12, folds=4, nulls=0, group_field="by")
    found = find_shards([tmp_path / "a.jsonl"])
    stored = count(found, tmp_path / "counts", settings=settings)
    ids, mask = BYTES.encode(texts(), length=12)
    names = [by or text for by, text in zip(authors, texts(), strict=True)]
    groups = np.array([zlib.crc32(name.encode()) for name in names])
    expected = jaxpe.count_tokens(
        ids, vocab_size=256, mask=mask, exclude=(32,), folds=4, groups=groups
    )
    np.testing.assert_array_equal(stored.table, expected.tokens)
    assert read_counts(tmp_path / "counts").settings.group_field == "by"
    with pytest.raises(InputError, match="holds other counts: group_field is by and None"):
        count(found, tmp_path / "counts")


def test_counts_are_those_of_the_whole(with_nulls, whole):
    ids, mask = whole
    expected = jaxpe.count_tokens(ids, vocab_size=256, mask=mask, exclude=(32,), folds=4)
    np.testing.assert_array_equal(with_nulls.table, expected.tokens)
    assert with_nulls.documents == 70 == expected.documents
    assert [shard.documents for shard in with_nulls.shards] == [45, 0, 25]
    assert with_nulls.unreadable == []


def test_null_counts_are_those_of_documents_rotated_by_hand(with_nulls, whole):
    ids, mask = whole
    fold = np.asarray(jaxpe.geometry.fold_of_documents(ids, mask, folds=4)) % 2
    for number, null in enumerate(with_nulls.nulls):
        key = jax.random.fold_in(jax.random.key(3), number)
        moved = jaxpe.geometry.rotate_within_documents(key, ids, mask, exclude=(32,))
        for half in (0, 1):
            expected = jaxpe.count_tokens(
                moved, vocab_size=256, mask=mask & (fold == half)[:, None], exclude=(32,)
            )
            np.testing.assert_array_equal(null[half], expected.tokens)
    assert not np.array_equal(with_nulls.nulls[0], with_nulls.nulls[1])


@pytest.mark.parametrize(("batch_size", "save_every"), [(1, 50), (70, 1), (100, 3)])
def test_batches_and_saves_change_nothing(shards, counted, tmp_path, batch_size, save_every):
    count(shards, tmp_path, batch_size=batch_size, save_every=save_every)
    assert same_files(tmp_path, counted)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", *sorted(FILES)]


def test_the_cut_into_shards_and_their_order_change_nothing(counted, tmp_path):
    (tmp_path / "one.txt").write_text("\r\n".join(texts()[::-1]) + "\n")
    stored = count(find_shards([tmp_path / "one.txt"]), tmp_path / "counts")
    np.testing.assert_array_equal(stored.table, read_counts(counted).table)


def test_bins_are_sums_of_positions(shards, counted, tmp_path):
    edges = (0, 1, 4, 12)
    stored = count(shards, tmp_path, settings=FEW._replace(edges=edges))
    np.testing.assert_array_equal(
        stored.table, np.add.reduceat(read_counts(counted).table, edges[:-1], axis=1)
    )
    binned = jaxpe.geometry.bin_counts(read_counts(counted).counts, np.array(edges, np.int32))
    np.testing.assert_array_equal(stored.table, binned.tokens)


class PulledPlugError(RuntimeError):
    pass


def end_documents(monkeypatch, number, error=PulledPlugError, real=Shard.documents):
    """Documents that end with an error of no known kind after so many."""
    read = iter(range(number))

    def documents(self, **fields):
        for document in real(self, **fields):
            if next(read, None) is None:
                raise error
            yield document

    monkeypatch.setattr(Shard, "documents", documents)


@pytest.fixture
def pull_the_plug(monkeypatch):
    yield functools.partial(end_documents, monkeypatch)
    monkeypatch.undo()


@pytest.mark.parametrize("moments", [(0, 69), (33, 20, 20)])
def test_killed_in_the_middle_it_goes_on(
    shards, counted, tmp_path, pull_the_plug, monkeypatch, moments
):
    lines = []
    for after in moments:
        pull_the_plug(after)
        with pytest.raises(PulledPlugError):
            count(shards, tmp_path, batch_size=4, save_every=1, progress=Told(lines))
        assert not is_counted(tmp_path)
    monkeypatch.undo()
    stored = count(shards, tmp_path, batch_size=4, save_every=3, progress=Told(lines))
    assert any(line.startswith("going on from step ") for line in lines)
    assert same_files(tmp_path, counted)
    assert equal(stored, read_counts(tmp_path))


@pytest.fixture(scope="module")
def killed(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        end_documents(monkeypatch, 40)
        with pytest.raises(PulledPlugError):
            count(shards, folder, batch_size=4, save_every=1)
    return folder


@pytest.fixture
def half_done(killed, tmp_path):
    """A folder with the state of a count that was killed."""
    return shutil.copytree(killed, tmp_path / "counts")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2}, "setting batch_size was 4 and now is 2; pass another directory"),
        ({"settings": FEW._replace(seed=1)}, "setting seed was 0 and now is 1"),
        ({"settings": FEW._replace(length=13)}, "setting length was 12 and now is 13"),
        ({"skip_unreadable": True}, "setting skip_unreadable was False and now is True"),
    ],
)
def test_other_settings_do_not_go_on(shards, half_done, options, message):
    with pytest.raises(InputError, match=message):
        count(shards, half_done, **{"batch_size": 4, **options})


def test_other_shards_do_not_go_on(shards, half_done, tmp_path):
    def refused(shards, message):
        with pytest.raises(InputError, match=message):
            count(shards, half_done, batch_size=4)

    (tmp_path / "d.txt").write_text("new")
    (new,) = find_shards([tmp_path / "d.txt"])
    refused([*shards, new], r"setting shard 3 was absent and now is d\.txt; pass another directory")
    refused(shards[:2], r"setting shard 2 was c\.txt and now is absent")
    refused(shards[::-1], r"setting shard 0 was a\.txt and now is c\.txt")
    (tmp_path / "a.txt").write_text("another\n" * 45)
    other = find_shards([tmp_path / "a.txt"])
    message = r"a\.txt: its first \d+ documents"
    refused([*other, *shards[1:]], message)


def test_a_shard_read_to_its_end_must_stay(shards, tmp_path, pull_the_plug, monkeypatch):
    pull_the_plug(60)  # in the third
    with pytest.raises(PulledPlugError):
        count(shards, tmp_path / "counts", batch_size=4, save_every=1)
    monkeypatch.undo()
    (tmp_path / "a.txt").write_text("edited")
    changed = [*find_shards([tmp_path / "a.txt"]), *shards[1:]]
    with pytest.raises(InputError, match=r"a\.txt has changed since it was counted"):
        count(changed, tmp_path / "counts", batch_size=4)


@pytest.mark.parametrize("skip_unreadable", [False, True])
def test_a_shard_that_was_repaired_goes_on(shards, counted, tmp_path, skip_unreadable):
    whole = Path(shards[0].path).read_bytes()
    path = tmp_path / "a.txt"

    def go_on(content):
        path.write_bytes(content)
        found = [*find_shards([path]), *shards[1:]]
        options = {"batch_size": 4, "save_every": 1, "skip_unreadable": skip_unreadable}
        return count(found, tmp_path / "counts", **options)

    broken = b"".join(whole.splitlines(keepends=True)[:30]) + b"\xff\n"
    if skip_unreadable:
        assert go_on(broken).unreadable
        return
    with pytest.raises(
        InputError,
        match=r"a\.txt, line 31: byte 0xff .* repair the shard and run the command again",
    ):
        go_on(broken)
    with pytest.raises(InputError, match=r"its first 2[048] documents"):
        go_on(b"other " + whole)
    go_on(whole)
    assert same_files(tmp_path / "counts", counted)


def test_killed_between_the_two_files(shards, counted, tmp_path, monkeypatch):
    real = counting.write_counts

    def half(stored, directory):
        real(stored, directory)
        (directory / "counts.json").unlink()
        raise PulledPlugError

    monkeypatch.setattr(counting, "write_counts", half)
    with pytest.raises(PulledPlugError):
        count(shards, tmp_path)
    monkeypatch.undo()
    count(shards, tmp_path)
    assert same_files(tmp_path, counted)


def test_killed_before_the_state_is_gone(shards, counted, tmp_path, monkeypatch):
    def plug(*args, **options):
        raise PulledPlugError

    monkeypatch.setattr(counting.shutil, "rmtree", plug)
    with pytest.raises(PulledPlugError):
        count(shards, tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "state").is_dir()
    count(shards, tmp_path)
    assert same_files(tmp_path, counted)
    assert not (tmp_path / "state").exists()


def test_a_finished_folder_is_what_it_is(shards, counted):
    before = {name: (counted / name).stat() for name in FILES}
    lines = []
    stored = count(shards, counted, batch_size=7, progress=Told(lines))
    assert lines == [f"{counted} holds these counts already"]
    assert equal(stored, read_counts(counted))
    with pytest.raises(InputError, match="holds other counts: seed is 0 and 1; pass another"):
        count(shards, counted, settings=FEW._replace(seed=1))
    with pytest.raises(InputError, match="holds other counts: shards is 3 and 1"):
        count(shards[:1], counted)
    with pytest.raises(InputError, match="holds other counts: text_field is None and x"):
        count(shards, counted, text_field="x")
    assert before == {name: (counted / name).stat() for name in FILES}


def test_what_does_not_fit_is_refused_before_anything_is_written(shards, tmp_path, monkeypatch):
    big = FEW._replace(length=10**6)
    assert needed_bytes(big) > 2 * 4 * 4 * 10**6 * 256
    with pytest.raises(InputError, match=r"4 tables .* needs 14\.0 GB .* 1\.0 GB"):
        count(shards, tmp_path / "counts", settings=big, memory=1.0)
    with pytest.raises(InputError, match=r" 0\.0 GB"):
        check_memory(FEW, limit=0)
    assert not (tmp_path / "counts").exists()
    check_memory(FEW, limit=needed_bytes(FEW))
    endless = FEW._replace(length=10**12)
    with pytest.raises(InputError, match="lower the length"):
        check_memory(endless)

    def unknown(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    check_memory(endless)  # not Linux: nothing is known


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` is 0; pass at least 1"),
        ({"batch_size": -4}, "`batch_size` is -4"),
        ({"save_every": 0}, "`save_every` is 0; pass at least 1"),
    ],
)
def test_options_out_of_range(shards, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        count(shards, tmp_path / "counts", **options)
    assert not (tmp_path / "counts").exists()


def test_no_documents_and_no_tokens(tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n\n")
    (tmp_path / "spaces.txt").write_text("x\n")
    only_spaces = BYTES._replace(exclude=(ord("x"),))
    for name, what in (("blank.txt", "documents"), ("spaces.txt", "tokens")):
        folder = tmp_path / what
        with pytest.raises(InputError, match=f"no {what} in 1 shards; pass files with text"):
            count(
                find_shards([tmp_path / name]),
                folder,
                tokenizer=only_spaces,
                settings=FEW._replace(exclude=only_spaces.exclude),
            )
        assert not is_counted(folder)


@pytest.fixture
def broken(shards, tmp_path):
    """The same shards, and one between them that is no UTF-8 at its end."""
    (tmp_path / "b.txt").write_bytes(b"fine\n" * 30 + b"\xff")
    return [shards[0], *find_shards([tmp_path / "b.txt"]), shards[2]]


def test_an_unreadable_shard_stops_the_run(broken, counted, tmp_path):
    for _ in range(2):  # also when it goes on from what is kept
        with pytest.raises(InputError, match=r"b\.txt, line 31: .* The counts so far are kept"):
            count(broken, tmp_path / "counts", batch_size=4, save_every=1)
    assert not is_counted(tmp_path / "counts")


def test_an_unreadable_shard_is_left_out_and_told(broken, counted, tmp_path):
    stored = count(broken, tmp_path / "counts", skip_unreadable=True)
    np.testing.assert_array_equal(stored.table, read_counts(counted).table)
    assert [shard.documents for shard in stored.shards] == [45, 0, 25]
    (left_out,) = stored.unreadable
    assert left_out.identity.startswith("b.txt, ")
    assert "line 31" in left_out.unreadable
    assert equal(read_counts(tmp_path / "counts"), stored)


def test_counts_beyond_int32_are_refused(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "INT32_MAX", 39)
    with pytest.raises(InputError, match=r"more might exceed the int32 counts .* by merge"):
        count(shards, tmp_path, batch_size=4, save_every=3)


def test_counts_of_halves_with_vocabularies_of_their_own_are_those_of_the_whole(tmp_path):
    halves = {"a": [*texts()[::2], "only here"], "b": [*texts()[1::2], "or not", "elsewhere"]}
    for name, rows in halves.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(rows))
    options = {"length": 4, "folds": 4, "nulls": 2, "batch_size": 16}
    for name in ("a", "b", "[ab]"):
        named = {"sources": (str(tmp_path / f"{name}.txt"),), "tokenizer": "words"}
        job.count(job.CountOptions(**named, **options), tmp_path / name)
    tokens = [read_counts(tmp_path / name).tokens for name in "ab"]
    assert tokens[0] != tokens[1]
    for order in ("ab", "ba"):
        job.merge([tmp_path / name for name in order], tmp_path / "merged" / order)
        assert same_files(tmp_path / "merged" / order, tmp_path / "[ab]")


@pytest.mark.parametrize("workers", [0, 1])
def test_strings_without_spaces_are_counted_as_words_only_where_that_is_asked(tmp_path, workers):
    path = tmp_path / "dna.txt"
    path.write_text("\n".join(("ACGT" * 12, "TTAACCGG" * 6, "CATG" * 12)))
    options = {"sources": (str(path),), "folds": 4, "nulls": 0, "workers": workers}
    with pytest.raises(
        InputError, match=r"dna.txt: .*`tokenizer=characters`, or `tokenizer=words`"
    ):
        job.count(job.CountOptions(**options), tmp_path / "words")
    assert not (tmp_path / "words" / VOCABULARY).exists()
    if workers:  # what is refused is found by another process
        return
    counted = [
        job.count(job.CountOptions(**options, tokenizer=name), tmp_path / name)
        for name in ("words", "characters")
    ]
    assert [int(stored.table.sum()) for stored in counted] == [3, 3 * 48]


def test_counts_do_not_depend_on_the_dropout_of_a_tokenizer(tmp_path):
    from tokenizers import Tokenizer, models

    merges, lines = [("a", "b"), ("ab", "c"), ("b", "c")], list[str]()
    numbers = {token: i for i, token in enumerate(("a", "b", "c", *map("".join, merges)))}
    Tokenizer(models.BPE(numbers, merges, dropout=0.5)).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("abc" * 40 + "\n" + "ab" * 40)
    options = {"sources": (str(tmp_path / "a.txt"),), "folds": 4, "nulls": 0, "length": 200}
    for name in ("one", "other"):
        wanted = job.CountOptions(**options, tokenizer=str(tmp_path / "tokenizer.json"))
        stored = job.count(wanted, tmp_path / name, progress=Told(lines))
    assert same_files(tmp_path / "one", tmp_path / "other")
    assert int(stored.table.sum()) == 80
    assert sum("dropout" in line and "0.5" in line for line in lines) == 2


def test_a_full_disk_is_told(shards, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ocp.training.Checkpointer, "save_checkpointables_async", full)
    with pytest.raises(InputError, match=r"cannot save into .*state .*No space left.*make room"):
        count(shards, tmp_path, batch_size=4, save_every=1)


def test_devices_do_not_make_unequal_parts():
    with pytest.raises(ValueError, match=f"{jax.device_count()} devices do not make 3 parts"):
        count_mesh(parts=3)
    with pytest.raises(ValueError, match="do not make 0 parts"):
        count_mesh(parts=0)


ON_EIGHT = """
import sys, jax, numpy as np
from jaxpe.analysis.counts import CountOptions, count_mesh, count_settings, count_shards
from jaxpe.analysis.counts.state import abstract_state, total
from jaxpe.data import Shard, find_shards, open_tokenizer
from tests.progress import Told

*paths, two_by_four, one_by_eight = sys.argv[1:]
tokenizer = open_tokenizer("bytes")
# A vocabulary that four devices cannot share evenly.
tokenizer = tokenizer._replace(tokens=[*tokenizer.tokens, "more"], exclude=(32,))
settings = count_settings(tokenizer, length=12, folds=4, nulls=2, null_folds=2, seed=3)
options = {"tokenizer": tokenizer, "settings": settings}
options["options"] = CountOptions(sources=(), batch_size=16, save_every=2)
shards, real = find_shards(paths), Shard.documents

def documents(self, **fields):
    for number, document in enumerate(real(self, **fields)):
        assert number < 40, "the plug is pulled"
        yield document

Shard.documents = documents
try:
    count_shards(shards, two_by_four, mesh=count_mesh(parts=2), **options)
except AssertionError:
    Shard.documents = real
lines = []
count_shards(shards, two_by_four, mesh=count_mesh(parts=2), progress=Told(lines), **options)
assert lines[0] == "going on from step 2", lines
count_shards(shards, one_by_eight, **options)
# Sums over parts may exceed int32.
mesh = count_mesh(parts=4)
state = jax.tree.map(
    lambda leaf: jax.device_put(np.full(leaf.shape, 2**31 - 1, np.int32), leaf.sharding),
    abstract_state(settings, mesh),
)
table, nulls, documents = total(state, settings, mesh)
assert table.dtype == nulls.dtype == np.int64 and documents == 2**33 - 4
assert (table == documents).all() and (nulls == documents).all() and table.shape == (4, 12, 257)
"""


def test_devices_share_documents_and_vocabulary(shards, with_nulls, tmp_path):
    folders = [tmp_path / "2x4", tmp_path / "1x8"]
    subprocess.run(
        [sys.executable, "-c", ON_EIGHT, *[shard.path for shard in shards], *folders],
        env=device_environment(8),
        cwd=ROOT,
        check=True,
    )
    assert same_files(*folders)
    stored = read_counts(folders[0])
    np.testing.assert_array_equal(stored.table[..., :256], with_nulls.table)
    np.testing.assert_array_equal(stored.nulls[..., :256], with_nulls.nulls)
    assert not stored.table[..., 256].any()
    assert stored.documents == 70


def test_processes_that_tokenize_change_nothing(
    shards, counted, tmp_path, pull_the_plug, monkeypatch
):
    options = {"batch_size": 4, "save_every": 1, "workers": 2}
    pull_the_plug(41)
    with pytest.raises(PulledPlugError):
        count(shards, tmp_path, **options)
    monkeypatch.undo()
    count(shards, tmp_path, **options)
    assert same_files(tmp_path, counted)


@pytest.mark.parametrize("tokenizer", ["words", "characters"])
def test_processes_that_look_for_words_find_the_same_vocabulary(
    shards, tmp_path, monkeypatch, tokenizer
):
    monkeypatch.setattr(workers, "_SENT", 20)  # characters: many small messages
    options = job.CountOptions(sources=(), tokenizer=tokenizer, length=3, max_vocab=5)
    for number in (0, 2):
        corpus_vocabulary(shards, tmp_path / f"{number}", options, workers=number)
    first, second = ((tmp_path / name / VOCABULARY).read_bytes() for name in "02")
    assert first == second
    assert len(json.loads(first)["tokens"]) == 5


def test_a_process_that_tokenizes_tells_what_is_wrong():
    words = open_tokenizer(vocabulary=["to", "be"])
    with TokenizerPool(words, length=3, processes=1) as pool:
        first, second = pool.submit(["to be"]), pool.submit(["or"])
        assert first.result()[0].tolist() == [[0, 1, 0]]
        with pytest.raises(InputError, match="'or' is not in the vocabulary"):
            second.result()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coordinator": "here", "processes": 2, "process": 0}, "`coordinator` is here; pass host"),
        ({"coordinator": "a:0", "processes": 2, "process": 0}, "`coordinator` is a:0; pass host"),
        ({"coordinator": "a:1e5", "processes": 2, "process": 0}, "`coordinator` is a:1e5; pass"),
        ({"processes": 2}, "`coordinator`, `processes` and `process` go together"),
        ({"coordinator": "localhost:1", "process": 0}, "go together"),
        (
            {"coordinator": "localhost:1", "processes": 2, "process": 2},
            "pass at most 1",
        ),
        (
            {"coordinator": "localhost:1", "processes": 2, "process": -1},
            "pass at least 0",
        ),
        ({"coordinator": "localhost:1", "processes": 0, "process": 0}, "pass at least 1"),
    ],
)
def test_processes_refused(options, message):
    coordinator = options.pop("coordinator", None)
    with pytest.raises(InputError, match=message):
        start_processes(coordinator, **options)

"""Data-processing engines make the counts that one process makes, to the byte."""

import dataclasses
import json
import pickle
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts import CountOptions, count, merge, read_counts
from jaxpe.analysis.counts.cells import STRIDE, Cells, sum_cells
from jaxpe.analysis.engines import CountPositions, beam, count_positions
from tests.analysis.counts.test_run import texts

VOCABULARY = ["to", "be", "or", "not", "naïve", "x" * 30]
OPTIONS = {"length": 12, "folds": 4, "nulls": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The documents in four files, a vocabulary, and their counts by one process."""
    folder = tmp_path_factory.mktemp("files")
    for number in range(4):
        (folder / f"{number}.txt").write_text("\n".join([*texts()[number::4], ""]))
    (folder / "vocab").write_text("\n".join(VOCABULARY))
    sources = (str(folder / "*.txt"),)
    count(CountOptions(sources=sources, vocab=folder / "vocab", **OPTIONS), folder / "counts")
    return folder


@pytest.fixture(scope="module")
def options(files):
    return CountOptions(sources=(), vocab=files / "vocab", **OPTIONS)


def tables(folder):
    """Bytes of all arrays but the header, which names the shards."""
    with np.load(folder / "counts.npz") as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files if name != "header"}


def documents(files, rank, end=None):
    lines = (files / f"{rank}.txt").read_text().splitlines()
    return (SimpleNamespace(text=line, metadata={}) for line in lines[:end])


def test_tasks_of_datatrove_merge_to_the_same_bytes(files, options, tmp_path):
    step = pickle.loads(pickle.dumps(CountPositions(options, tmp_path / "parts")))
    for rank in range(4):
        killed = step(documents(files, rank, end=9), rank, 5)
        next(killed)
        killed.close()
        assert not (tmp_path / "parts" / f"{rank:05}").exists()
        for _ in range(1 + rank % 2):  # twice, as if killed before it was marked as done
            assert sum(1 for _ in step(documents(files, rank), rank, 5)) >= 17
    assert [*step(None, 4, 5)] == []
    merge(sorted((tmp_path / "parts").iterdir()), tmp_path / "all")
    assert tables(tmp_path / "all") == tables(files / "counts")
    assert read_counts(tmp_path / "all").header.documents == 70


def summed(pairs):
    by_key = defaultdict(list)
    for key, cells in pairs:
        by_key[key].append(cells)
    return [(key, sum_cells(parts)) for key, parts in by_key.items()]


def beam_counts(rows, options, out):
    """As Beam does it: batches of any size, sums of sums in any order."""
    options = pickle.loads(pickle.dumps(options))
    cells_of, pairs = beam.keyed_cells, []
    texts = [text for row in rows for text in beam.text_rows(row, options=options)]
    for start, end in ((60, 70), (0, 16), (30, 46), (46, 60), (16, 30)):
        pairs += cells_of(texts[start:end], options=options)
    sums = summed(summed(pairs[1::2]) + summed(pairs[::2]))
    return Path(beam.write_sums(sums, len(texts), options=options, out=out))


def test_cells_of_beam_add_to_the_same_bytes(files, options, tmp_path, monkeypatch):
    rows = [*(row.encode() for row in texts()), " ", ""]  # TFDS has bytes
    folder = beam_counts(rows, options, tmp_path / "counts")
    assert tables(folder) == tables(files / "counts")
    assert read_counts(folder).header.documents == 70
    with pytest.raises(InputError, match="no documents"):
        beam.write_sums([], 0, options=options, out=tmp_path / "none")
    number = 2**31 + 9  # beyond int32
    cells = Cells(np.array([5 * STRIDE + 3]), np.array([number]))
    large = read_counts(beam.write_sums([(5, cells)], number, options=options, out=tmp_path / "l"))
    assert (large.table.dtype, large.table[0, 5, 3]) == (np.int64, number)
    monkeypatch.setitem(sys.modules, "apache_beam", ModuleType("apache_beam"))
    with pytest.raises(InputError, match="`vocab`"):
        count_positions(None, CountOptions(sources=()), "counts")


def test_groups_share_a_fold_in_both(tmp_path):
    options = CountOptions(
        sources=(), tokenizer="bytes", text_field="text", group_field="by", **OPTIONS
    )
    rows = [{"text": text, "by": f"author {n % 5}"} for n, text in enumerate(texts())]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = str(tmp_path / "a.jsonl")
    one = count(dataclasses.replace(options, sources=(source,)), tmp_path / "count")
    assert (one.table.sum(axis=(1, 2)) > 0).sum() <= 5
    beam_counts(rows, options, tmp_path / "beam")
    documents = [SimpleNamespace(text=row["text"], metadata=row) for row in rows]
    assert all(CountPositions(options, tmp_path)(documents))
    for folder in ("beam", "00000"):
        assert tables(tmp_path / folder) == tables(tmp_path / "count")

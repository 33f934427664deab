"""Data-processing engines make the counts that one process makes, to the byte."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts import Cells, CountOptions, count, merge, read_counts, sum_cells
from jaxpe.analysis.counts.cells import STRIDE
from jaxpe.analysis.engines import CountPositions, beam, count_positions
from tests.analysis.counts.test_run import texts

ROOT = Path(__file__).parents[2]
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
        killed = step(documents(files, rank, end=9), rank, 4)
        next(killed)
        killed.close()
        assert not (tmp_path / "parts" / f"{rank:05}").exists()
        for _ in range(1 + rank % 2):  # twice, as if killed before it was marked as done
            assert sum(1 for _ in step(documents(files, rank), rank, 4)) >= 17
    merge(sorted((tmp_path / "parts").iterdir()), tmp_path / "all")
    assert tables(tmp_path / "all") == tables(files / "counts")
    assert read_counts(tmp_path / "all").header.documents == 70


def test_tasks_need_no_vocabulary_and_no_documents(files, tmp_path):
    words = CountOptions(sources=(), tokenizer="words", **OPTIONS)
    step = CountPositions(words, tmp_path / "parts")
    for rank in range(4):
        assert all(step(documents(files, rank), rank, 5))
    assert [*step(None, 4, 5)] == []
    merge(sorted((tmp_path / "parts").iterdir()), tmp_path / "all")
    count(dataclasses.replace(words, sources=(str(files / "*.txt"),)), tmp_path / "counts")
    assert tables(tmp_path / "all") == tables(tmp_path / "counts")


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


def test_cells_of_beam_add_to_the_same_bytes(files, options, tmp_path):
    rows = [*(row.encode() for row in texts()), " ", ""]  # TFDS has bytes
    folder = beam_counts(rows, options, tmp_path / "counts")
    assert tables(folder) == tables(files / "counts")
    assert read_counts(folder).header.documents == 70
    with pytest.raises(InputError, match="no documents in the collection"):
        beam.write_sums([], 0, options=options, out=tmp_path / "none")


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


def test_cells_beyond_int32(options, tmp_path):
    number = 2**31 + 9
    cells = Cells(np.array([5 * STRIDE + 3]), np.array([number]))
    folder = beam.write_sums([(5, cells)], number, options=options, out=tmp_path)
    stored = read_counts(folder)
    assert (stored.table.dtype, stored.table[0, 5, 3]) == (np.int64, number)


def test_beam_needs_a_vocabulary_beforehand(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", ModuleType("apache_beam"))
    with pytest.raises(InputError, match="pass its folder as `vocab`"):
        count_positions(None, CountOptions(sources=()), "counts")


def pull_the_plug(how):
    """The end of a task: an error, or a signal that nothing can catch."""
    if how == "killed":
        os.killpg(0, signal.SIGKILL)  # what the task has started, too
    raise RuntimeError("the plug is pulled")


class FailsOnce:
    """A step at which one task fails, where it has not failed before."""

    def __init__(self, mark, how):
        self.mark, self.how = str(mark), how

    def __call__(self, data, rank=0, world_size=1):
        for number, document in enumerate(data):
            if rank == 2 and number == 9 and not Path(self.mark).exists():
                Path(self.mark).touch()
                pull_the_plug(self.how)
            yield document


def run_datatrove(how, files, out, rank=None):
    """Four tasks on two workers, or one of them in this process, as Slurm has it."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader

    files, out = Path(files), Path(out)
    options = CountOptions(sources=(), vocab=files / "vocab", **OPTIONS)
    step = CountPositions(options, out / "parts")
    pipeline = [JsonlReader(str(out / "rows")), step, FailsOnce(out / "failed", how)]
    chosen = {} if rank is None else {"local_tasks": 1, "local_rank_offset": int(rank)}
    LocalPipelineExecutor(
        pipeline=pipeline,
        tasks=4,
        workers=2 if rank is None else 1,
        logging_dir=str(out / "logs"),
        **chosen,
    ).run()


def run_beam(how, files, out):
    """Four workers of the DirectRunner."""
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    files, out = Path(files), Path(out)
    options = CountOptions(sources=(), vocab=files / "vocab", **OPTIONS)
    mark = out / "failed"

    def fails_once(row):
        if row.startswith("or") and not mark.exists():
            mark.touch()
            pull_the_plug(how)
        return row

    arguments = ["--direct_num_workers=4", "--direct_running_mode=multi_threading"]
    with apache_beam.Pipeline("DirectRunner", options=PipelineOptions(arguments)) as pipeline:
        rows = pipeline | apache_beam.Create(texts()) | apache_beam.Reshuffle()
        count_positions(rows | apache_beam.Map(fails_once), options, out / "counts")


def ended(function, *arguments):
    """The exit status of a function of this module in a process of its own."""
    script = "import sys; from tests.analysis import test_engines as t; "
    script += "getattr(t, sys.argv[1])(*sys.argv[2:])"
    words = [sys.executable, "-c", script, function, *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, start_new_session=True)
    print(done.stderr[-2000:])  # shown where the status is not the expected one
    return done.returncode


@pytest.fixture
def datatrove_rows(tmp_path):
    pytest.importorskip("datatrove", reason="datatrove is no part of the extra test: it is large")
    pytest.importorskip("orjson", reason="a reader of datatrove needs it")
    (tmp_path / "rows").mkdir()
    for number in range(4):
        rows = (f'{{"text": "{text}"}}\n' for text in texts()[number::4])
        (tmp_path / "rows" / f"{number}.jsonl").write_text("".join(rows))
    return tmp_path


def test_local_executor_of_datatrove(files, datatrove_rows):
    out = datatrove_rows
    assert [ended("run_datatrove", "failed", files, out) for _ in range(2)] == [1, 0]
    merge(sorted((out / "parts").iterdir()), out / "all")
    assert tables(out / "all") == tables(files / "counts")


def test_a_killed_task_of_datatrove_is_run_again(files, datatrove_rows):
    out = datatrove_rows
    ends = [ended("run_datatrove", "killed", files, out, rank) for rank in (3, 2, 0, 2, 1)]
    assert ends == [0, -signal.SIGKILL, 0, 0, 0]
    merge(sorted((out / "parts").iterdir()), out / "all")
    assert tables(out / "all") == tables(files / "counts")


@pytest.mark.parametrize(("how", "status"), [("failed", 1), ("killed", -signal.SIGKILL)])
def test_direct_runner_of_beam(files, tmp_path, how, status):
    """A pipeline that failed or was killed leaves nothing, and is run again."""
    pytest.importorskip(
        "apache_beam", reason="apache-beam is no part of the extra test: it is large"
    )
    assert ended("run_beam", how, files, tmp_path) == status
    assert not (tmp_path / "counts").exists()
    assert ended("run_beam", how, files, tmp_path) == 0
    assert tables(tmp_path / "counts") == tables(files / "counts")

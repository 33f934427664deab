"""The job: its numbers are those of the public functions, and it refuses what cannot work."""

import dataclasses
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.corpus import CorpusAnalysis, CorpusOptions, analyse, analyse_tokens
from jaxpe.analysis.corpus.result import SHARES
from jaxpe.data import TokenCorpus, dependent_groups, load_tokens
from jaxpe.geometry import rotate_within_documents
from jaxpe.report.corpus.text import named_findings
from tests.conftest import score_only

SEED = 3
LINES = [f"w{k % 7} w{k % 5} w{k % 3}" for k in range(40)]  # of equal sizes: compiled once
THERE = Path("there")


class Recorder:
    """Progress that keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: dict[str, int] = {}

    def track(self, items, description, *, total=None):
        for item in items:
            self.shown[description] = self.shown.get(description, 0) + 1
            yield item

    def say(self, line: str) -> None: ...


@pytest.fixture(autouse=True, scope="module")
def few_encodings():
    with pytest.MonkeyPatch.context() as patch:
        score_only(patch, "sinusoidal", "random")
        yield


@pytest.fixture(scope="module")
def corpus() -> TokenCorpus:
    """Ragged documents that drift, some of them pieces of others, and a word that is excluded."""
    rng, documents, n = np.random.default_rng(0), 600, 10
    drift = rng.random((documents, n)) < np.arange(n) / n
    ids = np.where(drift, rng.integers(1, 9, (documents, n)), rng.integers(20, 40, (documents, n)))
    ids[:, 0] = 0
    ids[100:200, :5] = ids[:100, 3:8]
    lengths = np.where(np.arange(documents) // 100 == 1, 5, rng.integers(6, n + 1, documents))
    mask = np.arange(n)[None, :] < lengths[:, None]
    names = [f"word{k}" for k in range(50)]
    return TokenCorpus("drift", "ids", ids.astype(np.int32), mask, 50, (0,), names, n)


@pytest.fixture(scope="module")
def found(corpus) -> CorpusAnalysis:
    return analyse_tokens(corpus, dim=4, seed=SEED)


def test_the_numbers_are_those_of_the_public_functions_with_their_defaults(corpus, found):
    """No option is passed but the corpus, its groups and the keys that the docstring names."""
    keys = jax.random.split(jax.random.key(SEED), 3)
    groups = dependent_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    assert found.groups == len(np.unique(groups)) < found.documents
    assert {row.parameters for row in found.encodings if row.fitted} == {10 * 4}  # of full rank
    documents = {"vocab_size": 50, "mask": corpus.mask, "exclude": (0,), "groups": groups}

    ended = np.ones(len(corpus.ids), bool)  # none was cut
    geometry = jaxpe.position_geometry(corpus.ids, key=keys[0], ended=ended, **documents)
    close = {"rtol": 1e-4, "atol": 1e-6}
    position = found.position
    for name in ("squared_distances", "eigenvalues", "trace", "present"):
        np.testing.assert_allclose(getattr(position, name), getattr(geometry, name), **close)
    np.testing.assert_allclose(found.split_half_trace, geometry.split_half.trace, **close)

    rank = jaxpe.position_rank(geometry)
    assert position.significant_rank == rank.rank > 0
    assert 2 <= position.half_distance.low <= 3 <= position.half_distance.high <= 5  # a line
    np.testing.assert_allclose(position.rank_eigenvalues, rank.eigenvalues, **close)
    np.testing.assert_allclose(position.null_eigenvalue, rank.threshold, **close)
    np.testing.assert_allclose(position.p_value, rank.p_value)

    counts = jaxpe.count_tokens(corpus.ids, folds=16, **documents)
    mu = jaxpe.positional_distributions(counts)
    gram = jaxpe.hellinger_gram(mu)
    np.testing.assert_allclose(found.plug_in.trace, jnp.trace(gram), **close)
    D = jaxpe.hellinger_distances(mu)
    np.testing.assert_allclose(found.plug_in.distances, D.values, **close)
    assert found.plug_in.rank == jaxpe.classical_mds(D, dim=4).rank

    rotated = {"mask": corpus.mask, "exclude": (0,), "groups": groups, "ended": ended}
    rotations = [
        rotate_within_documents(key, corpus.ids, **rotated)
        for key in jax.random.split(keys[0], 21)[1:5]
    ]
    nulls = [jaxpe.count_tokens(ids, folds=16, **documents) for ids in rotations]
    drawn = {"key": keys[2], "splits": 8, "halvings": 2}
    halves = jaxpe.geometry.disjoint_position_geometries(counts, nulls, **drawn)
    intervals = jaxpe.geometry.position_intervals(geometry, halves)
    near = intervals.nearness
    np.testing.assert_allclose(found.intervals["nearness"], near[:3], **close)
    by_offset = np.stack([np.asarray(x) for x in intervals.by_offset[:3]])
    np.testing.assert_allclose(position.by_offset, by_offset, **close)
    shares = [found.intervals[f"{name}_share"] for name in SHARES]
    noise, composition, of_position = (share.estimate for share in shares)
    plug_in = jnp.trace(jaxpe.hellinger_gram(mu._replace(present=geometry.present)))
    np.testing.assert_allclose(of_position, geometry.trace / plug_in, **close)
    np.testing.assert_allclose(noise, 1 - geometry.split_half.trace / plug_in, **close)
    np.testing.assert_allclose(noise + composition + of_position, 1, **close)
    assert all(share.low < share.estimate < share.high for share in shares)


def test_a_cohort_has_the_same_documents_everywhere(corpus):
    corpus = corpus._replace(mask=corpus.mask & (np.arange(10) > 0))
    found = analyse_tokens(corpus, dim=4, splits=2, cohort=True)
    whole = (corpus.mask | ~corpus.mask.any(axis=0)).all(axis=1)
    assert found.documents == whole.sum() < len(corpus.ids)
    assert set(found.documents_per_position) == {0, found.documents}
    assert found.cohort
    nobody = corpus._replace(mask=np.eye(10, dtype=bool)[np.arange(600) % 10])
    with pytest.raises(InputError, match=r"`length`.*`cohort`"):
        analyse_tokens(nobody, dim=4, cohort=True)


def test_documents_of_one_author_are_one_piece_of_evidence(tmp_path):
    rows = [f"author{k // 10},{line}" for k, line in enumerate(LINES)]
    (tmp_path / "x.csv").write_text("by,text\n" + "\n".join(rows))
    options = CorpusOptions(source=str(tmp_path / "x.csv"), dim=2, splits=2, text_field="text")
    alone = analyse(options)
    together = analyse(dataclasses.replace(options, group_field="by"))
    assert together.groups == 4 < 20 < alone.groups
    assert (alone.group_field, together.group_field) == (None, "by")
    assert alone.neighbours is not None
    assert together.neighbours is None


def test_rotated_documents_have_no_position(corpus):
    """Lengths and words of the documents stay: composition is there, and nothing is said of it."""
    groups = dependent_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    rotated = {"exclude": (0,), "groups": groups, "ended": np.ones(len(groups), bool)}
    ids = rotate_within_documents(jax.random.key(7), corpus.ids, corpus.mask, **rotated)
    found = analyse_tokens(corpus._replace(ids=np.asarray(ids)), dim=4)
    share = found.intervals["position_share"]
    assert found.position.significant_rank == 0
    assert share.low < 0 < share.high
    assert found.held_out.dim == 0
    assert not {"fitted", "fixed", "nearness"} & named_findings(found).keys()


def test_of_a_source_and_of_its_tokens_the_same(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES))
    options = CorpusOptions(source=str(path), dim=2, splits=2)
    by_source = analyse(options)
    by_tokens = analyse_tokens(load_tokens(path), dim=2, splits=2)
    assert by_source.inputs == (str(path),)
    same = by_source._replace(inputs=(), given={})
    assert result_files(same, "report") == result_files(by_tokens, "report")
    assert {"read", "position", "dimensions"} <= by_source.seconds.keys()


def test_a_saved_analysis_is_the_analysis(found, tmp_path):
    for name, content in result_files(found, "report").items():
        (tmp_path / name).write_bytes(content)
    saved = load_result(CorpusAnalysis, tmp_path / "report.json")
    jax.tree.map(np.testing.assert_array_equal, saved, found._replace(seconds={}))


def test_an_analysis_of_before_there_were_choices_is_read(found, tmp_path):
    for name, content in result_files(found, "report").items():
        (tmp_path / name).write_bytes(content)
    values = json.loads((tmp_path / "report.json").read_text())
    del values["choices"], values["null_texts"]
    (tmp_path / "report.json").write_text(json.dumps(values))
    saved = load_result(CorpusAnalysis, tmp_path / "report.json")
    assert (saved.choices, saved.null_texts, saved.documents) == ((), 0, found.documents)


def test_what_was_chosen_and_left_out_is_in_the_result(tmp_path):
    path, quick = tmp_path / "x.jsonl", {"dim": 2, "splits": 2}
    texts = ["w0 w1 w2 w3", None, *LINES[1:]]
    path.write_text("".join(json.dumps({"n": 1, "body": text}) + "\n" for text in texts))
    options = CorpusOptions(source=str(path), skip_nulls=True, **quick)
    found = analyse(options)
    chosen = {choice.setting: choice.value for choice in found.choices}
    assert chosen == {
        "column of text": "body", "tokenizer": "words", "length": "3", "vocabulary": "7 words",
    }  # fmt: skip
    assert (found.documents, found.null_texts) == (40, 1)
    for name, content in result_files(found, "report").items():
        (tmp_path / name).write_bytes(content)
    assert load_result(CorpusAnalysis, tmp_path / "report.json").choices == found.choices
    passed = {"tokenizer": "bytes", "length": 3, "text_field": "body", "empty": "drop"}
    assert analyse(dataclasses.replace(options, **passed)).choices == ()


def test_progress_is_shown_and_changes_nothing(corpus, found):
    recorder = Recorder()
    again = analyse_tokens(corpus, dim=4, seed=SEED, progress=recorder)
    assert result_files(again, "report") == result_files(found, "report")
    stages = dict.fromkeys(("geometry", "encodings", "dimensions", "position", "where"), 1)
    held_out = 5 + 2  # documents and four rotations, and what is made of them
    repeated = {"rotated documents": 20, "held-out halves": held_out}
    assert recorder.shown == repeated | stages


def test_uniform_is_over_the_whole_vocabulary(corpus):
    """A position that holds nothing, and 50 words of which 28 occur."""
    mask = corpus.mask & (np.arange(10) != 9)
    case = analyse_tokens(corpus._replace(mask=mask), dim=4, empty="uniform", splits=2)
    counts = jaxpe.count_tokens(corpus.ids, vocab_size=50, mask=mask, exclude=(0,))
    D = jaxpe.hellinger_distances(jaxpe.positional_distributions(counts, empty="uniform"))
    np.testing.assert_allclose(case.plug_in.distances, D.values, rtol=1e-5, atol=1e-6)
    assert case.empty_positions == ("uniform", 1)
    rows = np.asarray(counts.tokens)
    for position, tokens in case.top_tokens:
        assert tokens[0].count == rows[position].max()
        assert tokens[0].token == f"word{rows[position].argmax()}"


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"dim": 3}, ("`dim`", "3", "`dim=64`")),
        ({"dim": 0}, ("`dim`", "0", "2")),
        ({"dim": 2**30}, ("`dim=",)),
        ({"length": 0}, ("`length`", "0")),
        ({"length": 5000}, ("`length`", "4,096")),
        ({"splits": 0}, ("`splits`", "0")),
        ({"seed": -1}, ("`seed`", "-1")),
        ({"data_dir": THERE}, ("`data_dir`", "sst2", "stdlib")),
        ({"encodings": ("no_such_module:mine",)}, ("no_such_module",)),
        ({"counts": THERE, "tokenizer": "bytes"}, ("`counts`", "`tokenizer`")),
        ({"counts": THERE, "source": "sst2"}, ("`counts`", "`source`")),
        ({"counts": THERE, "cohort": True}, ("`counts`", "`cohort`")),
        ({"counts": THERE, "special": True}, ("`counts`", "`special`")),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_read(options, parts):
    with pytest.raises(InputError) as refused:
        analyse(CorpusOptions(**options))
    assert all(part in str(refused.value) for part in parts)


def test_further_encodings_are_scored(corpus, tmp_path, monkeypatch):
    module = "import jaxpe\n\n\ndef mine(sizes):\n    return jaxpe.sinusoidal(dim=sizes.dim)\n"
    (tmp_path / "further_of_mine.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = "further_of_mine:mine"
    found = analyse_tokens(corpus, dim=4, splits=1, encodings=(name,)).encodings
    known = next(score for score in found if score.name == "sinusoidal")
    assert found[-1].name == name
    assert found[-1].stress == pytest.approx(known.stress)


def test_a_length_beyond_every_document_needs_a_policy(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(line[:5] for line in LINES))
    with pytest.raises(InputError, match=r"`length=9`.* 2 tokens.*`length=2`.*`empty`"):
        analyse(CorpusOptions(source=str(path), length=9))
    options = CorpusOptions(source=str(path), length=3, empty="drop", dim=2, splits=2)
    assert analyse(options).empty_positions == ("drop", 1)


def test_a_policy_for_empty_positions_is_chosen_where_there_are_some(tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(120).reshape(40, 3) % 7)
    options = CorpusOptions(source=str(tmp_path / "ids.npy"), dim=2, splits=2)
    found = analyse(options)
    assert [choice[:2] for choice in found.choices] == [("length", "3")]
    assert found.empty_positions == ("drop", 0)


def test_counts_beyond_memory_are_refused(corpus):
    words = np.arange(600 * 4096, dtype=np.int32).reshape(600, 4096)
    names = ["word"] * words.size
    with pytest.raises(InputError, match=r"16 folds.*`length`.*`tokenizer`"):
        analyse_tokens(TokenCorpus(
            "large", "ids", words, np.ones(words.shape, bool), words.size, (), names, 4096
        ))  # fmt: skip

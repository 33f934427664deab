"""The job: its numbers are those of the public functions, and it refuses what cannot work."""

import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import InputError, encodings
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.corpus import (
    CorpusOptions,
    CorpusResult,
    analyse,
    analyse_counts,
    analyse_tokens,
)
from jaxpe.analysis.corpus.job import top_tokens
from jaxpe.analysis.corpus.vectors import entry_of_table
from jaxpe.analysis.counts.settings import CountSettings
from jaxpe.analysis.counts.stored import CountedShard, CountHeader, StoredCounts
from jaxpe.data import TokenCorpus, dependent_groups, load_tokens
from jaxpe.geometry import position_geometry_from_counts, rotate_within_documents
from jaxpe.geometry.counts.position_counts import regroup_folds
from jaxpe.geometry.noise.cross_validation import disjoint_position_geometries
from tests.conftest import score_only

SEED = 3
LINES = [f"w{k % 7} w{k % 5} w{k % 3}" for k in range(40)]  # of equal sizes: compiled once
QUICK = CorpusOptions(dim=4, splits=2)
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


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
def found(corpus) -> CorpusResult:
    return analyse_tokens(corpus, CorpusOptions(dim=4, seed=SEED))


def test_the_numbers_are_those_of_the_public_functions_with_their_defaults(corpus, found):
    """No option is passed but the corpus, its groups and the keys that the docstring names."""
    keys = jax.random.split(jax.random.key(SEED), 3)
    groups = dependent_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    assert found.facts.groups == len(np.unique(groups)) < found.facts.documents
    assert [row.parameters for row in found.encodings if row.fitted] == [10 * 4]  # of full rank
    documents = {"vocab_size": 50, "mask": corpus.mask, "exclude": (0,), "groups": groups}

    ended = np.ones(len(corpus.ids), bool)  # none was cut
    geometry = jaxpe.geometry.position_geometry(corpus.ids, key=keys[0], ended=ended, **documents)
    position, rank = found.position, jaxpe.geometry.position_rank(geometry)
    for name in ("squared_distances", "eigenvalues", "trace", "present"):
        np.testing.assert_allclose(getattr(position, name), getattr(geometry, name), **CLOSE)
    np.testing.assert_allclose(found.observed.split_half_trace, geometry.split_half.trace, **CLOSE)
    assert position.significant_rank == rank.rank > 0
    assert 2 <= position.half_distance.low <= 3 <= position.half_distance.high <= 5  # a line
    np.testing.assert_allclose(position.rank_eigenvalues, rank.eigenvalues, **CLOSE)
    np.testing.assert_allclose(position.null_eigenvalue, rank.threshold, **CLOSE)
    np.testing.assert_allclose(position.p_value, rank.p_value)
    of_position, of_composition = (
        np.linalg.eigh(gram)[1][:, -1]
        for gram in (geometry.gram, geometry.split_half.gram - geometry.gram)
    )
    r = abs(of_position @ of_composition)
    np.testing.assert_allclose(position.composition_correlation, r, rtol=1e-3)

    counts = jaxpe.geometry.count_tokens(corpus.ids, folds=16, **documents)
    error = jaxpe.geometry.noise_floor(counts).split_half_error
    np.testing.assert_allclose(position.standard_errors, error, rtol=1e-3)
    mu, D = jaxpe.geometry.positional_distributions(counts), found.observed.distances
    np.testing.assert_allclose(
        found.observed.trace, jnp.trace(jaxpe.geometry.hellinger_gram(mu)), **CLOSE
    )
    np.testing.assert_allclose(D, jaxpe.geometry.hellinger_distances(mu).values, **CLOSE)
    assert (
        found.observed.rank
        == jaxpe.geometry.classical_mds(jaxpe.geometry.hellinger_distances(mu), dim=4).rank
    )

    rotated = {"mask": corpus.mask, "exclude": (0,), "groups": groups, "ended": ended}
    nulls = [
        jaxpe.geometry.count_tokens(
            rotate_within_documents(k, corpus.ids, **rotated), folds=16, **documents
        )
        for k in jax.random.split(keys[0], 21)[1:5]
    ]
    halves = disjoint_position_geometries(counts, nulls, key=keys[2], splits=8, halvings=2)
    intervals = jaxpe.geometry.position_intervals(geometry, halves)
    np.testing.assert_allclose(found.intervals["nearness"], intervals.nearness[:3], **CLOSE)
    by_offset = np.stack([np.asarray(x) for x in intervals.by_offset[:3]])
    np.testing.assert_allclose(position.by_offset, by_offset, **CLOSE)
    shares = [found.intervals[f"{name}_share"] for name in ("noise", "composition", "position")]
    noise, composition, of_position = (share.estimate for share in shares)
    plug_in = jnp.trace(jaxpe.geometry.hellinger_gram(mu._replace(present=geometry.present)))
    np.testing.assert_allclose(of_position, geometry.trace / plug_in, **CLOSE)
    np.testing.assert_allclose(noise, 1 - geometry.split_half.trace / plug_in, **CLOSE)
    np.testing.assert_allclose(noise + composition + of_position, 1, **CLOSE)
    assert all(share.low < share.estimate < share.high for share in shares)

    held_out, own = found.held_out, jaxpe.geometry.cross_validated_mds(halves.position, dim=10)
    np.testing.assert_allclose([x.estimate for x in held_out.own], own.mean, **CLOSE)
    least = held_out.fixed[held_out.best[0]].estimate
    assert least == min(x.estimate for x in held_out.fixed.values())
    fitted = held_out.own[held_out.dim - 1].estimate
    np.testing.assert_allclose(held_out.gain.estimate, least - fitted, **CLOSE)
    over = held_out.equal.estimate - least
    np.testing.assert_allclose(held_out.over_equal.estimate, over, **CLOSE)


def test_counts_tell_what_the_documents_tell(corpus, found):
    """Observed numbers are the same; the geometry of position has other halves and rotations."""
    groups = dependent_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    counting = {"vocab_size": 50, "mask": corpus.mask, "exclude": (0,), "groups": groups}
    keys = map(jax.random.key, range(20))
    rotation = {"exclude": (0,), "groups": groups, "ended": np.ones(600, bool)}
    rotated = [rotate_within_documents(x, corpus.ids, corpus.mask, **rotation) for x in keys]
    settings = CountSettings("words", "", 10, None, 50, (0,), 16, 20, 4, 0)
    shard = CountedShard("all.txt", 1, "0" * 32, 600, null_texts=3)
    stored = StoredCounts(
        np.asarray(jaxpe.geometry.count_tokens(corpus.ids, folds=16, **counting).tokens),
        np.stack([jaxpe.geometry.count_tokens(ids, folds=4, **counting).tokens for ids in rotated]),
        CountHeader(600, settings, (shard,), None, (), corpus.tokens),
    )
    counted = analyse_counts(stored, CorpusOptions(dim=4, seed=SEED))
    own = {"name": "all.txt", "tokenizer": "words", "groups": 600, "folds": 4, "null_texts": 3}
    assert found.facts._replace(**own, from_counts=True, cut=None) == counted.facts
    assert counted.top_tokens == found.top_tokens
    for ours, theirs in zip(counted.observed[:4], found.observed, strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(counted.documents_per_position, found.documents_per_position)
    share, expected = (x.intervals["position_share"] for x in (counted, found))
    assert share.low < expected.estimate < share.high
    assert counted.position.significant_rank == found.position.significant_rank > 0

    halving = jax.random.split(jax.random.split(jax.random.key(SEED), 3)[0], 21)[0]
    counts = regroup_folds(stored.counts, folds=4)
    nulls = [counts._replace(tokens=null) for null in stored.nulls]
    expected = position_geometry_from_counts(counts, nulls, key=halving)
    for name in ("trace", "eigenvalues", "squared_distances"):
        ours, theirs = getattr(counted.position, name), getattr(expected, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    for settings, message in (({"nulls": 18}, "18 rotated"), ({"length": 5000}, "5,000 positions")):
        header = stored.header._replace(settings=stored.header.settings._replace(**settings))
        with pytest.raises(InputError, match=message):
            analyse_counts(stored._replace(header=header))


def test_the_same_seed_makes_the_same_files_and_progress_changes_nothing(corpus, found):
    class Recorder:
        def track(self, items, description, *, total=None):
            shown.append(description)
            return items

        def say(self, line):
            shown.append(line)

    shown: list[str] = []
    again = analyse_tokens(corpus, CorpusOptions(dim=4, seed=SEED), progress=Recorder())
    assert result_files(again, "report") == result_files(found, "report")
    assert "rotated documents" in shown


def test_a_cohort_has_the_same_documents_everywhere(corpus):
    corpus = corpus._replace(mask=corpus.mask & (np.arange(10) > 0))
    found = analyse_tokens(corpus, replace(QUICK, cohort=True))
    whole = (corpus.mask | ~corpus.mask.any(axis=0)).all(axis=1)
    assert found.facts.documents == whole.sum() < len(corpus.ids)
    assert set(found.documents_per_position) == {0, found.facts.documents}
    assert (found.facts.cut, found.facts.uncut, found.where.end) == (None, None, None)


def test_rotated_documents_have_no_position(corpus):
    """Lengths and words of the documents stay: composition is there."""
    groups = dependent_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    rotated = {"exclude": (0,), "groups": groups, "ended": np.ones(len(groups), bool)}
    ids = rotate_within_documents(jax.random.key(7), corpus.ids, corpus.mask, **rotated)
    found = analyse_tokens(corpus._replace(ids=np.asarray(ids)), CorpusOptions(dim=4))
    share = found.intervals["position_share"]
    assert found.position.significant_rank == found.held_out.dim == 0
    assert share.low < 0 < share.high


def test_a_source_its_tokens_and_a_saved_result_say_the_same(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES))
    options = replace(QUICK, source=str(path))
    found = analyse(options)
    files = result_files(found, "report")
    by_tokens = analyse_tokens(load_tokens(path), QUICK)
    assert result_files(by_tokens._replace(options=options), "report") == files
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    saved = load_result(CorpusResult, tmp_path / "report.json")
    assert saved.options == found.options == options
    jax.tree.map(
        np.testing.assert_array_equal,
        *(x._replace(seconds={}, options=None) for x in (saved, found)),
    )


def test_choices_nulls_and_groups_are_in_the_result(tmp_path):
    texts = ["w0 w1 w2 w3", None, *LINES[1:]]
    rows = ({"by": f"author{k // 10}", "body": text} for k, text in enumerate(texts))
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = replace(QUICK, source=str(tmp_path / "x.jsonl"), skip_nulls=True, text_field="body")
    together = analyse(replace(options, group_field="by"))
    chosen = {choice.setting: choice.value for choice in together.choices}
    assert chosen == {"tokenizer": "words", "length": "3", "vocabulary": "7 words"}
    facts = together.facts
    assert (facts.documents, facts.null_texts, facts.cut, facts.groups) == (40, 1, 1, 5)
    assert (facts.group_field, together.neighbours) == ("by", None)


def test_uniform_is_over_the_whole_vocabulary(corpus):
    """A position that holds nothing, and 50 words of which 28 occur."""
    mask = corpus.mask & (np.arange(10) != 9)
    case = analyse_tokens(corpus._replace(mask=mask), replace(QUICK, empty="uniform"))
    counts = jaxpe.geometry.count_tokens(corpus.ids, vocab_size=50, mask=mask, exclude=(0,))
    D = jaxpe.geometry.hellinger_distances(
        jaxpe.geometry.positional_distributions(counts, empty="uniform")
    )
    np.testing.assert_allclose(case.observed.distances, D.values, rtol=1e-5, atol=1e-6)
    assert (case.empty_positions, case.choices) == (1, ())
    with pytest.raises(InputError, match="9"):
        analyse_tokens(corpus._replace(mask=mask), CorpusOptions(empty="error"))


@pytest.mark.parametrize(
    ("origin", "positions"), [(0, [0, 1, 2, 3, 7, 12]), (5, [2, 3, 4, 5, 6, 7, 8, 12])]
)
def test_tokens_are_named_near_the_origin_and_at_wider_steps(origin, positions):
    counts = np.zeros((14, 10), int)
    counts[:13] = np.arange(10)  # position 13 is empty
    counts[7, 2:] = 0  # one word alone
    found = top_tokens(counts, [f"w{k}" for k in range(10)], origin)
    assert [top.position for top in found] == positions
    assert found[0].tokens == [(f"w{k}", k) for k in range(9, 1, -1)]
    assert [top.tokens for top in found if top.position == 7] == [[("w1", 1)]]


def test_further_encodings_are_scored_and_a_models_table_does_not_compete(
    corpus, tmp_path, monkeypatch
):
    module = (
        "import jaxpe\n\n\ndef mine(sizes):\n    return jaxpe.encodings.sinusoidal(dim=sizes.dim)\n"
    )
    (tmp_path / "further_of_mine.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    table = np.asarray(encodings.sinusoidal_vectors(np.arange(10), dim=4))
    options = replace(QUICK, encodings=("further_of_mine:mine",))
    found = analyse_tokens(corpus, options, encodings=(entry_of_table(table, "table"),))
    rows = {score.name: score for score in found.encodings}
    assert list(rows) == ["mds", "sinusoidal", "random", "further_of_mine:mine", "table"]
    for name in ("further_of_mine:mine", "table"):
        assert rows[name].scaled_stress == pytest.approx(rows["sinusoidal"].scaled_stress)
    assert not rows["table"].fixed
    assert "table" not in found.held_out.best

"""The scores of a report, and corpora so small that hardly anything is defined."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import EncodingSizes
from jaxpe._core.results import result_files
from jaxpe.analysis.corpus import CorpusAnalysis, analyse_tokens, scores
from jaxpe.analysis.corpus.vectors import ONE_NUMBER
from jaxpe.data import TokenCorpus
from jaxpe.encodings import catalogue
from jaxpe.report import encoding_table, summary_table
from jaxpe.report.corpus import figures
from jaxpe.report.corpus.text import named_findings
from tests.report import factory

QUICK = {"splits": 2}


def corpus(ids: np.ndarray) -> TokenCorpus:
    ids, words = ids.astype(np.int32), int(ids.max()) + 1
    names = [f"word{k}" for k in range(words)]
    full = np.ones(ids.shape, bool)
    return TokenCorpus("tiny", "ids", ids, full, words, (), names, ids.shape[1])


@pytest.fixture(scope="module")
def drifting() -> CorpusAnalysis:
    """One word gives way to another over 16 positions."""
    rng, n = np.random.default_rng(0), 16
    return analyse_tokens(corpus(rng.random((300, n)) < np.arange(n) / n), dim=8, **QUICK)


def test_the_rows_are_those_of_the_tests(drifting):
    assert {s.name: s.family for s in drifting.encodings} == factory.FAMILIES


def test_rows_say_what_they_are(drifting):
    rows, maps = {s.name: s for s in drifting.encodings}, {e.name: e.vectors for e in catalogue()}
    for name, row in rows.items():
        assert row.note.startswith(maps.get(name, "")), name
        assert row.dim == (1 if name in ONE_NUMBER else 8)
        assert 0 <= row.scaled_stress <= 1
        assert row.distances.shape == (16, 16)
    assert rows["learned"].parameters == 16 * 8
    assert rows["low_rank"].parameters == 8 * (16 + 8)
    assert rows["mds"].parameters == rows["smacof"].parameters == 2 * (16 + 8)  # of rank 2
    assert rows["random"].parameters == rows["fourier"].parameters == rows["rope"].parameters == 0
    drawn = [name for name, row in rows.items() if "8 draws" in row.note]
    assert drawn == ["learned", "random", "fourier", "low_rank"]
    assert [name for name, row in rows.items() if not row.fixed] == [
        *("mds", "smacof", "learned", "low_rank")
    ]


def test_rope_has_the_distances_of_sinusoids_and_learned_starts_like_random(drifting):
    """Like it, but drawn on its own: near in a scaled stress, and not the same."""
    rows = {s.name: s for s in drifting.encodings}
    np.testing.assert_allclose(rows["rope"].distances, rows["sinusoidal"].distances, atol=1e-5)
    ratio = rows["learned"].scaled_stress / rows["random"].scaled_stress
    assert ratio != 1.0
    np.testing.assert_allclose(ratio, 1.0, rtol=0.2)


def test_alibi_stands_at_its_best_standard_slope(drifting):
    alibi = next(s for s in drifting.encodings if s.name == "alibi")
    D = jaxpe.Distances(drifting.plug_in.distances, drifting.plug_in.present)
    lines = [jaxpe.encodings.alibi_line(np.arange(16), slope=m) for m in scores.SLOPES]
    stress = min(float(jaxpe.stress(line, D)) for line in lines)
    assert alibi.stress == pytest.approx(stress, rel=1e-5)
    assert alibi.scaled_stress < alibi.stress


@pytest.mark.parametrize(("documents", "length"), [(1, 1), (60, 3)])
def test_tiny_corpora_are_analysed_drawn_and_put_in_words(documents, length):
    ids = np.random.default_rng(0).integers(0, 3, (documents, length))
    case = analyse_tokens(corpus(ids), dim=2, **QUICK)
    assert [s.name for s in case.encodings] == list(factory.FAMILIES)
    assert named_findings(case)
    assert encoding_table(case).row_count == len(factory.FAMILIES)
    assert summary_table(case).row_count >= 6
    assert json.loads(result_files(case, "report")["report.json"])["length"] == length
    for name, draw, _ in figures.FIGURES:
        if name != "logo" or case.letters:
            draw(case).draw_without_rendering()


@pytest.mark.parametrize(("length", "dim"), [(1, 2), (2, 10), (3, 6)])
def test_every_row_exists_at_every_even_width_and_length(length, dim):
    sizes = EncodingSizes(dim=dim, num_heads=8, head_dim=dim, length=length)
    for entry in scores.scored_entries():
        encoding = entry.make(sizes)
        params = jax.eval_shape(encoding.init, jax.random.key(0))
        shape = jax.eval_shape(encoding.vectors, params, jnp.arange(length)).shape
        assert shape[0] == length, entry.name
        assert entry.name == "alibi" or shape[1] <= dim, entry.name


@pytest.mark.parametrize(("words", "topic"), [(1, {"dependence"}), (9, {"where"})])
def test_of_positions_that_are_all_alike_nothing_is_claimed(words, topic):
    """Each document one word, over and over: all that differs between positions is rounding."""
    ids = np.random.default_rng(0).integers(0, words, (60, 1)).repeat(3, axis=1)
    case = analyse_tokens(corpus(ids), dim=2, **QUICK)
    assert case.plug_in.rank == case.position.significant_rank == 0
    assert case.plug_in.trace == case.position.null_eigenvalue == 0
    assert case.intervals == {}
    assert {s.name: s.stress for s in case.encodings if s.fitted} == {"mds": 0, "smacof": 0}
    assert named_findings(case).keys() == {"dimensions", "doubts"} | topic
    assert "no variance" in named_findings(case)["dimensions"]


def test_where_shuffling_changes_nothing_no_dimension_is_real():
    """Documents of one word each and of many lengths: the null is the corpus, to rounding."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 9, (200, 1)).repeat(3, axis=1)
    ragged = corpus(ids)._replace(mask=np.arange(3)[None, :] < rng.integers(1, 4, (200, 1)))
    case = analyse_tokens(ragged, dim=2, **QUICK)
    assert case.plug_in.rank > 0
    assert case.position.significant_rank == 0

"""Numbers of the jobs, computed by hand: shares, bounds, means, and defaults."""

import contextlib
import math
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

from jaxpe._core.errors import InputError
from jaxpe.analysis import comparison
from jaxpe.analysis.corpus import CorpusOptions
from jaxpe.analysis.corpus.documents import _refuse_single_words
from jaxpe.analysis.corpus.job import top_tokens
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.corpus.sites import letter_information
from jaxpe.analysis.corpus.vectors import columns
from jaxpe.analysis.counts import CountOptions, job
from jaxpe.analysis.inspect import InspectOptions, InspectResult, Means
from jaxpe.analysis.inspect.attention_result import HeadStage
from jaxpe.analysis.inspect.documents import rows_at_once
from jaxpe.analysis.inspect.head_ablation import (
    _document_rows,
    _mean_log_likelihood,
    _padded_length,
)
from jaxpe.analysis.inspect.result import (
    AblationStage,
    NeedleStage,
    PositionMove,
    ProbeStage,
    TextReach,
)
from jaxpe.analysis.inspections import _alike, inspected_models, key_measures
from jaxpe.data import Shard, tokens_from_ids
from tests.analysis.runs import make_run


def filled(kind, **fields):
    """A result without its other fields."""
    return kind(**dict.fromkeys(kind._fields) | fields)


def test_options_have_bounds():
    """The least allowed, and one less."""
    InspectOptions(model="m", length=16, examples=8, longest=64, documents=16).check()
    for name, few in (("length", 15), ("examples", 7), ("longest", 63), ("documents", 15)):
        with pytest.raises(InputError, match=f"`{name}` is {few}; pass at least {few + 1}"):
            InspectOptions(model="m", **{name: few}).check()


def test_single_words_are_refused_where_they_are_most():
    ids = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    corpus = tokens_from_ids(ids)._replace(tokenizer="words")
    for single, refused in ((2, False), (3, True)):
        mask = np.array([[True, k >= single] for k in range(4)])
        if not refused:
            _refuse_single_words(corpus._replace(mask=mask), CorpusOptions())
            continue
        with pytest.raises(InputError, match=f"{single} of 4"):
            _refuse_single_words(corpus._replace(mask=mask), CorpusOptions())


@pytest.mark.parametrize(
    ("origin", "positions"), [(0, [0, 1, 2, 3, 7, 12]), (5, [2, 3, 4, 5, 6, 7, 8, 12])]
)
def test_tokens_are_named_near_the_origin_and_at_wider_steps(origin, positions):
    counts = np.zeros((14, 10), int)
    counts[:13] = np.arange(10)  # position 13 is empty
    counts[7, 2:] = 0  # one word alone
    found = top_tokens(counts, [f"w{k}" for k in range(10)], origin)
    assert [top.position for top in found] == positions
    assert [token.count for token in found[0].tokens] == [9, 8, 7, 6, 5, 4, 3, 2]
    assert found[0].tokens[0].token == "w9"
    assert [top.tokens for top in found if top.position == 7] == [[("w1", 1)]]


def test_two_letters_differ_by_one_degree_of_freedom():
    """G/q of 21 and 4 of two letters is 12.0, between χ² quantiles of one and two degrees."""
    counts = np.concatenate([[[21, 4]], np.full((56, 2), 12)])
    assert stats.chi2.isf(0.05 / 57, 1) < 12.0 < stats.chi2.isf(0.05 / 57, 2)
    assert letter_information(counts, ["a", "b"]).differing.tolist() == [0]


def test_columns_are_cut_or_padded():
    assert columns(np.ones((2, 3)), 2).tolist() == [[1, 1]] * 2
    assert columns(np.ones((2, 3)), 4).tolist() == [[1, 1, 1, 0]] * 2


@pytest.mark.parametrize(
    ("rows", "n", "maps", "size"),
    [(16, 64, 1024, 4), (48, 64, 1024, 4), (20, 64, 1024, 1), (16, 64, 1025, 2), (4, 10**5, 99, 1)],
)
def test_batches_divide_a_quarter_and_fit_in_memory(rows, n, maps, size):
    """2²⁴ numbers are four rows of 1,024 maps of 64² pairs."""
    assert rows_at_once((rows, n), maps=maps) == size


def test_padded_documents_keep_their_masked_tokens():
    assert [_padded_length(n) for n in (1, 8, 9, 16, 17)] == [8, 8, 16, 16, 32]
    documents = {
        "ids": np.arange(12).reshape(2, 6),
        "mask": np.ones((2, 6), bool),
        "places": np.array([[0, 3], [4, 5]]),
        "guessed": np.array([[False, True], [True, True]]),
    }
    chunk = _document_rows(documents, np.array([1, 0]), 4)
    assert chunk["ids"].tolist() == [[6, 7, 8, 9], [0, 1, 2, 3]]
    assert chunk["guessed"].tolist() == [[False, False], [False, True]]
    assert chunk["places"].max() == 3


def test_likelihoods_are_means_of_the_counted_tokens():
    """Of a fair coin log ½, also of one of two tokens; 0 of none."""
    logits = np.zeros((3, 2, 2), np.float32)
    logits[1, 1] = 9, 0
    counted = np.array([[True, True], [True, False], [False, False]])
    found = jax.jit(_mean_log_likelihood)(logits, np.ones((3, 2), np.int32), counted)
    np.testing.assert_allclose(found, [-math.log(2), -math.log(2), 0], rtol=1e-6)


def test_heads_are_certain_at_five_percent():
    drops = filled(HeadStage, p_value=np.array([[0.05, 0.051]]))
    assert drops.certain.tolist() == [[True, False]]
    assert drops.tested
    assert not drops._replace(p_value=np.array([[0.05, np.nan]])).tested


def test_all_documents_drawn_are_all_documents(tmp_path):
    """Ten are held out: drawing ten of them, or more, is evaluating on all."""
    losses = {0: 2.0, 4: 1.0}
    runs = [make_run(tmp_path / str(k), losses, evaluate_rows=k) for k in (10, 11, 9)]
    found = comparison.compare_runs(runs)
    assert [run.drawn for run in found.runs] == [None, None, 9]
    assert [run.evaluated for run in found.runs] == [10, 10, 9]


def test_measures_are_of_the_best_layer_and_the_longest_text():
    ends = [np.array([0.1, 0.9, 0.5]) + x for x in (0.0, -0.05, 0.05)]
    change, value = Interval(1.0, 0.9, 1.1), Interval(0.3, 0.2, 0.4)
    moved = [PositionMove(name, value, change, None) for name in ("own", "shuffled")]
    reach = TextReach("loss", 6, np.array([16]), Means(*np.zeros((3, 1))), 64, 32, 128)
    found = filled(
        InspectResult,
        facts=filled(InspectResult.__annotations__["facts"], model="m"),
        probe=filled(ProbeStage, r2=Means(*ends)),
        needles=filled(NeedleStage, by_length=Means(*ends)),
        ablation=filled(AblationStage, measure="embedding", moved=moved, reach=reach),
    )
    values = key_measures(found).values
    assert values["probe"] == pytest.approx((0.9, 0.85, 0.95))
    assert values["retrieved"] == pytest.approx((0.5, 0.45, 0.55))
    assert (values["reach"], values["output_shuffled"]) == ((64, 32, np.inf), value)
    causal = found._replace(ablation=found.ablation._replace(measure="causal"))
    assert key_measures(causal).values["loss_shuffled"] == change
    assert {"loss_shuffled", "output_shuffled"} & (
        values.keys() ^ key_measures(causal).values.keys()
    )


def test_lengths_within_a_quarter_are_alike():
    one = inspected_models()[0]._replace(positions=100, longest=400)
    for changes, alike in (
        ({"positions": 125}, True), ({"positions": 126}, False), ({"longest": 319}, False),
        ({"longest": 320}, True), ({"source": "other"}, False),
    ):  # fmt: skip
        assert _alike(one, one._replace(**changes)) == _alike(one._replace(**changes), one) == alike


@pytest.mark.parametrize(
    ("size", "workers", "expected"),
    [(2**25, None, [3]), (2**25 - 1, None, []), (2**25, 0, []), (1, 5, [5])],
)
def test_large_corpora_are_counted_by_processes(monkeypatch, size, workers, expected):
    """64 MiB and more, unless a number is passed."""
    started = []

    def pool(processes, *arguments, **options):
        started.append(processes)
        raise ZeroDivisionError

    monkeypatch.setattr(job, "cores", lambda: 3)
    monkeypatch.setattr(job, "ProcessPoolExecutor", pool)
    shard = Shard("a.txt", "a.txt", size)
    work = [job._Work(shard, "", Path("a.npz"))] * 2
    options = CountOptions(sources=(), workers=workers)
    with contextlib.suppress(ZeroDivisionError):
        assert [*job._mapped(lambda each: None, work, options)] == [None] * 2
    assert started == expected

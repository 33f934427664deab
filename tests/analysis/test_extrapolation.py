"""Length extrapolation: equal data and weights, training, ranks and verdicts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from scipy import stats

from jaxpe import training
from jaxpe._core.errors import InputError
from jaxpe.analysis.extrapolation import ExtrapolationOptions, ExtrapolationResult
from jaxpe.analysis.extrapolation.cost import EncodingCost
from jaxpe.analysis.extrapolation.encodings import stretched_encoding, trained_as, trained_encoding
from jaxpe.analysis.extrapolation.job import chance_score, scored_cell, trained_models
from jaxpe.analysis.extrapolation.models import (
    Streams,
    encoding_sizes,
    functional_model,
    loss_function,
    scores,
    streams,
    trainer,
)
from jaxpe.analysis.extrapolation.result import ExtrapolationCell, best_first, reciprocal_ranks
from jaxpe.analysis.intervals import lead_interval, pair_level
from jaxpe.data import sequence_task
from jaxpe.encodings import EncodingSizes
from jaxpe.report.writing import page

OPTIONS = ExtrapolationOptions(
    tasks=("parity",), encodings=("none",), length=3, factors=(1, 2), steps=6, batch=4, tests=8,
    rates=(1e-2, 1e-3), seeds=2, dim=8, layers=1, heads=1, hidden=8,
)  # fmt: skip
SEEDS = np.arange(2)
SIZES = EncodingSizes(8, 2, 4, 6)


@pytest.fixture(scope="module")
def data():
    return streams(OPTIONS, sequence_task("parity"))


def test_a_seed_has_its_own_rows_and_weights_and_always_the_same(data):
    batches, again = (data.training(SEEDS, np.arange(k, k + 3)) for k in (2, 0))
    assert batches["ids"].shape == (3, 2, 4, 7)
    np.testing.assert_array_equal(batches["ids"][0], again["ids"][2])
    assert (batches["ids"][:, 0] != batches["ids"][:, 1]).any()
    tests = data.tests(SEEDS, 6)
    assert tests["ids"].shape == (1, 2, 8, 10)
    assert (tests["ids"][..., :4] != data.tests(SEEDS, 3)["ids"][..., :4]).any()
    embeddings = data.weights(SEEDS)[1]["decoder"]["tokens"]["embedding"].get_value()
    assert (embeddings[0] != embeddings[1]).any()


def test_encodings_start_from_the_same_weights_where_shapes_allow(data):
    keys, plain = data.weights(SEEDS)
    shared = dict(jax.tree_util.tree_leaves_with_path(plain))
    for name, own in (("t5", 1), ("none", 0)):
        encoding = trained_encoding(name, encoding_sizes(OPTIONS, data.task))
        start = jax.jit(jax.vmap(functional_model(OPTIONS, data.task, encoding)[1]))(keys, plain)
        params = dict(jax.tree_util.tree_leaves_with_path(start))
        assert len(params) == len(shared) + own
        for path, leaf in shared.items():
            np.testing.assert_array_equal(params[path], leaf)


def test_models_of_a_program_train_as_single_ones_do(data):
    """All seeds in one program against one seed after another, step by step."""
    encoding = trained_encoding("sinusoidal", encoding_sizes(OPTIONS, data.task))
    models = trainer(OPTIONS, data, encoding)(seeds=SEEDS, rates=np.array([1e-2, 3e-3]), steps=6)
    apply, _ = functional_model(OPTIONS, data.task, encoding)
    batches = data.training(SEEDS, np.arange(6))
    shape = training.learning_rate_schedule(peak=1.0, steps=100, warmup=5, decay="cosine")
    assert models.losses.shape == (6, 2)
    for lane, rate in enumerate((1e-2, 3e-3)):
        optimizer = training.adamw(lambda count, rate=rate: rate * shape(100 * count / 6.0))
        params = jax.tree.map(lambda x, lane=lane: x[lane], data.weights(SEEDS)[1])
        state = training.init_state(params, optimizer, key=jax.random.key(0))
        step = training.train_step(loss_function(data.task, apply), optimizer)
        for i in range(6):
            state, metrics = step(state, jax.tree.map(lambda x, at=(i, lane): x[at], batches))
            np.testing.assert_allclose(models.losses[i, lane], metrics["loss"], rtol=1e-4)
        own = jax.tree.map(lambda x, lane=lane: x[lane], models.params)
        gap = optax.tree.norm(jax.tree.map(jnp.subtract, own, state.params))
        assert float(gap) < 1e-3 * float(optax.tree.norm(state.params))


def test_scores_of_tokens_and_numbers():
    batch = {
        "labels": jnp.array([[5, 6, 3], [5, 7, 3]], jnp.int32),
        "scored": jnp.array([[False, True, True], [False, True, True]]),
    }
    said = jax.nn.one_hot(np.array([[4, 6, 3], [5, 7, 8]]), 9, dtype=jnp.float32)
    found = scores(sequence_task("copy"), said, batch)
    assert (float(found["accuracy"].mean), float(found["exact"].mean)) == (0.75, 0.5)
    lost = scores(sequence_task("copy"), said.at[1, 2].set(jnp.nan), batch)
    assert np.isnan(lost["accuracy"].mean)
    beside = scores(sequence_task("copy"), said.at[1, 0].set(jnp.nan), batch)  # is not scored
    assert float(beside["exact"].mean) == 0.5
    batch = {"labels": jnp.array([[[2.0], [4.0]]]), "scored": jnp.array([[True, False]])}
    found = scores(sequence_task("running_sum"), jnp.array([[[3.0], [9.0]]]), batch)
    assert (float(found["mse"].mean), float(found["relative_mse"].mean)) == (1.0, 0.25)


def test_an_answer_that_ignores_the_input_says_the_most_frequent_token_of_each_place():
    labels = np.array([[0, 4, 3], [0, 4, 3], [0, 5, 3], [7, 4, 3]])  # the answer begins at place 1
    rows = {"labels": labels, "scored": np.arange(3) * np.ones((4, 1), int) > 0}
    made_up = Streams(sequence_task("parity"), None, lambda *_: rows, None)  # pyrefly: ignore
    assert chance_score(OPTIONS, made_up) == (3 + 4) / 8


# Results made by hand.


def cell(encoding, accuracies, *, task="copy", chance=0.1):
    """A cell of accuracies `[seeds, lengths]`, of 100 test rows at each length."""
    found = {"accuracy": np.asarray(accuracies, float)}
    loss = np.ones(len(accuracies))
    return ExtrapolationCell(task, encoding, found, 1e-2, np.ones(1), loss, 100, chance)


def errors(encoding, values):
    """A cell of relative squared errors."""
    made = cell(encoding, values, task="running_sum", chance=1.0)
    return made._replace(scores={"relative_mse": np.asarray(values, float)})


def result(cells):
    tasks, names = (
        tuple(dict.fromkeys(x)) for x in zip(*((c.task, c.encoding) for c in cells), strict=True)
    )
    factors = tuple(range(1, 1 + next(iter(cells[0].scores.values())).shape[1]))
    options = object.__new__(ExtrapolationOptions)  # names need not be of encodings
    fields = {"tasks": tasks, "encodings": names, "factors": factors, "seeds": 2, "seed": 0}
    for field in dataclasses.fields(ExtrapolationOptions):
        object.__setattr__(options, field.name, fields.get(field.name, field.default))
    return ExtrapolationResult(options, tuple(cells), ())


def test_scores_beyond_the_length_are_arithmetic_or_geometric_means():
    """Of 1 and 4 it is 2, of 2 and 8 it is 4; scores at T do not count."""
    numbers = errors("a", [[9.0, 1, 4], [9, 2, 8]])
    np.testing.assert_allclose(numbers.beyond, [2, 4])
    np.testing.assert_allclose(numbers.worth, -np.log([2, 4]))
    half = stats.t.ppf(0.975, 1)
    np.testing.assert_allclose(numbers.beyond_interval, [3, 3 - half, 3 + half])
    shares = cell("a", [[0.1, 0.8, 1.0]] * 2)  # 200 rows of each of two seeds
    wilson = stats.binomtest(360, 400).proportion_ci(method="wilson")
    np.testing.assert_allclose(shares.beyond_interval, [0.9, *wilson])


@pytest.mark.parametrize(("scores", "learned"), [((0.28, 0.3), True), ((0.1, 0.12), False)])
def test_a_task_is_learned_where_the_interval_at_the_length_is_above_chance(scores, learned):
    made = cell("a", [[score, 0.9] for score in scores])
    assert made.learned == learned == bool(made.interval.low[0] > 0.1)
    assert errors("a", [[0.2, 3.0], [0.21, 3]]).learned
    assert not errors("a", [[0.9, 0.1], [1.2, 0.1]]).learned
    assert cell("a", [[0.11, 0.9]]).learned  # one seed has no interval: by its mean


def test_ranks_share_ties_and_put_what_is_undefined_last():
    nan = np.nan
    cells = [
        cell("a", [[0.9, 0.5, 0.9], [0.9, 0.2, 0.2]]),
        cell("b", [[0.9, 0.5, 0.1], [0.9, 0.2, 0.3]]),
        cell("c", [[0.9, 0.1, nan], [0.9, 0.2, nan]]),
    ]
    shares = reciprocal_ranks(cells)
    third = (1 + 1 / 2 + 1 / 3) / 3
    np.testing.assert_allclose(shares["a"][0], [[3 / 4, 1], [third, 1 / 2]])
    np.testing.assert_allclose(shares["b"][0], [[3 / 4, 1 / 2], [third, 1]])
    np.testing.assert_allclose(shares["c"][0], [[1 / 3, 1 / 3], [third, 1 / 3]])
    ranks = result(cells).ranks()
    assert list(ranks) == ["a", "b", "c"]
    assert float(ranks["a"].mean) == pytest.approx(shares["a"].mean())
    smaller = reciprocal_ranks([errors("a", [[1, 2.0]]), errors("b", [[1, 1.0]])])
    assert [float(x.mean()) for x in smaller.values()] == [0.5, 1.0]


def drawn(rng, means, seeds=4):
    """Cells of three tasks, of encodings whose seeds scatter around known means beyond T."""
    return [
        cell(name, rng.binomial(100, np.clip(rng.normal([0.9, mean, mean], 0.05, (seeds, 3)), 0, 1))
             / 100, task=task)
        for task in ("copy", "reverse", "sort") for name, mean in means.items()
    ]  # fmt: skip


def test_verdicts_on_equal_encodings_hold_jointly_and_find_what_differs():
    rng, equal = np.random.default_rng(0), dict.fromkeys(("my:own", "a", "b", "c"), 0.6)
    families = [result(drawn(rng, equal)).comparisons() for _ in range(40)]
    wrong = sum(any(x.verdict in ("better", "worse") for x in found) for found in families)
    assert wrong <= 5  # 5 % of 40 are 2; 5 and fewer have a probability of 98 %
    assert {len(found) for found in families} == {9}
    apart = result(drawn(rng, equal | {"a": 0.1, "b": 0.95})).comparisons()
    assert {x.first for x in apart} == {"my:own"}
    assert {("a", "better"), ("b", "worse")} <= {(x.other, x.verdict) for x in apart}
    assert all(x.lead.low < x.lead.mean < x.lead.high for x in apart)


def test_without_an_own_encoding_the_best_of_each_task_leads_at_the_level_of_all_pairs():
    cells = drawn(np.random.default_rng(1), {"a": 0.9, "b": 0.88, "c": 0.2})
    found = result(cells).comparisons()
    level = pair_level([3, 3, 3])
    for one in found:
        pair = [x for x in cells if x.task == one.task and x.encoding in (one.first, one.other)]
        first, other = sorted(pair, key=lambda x: x.encoding != one.first)
        expected = lead_interval(first.beyond, other.beyond, trials=200, level=level)
        np.testing.assert_allclose(one.lead, expected)
        assert first.beyond.mean() >= other.beyond.mean()
    assert {x.verdict for x in found if x.other == "c"} == {"better"}


def test_what_is_not_learned_or_not_defined_gets_no_verdict():
    high, low = np.full((3, 3), 0.9), np.full((3, 3), 0.05)
    ends = np.array([[0.9, np.nan, np.nan]] * 3)
    for values, verdict in ((low, "not learned"), (ends, "undefined"), (high, "not decided")):
        (found,) = result([cell("my:own", high), cell("a", values)]).comparisons()
        assert (found.verdict, np.isnan(found.lead.mean)) == (verdict, verdict != "not decided")
    assert [x.encoding for x in best_first([cell("a", low), cell("b", high)])] == ["b", "a"]
    near = high - np.array([[0.1], [0.0], [0.05]])  # more seeds would decide, whoever is judged
    pairs = [("my:own", "a"), ("a", "my:own")]
    one, other = (result([cell(x, high), cell(y, near)]).comparisons()[0] for x, y in pairs)
    assert (one.verdict, float(one.lead.mean)) == ("not decided", -float(other.lead.mean))
    assert one.seeds == other.seeds > 3
    (single,) = result([cell("my:own", high[:1]), cell("a", low[:1] + 0.1)]).comparisons()
    assert (single.verdict, single.seeds) == ("not decided", 0)


def test_a_page_has_the_verdicts_the_scores_and_the_cost():
    high, low = np.full((2, 3), 0.9), np.full((2, 3), 0.3)
    found = result([cell("my:own", high), cell("a", low)])
    costs = tuple(EncodingCost(name, 7, 2.0**20, 1.5) for name in found.options.encodings)
    shown = page(found._replace(costs=costs))
    (one,) = found.comparisons()
    (row,) = shown.sections[2].findings
    assert (row.verdict, row.value) == (one.verdict, pytest.approx(60)) == ("better", row.value)
    assert (row.low, row.high) == pytest.approx((100 * one.lead.low, 100 * one.lead.high))
    assert (shown.lead[0].value, shown.lead[0].reference) == (0.9, 0.1)
    cost, scores = shown.tables
    assert [cells[0] for cells in cost.rows] == ["own", "a"]
    assert cost.rows[1][1].startswith("30.0")
    assert cost.rows[1][-3:] == ("1.50×", "1.0", "7")
    assert [x.split(" ")[0] for x in scores.rows[0]] == ["own", "90.0", "90.0", "90.0", "0.01"]


# Encodings that change for tests.


@pytest.mark.parametrize("name", ["rope_linear", "rope_yarn"])
def test_scaled_rope_is_rope_until_it_is_stretched(name):
    assert trained_as(name) == "rope"
    q = jax.random.normal(jax.random.key(0), (3, 2, 4))
    place = np.array([1, 5, 11], np.int32)
    plain = stretched_encoding("rope", SIZES, 12).query((), q, place)
    inside, beyond = (stretched_encoding(name, SIZES, n).query((), q, place) for n in (6, 12))
    np.testing.assert_array_equal(inside, plain)
    assert np.abs(np.asarray(beyond - plain)).max() > 0.01
    longer = stretched_encoding(name, SIZES, 12)
    np.testing.assert_array_equal(longer.query((), q[:2], place[:2]), beyond[:2])  # of a prefix


# The job.


class Tiny(nnx.Module):
    """A model without layers: logits from the embedding of a token and of an encoded position."""

    def __init__(self, options, task, encoding, key):
        rngs = nnx.Rngs(key)
        self.embedding = nnx.Embed(task.vocab_size, options.dim, rngs=rngs)
        self.out = nnx.Linear(options.dim, task.vocab_size + options.layers - 1, rngs=rngs)
        self.encoding = nnx.static(encoding)
        self.table = nnx.Param(encoding.init(key)) if encoding.defines("embed") else None

    def __call__(self, ids, *, mask):
        x, at = self.embedding(ids), jnp.arange(ids.shape[1], dtype=jnp.int32)
        x = x if self.table is None else self.encoding.embed(self.table.get_value(), x, at)
        return self.out(x)


def test_a_model_of_ones_own_is_trained_and_tested():
    data = streams(OPTIONS, sequence_task("parity"), model=Tiny)
    trained = trained_models(OPTIONS, data, "learned", model=Tiny)
    assert (trained.rate in OPTIONS.rates, trained.losses.shape) == (True, (6, 2))
    scored = scored_cell(OPTIONS, data, "learned", trained, 0.5, model=Tiny).scores["accuracy"]
    assert np.isfinite(scored).all(axis=0).tolist() == [True, False]  # the table ends at T
    wrong = dataclasses.replace(OPTIONS, layers=2)
    encoding = trained_encoding("none", encoding_sizes(wrong, data.task))
    apply, start = functional_model(wrong, data.task, encoding, Tiny)
    batch = jax.tree.map(lambda x: x[0, 0], data.training(SEEDS, np.arange(1)))
    with pytest.raises(InputError, match="logits"):
        apply(start(jax.random.key(0), {}), batch)

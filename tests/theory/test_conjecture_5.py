"""Monotone corpora, monotone positions, and which violations are more than noise."""

import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from jaxpe import (
    Distances,
    PositionCounts,
    count_tokens,
    euclidean_distances,
    hellinger_distances,
    monotonicity_violation_rate,
)
from jaxpe.data import zipf_drift, zipf_stationary
from jaxpe.geometry import is_monotone, rotate_within_documents
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    conjecture_5,
    monotonicity_test,
    outer_words_loss,
)

module = importlib.import_module(
    "jaxpe.theory.cirrincione2026.conjecture_5_monotonicity"
)  # its function has its name

RNG = np.random.default_rng(0)
audit_of = jax.jit(conjecture_5)
N, VOCAB, FOLDS, DOCUMENTS = 12, 300, 16, 4000


def triples(delta, form):
    """(δ_ij, δ_ik) of all triples, by the definition."""
    n = len(delta)
    i, j, k = (x.ravel() for x in np.indices((n, n, n)))
    near, far = abs(i - j), abs(i - k)
    asked = near < far if form == "strict" else (near == far) & (delta[i, j] >= delta[i, k])
    asked &= (i != j) & (j != k) & (i != k)
    return delta[i, j][asked], delta[i, k][asked]


@pytest.mark.parametrize("form", ["strict", "ties"])
def test_the_worst_is_that_of_all_triples(form):
    for seed in range(5):
        P = np.random.default_rng(seed).standard_normal((7, 2))
        delta = np.asarray(euclidean_distances(P).values)
        audit = audit_of(delta, P)
        nearer, farther = triples(delta, form)
        worst = np.argmin(farther - nearer)
        for part in (audit.hypotheses[form], audit.conclusions[form]):
            np.testing.assert_allclose([part.lhs, part.rhs], [nearer[worst], farther[worst]])
            assert not part.holds
        np.testing.assert_allclose(
            audit.measured["violation_rate_P"], monotonicity_violation_rate(P)
        )


def test_both_forms_together_are_definition_9():
    line = np.arange(7.0)[:, None]
    for P in (line, line**2, np.ones((7, 1)), RNG.standard_normal((7, 2)), np.sin(line)):
        conclusions = audit_of(np.zeros((7, 7)), P).conclusions
        assert bool(is_monotone(P)) == all(bool(c.holds) for c in conclusions.values())
    quadratic = audit_of(np.zeros((7, 7)), line**2)
    assert not quadratic.conclusions["ties"].holds
    np.testing.assert_allclose(quadratic.measured["asymmetry_P"], 2 * 9 / 36)


def test_equal_offsets_do_not_force_a_function_of_the_offset():
    """The literal hypothesis holds, and yet d(0, 2) ≠ d(1, 3)."""
    i, j = np.indices((7, 7))
    first, offset = np.minimum(i, j), abs(i - j)
    D = np.where(offset, 1 + 0.1 * offset + 0.02 * (first % np.maximum(offset, 1)), 0)
    assert D[1, 3] > D[0, 2] + 0.01
    line = np.arange(7.0)[:, None]
    assert all(h.holds for h in audit_of(D, line).hypotheses.values())
    D[2, 4] = D[4, 2] = 1.25  # the tie around 2 asks for d(0, 2) = d(2, 4)
    ties = audit_of(D, line).hypotheses["ties"]
    assert not ties.holds
    np.testing.assert_allclose([ties.lhs, ties.rhs], [1.25, 1.2])


def test_absent_positions_take_no_part():
    present = np.array([True, True, False, True, True, True, False])
    P = RNG.standard_normal((7, 2))
    D = Distances(euclidean_distances(P).values, jnp.asarray(present))
    holed = np.where(present[:, None], P, np.nan)
    audit = audit_of(D, holed)
    for one, other in zip(audit.hypotheses.values(), audit.conclusions.values(), strict=True):
        np.testing.assert_allclose(one.lhs, other.lhs)
    np.testing.assert_allclose(
        audit.measured["violation_rate_P"], monotonicity_violation_rate(P, present=present)
    )


def test_vmap_and_float32():
    points, zeros = RNG.standard_normal((2, 7, 2)), np.zeros((7, 7))
    many = jax.jit(jax.vmap(conjecture_5, in_axes=(None, 0)))(
        zeros.astype(np.float32), points.astype(np.float32)
    )
    one = audit_of(zeros, points[1])
    for single, double in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(single[1], double, rtol=1e-5, atol=1e-6)


def attention_loss(P, rows, labels, probability, ridge=1e-3):
    """Eq. (1) with E(±1) = (±1, 0), M = 1 and one query (0, √2), over all rows of words."""
    x = np.stack([rows, np.zeros_like(rows)], axis=-1) + P
    logits = x @ np.eye(2) @ [0, 2**0.5] / 2**0.5
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probability @ ((weights * x[..., 0]).sum(axis=1) - labels) ** 2 + ridge * (P**2).sum()


def test_a_task_that_reads_the_outer_words_refutes_it():
    """(H1) to (H3) and the hypothesis hold; every minimiser found has p_1 far from p_0 and p_2."""
    loss = jax.jit(outer_words_loss)

    @jax.jit
    @jax.vmap
    def minimised(z):
        flat = lambda z: loss(z.reshape(3, 2))  # noqa: E731
        z = jax.lax.fori_loop(0, 2000, lambda _, z: z - 0.2 * jax.grad(flat)(z), z)
        newton = lambda _, z: z - jnp.linalg.solve(jax.hessian(flat)(z), jax.grad(flat)(z))  # noqa: E731
        return jax.lax.fori_loop(0, 4, newton, z)

    found = np.asarray(minimised(2 * RNG.standard_normal((20, 6)))).reshape(20, 3, 2)
    P = found[0]
    np.testing.assert_allclose(found, np.tile(P, (20, 1, 1)), atol=1e-6)
    np.testing.assert_allclose(P, [[0, 0.5872], [0, -0.9504], [0, 0.3632]], atol=1e-4)

    angles = np.array([0.70, 0.75, 0.80])
    rows = 1.0 - 2.0 * np.indices((2, 2, 2)).reshape(3, 8).T
    own = np.where(rows > 0, np.cos(angles) ** 2, np.sin(angles) ** 2)
    task = (rows, rows @ [0.5, 0.1, 0.4], own.prod(axis=1))
    np.testing.assert_allclose(loss(P), attention_loss(P, *task), rtol=1e-12)
    other = RNG.standard_normal((3, 2))
    np.testing.assert_allclose(loss(other), attention_loss(other, *task), rtol=1e-12)

    mu = np.stack([np.cos(angles) ** 2, np.sin(angles) ** 2], axis=1)
    means = mu @ [[1, 0], [-1, 0]]
    np.testing.assert_allclose(means[:, 0], [0.170, 0.071, -0.029], atol=5e-4)  # H1, and H3: M = 1
    rises = [attention_loss(P, rows[:, order], *task[1:]) - loss(P)
             for order in ([1, 0, 2], [2, 1, 0], [0, 2, 1])]  # fmt: skip
    np.testing.assert_allclose(rises, [0.308, 0.020, 0.174], atol=5e-4)  # H2

    audit = audit_of(hellinger_distances(mu), P)
    assert all(h.holds for h in audit.hypotheses.values())
    strict = audit.conclusions["strict"]
    assert not strict.holds
    np.testing.assert_allclose([strict.lhs, strict.rhs], [1.538, 0.224], atol=5e-4)


def test_rows_that_ask_for_themselves_refute_it_too():
    """Queries of Eq. (1): E(±1) = (±1, 0, √2), rows are averaged, and M reads words by 0.05."""
    angles = np.array([0.70, 0.75, 0.80])
    words = 1.0 - 2.0 * np.indices((2, 2, 2)).reshape(3, 8).T
    probability = np.where(words > 0, np.cos(angles) ** 2, np.sin(angles) ** 2).prod(axis=1)
    labels = words @ [0.5, 0.1, 0.4]
    M = np.array([[0.05, 0, 0], [0, 0, 0], [0, 1, 0]])

    @jax.jit
    def loss(z, words):
        x = jnp.stack([words, 0 * words, 2**0.5 + 0 * words], axis=-1) + z.reshape(1, 3, 3)
        weights = jax.nn.softmax(x @ M @ x.swapaxes(1, 2) / 2**0.5)
        errors = jnp.mean(weights @ x, axis=1)[:, 0] - labels
        return probability @ errors**2 + 1e-3 * jnp.sum(z**2)

    slope = jax.jit(jax.grad(loss))
    starts = 1.5 * np.random.default_rng(0).standard_normal((5, 9))
    found = [
        scipy.optimize.minimize(loss, z, words, jac=slope, options={"gtol": 1e-8}).x for z in starts
    ]
    P = found[0].reshape(3, 3)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-3)
    for order in ([1, 0, 2], [2, 1, 0], [0, 2, 1]):  # H2
        assert loss(found[0], words[:, order]) > loss(found[0], words) + 0.01
    mu = np.stack([np.cos(angles) ** 2, np.sin(angles) ** 2], axis=1)
    audit = audit_of(hellinger_distances(mu), P)
    assert all(h.holds for h in audit.hypotheses.values())
    strict = audit.conclusions["strict"]
    assert not strict.holds
    np.testing.assert_allclose([strict.lhs, strict.rhs], [1.365, 0.195], atol=2e-3)


def test_no_monotone_positions_come_near_that_loss():
    """A bound for positions with |p_0 − p_1|, |p_1 − p_2| ≤ |p_0 − p_2|, over a grid of p_j2.

    First coordinates a_j that make up for what second ones violate cost ridge · |a|², at least
    ridge · (a_0 − a_2)²/2. The squared bias is left out.
    """
    z = np.stack(np.meshgrid(*[np.linspace(-3, 3, 121)] * 2, indexing="ij"), -1).reshape(-1, 2)
    z = np.insert(z, 1, -z.sum(axis=1), axis=1)  # softmax ignores the mean, the ridge does not
    weights = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    variance = np.sin(2 * np.array([0.70, 0.75, 0.80])) ** 2
    error = (variance * (weights - [0.5, 0.1, 0.4]) ** 2).sum(axis=1)
    steps = np.abs(np.stack([z[:, 0] - z[:, 1], z[:, 1] - z[:, 2]])).max(axis=0)
    missing = np.maximum(steps**2 - (z[:, 0] - z[:, 2]) ** 2, 0)
    bound = error + 1e-3 * ((z**2).sum(axis=1) + missing / 2)
    assert bound.min() > 0.0025 > 1.7 * 0.00145


def arc(n, vocab):
    """√μ_i at equal angles on an arc between two disjoint distributions: strictly monotone."""
    base = 1 / np.arange(1, vocab + 1)
    ends = np.sqrt([base * (np.arange(vocab) % 2 == k) for k in (0, 1)])
    ends /= np.linalg.norm(ends, axis=1, keepdims=True)
    angle = np.pi / 4 + 0.02 * np.arange(n)[:, None]
    return (np.cos(angle) * ends[0] + np.sin(angle) * ends[1]) ** 2


def drawn(mu, seed, sizes):
    """Counts in folds, without the documents."""
    rng = np.random.default_rng(seed)
    cells = [[rng.multinomial(size // FOLDS, p) for p, size in zip(mu, sizes, strict=True)]
             for _ in range(FOLDS)]  # fmt: skip
    return PositionCounts(jnp.asarray(cells, jnp.int32), jnp.int32(max(sizes)), jnp.int32(0))


shares_of = jax.jit(monotonicity_test, static_argnames=("level", "least"))


def mean_of(many):
    return [np.mean([getattr(test, field) for test in many]) for field in many[0]._fields[:3]]


def test_the_fullest_positions_take_part_at_any_least_share():
    mu = zipf_stationary(documents=1, length=N, vocab_size=VOCAB).distributions
    counts = drawn(mu, 0, [DOCUMENTS] * N)
    for all_full, any_full in zip(shares_of(counts, least=1.0), shares_of(counts), strict=True):
        np.testing.assert_array_equal(all_full, any_full)


def test_without_signal_the_false_positives_are_near_the_level():
    mu = zipf_stationary(documents=1, length=N, vocab_size=VOCAB).distributions
    equal = [shares_of(drawn(mu, seed, [DOCUMENTS] * N)) for seed in range(16)]
    violated, significant, upheld = mean_of(equal)
    assert 0.4 < violated < 0.6
    assert 0.02 < significant < 0.06
    assert 0.02 < upheld < 0.06


def test_thin_positions_are_not_taken_for_distant_ones():
    mu = zipf_stationary(documents=1, length=N, vocab_size=VOCAB).distributions
    sizes = np.linspace(DOCUMENTS, 0.3 * DOCUMENTS, N).astype(int)
    violated, significant, upheld = mean_of([shares_of(drawn(mu, s, sizes)) for s in range(16)])
    assert 0.4 < violated < 0.6
    assert 0.02 < significant < 0.06
    assert 0.02 < upheld < 0.06


def test_words_of_long_documents_are_no_violation():
    """Short and long documents with words of their own: no order within any, all composition."""
    rng, documents = np.random.default_rng(0), 4000
    lengths = np.where(np.arange(documents) % 3 == 0, N, N // 2)
    mask = np.arange(N) < lengths[:, None]
    ids = rng.integers(0, 20, (documents, N)) + 20 * (lengths == N)[:, None]
    own = {"vocab_size": 40, "folds": FOLDS, "mask": mask, "groups": np.arange(documents)}
    counts = count_tokens(ids, **own)
    keys = jax.random.split(jax.random.key(0), 4)
    nulls = [count_tokens(rotate_within_documents(k, ids, mask), **own) for k in keys]
    assert shares_of(counts).significant + shares_of(counts).upheld > 0.3
    corrected = shares_of(counts, nulls)
    assert corrected.significant < 0.1
    assert corrected.upheld < 0.1


def test_a_monotone_corpus_is_upheld():
    mu = arc(N, VOCAB)
    assert monotonicity_violation_rate(hellinger_distances(mu)) == 0
    violated, significant, upheld = mean_of(
        [shares_of(drawn(mu, seed, [DOCUMENTS] * N)) for seed in range(8)]
    )
    assert violated > 0.01  # noise alone
    assert significant < 0.02
    assert upheld > 0.5


def test_true_violations_are_found():
    mu = zipf_drift(documents=1, length=N, vocab_size=VOCAB, strength=0.15).distributions
    true = monotonicity_violation_rate(hellinger_distances(mu))
    assert true > 0.1
    violated, significant, _ = mean_of([shares_of(drawn(mu, s, [40_000] * N)) for s in range(4)])
    np.testing.assert_allclose(violated, true, atol=0.03)
    assert significant > 0.5 * true


def test_its_sums_are_those_of_the_definition():
    K = RNG.standard_normal((15, 5))  # 6 folds
    U, error = map(np.asarray, jax.jit(module._row_triples, static_argnums=1)(K, 6))
    h = np.zeros((6, 6))
    h[np.triu_indices(6, 1)] = K[:, 1] - K[:, 3]
    h = h + h.T
    a, b, c, d = np.indices((6,) * 4).reshape(4, -1)
    distinct = np.array([len(set(row)) == 4 for row in zip(a, b, c, d, strict=True)])
    four = (h[a, b] * h[c, d])[distinct].mean()
    mean, square = h.sum() / 30, (h**2).sum() / 30
    np.testing.assert_allclose(U[1, 3], mean)
    np.testing.assert_allclose(error[1, 3] ** 2, max(mean**2 - four, 2 * square / 30))
    assert error[2, 2] == 0


def test_expected_roots_are_those_of_thinning():
    cells = np.array([[0, 1, 5, 63, 64, 700]] * 3, np.int32)
    kept = np.array([1.0, 0.8, 0.5])
    expected = jax.jit(lambda c, q: module._expected_roots(c, q, module._root_table(q)))
    roots = np.asarray(expected(cells, kept))
    np.testing.assert_allclose(roots[0], np.sqrt(cells[0]))
    for q, row in zip(kept, roots, strict=True):
        x = np.arange(701)
        exact = [np.sum(np.sqrt(x) * scipy.stats.binom.pmf(x, c, float(q))) for c in cells[0]]
        np.testing.assert_allclose(row, exact, rtol=1e-5)


def test_counts_of_documents_and_float32():
    corpus = zipf_stationary(documents=2000, length=N, vocab_size=VOCAB)
    counts = count_tokens(corpus.ids, vocab_size=VOCAB, folds=FOLDS)
    with jax.enable_x64(False):
        single = shares_of(counts)
    double = shares_of(counts)
    assert single.violated.dtype == jnp.float32
    np.testing.assert_allclose(single.significant, double.significant, atol=0.005)
    assert double.present.all()
    thin = counts.tokens.at[:, 3].set(counts.tokens[:, 3] // 8).at[0, 5].set(0)  # 5: in one fold
    few = shares_of(counts._replace(tokens=thin))
    assert few.present.tolist() == [i not in (3, 5) for i in range(N)]


def test_bad_input_is_refused():
    counts = PositionCounts(jnp.zeros((3, 4, 5), jnp.int32), jnp.int32(0), jnp.int32(0))
    with pytest.raises(ValueError, match=r"shape \(3, 4, 5\): the test needs at least four folds"):
        inspect.unwrap(monotonicity_test)(counts)
    counts = counts._replace(tokens=jnp.zeros((4, 4, 5), jnp.int32))
    with pytest.raises(ValueError, match=r"level is 0.7 and least 0.25: pass values in"):
        inspect.unwrap(monotonicity_test)(counts, level=0.7)
    nothing = shares_of(counts)
    assert (nothing.violated, nothing.significant, nothing.upheld) == (0, 0, 0)
    assert not nothing.present.any()

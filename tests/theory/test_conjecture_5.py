"""Monotone corpora, monotone positions, and which violations are more than noise."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from jaxpe.data import zipf_drift, zipf_stationary
from jaxpe.geometry import (
    Distances,
    PositionCounts,
    count_tokens,
    euclidean_distances,
    hellinger_distances,
    monotonicity_violation_rate,
    rotate_within_documents,
)
from jaxpe.geometry.distances.monotonicity import is_monotone
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    conjecture_5,
    monotonicity_test,
    outer_words_loss,
)

module = importlib.import_module(
    "jaxpe.theory.cirrincione2026.conjecture_5_monotonicity"
)  # its function has its name

RNG = np.random.default_rng(0)
N, VOCAB, FOLDS, DOCUMENTS = 12, 300, 16, 4000
LINE = np.arange(7.0)[:, None]


def triples(delta, form):
    """(δ_ij, δ_ik) of all triples, by the definition."""
    n = len(delta)
    i, j, k = (x.ravel() for x in np.indices((n, n, n)))
    near, far = abs(i - j), abs(i - k)
    asked = near < far if form == "strict" else (near == far) & (delta[i, j] >= delta[i, k])
    asked &= (i != j) & (j != k) & (i != k)
    return delta[i, j][asked], delta[i, k][asked]


def test_the_worst_is_that_of_all_triples():
    """Of the positions present."""
    present = np.array([True, True, True, False, True, True, True, True, False])
    for seed in range(5):
        P = np.random.default_rng(seed).standard_normal((9, 2))
        holed = np.where(present[:, None], P, np.nan)
        kept = np.flatnonzero(present)
        delta = np.asarray(euclidean_distances(P).values)
        audit = conjecture_5(Distances(jnp.asarray(delta), jnp.asarray(present)), holed)
        n = len(delta)
        gone = np.isin(np.arange(n), kept, invert=True)
        for form in ("strict", "ties"):
            seen = delta.copy()
            seen[gone] = seen[:, gone] = np.nan
            nearer, farther = triples(seen, form)
            worst = np.nanargmin(farther - nearer)
            for part in (audit.hypotheses[form], audit.conclusions[form]):
                np.testing.assert_allclose([part.lhs, part.rhs], [nearer[worst], farther[worst]])
                assert not part.holds
        rate = monotonicity_violation_rate(P, present=present)
        np.testing.assert_allclose(audit.measured["violation_rate_P"], rate)


def test_both_forms_together_are_definition_9():
    for P in (LINE, LINE**2, np.ones((7, 1)), RNG.standard_normal((7, 1)), np.sin(LINE)):
        conclusions = conjecture_5(np.zeros((7, 7)), P).conclusions
        assert bool(is_monotone(P)) == all(bool(c.holds) for c in conclusions.values())
    quadratic = conjecture_5(np.zeros((7, 7)), LINE**2)
    np.testing.assert_allclose(quadratic.measured["asymmetry_P"], 2 * 9 / 36)


def test_equal_offsets_do_not_force_a_function_of_the_offset():
    """The literal hypothesis holds, and yet d(0, 2) ≠ d(1, 3)."""
    i, j = np.indices((7, 7))
    first, offset = np.minimum(i, j), abs(i - j)
    D = np.where(offset, 1 + 0.1 * offset + 0.02 * (first % np.maximum(offset, 1)), 0)
    assert D[1, 3] > D[0, 2] + 0.01
    assert all(h.holds for h in conjecture_5(D, LINE).hypotheses.values())
    D[2, 4] = D[4, 2] = 1.25  # the tie around 2 asks for d(0, 2) = d(2, 4)
    ties = conjecture_5(D, LINE).hypotheses["ties"]
    assert not ties.holds
    np.testing.assert_allclose([ties.lhs, ties.rhs], [1.25, 1.2])


def attention_loss(P, rows, labels, probability, ridge=1e-3):
    """Eq. (1) with E(±1) = (±1, 0), M = 1 and one query (0, √2), over all rows of words."""
    x = np.stack([rows, np.zeros_like(rows)], axis=-1) + P
    logits = x @ np.eye(2) @ [0, 2**0.5] / 2**0.5
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probability @ ((weights * x[..., 0]).sum(axis=1) - labels) ** 2 + ridge * (P**2).sum()


def test_a_task_that_reads_the_outer_words_refutes_it():
    """(H1) to (H3) and the hypothesis hold; every minimiser found has p_1 far from p_0 and p_2."""

    @jax.jit
    @jax.vmap
    def minimised(z):
        flat = lambda z: outer_words_loss(z.reshape(3, 2))  # noqa: E731
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
    for point in (P, RNG.standard_normal((3, 2))):
        expected = attention_loss(point, *task)
        np.testing.assert_allclose(outer_words_loss(point), expected, rtol=1e-12)

    mu = np.stack([np.cos(angles) ** 2, np.sin(angles) ** 2], axis=1)
    means = mu @ [[1, 0], [-1, 0]]
    np.testing.assert_allclose(means[:, 0], [0.170, 0.071, -0.029], atol=5e-4)  # H1, and H3: M = 1
    rises = [attention_loss(P, rows[:, order], *task[1:]) - attention_loss(P, *task)
             for order in ([1, 0, 2], [2, 1, 0], [0, 2, 1])]  # fmt: skip
    np.testing.assert_allclose(rises, [0.308, 0.020, 0.174], atol=5e-4)  # H2

    audit = conjecture_5(hellinger_distances(mu), P)
    assert all(h.holds for h in audit.hypotheses.values())
    strict = audit.conclusions["strict"]
    assert not strict.holds
    np.testing.assert_allclose([strict.lhs, strict.rhs], [1.538, 0.224], atol=5e-4)


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


def shares_of(mu, seeds, sizes):
    """Means of violated, significant and upheld over corpora drawn from the same truth."""
    tests = [monotonicity_test(drawn(mu, seed, sizes)) for seed in range(seeds)]
    return np.mean([test[:3] for test in tests], axis=0)


def test_without_signal_the_false_positives_are_near_the_level():
    """Also where positions are thin, which would make them look distant."""
    mu = zipf_stationary(documents=1, length=N, vocab_size=VOCAB).distributions
    for sizes in (np.full(N, DOCUMENTS), np.linspace(DOCUMENTS, 0.3 * DOCUMENTS, N).astype(int)):
        violated, significant, upheld = shares_of(mu, 10, sizes)
        assert 0.4 < violated < 0.6
        assert 0.02 < significant < 0.06
        assert 0.02 < upheld < 0.06


def test_order_is_upheld_and_true_violations_are_found():
    violated, significant, upheld = shares_of(arc(N, VOCAB), 4, [DOCUMENTS] * N)
    assert violated > 0.01  # noise alone
    assert significant < 0.02
    assert upheld > 0.5
    mu = zipf_drift(documents=1, length=N, vocab_size=VOCAB, strength=0.15).distributions
    true = monotonicity_violation_rate(hellinger_distances(mu))
    assert true > 0.1
    violated, significant, _ = shares_of(mu, 2, [40_000] * N)
    np.testing.assert_allclose(violated, true, atol=0.03)
    assert significant > 0.5 * true


def test_words_of_long_documents_are_no_violation():
    """Short and long documents with words of their own: no order within any, all composition."""
    rng, documents = np.random.default_rng(0), 4000
    lengths = np.where(np.arange(documents) % 3 == 0, N, N // 2)
    mask = np.arange(N) < lengths[:, None]
    ids = rng.integers(0, 20, (documents, N)) + 20 * (lengths == N)[:, None]
    own = {"vocab_size": VOCAB, "folds": FOLDS, "mask": mask, "groups": np.arange(documents)}
    counts = count_tokens(ids, **own)
    keys = jax.random.split(jax.random.key(0), 4)
    nulls = [count_tokens(rotate_within_documents(k, ids, mask), **own) for k in keys]
    plain, corrected = monotonicity_test(counts), monotonicity_test(counts, nulls)
    assert plain.significant + plain.upheld > 0.3
    assert max(corrected.significant, corrected.upheld) < 0.1


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


def test_positions_that_take_part_and_float32():
    mu = zipf_stationary(documents=1, length=N, vocab_size=VOCAB).distributions
    counts = drawn(mu, 0, [DOCUMENTS] * N)
    with jax.enable_x64(False):
        single = monotonicity_test(counts)
    double = monotonicity_test(counts)
    assert single.violated.dtype == jnp.float32
    np.testing.assert_allclose(single.significant, double.significant, atol=0.005)
    assert double.present.all()
    thin = counts.tokens.at[:, 3].set(counts.tokens[:, 3] // 8).at[0, 5].set(0)  # 5: in one fold
    few = monotonicity_test(counts._replace(tokens=thin))
    assert few.present.tolist() == [i not in (3, 5) for i in range(N)]
    nothing = monotonicity_test(counts._replace(tokens=0 * thin))
    assert (nothing.violated, nothing.significant, nothing.upheld) == (0, 0, 0)
    assert not nothing.present.any()

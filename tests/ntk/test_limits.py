"""Limits of options of kernels and spectra: a case on each side."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import ntk, spectral
from jaxpe.geometry import count_tokens
from jaxpe.theory import explained_by_chance, monotonicity_test

KEY, EYE = jax.random.key(0), np.eye(4)
WEIGHTS = np.full((1, 4, 4), 0.25)
IDS = np.random.default_rng(0).integers(0, 5, (12, 3))
double = lambda v: 2 * v  # noqa: E731
lanczos = partial(ntk.lanczos_eigenvalues, double, jnp.zeros(5), key=KEY)


def folded(folds):
    return count_tokens(IDS, vocab_size=5, folds=folds)


# What computes, options at the limit of what is allowed, and options just beyond.
LIMITS = [
    (partial(ntk.max_learning_rate, EYE), {"momentum": 0.0}, {"momentum": -1e-9}),
    (partial(ntk.max_learning_rate, EYE), {"momentum": 0.999}, {"momentum": 1.0}),
    (partial(ntk.predict_mse, EYE, EYE[:, :1], trace_axes=(-1,)), {"ridge": 0.0}, {"ridge": -1e-9}),
    (partial(ntk.taylor_expand, double, EYE), {"degree": 0}, {"degree": -1}),
    (lanczos, {"num": 5, "steps": 5}, {"num": 5, "steps": 6}),
    (lanczos, {"num": 1, "steps": 1}, {"num": 0, "steps": 1}),
    (lanczos, {"num": 2, "steps": 2}, {"num": 3, "steps": 2}),
    (partial(spectral.amplitude, np.ones(5)), {"samples": 5}, {"samples": 4}),
    (partial(spectral.near_share, WEIGHTS), {"window": 0}, {"window": -1}),
    (partial(spectral.first_share, WEIGHTS), {"keys": 4}, {"keys": 5}),
    (partial(spectral.first_share, WEIGHTS), {"keys": 1}, {"keys": 0}),
    (partial(spectral.toeplitz_matrix, np.ones(5)), {"n": 1}, {"n": 0}),
    (partial(explained_by_chance, EYE, EYE, key=KEY), {"orders": 1}, {"orders": 0}),
    (partial(explained_by_chance, EYE, EYE, key=KEY), {"level": 0.999}, {"level": 1.0}),
    (partial(monotonicity_test), {"counts": folded(4)}, {"counts": folded(3)}),
    (partial(monotonicity_test, folded(4)), {"level": 0.499}, {"level": 0.5}),
    (partial(monotonicity_test, folded(4)), {"least": 1.0}, {"least": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("compute", "allowed", "refused"), LIMITS)
def test_options_at_and_beyond_their_limits(compute, allowed, refused):
    shapes = []  # of what may be a function, which no trace returns

    jax.eval_shape(lambda: shapes.append(compute(**allowed)))
    with pytest.raises(ValueError, match=r"pass|must|no head|at least one row"):
        compute(**refused)


def test_costs_up_to_the_noise_are_none():
    drop = np.array([[0.1, 0.3], [0.2, 0.0]])
    assert spectral.deposit(drop, noise=0.1).total_drop == pytest.approx(0.5)
    assert spectral.near_share(WEIGHTS, window=1)[0].tolist() == [0.5, 0.75, 0.75, 0.5]


def test_an_amplitude_has_more_samples_than_diagonals():
    """Of cos ω + cos 2ω, which is 2 at 0 and −9/8 where cos ω = −1/4: 80 angles come near that."""
    found = spectral.amplitude(np.array([0.5, 0.5, 0.0, 0.5, 0.5]))
    assert found == pytest.approx(2 + 9 / 8, abs=1e-3)

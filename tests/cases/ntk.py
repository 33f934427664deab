"""Rows of `jaxpe.ntk`."""

import jax.numpy as jnp
import numpy as np
import optax

from jaxpe import ntk
from tests.cases.base import Case, N, key, total

SGD = optax.sgd(0.1)


def _flow(rng):
    A = rng.standard_normal((N, N))
    return A @ A.T + np.eye(N), rng.standard_normal((N, 3)), rng.standard_normal((N, 3))


def _linear(rng):
    return rng.standard_normal((N, 3)), rng.standard_normal((3, 2))


def _positional(rng):
    return rng.standard_normal((N, 3)), rng.standard_normal((4, N))


def _model(w, x):
    return x @ w


def _at_positions(P, x):
    return x @ P


def _squares(y, x):
    return jnp.sum(y**2) / 2


def _loss(y):
    return jnp.sum((y - 1) ** 2)  # a mean of no outputs would be NaN


def _kernel(**options):
    return lambda x, w: ntk.empirical_ntk(_model, x, None, w, **options)


def _product(P, x):
    return ntk.positional_ntk_product(_at_positions, _squares, P, x)(P)


NTK: dict[str, Case] = {
    "gradient_flow": Case(lambda a, b, P: ntk.gradient_flow(a, b, P).at(1.0), _flow),
    "fixed_point": Case(lambda a, b, P: ntk.gradient_flow(a, b, P).fixed_point(), _flow),
    "predict_mse": Case(lambda K, y, f: ntk.predict_mse(K, y, trace_axes=(-1,))(1.0, f), _flow),
    "max_learning_rate": Case(ntk.max_learning_rate, lambda rng: _flow(rng)[:1]),
    "lanczos_eigenvalues": Case(
        lambda A: ntk.lanczos_eigenvalues(lambda v: A @ v, A[0], num=2, key=key()),
        lambda rng: _flow(rng)[:1],
    ),
    "empirical_ntk": Case(_kernel(warn=False), _linear, total),
    "empirical_ntk_in_blocks": Case(_kernel(block_size=2, trace_axes=()), _linear),
    "ntk_vector_product": Case(
        lambda x, w: ntk.ntk_vector_product(_model, x, None, w)(x @ w), _linear
    ),
    "parameter_sensitivity": Case(
        lambda x, w: ntk.parameter_sensitivity(_model, w, x, key=key()), _linear
    ),
    "linearize": Case(lambda x, w: ntk.linearize(_model, w)(2 * w, x), _linear, total),
    "taylor_expand": Case(
        lambda x, w: ntk.taylor_expand(_model, w, degree=2)(2 * w, x), _linear, total
    ),
    "linearised_training": Case(
        lambda x, w: ntk.linearised_training(_model, _loss, w, x, optimizer=SGD, steps=2), _linear
    ),
    "positional_ntk": Case(
        lambda P, x: ntk.positional_ntk(_at_positions, _squares, P, x), _positional
    ),
    "positional_ntk_product": Case(_product, _positional),
    "positional_fisher": Case(
        lambda P, x: ntk.positional_fisher(_at_positions, P, x, key=key()), _positional
    ),
    "positional_forcing": Case(
        lambda P, x: ntk.positional_forcing(_at_positions, _squares, P, x), _positional
    ),
}

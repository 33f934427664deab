"""Rows of `jaxpe.geometry`, `jaxpe.ntk` and `jaxpe.spectral` that return or take functions."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import geometry, ntk, spectral
from tests.cases.base import LENGTH, Call, counts, key, normal


def velocity(P):
    return -P


def score(gates):
    return jnp.sum(gates * jnp.arange(4.0).reshape(2, 2))


def error(delta, d):
    return (delta - d) ** 2


OPERATOR = np.random.default_rng(0).standard_normal((LENGTH, LENGTH))


def apply_operator(x):
    return jnp.matmul(OPERATOR + OPERATOR.T, x)


# Rows of the table make a new function in each call of these.
SPECTRAL: dict[str, Call] = {
    "ablate_heads": lambda rng: spectral.ablate_heads(score, layers=2, heads=2),
}


NTK: dict[str, Call] = {
    "lanczos_eigenvalues": lambda rng: ntk.lanczos_eigenvalues(
        apply_operator, normal(rng, LENGTH), num=2, key=jax.random.key(rng.integers(99))
    ),
    "solve_flow": lambda rng: ntk.solve_flow(velocity, normal(rng, 3, 2), np.array([0.5, 1.0])),
}


def _eigenpairs(rng):
    return geometry.principal_eigenpairs(apply_operator, LENGTH, dim=2, tolerance=1e-6)


def _many_points(rng):
    cloud = geometry.PointCloud(jnp.asarray(normal(rng, LENGTH, 3)), jnp.arange(LENGTH) != 1)
    return geometry.sum_over_pairs(error, normal(rng, LENGTH, 2), cloud, block=2)


GEOMETRY: dict[str, Call] = {
    "compare_geometries": lambda rng: geometry.compare_geometries(
        counts(rng, folds=4), counts(rng, folds=4), key=key(), dim=2, permutations=3
    ),
    "holm_adjusted": lambda rng: geometry.holm_adjusted(rng.random(5)),
    "principal_angles": lambda rng: geometry.principal_angles(
        normal(rng, LENGTH, 2), normal(rng, LENGTH, 2)
    ),
    "principal_eigenpairs": _eigenpairs,
    "sum_over_pairs": _many_points,
}

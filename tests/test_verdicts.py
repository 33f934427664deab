"""Verdicts on published work, in the stored results of the experiments."""

import itertools
from pathlib import Path

import jax
import numpy as np

from jaxpe import geometry

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


def test_mean_attention_is_no_function_of_the_positional_distribution():
    """Lemma 16, (11): almost equal distributions, P = 0, and mean weights that differ.

    Words a, b, a, c after [CLS], of almost equal frequency, the third the first one 9 times in 10.
    """
    words = 4
    E = 2.0 * np.eye(words + 1)  # the last is [CLS]
    sequences = np.array([(words, *row) for row in itertools.product(range(words), repeat=4)])
    tilt = 1 + 1e-3 * np.arange(4)[:, None] * np.array([1, -1, 1, -1])
    drawn = np.take_along_axis(tilt / tilt.sum(axis=1, keepdims=True), sequences[:, 1:].T, axis=1)
    copied = 0.9 * (sequences[:, 3] == sequences[:, 1])  # 9 times in 10
    probability = drawn[0] * drawn[1] * (copied + 0.1 * drawn[2]) * drawn[3]
    mu = np.einsum("s,siv->iv", probability, np.eye(words + 1)[sequences])
    x = E[sequences]
    weights = jax.nn.softmax(x @ x.swapaxes(1, 2) / np.sqrt(words + 1), axis=-1)
    A = np.einsum("s,sij->ij", probability, weights)
    np.testing.assert_allclose([A[1, 3], A[2, 3]], [0.332, 0.141], atol=1e-3)
    L_e = 2 * np.sqrt(2 * (words + 1))  # with ‖E‖∞ = 2, ‖M‖ = 1 and d_k = 5, as published
    L_A = np.linalg.norm(mu @ E, axis=1).max() * L_e / np.sqrt(words + 1)
    d_H = float(geometry.hellinger_distances(mu).values[1, 2])
    np.testing.assert_allclose([d_H, L_A * d_H], [0.0005, 0.0028], atol=1e-4)

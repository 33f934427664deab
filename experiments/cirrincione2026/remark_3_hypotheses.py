"""Remark 3: when (H1), (H2) and (H3) of Theorem 4 hold, on small exact examples.

(H1), random embeddings: three distributions that differ, and three of which two are equal.
(H2): three independent words, of which the first is the label; attention weights of P alone.
(H3): ‖MΔ‖ over ‖M‖‖Δ‖ at initialisation, and along the gradient flow of one head, d = 2 and
d_k = 1, that prefers one of two tokens and has to learn the other: the loss is log(1 + e^s),
s = (W_Qᵀu)(W_KᵀΔ).
"""

import itertools
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import expit, softmax

from experiments.common import Run, main
from jaxpe import geometry

WIDTH, KEYS = 64, (1, 8, 64)


def experiment(run: Run) -> dict[str, Any]:
    draws = 100 if run.quick else 2000
    result = {"H1": mean_embeddings(draws), "H2": first_word(), "H3": initialisation(draws)}
    result["flow"] = flow()
    print(result)
    return result


def mean_embeddings(draws: int) -> dict[str, float]:
    """Least ‖ē_i − ē_j‖ over draws of E of three that differ; the largest of equal ones."""
    rng = np.random.default_rng(0)
    equal = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    apart = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7]])
    E = rng.standard_normal((draws, 3, WIDTH))
    gaps = [np.linalg.norm((apart[i] - apart[j]) @ E, axis=-1) for i, j in ((0, 1), (0, 2), (1, 2))]
    return {
        "draws": draws,
        "least_difference": np.min(gaps),
        "difference_of_equal": np.abs((equal[0] - equal[1]) @ E).max(),
        "distance_of_others": float(geometry.hellinger_distances(equal).values[0, 2]),
    }


def first_word() -> dict[str, Any]:
    """Rise of the loss when tokens (0, 1), (0, 2) or (1, 2) are swapped, the label staying."""
    words = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    weights = softmax([3.0, 0.5, -0.5])

    def loss(order: list[int]) -> float:
        return float(np.mean((words[:, order] @ weights - words[:, 0]) ** 2))

    orders = ([1, 0, 2], [2, 1, 0], [0, 2, 1])
    return {"rises": [loss(order) - loss([0, 1, 2]) for order in orders]}


def initialisation(draws: int) -> dict[str, Any]:
    """Least ‖MΔ‖/(‖M‖‖Δ‖) over Gaussian and Xavier draws of W_Q and W_K, by d_k."""
    rng, least = np.random.default_rng(0), {}
    for keys in KEYS:
        normal = rng.standard_normal((draws // 2, 2, WIDTH, keys))
        uniform = rng.uniform(-1, 1, (draws // 2, 2, WIDTH, keys))
        quotients = []
        for W_Q, W_K in np.concatenate([normal, uniform]):
            M, delta = W_Q @ W_K.T, rng.standard_normal(WIDTH)
            length = np.linalg.norm(M, 2) * np.linalg.norm(delta)
            quotients.append(np.linalg.norm(M @ delta) / length)
        least[str(keys)] = np.min(quotients)
    return {"draws": draws, "least": least}


def flow() -> dict[str, float]:
    """When W_KᵀΔ goes through 0, and the norm of M then; across Δ and u nothing moves."""
    across, start = 1.0, (1.0, 0.5)  # W_K across Δ; W_Qᵀu and W_KᵀΔ

    def velocity(_: float, at: np.ndarray) -> np.ndarray:
        return -expit(at[0] * at[1]) * at[::-1]

    events = [lambda _, at: at[1]]
    found = solve_ivp(velocity, (0, 10), start, events=events, rtol=1e-10, atol=1e-12)
    query, difference = found.y_events[0][0]
    return {
        "time": found.t_events[0][0],
        "difference": difference,
        "norm_of_M": abs(query) * np.hypot(difference, across),
        "difference_at_start": start[0] * start[1],
        "difference_at_end": found.y[0, -1] * found.y[1, -1],
    }


if __name__ == "__main__":
    main(experiment, "remark_3_hypotheses")

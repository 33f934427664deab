"""The kernel of positions of a model, and its linearised flow."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from jaxpe import geometry, ntk
from jaxpe.analysis.audit.functions import PositionLoss
from jaxpe.analysis.audit.result import KernelPairs
from jaxpe.geometry import Distances
from jaxpe.ntk.flow import TrainingGap
from jaxpe.theory import explained_by_chance, monotone_fit
from jaxpe.theory.audit import Audit, within
from jaxpe.theory.monotone_fit import pairs

_SAMPLES = 16


def kernel_and_forcing(
    model: PositionLoss, *, seed: int, P: Array | None = None
) -> tuple[Array, Array]:
    """α `[n, n]` and b `[n, dim]` at P.

    α is exact for a few classes, and from sampled targets for a vocabulary.

    Args:
        model: result of `position_loss`.
        seed: random seed of the sampled targets.
        P: position vectors `[n, dim]`; 0, as in the paper, when None.

    >>> model = position_loss(subject, examples=32)  # doctest: +SKIP
    >>> kernel_and_forcing(model, seed=0)[0].shape  # doctest: +SKIP
    (16, 16)
    """
    f, loss, examples = model.at_no_shift, model.loss, model.examples
    P = jnp.zeros_like(model.functions.vectors) if P is None else P
    # The weights are arguments of the program. With constants, XLA on CPUs (jaxlib 0.10.2) computes
    # wrong products with two batch axes in loops, with errors as large as the gradients.
    example = jax.tree.map(lambda rows: rows[0], examples)
    traced = jax.make_jaxpr(f)(P, example)

    @jax.jit
    def kernel(P: Array, weights: list[Array]) -> tuple[Array, Array]:
        def outputs(P: Array, example: Any) -> Array:
            model = jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, weights))
            return model(P, *jax.tree.leaves(example))[0]

        forcing = ntk.positional_forcing(outputs, loss, P, examples)
        if model.family == "classification":
            return ntk.positional_ntk(outputs, loss, P, examples), forcing
        key = jax.random.key(seed)
        return ntk.positional_fisher(outputs, P, examples, key=key, samples=_SAMPLES), forcing

    return kernel(P, traced.consts)


def kernel_pairs(
    alpha: Array, b: Array, D: Distances, *, lemma_18: Audit, seed: int = 0
) -> KernelPairs:
    """Values of α and of the bound (13), for every pair of positions with text.

    >>> bound = jaxpe.theory.lemma_18(alpha, b, D)  # doctest: +SKIP
    >>> kernel_pairs(alpha, b, D, lemma_18=bound).alpha.shape  # doctest: +SKIP
    (120,)
    """
    kernel = within(alpha, D.present)
    distances = within(D.values, D.present).astype(alpha.dtype)
    forcing = np.asarray(b)[np.asarray(D.present)]
    chance = explained_by_chance(distances, kernel, key=jax.random.key(seed))
    fit = jax.device_get(monotone_fit(pairs(distances), pairs(kernel)))
    flow = ntk.gradient_flow(kernel, forcing, jnp.zeros_like(forcing))
    reached = geometry.euclidean_distances(flow.fixed_point().positions).values
    above = np.triu_indices(len(distances), 1)
    return KernelPairs(
        distances=distances[above],
        alpha=kernel[above],
        increasing=fit.increasing,
        decreasing=fit.decreasing,
        explained=(float(fit.explained_increasing), float(fit.explained_decreasing)),
        by_chance=(float(chance[0]), float(chance[1])),
        eigenvalues=np.asarray(flow.eigenvalues)[::-1],
        reached=np.asarray(reached)[above],
        bound=np.asarray(lemma_18.measured["constant of (13)"]) * distances[above],
    )


def train_both(model: PositionLoss, *, steps: int, seed: int, rows: int = 32) -> TrainingGap:
    """Gradient descent on P alone, of the model and of its linearisation, on a few examples.

    It starts from the model's own vectors; the step is 1/λ_max of the full kernel at the start.

    >>> model = position_loss(subject, examples=32)  # doctest: +SKIP
    >>> train_both(model, steps=5, seed=0)[0].shape  # doctest: +SKIP
    (6,)
    """
    f, loss, start = model.at_no_shift, model.loss, model.functions.vectors
    examples = {name: array[:rows] for name, array in model.examples.items()}

    product = ntk.positional_ntk_product(f, loss, start, examples)
    key = jax.random.key(seed)
    largest = ntk.lanczos_eigenvalues(product, start, num=1, key=key, steps=12).eigenvalues[0]
    rate = 1.0 / max(float(largest), 1e-12)

    def batch(P: Array, examples: dict[str, Array]) -> Array:
        return jax.vmap(lambda example: f(P, example))(examples)

    def mean_loss(outputs: Array) -> Array:
        return jnp.mean(jax.vmap(loss)(outputs, examples))

    return ntk.linearised_training(
        batch, mean_loss, start, examples, optimizer=optax.sgd(rate), steps=steps
    )

"""The kernel of positions of a model, and its linearised flow."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import jaxpe
from jaxpe import ntk
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.compiled import compiled
from jaxpe.analysis.audit.functions import PositionLoss, inner
from jaxpe.analysis.audit.result import KernelPairs
from jaxpe.geometry import Distances
from jaxpe.theory import Audit, explained_by_chance, monotone_fit
from jaxpe.theory.monotone_fit import MonotoneFit, pairs

_SAMPLES = 16


def kernel_and_forcing(
    model: PositionLoss, *, seed: int, P: Array | None = None
) -> tuple[Array, Array]:
    """α `[n, n]` and b `[n, dim]` at P: at 0, where the paper has them, when None.

    α exactly for a few classes, from sampled targets for the words of a vocabulary.

    >>> kernel_and_forcing(position_loss(subject, examples=32), seed=0)[0].shape  # doctest: +SKIP
    (16, 16)
    """
    f, loss, examples = model.at_no_shift, model.loss, model.examples
    vectors = model.of.vectors
    at = np.zeros(vectors.shape, vectors.dtype) if P is None else P

    @jax.jit
    def both(P: Array, seed: Array) -> tuple[Array, Array]:
        forcing = ntk.positional_forcing(f, loss, P, examples)
        if model.family == "classification":
            return ntk.positional_ntk(f, loss, P, examples), forcing
        key = jax.random.key(seed)
        return ntk.positional_fisher(f, P, examples, key=key, samples=_SAMPLES), forcing

    return both(at, np.uint32(seed))


def kernel_pairs(
    alpha: Array, b: Array, D: Distances, *, lemma_18: Audit, seed: int = 0
) -> KernelPairs:
    """Values of α and of the bound (13) over pairs of positions with text, as the figures show
    them.

    >>> bound = jaxpe.theory.lemma_18(alpha, b, D)  # doctest: +SKIP
    >>> kernel_pairs(alpha, b, D, lemma_18=bound).alpha.shape  # doctest: +SKIP
    (120,)
    """
    within = inner(alpha, D.present)
    apart = inner(D.values, D.present).astype(alpha.dtype)
    forcing = np.asarray(b)[np.asarray(D.present)]
    chance, fit, eigenvalues, reached = jax.device_get(
        _fit_and_flow(apart, within, forcing, np.array(seed, np.uint32))
    )
    above = np.triu_indices(len(apart), 1)
    return KernelPairs(
        distances=apart[above],
        alpha=within[above],
        increasing=fit.increasing,
        decreasing=fit.decreasing,
        explained=(float(fit.explained_increasing), float(fit.explained_decreasing)),
        by_chance=(float(chance[0]), float(chance[1])),
        eigenvalues=eigenvalues[::-1],
        reached=reached[above],
        bound=np.asarray(lemma_18.measured["constant of (13)"]) * apart[above],
    )


@compiled()
def _fit_and_flow(
    distances: ArrayLike, alpha: ArrayLike, forcing: ArrayLike, seed: ArrayLike
) -> tuple[tuple[Array, Array], MonotoneFit, Array, Array]:
    """Shares explained by chance, the fit, eigenvalues of α, and ‖p*_i − p*_j‖ `[n, n]`."""
    chance = explained_by_chance(distances, alpha, key=jax.random.key(seed))
    fit = monotone_fit(pairs(distances), pairs(alpha))
    flow = ntk.gradient_flow(alpha, forcing, jnp.zeros_like(forcing))
    reached = jaxpe.euclidean_distances(flow.fixed_point().positions).values
    return chance, fit, flow.eigenvalues, reached


def train_both(model: PositionLoss, *, steps: int, seed: int, rows: int = 32) -> ntk.TrainingGap:
    """Gradient descent on P alone, of the model and of its linearisation, on a few examples.

    From the model's own vectors; the step is 1/λ_max of the whole kernel there.

    >>> train_both(position_loss(subject, examples=32), steps=5, seed=0)[0].shape  # doctest: +SKIP
    (6,)
    """
    f, loss, start = model.at_no_shift, model.loss, model.of.vectors
    examples = {name: array[:rows] for name, array in model.examples.items()}

    @jax.jit
    def largest(P: Array, seed: Array) -> Array:
        product = ntk.positional_ntk_product(f, loss, P, examples)
        key = jax.random.key(seed)
        return ntk.lanczos_eigenvalues(product, P, num=1, key=key, steps=12).eigenvalues[0]

    rate = 1.0 / max(float(largest(start, np.uint32(seed))), 1e-12)

    def batch(P: Array, examples: dict[str, Array]) -> Array:
        return jax.vmap(lambda example: f(P, example))(examples)

    def mean_loss(outputs: Array) -> Array:
        return jnp.mean(jax.vmap(loss)(outputs, examples))

    return jax.jit(
        lambda P: ntk.linearised_training(
            batch, mean_loss, P, examples, optimizer=optax.sgd(rate), steps=steps
        )
    )(start)

"""A model and a corpus as inputs of the published statements."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe.analysis.audit.functions import Geometry, PositionLoss
from jaxpe.theory.audit import boolean, less_equal
from jaxpe.theory.cirrincione2026.evaluations import AuditInputs
from jaxpe.theory.gradients import PositionGradients, mean_embeddings, position_gradients

_SWAPS, _ROWS = 24, 4


def audit_inputs(
    model: PositionLoss,
    geometry: Geometry,
    *,
    alpha: Array,
    forcing: Array,
    seed: int,
    temperature: float = 1.0,
) -> AuditInputs:
    """Gradients, projections, random tokens and conditions that the statements are evaluated on.

    Args:
        model, geometry: results of `position_loss` and `geometry_of`.
        alpha, forcing: kernel and forcing at P = 0, from `kernel_and_forcing`.
        seed: random seed of tokens, permutations and swaps.
        temperature: τ of the softmax of the loss.

    >>> inputs = audit_inputs(model, geometry, alpha=alpha, forcing=b, seed=0)  # doctest: +SKIP
    >>> theory.EVALUATIONS["Theorem 1"](inputs).conclusions  # doctest: +SKIP
    """
    functions = model.functions
    rng = np.random.default_rng(seed)
    words, n = functions.embeddings.shape[0], functions.vectors.shape[0]
    size = jnp.max(jnp.abs(functions.tokens))
    apart = jnp.max(jnp.abs(functions.tokens - functions.embeddings))

    def hidden(row: Array) -> Array:
        no_positions = jnp.zeros_like(functions.vectors)
        return functions.apply(no_positions, functions.no_shift, row).transformer.hidden

    return AuditInputs(
        **geometry._asdict(),
        vectors=functions.vectors,
        embeddings=functions.tokens,
        means=mean_embeddings(geometry.mu, functions.tokens),
        **functions.projections._asdict(),
        gradients=_gradients(model),
        gradient_bound=_gradient_bound(model),
        alpha=alpha,
        forcing=forcing,
        reads_sum=less_equal(apart / jnp.where(size > 0, size, 1.0), 1e-5),
        full_examples=boolean(bool(np.all(model.examples["mask"]))),
        hidden=hidden,
        loss=lambda P, example: model.loss(model.at_no_shift(P, example), example),
        examples=model.examples,
        swap=_reordered_tokens,
        ids=rng.integers(0, words, (_ROWS, n)).astype(np.int32),
        permutations=np.stack([rng.permutation(n) for _ in range(_ROWS)]).astype(np.int32),
        swaps=_swaps(np.asarray(geometry.D.present), seed=seed),
        family=model.family,
        temperature=temperature,
        layers=model.layers,
        reads_first=model.reads_first,
        no_other_order=functions.no_other_order,
    )


def _gradients(model: PositionLoss) -> PositionGradients:
    """Gradients by positions and by logits of the first attention, at P = 0."""
    functions = model.functions

    def loss(P: Array, shift: Array, example: Any) -> Array:
        return model.loss(model.outputs(P, shift, example), example)

    def attention(P: Array, example: Any) -> tuple[Array, Array]:
        trace: Any = functions.apply(
            P, functions.no_shift, example["ids"], mask=example["mask"], trace=True
        ).transformer
        return trace.logits[0], trace.weights[0]

    start = jnp.zeros_like(functions.vectors)
    examples = model.examples
    return position_gradients(loss, attention, start, examples, occupied=examples["mask"])


def _gradient_bound(model: PositionLoss) -> Array:
    """Largest ‖∂loss/∂a_i‖, with a the first attention's output to the residual stream."""
    start = jnp.zeros_like(model.functions.vectors)

    def norm(example: Any) -> Array:
        def loss(added: Array) -> Array:
            return model.loss(model.at_no_shift(start, example, added=added), example)

        return jnp.max(jnp.linalg.norm(jax.grad(loss)(start), axis=1))

    return jax.jit(lambda rows: jnp.max(jax.lax.map(norm, rows, batch_size=8)))(model.examples)


def _reordered_tokens(example: Any, order: Array) -> Any:
    """Tokens in another order; the target and its position do not change."""
    return example | {name: jnp.asarray(example[name])[order] for name in ("ids", "mask")}


def _swaps(present: np.ndarray, *, seed: int) -> np.ndarray:
    """Random pairs of positions with text."""
    rows = np.flatnonzero(present)
    pairs = np.stack(np.triu_indices(len(rows), 1), axis=1)
    chosen = np.random.default_rng(seed).permutation(len(pairs))[:_SWAPS]
    return rows[pairs[chosen]].astype(np.int32)

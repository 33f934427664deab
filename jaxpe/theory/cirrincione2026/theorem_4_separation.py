"""Theorem 4: does every minimiser of the expected loss keep positions apart?"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry import euclidean_distances, min_separation
from jaxpe.geometry.distances.matrices import as_present, pair_mask
from jaxpe.ntk.examples import expectation
from jaxpe.theory.audit import Audit, less
from jaxpe.theory.gradients import Projection, product_norms
from jaxpe.theory.lipschitz import rounding, share


@partial(jax.jit, static_argnames=("loss", "swap", "scales", "batch_size"))
def theorem_4(
    loss: Callable[[Array, Any], Array],
    P: Float[ArrayLike, "n d"],
    examples: Any,
    means: Float[ArrayLike, "n dim"],
    query: Projection,
    key: Projection,
    *,
    swaps: Int[ArrayLike, "count 2"],
    swap: Callable[[Any, Array], Any] | None = None,
    scales: tuple[float, ...] = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6),
    present: Bool[ArrayLike, " n"] | None = None,
    batch_size: int = 8,
) -> Audit:
    """Evaluate coercivity, (H1) to (H3) and the separation of positions at a trained P.

    Hypotheses are numbers that must be above 0 (or above rounding). "coercive" tests one ray: from
    the first to the last of `scales`, T, the loss of t·P rises by more than 1.5 times its rise at
    √T (t in every entry if P is 0). A norm after the sum bounds the loss, which then fails the
    test. "H1", the least ‖ē_i − ē_j‖. "H2", the least change of the expected loss over `swaps`.
    "H3", the least ‖M(ē_i − ē_j)‖/(‖M‖‖ē_i − ē_j‖) of the worst head.

    Conclusion: "separated", the least ‖p_i − p_j‖.

    It is false where it is not empty (see the finding). Let f be an encoder with residual and
    values ‖W_V‖ < 1, and y_i = f(t)_i at P = 0 the target of row i. Then E Σ_i ‖f_P(t)_i − y_i‖² is
    coercive and 0 at P = 0, although swapping tokens under fixed targets raises it.

    Measured: `losses` of t·P, `changes` of each swap, `gradient`, the largest ‖∂loss/∂p_i‖ (0 at a
    minimiser), `H3 by head` and `H3 of rows by head` (of (ē_i − ē_j)M), `H3 of all heads` (of Σ_h
    M_h, where heads are not distinguished).

    Args:
        loss: `(P, example) -> scalar`; compiled once for the same function.
        P: position vectors of a trained model.
        examples: pytree of `[examples, ...]`.
        means: ē of `mean_embeddings`.
        query, key: W_Q and W_K of the first layer.
        swaps: pairs (i, j) for (H2).
        swap: `(example, order) -> example` with tokens (and labels, if intended) reordered by the
            permutation `order` `[n]`; when None, rows of P are exchanged, which is equivalent for
            an encoder with one label a sequence.
        scales: t ≥ 1, rising.
        present: positions that take part in (H1), (H3) and the conclusion; all when None.
        batch_size: examples at a time.

    >>> def loss(P, x):    # reads the order of two tokens off P
    ...     return ((x * P[:, 0]).sum() - 1) ** 2 + 1e-3 * (P**2).sum()
    >>> W = jnp.ones((1, 1, 1))
    >>> audit = theorem_4(loss, jnp.array([[0.999], [0.0]]), jnp.array([[1.0, 2.0]]),
    ...                   jnp.array([[1.0], [2.0]]), W, W, swaps=np.array([[0, 1]]))
    >>> all(part.holds.item() for part in audit.hypotheses.values())
    True
    >>> audit.conclusions["separated"].rhs.round(3).item()
    0.999
    """
    P, swaps = jnp.asarray(P), jnp.asarray(swaps)
    means, query, key = (jnp.asarray(x, P.dtype) for x in (means, query, key))
    present = as_present(present, P.shape[0])
    factors = jnp.asarray((*scales, scales[-1] ** 0.5), P.dtype)
    (at_P, gradient), changes, losses = _expected_losses(
        P, examples, swaps, factors, loss=loss, swap=swap, batch_size=batch_size
    )
    degeneracy = _non_degeneracy(means, query, key, present)
    eps = float(jnp.finfo(P.dtype).eps)
    start, end, middle = losses[0], losses[-2], losses[-1]  # at t_0, T and √T
    hypotheses = {
        "coercive": less(1.5 * jnp.maximum(middle - start, 0.0), end - start),
        "H1": less(0.0, min_separation(means, present=present), noise=rounding(means)),
        "H2": less(0.0, jnp.min(changes, initial=jnp.inf), noise=64 * eps * jnp.abs(at_P)),
        "H3": less(0.0, jnp.min(degeneracy["H3 by head"]), noise=64 * eps),
    }
    measured = {
        "losses": losses[:-1],
        "changes": changes,
        "gradient": jnp.max(jnp.linalg.norm(gradient, axis=1)),
    }
    separated = less(0.0, min_separation(P, present=present), noise=rounding(P))
    return Audit(hypotheses, {"separated": separated}, measured | degeneracy)


def _expected_losses(
    P: Array,
    examples: Any,
    swaps: Array,
    factors: Array,
    *,
    loss: Callable[[Array, Any], Array],
    swap: Callable[[Any, Array], Any] | None,
    batch_size: int,
) -> tuple[tuple[Array, Array], Array, Array]:
    """The loss at P with its gradient, its change by each swap, and the losses of t·P."""

    def expected(P: Array) -> Array:
        return expectation(lambda example: loss(P, example), examples, batch_size)

    def reordered(point: tuple[Array, Array]) -> Array:
        P, order = point

        def loss_of_example(example: Any) -> Array:
            return loss(P[order], example) if swap is None else loss(P, swap(example, order))

        return expectation(loss_of_example, examples, batch_size)

    def swapped(pair: Array) -> Array:
        return order.at[pair].set(pair[::-1])

    at_P, gradient = jax.value_and_grad(expected)(P)
    order = jnp.arange(len(P), dtype=swaps.dtype)
    # Swaps and the ray in one loop: the loss is compiled once for both.
    ray = factors[:, None, None] * jnp.where(jnp.any(P != 0), P, 1.0)[None]
    points = jnp.concatenate([jnp.broadcast_to(P, (len(swaps), *P.shape)), ray])
    orders = [jax.vmap(swapped)(swaps), jnp.broadcast_to(order, (len(factors), len(P)))]
    losses = jax.lax.map(reordered, (points, jnp.concatenate(orders)))
    return (at_P, gradient), losses[: len(swaps)] - at_P, losses[len(swaps) :]


def _non_degeneracy(means: Array, query: Array, key: Array, present: Array) -> dict[str, Array]:
    """The least ‖MΔ‖/(‖M‖‖Δ‖) and ‖ΔM‖/(‖M‖‖Δ‖) over differences Δ of means; 0 where ΔM is 0."""
    between = euclidean_distances(means, present=present).values

    def least(first: Array, second: Array) -> Array:
        # ‖Δ W Uᵀ‖ for one head, both [dim, head_dim].
        through = dot(means, first, second.T)
        norm = product_norms(second[:, None], jnp.transpose(first)[None])[0]
        apart = euclidean_distances(through, present=present).values
        shares = share(apart, norm * between)
        return jnp.min(jnp.where(pair_mask(present), shares, jnp.inf))

    q, k = (jnp.moveaxis(x, 1, 0) for x in (query, key))
    flat_q, flat_k = (x.reshape(x.shape[0], -1) for x in (query, key))
    by_head = jax.lax.map(lambda pair: (least(pair[1], pair[0]), least(*pair)), (q, k))
    return {
        "H3 by head": by_head[0],
        "H3 of rows by head": by_head[1],
        "H3 of all heads": least(flat_k, flat_q),
    }

"""Li (2025), Section 4.2: norms of sinusoids and learned positions, logits of relative ones."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.theory.audit import Audit, all_less_equal


@jax.jit
def section_4_norms(
    sinusoids: Float[ArrayLike, "n d"],
    x: Float[ArrayLike, "rows dim"],
    table: Float[ArrayLike, "length dim"],
    queries: Float[ArrayLike, "queries width"],
    key_table: Float[ArrayLike, "offsets width"],
) -> Audit:
    """Compare norms with the published bounds.

    Li (2025), Section 4.2; holds with a sharper constant for sinusoids. Conclusions: "sinusoids",
    ‖PE(i)‖ ≤ √d; "learned", ‖x + p_i‖ ≤ R + B_PE; "Shaw", |⟨q, a_r⟩|/√d_k ≤ ‖q‖B_a. Instead,
    "sinusoids, above" and "below": ‖PE(i)‖ = √(d/2); "Shaw by √d_k": at most ‖q‖B_a/√d_k.

    Measured: `√d`, `sinusoids` (the largest norm), `R`, `B_PE`, `B_a` and `mean of learned`.

    Args:
        sinusoids: vectors of some positions.
        x, table: inputs, and the learned positions that are added to them.
        queries, key_table: queries of one head, and rows a_r of Shaw et al.

    >>> eye = jnp.eye(2)
    >>> audit = section_4_norms(sinusoidal_vectors(jnp.arange(5), dim=8), eye, eye, eye, eye)
    >>> audit.measured["sinusoids"].round(6).item(), audit.conclusions["sinusoids"].holds.item()
    (2.0, True)
    """
    dtype = jnp.result_type(float)
    sinusoids, x, table, queries, key_table = (
        jnp.asarray(a, dtype) for a in (sinusoids, x, table, queries, key_table)
    )
    d, width = sinusoids.shape[1], queries.shape[1]
    norms, inputs, learned, q, a = (
        jnp.linalg.norm(rows, axis=1) for rows in (sinusoids, x, table, queries, key_table)
    )
    sums = jnp.linalg.norm(x[:, None, :] + table[None, :, :], axis=2)
    added = jnp.abs(dot(queries, key_table.T)) / width**0.5
    by_norms = (q * jnp.max(a))[:, None]
    # Vectors may have been computed in float32.
    compare = partial(all_less_equal, tolerance=64 * float(jnp.finfo(jnp.float32).eps))
    conclusions = {
        "sinusoids": compare(norms, d**0.5),
        "learned": compare(sums, jnp.max(inputs) + jnp.max(learned)),
        "Shaw": compare(added, by_norms),
    }
    instead = {
        "sinusoids, above": compare(norms, (d / 2) ** 0.5),
        "sinusoids, below": compare((d / 2) ** 0.5, jnp.min(norms)),
        "Shaw by √d_k": compare(added, by_norms / width**0.5),
    }
    measured = {
        "√d": jnp.asarray(d**0.5),
        "sinusoids": jnp.max(norms),
        "R": jnp.max(inputs),
        "B_PE": jnp.max(learned),
        "mean of learned": jnp.mean(learned),
        "B_a": jnp.max(a),
    }
    return Audit({}, conclusions, measured, instead)

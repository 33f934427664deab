"""Li (2025), Section 4.2: does the bias of ALiBi enlarge the Lipschitz constant with the length?"""

import jax.numpy as jnp
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.theory.audit import Audit, all_less_equal


def section_4_alibi(
    with_bias: Float[ArrayLike, "*models lengths"],
    without: Float[ArrayLike, "*models lengths"],
    bound: Float[ArrayLike, "*models lengths"],
    *,
    lengths: Float[ArrayLike, " lengths"],
    slope: float,
) -> Audit:
    """Compare the growth of measured Lipschitz constants with m n, and with a bound without m.

    Li (2025), Section 4.2; not decided, as its formula is lost. Conclusion "grows by m n": m(n − T)
    ≤ L(n) − L(T), T the first length, for measured constants. These are sampled derivatives, lower
    bounds of L, and only illustrate. The verdict rests on the derivative, to which a bias of
    positions alone contributes nothing. Instead, "without m": L(n) is at most the bound of the same
    weights without any bias, with and without ALiBi, for each model.

    Measured, by length, the largest of the models: `with bias`, `without`, `bound`; and `m n`.

    Args:
        with_bias: measured Lipschitz constants, by model and length, T first.
        without: constant of the same weights without the bias.
        bound: bound for the same tokens, from weights, R and n (`experiments/li2025/lipschitz.py`).
        lengths, slope: n and m.

    >>> audit = section_4_alibi(
    ...     jnp.array([2.0, 2.0]), jnp.array([2.0, 2.5]), jnp.array([4.0, 5.0]),
    ...     lengths=jnp.array([16.0, 32.0]), slope=0.1)
    >>> audit.conclusions["grows by m n"].holds.item(), audit.instead["without m"].holds.item()
    (False, True)
    """
    dtype = jnp.asarray(bound).dtype
    with_bias, without, bound, lengths = (
        jnp.asarray(x, dtype) for x in (with_bias, without, bound, lengths)
    )
    growth = with_bias[..., 1:] - with_bias[..., :1]
    both = jnp.stack([with_bias, without])
    tolerance = 256 * float(jnp.finfo(dtype).eps)
    within_bound = all_less_equal(both, bound, tolerance=tolerance)
    by_length = {"with bias": with_bias, "without": without, "bound": bound}
    models = tuple(range(bound.ndim - 1))
    measured = {name: jnp.max(x, axis=models) for name, x in by_length.items()}
    more = jnp.broadcast_to(slope * (lengths[1:] - lengths[0]), growth.shape)
    claimed = {"grows by m n": all_less_equal(more, growth)}
    return Audit({}, claimed, measured | {"m n": slope * lengths}, {"without m": within_bound})

"""Li (2025), Section 4.2: is a transformer Lipschitz with a constant of its weights alone?"""

from functools import partial

import jax.numpy as jnp
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.theory.audit import Audit, all_less_equal


def section_4_lipschitz(
    measured: Float[ArrayLike, "*inputs layers"],
    by_weights: Float[ArrayLike, " layers"],
    in_ball: Float[ArrayLike, "*inputs layers"],
    *,
    whole: Float[ArrayLike, "*inputs"],
) -> Audit:
    """Compare measured Lipschitz constants with bounds by weights, and by weights, R and n.

    Li (2025), Section 4.2; not decided, as its formula is lost. Measurements at some
    inputs can refute only the given candidate for C. Conclusions: "each layer", measured ≤ by
    weights at every input; "whole", measured ≤ C^L with C the largest constant by weights. Instead,
    "each layer in the ball" and "whole in the ball", with the constants of the ball and their
    product.

    Measured: `C`, `C^L`, the largest `measured` and `in the ball` by layer, and `log10 of what the
    ball allows over measured`, for the whole, by input.

    Args:
        measured: lower bounds, such as `spectral.operator_norm` of each layer at some inputs.
        by_weights: constants of the same layers from norms of weights alone, such as
            `experiments/li2025/lipschitz.py` of each layer by itself with radius=0.
        in_ball: constants for inputs of this size and length (`experiments/li2025/lipschitz.py`).
        whole: measured constants of all layers together.

    >>> audit = section_4_lipschitz(
    ...     jnp.array([[1.0, 2.0], [9.0, 2.0]]), jnp.array([2.0, 3.0]),
    ...     jnp.array([[2.0, 3.0], [10.0, 3.0]]), whole=jnp.array([2.0, 20.0]))
    >>> claimed, held = audit.conclusions["each layer"], audit.instead["whole in the ball"]
    >>> claimed.holds.item(), held.holds.item()
    (False, True)
    """
    measured, by_weights, in_ball, whole = (
        jnp.asarray(x) for x in (measured, by_weights, in_ball, whole)
    )
    # What rounding may add to a norm.
    compare = partial(all_less_equal, tolerance=256 * float(jnp.finfo(measured.dtype).eps))
    C = jnp.max(by_weights)
    product = jnp.prod(in_ball, axis=-1)
    inputs = tuple(range(measured.ndim - 1))
    constants = {
        "C": C,
        "C^L": C ** by_weights.shape[0],
        "measured": jnp.max(measured, axis=inputs),
        "in the ball": jnp.max(in_ball, axis=inputs),
        "log10 of what the ball allows over measured": jnp.log10(product / whole),
    }
    conclusions = {
        "each layer": compare(measured, by_weights),
        "whole": compare(whole, constants["C^L"]),
    }
    instead = {
        "each layer in the ball": compare(measured, in_ball),
        "whole in the ball": compare(whole, product),
    }
    return Audit({}, conclusions, constants, instead)

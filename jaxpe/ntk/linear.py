"""Taylor expansions of a function in its parameters, by forward differentiation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxpe.geometry.checks import check_size
from jaxpe.ntk._checks import check_floating

Params = Any


def linearize(f: Callable[..., Any], params: Params) -> Callable[..., Any]:
    """The first-order Taylor expansion of f around some parameters.

    f_lin(θ, x) = f(θ₀, x) + ∂f/∂θ(θ₀, x)·(θ − θ₀), Eq. (4) of Lee et al. (2019), by one `jax.jvp`.
    In the limit of infinite width a network trains like its linearisation.

    Result and errors are as in `taylor_expand`.

    Args:
        f, params: arguments of `taylor_expand`.

    >>> f = lambda params, x: jnp.sin(params * x)
    >>> round(float(jaxpe.ntk.linearize(f, 0.0)(2.0, 3.0)), 6)
    6.0
    """
    return taylor_expand(f, params, degree=1)


def taylor_expand(f: Callable[..., Any], params: Params, *, degree: int) -> Callable[..., Any]:
    """The Taylor expansion of f around some parameters, up to a degree.

    Σ_k (1/k!) dᵏ/dtᵏ f(θ₀ + t(θ − θ₀), x) at t = 0, by `jax.jvp` nested `degree` times: its cost
    grows like 2^degree.

    Args:
        f: `(params, *args, **options)` to an array or a pytree of arrays.
        params: parameters at which to expand, floating arrays.
        degree: the highest power of θ − θ₀; 0 leaves f(θ₀, x).

    Returns:
        `f_taylor(new_params, *args, **options)`, of the structure of f.

    Raises:
        ValueError: a negative degree, or parameters that are not floating.

    >>> from jaxpe import ntk
    >>> cube = lambda params, x: params**3 * x
    >>> ntk.taylor_expand(cube, 1.0, degree=2)(3.0, 1.0).item()  # 1 + 3·2 + 3·2²
    19.0
    """
    check_size("degree", degree, least=0)
    params = jax.tree.map(jnp.asarray, params)
    check_floating(params)

    def f_taylor(new_params: Params, *args: Any, **options: Any) -> Any:
        step = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype) - old, new_params, params)

        def along(t):
            moved = jax.tree.map(lambda p, d: p + t.astype(p.dtype) * d, params, step)
            return f(moved, *args, **options)

        return _taylor_sum(_derivatives(along, degree)(jnp.zeros(())))

    return f_taylor


def _derivatives(h: Callable[..., Any], order: int) -> Callable[..., tuple[Any, ...]]:
    """`t -> (h(t), h'(t), ...)` up to an order, all from one nested evaluation."""
    if order == 0:
        return lambda t: (h(t),)
    lower = _derivatives(h, order - 1)

    def with_one_more(t):
        values, slopes = jax.jvp(lower, (t,), (jnp.ones_like(t),))
        return (*values, slopes[-1])

    return with_one_more


def _taylor_sum(derivatives: tuple[Any, ...]) -> Any:
    """Σ h⁽ᵏ⁾/k!, by Horner's rule at t = 1."""
    *lower, total = derivatives
    for k in range(len(lower), 0, -1):
        total = jax.tree.map(lambda value, rest, k=k: value + rest / k, lower[k - 1], total)
    return total

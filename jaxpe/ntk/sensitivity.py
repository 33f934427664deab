"""Sensitivity of the output to each parameter, and a warning where almost none has an effect."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import is_traced
from jaxpe.ntk._checks import Apply, Inputs, Params, check_floating, output_of


def parameter_sensitivity(f: Apply, params: Params, x: Inputs, *, key: Array) -> Params:
    """An estimate of ‖∂f/∂leaf‖_F for every leaf of the parameters, by one gradient.

    It is the norm of Jᵀv for standard normal v, whose square has mean ‖J‖_F². It is exactly 0 for
    leaves that do not change the output at these inputs, and with probability 1 for no others.

    Args:
        f: `(params, x) -> [batch, ...]`.
        params: floating arrays, whose structure the result has, of scalars.
        x: inputs with a leading batch axis.
        key: PRNG key for v.

    >>> f = lambda params, x: x @ params["used"]
    >>> params = {"used": jnp.ones((2, 1)), "unused": jnp.ones(3)}
    >>> norms = parameter_sensitivity(f, params, jnp.ones((4, 2)), key=jax.random.key(0))
    >>> norms["unused"].item(), bool(norms["used"] > 0)
    (0.0, True)
    """
    check_floating(params)
    out = output_of(f, params, x)
    _, pull = jax.vjp(lambda params: f(params, x), params)
    (gradient,) = pull(jax.random.normal(key, out.shape, out.dtype))
    return jax.tree.map(jnp.linalg.norm, jax.tree.map(jnp.ravel, gradient))


def warn_of_dead_parameters(f: Apply, params: Params, x: Inputs) -> None:
    """Warn if only the parameters of one layer have a nonzero Jacobian at x.

    A layer is a kernel and its bias: leaves of one parent, or two leaves if all have one parent.
    """
    norms = parameter_sensitivity(f, params, x, key=jax.random.key(0))
    if is_traced(*jax.tree.leaves(norms)):  # f closes over values of a transformation
        return
    leaves = jax.tree_util.tree_leaves_with_path(norms)
    by_path = [(_names(path), float(norm)) for path, norm in leaves]
    alive = [path for path, norm in by_path if norm != 0]
    dead = [path for path, norm in by_path if norm == 0]
    layers = {path[:-1] for path in alive}
    alone = len(layers) == 1 and not any(path[:-1] in layers for path in dead)
    if dead and (len(alive) <= 2 or alone):
        only = " and ".join(map("/".join, alive)) or "nothing"
        warnings.warn(
            f"of all parameters {only} moves the output here: {len(dead)} of {len(by_path)} arrays "
            "have a Jacobian of exactly 0, as all below a read-out initialised to 0 do, and the "
            "kernel leaves them out. Initialise the read-out at random, or train a step before; "
            "pass warn=False if this is meant",
            stacklevel=3,
        )


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """The names on the way to a leaf; Flax keeps an array as the `value` of its variable."""
    names = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
    return tuple(names[:-1] if names[-1:] == ["value"] and len(names) > 1 else names)

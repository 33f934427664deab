"""Positions on a logarithmic scale: one number for each position, and encodings of that number.

In text one number for each position, a power of 1 + i/τ, has most of the Hellinger geometry of the
corpus: see the page "Noise and composition" of the documentation.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import Scalar, namespace
from jaxpe.encodings.base import Encoding, as_positions, check_sizes, expand_rank, vector_dtype
from jaxpe.encodings.combine import moved_positions
from jaxpe.encodings.families.absolute import Mode, Positions, from_vectors, sinusoidal
from jaxpe.encodings.registry import register

TAU = 0.1  # positions; for the logarithm 0.003 to 1 fits up to 128 words of text best


def power_positions(
    positions: Positions, *, tau: Scalar = TAU, power: Scalar = 0.0
) -> Float[Array, "*batch n"]:
    """Box–Cox transform ((1 + i/τ)^a − 1)/a of positions: log(1 + i/τ) at a = 0, i/τ at a = 1.

    Box & Cox (1964). For a < 0 it tends to −1/a, for a ≥ 0 it grows without bound. It is odd in
    the position, and differentiable in τ > 0 and in a, at a = 0 as well.

    Args:
        positions: `[..., n]`.
        tau: τ, in positions.
        power: a.

    >>> np.round(power_positions(jnp.asarray([0, 1, 3]), tau=1.0).tolist(), 2).tolist()
    [0.0, 0.69, 1.39]
    >>> power_positions(jnp.arange(3), tau=1.0, power=1.0).tolist()
    [0.0, 1.0, 2.0]
    """
    _check_tau(tau)
    positions = as_positions(positions)
    dtype = vector_dtype(positions)
    i, tau, power = (jnp.asarray(x).astype(dtype) for x in (positions, tau, power))
    sign = jnp.where(i < 0, -1.0, 1.0).astype(dtype)  # with a derivative at 0
    logarithm = jnp.log1p(sign * i / tau)
    return sign * logarithm * _relative_growth(power * logarithm)


def _check_tau(tau: Scalar) -> None:
    if not isinstance(tau, jax.Array) and not float(np.asarray(tau)) > 0:
        raise ValueError(f"tau={tau} must be positive: pass 0.1, in positions")


def _relative_growth(z: Array) -> Array:
    """(exp(z) − 1)/z, and 1 at 0."""
    small = jnp.abs(z) < 1e-2
    series = 1 + z / 2 * (1 + z / 3 * (1 + z / 4 * (1 + z / 5 * (1 + z / 6))))
    safe = jnp.where(small, 1.0, z)
    return jnp.where(small, series, jnp.expm1(safe) / safe)


@register("log_position", source="jaxpe", vectors="a multiple of log(1 + i/0.1)")
def log_position(
    *,
    dim: int,
    length: int,
    tau: Scalar = TAU,
    power: Scalar = 0.0,
    learned: bool = False,
    scale: Scalar = 1.0,
    mode: Mode = "add",
) -> Encoding:
    """Logarithm of the position along one direction, added.

    The vectors are scale·w(i)/w(length − 1)·u, with w from `power_positions` and u of entries ±1.
    Their distances are multiples of |w(i) − w(j)|, whatever the width. Signs alternate, because a
    norm that subtracts the mean would remove a constant direction.

    Args:
        dim: width of the vectors.
        length: number of positions; entries lie in [−scale, scale] on them.
        tau, power: arguments of `power_positions`.
        learned: whether u, log τ and the power are parameters "direction" `[dim]`, "log_tau" and
            "power" that receive gradients; otherwise there are none.
        scale, mode: arguments of `sinusoidal`.

    >>> log_position(dim=2, length=3, tau=1.0).vectors((), jnp.arange(3)).round(2).tolist()
    [[0.0, -0.0], [0.63, -0.63], [1.0, -1.0]]
    """
    check_sizes(dim=dim, length=length)
    _check_tau(tau)
    start = {
        "direction": 1.0 - 2.0 * (np.arange(dim) % 2),
        "log_tau": namespace(tau).log(tau),
        "power": power,
    }

    def init(key):
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), start)

    def vectors(params, positions):
        params = params if learned else start
        tau = jnp.exp(jnp.asarray(params["log_tau"]))
        options = {"tau": tau, "power": params["power"]}
        w = power_positions(positions, **options)
        last = power_positions(jnp.asarray([max(length - 1, 1)]), **options)[0]
        direction = jnp.asarray(params["direction"])
        return (w / last)[..., None] * expand_rank(direction, w.ndim + 1, w.dtype)

    return from_vectors(vectors, init=init if learned else None, scale=scale, mode=mode)


@register(
    "sinusoidal_log",
    source="jaxpe",
    vectors="sinusoids of log(1 + i/0.1)",
    description="Sinusoids of the logarithm of the position, added",
    make=lambda s: warp_positions(sinusoidal(dim=s.dim), length=s.length),
)
def warp_positions(
    encoding: Encoding, *, length: int, tau: Scalar = TAU, power: Scalar = 0.0
) -> Encoding:
    """Positions on a logarithmic scale, for any encoding: (length − 1)·w(i)/w(length − 1).

    w is `power_positions`. Positions 0 and length − 1 stay where they are, those between move
    towards the end, and those beyond grow slowly: position 4·length is at about
    1.2·length for τ = 0.1 and length = 512. Relative encodings see differences of moved positions.

    Args:
        encoding: encoding whose positions are moved.
        length: training length, in positions.
        tau, power: arguments of `power_positions`.

    >>> from jaxpe import encodings
    >>> warped = warp_positions(encodings.alibi(num_heads=1), length=3, tau=1.0)
    >>> (2**8 * warped.vectors((), jnp.arange(3)).ravel()).round(3).tolist()
    [0.0, 1.262, 2.0]
    """
    check_sizes(length=length)
    _check_tau(tau)
    last = jnp.asarray([max(length - 1, 1)])

    def moved(positions):
        w = power_positions(positions, tau=tau, power=power)
        end = power_positions(last, tau=tau, power=power)[0].astype(w.dtype)
        return w * ((length - 1) / end)

    return moved_positions(encoding, moved)

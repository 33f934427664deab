"""Li (2025), Section 6.2: norms of Legendre encodings, and how far they move beyond training."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Real

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.families.orthogonal import legendre_vectors
from jaxpe.theory.audit import Audit, all_less_equal


@partial(jax.jit, static_argnames=("dim", "length", "s", "share"))
def section_6_legendre(
    beyond: Real[ArrayLike, " far"],
    *,
    dim: int,
    length: int,
    s: float | None = None,
    share: float = 0.1,
) -> Audit:
    """Compare Legendre encodings at positions beyond T with the one at T.

    Li (2025), Sections 6.2.3 and 6.2.4; reproduced under a stated reading: the inequalities
    hold, and differences are small for s ≤ T/5. Conclusions: "‖PE‖ ≤ √d", at T and beyond;
    "tanh", 1 − tanh(i/s) ≤ 2e^(−2i/s); "Taylor", |P_k(x) − 1| ≤ (1 − x)k(k + 1)/2; "each k",
    |P_k(x_i) − P_k(x_T)| ≤ k(k + 1)e^(−2T/s); "summed", Σ_k |P_k(x_i) − P_k(x_T)| ≤ Σ_k k(k +
    1)e^(−2T/s) = (d³ − d)/3 e^(−2T/s); "small", the largest ‖PE(i) − PE(T)‖ ≤ `share` ‖PE(T)‖.
    Instead, "by x": ‖PE(i) − PE(T)‖ ≤ √(Σ(k(k + 1)/2)²)(x_i − x_T), at most 2√d.

    Measured: `difference` ‖PE(i) − PE(T)‖ by position, `summed` and its `bound`, `bound by x`, `one
    step` ‖PE(T) − PE(T − 1)‖, without which no positions within T are distinct either, `norm`
    ‖PE(T)‖, and `x_T`.

    Args:
        beyond: positions i > T.
        dim, length: d and T.
        s: positions to a unit of tanh; T/4 when None, where tanh covers 99.9 % of (0, 1) within T.
        share: share of ‖PE(T)‖ that counts as small.

    >>> audit = section_6_legendre(jnp.arange(17, 128), dim=64, length=16)
    >>> [name for name, c in audit.conclusions.items() if not c.holds]
    ['small']
    """
    s = float(length / 4 if s is None else s)
    positions = jnp.concatenate([jnp.asarray([length - 1, length], beyond.dtype), beyond])
    rows = legendre_vectors(positions, dim=dim, length=length, s=s)
    dtype = rows.dtype
    t = positions.astype(dtype) / jnp.asarray(s, dtype)
    rest = 2 / (1 + jnp.exp(2 * t))  # 1 − tanh, which keeps its digits
    k = jnp.arange(dim, dtype=dtype)
    slopes = k * (k + 1) / 2
    apart = jnp.abs(rows[2:] - rows[1:2])
    difference = jnp.linalg.norm(apart, axis=1)
    step, norm = jnp.linalg.norm(rows[1] - rows[0]), jnp.linalg.norm(rows[1])
    each = 2 * slopes * jnp.exp(-2 * t[1])
    gone = rest[1] - rest[2:]
    by_x = jnp.minimum(jnp.linalg.norm(slopes) * gone, 2 * dim**0.5)
    compare = partial(all_less_equal, noise=64 * float(jnp.finfo(dtype).eps) * dim**0.5)
    conclusions = {
        "‖PE‖ ≤ √d": compare(jnp.linalg.norm(rows, axis=1), dim**0.5),
        "tanh": compare(rest, 2 * jnp.exp(-2 * t)),
        "Taylor": compare(1 - rows[:, 1:], slopes[None, 1:] * rest[:, None]),
        "each k": compare(apart[:, 1:], each[None, 1:]),
        "summed": compare(jnp.sum(apart, axis=1), jnp.sum(each)),
        "small": compare(difference, jnp.asarray(share, dtype) * norm),
    }
    measured = {
        "difference": difference,
        "summed": jnp.sum(apart, axis=1),
        "bound": jnp.sum(each),
        "bound by x": by_x,
        "one step": step,
        "norm": norm,
        "x_T": 1 - rest[1],
    }
    return Audit({}, conclusions, measured, {"by x": compare(difference, by_x)})

"""Induced distances: the distances between positions that any encoding defines."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_positions,
    centered_positions,
    check_inner_products,
)
from jaxpe.geometry.distances.matrices import Distances, as_present, euclidean_distances, safe_sqrt


def encoding_distances(
    encoding: Encoding,
    params: Params,
    positions: ArrayLike,
    *,
    num_heads: int | None = None,
    head_dim: int | None = None,
    by: Literal["vectors", "logits"] | None = None,
) -> Distances:
    """Distances between positions that an encoding induces, by vectors or by logits.

    By "vectors" these are the Euclidean distances of its position vectors. By "logits" d_ij² =
    Σ_heads E(L_ij − L_ii)², for queries and keys from N(0, I). This is the mean squared change of a
    query's logits at i when its key moves from i to j. The mean of d_ij² and d_ji² makes it
    symmetric. Logits are q·M_ij k/√head_dim + α_ij·q + β_ij·k + γ_ij, so the expectation is exact:
    ‖ΔM‖²/head_dim + ‖Δα‖² + ‖Δβ‖² + Δγ². (Hooks may add to q and k as well as turn them.)

    This one definition gives m|i − j| for ALiBi and the sinusoidal distances (times √(2/head_dim))
    for RoPE. It gives |b(j−i) − b(0)| for T5 and ‖a_{j−i} − a_0‖ for Shaw. It is a dissimilarity:
    the triangle inequality holds for the first two, not for every table. For CoPE, which depends on
    content, keys are 0, so each counts one half.

    Args:
        encoding: any encoding; one that acts on embeddings needs `vectors`.
        params: parameters of the encoding.
        positions: `[n]`.
        num_heads, head_dim: number and width of heads, needed for logits. Memory by logits grows as
            n·head_dim² for each head, so one at a time saves memory.
        by: "vectors" or "logits"; None takes "vectors" where the encoding has them. A chain has the
            vectors of the one part that defines them; by "logits" all its parts count.

    Raises:
        ValueError: by logits, for an encoding that acts on embeddings, which have no logits yet, or
            that depends on the hidden states, or that has `products` of its own.

    >>> kerple = jaxpe.encodings.kerple(num_heads=1)
    >>> params = {"log_r1": jnp.zeros(1), "log_r2": jnp.zeros(1)}
    >>> d = encoding_distances(kerple, params, jnp.arange(3), num_heads=1, head_dim=4)
    >>> [round(x, 3) for x in d.values[0].tolist()]  # log(1 + |i − j|)
    [0.0, 0.693, 1.099]
    """
    if by == "vectors" or (by is None and encoding.defines("vectors")):
        return euclidean_distances(encoding.vectors(params, positions))
    if encoding.defines("embed"):
        raise ValueError(
            "the encoding acts on embeddings, so logits depend on the projections: define "
            "`vectors`, the points it adds"
        )
    check_inner_products(encoding)
    if num_heads is None or head_dim is None:
        raise ValueError("distances by logits need num_heads= and head_dim=, as the model has them")
    positions = as_positions(positions)
    if not positions.ndim:
        raise ValueError("positions are a single number: pass positions [n]")
    return _logit_distances(
        params, positions, encoding=encoding, num_heads=num_heads, head_dim=head_dim
    )


@partial(jax.jit, static_argnames=("encoding", "num_heads", "head_dim"))
def _logit_distances(
    params: Params, positions: Array, *, encoding: Encoding, num_heads: int, head_dim: int
) -> Distances:
    probe = _Probe(encoding, params, positions, (positions.shape[0], num_heads, head_dim))
    change = _key_differences(probe) + _affine_differences(probe)
    symmetric = (change + change.T) / 2
    return Distances(safe_sqrt(jnp.maximum(symmetric, 0.0)), as_present(None, len(positions)))


class _Probe(NamedTuple):
    """An encoding applied to queries and keys of one direction at every position."""

    encoding: Encoding
    params: Params
    positions: Array
    shape: tuple[int, int, int]  # n, heads, head_dim

    def query(self, direction: Array) -> Array:
        return self._encoded(self.encoding.query, direction)

    def key(self, direction: Array) -> Array:
        return self._encoded(self.encoding.key, direction)

    def _encoded(self, hook: Callable[..., Array], direction: Array) -> Array:
        positions, _ = centered_positions(self.encoding, self.positions, self.positions)
        return hook(self.params, jnp.broadcast_to(direction, self.shape), positions)

    def moved_logits(self, q: Array, k: Array) -> Array:
        """L_ij − L_ii, `[heads, n, n]`; the scale is 1/√head_dim, whatever width keys get."""
        n, heads, dim = self.shape
        logits = jnp.einsum("qhd,khd->hqk", q, k, precision=lax.Precision.HIGHEST) * dim**-0.5
        bias = self.encoding.bias(self.params, q, k, self.positions, self.positions)
        if bias is not None:
            logits = logits + jnp.broadcast_to(bias, (heads, n, n)).astype(q.dtype)
        return logits - jnp.diagonal(logits, axis1=1, axis2=2)[:, :, None]


def _key_differences(probe: _Probe) -> Array:
    """Σ_heads ‖M_ij − M_ii‖² / head_dim for the bilinear part, from the images of a basis."""
    n, _, dim = probe.shape
    if not (probe.encoding.defines("query") or probe.encoding.defines("key")):
        return jnp.zeros((n, n))
    q, k = (
        jax.vmap(hook)(jnp.eye(dim)) - hook(jnp.zeros(dim))[None]  # [head_dim, n, heads, head_dim]
        for hook in (probe.query, probe.key)
    )

    def row(i: Array) -> Array:
        """Row i, by differences of keys: expanding the square would lose small distances."""
        step = k - lax.dynamic_index_in_dim(k, i, axis=1, keepdims=True)
        query_image = lax.dynamic_index_in_dim(q, i, axis=1, keepdims=False)
        moved = jnp.einsum("ahd,bjhd->jhab", query_image, step, precision=lax.Precision.HIGHEST)
        return jnp.sum(moved**2, axis=(1, 2, 3)) / dim

    return lax.map(row, jnp.arange(n))


def _affine_differences(probe: _Probe) -> Array:
    """Σ_heads ‖Δα‖² + ‖Δβ‖² + Δγ², from the logits at 0 and at a basis of q or of k."""
    n, _, dim = probe.shape
    if not any(probe.encoding.defines(hook) for hook in ("query", "key", "bias")):
        return jnp.zeros((n, n))
    q_0, k_0 = probe.query(jnp.zeros(dim)), probe.key(jnp.zeros(dim))
    constant = probe.moved_logits(q_0, k_0)

    def add(total: Array, direction: Array) -> tuple[Array, None]:
        to_q = probe.moved_logits(probe.query(direction), k_0) - constant
        to_k = probe.moved_logits(q_0, probe.key(direction)) - constant
        return total + jnp.sum(to_q**2 + to_k**2, axis=0), None

    return lax.scan(add, jnp.sum(constant**2, axis=0), jnp.eye(dim, dtype=constant.dtype))[0]

"""Distances that an encoding induces between positions, so that stress can be asked of all."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import Encoding, Params, centered_positions, check_inner_products
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
    """Distances between positions as an encoding has them.

    By "vectors", the Euclidean distances of its position vectors. By "logits", how much the logits
    change when a key moves from position i to j, seen from i, for queries and keys drawn
    from N(0, I): d_ij² = Σ_heads E(L_ij − L_ii)², made symmetric by the mean of d_ij² and d_ji².
    Logits are q·M_ij k/√head_dim + α_ij·q + β_ij·k + γ_ij, so the expectation is exact:
    ‖ΔM‖²/head_dim + ‖Δα‖² + ‖Δβ‖² + Δγ². (Hooks may add to q and k as well as turn them.)

    With one definition this gives the maps used elsewhere: for ALiBi the line m|i − j|, for RoPE
    the sinusoidal distances (times √(2/head_dim)); for T5 it is |b(j−i) − b(0)|, for Shaw
    ‖a_{j−i} − a_0‖. It is a dissimilarity: the triangle inequality holds for the first two, not for
    every table. A contextual encoding (CoPE) is asked with keys without content, where each key
    counts one half.

    Args:
        encoding: any; what acts on embeddings needs `vectors`.
        params: parameters of the encoding.
        positions: `[n]`.
        num_heads, head_dim: heads the encoding is used with and their width, needed for logits.
            One at a time saves memory: by logits it grows as n·head_dim² for each. Time grows as
            n²·head_dim³ where the encoding has `products` of its own, which must be bilinear.
        by: "vectors" where the encoding has them when None, otherwise "logits". The vectors of a
            chain are those of the one part that has any; by "logits" all its parts count.

    Raises:
        ValueError: by logits, where the encoding acts on embeddings, which have no logits yet, or
            depends on the hidden states.

    >>> kerple = jaxpe.kerple(num_heads=1)
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
    check_inner_products(encoding, hooks=["context"])
    if num_heads is None or head_dim is None:
        raise ValueError("distances by logits need num_heads= and head_dim=, as the model has them")
    heads = {"num_heads": num_heads, "head_dim": head_dim}
    return _by_logits(params, jnp.asarray(positions), encoding=encoding, **heads)


@partial(jax.jit, static_argnames=("encoding", "num_heads", "head_dim"))
def _by_logits(
    params: Params, positions: Array, *, encoding: Encoding, num_heads: int, head_dim: int
) -> Distances:
    shape = (positions.shape[0], num_heads, head_dim)
    change = _moved_keys(encoding, params, positions, shape)
    change = change + _moved_rest(encoding, params, positions, shape)
    symmetric = (change + change.T) / 2
    return Distances(safe_sqrt(jnp.maximum(symmetric, 0.0)), as_present(None, shape[0]))


def _moved_keys(
    encoding: Encoding, params: Params, positions: Array, shape: tuple[int, int, int]
) -> Array:
    """Σ_heads ‖M_ij − M_ii‖² / head_dim for the bilinear part, from the images of a basis."""
    n, _, dim = shape
    dtype = jnp.result_type(float)
    if encoding.defines("products"):
        zero = jnp.zeros(shape, dtype)
        return _moved_products(encoding, params, positions, zero) / dim
    if not (encoding.defines("query") or encoding.defines("key")):
        return jnp.zeros((n, n), dtype)
    basis = jnp.broadcast_to(jnp.eye(dim, dtype=dtype)[:, None, None, :], (dim, *shape))
    zero = jnp.zeros(shape, dtype)
    hook_positions, _ = centered_positions(encoding, positions, positions)

    def images(hook) -> Array:
        turned = jax.vmap(lambda x: hook(params, x, hook_positions))(basis)
        return turned - hook(params, zero, hook_positions)[None]

    return _moved_by_row(images(encoding.query), images(encoding.key))


def _moved_by_row(q: Array, k: Array) -> Array:
    """Σ_heads ‖M_ij − M_ii‖² / head_dim, from images `[head_dim, n, heads, head_dim]`."""
    dim, n, *_ = q.shape

    def row(i: Array) -> Array:
        """Differences of the keys first: expanding the square would cost the small distances."""
        step = k - lax.dynamic_index_in_dim(k, i, axis=1, keepdims=True)
        seen = lax.dynamic_index_in_dim(q, i, axis=1, keepdims=False)
        moved = jnp.einsum("ahd,bjhd->jhab", seen, step, precision=lax.Precision.HIGHEST)
        return jnp.sum(moved**2, axis=(1, 2, 3)) / dim

    return lax.map(row, jnp.arange(n))


def _moved_products(encoding: Encoding, params: Params, positions: Array, zero: Array) -> Array:
    """Σ_heads ‖M_ij − M_ii‖² where the encoding has products of its own, entry by entry of M."""
    hook_positions, _ = centered_positions(encoding, positions, positions)

    def probe(hook, direction: Array) -> Array:
        return hook(params, jnp.broadcast_to(direction, zero.shape), hook_positions)

    def of_query(total: Array, direction: Array) -> tuple[Array, None]:
        q = probe(encoding.query, direction)

        def of_key(total: Array, direction: Array) -> tuple[Array, None]:
            k = probe(encoding.key, direction)
            seen = _products(encoding, params, positions, q, k)
            moved = seen - jnp.diagonal(seen, axis1=1, axis2=2)[:, :, None]
            return total + jnp.sum(moved**2, axis=0), None

        return lax.scan(of_key, total, directions)[0], None

    directions = jnp.eye(zero.shape[-1], dtype=zero.dtype)
    nothing = jnp.zeros((zero.shape[0],) * 2, zero.dtype)
    return lax.scan(of_query, nothing, directions)[0]


def _moved_rest(
    encoding: Encoding, params: Params, positions: Array, shape: tuple[int, int, int]
) -> Array:
    """Σ_heads ‖Δα‖² + ‖Δβ‖² + Δγ², from the logits at 0 and at a basis of q or of k."""
    n, *_ = shape
    dtype = jnp.result_type(float)
    if not any(encoding.defines(hook) for hook in ("query", "key", "bias")):
        return jnp.zeros((n, n), dtype)
    zero = jnp.zeros(shape, dtype)
    hook_positions, _ = centered_positions(encoding, positions, positions)
    q_0, k_0 = (hook(params, zero, hook_positions) for hook in (encoding.query, encoding.key))
    constant = _logits_moved(encoding, params, positions, q_0, k_0, shape[-1])
    return _over_directions(encoding, params, positions, zero, q_0, k_0, constant)


def _logits_moved(
    encoding: Encoding, params: Params, positions: Array, q: Array, k: Array, dim: int
) -> Array:
    """L_ij − L_ii, `[heads, n, n]`, of heads that were `dim` wide before the encoding."""
    n, heads, _ = q.shape
    bias = encoding.bias(params, q, k, positions, positions)
    bias = jnp.zeros((1, 1, 1)) if bias is None else bias
    products = _products(encoding, params, positions, q, k)
    logits = products * dim**-0.5 + jnp.broadcast_to(bias, (heads, n, n)).astype(q.dtype)
    return logits - jnp.diagonal(logits, axis1=1, axis2=2)[:, :, None]


def _products(encoding: Encoding, params: Params, positions: Array, q: Array, k: Array) -> Array:
    """The encoding's own products, or the inner ones, `[heads, n, n]`."""
    products = encoding.products(params, q, k, positions, positions)
    if products is not None:
        return products
    return jnp.einsum("qhd,khd->hqk", q, k, precision=lax.Precision.HIGHEST)


def _over_directions(
    encoding: Encoding,
    params: Params,
    positions: Array,
    zero: Array,
    q_0: Array,
    k_0: Array,
    constant: Array,
) -> Array:
    """Σ_heads of the squares of the constant and of what each direction of q and of k adds."""
    dim = zero.shape[-1]
    hook_positions, _ = centered_positions(encoding, positions, positions)

    def add(total: Array, direction: Array) -> tuple[Array, None]:
        probe = jnp.broadcast_to(direction[None, None, :], zero.shape)
        q, k = (
            encoding.query(params, probe, hook_positions),
            encoding.key(params, probe, hook_positions),
        )
        to_q = _logits_moved(encoding, params, positions, q, k_0, dim) - constant
        to_k = _logits_moved(encoding, params, positions, q_0, k, dim) - constant
        return total + jnp.sum(to_q**2 + to_k**2, axis=0), None

    directions = jnp.eye(dim, dtype=constant.dtype)
    return lax.scan(add, jnp.sum(constant**2, axis=0), directions)[0]

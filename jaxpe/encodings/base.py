"""What an encoding is: a tuple of pure functions, and how encodings are put together.

Shapes throughout: token embeddings x are `[..., n, d]`, queries, keys and values `[..., n, heads,
head_dim]`, positions `[..., n]`, logits and weights `[..., heads, n_q, n_k]`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.geometry.distances import floating

Params = Any


def _no_params(key: Array) -> Params:
    return ()


def _unchanged(params: Params, x: ArrayLike, positions: ArrayLike) -> Array:
    return jnp.asarray(x)


def _no_term(params: Params, *arrays: ArrayLike) -> None:
    return None


def _no_vectors(params: Params, positions: ArrayLike) -> Array:
    raise ValueError(
        "this encoding has no position vectors; encoding_distances gives the distances it induces"
    )


class Encoding(NamedTuple):
    """A positional encoding: pure functions, each doing nothing unless given.

    Positions are always explicit, integers or floats, `[..., n]`, so packed, padded, shifted and
    cached sequences are right without further ado. Parameters are a plain pytree, made by `init`;
    before that an encoding holds no arrays of its own. Build an encoding once and close over it, or
    pass it as a static argument of `jit`: two builds are two functions, and compile twice.

    Attributes:
        init: `key -> params`, () where there are none.
        embed: `(params, x, positions) -> x` acts on token embeddings `[..., n, d]`.
        query: `(params, q, positions) -> q` acts on queries `[..., n, heads, head_dim]`.
        key: the same for keys; a cached key is encoded once.
        bias: `(params, q, k, q_positions, k_positions) -> bias`, added to q·k/√head_dim; broadcasts
            to `[..., heads, n_q, n_k]`, float32 or wider. q and k come as `query` and `key` left
            them. None where there is no bias, as `jax.nn.dot_product_attention` expects.
        value: `(params, weights, q_positions, k_positions) -> term`, added to the attention output
            `[..., n_q, heads, head_dim]`, from the weights `[..., heads, n_q, n_k]`; or None.
        vectors: `(params, positions) -> [n, d]`, the points whose distances the stress measures;
            every encoding documents its map.
        from_middle: whether factors of `query` and `key` grow with position but cancel in products,
            which depend on offsets alone. Attention that encodes queries and keys together then
            counts both from the middle of their positions, where such factors fit the floats.

    >>> halve = Encoding(query=lambda params, q, positions: q / 2)
    >>> halve.query(halve.init(jax.random.key(0)), jnp.ones((3, 1, 2)), jnp.arange(3)).max().item()
    0.5
    >>> halve.defines("query"), halve.defines("bias")
    (True, False)
    """

    init: Callable[[Array], Params] = _no_params
    embed: Callable[[Params, ArrayLike, ArrayLike], Array] = _unchanged
    query: Callable[[Params, ArrayLike, ArrayLike], Array] = _unchanged
    key: Callable[[Params, ArrayLike, ArrayLike], Array] = _unchanged
    bias: Callable[[Params, ArrayLike, ArrayLike, ArrayLike, ArrayLike], Array | None] = _no_term
    value: Callable[[Params, ArrayLike, ArrayLike, ArrayLike], Array | None] = _no_term
    vectors: Callable[[Params, ArrayLike], Array] = _no_vectors
    from_middle: bool = False

    def defines(self, hook: str) -> bool:
        """Whether the encoding does anything at `hook`."""
        return getattr(self, hook) is not self._field_defaults[hook]


def identity() -> Encoding:
    """No positional encoding (NoPE): every hook does nothing.

    >>> identity().defines("embed")
    False
    """
    return Encoding()


def chain(*encodings: Encoding) -> Encoding:
    """Several encodings as one, as Optax chains gradient transformations.

    `embed`, `query` and `key` apply in order; biases and value terms add; `vectors` is the one
    that is defined, and a ValueError where several are. The parameters are a tuple, one entry an
    encoding. A hook that no part defines stays undefined. One encoding alone stays itself.

    >>> both = chain(jaxpe.rope(head_dim=4), jaxpe.alibi(num_heads=2))
    >>> both.defines("query"), both.defines("bias"), both.defines("embed")
    (True, True, False)
    """
    if len(encodings) == 1:
        return encodings[0]

    def in_order(hook):
        def apply(params, x, positions):
            for part, own in zip(encodings, params, strict=True):
                x = getattr(part, hook)(own, x, positions)
            return x

        return apply

    def added(hook):
        def apply(params, *args):
            parts = zip(encodings, params, strict=True)
            return _sum([getattr(part, hook)(own, *args) for part, own in parts])

        return apply

    with_vectors = [i for i, part in enumerate(encodings) if part.defines("vectors")]

    def vectors(params, positions):
        if len(with_vectors) > 1:
            raise ValueError(
                f"encodings {with_vectors} of the chain all have position vectors: ask one of them"
            )
        return encodings[with_vectors[0]].vectors(params[with_vectors[0]], positions)

    hooks = {"init": _init_each(encodings), "vectors": vectors}
    hooks |= {name: in_order(name) for name in ("embed", "query", "key")}
    hooks |= {name: added(name) for name in ("bias", "value")}
    return Encoding(**_defined(hooks, encodings))


def per_head(encodings: Sequence[Encoding], *, heads: Sequence[int] | None = None) -> Encoding:
    """Different encodings for different heads: partial RoPE on k heads, mixed heads.

    The first `heads[0]` heads take `encodings[0]`, and so on; one head each when `heads` is None.
    An encoding that counts heads itself (ALiBi) is built for those it gets. Keys may have fewer
    heads (grouped queries) where the groups divide alike. Parameters are a tuple.

    Raises:
        ValueError: where an encoding acts on the embeddings, which all heads share, or the heads
            of an array are not those given here.

    >>> mixed = per_head([jaxpe.rope(head_dim=4), identity()], heads=[1, 3])
    >>> q = mixed.query(((), ()), jnp.ones((2, 4, 4)), jnp.arange(2))
    >>> (q[1] == 1).all(axis=-1).tolist()
    [False, True, True, True]
    """
    heads = [1] * len(encodings) if heads is None else list(heads)
    if len(heads) != len(encodings) or min(heads, default=0) < 1:
        raise ValueError(
            f"heads={heads} must give at least one head to each of {len(encodings)} encodings"
        )
    for i, part in enumerate(encodings):
        if part.defines("embed"):
            raise ValueError(
                f"encoding {i} acts on the embeddings, which all heads share: chain it instead"
            )

    def split(x, axis=-2, *, grouped=False):
        """The heads of each encoding; only keys may have fewer, shared by groups of queries."""
        if not grouped:
            check_heads(jnp.shape(x), sum(heads), axis=axis)
        return jnp.split(x, _boundaries(heads, x.shape[axis]), axis=axis)

    def each(hook):
        def apply(params, x, positions):
            parts = zip(encodings, params, split(x, grouped=hook == "key"), strict=True)
            pieces = [getattr(part, hook)(own, piece, positions) for part, own, piece in parts]
            return jnp.concatenate(pieces, axis=-2)

        return apply

    def bias(params, q, k, q_positions, k_positions):
        parts = zip(encodings, params, split(q), split(k, grouped=True), heads, strict=True)
        pieces = [
            (part.bias(own, q_part, k_part, q_positions, k_positions), h)
            for part, own, q_part, k_part, h in parts
        ]
        return _joined(pieces, axis=-3, shape=(q.shape[-3], k.shape[-3]))

    def value(params, weights, q_positions, k_positions):
        parts = zip(encodings, params, split(weights, axis=-3), heads, strict=True)
        pieces = [
            (part.value(own, piece, q_positions, k_positions), h) for part, own, piece, h in parts
        ]
        dim = next((piece.shape[-1] for piece, _ in pieces if piece is not None), 1)
        return _joined(pieces, axis=-2, shape=(dim,))

    hooks = {"init": _init_each(encodings), "bias": bias, "value": value}
    hooks |= {name: each(name) for name in ("query", "key")}
    return Encoding(**_defined(hooks, encodings))


def scale_positions(encoding: Encoding, factor: float | ArrayLike) -> Encoding:
    """The same encoding at positions factor·i, now floats: position interpolation for factor < 1.

    Chen et al. (2023). For RoPE it equals linear scaling by 1/factor, which is exact far out where
    float32 positions factor·i are rounded (by up to 6e-8·factor·i). The factor may be traced.

    >>> near = scale_positions(jaxpe.alibi(num_heads=1), 0.5)
    >>> near.vectors((), jnp.arange(3)).ravel().tolist() == [0.0, 2**-9, 2**-8]
    True
    """

    def moved(positions):
        positions = as_positions(positions)
        dtype = vector_dtype(positions)
        return positions.astype(dtype) * jnp.asarray(factor, dtype)

    def one(hook):
        return lambda params, x, positions: getattr(encoding, hook)(params, x, moved(positions))

    def pairs(hook):
        def apply(params, *args):
            *arrays, q_positions, k_positions = args
            return getattr(encoding, hook)(params, *arrays, moved(q_positions), moved(k_positions))

        return apply

    def vectors(params, positions):
        return encoding.vectors(params, moved(positions))

    hooks = {"init": encoding.init, "vectors": vectors}
    hooks |= {name: one(name) for name in ("embed", "query", "key")}
    hooks |= {name: pairs(name) for name in ("bias", "value")}
    return Encoding(**_defined(hooks, [encoding]))


def from_middle(
    encoding: Encoding, q_positions: ArrayLike, k_positions: ArrayLike
) -> tuple[ArrayLike, ArrayLike]:
    """Positions for `query` and `key`, where both are called: as given, or from their middle.

    >>> i, j = from_middle(jaxpe.xpos(head_dim=2), jnp.asarray([40_006]), jnp.asarray([40_000]))
    >>> i.item(), j.item()
    (3, -3)
    """
    if not encoding.from_middle or not (np.size(q_positions) and np.size(k_positions)):
        return q_positions, k_positions
    i, j = as_positions(q_positions), as_positions(k_positions)
    dtype = _wider(i, j)
    i, j = i.astype(dtype), j.astype(dtype)
    low = jnp.minimum(jnp.min(i), jnp.min(j))
    high = jnp.maximum(jnp.max(i), jnp.max(j))
    middle = low // 2 + high // 2  # their sum may exceed int32
    return i - middle, j - middle


def as_positions(positions: ArrayLike) -> Array:
    """Positions as int32, float32 or float64.

    Raises:
        ValueError: for 16-bit floats, which cannot count (bfloat16 ends at 256), for booleans, and
            for integers that int32 cannot hold.
    """
    given, positions = positions, jnp.asarray(positions)
    if jnp.issubdtype(positions.dtype, jnp.integer):
        # NumPy's own 64 bits, which JAX may have cut already, or those of an array of JAX.
        _check_range(given if isinstance(given, np.ndarray) else positions)
        return positions.astype(jnp.int32)
    if not jnp.issubdtype(positions.dtype, jnp.floating) or positions.dtype.itemsize < 4:
        raise ValueError(
            f"positions are {positions.dtype}, which cannot tell positions apart: pass int32, or "
            "float32 where they are fractional"
        )
    return positions


def _check_range(positions: ArrayLike) -> None:
    """Positions known when tracing must fit int32: 2³² + 1 would become 1 without a word."""
    fits = np.can_cast(positions.dtype, np.int32)
    if fits or is_traced(positions) or not np.size(positions):
        return
    values = np.asarray(positions)  # a known array of JAX would be traced by np.min itself
    for extreme in (values.min(), values.max()):
        if not -(2**31) <= int(extreme) < 2**31:
            raise ValueError(f"position {extreme} is beyond 32 bits: pass smaller ones, or floats")


def align_positions(
    positions: ArrayLike, shape: tuple[int, ...], *, after: int, axes: int = 0
) -> Array:
    """Positions with as many axes as those of `shape` up to n, so that they broadcast against it.

    Args:
        positions: `[..., n]`, with `axes` more axes behind.
        shape: of the array `[..., n, <after axes>]` they belong to.
        after: axes of that array behind n: 1 for embeddings, 2 for queries and keys.
        axes: axes of the positions behind n (1 where a position has several coordinates).

    Raises:
        ValueError: where the shapes do not go together.
    """
    positions = as_positions(positions)
    leading = shape[: len(shape) - after]
    own = positions.shape[: positions.ndim - axes]
    missing = len(leading) - len(own)
    fits = 0 < len(own) <= len(leading) and all(
        a in (1, b) for a, b in zip(own, leading[missing:], strict=True)
    )
    if not fits or own[-1] != leading[-1]:
        raise ValueError(
            f"positions of shape {positions.shape} do not fit an array of shape {shape}: pass "
            f"[..., n] with n = {leading[-1] if leading else '?'} and leading axes that broadcast"
        )
    return positions.reshape((1,) * missing + positions.shape)


def position_offsets(
    q: ArrayLike, k: ArrayLike, q_positions: ArrayLike, k_positions: ArrayLike
) -> Array:
    """Offsets j − i of keys from queries, `[..., 1, n_q, n_k]`: one axis of 1 for the heads.

    As many axes as q `[..., n_q, heads, head_dim]` has, of the dtype of the positions: exact for
    integers.

    >>> x, i = jnp.zeros((2, 1, 4)), jnp.arange(2)
    >>> position_offsets(x, x, i, i).tolist()
    [[[0, 1], [-1, 0]]]
    """
    i = align_positions(q_positions, q.shape, after=2)
    j = align_positions(k_positions, k.shape, after=2)
    return _differences(i, j)


def weight_offsets(weights: ArrayLike, q_positions: ArrayLike, k_positions: ArrayLike) -> Array:
    """The same offsets beside weights `[..., heads, n_q, n_k]`."""
    *lead, _, n_q, n_k = weights.shape
    i = align_positions(q_positions, (*lead, n_q), after=0)
    j = align_positions(k_positions, (*lead, n_k), after=0)
    return _differences(i, j)


def _differences(i: Array, j: Array) -> Array:
    dtype = _wider(i, j)
    return j.astype(dtype)[..., None, None, :] - i.astype(dtype)[..., None, :, None]


def _wider(i: Array, j: Array) -> jnp.dtype:
    # Of int32, float32 and float64 the later; jnp.promote_types refuses when promotion is strict.
    return max(i.dtype, j.dtype, key=lambda dtype: (dtype.kind == "f", dtype.itemsize))


def neighbours(places: Array, length: int) -> tuple[Array, Array, Array]:
    """Rows around fractional places, clipped to [0, length − 1]: lower, upper, upper's weight."""
    places = jnp.clip(places, 0, length - 1)
    low = jnp.floor(places)
    high = jnp.minimum(low + 1, length - 1)
    return low.astype(jnp.int32), high.astype(jnp.int32), places - low


def with_axes(values: ArrayLike, ndim: int, dtype: jnp.dtype | type | None = None) -> Array:
    """Values, cast to `dtype` if given, with axes of 1 in front until they have `ndim`."""
    values = jnp.asarray(values, dtype)
    return values.reshape((1,) * (ndim - values.ndim) + values.shape)


def as_mask(mask: ArrayLike) -> Array:
    """A mask as a boolean array, true where something counts.

    Raises:
        ValueError: where it is not boolean: an additive one would be taken backwards.
    """
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise ValueError(
            f"mask is {mask.dtype}, not boolean: pass mask.astype(bool) for one of 0 and 1, or "
            "mask == 0 for an additive one of 0 and large negative numbers"
        )
    return mask


def broadcast_mask(mask: ArrayLike, shape: tuple[int, ...]) -> Array:
    """`as_mask`, broadcast to a shape; ValueError where it does not."""
    mask = as_mask(mask)
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim > len(shape) or any(own not in (1, whole) for own, whole in sizes):
        raise ValueError(f"mask has shape {mask.shape}, which does not broadcast to {shape}")
    return jnp.broadcast_to(with_axes(mask, len(shape)), shape)


def as_floats(x: ArrayLike, name: str) -> Array:
    """Floats as they are, also of 16 bits; integers as JAX's default float."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else floating(x, name)


def compute_dtype(x: ArrayLike) -> jnp.dtype:
    """The dtype of phases, biases and other sensitive numbers beside x: never below float32."""
    return jnp.dtype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)


def vector_dtype(positions: ArrayLike) -> jnp.dtype:
    """The dtype of vectors made from positions alone: that of floats, the default for integers."""
    dtype = as_positions(positions).dtype
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)


def check_heads(shape: tuple[int, ...], num_heads: int, *, axis: int = -2) -> None:
    """Raise where an array `[..., heads, head_dim]` does not have the heads an encoding expects."""
    if shape[axis] != num_heads:
        raise ValueError(
            f"the encoding was built for {num_heads} heads, but the array of shape {shape} has "
            f"{shape[axis]}: pass num_heads={shape[axis]}"
        )


def check_head_dim(shape: tuple[int, ...], head_dim: int) -> None:
    """Raise where an array `[..., heads, head_dim]` is not as wide as an encoding expects."""
    if shape[-1] != head_dim:
        raise ValueError(
            f"the encoding was built for head_dim={head_dim}, but the array of shape {shape} has "
            f"{shape[-1]}: pass head_dim={shape[-1]}"
        )


def check_sizes(**sizes: int) -> None:
    """Raise where an option that counts something (num_heads=…) is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def check_queries_and_keys(q: Array, k: Array) -> None:
    """Raise where queries and keys `[..., n, heads, head_dim]` have no products."""
    leading = zip(q.shape[:-3], k.shape[:-3], strict=False)
    fits = 3 <= q.ndim == k.ndim and 1 <= q.shape[-1] == k.shape[-1]
    if not fits or any(1 != a != b != 1 for a, b in leading):
        raise ValueError(
            f"q has shape {q.shape} and k {k.shape}: pass [..., n_q, heads, head_dim] and "
            "[..., n_k, heads, head_dim], of one width and with as many axes"
        )


def repeat_heads(k: ArrayLike, num_heads: int) -> Array:
    """Keys or values `[..., n, groups, d]` repeated for the query heads, a multiple of theirs."""
    k = jnp.asarray(k)
    groups = k.shape[-2]
    if groups == num_heads:
        return k
    if not groups or num_heads % groups:
        raise ValueError(f"{num_heads} query heads cannot share {groups} key heads evenly")
    return jnp.repeat(k, num_heads // groups, axis=-2)


def _init_each(encodings: Sequence[Encoding]) -> Callable[[Array], Params]:
    """Parameters of every part, from keys of their own."""

    def init(key):
        keys = jax.random.split(key, len(encodings))
        return tuple(part.init(k) for part, k in zip(encodings, keys, strict=True))

    return init


def _defined(hooks: dict[str, Callable], parts: Sequence[Encoding]) -> dict[str, Any]:
    """The hooks that some part defines; always init, whose shape follows from the parts."""
    defined: dict[str, Any] = {
        name: hook
        for name, hook in hooks.items()
        if name == "init" or any(part.defines(name) for part in parts)
    }
    acting = [part.from_middle for part in parts if part.defines("query") or part.defines("key")]
    return defined | {"from_middle": bool(acting) and all(acting)}


def _sum(terms: list[Array | None]) -> Array | None:
    given = [term for term in terms if term is not None]
    return sum(given[1:], start=given[0]) if given else None


def _boundaries(heads: list[int], available: int) -> list[int]:
    """Where to split an axis of `available` heads; fewer than sum(heads) when keys are grouped."""
    share, rest = divmod(sum(heads), available)
    if rest or any(h % share for h in heads):
        raise ValueError(
            f"the encodings cover {sum(heads)} heads as {heads}, but the array has {available}: "
            "these do not divide alike"
        )
    ends = [sum(heads[: i + 1]) // share for i in range(len(heads))]
    return ends[:-1]


def _joined(
    pieces: list[tuple[Array | None, int]], *, axis: int, shape: tuple[int, ...]
) -> Array | None:
    """Pieces `[..., heads, *shape]` side by side, zeros where a part has none."""
    given = [piece for piece, _ in pieces if piece is not None]
    if not given:
        return None
    lead = jnp.broadcast_shapes(*(piece.shape[:axis] for piece in given))
    nothing = jnp.zeros((), given[0].dtype)
    filled = [
        jnp.broadcast_to(nothing if piece is None else piece, (*lead, h, *shape))
        for piece, h in pieces
    ]
    return jnp.concatenate(filled, axis=axis)

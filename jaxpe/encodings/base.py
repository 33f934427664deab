"""The type of encodings: a tuple of pure functions.

Shapes throughout: token embeddings x are `[..., n, d]`, queries, keys and values `[..., n, heads,
head_dim]`, positions `[..., n]`, logits and weights `[..., heads, n_q, n_k]`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import ArrayLike, Scalar, is_traced
from jaxpe._core.errors import InputError
from jaxpe.geometry.checks import check_size, floating, numbers

Params = Any


def _no_params(key: Array) -> Params:
    return ()


def _unchanged(params: Params, x: ArrayLike, positions: ArrayLike, *context: Any) -> Array:
    return jnp.asarray(x)


def _no_term(params: Params, *arrays: Any) -> None:
    return None


def _no_vectors(params: Params, positions: ArrayLike) -> Array:
    raise ValueError(
        "this encoding has no position vectors; encoding_distances gives the distances it induces"
    )


def _no_context(params: Params, x: ArrayLike, positions: ArrayLike, rows: "Rows") -> Any:
    return None, None


class Rows(NamedTuple):
    """Padding, segments and carry of token rows, for encodings that depend on hidden states.

    Attributes:
        valid: `[..., n]`, false on padding, which adds nothing to sums over tokens; None without
            padding.
        starts: `[..., n]`, true where a segment of a packed row begins and sums restart; None where
            a row is one segment.
        carry: carry from `Encoding.context` of the preceding tokens; None or zeros for the first
            ones.
    """

    valid: ArrayLike | None = None
    starts: ArrayLike | None = None
    carry: Any = None

    def part(self, index: int) -> "Rows":
        """Rows with one entry of a carry that is a tuple.

        Args:
            index: which entry.
        """
        return self if self.carry is None else self._replace(carry=self.carry[index])


class Encoding(NamedTuple):
    """A positional encoding: a tuple of pure functions; each does nothing unless defined.

    Positions are always explicit, integers or floats, `[..., n]`, so packed, padded, shifted and
    cached sequences need no special treatment. Parameters are a plain pytree from `init`; the
    encoding itself holds no arrays. Build an encoding once and close over it, or pass it as a
    static argument of `jit`: two builds are two functions, and compile twice.

    Hooks of pairs may get parts of a row, whose place they know by the positions alone.

    An encoding that depends on the hidden states defines `context`. Its hooks `query` and `key`
    then take the context of their tokens as one more argument; `products` and `bias` take two, the
    contexts of queries and keys.

    Attributes:
        init: `key -> params`, () where there are none.
        embed: `(params, x, positions) -> x` acts on token embeddings `[..., n, d]`.
        context: `(params, x, positions, rows) -> (context, carry)`, once a layer, from the hidden
            states `[..., n, d]` that enter attention. The leaves of the context are `[..., n, *]`
            and are cached beside the keys. The carry, a pytree without the axis n, is what the
            context of later tokens needs from these (see `Rows`).
        query: `(params, q, positions) -> q` acts on queries `[..., n, heads, head_dim]`.
        key: `(params, k, positions) -> k` acts on keys; a cached key is encoded once. Both may
            change the width.
        products: `(params, q, k, q_positions, k_positions) -> products` `[..., heads, n_q, n_k]`,
            which replace the inner products q·k; or None.
        bias: `(params, q, k, q_positions, k_positions) -> bias`, added to q·k/√head_dim; broadcasts
            to `[..., heads, n_q, n_k]`, float32 or wider. q and k are the results of `query` and
            `key`. None means no bias, as in `jax.nn.dot_product_attention`.
        mask: `(params, q, k, q_positions, k_positions) -> mask`, boolean, true where a query may
            attend, broadcasting to `[..., heads, n_q, n_k]`; or None.
        value: `(params, weights, q_positions, k_positions) -> term`, added to the attention output
            `[..., n_q, heads, head_dim]`, linear in the weights `[..., heads, n_q, n_k]`; or None.
        vectors: `(params, positions) -> [n, d]`, the points whose distances stress compares; every
            encoding documents its map.
        centered: whether factors of `query` and `key` grow with position but cancel in products.
            Attention that encodes queries and keys together then counts both from the middle of
            their positions, so that the factors do not overflow.
        rotates: whether `key` at i + δ is `key` at i, then at δ, up to a constant amplitude: then
            cached keys move by `rotate_by`.
        whole_rows: whether `products` or `bias` of a pair depend on other keys, such as those
            between the two: attention then stores all pairs, and is never in blocks.

    >>> halve = Encoding(query=lambda params, q, positions: q / 2)
    >>> params = halve.init(jax.random.key(0))
    >>> halve.query(params, jnp.ones((3, 1, 2)), jnp.arange(3)).max().item()
    0.5
    >>> halve.defines("query"), halve.defines("bias")
    (True, False)
    """

    init: Callable[[Array], Params] = _no_params
    embed: Callable[[Params, ArrayLike, ArrayLike], Array] = _unchanged
    context: Callable[[Params, ArrayLike, ArrayLike, Rows], tuple[Any, Any]] = _no_context
    query: Callable[..., Array] = _unchanged
    key: Callable[..., Array] = _unchanged
    products: Callable[..., Array | None] = _no_term
    bias: Callable[..., Array | None] = _no_term
    mask: Callable[[Params, ArrayLike, ArrayLike, ArrayLike, ArrayLike], Array | None] = _no_term
    value: Callable[[Params, ArrayLike, ArrayLike, ArrayLike], Array | None] = _no_term
    vectors: Callable[[Params, ArrayLike], Array] = _no_vectors
    centered: bool = False
    rotates: bool = False
    whole_rows: bool = False

    def defines(self, hook: str) -> bool:
        """Whether the encoding defines `hook`.

        Args:
            hook: name of a hook, such as "bias".
        """
        return getattr(self, hook) is not self._field_defaults[hook]


def identity() -> Encoding:
    """No positional encoding (NoPE); order comes from causal attention alone.

    >>> identity().defines("embed")
    False
    """
    return Encoding()


def bind_context(encoding: Encoding, q_context: Any, k_context: Any) -> Encoding:
    """Bind an encoding's hooks to the contexts of given queries and keys.

    Args:
        q_context: context of the query tokens; None where the encoding has none.
        k_context: context of the key tokens.

    Raises:
        ValueError: a context is missing where the encoding needs one, or given where it has none.

    >>> from jaxpe import encodings
    >>> bind_context(encodings.alibi(num_heads=1), None, None).defines("bias")
    True
    """
    if not encoding.defines("context"):
        if q_context is not None or k_context is not None:
            raise ValueError("the encoding defines no `context`: pass no q_context or k_context")
        return encoding
    if q_context is None or k_context is None:
        raise ValueError(
            "the encoding depends on the hidden states x that enter attention: pass q_context and "
            "k_context, the first result of encoding.context(params, x, positions, Rows())"
        )

    both = (q_context, k_context)
    contexts = {"query": (q_context,), "key": (k_context,), "products": both, "bias": both}

    def bound(hook: str) -> Callable[..., Any]:
        function, more = getattr(encoding, hook), contexts[hook]
        return lambda params, *args: function(params, *args, *more)

    hooks: dict[str, Any] = {hook: bound(hook) for hook in contexts if encoding.defines(hook)}
    return encoding._replace(context=_no_context, **hooks)


def encoding_at(
    encoding: Encoding,
    params: Params,
    x: ArrayLike,
    positions: ArrayLike,
    *,
    queries: ArrayLike | slice | None = None,
) -> Encoding:
    """Bind an encoding's hooks to the context of one row of hidden states, if it needs one.

    Args:
        encoding: any.
        params: parameters from its `init`.
        x: hidden states `[..., n, d]` of the tokens of queries and keys.
        positions: `[..., n]`.
        queries: indices of the queries in a row `[n]`; all when None.

    >>> alibi = jaxpe.encodings.alibi(num_heads=1)
    >>> encoding_at(alibi, (), jnp.ones((2, 4)), jnp.arange(2)).defines("bias")
    True
    """
    if not encoding.defines("context"):
        return encoding
    context, _ = encoding.context(params, x, positions, Rows())
    of_queries = jax.tree.map(lambda leaf: leaf if queries is None else leaf[queries], context)
    return bind_context(encoding, of_queries, context)


def check_acts_by(encoding: Encoding, *hooks: str, such_as: str) -> None:
    """Raise unless an encoding defines these hooks and acts by no others."""
    defined = {name for name in encoding._fields if encoding.defines(name)}
    more = sorted(defined - {"init", "vectors", "rotates", *hooks})
    if more or not defined.issuperset(hooks):
        needed = " and ".join(f"`{hook}`" for hook in hooks)
        raise ValueError(
            f"the encoding defines {more or f'no {needed}'}: pass one that acts by {needed} alone, "
            f"as {such_as}, and chain the rest"
        )


def check_inner_products(
    encoding: Encoding, *, hooks: Sequence[str] = ("context", "products")
) -> None:
    """Raise unless logits are inner products of queries and keys plus a bias by position."""
    for hook in filter(encoding.defines, hooks):
        raise ValueError(
            f"the encoding defines `{hook}`: its logits are not inner products of encoded queries "
            "and keys plus a bias of positions; pass another encoding"
        )


def centered_positions(
    encoding: Encoding, q_positions: ArrayLike, k_positions: ArrayLike
) -> tuple[ArrayLike, ArrayLike]:
    """Positions for `query` and `key` called together, counted from their middle if `centered`.

    >>> from jaxpe import encodings
    >>> xpos, i, j = encodings.xpos(head_dim=2), jnp.asarray([40_006]), jnp.asarray([40_000])
    >>> i, j = centered_positions(xpos, i, j)
    >>> i.item(), j.item()
    (3, -3)
    """
    if not encoding.centered or not (np.size(q_positions) and np.size(k_positions)):
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
        ValueError: 16-bit floats, which cannot count (bfloat16 ends at 256), booleans, integers
            beyond int32, and NaN or infinity unless traced.
    """
    original, positions = positions, numbers(positions, "positions")
    if jnp.issubdtype(positions.dtype, jnp.integer):
        # NumPy's 64 bits, before JAX truncates them, or the bits of a JAX array.
        _check_range(original if isinstance(original, np.ndarray) else positions)
        return positions.astype(jnp.int32)
    if not jnp.issubdtype(positions.dtype, jnp.floating) or positions.dtype.itemsize < 4:
        raise ValueError(
            f"positions are {positions.dtype}, which cannot tell positions apart: pass int32, or "
            "float32 where they are fractional"
        )
    is_concrete = not is_traced(positions) and positions.is_fully_addressable
    if is_concrete and not np.isfinite(np.asarray(positions)).all():
        raise InputError("positions hold NaN or infinity: pass finite numbers")
    return positions


def _check_range(positions: ArrayLike) -> None:
    """Raise for concrete positions beyond int32: 2³² + 1 would silently become 1."""
    fits = np.can_cast(positions.dtype, np.int32)
    if fits or is_traced(positions) or not np.size(positions):
        return
    values = np.asarray(positions)  # np.min would trace even a concrete JAX array
    for extreme in (values.min(), values.max()):
        if not -(2**31) <= int(extreme) < 2**31:
            raise ValueError(f"position {extreme} is beyond 32 bits: pass smaller ones, or floats")


def align_positions(
    positions: ArrayLike, shape: tuple[int, ...], *, after: int, axes: int = 0
) -> Array:
    """Positions with as many axes as `shape` has up to n, so that they broadcast against it.

    Args:
        positions: `[..., n]`, with `axes` more axes behind.
        shape: of the array `[..., n, <after axes>]` they belong to.
        after: axes of that array behind n: 1 for embeddings, 2 for queries and keys.
        axes: axes of the positions behind n (1 where a position has several coordinates).

    Raises:
        ValueError: shapes that do not broadcast.
    """
    positions = as_positions(positions)
    leading = shape[: len(shape) - after]
    batch = positions.shape[: positions.ndim - axes]
    missing = len(leading) - len(batch)
    pairs = zip(batch[:-1], leading[missing:-1], strict=False)
    fits = 0 < len(batch) <= len(leading) and all(a in (1, b) for a, b in pairs)
    if not fits or batch[-1] != leading[-1]:
        raise ValueError(
            f"positions of shape {positions.shape} do not fit an array of shape {shape}: pass "
            f"[..., n] with n = {leading[-1] if leading else '?'} and leading axes that broadcast"
        )
    return positions.reshape((1,) * missing + positions.shape)


def token_axis(positions: ArrayLike, n: int) -> int:
    """The axis of n tokens in positions `[..., n]`, or `[..., n, axes]`, counted from the end.

    >>> token_axis(np.zeros((2, 5)), 5), token_axis(np.zeros((5, 2)), 5)
    (-1, -2)
    """
    return -2 if np.ndim(positions) > 1 and np.shape(positions)[-1] != n else -1


def position_offsets(
    q: ArrayLike, k: ArrayLike, q_positions: ArrayLike, k_positions: ArrayLike
) -> Array:
    """Offsets j − i of keys from queries, `[..., 1, n_q, n_k]`: one axis of 1 for the heads.

    They have as many axes as q, and the dtype of the positions: exact for integers.

    Args:
        q, k: queries and keys, `[..., n, heads, head_dim]`; only their shapes are read.
        q_positions, k_positions: `[..., n_q]` and `[..., n_k]`.

    >>> x, i = jnp.zeros((2, 1, 4)), jnp.arange(2)
    >>> position_offsets(x, x, i, i).tolist()
    [[[0, 1], [-1, 0]]]
    """
    i = align_positions(q_positions, q.shape, after=2)
    j = align_positions(k_positions, k.shape, after=2)
    return _differences(i, j)


def weight_offsets(weights: ArrayLike, q_positions: ArrayLike, k_positions: ArrayLike) -> Array:
    """Offsets j − i aligned with weights `[..., heads, n_q, n_k]`."""
    *lead, _, n_q, n_k = weights.shape
    i = align_positions(q_positions, (*lead, n_q), after=0)
    j = align_positions(k_positions, (*lead, n_k), after=0)
    return _differences(i, j)


def _differences(i: Array, j: Array) -> Array:
    dtype = _wider(i, j)
    return j.astype(dtype)[..., None, None, :] - i.astype(dtype)[..., None, :, None]


def _wider(i: Array, j: Array) -> jnp.dtype:
    # The later of int32, float32 and float64; jnp.promote_types fails under strict promotion.
    return max(i.dtype, j.dtype, key=lambda dtype: (dtype.kind == "f", dtype.itemsize))


def neighbours(indices: Array, length: int) -> tuple[Array, Array, Array]:
    """Rows around fractional indices, clipped to [0, length − 1]: lower, upper, upper's weight."""
    indices = jnp.clip(indices, 0, length - 1)
    low = jnp.floor(indices)
    high = jnp.minimum(low + 1, length - 1)
    return low.astype(jnp.int32), high.astype(jnp.int32), indices - low


def expand_rank(values: ArrayLike, ndim: int, dtype: jnp.dtype | type | None = None) -> Array:
    """Values, cast to `dtype` if given, with axes of 1 in front until they have `ndim`."""
    values = jnp.asarray(values, dtype)
    return values.reshape((1,) * (ndim - values.ndim) + values.shape)


def as_mask(mask: ArrayLike) -> Array:
    """A mask as a boolean array, true where something counts.

    Raises:
        ValueError: a mask that is not boolean: an additive one would be read backwards.
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
    if mask.ndim > len(shape) or any(size not in (1, target) for size, target in sizes):
        raise ValueError(
            f"mask has shape {mask.shape}, which does not broadcast to {shape}: pass "
            "mask[..., None, :, :] where all heads share one"
        )
    return jnp.broadcast_to(expand_rank(mask, len(shape)), shape)


def as_floats(x: ArrayLike, name: str) -> Array:
    """Floats unchanged, also of 16 bits; integers as JAX's default float."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else floating(x, name)


def compute_dtype(x: ArrayLike) -> jnp.dtype:
    """The dtype of phases, biases and other sensitive numbers beside x: never below float32."""
    return jnp.dtype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)


def scaled(x: ArrayLike, factor: Scalar) -> Array:
    """x times a factor, computed in float32 or wider and returned in the dtype of x."""
    x = jnp.asarray(x)
    dtype = compute_dtype(x)
    return (x.astype(dtype) * jnp.asarray(factor, dtype)).astype(x.dtype)


def vector_dtype(positions: ArrayLike) -> jnp.dtype:
    """The dtype of vectors of positions alone: their own for floats, else the default."""
    dtype = as_positions(positions).dtype
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)


def check_heads(
    shape: tuple[int, ...],
    num_heads: int | None = None,
    head_dim: int | None = None,
    *,
    dim: int | None = None,
    axis: int = -2,
) -> None:
    """Raise where an array has other sizes than the encoding was built for.

    Args:
        shape: of an array `[..., heads, head_dim]`, or of hidden states `[..., dim]`.
        num_heads, head_dim, dim: sizes of the encoding; None is not checked.
        axis: axis of the heads.
    """
    sizes = {"num_heads": (axis, num_heads), "head_dim": (-1, head_dim), "dim": (-1, dim)}
    for name, (at, expected) in sizes.items():
        if expected is None:
            continue
        if len(shape) < max(2, -at):
            raise ValueError(
                f"the encoding was built for {name}={expected}, but the array has shape {shape}: "
                f"pass one of at least {max(2, -at)} axes"
            )
        if shape[at] != expected:
            raise ValueError(
                f"the encoding was built for {name}={expected}, but the array of shape {shape} has "
                f"{shape[at]}: pass {name}={shape[at]}"
            )


def check_context(context: ArrayLike, x: ArrayLike, *, after: int = 1) -> None:
    """Raise where a context `[..., n, *]` does not belong to queries or keys.

    Args:
        context: with `after` axes behind n.
        x: queries or keys `[..., n, heads, head_dim]`.
        after: number of axes behind n.
    """
    lead = context.shape[: context.ndim - after]
    if not lead or len(lead) != x.ndim - 2 or lead[-1] != x.shape[-3]:
        raise ValueError(
            f"queries or keys of shape {x.shape} have a context of shape {context.shape}: pass the "
            "context of their own hidden states"
        )


def check_sizes(**sizes: int) -> None:
    """Raise where an option that counts something (num_heads=…) is below 1, or beyond memory."""
    for name, size in sizes.items():
        check_size(name, size, each=16)


def check_even(**sizes: int) -> None:
    """Raise where a width does not divide into pairs."""
    check_sizes(**sizes)
    for name, size in sizes.items():
        if size % 2:
            raise ValueError(f"{name} must be even and positive, not {size}: entries come in pairs")


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise where an option is none of its allowed words."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}: pass {' or '.join(map(repr, allowed))}")


def check_plain(**values: object) -> None:
    """Raise where an option that decides shapes or branches is traced."""
    for name in (name for name, value in values.items() if is_traced(value)):
        raise ValueError(f"{name} decides shapes, so it cannot be traced: pass a plain number")


def check_positive(**values: Scalar) -> None:
    """Raise where an option is not a positive number, unless traced."""
    for name, value in values.items():
        if not (is_traced(value > 0) or value > 0):
            raise ValueError(f"{name} must be positive, not {value}")


def check_queries_and_keys(q: Array, k: Array, v: Array | None = None) -> None:
    """Raise where queries, keys and values `[..., n, heads, head_dim]` do not match."""
    v = k if v is None else v
    fits = 3 <= q.ndim == k.ndim == v.ndim and 1 <= q.shape[-1] == k.shape[-1]
    leading = zip(q.shape[:-3], k.shape[:-3], v.shape[:-3], strict=False)
    if not fits or k.shape[-3] != v.shape[-3] or any(len({*sizes} - {1}) > 1 for sizes in leading):
        raise ValueError(
            f"q has shape {q.shape}, k {k.shape} and v {v.shape}: pass [..., n_q, heads, width], "
            "[..., n_k, heads, width] and [..., n_k, heads, *], with equal numbers of axes"
        )
    for x in (k, v):
        _check_shared_heads(q.shape[-2], x.shape[-2])


def repeat_heads(k: ArrayLike, num_heads: int) -> Array:
    """Keys or values `[..., n, groups, d]` repeated for the query heads, a multiple of theirs."""
    k = jnp.asarray(k)
    groups = k.shape[-2]
    _check_shared_heads(num_heads, groups)
    return k if groups == num_heads else jnp.repeat(k, num_heads // groups, axis=-2)


def _check_shared_heads(num_heads: int, groups: int) -> None:
    if groups != num_heads and (not groups or num_heads % groups):
        raise ValueError(f"{num_heads} query heads cannot share {groups} key heads evenly")

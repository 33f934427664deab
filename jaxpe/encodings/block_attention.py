"""Attention in blocks of queries and keys: memory linear in n, for every encoding.

Rabe and Staats (2021), Dao et al. (2022). The hooks of an encoding make a block of logits from a
block of queries and one of keys. The derivative makes it again, so that no logits are kept.

Within blocks, queries, keys and values are `[..., heads, size, width]`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.attention_mask import (
    AttentionMask,
    combined_masks,
    encoded_mask,
    joined_mask,
)
from jaxpe.encodings.attention_terms import dropout_factors, encoded_logits
from jaxpe.encodings.base import (
    Encoding,
    Params,
    bind_context,
    compute_dtype,
    expand_rank,
    token_axis,
)

Tree = Any
Index = Array | int
_PAIR_HOOKS = ("products", "bias", "weights", "key_carry")


class Tokens(NamedTuple):
    """Numbers of single queries, or keys; in blocks, with an axis of blocks in front.

    Attributes:
        positions: `[..., n]`, or `[..., n, axes]`.
        context: context of the encoding, leaves `[..., n, *]`.
        mask: order, segments and validity `[..., n]`.
        pairs: a mask by pairs, `[..., n_q, n_k]` of queries or `[..., 1, n_k]` of keys.
        bits: random bits `[..., heads, n]` of dropout.
        vectors: encoded queries or keys, where a hook of pairs may read them.
        carry: of queries, the encoding's carry after no key, leaves `[..., heads, n, *]`.
    """

    positions: Array
    context: Tree = None
    mask: AttentionMask = AttentionMask()
    pairs: Array | None = None
    bits: Array | None = None
    vectors: Array | None = None
    carry: Tree = None


class Plan(NamedTuple):
    """Options of attention in blocks that are no arrays.

    Attributes:
        encoding: its hooks `query` and `key` have acted.
        mask: function of positions; None without one.
        scale: factor of the products, where it is no array.
        cap: soft cap of the logits.
        dropout_rate: rate of attention dropout.
        block_size: queries, and keys, of a block.
    """

    encoding: Encoding
    mask: Callable[[Array, Array], Array] | None = None
    scale: float = 1.0
    cap: float | None = None
    dropout_rate: float = 0.0
    block_size: int = 128


class _Arrays(NamedTuple):
    """Arguments of attention in blocks.

    `numbers` and `rest` are the floats and the other leaves of (parameters, scale, tokens of
    queries, tokens of keys); `closed` is what hooks close over; a block of queries i looks at the
    blocks of keys `order[i, :counts[i]]`.
    """

    numbers: Tree
    q: Array
    k: Array
    v: Array
    sink: Array | None
    closed: list[Array]
    rest: Tree
    order: Any
    counts: Any


class _Block(NamedTuple):
    """One block of queries and one of keys: parts of `_Arrays`, products, and allowed pairs."""

    numbers: Tree
    rest: Tree
    k: Array
    v: Array
    products: Array
    allowed: Array | None

    def masked(self, x: Array, fill: float = 0.0) -> Array:
        """x where a query may attend."""
        return x if self.allowed is None else jnp.where(self.allowed, x, fill)

    def shares(self, logits: Array, base: Array) -> Array:
        """exp(logits − base), base a maximum or a logarithm of sums; 0 where masked."""
        # The maximum changes nothing, but XLA cannot compute scale·products − base without rounding
        # the products as the base was, as in `attention_weights`.
        logits = jnp.maximum(logits, float(jnp.finfo(logits.dtype).min))
        return self.masked(jnp.exp(logits - base[..., None]))


def block_attention(
    plan: Plan,
    params: Params,
    q: Array,
    k: Array,
    v: Array,
    queries: Tokens,
    keys: Tokens,
    *,
    scale: Array | None = None,
    sink: Array | None = None,
) -> Array:
    """Attention `[..., heads, n_q, width]` of encoded queries, keys and values, in blocks.

    Args:
        plan: options that are no arrays.
        params: parameters of the encoding.
        q, k, v: `[..., heads, n, width]`; fewer heads of keys and values are shared evenly.
        queries, keys: numbers of the tokens of whole rows.
        scale: factor of the products, if it is an array.
        sink: a logit a head in the denominator of the softmax; none when None.
    """
    n_q, n_k = q.shape[-2], k.shape[-2]
    size_q, size_k = min(plan.block_size, n_q), min(plan.block_size, n_k)
    if any(map(plan.encoding.defines, _PAIR_HOOKS)):
        queries, keys = queries._replace(vectors=q), keys._replace(vectors=k)
    beyond = None
    if plan.encoding.defines("key_carry"):  # padding after all queries adds nothing to a carry
        beyond = jnp.maximum(jnp.max(queries.positions), jnp.max(keys.positions)) + 1
    if n_k % size_k and keys.mask.k_valid is None:
        keys = keys._replace(mask=keys.mask._replace(k_valid=jnp.ones(n_k, bool)))
    if queries.pairs is not None and queries.pairs.shape[-1] > 1 and n_k % size_k:
        widths = [(0, 0)] * (queries.pairs.ndim - 1) + [(0, -n_k % size_k)]
        queries = queries._replace(pairs=jnp.pad(queries.pairs, widths))
    lead = q.ndim - 3
    queries = _blocked_tokens(queries, n_q, size_q, lead)
    keys = _blocked_tokens(keys, n_k, size_k, lead, beyond=beyond)
    q, k, v = (_blocks(x, x.ndim - 2, size) for x, size in ((q, size_q), (k, size_k), (v, size_k)))
    numbers, rest = _parted((params, scale, queries, keys))
    arrays = _Arrays(numbers, q, k, v, sink, [], rest, None, None)
    order, counts = _active_blocks(plan, arrays)
    arrays = arrays._replace(order=order, counts=counts)

    def scores(numbers: Tree, products: Array, rest: Tree, allowed: Array | None) -> Tree:
        return _scores(plan, _merged(numbers, rest), products, allowed)

    # A hook may close over what is differentiated, such as slopes of ALiBi.
    first = _block(plan, arrays, 0, 0, _at(numbers[2].carry, 0))
    scores, closed = jax.closure_convert(
        scores, first.numbers, first.products, first.rest, first.allowed
    )
    out = _attention(plan, scores)(arrays._replace(closed=closed))
    out = jnp.moveaxis(out, 0, -3)
    return out.reshape(*out.shape[:-3], -1, out.shape[-1])[..., :n_q, :]


def _attention(plan: Plan, scores: Callable[..., Tree]) -> Callable[[_Arrays], Array]:
    """Attention of blocks, `[blocks, ..., heads, size, width]`, and its derivative."""

    @jax.custom_vjp
    def attention(arrays):
        return _outputs(plan, scores, arrays)[0]

    def forward(arrays):
        out, log_sums = _outputs(plan, scores, arrays)
        return out, (arrays, out, log_sums)

    def backward(residuals, g):
        arrays, out, log_sums = residuals
        return (_cotangents(plan, scores, arrays, out, log_sums, g),)

    attention.defvjp(forward, backward)
    return attention


def _outputs(plan: Plan, scores: Callable[..., Tree], arrays: _Arrays) -> tuple[Array, Array]:
    """Outputs, and logarithms of the sums of the softmax, `[blocks, ..., heads, size]`."""
    shape, dtype = arrays.q.shape[1:-1], compute_dtype(arrays.v)
    floor = float(jnp.finfo(dtype).min)
    normalised = not plan.encoding.defines("weights")

    def row(i: Array) -> tuple[Array, Array]:
        def step(t: Array, state: Tree) -> Tree:
            top, total, out, carry = state
            block = _block(plan, arrays, i, arrays.order[i, arrays.counts[i] - 1 - t], carry)
            weights, carry = _scored(scores, block, arrays.closed)
            if not normalised:
                return top, total, out + _mixed(plan, block, weights), carry
            new = jnp.maximum(top, jnp.max(block.masked(weights, floor), axis=-1))
            weights = block.shares(weights, new)
            fade = jnp.exp(top - new)
            out = out * fade[..., None] + _mixed(plan, block, weights)
            return new, total * fade + jnp.sum(weights, axis=-1), out, carry

        zeros = jnp.zeros(shape, dtype)
        wide = jnp.zeros((*shape, arrays.v.shape[-1]), dtype)
        start = (zeros + floor, zeros, wide, _at(arrays.numbers[2].carry, i))
        top, total, out, _ = lax.fori_loop(0, arrays.counts[i], step, start)
        if not normalised:
            return out.astype(arrays.v.dtype), total
        if arrays.sink is not None:
            sink = expand_rank(arrays.sink[:, None], len(shape), dtype)
            new = jnp.maximum(top, sink)
            fade = jnp.exp(top - new)
            top, total, out = new, total * fade + jnp.exp(sink - new), out * fade[..., None]
        safe = jnp.where(total > 0, total, 1.0)  # a query without keys has output 0
        out = (out / safe[..., None]).astype(arrays.v.dtype)
        return out, jnp.where(total > 0, top + jnp.log(safe), 0.0)

    return lax.map(row, jnp.arange(len(arrays.counts)))


class _Sums(NamedTuple):
    """Cotangents that all blocks of queries add to: of parameters and scale, of tokens of keys, of
    keys and values `[blocks, ..., heads, width, size]`, and of what hooks close over."""

    shared: Tree
    keys: Tree
    k: Array
    v: Array
    closed: list[Array]


def _cotangents(
    plan: Plan, scores: Callable[..., Tree], arrays: _Arrays, out: Array, log_sums: Array, g: Array
) -> _Arrays:
    """Cotangents of all arguments, from the cotangent g of the outputs."""
    dtype = compute_dtype(arrays.v)
    g = g.astype(dtype)
    means = jnp.sum(out.astype(dtype) * g, axis=-1)  # Σ_j w_ij ∂w_ij, which the softmax subtracts
    params, scale, queries, keys = arrays.numbers
    normalised = not plan.encoding.defines("weights")

    def row(sums: _Sums, i: Array) -> tuple[_Sums, Tree]:
        carries = _carries(plan, scores, arrays, i)
        q, g_i = arrays.q[i].astype(dtype), g[i]

        def step(t: Array, state: Tree) -> Tree:
            sums, of_queries, of_q, of_carry = state
            j = arrays.order[i, t]
            block = _block(plan, arrays, i, j, _at(carries, j))

            def scored(numbers, products, closed):
                return _scored(scores, block._replace(numbers=numbers, products=products), closed)

            (weights, _), pull = jax.vjp(scored, block.numbers, block.products, arrays.closed)
            if normalised:
                weights = block.shares(weights, log_sums[i])
            of_params, of_v, of_weights = _mixed_cotangents(plan, block, weights, g_i)
            if normalised:
                of_weights = weights * (of_weights - means[i][..., None])
            of_numbers, of_products, of_closed = pull((of_weights, of_carry))
            *of_shared, of_tokens, of_keys = of_numbers
            if of_params is not None:
                of_shared[0] = _added(of_shared[0], of_params)
            sums = _Sums(
                _added(sums.shared, tuple(of_shared)),
                _added_at(sums.keys, j, of_keys),
                _added_at(sums.k, j, _transposed_products(q, of_products, sums.k.shape[-3])),
                _added_at(sums.v, j, of_v),
                _added(sums.closed, of_closed),
            )
            of_q = of_q + _weighted(of_products, block.k.astype(dtype))
            return sums, _added(of_queries, of_tokens._replace(carry=None)), of_q, of_tokens.carry

        zero = _zeros(_at(queries._replace(carry=None), i))
        start = (sums, zero, jnp.zeros_like(q), _zeros(_at(queries.carry, i)))
        sums, of_queries, of_q, of_carry = lax.fori_loop(0, arrays.counts[i], step, start)
        return sums, (of_queries._replace(carry=of_carry), of_q)

    of_k, of_v = (jnp.zeros(x.mT.shape, dtype) for x in (arrays.k, arrays.v))
    sums = _Sums(_zeros((params, scale)), _zeros(keys), of_k, of_v, _zeros(arrays.closed))
    sums, (of_queries, of_q) = lax.scan(row, sums, jnp.arange(len(arrays.counts)))
    of_sink = None
    if arrays.sink is not None:
        share = jnp.exp(expand_rank(arrays.sink[:, None], log_sums.ndim, dtype) - log_sums)
        axes = [axis for axis in range(means.ndim) if axis != means.ndim - 2]
        of_sink = -jnp.sum(share * means, axis=axes)
    found = (*sums.shared, of_queries, sums.keys), of_q, sums.k.mT, sums.v.mT, of_sink, sums.closed
    given = arrays.numbers, arrays.q, arrays.k, arrays.v, arrays.sink, arrays.closed
    cast = jax.tree.map(lambda x, ct: ct.astype(x.dtype), given, found)
    return _Arrays(*cast, rest=None, order=None, counts=None)


def _scores(plan: Plan, pair: Tree, products: Array, allowed: Array | None) -> tuple[Array, Tree]:
    """Logits of a block, or the encoding's own weights, and the carry for earlier keys."""
    params, scale, queries, keys = pair
    factor = plan.scale if scale is None else scale
    if queries.vectors is None or keys.vectors is None:
        return encoded_logits(products, None, factor, plan.cap), None
    encoding = bind_context(plan.encoding, queries.context, keys.context)
    q, k = (x.swapaxes(-2, -3) for x in (queries.vectors, keys.vectors))
    positions = queries.positions, keys.positions
    carry = {"carry": queries.carry} if encoding.defines("key_carry") else {}
    own = encoding.products(params, q, k, *positions, **carry)
    bias = encoding.bias(params, q, k, *positions, **carry)
    own = products if own is None else own
    logits = encoded_logits(own, bias, factor, plan.cap)
    weights = encoding.weights(params, logits, allowed, *positions, **carry)
    if carry:
        carry["carry"] = encoding.key_carry(params, q, k, logits, allowed, *positions, **carry)
    return logits if weights is None else weights, carry.get("carry")


def _block(plan: Plan, arrays: _Arrays, i: Index, j: Index, carry: Tree) -> _Block:
    numbers, rest = (_part(tree, i, j) for tree in (arrays.numbers, arrays.rest))
    numbers = (*numbers[:2], numbers[2]._replace(carry=carry), numbers[3])
    q, k, v = _at(arrays.q, i), _at(arrays.k, j), _at(arrays.v, j)
    params, _, queries, keys = _merged(numbers, rest)
    allowed = _allowed(plan, params, q, k, queries, keys, j)
    return _Block(numbers, rest, k, v, _products(q, k), allowed)


def _scored(scores: Callable[..., Tree], block: _Block, closed: list[Array]) -> tuple[Array, Tree]:
    return scores(block.numbers, block.products, block.rest, block.allowed, *closed)


def _allowed(
    plan: Plan, params: Params, q: Array, k: Array, queries: Tokens, keys: Tokens, j: Index
) -> Array | None:
    """True where a query of a block may attend to a key of a block; None for all."""
    by_token = joined_mask(queries.mask, keys.mask)
    pairs = queries.pairs
    if pairs is not None and pairs.shape[-1] > 1:
        size = k.shape[-2]
        pairs = lax.dynamic_slice_in_dim(pairs, j * size, size, pairs.ndim - 1)
    q, k = (x.swapaxes(-2, -3) for x in (q, k))
    positions = {"q_positions": queries.positions, "k_positions": keys.positions}
    allowed = encoded_mask(plan.encoding, params, q, k, plan.mask, **positions)
    return combined_masks(by_token.pairs(), pairs, keys.pairs, allowed)


def _active_blocks(plan: Plan, arrays: _Arrays) -> tuple[Array, Array]:
    """Blocks of keys that each block of queries looks at: indices, and how many.

    A block whose pairs are all masked is skipped. If the encoding has a carry, that takes a block
    after all queries, which adds nothing to it.
    """
    count_q, count_k = len(arrays.q), len(arrays.k)

    def active(i: Index, j: Index) -> Array | None:
        numbers, rest = (_part(tree, i, j) for tree in (arrays.numbers, arrays.rest))
        params, _, queries, keys = _merged(numbers, rest)
        q, k = _at(arrays.q, i), _at(arrays.k, j)
        allowed = _allowed(plan, params, q, k, queries, keys, j)
        if allowed is None or not plan.encoding.defines("key_carry"):
            return None if allowed is None else jnp.any(allowed)
        return jnp.any(allowed) | (jnp.min(keys.positions) <= jnp.max(queries.positions))

    if jax.eval_shape(active, 0, 0) is None:
        every = jnp.broadcast_to(jnp.arange(count_k), (count_q, count_k))
        return every, jnp.full(count_q, count_k)
    rows, columns = jnp.arange(count_q), jnp.arange(count_k)
    found = lax.map(lambda i: lax.map(lambda j: active(i, j), columns), rows)
    return jnp.argsort(~found, axis=-1, stable=True), jnp.sum(found, axis=-1)


def _carries(plan: Plan, scores: Callable[..., Tree], arrays: _Arrays, i: Array) -> Tree:
    """Carries that a block of queries brings to each block of keys, with an axis of blocks."""
    first = _at(arrays.numbers[2].carry, i)
    if not plan.encoding.defines("key_carry"):
        return first

    def step(t: Array, state: Tree) -> Tree:
        carry, carries = state
        j = arrays.order[i, arrays.counts[i] - 1 - t]
        carries = jax.tree.map(
            lambda old, x: lax.dynamic_update_index_in_dim(old, x, j, 0), carries, carry
        )
        block = _block(plan, arrays, i, j, carry)
        return _scored(scores, block, arrays.closed)[1], carries

    empty = jax.tree.map(lambda x: jnp.zeros((len(arrays.k), *x.shape), x.dtype), first)
    return lax.fori_loop(0, arrays.counts[i], step, (first, empty))[1]


def _mixed(plan: Plan, block: _Block, weights: Array) -> Array:
    """Weights times values, and the encoding's value term, `[..., heads, size_q, width]`."""
    dropped = _dropped(plan, block, weights)
    out = _weighted(dropped, block.v.astype(weights.dtype))
    term = _value_term(plan, block, block.numbers[0], dropped)
    return out if term is None else out + term


def _mixed_cotangents(
    plan: Plan, block: _Block, weights: Array, g: Array
) -> tuple[Params | None, Array, Array]:
    """Cotangents of parameters, of values `[..., width, size_k]` and of weights."""
    dropped = _dropped(plan, block, weights)
    of_v = _transposed_products(g, dropped, block.v.shape[-3])
    of_weights, of_params = _products(g, block.v.astype(g.dtype)), None
    if plan.encoding.defines("value"):
        _, pull = jax.vjp(lambda *x: _value_term(plan, block, *x), block.numbers[0], dropped)
        of_params, more = pull(g)
        of_weights = of_weights + more
    return of_params, of_v, _dropped(plan, block, of_weights)


def _value_term(plan: Plan, block: _Block, params: Tree, weights: Array) -> Array | None:
    _, _, queries, keys = _merged(block.numbers, block.rest)
    params = _merged(params, block.rest[0])
    term = plan.encoding.value(params, weights, queries.positions, keys.positions)
    return None if term is None else term.swapaxes(-2, -3).astype(weights.dtype)


def _dropped(plan: Plan, block: _Block, x: Array) -> Array:
    _, _, queries, keys = block.rest
    if queries.bits is None or keys.bits is None:
        return x
    return x * dropout_factors(queries.bits, keys.bits, plan.dropout_rate, x.dtype)


def _products(q: Array, k: Array) -> Array:
    """Products `[..., heads, n_q, n_k]`, float32 or wider; heads share fewer keys evenly."""
    dtype = compute_dtype(q)
    grouped = _grouped(q, k.shape[-3])
    out = jnp.einsum("...qd,...kd->...qk", grouped, k, preferred_element_type=dtype)
    return out.reshape(*q.shape[:-1], k.shape[-2])


def _weighted(weights: Array, v: Array) -> Array:
    """Sums of values `[..., heads, n_q, width]` by weights."""
    out = jnp.einsum("...qk,...kd->...qd", _grouped(weights, v.shape[-3]), v)
    return out.reshape(*weights.shape[:-1], v.shape[-1])


def _transposed_products(g: Array, weights: Array, groups: int) -> Array:
    """Σ_i g_i w_ij, `[..., groups, width, n_k]`.

    In this layout no factor is transposed but g: a transpose of weights takes XLA as long as the
    product on CPUs.
    """
    return jnp.einsum("...dq,...qk->...dk", _grouped(g, groups).mT, _grouped(weights, groups))


def _grouped(x: Array, groups: int) -> Array:
    """Rows of the heads that share a key head, side by side: `[..., groups, share·n, width]`."""
    *lead, heads, n, width = x.shape
    return x.reshape(*lead, groups, heads // groups * n, width)


def _blocked_tokens(
    tokens: Tokens, n: int, size: int, lead: int, *, beyond: Array | None = None
) -> Tokens:
    """Tokens in blocks, with positions `beyond`, or the last one, on padding."""
    positions = jnp.asarray(tokens.positions)
    axis = positions.ndim + token_axis(positions, n)
    if beyond is not None and n % size:
        more = (*positions.shape[:-1], -n % size)
        filling = jnp.broadcast_to(beyond.astype(positions.dtype), more)
        positions = jnp.concatenate([positions, filling], axis=-1)

    def blocks(tree: Tree, axis: int) -> Tree:
        return jax.tree.map(lambda x: _blocks(x, axis % x.ndim, size), tree)

    return Tokens(
        _blocks(positions, axis, size, mode="edge"),
        blocks(tokens.context, lead),
        blocks(tokens.mask, -1),
        blocks(
            tokens.pairs, -1 if tokens.pairs is not None and tokens.pairs.shape[-2] == 1 else -2
        ),
        blocks(tokens.bits, -1),
        blocks(tokens.vectors, lead + 1),
        blocks(tokens.carry, lead + 1),
    )


def _blocks(x: ArrayLike, axis: int, size: int, *, mode: str = "constant") -> Array:
    """An array in blocks along an axis, `[blocks, ..., size, ...]`, padded to full blocks."""
    x = jnp.asarray(x)
    n = x.shape[axis]
    if n % size:
        widths = [(0, 0)] * x.ndim
        widths[axis] = (0, -n % size)
        x = jnp.pad(x, widths, mode=mode)
    x = x.reshape(*x.shape[:axis], -1, size, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis, 0)


def _at(tree: Tree, i: Index) -> Tree:
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, i, 0, keepdims=False), tree)


def _part(tree: Tree, i: Index, j: Index) -> Tree:
    """(Parameters, scale, tokens of queries, tokens of keys) of a pair of blocks."""
    params, scale, queries, keys = tree
    return params, scale, _at(queries, i), _at(keys, j)


def _parted(tree: Tree) -> tuple[Tree, Tree]:
    """Arrays of floats, and the other leaves; None in the place of the others."""

    def is_number(x: Any) -> bool:
        return isinstance(x, (jax.Array, np.ndarray)) and jnp.issubdtype(x.dtype, jnp.inexact)

    numbers = jax.tree.map(lambda x: x if is_number(x) else None, tree)
    return numbers, jax.tree.map(lambda x: None if is_number(x) else x, tree)


def _merged(numbers: Tree, rest: Tree) -> Tree:
    return jax.tree.map(
        lambda a, b: b if a is None else a, numbers, rest, is_leaf=lambda x: x is None
    )


def _zeros(tree: Tree) -> Tree:
    """Zeros for sums of cotangents, float32 or wider."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, compute_dtype(x)), tree)


def _added(sums: Tree, *terms: Tree) -> Tree:
    for term in terms:
        sums = jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums, term)
    return sums


def _added_at(sums: Tree, j: Array, terms: Tree) -> Tree:
    def add(a: Array, b: Array) -> Array:
        old = lax.dynamic_index_in_dim(a, j, 0, keepdims=False)
        return lax.dynamic_update_index_in_dim(a, old + b.astype(a.dtype), j, 0)

    return jax.tree.map(add, sums, terms)

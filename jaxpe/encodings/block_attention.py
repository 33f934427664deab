"""Attention in blocks of queries and keys: memory linear in n, for any order of derivatives.

Rabe and Staats (2021), Dao et al. (2022). The hooks of an encoding make a block of logits from a
block of queries and one of keys, so that no array of all pairs is stored.

A row is a key head of one sequence with the query heads that share it. Within blocks, queries are
`[rows, share, size, width]`, keys and values `[rows, width, size]`: in this layout no product of a
derivative transposes a block of weights, which takes XLA on CPUs 1.4 times as long as the product.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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


class Tokens(NamedTuple):
    """Numbers of single queries, or keys; in blocks, with an axis of blocks in front.

    Attributes:
        positions: `[..., n]`, or `[..., n, axes]`.
        context: context of the encoding, leaves `[..., n, *]`.
        mask: order, segments and validity `[..., n]`.
        pairs: of queries, a mask of pairs `[..., n_q, n_k]`.
        bits: random bits `[..., heads, n]` of dropout.
    """

    positions: Array
    context: Tree = None
    mask: AttentionMask = AttentionMask()
    pairs: Array | None = None
    bits: Array | None = None


class Plan(NamedTuple):
    """Options of attention in blocks that are no arrays.

    Attributes:
        encoding: its hooks `query` and `key` have acted.
        lead: leading axes of queries, keys and values.
        mask: function of positions; None without one.
        scale: factor of the products, where it is no array.
        cap: soft cap of the logits.
        dropout_rate: rate of attention dropout.
        block_size: queries, and keys, of a block.
    """

    encoding: Encoding
    lead: tuple[int, ...] = ()
    mask: Callable[[Array, Array], Array] | None = None
    scale: float = 1.0
    cap: float | None = None
    dropout_rate: float = 0.0
    block_size: int = 128


class _Arrays(NamedTuple):
    """Arguments of attention in blocks; `closed` is what the hooks close over.

    The fields from `q` on have an axis of blocks in front; in a pair of blocks they have none.
    """

    params: Params
    scale: Array | None
    sink: Array | None
    closed: list[Array]
    q: Array
    queries: Tokens
    k: Array
    v: Array
    keys: Tokens

    def pair(self, queries: Tree, keys: Tree) -> "_Arrays":
        """A block of queries (q, tokens) and a block of keys (k, v, tokens)."""
        return _Arrays(*self[:4], *queries, *keys)


class _Row(NamedTuple):
    """One row of a pair of blocks; arrays of pairs broadcast to `[share, size_q, size_k]`."""

    q: Array
    k: Array
    v: Array
    scale: Array | None
    products: Array | None
    bias: Array | None
    allowed: Array | None
    kept: Array | None  # factors of dropout

    def logits(self, plan: Plan) -> Array:
        """Logits `[share, size_q, size_k]`, float32 or wider; the least float where masked."""
        products = self.products
        if products is None:
            dtype = compute_dtype(self.q)
            flat = self.q.reshape(-1, self.q.shape[-1])
            products = jnp.matmul(flat, self.k, preferred_element_type=dtype)
            products = products.reshape(*self.q.shape[:-1], -1)
        scale = plan.scale if self.scale is None else self.scale
        logits = encoded_logits(products, self.bias, scale, plan.cap)
        # Finite logits stay, yet without a bound XLA would compute scale·products − base without
        # rounding the products as the base was, as in `attention_weights`. The derivative of
        # `jnp.maximum` has a division for ties.
        floor = float(jnp.finfo(logits.dtype).min)
        out = logits < floor  # never NaN, which stays
        return jnp.where(out if self.allowed is None else out | ~self.allowed, floor, logits)

    def shares(self, logits: Array, *bases: Array) -> Array:
        """exp(logits − bases), 0 where masked: before exp, whose slope times 0 would be NaN."""
        for base in bases:
            logits = logits - base[..., None]
        masked = logits if self.allowed is None else jnp.where(self.allowed, logits, -jnp.inf)
        return jnp.exp(masked)

    def mixed(self, weights: Array) -> tuple[Array, Array]:
        """Sums of values `[share, size_q, width]`, and the weights that dropout leaves."""
        weights = weights if self.kept is None else weights * self.kept.astype(weights.dtype)
        flat = weights.reshape(-1, weights.shape[-1])
        out = jnp.einsum("qk,dk->qd", flat, self.v.astype(weights.dtype))
        return out.reshape(*weights.shape[:-1], -1), weights


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
    (*lead, heads, n_q, _), (groups, n_k) = q.shape, k.shape[-3:-1]
    size_q, size_k = min(plan.block_size, n_q), min(plan.block_size, n_k)
    plan, rows = plan._replace(lead=tuple(lead)), (-1, heads // groups)
    if n_k % size_k and keys.mask.k_valid is None:
        keys = keys._replace(mask=keys.mask._replace(k_valid=jnp.ones(n_k, bool)))
    if queries.pairs is not None:
        widths = [(0, 0)] * (queries.pairs.ndim - 1) + [(0, -n_k % size_k)]
        queries = queries._replace(pairs=jnp.pad(queries.pairs, widths))
    queries = _blocked_tokens(queries, n_q, size_q, len(lead))
    keys = _blocked_tokens(keys, n_k, size_k, len(lead))
    q, k, v = (_blocks(x, x.ndim - 2, size) for x, size in ((q, size_q), (k, size_k), (v, size_k)))
    q = q.reshape(len(q), *rows, *q.shape[-2:])
    k, v = (x.reshape(len(x), -1, *x.shape[-2:]).mT for x in (k, v))
    arrays = _Arrays(params, scale, sink, [], q, queries, k, v, keys)
    # A hook may close over what is differentiated, such as slopes of ALiBi.
    first = arrays.pair(*jax.tree.map(lambda x: x[0], ((q, queries), (k, v, keys))))
    terms, closed = jax.closure_convert(partial(_terms, plan), first)
    out, _ = _attention(plan, terms, arrays._replace(closed=closed))
    out = jnp.moveaxis(out, 0, -3)  # [rows, share, blocks, size, width]
    return out.reshape(*lead, heads, -1, out.shape[-1])[..., :n_q, :].astype(v.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _attention(
    plan: Plan, terms: Callable[..., Tree], arrays: _Arrays
) -> tuple[Array, tuple[Array, Array]]:
    """Outputs in blocks; the maxima of logits, and logarithms of the sums of exp(logits − maxima).

    Their sum would be rounded as the maxima are: at logits of 1e7 shares would sum to 1.5.
    """
    dtype = compute_dtype(arrays.v)
    floor = float(jnp.finfo(dtype).min)

    def attend(pair: _Arrays, top: Array, total: Array, out: Array) -> Tree:
        def of_row(inputs: Tree) -> Tree:
            row, top = inputs
            logits = row.logits(plan)
            new = jnp.maximum(top, jnp.max(logits, axis=-1))
            weights = row.shares(logits, new)
            term, dropped = row.mixed(weights)
            return new, jnp.sum(weights, axis=-1), term, _for_values(plan, dropped)

        new, weight, term, dropped = _over_rows(plan, of_row, (_rows(plan, terms, pair), top))
        fade = jnp.exp(top - new)
        term = term + _value_term(plan, pair, dropped)
        return new, total * fade + weight, out * fade[..., None] + term

    def block(block: Tree) -> tuple[Array, tuple[Array, Array]]:
        zeros = jnp.zeros(block[0].shape[:-1], dtype)
        wide = jnp.zeros((*zeros.shape, arrays.v.shape[-2]), dtype)
        top, total, out = _over_keys(plan, arrays, block, attend, (zeros + floor, zeros, wide))
        if arrays.sink is not None:
            sink = _sink_rows(arrays.sink, block[0], dtype)
            new = jnp.maximum(top, sink)
            fade = jnp.exp(top - new)
            top, total, out = new, total * fade + jnp.exp(sink - new), out * fade[..., None]
        safe = jnp.where(total > 0, total, 1.0)  # a query without keys has output 0
        return out / safe[..., None], (jnp.where(total > 0, top, 0.0), jnp.log(safe))

    return lax.map(block, (arrays.q, arrays.queries))


# With p_ij = exp(s_ij − m_i − l_i), m the maxima and l the logarithms of the sums, N = Σ_j p v and
# T = Σ_j p = 1, the derivative of the output is dN − out·dT and of l dT, with m and l held constant
# in p (m is any number, so its derivative is 0). It is written in plain `lax`: JAX transposes it
# for reverse mode, and differentiates it again. The transpose makes the five products of Dao et al.
# (2022) for each pair of blocks. Instead: `jax.custom_vjp` has no forward mode. Without a rule,
# N/T at `stop_gradient(l)` makes a third product in the forward pass: the value takes 1.6 times as
# long, with its gradient 1.2 (8 heads of 64, n = 4,096). The derivative of the running maximum
# itself would keep numbers for each pair of blocks.
@_attention.defjvp
def _attention_jvp(
    plan: Plan, terms: Callable[..., Tree], primals: tuple[_Arrays], tangents: tuple[_Arrays]
) -> tuple[Tree, Tree]:
    out, bases = _attention(plan, terms, *primals)
    _, (mixed, total) = jax.jvp(partial(_sums, plan, terms, bases), primals, tangents)
    return (out, bases), (mixed - out * total[..., None], (jnp.zeros_like(total), total))


def _sums(
    plan: Plan, terms: Callable[..., Tree], bases: tuple[Array, Array], arrays: _Arrays
) -> tuple[Array, Array]:
    """Sums of exp(logits − bases)·values, and of exp(logits − bases)."""
    again = partial(jax.checkpoint, prevent_cse=False)  # in a loop nothing is shared by mistake

    @again
    def attend(pair: _Arrays, bases: Tree, mixed: Array, total: Array) -> Tree:
        @again
        def of_row(inputs: Tree) -> Tree:
            row, base = inputs
            weights = row.shares(row.logits(plan), *base)
            term, dropped = row.mixed(weights)
            return term, jnp.sum(weights, axis=-1), _for_values(plan, dropped)

        term, weight, dropped = _over_rows(plan, of_row, (_rows(plan, terms, pair), bases))
        return mixed + term + _value_term(plan, pair, dropped), total + weight

    @again
    def block(arrays: _Arrays, block: Tree, bases: tuple[Array, Array]) -> tuple[Array, Array]:
        total = jnp.zeros_like(bases[0])
        if arrays.sink is not None:
            total = jnp.exp(_sink_rows(arrays.sink, block[0], total.dtype) - bases[0] - bases[1])
        mixed = jnp.zeros((*total.shape, arrays.v.shape[-2]), total.dtype)

        def step(pair: _Arrays, *state: Array) -> Tree:
            return attend(pair, bases, *state)

        return _over_keys(plan, arrays, block, step, (mixed, total))

    return lax.map(lambda x: block(arrays, *x), ((arrays.q, arrays.queries), bases))


def _over_keys(
    plan: Plan, arrays: _Arrays, queries: Tree, attend: Callable[..., Tree], start: Tree
) -> Tree:
    """State after a block of queries has met all blocks of keys; masked ones are skipped."""

    def step(state: Tree, block: Tree) -> tuple[Tree, None]:
        j, *keys = block
        pair = arrays.pair(_queries_at(queries, j, keys[0].shape[-1]), keys)
        allowed = _allowed(plan, pair)
        if allowed is None:
            return attend(pair, *state), None
        return lax.cond(jnp.any(allowed), partial(attend, pair), lambda *x: x, *state), None

    # Under `shard_map` a state has to vary over the devices from its start on, as any array does;
    # XLA removes the sum.
    leaves = jax.tree.leaves((arrays, queries))
    zero = sum(jnp.where(False, jnp.sum(x.ravel()[:1].astype(start[0].dtype)), 0) for x in leaves)
    start = jax.tree.map(lambda x: x + zero, start)
    blocks = (jnp.arange(len(arrays.k)), arrays.k, arrays.v, arrays.keys)
    # A derivative keeps no copy of the queries for each block of keys, which took a fifth of its
    # time.
    return lax.scan(jax.checkpoint(step, prevent_cse=False), start, blocks)[0]


def _queries_at(queries: Tree, j: Array, size: int) -> Tree:
    """A block of queries whose mask by pairs has the columns of block j of the keys."""
    q, tokens = queries
    if tokens.pairs is None:
        return queries
    axis = tokens.pairs.ndim - 1
    return q, tokens._replace(pairs=lax.dynamic_slice_in_dim(tokens.pairs, j * size, size, axis))


def reads_pairs(encoding: Encoding) -> bool:
    """Whether an encoding makes arrays of pairs, in which heads differ.

    >>> from jaxpe import encodings
    >>> reads_pairs(encodings.alibi(num_heads=1)), reads_pairs(encodings.rope(head_dim=2))
    (True, False)
    """
    return encoding.defines("products") or encoding.defines("bias")


def _over_rows(plan: Plan, function: Callable[[Tree], Tree], tree: Tree) -> Tree:
    """Results for every row; an array with one row is shared by all.

    On CPUs rows are taken one by one, in larger blocks: a row's weights stay in the cache. Biases
    of all heads would be stored for that. Value and gradient of 8 heads of 64, n = 4,096, on two
    cores, one by one and at once: RoPE 0.71 and 0.73 s, ALiBi 0.95 and 0.85 s.
    """
    at_once = jax.default_backend() != "cpu" or reads_pairs(plan.encoding)
    leaves, structure = jax.tree.flatten(tree)
    rows = max(map(len, leaves))
    shared = [len(x) < rows for x in leaves]

    def one(mapped: list[Array]) -> Tree:
        parts = iter(mapped)
        arrays = [x[0] if alone else next(parts) for x, alone in zip(leaves, shared, strict=True)]
        return function(jax.tree.unflatten(structure, arrays))

    mapped = [x for x, alone in zip(leaves, shared, strict=True) if not alone]
    return jax.vmap(one)(mapped) if at_once else lax.map(one, mapped)


def _rows(plan: Plan, terms: Callable[..., Tree], pair: _Arrays) -> _Row:
    """All rows of a pair of blocks, on the first axis; it is 1 where rows share an array."""
    _, share, *_ = pair.q.shape
    rank = len(plan.lead) + 3

    def rows(x: Array | None) -> Array | None:
        if x is None:
            return None
        x = expand_rank(x, rank)
        if all(size == 1 for size in x.shape[:-2]):
            return x.reshape(1, 1, *x.shape[-2:])
        heads = len(pair.q) * share // math.prod(plan.lead)
        by_head = jnp.broadcast_to(x, (*plan.lead, heads, *x.shape[-2:]))
        return by_head.reshape(len(pair.q), share, *x.shape[-2:])

    products, bias = terms(pair._replace(closed=[]), *pair.closed)
    kept = None
    if pair.queries.bits is not None and pair.keys.bits is not None:
        kept = dropout_factors(
            pair.queries.bits, pair.keys.bits, plan.dropout_rate, compute_dtype(pair.v)
        )
    more = (pair.scale, products, bias, _allowed(plan, pair), kept)
    return _Row(pair.q, pair.k, pair.v, *map(rows, more))


def _hook_arguments(plan: Plan, pair: _Arrays) -> tuple[Array, ...]:
    """Queries and keys `[..., n, heads, width]` and positions, as hooks of pairs take them."""
    q = pair.q.reshape(*plan.lead, -1, *pair.q.shape[-2:]).swapaxes(-2, -3)
    k = jnp.moveaxis(pair.k.reshape(*plan.lead, -1, *pair.k.shape[-2:]), -1, -3)
    return q, k, pair.queries.positions, pair.keys.positions


def _terms(plan: Plan, pair: _Arrays) -> tuple[Array | None, Array | None]:
    """The encoding's own products, and its bias."""
    encoding = bind_context(plan.encoding, pair.queries.context, pair.keys.context)
    arguments = _hook_arguments(plan, pair)
    return encoding.products(pair.params, *arguments), encoding.bias(pair.params, *arguments)


def _allowed(plan: Plan, pair: _Arrays) -> Array | None:
    """True where a query of a block may attend to a key of a block; None for all."""
    q, k, i, j = _hook_arguments(plan, pair)
    positions = {"q_positions": i, "k_positions": j}
    allowed = encoded_mask(plan.encoding, pair.params, q, k, plan.mask, **positions)
    by_token = joined_mask(pair.queries.mask, pair.keys.mask)
    return combined_masks(by_token.pairs(), pair.queries.pairs, allowed)


def _for_values(plan: Plan, weights: Array) -> Array | None:
    """The weights, if the encoding's `value` reads them."""
    return weights if plan.encoding.defines("value") else None


def _value_term(plan: Plan, pair: _Arrays, weights: Array | None) -> Array | float:
    """The encoding's value term `[rows, share, size_q, width]`; 0 without one."""
    if weights is None:
        return 0.0
    by_head = weights.reshape(*plan.lead, -1, *weights.shape[-2:])
    positions = pair.queries.positions, pair.keys.positions
    term = plan.encoding.value(pair.params, by_head, *positions)
    if term is None:
        return 0.0
    term = term.swapaxes(-2, -3).astype(weights.dtype)
    return term.reshape(*weights.shape[:-1], -1)


def _sink_rows(sink: Array, q: Array, dtype: Any) -> Array:
    """Logits of sinks, by head, for queries `[rows, share, size, width]`."""
    rows, share, size, _ = q.shape
    by_head = jnp.asarray(sink, dtype).reshape(-1, share)
    by_row = jnp.broadcast_to(by_head, (rows // len(by_head), *by_head.shape))
    return jnp.broadcast_to(by_row.reshape(rows, share, 1), (rows, share, size))


def _blocked_tokens(tokens: Tokens, n: int, size: int, lead: int) -> Tokens:
    """Tokens in blocks, with the last position on padding."""
    positions = jnp.asarray(tokens.positions)
    axis = positions.ndim + token_axis(positions, n)

    def blocks(tree: Tree, axis: int) -> Tree:
        return jax.tree.map(lambda x: _blocks(x, axis % jnp.ndim(x), size), tree)

    return Tokens(
        _blocks(positions, axis, size, mode="edge"),
        blocks(tokens.context, lead),
        blocks(tokens.mask, -1),
        blocks(tokens.pairs, -2),
        blocks(tokens.bits, -1),
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

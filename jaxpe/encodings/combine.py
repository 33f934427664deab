"""Combinations of encodings: in a chain, by head, by layer, at other positions."""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import Scalar
from jaxpe.encodings.attention_terms import dot_products
from jaxpe.encodings.base import (
    Encoding,
    as_positions,
    check_heads,
    check_sizes,
    scaled,
    vector_dtype,
)

# Arrays and positions that a hook takes between the parameters and the contexts.
_ARGUMENTS = {
    "vectors": (0, 1), "embed": (1, 1), "context": (1, 1), "query": (1, 1), "key": (1, 1),
    "products": (2, 2), "bias": (2, 2), "mask": (2, 2), "value": (1, 2),
}  # fmt: skip


class LayerPattern(NamedTuple):
    """Encodings by layer: `encodings[l mod period]` acts in layer l (from 0).

    Each layer has its own parameters. Pass it as `layer_encoding` of an `Encoder` or `Decoder`.

    Attributes:
        encodings: encodings of the first layers; they repeat after these.
    """

    encodings: tuple[Encoding, ...]

    def at(self, layer: int) -> Encoding:
        """The encoding of a layer.

        Args:
            layer: number of the layer, from 0.

        >>> from jaxpe import encodings
        >>> pattern = interleaved_layers(encodings.rope(head_dim=4), encodings.identity(), period=2)
        >>> pattern.at(3).defines("query")
        False
        """
        return self.encodings[layer % len(self.encodings)]

    def defines(self, hook: str) -> bool:
        """Whether the encoding of some layer defines `hook`.

        Args:
            hook: name of a hook, such as "bias".
        """
        return any(part.defines(hook) for part in self.encodings)


E = TypeVar("E", bound=Encoding | LayerPattern)


def chain(*encodings: E) -> E:
    """Several encodings as one, as Optax chains gradient transformations.

    `embed`, `query` and `key` apply in order; biases and value terms add; a pair must pass every
    mask. `vectors` come from the one encoding that defines them; several raise a ValueError. The
    parameters are a tuple, one entry an encoding. A hook that no part defines stays undefined. A
    chain of one encoding is that encoding. A chain with a `LayerPattern` is a `LayerPattern` of
    chains.

    Args:
        encodings: encodings or layer patterns, in the order in which they act.

    Raises:
        ValueError: several encodings define `products`.

    >>> from jaxpe import encodings
    >>> both = chain(encodings.rope(head_dim=4), encodings.alibi(num_heads=2))
    >>> both.defines("query"), both.defines("bias"), both.defines("embed")
    (True, True, False)
    """
    if len(encodings) == 1:
        return encodings[0]
    periods = [len(part.encodings) for part in encodings if isinstance(part, LayerPattern)]
    if not periods:
        return _chained(encodings)  # pyrefly: ignore (none is a pattern)

    def layer(i: int) -> Encoding:
        return chain(*(p.at(i) if isinstance(p, LayerPattern) else p for p in encodings))

    return LayerPattern(tuple(map(layer, range(math.lcm(*periods)))))  # pyrefly: ignore


def _chained(encodings: Sequence[Encoding]) -> Encoding:
    several = [i for i, part in enumerate(encodings) if part.defines("products")]
    if len(several) > 1:
        raise ValueError(f"encodings {several} of the chain all define `products`: chain one")

    def in_order(functions, x, positions):
        return reduce(lambda x, function: function(x, positions), functions, x)

    def joined(operation, functions, *args):
        terms = [term for function in functions if (term := function(*args)) is not None]
        return reduce(operation, terms) if terms else None

    def vectors(functions, positions):
        defined = [i for i, part in enumerate(encodings) if part.defines("vectors")]
        if len(defined) > 1:
            raise ValueError(
                f"`chain` cannot choose between encodings {defined}, which all define `vectors`: "
                f"call encodings[{defined[0]}].vectors(params[{defined[0]}], positions), or pass "
                'by="logits" to `encoding_distances`'
            )
        return functions[defined[0]](positions)

    hooks = dict.fromkeys(("embed", "query", "key"), in_order) | {"vectors": vectors}
    hooks |= dict.fromkeys(("products", "bias", "value"), partial(joined, operator.add))
    chained = _combined_encoding(encodings, hooks | {"mask": partial(joined, operator.and_)})
    several = sum(part.defines("key") for part in encodings) > 1  # which may not commute
    return chained._replace(rotates=chained.rotates and not several)


def per_head(encodings: Sequence[Encoding], *, heads: Sequence[int] | None = None) -> Encoding:
    """Different encodings for different heads: partial RoPE on k heads, mixed heads.

    The first `heads[0]` heads take `encodings[0]`, and so on. An encoding with a number of heads
    (ALiBi) is built for its own share of them. Keys may have fewer heads (grouped queries) if the
    groups divide in the same way. Parameters are a tuple.

    Args:
        encodings: one encoding for each group of heads, in their order.
        heads: number of query heads of each encoding; one head each when None.

    Raises:
        ValueError: an encoding acts on the embeddings, which all heads share, or an array has
            another number of heads.

    >>> from jaxpe import encodings
    >>> mixed = per_head([encodings.rope(head_dim=4), encodings.identity()], heads=[1, 3])
    >>> q = mixed.query(((), ()), jnp.ones((2, 4, 4)), jnp.arange(2))
    >>> (q[1] == 1).all(axis=-1).tolist()
    [False, True, True, True]
    """
    heads = [1] * len(encodings) if heads is None else list(heads)
    if len(heads) != len(encodings) or min(heads, default=0) < 1:
        raise ValueError(
            f"heads={heads} must give at least one head to each of {len(encodings)} encodings"
        )
    on_embeddings = [i for i, part in enumerate(encodings) if part.defines("embed")]
    if on_embeddings:
        raise ValueError(
            f"encodings {on_embeddings} act on the embeddings, which all heads share: chain them"
        )

    def split(x, *, axis=-2, grouped=False):
        """The heads of each encoding; only keys may have fewer, shared by groups of queries."""
        if not grouped:
            check_heads(jnp.shape(x), sum(heads), axis=axis)
        return jnp.split(x, _boundaries(heads, x.shape[axis]), axis=axis)

    def single(functions, x, positions, *, grouped=False):
        pieces = zip(functions, split(x, grouped=grouped), strict=True)
        return jnp.concatenate([f(piece, positions) for f, piece in pieces], axis=-2)

    def pairs(functions, q, k, i, j, *, fill=False, default=None):
        parts = zip(functions, split(q), split(k, grouped=True), strict=True)
        pieces = [default(*x) if (y := f(*x, i, j)) is None and default else y for f, *x in parts]
        return _joined_pieces(pieces, heads, -3, (q.shape[-3], k.shape[-3]), fill)

    def value(functions, weights, i, j):
        parts = zip(functions, split(weights, axis=-3), strict=True)
        pieces = [function(part, i, j) for function, part in parts]
        dim = next((piece.shape[-1] for piece in pieces if piece is not None), 1)
        return _joined_pieces(pieces, heads, -2, (dim,))

    hooks = {"query": single, "key": partial(single, grouped=True), "bias": pairs, "value": value}
    hooks |= {"products": partial(pairs, default=dot_products), "mask": partial(pairs, fill=True)}
    return _combined_encoding(encodings, hooks)


def scale_positions(encoding: Encoding, factor: Scalar) -> Encoding:
    """Scale positions to factor·i, as floats: position interpolation for factor < 1.

    Chen et al. (2023). For RoPE it equals linear scaling by 1/factor. Linear scaling is exact at
    large positions, where float32 rounds factor·i by up to 6e-8·factor·i.

    Args:
        encoding: any encoding.
        factor: factor of the positions, which may be traced.

    >>> near = scale_positions(jaxpe.encodings.alibi(num_heads=1), 0.5)
    >>> near.vectors((), jnp.arange(3)).ravel().tolist() == [0.0, 2**-9, 2**-8]
    True
    """

    def scaled_positions(positions):
        dtype = vector_dtype(positions)
        return positions.astype(dtype) * jnp.asarray(factor, dtype)

    kept = {"rotates": encoding.rotates, "centered": encoding.centered}
    return moved_positions(encoding, scaled_positions)._replace(**kept)


def moved_positions(encoding: Encoding, move: Callable[[Array], Array]) -> Encoding:
    """The encoding at positions move(i), in all of its hooks.

    Positions are not counted from a middle before: a move that is not linear changes offsets.
    """

    def at_moved(hook, arrays, count):
        def apply(params, *args):
            end = arrays + count
            positions = (move(as_positions(i)) for i in args[arrays:end])
            return getattr(encoding, hook)(params, *args[:arrays], *positions, *args[end:])

        return apply

    used = {hook: arity for hook, arity in _ARGUMENTS.items() if encoding.defines(hook)}
    hooks: dict[str, Any] = {hook: at_moved(hook, *arity) for hook, arity in used.items()}
    return encoding._replace(rotates=False, centered=False, **hooks)


def rescaled(encoding: Encoding, factor: Scalar) -> Encoding:
    """Multiply an encoding's products of queries and keys by a constant.

    DroPE (Gelberg et al. 2025) uses it: train with RoPE; load the weights into a model without
    positions, which fits because neither has parameters; recalibrate briefly at the training
    length; then scale the logits by a constant for longer contexts. The parameters do not change. A
    bias of positions is not scaled; one that reads queries, as Shaw's, gets the scaled ones.

    Args:
        encoding: any encoding; `identity()` for no positions.
        factor: factor of q·k, which may be traced.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> rope, dropped = encodings.rope(head_dim=4), rescaled(encodings.identity(), 1.1)
    >>> trained = nn.Decoder(config, encoding=rope, rngs=nnx.Rngs(0))
    >>> recalibrated = nn.Decoder(config, encoding=dropped, rngs=nnx.Rngs(1))
    >>> nnx.update(recalibrated, nnx.state(trained, nnx.Param))  # and train on, for a little
    >>> recalibrated(jnp.arange(5)).hidden.shape
    (5, 8)
    """

    def query(params, q, positions, *context):
        return scaled(encoding.query(params, q, positions, *context), factor)

    return encoding._replace(query=query)


def interleaved_layers(encoding: Encoding, last: Encoding, *, period: int) -> LayerPattern:
    """Interleaved layers: one encoding, and another in the last layer of each period.

    SmolLM3 is `interleaved_layers(rope(...), identity(), period=4)`: no positions in layers 3, 7,
    11, ... (from 0).

    Args:
        encoding: encoding of the first period − 1 layers.
        last: encoding of the last layer of a period.
        period: layers of a period, at least 1.

    >>> from jaxpe import encodings
    >>> pattern = interleaved_layers(encodings.rope(head_dim=4), encodings.identity(), period=4)
    >>> [pattern.at(layer).defines("query") for layer in range(5)]
    [True, True, True, False, True]
    """
    check_sizes(period=period)
    return LayerPattern((encoding,) * (period - 1) + (last,))


def _combined_encoding(parts: Sequence[Encoding], hooks: dict[str, Callable[..., Any]]) -> Encoding:
    """The encoding with the hooks that any part defines; parameters and contexts are tuples.

    Each of `hooks` takes the hooks of all parts, with parameters and contexts bound, and arguments.
    """

    def combined(hook):
        count = sum(_ARGUMENTS[hook])

        def bound(i, params, contexts):
            entries = [context[i] for context in contexts] if parts[i].defines("context") else []
            return lambda *args: getattr(parts[i], hook)(params, *args, *entries)

        def apply(params, *args):
            own, contexts = args[:count], args[count:]
            functions = [bound(i, params[i], contexts) for i in range(len(parts))]
            return hooks[hook](functions, *own)

        return apply

    def init(key):
        keys = jax.random.split(key, len(parts))
        return tuple(part.init(k) for part, k in zip(parts, keys, strict=True))

    def context(params, x, positions, rows):
        pairs = [
            part.context(part_params, x, positions, rows.part(i))
            for i, (part, part_params) in enumerate(zip(parts, params, strict=True))
        ]
        return tuple(zip(*pairs, strict=True))  # contexts, and carries

    functions = {hook: combined(hook) for hook in hooks} | {"context": context}
    defined: dict[str, Any] = {
        n: f for n, f in functions.items() if any(part.defines(n) for part in parts)
    }
    acting = [part.centered for part in parts if part.defines("query") or part.defines("key")]
    turning = [part.rotates for part in parts if part.defines("key")]
    centered, rotates = (bool(flags) and all(flags) for flags in (acting, turning))
    whole_rows = any(part.whole_rows for part in parts)
    return Encoding(init=init, centered=centered, rotates=rotates, whole_rows=whole_rows, **defined)


def _boundaries(heads: list[int], available: int) -> list[int]:
    """Indices at which to split an axis of `available` heads; grouped keys have fewer."""
    share, rest = divmod(sum(heads), available)
    if rest or any(h % share for h in heads):
        raise ValueError(
            f"the encodings cover {sum(heads)} heads as {heads}, but the array has {available}: "
            "pass heads that divide in the same ratio"
        )
    return [end // share for end in itertools.accumulate(heads)][:-1]


def _joined_pieces(
    pieces: list[Array | None],
    heads: list[int],
    axis: int,
    shape: tuple[int, ...],
    fill: bool = False,
) -> Array | None:
    """Pieces `[..., heads, *shape]` side by side, `fill` where a part has none."""
    present = [piece for piece in pieces if piece is not None]
    if not present:
        return None
    lead = jnp.broadcast_shapes(*(piece.shape[:axis] for piece in present))
    nothing = jnp.asarray(fill, present[0].dtype)
    filled = [
        jnp.broadcast_to(nothing if piece is None else piece, (*lead, h, *shape))
        for piece, h in zip(pieces, heads, strict=True)
    ]
    return jnp.concatenate(filled, axis=axis)

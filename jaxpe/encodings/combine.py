"""Combinations of encodings: in a chain, by head, by layer, at other positions."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.attention import attention_weights, dot_products
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_positions,
    check_heads,
    check_sizes,
    compute_dtype,
    context_of_part,
    vector_dtype,
)

_ONE = ("embed", "query", "key")
_PAIRS = ("products", "bias", "mask", "weights", "value")
# Of these a chain can have one alone: there is no sum of two softmaxes.
_ALONE = ("products", "weights")


class LayerPattern(NamedTuple):
    """Encodings by layer: `encodings[l mod period]` acts in layer l (from 0).

    Each layer has parameters of its own. Pass it as `layer_encoding` of an `Encoder` or `Decoder`.

    Attributes:
        encodings: encodings of the first layers; they repeat after these.
    """

    encodings: tuple[Encoding, ...]

    def at(self, layer: int) -> Encoding:
        """The encoding of a layer, counted from 0.

        >>> pattern = interleaved_layers(jaxpe.rope(head_dim=4), jaxpe.identity(), period=2)
        >>> pattern.at(3).defines("query")
        False
        """
        return self.encodings[layer % len(self.encodings)]

    def defines(self, hook: str) -> bool:
        """Whether the encoding of some layer defines `hook`."""
        return any(part.defines(hook) for part in self.encodings)


@overload
def chain(*encodings: Encoding) -> Encoding: ...


@overload
def chain(*encodings: Encoding | LayerPattern) -> Encoding | LayerPattern: ...


def chain(*encodings: Encoding | LayerPattern) -> Encoding | LayerPattern:
    """Several encodings as one, as Optax chains gradient transformations.

    `embed`, `query` and `key` apply in order; biases and value terms add; masks hold together;
    `vectors` is the one that is defined, and a ValueError where several are. The parameters are a
    tuple, one entry an encoding. A hook that no part defines stays undefined. One encoding alone
    stays itself. A chain with a `LayerPattern` is one, a chain in each layer.

    Raises:
        ValueError: where several parts define `products` or `weights`, which exist once.

    >>> both = chain(jaxpe.rope(head_dim=4), jaxpe.alibi(num_heads=2))
    >>> both.defines("query"), both.defines("bias"), both.defines("embed")
    (True, True, False)
    """
    if len(encodings) == 1:
        return encodings[0]
    periods = [len(part.encodings) for part in encodings if isinstance(part, LayerPattern)]
    if periods:
        layers = range(math.lcm(*periods))
        return LayerPattern(
            tuple(
                chain(*(p.at(i) if isinstance(p, LayerPattern) else p for p in encodings))
                for i in layers
            )
        )
    return _chained(encodings)  # pyrefly: ignore (none is a pattern)


def _chained(encodings: Sequence[Encoding]) -> Encoding:
    for hook in _ALONE:
        several = [i for i, part in enumerate(encodings) if part.defines(hook)]
        if len(several) > 1:
            raise ValueError(f"encodings {several} of the chain all define `{hook}`: chain one")

    def in_order(hook):
        def apply(params, x, positions, *contexts):
            for i, (part, own) in enumerate(zip(encodings, params, strict=True)):
                own_context = context_of_part(part, i, contexts)
                x = getattr(part, hook)(own, x, positions, *own_context)
            return x

        return apply

    def terms(hook):
        def apply(params, *args):
            args, contexts = _split_contexts(hook, args)
            return [
                getattr(part, hook)(own, *args, *context_of_part(part, i, contexts))
                for i, (part, own) in enumerate(zip(encodings, params, strict=True))
            ]

        return apply

    with_vectors = [i for i, part in enumerate(encodings) if part.defines("vectors")]

    def vectors(params, positions):
        if len(with_vectors) > 1:
            raise ValueError(
                f"`chain` cannot decide whose vectors to use: encodings {with_vectors} all define "
                f"them. Call encodings[{with_vectors[0]}].vectors(...), or chain only one "
                "encoding that defines vectors"
            )
        return encodings[with_vectors[0]].vectors(params[with_vectors[0]], positions)

    hooks = {"init": _init_each(encodings), "context": _context_of_each(encodings)}
    hooks |= {"vectors": vectors}
    hooks |= {name: in_order(name) for name in _ONE}
    hooks |= {name: _reduced(terms(name), _sum) for name in ("products", "bias", "weights")}
    hooks |= {"value": _reduced(terms("value"), _sum), "mask": _reduced(terms("mask"), _all)}
    return Encoding(**_defined(hooks, encodings))


def per_head(encodings: Sequence[Encoding], *, heads: Sequence[int] | None = None) -> Encoding:
    """Different encodings for different heads: partial RoPE on k heads, mixed heads.

    The first `heads[0]` heads take `encodings[0]`, and so on; one head each when `heads` is None.
    An encoding that counts heads itself (ALiBi) is built for those it gets. Keys may have fewer
    heads (grouped queries) where the groups divide alike. Parameters are a tuple.

    Raises:
        ValueError: where an encoding acts on the embeddings, which all heads share, or the heads
            of an array are not those given here.

    >>> mixed = per_head([jaxpe.rope(head_dim=4), jaxpe.identity()], heads=[1, 3])
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
        def apply(params, x, positions, *contexts):
            parts = zip(encodings, params, split(x, grouped=hook == "key"), strict=True)
            pieces = [
                getattr(part, hook)(own, piece, positions, *context_of_part(part, i, contexts))
                for i, (part, own, piece) in enumerate(parts)
            ]
            return jnp.concatenate(pieces, axis=-2)

        return apply

    def pairs(hook):
        def apply(params, q, k, q_positions, k_positions, *contexts):
            parts = zip(encodings, params, split(q), split(k, grouped=True), heads, strict=True)
            pieces = []
            for i, (part, own, q_part, k_part, h) in enumerate(parts):
                own_context = context_of_part(part, i, contexts)
                places = (q_positions, k_positions, *own_context)
                piece = getattr(part, hook)(own, q_part, k_part, *places)
                if piece is None and hook == "products":
                    piece = dot_products(q_part, k_part)
                pieces.append((piece, h))
            fill = hook == "mask"
            return _joined(pieces, axis=-3, shape=(q.shape[-3], k.shape[-3]), fill=fill)

        return apply

    def weights(params, logits, mask, q_positions, k_positions):
        masks = [mask] * len(heads)
        if mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
            masks = split(mask, axis=-3)
        parts = zip(encodings, params, split(logits, axis=-3), masks, heads, strict=True)
        pieces: list[tuple[Array | None, int]] = []
        for part, own, piece, allowed, h in parts:
            found = part.weights(own, piece, allowed, q_positions, k_positions)
            pieces.append((attention_weights(piece, allowed) if found is None else found, h))
        return _joined(pieces, axis=-3, shape=logits.shape[-2:])

    def value(params, weights, q_positions, k_positions):
        parts = zip(encodings, params, split(weights, axis=-3), heads, strict=True)
        pieces = [
            (part.value(own, piece, q_positions, k_positions), h) for part, own, piece, h in parts
        ]
        dim = next((piece.shape[-1] for piece, _ in pieces if piece is not None), 1)
        return _joined(pieces, axis=-2, shape=(dim,))

    hooks = {"init": _init_each(encodings), "context": _context_of_each(encodings)}
    hooks |= {"value": value, "weights": weights}
    hooks |= {name: each(name) for name in ("query", "key")}
    hooks |= {name: pairs(name) for name in ("products", "bias", "mask")}
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
        def apply(params, x, positions, *rest):
            return getattr(encoding, hook)(params, x, moved(positions), *rest)

        return apply

    def pairs(hook):
        arrays = 1 if hook == "value" else 2

        def apply(params, *args):
            i, j, *contexts = args[arrays:]
            return getattr(encoding, hook)(params, *args[:arrays], moved(i), moved(j), *contexts)

        return apply

    def vectors(params, positions):
        return encoding.vectors(params, moved(positions))

    hooks = {"init": encoding.init, "vectors": vectors}
    hooks |= {name: one(name) for name in (*_ONE, "context")}
    hooks |= {name: pairs(name) for name in _PAIRS}
    return Encoding(**_defined(hooks, [encoding]))


def rescaled(encoding: Encoding, factor: float | ArrayLike) -> Encoding:
    """The same encoding with the products of queries and keys multiplied by a constant.

    With it DroPE (Gelberg et al. 2025) is a recipe: train with RoPE; take the weights into a model
    without positions, which fit as neither has parameters; recalibrate that model for a small share
    of the training, at the length of training; then scale the logits by a constant for contexts
    beyond it. A bias keeps its size. The parameters are those of the encoding.

    Args:
        encoding: any; `identity()` for no positions.
        factor: factor of q·k, which may be traced.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> rope, dropped = jaxpe.rope(head_dim=4), rescaled(jaxpe.identity(), 1.1)
    >>> trained = jaxpe.nn.Decoder(config, encoding=rope, rngs=nnx.Rngs(0))
    >>> recalibrated = jaxpe.nn.Decoder(config, encoding=dropped, rngs=nnx.Rngs(1))
    >>> nnx.update(recalibrated, nnx.state(trained, nnx.Param))  # and train on, for a little
    >>> recalibrated(jnp.arange(5)).hidden.shape
    (5, 8)
    """

    def query(params, q, positions, *context):
        q = encoding.query(params, q, positions, *context)
        return (q.astype(compute_dtype(q)) * jnp.asarray(factor, compute_dtype(q))).astype(q.dtype)

    return encoding._replace(query=query)


def interleaved_layers(encoding: Encoding, last: Encoding, *, period: int) -> LayerPattern:
    """Interleaved layers: one encoding, and another in the last layer of each period.

    SmolLM3 is `interleaved_layers(rope(...), identity(), period=4)`: no positions in layers 3, 7,
    11, ... (from 0).

    Args:
        encoding: encoding of the first period − 1 layers.
        last: encoding of the last layer of a period.
        period: layers of a period, at least 1.

    >>> pattern = interleaved_layers(jaxpe.rope(head_dim=4), jaxpe.identity(), period=4)
    >>> [pattern.at(layer).defines("query") for layer in range(5)]
    [True, True, True, False, True]
    """
    check_sizes(period=period)
    return LayerPattern((encoding,) * (period - 1) + (last,))


def _split_contexts(hook: str, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arguments of a hook of pairs without the contexts, and these."""
    count = 3 if hook == "value" else 4
    return args[:count], args[count:]


def _reduced(terms: Callable[..., list[Any]], reduce: Callable[[list[Any]], Any]) -> Callable:
    return lambda params, *args: reduce(terms(params, *args))


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
    acting = [part.centered for part in parts if part.defines("query") or part.defines("key")]
    return defined | {"centered": bool(acting) and all(acting)}


def _context_of_each(encodings: Sequence[Encoding]) -> Callable[..., tuple[Any, Any]]:
    """Contexts and carries of every part, as tuples; None of parts that have none."""

    def context(params, x, positions, rows):
        found = [
            part.context(own, x, positions, rows.part(i))
            for i, (part, own) in enumerate(zip(encodings, params, strict=True))
        ]
        return tuple(c for c, _ in found), tuple(carry for _, carry in found)

    return context


def _sum(terms: list[Array | None]) -> Array | None:
    given = [term for term in terms if term is not None]
    return sum(given[1:], start=given[0]) if given else None


def _all(masks: list[Array | None]) -> Array | None:
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    allowed = given[0]
    for mask in given[1:]:
        allowed = allowed & mask
    return allowed


def _boundaries(heads: list[int], available: int) -> list[int]:
    """Places at which to split an axis of `available` heads; grouped keys have fewer."""
    share, rest = divmod(sum(heads), available)
    if rest or any(h % share for h in heads):
        raise ValueError(
            f"the encodings cover {sum(heads)} heads as {heads}, but the array has {available}: "
            "pass heads that divide in the same ratio"
        )
    ends = [sum(heads[: i + 1]) // share for i in range(len(heads))]
    return ends[:-1]


def _joined(
    pieces: list[tuple[Array | None, int]], *, axis: int, shape: tuple[int, ...], fill: Any = 0
) -> Array | None:
    """Pieces `[..., heads, *shape]` side by side, `fill` where a part has none."""
    given = [piece for piece, _ in pieces if piece is not None]
    if not given:
        return None
    lead = jnp.broadcast_shapes(*(piece.shape[:axis] for piece in given))
    nothing = jnp.asarray(fill, given[0].dtype)
    filled = [
        jnp.broadcast_to(nothing if piece is None else piece, (*lead, h, *shape))
        for piece, h in pieces
    ]
    return jnp.concatenate(filled, axis=axis)

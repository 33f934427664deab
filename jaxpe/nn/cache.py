"""Caches of decoders whose tokens move: evicted tokens and shifted prefixes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.encodings.base import as_positions
from jaxpe.encodings.cached_keys import rotate_by
from jaxpe.nn.attention import BoundEncoding, LayerCache, chain_bound
from jaxpe.nn.transformer import _NO_POSITION, Cache, Decoder


def move_cache(decoder: Decoder, cache: Cache, delta: int | ArrayLike) -> Cache:
    """Cache whose tokens are δ positions further on: their keys are rotated by δ.

    It equals the cache of the tokens read at positions i + δ, where logits depend on offsets alone.
    Layers whose keys do not depend on positions keep them. Latent attention rotates the rotary part
    of its keys. Keys and values of cross-attention stay.

    Args:
        decoder: decoder that filled the cache.
        cache: cache of its tokens.
        delta: number of positions, an integer or integers that broadcast to `[batch, slots]`.

    Raises:
        ValueError: an encoding whose keys do not move by a rotation, as in
            `jaxpe.encodings.rotate_by`.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=4), rngs=nnx.Rngs(0))
    >>> cache = decoder(jnp.arange(3)[None], cache=decoder.empty_cache(batch=1, slots=4)).cache
    >>> move_cache(decoder, cache, 7).positions[0, :3].tolist()
    [7, 8, 9]
    """
    delta = as_positions(jnp.asarray(delta))
    if delta.dtype != jnp.int32:
        raise ValueError(f"delta is {delta.dtype}: pass integers, as positions of a cache are")
    delta = jnp.where(cache.valid, jnp.broadcast_to(delta, cache.valid.shape), 0)
    layers = cache.layers if isinstance(cache.layers, tuple) else (cache.layers,)
    moved = tuple(_moved_layers(decoder, slot, layer, delta) for slot, layer in enumerate(layers))
    return cache._replace(
        layers=moved if isinstance(cache.layers, tuple) else moved[0],
        positions=cache.positions + delta,
    )


def evict_tokens(decoder: Decoder, cache: Cache, *, start: int, count: int) -> Cache:
    """Cache without the tokens of some slots, whose later tokens move into their place.

    Positions of later tokens decrease by the number of evicted tokens, and their keys are rotated.
    Positions then count the tokens in the cache, as in StreamingLLM, where the first `start` tokens
    are sinks (Xiao et al. 2024). Keys and values in deeper layers still depend on the evicted
    tokens.

    Args:
        decoder: decoder that filled the cache.
        cache: cache of its tokens.
        start: first slot to evict; the tokens before it stay where they are.
        count: number of slots to evict.

    Raises:
        ValueError: slots that are not filled, or an encoding as in `move_cache`.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=4), rngs=nnx.Rngs(0))
    >>> cache = decoder(jnp.arange(6)[None], cache=decoder.empty_cache(batch=1, slots=6)).cache
    >>> evict_tokens(decoder, cache, start=1, count=3).positions[0, :3].tolist()
    [0, 1, 2]
    """
    slots, end = cache.valid.shape[-1], start + count
    filled = slots if is_traced(cache.length) else int(cache.length)
    if start < 0 or count < 1 or end > filled:
        raise ValueError(
            f"slots {start} to {end - 1} of {filled} filled ones: pass start from 0 and count from "
            "1, within the filled slots"
        )
    evicted = jnp.sum(cache.valid[:, start:end], axis=-1, dtype=jnp.int32, keepdims=True)
    cache = move_cache(decoder, cache, jnp.where(np.arange(slots) >= end, -evicted, 0))
    order = np.r_[:start, end:slots, start:end].astype(np.int32)  # evicted slots last, and unused
    return cache._replace(
        layers=jax.tree.map(lambda a: jnp.take(a, order, axis=2), cache.layers),
        positions=cache.positions[:, order].at[:, slots - count :].set(_NO_POSITION),
        valid=cache.valid[:, order].at[:, slots - count :].set(False),
        length=cache.length - jnp.clip(cache.length - start, 0, count),
    )


def _moved_layers(decoder: Decoder, slot: int, cache: LayerCache, delta: Array) -> LayerCache:
    """Cache of the layers with one encoding of a pattern, whose keys are rotated by δ."""
    name = "rotary" if "rotary" in cache else "k"
    pattern, period = decoder.pattern_params, len(decoder.pattern.encodings)
    attention = decoder.layers.attention
    of_layers = jax.tree.map(lambda a: a[slot::period], attention.encoding_params.get_value())
    of_slot = () if pattern is None else pattern.get_value()[slot]

    def rotated(k: Array, of_slot: Any, of_layer: Any) -> Array:
        parts = (
            BoundEncoding(decoder.encoding, decoder.encoding_params.get_value()),
            BoundEncoding(decoder.pattern.at(slot), of_slot),
            BoundEncoding(attention.encoding, of_layer),
        )
        hooks = ("embed", "context", "key")
        acting = (part for part in parts if any(map(part.encoding.defines, hooks)))
        bound = chain_bound(*acting)
        return rotate_by(bound.encoding, bound.params, k, delta)

    return cache | {name: jax.vmap(rotated)(cache[name], of_slot, of_layers)}

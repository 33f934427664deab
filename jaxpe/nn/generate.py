"""Text from a decoder, one token after another through its cache."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Int, Int32

from jaxpe._types import ArrayLike
from jaxpe.nn.heads import CausalLM
from jaxpe.nn.masks import padded_positions
from jaxpe.nn.transformer import Cache


class _Step(NamedTuple):
    cache: Cache | None
    token: Int32[Array, " batch"]
    position: Int32[Array, " batch"]
    ended: Bool[Array, " batch"]


def generate(
    model: CausalLM,
    prompt: Int[ArrayLike, "batch n"],
    *,
    steps: int,
    mask: Bool[ArrayLike, "batch n"] | None = None,
    key: Array | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    end_id: int | None = None,
) -> Int32[Array, "batch steps"]:
    """Tokens that follow prompts, `[batch, steps]`.

    Args:
        model: a language model.
        prompt: token ids, one or more a row.
        steps: tokens to generate, at least 1.
        mask: false on padding, on whichever side; positions count valid tokens.
        key: for sampling; needed when the temperature is above 0.
        temperature: 0 takes the likeliest token, 1 samples as the model says.
        top_k: sample among so many likeliest tokens only.
        end_id: a row that has produced this repeats it.

    Raises:
        ValueError: for settings that do not go together.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = jaxpe.nn.Decoder(config, encoding=jaxpe.rope(head_dim=8), rngs=nnx.Rngs(0))
    >>> model = jaxpe.nn.CausalLM(decoder, rngs=nnx.Rngs(1))
    >>> jaxpe.nn.generate(model, jnp.arange(6).reshape(2, 3), steps=4).shape
    (2, 4)
    """
    _check(steps, key, temperature, top_k)
    prompt = jnp.asarray(prompt)
    batch, n = prompt.shape
    valid = jnp.ones((batch, n), bool) if mask is None else jnp.asarray(mask)
    positions = padded_positions(valid)
    cache = model.decoder.empty_cache(batch=batch, slots=n + steps)
    first = model(prompt, mask=valid, positions=positions, cache=cache)
    # The last valid token of each row, also where padding follows it.
    last = n - 1 - jnp.argmax(valid[:, ::-1], axis=1)
    logits = jnp.take_along_axis(first.logits, last[:, None, None], axis=1)[:, 0]
    keys = None if key is None else jax.random.split(key, steps)

    def choose(logits, key):
        if temperature == 0.0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return _sample(logits / jnp.asarray(temperature, logits.dtype), key, top_k)

    def step(state, key):
        out = model(state.token[:, None], positions=state.position[:, None] + 1, cache=state.cache)
        token = choose(out.logits[:, 0], key)
        token, ended = _held(token, state.ended, end_id)
        return _Step(out.transformer.cache, token, state.position + 1, ended), token

    none_ended = jnp.zeros(batch, bool)
    token, ended = _held(choose(logits, None if keys is None else keys[0]), none_ended, end_id)
    start = _Step(first.transformer.cache, token, jnp.max(positions, axis=1), ended)
    _, rest = lax.scan(step, start, None if keys is None else keys[1:], steps - 1)
    return jnp.concatenate([token[None], rest]).T


def _sample(logits: Array, key: Array, top_k: int | None) -> Array:
    if top_k is not None:
        least = lax.top_k(logits, top_k)[0][..., -1:]
        logits = jnp.where(logits >= least, logits, -jnp.inf)
    return jax.random.categorical(key, logits, axis=-1).astype(jnp.int32)


def _held(token: Array, ended: Array, end_id: int | None) -> tuple[Array, Array]:
    """Rows that have ended go on with the end token."""
    if end_id is None:
        return token, ended
    end = jnp.asarray(end_id, token.dtype)
    token = jnp.where(ended, end, token)
    return token, token == end


def _check(steps: int, key: Array | None, temperature: float, top_k: int | None) -> None:
    if steps < 1:
        raise ValueError(f"steps is {steps}; pass at least 1")
    if temperature < 0:
        raise ValueError(f"temperature is {temperature}; pass 0 or more")
    if temperature > 0 and key is None:
        raise ValueError("sampling at a temperature above 0 needs a key: pass key=")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is {top_k}; pass at least 1")

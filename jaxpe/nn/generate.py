"""Autoregressive generation with a cache."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax
from jaxtyping import Bool, Int, Int32

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.geometry.checks import check_size
from jaxpe.nn.heads import CausalLM, Seq2SeqLM
from jaxpe.nn.masks import checked_valid, padded_positions
from jaxpe.nn.transformer import Cache, Decoder, Transformer


class _Sampling(NamedTuple):
    """Settings of sampling."""

    temperature: float
    top_k: int | None
    top_p: float | None


class _Step(NamedTuple):
    cache: Cache | None
    token: Int32[Array, " batch"]
    position: Int32[Array, " batch"]
    ended: Bool[Array, " batch"]


def generate(
    model: CausalLM | Seq2SeqLM,
    prompt: Int[ArrayLike, "batch n"],
    *,
    steps: int,
    start_id: int | None = None,
    mask: ArrayLike | None = None,
    key: Array | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end_id: int | None = None,
) -> Int32[Array, "batch steps"]:
    """Generate tokens `[batch, steps]` after prompts, or as their translation.

    Compiles once for each model, shape and setting. If logits are not finite, the token is −1, as
    for positions beyond a learned table inside `jit`.

    Args:
        model: language model; an encoder–decoder reads the prompts with its encoder.
        prompt: token ids, at least one per row.
        steps: number of tokens to generate, at least 1.
        start_id: first token of an encoder–decoder's decoder; it is not returned.
        mask: `[batch, n]`, false on padding on either side; positions count valid tokens.
        key: random key, for a temperature above 0.
        temperature: temperature of sampling; 0 selects the likeliest token.
        top_k: number of likeliest tokens to sample from.
        top_p: total probability of the likeliest tokens to sample from.
        end_id: end token; a row repeats it once it is generated.

    Raises:
        ValueError: settings that contradict each other, or more positions than a table has.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=8), rngs=nnx.Rngs(0))
    >>> model = nn.CausalLM(decoder, rngs=nnx.Rngs(1))
    >>> nn.generate(model, jnp.arange(6).reshape(2, 3), steps=4).shape
    (2, 4)
    """
    prompt, sampling = jnp.asarray(prompt), _Sampling(temperature, top_k, top_p)
    _check(model, prompt, steps, start_id, key, sampling)
    valid = checked_valid(mask, prompt.shape)
    valid = jnp.ones(prompt.shape, bool) if valid is None else valid
    _check_last_position(model, valid, steps)
    graphdef, params = nnx.split(model)
    return _generate(graphdef, params, prompt, valid, key, steps, start_id, sampling, end_id)


@functools.partial(jax.jit, static_argnums=(0, 5, 6, 7, 8))
def _generate(
    graphdef: Any,
    params: Any,
    prompt: Array,
    valid: Array,
    key: Array | None,
    steps: int,
    start_id: int | None,
    sampling: _Sampling,
    end_id: int | None,
) -> Array:
    model = nnx.merge(graphdef, params)
    batch, positions = len(prompt), padded_positions(valid)
    if isinstance(model, Seq2SeqLM):
        memory = model.transformer.encode(prompt, mask=valid, positions=positions)
        prompt = jnp.full((batch, 1), start_id or 0, jnp.int32)
        valid, positions = jnp.ones((batch, 1), bool), jnp.zeros((batch, 1), jnp.int32)
        decoder, read = model.transformer.decoder, model.decode
    else:
        memory, decoder, read = None, model.decoder, model
    n = prompt.shape[1]
    cache = decoder.empty_cache(batch=batch, slots=n + steps, memory=memory)
    first = read(prompt, mask=valid, positions=positions, cache=cache)
    # Index of the last valid token of each row, which padding may follow.
    last = n - 1 - jnp.argmax(valid[:, ::-1], axis=1)
    logits = jnp.take_along_axis(first.logits, last[:, None, None], axis=1)[:, 0]
    keys = None if key is None else jax.random.split(key, steps)

    def step(state, key):
        position = state.position + 1
        # After −1 all tokens of the row are −1, since the cache contains NaN.
        ids = jnp.maximum(state.token, 0)[:, None]
        out = read(ids, positions=position[:, None], cache=state.cache)
        token = _next_token(out.logits[:, 0], key, sampling)
        token, ended = _end_tokens(token, state.ended, end_id)
        return _Step(out.transformer.cache, token, position, ended), token

    token = _next_token(logits, None if keys is None else keys[0], sampling)
    token, ended = _end_tokens(token, jnp.zeros(batch, bool), end_id)
    start = _Step(first.transformer.cache, token, jnp.max(positions, axis=1), ended)
    _, rest = lax.scan(step, start, None if keys is None else keys[1:], steps - 1)
    return jnp.concatenate([token[None], rest]).T


def _next_token(logits: Array, key: Array | None, sampling: _Sampling) -> Array:
    """Next token of each row, −1 if its logits are not finite."""
    finite = jnp.all(jnp.isfinite(logits), axis=-1)
    if key is not None and sampling.temperature > 0:
        logits = _top_logits(logits / jnp.asarray(sampling.temperature, logits.dtype), sampling)
        token = jax.random.categorical(key, logits, axis=-1)
    else:
        token = jnp.argmax(logits, axis=-1)
    return jnp.where(finite, token.astype(jnp.int32), -1)


def _top_logits(logits: Array, sampling: _Sampling) -> Array:
    """Logits of the tokens to sample from, by top_k and top_p; −∞ for the others."""
    if sampling.top_k is not None:
        least = lax.top_k(logits, sampling.top_k)[0][..., -1:]
        logits = jnp.where(logits >= least, logits, -jnp.inf)
    if sampling.top_p is not None:
        ordered = jnp.sort(logits, axis=-1, descending=True)
        chance = jax.nn.softmax(ordered, axis=-1)
        before = jnp.cumsum(chance, axis=-1) - chance  # total probability of likelier tokens
        least = jnp.min(jnp.where(before < sampling.top_p, ordered, jnp.inf), axis=-1)
        logits = jnp.where(logits >= least[..., None], logits, -jnp.inf)
    return logits


def _end_tokens(token: Array, ended: Array, end_id: int | None) -> tuple[Array, Array]:
    """Next tokens, with the end token in ended rows, and whether each row has ended."""
    if end_id is None:
        return token, ended
    end = jnp.asarray(end_id, token.dtype)
    token = jnp.where(ended, end, token)
    return token, token == end


def _check(
    model: Any,
    prompt: Array,
    steps: int,
    start_id: int | None,
    key: Array | None,
    sampling: _Sampling,
) -> None:
    temperature, top_k, top_p = sampling
    if not isinstance(model, CausalLM | Seq2SeqLM):
        raise ValueError(f"{type(model).__name__} cannot generate: pass a CausalLM or Seq2SeqLM")
    vocab_size = _decoder(model).config.vocab_size
    _check_start(model, start_id, vocab_size)
    if prompt.ndim != 2 or not prompt.shape[-1]:
        raise ValueError(f"prompts have shape {prompt.shape}: pass [batch, n], n at least 1")
    check_size("steps", steps)
    if temperature < 0:
        raise ValueError(f"temperature is {temperature}; pass 0 or more")
    if temperature > 0 and key is None:
        raise ValueError("sampling at a temperature above 0 needs a key: pass key=")
    if temperature == 0 and (top_k, top_p) != (None, None):
        raise ValueError("top_k and top_p are for sampling: pass temperature=1.0")
    if top_k is not None and not 1 <= top_k <= vocab_size:
        raise ValueError(f"top_k is {top_k}; pass 1 to {vocab_size}, the vocabulary")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}; pass a probability above 0")


def _decoder(model: CausalLM | Seq2SeqLM) -> Decoder:
    return (model.transformer if isinstance(model, Seq2SeqLM) else model).decoder


def _check_start(model: Any, start_id: int | None, vocab_size: int) -> None:
    """Raise unless `start_id` is passed for an encoder–decoder, and for it alone."""
    if not isinstance(model, Seq2SeqLM):
        if start_id is not None:
            raise ValueError(
                "start_id is for a Seq2SeqLM: leave it out, since this model continues the prompt"
            )
        return
    if start_id is None:
        raise ValueError("a Seq2SeqLM needs its decoder's first token: pass start_id, as 0 for T5")
    if not 0 <= start_id < vocab_size:
        raise ValueError(f"start_id is {start_id}; pass an id from 0 to {vocab_size - 1}")


def _check_last_position(model: CausalLM | Seq2SeqLM, valid: Array, steps: int) -> None:
    """Raise before generation if the encoding has too few positions."""
    if is_traced(valid):
        return
    longest = int(np.max(np.sum(np.asarray(valid), axis=-1), initial=1))
    if isinstance(model, Seq2SeqLM):
        _embed_position(model.transformer.encoder, longest - 1)
        longest = 1
    _embed_position(_decoder(model), longest + steps - 2)


def _embed_position(transformer: Transformer, position: int) -> None:
    token = jax.ShapeDtypeStruct((1, transformer.config.dim), transformer.config.dtype)
    params = transformer.encoding_params.get_value()
    jax.eval_shape(lambda x: transformer.encoding.embed(params, x, np.array([position])), token)

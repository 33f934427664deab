"""Rows of `jaxpe.nn`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxpe import encodings, nn
from tests.cases.base import LENGTH, WIDTH, Call, heads, key, normal
from tests.nn import models

LINE = np.arange(LENGTH, dtype=np.int32)
ROPE = encodings.rope(head_dim=WIDTH)
ALIBI = encodings.alibi(num_heads=models.HEADS)


@functools.cache
def model(kind, **changes):
    """Small models, built once, without the programs of their initialisation."""
    with jax.debug_key_reuse(False):  # all parameters have one key, since only shapes are asked
        shapes = models.shapes_of(lambda: _initialised(kind, models.config(**changes)))
    _, params = models.filled(shapes)
    return nnx.merge(nnx.graphdef(shapes), params)


def _initialised(kind, config):
    of = nn.Decoder if kind in ("decoder", "lm") else nn.Encoder
    encoding = encodings.sinusoidal(dim=models.DIM) if of is nn.Encoder else ROPE
    below = of(config, encoding=encoding, rngs=nnx.Rngs(0))
    if kind == "lm":
        return nn.CausalLM(below, rngs=nnx.Rngs(1))
    if kind == "classifier":
        return nn.Classifier(below, num_classes=2, rngs=nnx.Rngs(1))
    return below


def token_ids(rng, *shape):
    return rng.integers(0, models.VOCAB, shape, dtype=np.int32)


@functools.cache
def function_of_positions():
    return nn.position_functions(model("classifier"), length=LENGTH)


@functools.cache
def made_nope():
    sizes = {"vocab_size": 9, "dim": 4, "num_layers": 2, "num_heads": 1, "length": LENGTH}
    return nn.nope_decoder(**sizes, key=key(), dtype=jnp.float64, param_dtype=jnp.float64)


def _generated(**options):
    return lambda rng: nn.generate(model("lm"), token_ids(rng, 2, 3), steps=3, **options)


def _moved_positions(rng):
    of = function_of_positions()
    return of.apply(
        jnp.asarray(normal(rng, *of.vectors.shape)), of.no_shift, token_ids(rng, LENGTH)
    )


def _content_logits(rng):
    return nn.content_logits(made_nope(), jnp.asarray(normal(rng, 3, LENGTH, 4)))


def _swapped(rng):
    other = nn.with_encoding(model("decoder"), ALIBI, key=key())
    return other(token_ids(rng, 2, LENGTH)).hidden


def _split_with_means(rng):
    means = normal(rng, 2, LENGTH, models.DIM)
    return nn.split_heads(model("encoder"), token_ids(rng, 2, LENGTH), means=means)


def _called(rng):
    apply, params = nn.functionalize(model("decoder"))
    return apply(params, token_ids(rng, 2, LENGTH)).hidden


def _traced(rng):
    return model("encoder")(token_ids(rng, 2, LENGTH), mask=np.arange(LENGTH) < 4, trace=True)


def _cached(rng):
    decoder, ids = model("decoder"), token_ids(rng, 2, 4)
    first = decoder(ids[:, :2], cache=decoder.empty_cache(batch=2, slots=4))
    return decoder(ids[:, 2:], cache=first.cache)


@functools.cache
def rotary_function():
    return nn.attention_fn(ROPE, (), LINE)


def _moved(rng):
    decoder, ids = model("decoder"), token_ids(rng, 2, 4)
    cache = decoder(ids, cache=decoder.empty_cache(batch=2, slots=4)).cache
    return nn.move_cache(decoder, cache, rng.integers(0, 9, (2, 1), dtype=np.int32))


def _evicted(rng):
    decoder, ids = model("decoder"), token_ids(rng, 2, 4)
    cache = decoder(ids, cache=decoder.empty_cache(batch=2, slots=4)).cache
    return nn.evict_tokens(decoder, cache, start=1, count=2)


NN: dict[str, Call] = {
    "attention_fn": lambda rng: rotary_function()(heads(rng), heads(rng), heads(rng)),
    "attention_mask": lambda rng: nn.attention_mask(
        LENGTH, valid=rng.random((2, LENGTH)) < 0.5, causal=True
    ).pairs(),
    "content_logits": _content_logits,
    "evict_tokens": _evicted,
    "functionalize": _called,
    "functionalize traced": _traced,
    "functionalize with a cache": _cached,
    "position_functions": _moved_positions,
    "generate": _generated(),
    "generate sampled": lambda rng: _generated(key=key(), temperature=0.7, top_k=3)(rng),
    "head_encoding": lambda rng: nn.head_encoding(model("decoder")).query(
        ((), ()), heads(rng), LINE
    ),
    "move_cache": _moved,
    "nope_decoder": lambda rng: nn.nope_decoder(
        vocab_size=9, dim=4, num_layers=1, num_heads=1, length=LENGTH, key=key()
    ),
    "segment_starts": lambda rng: nn.segment_starts(np.sort(rng.integers(0, 3, (2, LENGTH)))),
    "packed_positions": lambda rng: nn.packed_positions(np.sort(rng.integers(0, 3, (2, LENGTH)))),
    "padded_positions": lambda rng: nn.padded_positions(rng.random((2, LENGTH)) < 0.5),
    "pooled": lambda rng: nn.pooled(normal(rng, 2, LENGTH, 3), rng.random((2, LENGTH)) < 0.7),
    "position_means": lambda rng: nn.position_means(
        model("encoder"), [{"ids": token_ids(rng, 2, LENGTH)} for _ in range(2)]
    ),
    "split_heads": lambda rng: nn.split_heads(model("decoder"), token_ids(rng, 2, LENGTH)),
    "split_heads with means": _split_with_means,
    "with_encoding": _swapped,
    "sum_hidden": lambda rng: nn.sum_hidden(model("classifier"), token_ids(rng, 2, LENGTH)),
}

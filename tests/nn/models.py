"""Small models of every kind, and the plain functions that tests look at.

What is made here is made once and shared: parameters are changed in a copy.
"""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxpe import encodings, nn

VOCAB, N, HEADS, HEAD_DIM, DIM = 20, 6, 2, 4, 8
SIZES = encodings.EncodingSizes(dim=DIM, num_heads=HEADS, head_dim=HEAD_DIM, length=2 * N)
LATENT = nn.LatentSizes(key_value_rank=6, rotary_dim=HEAD_DIM, query_rank=6, value_dim=4)


def config(**changes) -> nn.TransformerConfig:
    """Two layers in float64, with weights large enough that everything matters."""
    usual = {
        "vocab_size": VOCAB,
        "dim": DIM,
        "num_layers": 2,
        "num_heads": HEADS,
        "hidden_dim": 12,
        "init_scale": 0.5,
        "embedding_scale": 1.0,
        "dtype": jnp.float64,
        "param_dtype": jnp.float64,
        "scan": True,  # one block to compile
    }
    return nn.TransformerConfig(**(usual | changes))


@functools.cache
def encoding_for(name: str) -> encodings.Encoding:
    """An encoding of the catalogue, for the sizes here."""
    (entry,) = encodings.catalogue(name)
    return entry.make(SIZES)


def coordinates(name: str) -> int:
    (entry,) = encodings.catalogue(name)
    return entry.coordinates


def positions_for(name: str, places: np.ndarray) -> np.ndarray:
    """Positions as the encoding takes them: with coordinates where it has several."""
    count = coordinates(name)
    return places if count == 1 else np.stack([places] * count, axis=-1)


def split(make, *, seed=0):
    """A model as a pure function, and parameters away from special values such as 0 and 1.

    Only shapes are asked of the model: its own initialisation would be compiled for every test.
    """
    return filled(shapes_of(make), seed)


def shapes_of(make):
    """What `make` makes, with shapes for its parameters."""
    with one_key():
        return jax.eval_shape(make)


def one_key():
    """A context where every key of Flax is the same: to count them is 40 % of tracing a model."""
    return mock.patch.object(nnx.RngStream, "__call__", lambda stream: stream.key[...])


def filled(model, seed=0):
    """The same of a model that has shapes for its parameters."""
    graphdef, shapes = nnx.split(model, nnx.Param)
    rng = np.random.default_rng(seed)

    def fill(path, leaf):
        around = 1.0 if "scale" in jax.tree_util.keystr(path) else 0.0
        return jax.device_put((around + 0.4 * rng.standard_normal(leaf.shape)).astype(leaf.dtype))

    def apply(params, *args, **options):
        return nnx.merge(graphdef, params)(*args, **options)

    return apply, jax.tree_util.tree_map_with_path(fill, shapes)


def encoder(encoding=None, *, layer_encoding=None, **changes):
    """`(apply, params)` of a small encoder."""
    return _made(nn.Encoder, encoding, layer_encoding, config(**changes))


def decoder(encoding=None, **changes):
    """`(apply, params)` of a small decoder."""
    return _made(nn.Decoder, encoding, None, config(**changes))


def encoder_decoder(sizes, encoding, decoder_encoding, cross_encoding, **options):
    """An encoder–decoder of one configuration on both sides."""
    below = nn.Encoder(sizes, encoding=encoding, rngs=nnx.Rngs(0))
    options = {"encoding": decoder_encoding, "cross_encoding": cross_encoding, **options}
    return nn.EncoderDecoder(below, nn.Decoder(sizes, **options, rngs=nnx.Rngs(1)))


@functools.cache
def _made(kind, encoding, layer_encoding, sizes):
    return filled(_shapes(kind, encoding, layer_encoding, sizes))


def empty_cache(encoding=None, *, slots, batch=2, **changes):
    """A cache for that decoder."""
    return _shapes(nn.Decoder, encoding, None, config(**changes)).empty_cache(
        batch=batch, slots=slots
    )


@functools.cache
def _shapes(kind, encoding, layer_encoding, sizes):
    """The model, with shapes for its parameters."""
    return shapes_of(lambda: _model(kind, encoding, layer_encoding, sizes))


def _model(kind, encoding, layer_encoding, sizes):
    encoding, own = (encodings.identity() if e is None else e for e in (encoding, layer_encoding))
    return kind(sizes, encoding=encoding, layer_encoding=own, rngs=nnx.Rngs(0))


def some_ids(*shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, shape, dtype=np.int32)

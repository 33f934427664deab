"""Warm start: a trained model with another positional encoding."""

from typing import Any

import jax
from flax import nnx
from jax import Array

from jaxpe.encodings import Encoding, LayerPattern, identity
from jaxpe.nn.attention import encoding_parameters
from jaxpe.nn.heads import trunk
from jaxpe.nn.layer_stack import pattern_parameters, split_by_period
from jaxpe.nn.transformer import shared_and_layer_encoding


def with_encoding(model: Any, encoding: Encoding | LayerPattern, *, key: Array) -> Any:
    """Model with another encoding and its own weights, to be trained further (a warm start).

    The new encoding replaces everything positional in self-attention: also tables of positions, and
    the windows of a `LayerPattern`. Hugging Face's formats have no such models, so
    `save_huggingface` refuses them.

    Args:
        model: transformer of `jaxpe.nn`, or a model on one; it stays unchanged. Of an
            encoder–decoder, assign one side: `model.transformer.encoder = with_encoding(...)`.
        encoding: the other encoding, of the model's sizes.
        key: random key of the encoding's initial parameters.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=4), rngs=nnx.Rngs(0))
    >>> model = nn.CausalLM(decoder, rngs=nnx.Rngs(1))
    >>> alibi = encodings.alibi(num_heads=4)
    >>> other = with_encoding(model, alibi, key=jax.random.key(0))
    >>> other.decoder.encoding == alibi
    True
    >>> other.decoder.tokens.embedding.get_value() is decoder.tokens.embedding.get_value()
    True
    """
    model = nnx.clone(model)
    replace_encoding(trunk(model), encoding, rngs=nnx.Rngs(key))
    return model


def replace_encoding(
    transformer: Any, encoding: Encoding | LayerPattern, *, rngs: nnx.Rngs
) -> None:
    """Replace the encoding of a transformer in place, and forget its Hugging Face format."""
    config, attention = transformer.config, transformer.layers.attention
    encoding, layer_encoding = shared_and_layer_encoding(encoding, identity())
    in_blocks, pattern = split_by_period(layer_encoding, config.num_layers)

    def layer_parameters(key: Array) -> nnx.Param:
        return encoding_parameters(config, in_blocks, rngs=nnx.Rngs(key))

    transformer.encoding = nnx.static(encoding)
    transformer.encoding_params = encoding_parameters(config, encoding, rngs=rngs)
    attention.encoding = nnx.static(in_blocks)
    keys = jax.random.split(rngs.params(), config.num_layers)
    attention.encoding_params = jax.vmap(layer_parameters)(keys)
    transformer.pattern = nnx.static(pattern)
    del transformer.pattern_params  # NNX fixes whether an attribute is data or static
    transformer.pattern_params = pattern_parameters(config, pattern, rngs=rngs)
    transformer.fields, transformer.length = "", None

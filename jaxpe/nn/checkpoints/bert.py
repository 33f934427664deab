"""BERT and MPNet without a head."""

import json
from typing import Any, ClassVar, NamedTuple

import numpy as np
from flax import nnx
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings import Encoding, chain, learned, t5
from jaxpe.nn.checkpoints.architecture import ARCHITECTURES, Architecture, Fields
from jaxpe.nn.checkpoints.encodings import offset_positions
from jaxpe.nn.checkpoints.fields import ACTIVATIONS
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.masks import padded_positions
from jaxpe.nn.transformer import Encoder, TransformerOutput


class BertOutput(NamedTuple):
    """Output of BERT.

    Attributes:
        pooled: vector of the first token after a dense layer and tanh; None without a pooler.
        transformer: hidden states, and traced attention.
    """

    pooled: Float[Array, "... dim"] | None
    transformer: TransformerOutput

    @property
    def hidden(self) -> Float[Array, "... n dim"]:
        """Hidden states of the last layer."""
        return self.transformer.hidden


class BertEncoder(Encoder):
    """BERT without a head: post-norm, token types, learned positions (Devlin et al. 2019).

    Args:
        config: configuration with norm_position="post"; released BERT models also have
            token_types=2 and norm_epsilon=1e-12.
        length: number of positions in the table.
        encoding: encoding that replaces the table; rows may then be as long as the encoding allows,
            and Hugging Face has no class for the model.
        fields: fields of a config.json that `save_huggingface` keeps.
        rngs: random streams of the initialisation.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(
    ...     vocab_size=50, dim=16, num_layers=1, num_heads=2, norm_position="post", token_types=2)
    >>> encoder = jaxpe.nn.BertEncoder(config, length=7, rngs=nnx.Rngs(0))
    >>> encoder.encoding_params.get_value()["table"].shape
    (7, 16)
    """

    architecture: ClassVar[Architecture] = ARCHITECTURES["bert"]
    offset: ClassVar[int] = 0  # rows of the table before position 0

    def __init__(
        self,
        config: TransformerConfig,
        *,
        length: int = 512,
        encoding: Encoding | None = None,
        fields: Fields | None = None,
        rngs: nnx.Rngs,
    ):
        _check_config(config, self.architecture)
        positions = self._encoding(config, length) if encoding is None else encoding
        super().__init__(config, encoding=positions, rngs=rngs)
        self.has_table = encoding is None
        self.length = length
        self.fields = json.dumps(fields or {})  # a string is static and hashable

    def __call__(
        self,
        ids: Int[ArrayLike, "... n"],
        *,
        mask: Bool[ArrayLike, "... n"] | None = None,
        positions: ArrayLike | None = None,
        **options: Any,
    ) -> TransformerOutput:
        """Hidden states; more tokens than positions in the table raise `ValueError`."""
        if positions is None:
            if self.has_table and np.shape(ids)[-1] > self.length:
                raise ValueError(
                    f"{np.shape(ids)[-1]} tokens, but the model has {self.length} positions: cut "
                    "the rows, or pass positions"
                )
            positions = self._positions(mask)
        return super().__call__(ids, mask=mask, positions=positions, **options)

    def _positions(self, mask: ArrayLike | None) -> Array | None:
        return None  # the index in the row

    def _encoding(self, config: TransformerConfig, length: int) -> Encoding:
        return learned(length=length, dim=config.dim)


class MPNetEncoder(BertEncoder):
    """MPNet without a head: learned positions and T5's bias, shared by layers (Song et al. 2020).

    The vector of position 0 is row 2 of the table; no token uses the first two rows. For padding on
    the left, pass a mask: positions then count from the first token, as in transformers. Hidden
    states at padding are not the ones of transformers, but no output depends on them.

    Args:
        config: configuration with norm_position="post" and no token types; released MPNet models
            have norm_epsilon=1e-12.
        length: number of positions; the table has two more rows.
        encoding: encoding that replaces table and bias, as in `BertEncoder`.
        fields: fields of a config.json that `save_huggingface` keeps.
        rngs: random streams of the initialisation.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(
    ...     vocab_size=50, dim=16, num_layers=1, num_heads=2, norm_position="post")
    >>> encoder = jaxpe.nn.MPNetEncoder(config, length=7, rngs=nnx.Rngs(0))
    >>> learned, t5 = encoder.encoding_params.get_value()
    >>> learned["table"].shape, t5["table"].shape
    ((9, 16), (32, 2))
    """

    architecture = ARCHITECTURES["mpnet"]
    offset = 2

    def _positions(self, mask: ArrayLike | None) -> Array | None:
        return None if mask is None else padded_positions(mask)

    def _encoding(self, config: TransformerConfig, length: int) -> Encoding:
        table = learned(length=length + self.offset, dim=config.dim)
        return chain(offset_positions(table, self.offset), t5(num_heads=config.num_heads))


def _check_config(config: TransformerConfig, architecture: Architecture) -> None:
    """Raise for a configuration that the class of transformers does not support."""
    title = architecture.title
    required = {"norm": "layer", "norm_position": "post", "use_bias": True, "latent": None}
    required |= {"attention_scale": None, "logit_scale": 1.0, "attention_cap": None}
    required |= {"logit_cap": None, "query_key_norm": False, "embedding_factor": 1.0}
    required |= {"attention_sink": False, "attention_gate": False, "residual_scale": 1.0}
    required |= {"dropped_token": None}
    for name, value in required.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"{title} has {name}={value!r}, not {getattr(config, name)!r}: pass {value!r}"
            )
    activations = ACTIVATIONS[architecture.activations].values()
    if config.activation not in activations:
        allowed = ", ".join(dict.fromkeys(activations))
        raise ValueError(f"{title} has no activation {config.activation!r}: pass one of {allowed}")
    heads = (config.key_heads, config.head_width * config.num_heads)
    if heads != (config.num_heads, config.dim) or not config.normalises_embeddings:
        raise ValueError(
            f"{title} has a norm after its embeddings and num_heads heads, also of keys, of "
            "dim/num_heads: leave embedding_norm, head_dim and num_kv_heads out"
        )
    if config.token_types and "type_vocab_size" not in architecture.defaults:
        raise ValueError(f"{title} has no token types: pass token_types=0")

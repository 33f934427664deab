"""Hashable configuration of a transformer."""

import dataclasses
import math
import numbers
from typing import Any, Literal, get_args

import jax.numpy as jnp

from jaxpe.encodings import EncodingSizes
from jaxpe.encodings.base import check_choice
from jaxpe.encodings.implementations import Implementation

Activation = Literal["gelu", "gelu_tanh", "relu", "relu2", "silu", "swiglu", "geglu", "geglu_tanh"]
Norm = Literal["layer", "rms", "none"]
NormPosition = Literal["pre", "post", "both", "output"]
Residual = Literal["sequential", "parallel", "parallel_one_norm"]
Biased = Literal["query_key_value", "attention_output", "feed_forward", "norm", "head"]
KeySource = Literal["hidden", "embeddings"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentSizes:
    """Widths of multi-head latent attention (DeepSeek-AI 2024, Section 2.1).

    Attributes:
        key_value_rank: width of the compressed keys and values, which a cache keeps.
        rotary_dim: width of the decoupled part that an encoding's `query` and `key` act on; all
            heads share this part of the keys.
        query_rank: width of compressed queries; None for no compression.
        value_dim: width of a head's values; the head width when None.
    """

    key_value_rank: int
    rotary_dim: int
    query_rank: int | None = None
    value_dim: int | None = None

    def __post_init__(self) -> None:
        _check_positive(self, [field.name for field in dataclasses.fields(self)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Configuration of a transformer; the positional encoding is an argument of the model.

    Attributes:
        vocab_size: number of token ids.
        dim: width of the embeddings and the residual stream.
        num_layers: number of blocks.
        num_heads: number of query heads.
        head_dim: width of a head; dim / num_heads when None. With `latent`, its part without
            position.
        num_kv_heads: number of key and value heads; num_heads when None, fewer for grouped queries.
        attention_scale: factor of q·k in attention logits; 1/√(width of a head) when None.
        latent: sizes of latent attention, which replaces plain keys and values.
        hidden_dim: width of the feed-forward layer; 4·dim when None.
        activation: activation of the feed-forward layer; "swiglu", "geglu" and "geglu_tanh" are
            gated, and "relu2" is the square of "relu".
        norm: LayerNorm, RMSNorm, or none, as in proofs on transformers.
        norm_position: "pre", x + f(norm(x)); "post", norm(x + f(x)); "both", x + norm(f(norm(x))),
            as in Gemma 2; or "output", x + norm(f(x)), as in OLMo 2. All but "post" have a last
            norm.
        residual: "sequential", the feed-forward layer after attention; "parallel",
            x + attention(norm(x)) + mlp(norm(x)), as in GPT-NeoX; or "parallel_one_norm", with one
            norm for both, as in GPT-J.
        residual_scale: factor of what sublayers add to the residual stream, as in Granite.
        first_norm: whether the first layer has a norm before attention; ModernBERT has none.
        norm_epsilon: number added to variances in norms.
        embedding_norm: whether embeddings are normalised; when None, if norm_position is "post", as
            in BERT.
        use_bias: biases in dense layers and LayerNorms: True for all, False for none, or the parts
            with biases, among "query_key_value", "attention_output", "feed_forward", "norm" and
            "head".
        query_key_norm: whether each head's queries and keys are normalised before the encoding;
            "joint" for one norm over all heads, as in OLMo 2.
        attention_cap: c of attention logits c·tanh(logits/c), with all terms of the encoding and
            before the mask; no cap when None.
        attention_sink: whether every head has a learned logit in the denominator of its softmax
            alone, as in gpt-oss; not with an encoding whose weights are no softmax.
        attention_gate: whether the output of heads is multiplied by σ of a dense layer of the
            queries' hidden states, as in Qwen3-Next.
        embedding_factor: factor of token embeddings at the input; it does not apply to a tied head.
        dropped_token: token whose embedding is 0 at the input, and others then are divided by the
            share of other tokens in the row, as the mask of ESM-2; None for none.
        token_types: number of token types with an embedding, 2 in BERT; 0 for none.
        tie_embeddings: whether the language-model head shares the token embeddings.
        logit_scale: factor of the hidden states at the input of a language model's head.
        logit_cap: c of a language model's logits c·tanh(logits/c); no cap when None.
        dropout: dropout rate of embeddings and sublayer outputs.
        attention_dropout: dropout rate of attention weights.
        init_scale: standard deviation of dense kernels.
        embedding_scale: standard deviation of token embeddings.
        attention: `implementation` of `jaxpe.encodings.attend`; traced logits are always "dense".
        dtype: dtype of the computation; parameters, positions, logits and softmax stay wider.
        param_dtype: dtype of the parameters.
        scan: whether to compile one block and loop over layers, which compiles faster than unrolled
            layers.
        remat: whether to recompute blocks in the backward pass, to save memory.
        keys_from: source of keys and values: "hidden", the layer's input; or "embeddings", the
            first layer's input, as in the published code of arXiv:2505.13027.

    >>> from jaxpe import nn
    >>> config = nn.TransformerConfig(vocab_size=100, dim=32, num_layers=2, num_heads=4)
    >>> config.head_width, config.hidden_width
    (8, 128)
    """

    vocab_size: int
    dim: int
    num_layers: int
    num_heads: int
    head_dim: int | None = None
    num_kv_heads: int | None = None
    attention_scale: float | None = None
    latent: LatentSizes | None = None
    hidden_dim: int | None = None
    activation: Activation = "gelu"
    norm: Norm = "layer"
    norm_position: NormPosition = "pre"
    residual: Residual = "sequential"
    residual_scale: float = 1.0
    first_norm: bool = True
    norm_epsilon: float = 1e-6
    embedding_norm: bool | None = None
    use_bias: bool | tuple[Biased, ...] = True
    query_key_norm: bool | Literal["joint"] = False
    attention_cap: float | None = None
    attention_sink: bool = False
    attention_gate: bool = False
    embedding_factor: float = 1.0
    dropped_token: int | None = None
    token_types: int = 0
    tie_embeddings: bool = True
    logit_scale: float = 1.0
    logit_cap: float | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    init_scale: float = 0.02
    embedding_scale: float = 0.02
    attention: Implementation | None = None
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    scan: bool = False
    remat: bool = False
    keys_from: KeySource = "hidden"

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_choices()

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.dim // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def value_width(self) -> int:
        """Width of the values of a head."""
        width = None if self.latent is None else self.latent.value_dim
        return self.head_width if width is None else width

    def encoding_sizes(self, length: int) -> EncodingSizes:
        """Sizes from which `CatalogueEntry.make` builds an encoding of this transformer.

        Args:
            length: number of positions of the training context.

        >>> from jaxpe import nn
        >>> config = nn.TransformerConfig(vocab_size=9, dim=32, num_layers=1, num_heads=4)
        >>> config.encoding_sizes(16)
        EncodingSizes(dim=32, num_heads=4, head_dim=8, length=16)
        """
        return EncodingSizes(self.dim, self.num_heads, self.head_width, length)

    @property
    def key_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def hidden_width(self) -> int:
        """Width of the feed-forward layer."""
        return 4 * self.dim if self.hidden_dim is None else self.hidden_dim

    def has_bias(self, part: Biased) -> bool:
        """Whether a part has biases.

        Args:
            part: one of the names of `use_bias`.

        >>> jaxpe.nn.TransformerConfig(
        ...     vocab_size=9, dim=8, num_layers=1, num_heads=2, use_bias=("norm",)
        ... ).has_bias("head")
        False
        """
        return self.use_bias if isinstance(self.use_bias, bool) else part in self.use_bias

    @property
    def normalises_embeddings(self) -> bool:
        """Whether a norm follows the embeddings."""
        return self.norm_position == "post" if self.embedding_norm is None else self.embedding_norm

    def _check_sizes(self) -> None:
        sizes = ("vocab_size", "dim", "num_layers", "num_heads")
        _check_positive(self, [*sizes, "head_dim", "num_kv_heads", "hidden_dim"])
        if self.token_types:
            _check_positive(self, ["token_types"])
        if not 0 < self.norm_epsilon < math.inf:  # also refuses NaN
            raise ValueError(f"norm_epsilon is {self.norm_epsilon}; pass a positive number")
        positive = ("attention_scale", "logit_scale", "attention_cap", "logit_cap")
        for name in (*positive, "embedding_factor", "residual_scale"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; pass a positive number")
        for name in ("init_scale", "embedding_scale"):
            if not 0 <= (scale := getattr(self, name)) < math.inf:
                raise ValueError(f"{name} is {scale}; pass a number of at least 0")
        if self.head_dim is None and self.dim % self.num_heads:
            raise ValueError(
                f"dim {self.dim} does not divide by num_heads {self.num_heads}: pass head_dim, or "
                "sizes that divide"
            )
        if self.num_heads % self.key_heads:
            raise ValueError(
                f"{self.num_heads} query heads cannot share {self.key_heads} key heads evenly: "
                "pass a num_kv_heads that divides num_heads"
            )
        if self.latent is not None and self.num_kv_heads is not None:
            raise ValueError("latent attention has no separate key heads: leave out num_kv_heads")
        if self.latent is not None and self.query_key_norm:
            raise ValueError("latent attention has its own norms: leave out query_key_norm")

    def _check_choices(self) -> None:
        for name, allowed in (
            ("activation", Activation),
            ("norm", Norm),
            ("norm_position", NormPosition),
            ("residual", Residual),
            ("keys_from", KeySource),
        ):
            if (value := getattr(self, name)) not in get_args(allowed):
                raise ValueError(f"{name} is {value!r}; pass one of {', '.join(get_args(allowed))}")
        if self.query_key_norm not in (False, True, "joint"):
            raise ValueError(
                f"query_key_norm is {self.query_key_norm!r}; pass True, False or 'joint'"
            )
        if self.attention is not None:
            check_choice("attention", self.attention, get_args(Implementation))
        if self.norm_position != "pre" and (self.residual != "sequential" or not self.first_norm):
            raise ValueError(
                f"residual={self.residual!r} and first_norm={self.first_norm} are of norms before "
                "attention and feed-forward layer: pass norm_position='pre'"
            )
        if not isinstance(self.use_bias, bool):
            _check_biased(self.use_bias)
        for name in ("dropout", "attention_dropout"):
            if not 0.0 <= (rate := getattr(self, name)) <= 0.999:
                raise ValueError(f"{name} is {rate}; pass a rate in [0, 0.999]")


def _check_biased(parts: Any) -> None:
    names = get_args(Biased)
    if not isinstance(parts, tuple) or any(part not in names for part in parts):
        raise ValueError(
            f"use_bias is {parts!r}; pass True, False, or a tuple of some of {', '.join(names)}"
        )


def _check_positive(sizes: Any, names: list[str]) -> None:
    for name in names:
        value = getattr(sizes, name)
        if value is None:
            continue
        if not isinstance(value, numbers.Integral) or value < 1:  # integers of NumPy are such
            raise ValueError(f"{name} is {value!r}; pass at least 1, an integer")

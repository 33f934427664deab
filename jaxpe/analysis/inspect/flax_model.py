"""Models of `jaxpe.nn` as stages see them."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe.analysis.inspect.documents import Sample, rows_at_once
from jaxpe.analysis.inspect.head_ablation import masked_score
from jaxpe.analysis.inspect.result import EncodingStage, Kind
from jaxpe.analysis.inspect.rotary_bands import Rotation, find_rotation
from jaxpe.analysis.inspect.weights import describe_encoding
from jaxpe.encodings import Encoding
from jaxpe.encodings.base import expand_rank
from jaxpe.encodings.rotation import rotate
from jaxpe.nn import CausalLM, MaskedLM, functionalize, split_heads
from jaxpe.nn.checkpoints.architecture import text_fields
from jaxpe.nn.functionalize import parameter_count
from jaxpe.nn.heads import trunk
from jaxpe.nn.positions import position_table
from jaxpe.nn.transformer import has_one_encoding
from jaxpe.plans import RopeAnalysis, read_config
from jaxpe.plans.job import longest_context
from jaxpe.plans.scaling import RopeFrequencies

Program = Callable[..., Any]
RotationTables = dict[str, Array]
_ROWS = 256  # tokens whose logits are in memory at once
_SEVERAL = (
    "Encodings differ by layer or look at the hidden states, so logits are no sum of the same "
    "parts in all layers."
)


class Trace(NamedTuple):
    """Attention and hidden states of some documents.

    Attributes:
        logits: logits of attention, `[layers, documents, heads, n, n]`, of `attention_layers`.
        weights: weights of attention, of the same shape.
        hidden_states: input of each layer, and output of the last,
            `[layers + 1, documents, n, dim]`.
    """

    logits: Any
    weights: Any
    hidden_states: Any


class ModelSizes(NamedTuple):
    """Numbers of a model.

    Attributes:
        layers: number of layers.
        heads: number of heads of queries.
        head_width: width of a head.
        dim: width of the hidden states.
        vocabulary: number of tokens.
        parameters: number of parameters.
        attention_layers: numbers of the layers whose attention is traced; all when None.
    """

    layers: int
    heads: int
    head_width: int
    dim: int
    vocabulary: int
    parameters: int
    attention_layers: tuple[int, ...] | None = None


class FlaxModel:
    """Model of `jaxpe.nn` as stages see it: each program is one call of `jax.jit`.

    `TorchModel` has the same methods. Arguments and results of programs are arrays. Token ids are
    `[documents, n]`; positions are `[n]`, the same for all documents.

    Args:
        module: a transformer, or a language model on one.

    >>> from jaxpe import encodings, nn
    >>> config = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, encoding=encodings.alibi(num_heads=2), rngs=nnx.Rngs(0))
    >>> model = FlaxModel(encoder)
    >>> model.kind, model.encodings, model.hidden()(np.zeros((1, 3), int), np.arange(3)).shape
    ('encoder', ('bias',), (1, 3, 8))
    """

    def __init__(self, module: Any):
        self.module = module

    @property
    def kind(self) -> Kind:
        """Kind of the model."""
        if isinstance(self.module, CausalLM):
            return "causal"
        return "masked" if isinstance(self.module, MaskedLM) else "encoder"

    @property
    def causal(self) -> bool:
        """Whether a token sees no later ones."""
        return trunk(self.module).causal

    @property
    def sizes(self) -> ModelSizes:
        """Numbers of the model."""
        config = trunk(self.module).config
        return ModelSizes(
            config.num_layers, config.num_heads, config.head_width, config.dim, config.vocab_size,
            parameter_count(self.module),
        )  # fmt: skip

    @property
    def encodings(self) -> tuple[str, ...]:
        """Ways in which positions enter: through embeddings, queries and keys, or logits."""
        return tuple(encoding_names(self.module))

    @property
    def table_length(self) -> int | None:
        """Rows of the table of position vectors; 0 if a fixed table has no end, None without one.

        >>> from jaxpe import encodings, nn
        >>> config = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
        >>> table = encodings.learned(length=7, dim=8)
        >>> encoder = nn.Encoder(config, encoding=table, rngs=nnx.Rngs(0))
        >>> FlaxModel(encoder).table_length
        0
        """
        below = trunk(self.module)
        encoding = below.encoding
        if not (encoding.defines("embed") and encoding.defines("vectors")):
            return None
        return int(getattr(below, "length", None) or 0)

    @property
    def bounded(self) -> bool:
        """Whether a table of positions ends with the context."""
        return self.table_length is not None

    @property
    def left_out(self) -> str:
        """Images, of a model whose text part was loaded alone."""
        stored = json.loads(trunk(self.module).fields or "{}")
        if text_fields(stored) is stored:
            return ""
        return "The model reads images too; only its part for text is measured."

    def absent(self) -> dict[str, str]:
        """Reasons of stages that the model's code does not allow."""
        if has_one_encoding(trunk(self.module)):
            return {}
        return dict.fromkeys(("spectral", "heads"), _SEVERAL)

    def context(self, path: Path) -> int:
        """Positions of the table, or of the configuration."""
        if (length := getattr(trunk(self.module), "length", None)) is not None:
            return int(length)
        return longest_context(read_config(path).configuration)

    def position_table(self, length: int) -> np.ndarray:
        """Position vectors added to embeddings, `[length, dim]`."""
        return np.asarray(position_table(self.module, length=length))

    def describe_encoding(
        self, *, path: Path | None, length: int, most: int | None
    ) -> EncodingStage:
        """Tables, biases and rotary configuration of the module."""
        return describe_encoding(self.module, path=path, length=length, most=most)

    def _program(self, method: Callable[..., Any]) -> Program:
        apply, params = functionalize(self.module, method=method)
        return partial(jax.jit(apply), params)

    def traced(self, function: Callable[..., Any]) -> Program:
        """Program (ids, *args) of `function(trace, ids, *args)`."""

        def method(model: Any, ids: Array, *args: Any) -> Any:
            found: Any = trunk(model)(ids, trace=True)
            return function(Trace(found.logits, found.weights, found.hidden_states), ids, *args)

        return self._program(method)

    def rotations(self, rope: RopeAnalysis | None) -> tuple[Rotation, Program] | None:
        """One rotation of all layers, and a program (ids) of their queries and keys.

        They are `[layers, documents, n, heads, width]`. None for layers that differ, or where they
        are not seen.
        """
        below = trunk(self.module)
        if not has_one_encoding(below) or below.config.attention_cap is not None:
            return None
        if not below.config.first_norm or (rotation := find_rotation(self.module)) is None:
            return None
        return rotation, self._program(_queries_and_keys)

    def hidden(self) -> Program:
        """Program (ids, positions) of the last hidden states `[documents, n, dim]`."""
        return self._program(lambda model, ids, at: trunk(model)(ids, positions=at).hidden)

    def losses(self) -> Program:
        """Program (ids, positions, frequencies=None) of the losses of all tokens but the first."""
        program = self._program(token_losses)

        def run(ids: Any, at: Any, frequencies: RopeFrequencies | None = None) -> Array:
            if frequencies is None:
                return program(ids, positions=at)
            return program(ids, rotation=rotation_tables(frequencies, at))

        return run

    def masked_losses(self) -> Program:
        """Program (batch, positions) of the mean loss of the masked tokens, `[documents]`."""
        return self._program(lambda model, batch, at: -masked_score(model, batch, positions=at))

    def answers(self) -> Program:
        """Program (text `[n]`, questions `[count, m]`) of the logits of the next token."""
        return self._program(_answers)

    def unscaled_reason(self, context: int, rope: RopeAnalysis | None) -> str:
        """Reason why no other rotary frequencies are tried; empty if they are."""
        return unscaled_reason(self.module, context, rope)


def inspected_model(model: Any) -> Any:
    """A module of `jaxpe.nn` as a `FlaxModel`; a `FlaxModel` or `TorchModel` as it is."""
    return FlaxModel(model) if isinstance(model, nnx.Module) else model


def sample_batch(sample: Sample) -> int:
    """Rows in a batch, a divisor of a quarter of their number."""
    sizes = inspected_model(sample.module).sizes
    return rows_at_once(sample.rows.shape, maps=sizes.layers * sizes.heads)


def rotation_tables(frequencies: RopeFrequencies, positions: np.ndarray) -> RotationTables:
    """Cosines and sines at positions `[n]`, float32 `[n, rotary_dim / 2]`."""
    angles = np.asarray(positions)[:, None] * np.asarray(frequencies.inverse, np.float64)
    dtype, factor = jnp.result_type(float), frequencies.attention_factor
    waves = {"cos": np.cos(angles), "sin": np.sin(angles)}
    return {name: jnp.asarray(factor * wave, dtype) for name, wave in waves.items()}


def encoding_names(module: Any) -> list[str]:
    """Ways in which positions enter a model: through embeddings, queries and keys, or logits.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=4), rngs=nnx.Rngs(0))
    >>> encoding_names(decoder)
    ['rotary']
    """
    below = trunk(module)
    parts = (below.encoding, below.layers.attention.encoding, *below.pattern.encodings)
    hooks = {
        "learned vectors": ("embed",),
        "rotary": ("query",),
        "bias": ("bias",),
        "windows of attention": ("mask",),
        "other attention hooks": ("products", "value", "context"),
    }
    return [
        name
        for name, defined in hooks.items()
        if any(part.defines(hook) for part in parts for hook in defined)
    ]


def token_losses(
    model: CausalLM, ids: ArrayLike, *, rotation: RotationTables | None = None, **options: Any
) -> Array:
    """Loss −log p of each token but the first, given earlier tokens, in nats, `[..., n − 1]`.

    Only the logits of a few hundred tokens are in memory at a time, for any length.

    Args:
        model: a causal language model.
        ids: token ids `[..., n]`.
        rotation: cosines and sines `[n, head_width / 2]` from `rotation_tables`, which replace
            the model's own.
        **options: further arguments of the decoder, such as `positions`.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=8), rngs=nnx.Rngs(0))
    >>> token_losses(nn.CausalLM(decoder, rngs=nnx.Rngs(1)), jnp.zeros((2, 7), int)).shape
    (2, 6)
    """
    ids, below = jnp.asarray(ids), trunk(model)
    if rotation is not None:
        below.encoding = nnx.static(_by_tables(below.encoding))
        below.encoding_params = nnx.Param(rotation)
    hidden = below(ids, **options).hidden[..., :-1, :]
    targets, flat = ids[..., 1:], hidden.reshape(-1, hidden.shape[-1])
    padding = -len(flat) % _ROWS
    rows = jnp.pad(flat, ((0, padding), (0, 0))).reshape(-1, _ROWS, flat.shape[-1])
    chunked_targets = jnp.pad(targets.reshape(-1), (0, padding)).reshape(-1, _ROWS)

    def losses(chunk: tuple[Array, Array]) -> Array:
        likelihood = jax.nn.log_softmax(model.head(chunk[0]))
        return -jnp.take_along_axis(likelihood, chunk[1][:, None], axis=-1)[:, 0]

    flat_losses = lax.map(losses, (rows, chunked_targets)).reshape(-1)
    return flat_losses[: len(flat)].reshape(targets.shape)


def unscaled_reason(model: Any, context: int, rope: RopeAnalysis | None) -> str:
    """Reason why no scaling of rotary frequencies is tried; empty otherwise.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = nn.Decoder(config, encoding=encodings.identity(), rngs=nnx.Rngs(0))
    >>> unscaled_reason(decoder, 8, None)
    'the model has no rotary positions'
    """
    below = trunk(model)
    encoding = below.encoding
    if rope is not None and any(part.defines("query") for part in below.pattern.encodings):
        return "layers differ in their positions"
    if rope is None or not encoding.defines("query"):
        return without_rotations(context if encoding.defines("embed") else None)
    if context and not has_one_encoding(below):
        return "layers differ in their positions"
    hooks = ("embed", "bias", "mask", "products", "value")
    others = any(encoding.defines(hook) for hook in hooks)
    return scaling_reason(context, rope, below.config.head_width, others=others)


def without_rotations(table_length: int | None) -> str:
    """Reason why a model without rotary positions is not scaled.

    >>> without_rotations(1024)
    'the model has 1,024 learned position vectors and none beyond'
    """
    if table_length is not None:
        return f"the model has {table_length:,} learned position vectors and none beyond"
    return "the model has no rotary positions"


def scaling_reason(context: int, rope: RopeAnalysis, head_width: int, *, others: bool) -> str:
    """Reason why a rotary configuration is not scaled; empty otherwise.

    Args:
        context: positions for which the model was configured; 0 if unknown.
        rope: rotary configuration.
        head_width: width of a head.
        others: whether positions enter in other ways, too.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> rope = explain_rope(RopeOptions(head_dim=64, context=2048))
    >>> scaling_reason(2048, rope, 128, others=False)
    'only a part of each head turns'
    """
    if not context:
        return "the configuration says no context"
    if len(rope.groups) > 1 or rope.widest is None:
        return "layers differ in their positions"
    plan = rope.widest
    if others:
        return "positions enter in other ways, too"
    if plan.rope_type != "default":
        return f"the model comes with a scaling of its own ({plan.rope_type})"
    if plan.turning != head_width:
        return "only a part of each head turns"
    return ""


def _by_tables(encoding: Encoding) -> Encoding:
    """Rotation by tables in place of an encoding, of the same pairs of entries."""
    with jax.ensure_compile_time_eval():
        units = np.asarray(encoding.vectors((), jnp.zeros(1, jnp.int32)))  # (1, 0) of each pair

    def rotated(params: RotationTables, x: ArrayLike, positions: ArrayLike) -> Array:
        x = jnp.asarray(x)
        waves = (params[name][jnp.asarray(positions)][..., None, :] for name in ("cos", "sin"))
        cos, sin = (expand_rank(wave, x.ndim) for wave in waves)
        return rotate(x, cos, sin, interleaved=bool(units[0, 1] == 0))

    return Encoding(query=rotated, key=rotated)


def _queries_and_keys(model: Any, ids: Array) -> tuple[Array, Array]:
    """Queries and keys of all layers before they rotate."""
    config = trunk(model).config
    zeros = jnp.zeros((config.num_layers, ids.shape[-1], config.dim))
    parts = split_heads(model, ids, means=zeros)
    return parts.q_content + parts.q_position, parts.k_content + parts.k_position


def _answers(model: CausalLM, text: Array, questions: Array) -> Array:
    """Logits of the token after each question; the text is read once, into a cache."""
    count, question_length = questions.shape
    cache = model.decoder.empty_cache(batch=1, slots=len(text) + question_length)
    cache = model.decoder(text[None], cache=cache).cache
    assert cache is not None  # one was given

    cache = cache._replace(
        layers=jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=1), cache.layers),
        positions=jnp.repeat(cache.positions, count, axis=0),
        valid=jnp.repeat(cache.valid, count, axis=0),
    )
    return model.head(model.decoder(questions, cache=cache).hidden[:, -1])

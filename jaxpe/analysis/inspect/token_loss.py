"""Loss by position, under scaled rotary frequencies, and gain from far context.

Rotations are tables of cosines and sines that one program takes as arguments, so a new scaling or
distance needs no compilation.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.averages import document_mean, document_means
from jaxpe.analysis.inspect.result import FarContextGain, LossStage, ScaledLoss
from jaxpe.encodings import (
    Encoding,
    LinearScaling,
    NtkScaling,
    YarnScaling,
    rope_frequencies,
)
from jaxpe.nn import CausalLM, functionalize, trunk
from jaxpe.nn.transformer import has_one_encoding
from jaxpe.rope import RopeAnalysis
from jaxpe.rope.scaling import RopeFrequencies, RopeScaling

OWN = "as it is"
FACTOR = 4.0  # factor of scalings, if no text is longer than the context
_ROWS = 256  # tokens whose logits are in memory at once
_FIRST_BIN = 16  # positions
_PASSAGE = 64  # tokens
_FAR_TEXTS = 6
_REACH = (0.0, 0.125, 1.0, 2.0, 4.0)  # distances, in contexts

Rotation = dict[str, Array]


class Frequencies(NamedTuple):
    """Rotary frequencies of a model under one scaling.

    Attributes:
        name: "as it is", or the scaling with its factor.
        values: frequencies and attention factor.
    """

    name: str
    values: RopeFrequencies

    def tables(self, positions: np.ndarray) -> Rotation:
        """Cosines and sines at these positions, float32 `[n, rotary_dim / 2]`.

        Args:
            positions: integers `[n]`.
        """
        angles = positions[:, None] * np.asarray(self.values.inverse, np.float64)
        factor = self.values.attention_factor
        dtype = jnp.result_type(float)
        waves = {"cos": np.cos(angles), "sin": np.sin(angles)}
        return {name: jnp.asarray(factor * wave, dtype) for name, wave in waves.items()}


def token_losses(
    model: CausalLM, ids: ArrayLike, *, rotation: Rotation | None = None, **options: Any
) -> Array:
    """Loss −log p of each token but the first, given earlier tokens, in nats, `[..., n − 1]`.

    Only the logits of a few hundred tokens are in memory at a time, for any length.

    Args:
        model: a causal language model.
        ids: token ids `[..., n]`.
        rotation: cosines and sines `[n, head_width / 2]` from `Frequencies.tables`, which replace
            the model's own.
        **options: further arguments of the decoder, such as `positions`.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = jaxpe.nn.Decoder(config, encoding=jaxpe.rope(head_dim=8), rngs=nnx.Rngs(0))
    >>> token_losses(jaxpe.nn.CausalLM(decoder, rngs=nnx.Rngs(1)), jnp.zeros((2, 7), int)).shape
    (2, 6)
    """
    ids, below = jnp.asarray(ids), trunk(model)
    if rotation is not None:
        below.encoding = nnx.static(_BY_TABLES)
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


def loss_by_position(
    model: CausalLM,
    texts: np.ndarray,
    *,
    context: int = 0,
    rope: RopeAnalysis | None = None,
    far: bool = True,
    progress: Progress = SILENT,
) -> LossStage:
    """Loss by position, under each scaling beyond the context, and the gain from far context.

    If texts are longer than the context, scalings by their quotient are tried: position
    interpolation, NTK-aware, YaRN. The gain from far context is measured on short rows, whose
    second half is read at positions that begin at a distance after the first half. Offsets beyond
    the context then occur in few tokens. So it shows which offsets attention can use, not its
    behaviour with many keys.

    Args:
        model: a causal language model.
        texts: token ids `[texts, n]` without padding.
        context: positions for which the model was configured; 0 if unknown.
        rope: rotary configuration of the model, without which no scaling is tried.
        far: whether to measure far context.
        progress: receiver of progress.

    >>> loss_by_position(model, texts, context=8192).scaled[0].loss.mean  # doctest: +SKIP
    array([4.9, 3.9, 3.6])
    """
    texts = np.asarray(texts, np.int32)
    count, n = texts.shape
    unscaled = unscaled_reason(model, context, rope)
    run = _runner(model)
    beyond = bool(context) and n > context and not unscaled
    edges = _edges(n, context)
    scaled = []
    for scaling in _scalings(rope, context, n / context) if beyond else [None]:
        name = OWN if scaling is None else scaling.name
        losses = [
            run(text[None], np.arange(n), scaling)[0]
            for text in progress.track(texts, f"loss, {name}", total=count)
        ]
        scaled.append(ScaledLoss(name, document_means(_bin_means(np.stack(losses), edges))))
    result = LossStage(
        count, n, context, edges, scaled, 0, np.zeros(0, int), [], None, None, unscaled
    )
    # A learned table has no vectors beyond its context.
    if not far or not context or trunk(model).encoding.defines("embed"):
        return result
    scalings = [None] if unscaled else _scalings(rope, context, FACTOR)
    return _far_context(result, run, texts, scalings)


def unscaled_reason(model: Any, context: int, rope: RopeAnalysis | None) -> str:
    """Reason why no scaling of rotary frequencies is tried; empty otherwise.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = jaxpe.nn.Decoder(config, encoding=jaxpe.identity(), rngs=nnx.Rngs(0))
    >>> unscaled_reason(decoder, 8, None)
    'the model has no rotary positions'
    """
    below = trunk(model)
    encoding = below.encoding
    if rope is not None and any(part.defines("query") for part in below.pattern.encodings):
        return "layers differ in their positions"
    if rope is None or not encoding.defines("query"):
        if encoding.defines("embed"):
            return f"the model has {context:,} learned position vectors and none beyond"
        return "the model has no rotary positions"
    if not context:
        return "the configuration says no context"
    if not has_one_encoding(below) or len(rope.groups) > 1 or rope.widest is None:
        return "layers differ in their positions"
    plan = rope.widest
    if any(encoding.defines(hook) for hook in ("embed", "bias", "products", "value", "weights")):
        return "positions enter in other ways, too"
    if plan.rope_type != "default":
        return f"the model comes with a scaling of its own ({plan.rope_type})"
    if plan.turning != below.config.head_width:
        return "only a part of each head turns"
    return ""


def text_windows(stream: np.ndarray, *, count: int, length: int) -> np.ndarray:
    """Texts of one length, spread evenly over a stream of ids, up to a number of them.

    >>> text_windows(np.arange(10), count=2, length=3).tolist()
    [[0, 1, 2], [7, 8, 9]]
    """
    starts = np.linspace(0, len(stream) - length, min(count, len(stream) // length)).astype(int)
    return stream[starts[:, None] + np.arange(length)]


_Run = Callable[[np.ndarray, np.ndarray, Frequencies | None], np.ndarray]


def _runner(model: CausalLM) -> _Run:
    """Program of losses of rows at positions `[n]`, with other frequencies unless None."""
    apply, params = functionalize(model, method=token_losses)
    run = jax.jit(apply)

    def losses(ids: np.ndarray, positions: np.ndarray, scaling: Frequencies | None) -> np.ndarray:
        if scaling is None:
            return np.asarray(run(params, ids, positions=jnp.asarray(positions, jnp.int32)), float)
        return np.asarray(run(params, ids, rotation=scaling.tables(positions)), float)

    return losses


def _rotated_halves(params: Rotation, x: ArrayLike, positions: ArrayLike) -> Array:
    """Halves of each head, rotated by the rows of the tables at these positions."""
    x = jnp.asarray(x)
    cos, sin = (params[name][jnp.asarray(positions)][..., None, :] for name in ("cos", "sin"))
    cos, sin = (jnp.broadcast_to(wave, (*x.shape[:-2], *wave.shape[-2:])) for wave in (cos, sin))
    first, second = jnp.split(x.astype(cos.dtype), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


_BY_TABLES = Encoding(query=_rotated_halves, key=_rotated_halves)


def _scalings(rope: RopeAnalysis | None, context: int, factor: float) -> list[Frequencies]:
    """Frequencies of the model as it is, and under each scaling by a factor."""
    plan = rope.widest if rope is not None else None
    assert plan is not None  # or there is a reason not to scale
    scalings: dict[str, RopeScaling] = {
        "linear": LinearScaling(factor),
        "NTK": NtkScaling(factor),
        "YaRN": YarnScaling(factor, context),
    }
    frequencies = [Frequencies(OWN, RopeFrequencies(plan.frequencies, plan.attention_factor))]
    for name, scaling in scalings.items():
        scaled = rope_frequencies(head_dim=plan.turning, base=plan.base, scaling=scaling)
        frequencies.append(Frequencies(f"{name} ×{factor:g}", scaled))
    return frequencies


def _edges(n: int, context: int) -> np.ndarray:
    """First positions of bins that double, with one that begins at the context."""
    doubling = [_FIRST_BIN << k for k in range(32) if _FIRST_BIN << k < n]
    return np.array(sorted({1, *doubling, *([context] if 1 < context < n else []), n}))


def _bin_means(losses: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean of each text and bin; the loss at index i is of the token at position i + 1."""
    bins = itertools.pairwise(edges)
    return np.stack([losses[:, a - 1 : b - 1].mean(axis=1) for a, b in bins], axis=1)


def _far_context(result: LossStage, run: _Run, texts: np.ndarray, scalings: list[Any]) -> LossStage:
    """Add the gain from a context at each distance: loss without it less loss with it."""
    m = min(_PASSAGE, texts.shape[1] // 2)
    rows, first, second = texts[:_FAR_TEXTS, : 2 * m], np.arange(m), np.arange(m, 2 * m)
    distances = np.array([round(share * result.context) for share in _REACH])
    floor = run(rows[:, m:], first, None).mean(axis=1)

    def loss(distance: int, scaling: Frequencies | None) -> np.ndarray:
        positions = np.concatenate([first, second + distance])
        return run(rows, positions, scaling)[:, m:].mean(axis=1)  # queries in the passage

    losses = {
        OWN if scaling is None else scaling.name: np.stack(
            [loss(int(distance), scaling) for distance in distances], axis=1
        )
        for scaling in scalings
    }
    return result._replace(
        passage=m,
        distances=distances,
        far=[
            FarContextGain(name, document_means(floor[:, None] - loss))
            for name, loss in losses.items()
        ],
        floor=document_mean(floor),
        near=document_mean(losses[OWN][:, 0]),
    )

"""Computed properties of encodings: parameters, information, gradients, reach and cost."""

import functools
import tomllib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe.encodings.analysis.cost import token_cost
from jaxpe.encodings.analysis.hooks import line_of_positions
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_mask import encoded_mask
from jaxpe.encodings.attention_terms import (
    attention_logits,
    dot_products,
)
from jaxpe.encodings.base import Encoding, encoding_at
from jaxpe.encodings.registry import CatalogueEntry, EncodingSizes

# Logits closer than this share of their largest count as equal.
TOLERANCE = 1e-4
# Tokens of the test sequences.
TRIED = 16
# Tokens until a short convolution over constant hidden states becomes constant.
_WARM_UP = 4
# Training lengths by which positions are shifted to test whether logits change.
FAR = 8


class EncodingProperties(NamedTuple):
    """Computed properties of an encoding of the catalogue.

    Attributes:
        name, family, source, vectors: fields of `CatalogueEntry`.
        trainable: numbers in the parameters that receive a gradient.
        fixed: numbers in the parameters that receive none.
        absolute: whether logits change when all positions move by the same amount: to the end of
            the training length, and to `FAR` times it where the encoding is defined.
        relative: whether the part of the logits from positions alone is a function of the offset j
            − i that distinguishes offsets.
        order: whether logits change when tokens are permuted, without a mask (under a causal mask
            even `identity` has some order).
        gradient: parts of the gradient of a loss that the encoding enters: the names of its
            parameters, and "queries", "keys" or "weights" if it changes their gradient.
        beyond: state of positions of two to three times the training length: "yes" (defined and
            distinct), "constant" (defined, all equal), "repeats" (equal to positions within the
            length) or "no". The state of offsets, where only they matter.
        flops, bytes: floating-point operations and bytes of all hooks, as in
            `encodings.cost.TokenCost`, at the training length.
        looped: whether the hooks have loops.
        adopted: models of transformers, vLLM and SGLang that use it; None where the scan has no
            rule.
    """

    name: str
    family: str
    source: str
    vectors: str
    trainable: int
    fixed: int
    absolute: bool
    relative: bool
    order: bool
    gradient: tuple[str, ...]
    beyond: str
    flops: float
    bytes: float
    looped: bool
    adopted: tuple[int, ...] | None = None


def encoding_properties(
    entry: CatalogueEntry, *, sizes: EncodingSizes = EncodingSizes()
) -> EncodingProperties:
    """Computed properties of an encoding of the catalogue, at sizes or `EncodingSizes()`.

    The encoding is tested in one attention layer on random content. N(0, 0.1²) is added to its
    initial parameters, because tables that start at 0 would have no effect. Costs are as the
    compiler reports them. Where encodings differ by layer, the first one is tested.

    >>> alibi, = catalogue("alibi")
    >>> properties = encoding_properties(alibi, sizes=EncodingSizes(64, 4, 16, 32))
    >>> properties.trainable, properties.absolute, properties.relative, properties.beyond
    (0, False, True, 'yes')
    """
    encoding = entry.first_layer(sizes)
    layer = _Layer(encoding, entry.coordinates, sizes)
    params, content = perturbed_params(encoding.init(jax.random.key(0))), _content(sizes)
    gradients = _parameter_gradients(layer, params, content)
    receiving = {name: bool(np.any(gradient != 0)) for name, gradient in gradients.items()}
    absolute, relative, order = _information(layer, params, content)
    cost = token_cost(encoding, entry.coordinates, sizes)
    return EncodingProperties(
        name=entry.name,
        family=entry.family,
        source=entry.source,
        vectors=entry.vectors,
        trainable=sum(gradients[name].size for name in gradients if receiving[name]),
        fixed=sum(gradients[name].size for name in gradients if not receiving[name]),
        absolute=absolute,
        relative=relative,
        order=order,
        gradient=(
            *(name for name in gradients if receiving[name]),
            *_changed_gradients(layer, params, content),
        ),
        beyond=_extrapolation(layer, params, content),
        flops=cost.flops,
        bytes=cost.bytes,
        looped=cost.loops > 0,
        adopted=_adoption().get(entry.name),
    )


@functools.cache
def _adoption() -> dict[str, tuple[int, ...]]:
    """Models of each program by encoding, as counted by `tools/adoption.py`."""
    text = files("jaxpe.encodings").joinpath("adoption.toml").read_text("utf-8")
    counts = [program["counts"] for program in tomllib.loads(text).values()]
    return {name: tuple(one[name] for one in counts) for name in counts[0]}


class _Content(NamedTuple):
    """Random content: embeddings, queries and keys without position, projections."""

    x: np.ndarray
    q: np.ndarray
    k: np.ndarray
    projections: np.ndarray


def _content(sizes: EncodingSizes) -> _Content:
    rng, dtype = np.random.default_rng(0), jnp.result_type(float)
    heads = (sizes.num_heads, sizes.head_dim)
    shapes = ((TRIED, sizes.dim), (TRIED, *heads), (TRIED, *heads), (3, 2 * sizes.dim, *heads))
    return _Content(*(rng.standard_normal(shape).astype(dtype) for shape in shapes))


class _Layer(NamedTuple):
    """An attention layer with an encoding. Functions of `params` and `content`, to be jitted."""

    encoding: Encoding
    coordinates: int
    sizes: EncodingSizes

    def positions(self, start: int, stop: int) -> np.ndarray:
        """Concrete positions start, ..., stop − 1, with equal coordinates."""
        return line_of_positions(np.arange(start, stop), self.coordinates)

    def projected(
        self, params: Any, content: _Content, positions: np.ndarray | Array
    ) -> list[Array]:
        """Queries, keys and values of embeddings that carry the encoding."""
        n = len(positions)
        x = self.encoding.embed(params, content.x[:n], positions)
        width = x.shape[-1]  # at most twice the width of the embeddings, if vectors are appended
        q, k, v = jnp.einsum("nd,pdhe->pnhe", x, content.projections[:, :width]) / width**0.5
        return [q + content.q[:n], k + content.k[:n], v]

    def logits(self, params: Any, content: _Content, positions: np.ndarray | Array) -> Array:
        """Result of `_masked_logits` for random content, `[heads, n, n]`."""
        q, k, _ = self.projected(params, content, positions)
        return _masked_logits(self.at(params, content.x, positions), params, q, k, positions)

    def at(self, params: Any, x: Any, positions: np.ndarray | Array) -> Encoding:
        """The encoding, bound to the context of hidden states `[>= n, d]` if it needs one."""
        return encoding_at(self.encoding, params, x[: len(positions)], positions)


def perturbed_params(params: Any) -> Any:
    """Parameters a little off their initial values."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(x.dtype), params)


def _parameter_gradients(layer: _Layer, params: Any, content: _Content) -> dict[str, np.ndarray]:
    """Gradient of a loss on attention outputs, for each array of the parameters by name."""
    n = min(layer.sizes.length, TRIED)
    positions = layer.positions(0, n)

    def loss(params, content):
        q, k, v = layer.projected(params, content, positions)
        pair_positions = {"q_positions": positions, "k_positions": positions}
        causal = np.tril(np.ones((n, n), bool))
        encoding = layer.at(params, content.x, positions)
        out = attend(encoding, params, q, k, v, mask=causal, **pair_positions)
        return jnp.sum(jnp.sin(out))

    named = jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(loss))(params, content))
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(gradient)
        for path, gradient in named
    }


def _changed_gradients(layer: _Layer, params: Any, content: _Content) -> list[str]:
    """Names of queries, keys or weights, if the encoding changes their gradient."""
    n = min(layer.sizes.length, TRIED)
    positions = layer.positions(0, n)

    def pulled(params, x, q, k):
        """Change of cotangents that pass the hooks, and the part through the bias."""
        encoding = layer.at(params, x, positions)
        through = [
            _cotangent_change(lambda x, hook=hook: hook(params, x, positions), x, k)
            for hook, x in ((encoding.query, q), (encoding.key, k))
        ]
        if not encoding.defines("bias") and not encoding.defines("products"):
            return through

        def biased(q, k):
            bias = encoding.bias(params, q, k, positions, positions)
            products = encoding.products(params, q, k, positions, positions)
            added = jnp.zeros((1, 1, 1)) if bias is None else bias
            if products is not None:
                added = added + (products - dot_products(q, k))
            return jnp.sum(jnp.sin(added + jnp.arange(n, dtype=added.dtype).reshape(1, 1, n)))

        added = jax.grad(biased, argnums=(0, 1))(q, k)
        return [jnp.abs(a) + jnp.abs(b) for a, b in zip(through, added, strict=True)]

    changes = jax.jit(pulled)(params, content.x[:n], content.q[:n], content.k[:n])
    moved = [bool(np.max(np.abs(change)) > TOLERANCE) for change in changes]
    names = [name for name, yes in zip(("queries", "keys"), moved, strict=True) if yes]
    return [*names, *(["weights"] if layer.encoding.defines("value") else [])]


def _cotangent_change(hook: Callable[[Array], Array], x: Array, cotangent: Array) -> Array:
    """Change of a cotangent that passes a hook; 1 where the hook changes the width."""
    out, pull = jax.vjp(hook, x)
    return pull(cotangent)[0] - cotangent if out.shape == x.shape else jnp.ones_like(x)


def _information(layer: _Layer, params: Any, content: _Content) -> tuple[bool, bool, bool]:
    """Whether logits carry absolute, relative and order information: see `EncodingProperties`."""
    length = layer.sizes.length
    n = min(length // 2, TRIED)
    near = layer.positions(0, n)
    order = np.random.default_rng(0).permutation(n)
    # An odd shift, so that chunks of positions do not align.
    settings = [near, layer.positions(length - n - 1, length - 1)]
    # Traced, so that a table gives NaN; a table of vectors may end at the length.
    far = settings[-1] if layer.encoding.defines("embed") else layer.positions(0, n) + FAR * length

    def tried(params, content, places):
        traded = content._replace(**{name: getattr(content, name)[order] for name in "xqk"})
        orders = jax.tree.map(lambda a, b: jnp.stack([a, a, a, b]), content, traded)
        logits = jax.vmap(layer.logits, (None, 0, 0))(params, orders, places)
        return logits, _position_logits(layer, params, content, near)

    places = np.stack([*settings, far, near])
    (first, *shifted, traded), alone = jax.device_get(jax.jit(tried)(params, content, places))
    if layer.encoding.defines("context"):  # the first tokens have fewer preceding ones
        alone = alone[:, _WARM_UP:, _WARM_UP:]
    n = alone.shape[-1]
    toeplitz = _equal(alone[:, 1:, 1:], alone[:, :-1, :-1])
    # Off the diagonal: an orthonormal basis has products of 0 at every other offset.
    beside = alone[:, ~np.eye(n, dtype=bool)]
    distinguishable = bool(np.ptp(beside, axis=1).max() > TOLERANCE * np.abs(alone).max())
    absolute = not all(_equal(first, logits) for logits in shifted)
    return absolute, toeplitz and distinguishable, not _equal(first[:, order][:, :, order], traded)


def _position_logits(layer: _Layer, params: Any, content: _Content, positions: np.ndarray) -> Array:
    """Logits `[heads, n, n]` of constant content, plus products of position vectors."""
    encoding = layer.encoding
    shape = (len(positions), *content.q.shape[1:])
    q, k = (jnp.broadcast_to(x[:1], shape) for x in (content.q, content.k))
    same = jnp.broadcast_to(content.x[:1], (len(positions), content.x.shape[1]))
    logits = _masked_logits(layer.at(params, same, positions), params, q, k, positions)
    if not encoding.defines("embed"):
        return logits
    vectors = encoding.vectors(params, positions)
    return logits + (vectors @ vectors.T)[None]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.max(np.abs(a - b)) <= TOLERANCE * np.max(np.abs(a)))


def _extrapolation(layer: _Layer, params: Any, content: _Content) -> str:
    """State of positions (offsets, where only they matter) beyond twice the training length."""
    length = layer.sizes.length
    rows = np.asarray(_profiles(layer, params, content, 3 * length))
    inside, outside = rows[:length], rows[2 * length :]
    if not np.isfinite(outside).all():
        return "no"
    steps = [np.linalg.norm(np.diff(part, axis=0), axis=-1) for part in (inside, outside)]
    resolution = 10 * TOLERANCE * np.max(steps[0])
    if np.max(steps[1]) <= resolution:  # also if no positions are distinct anywhere
        return "constant"
    apart = np.linalg.norm(outside[:1] - inside, axis=-1)
    return "repeats" if np.min(apart) <= resolution else "yes"


def _profiles(layer: _Layer, params: Any, content: _Content, n: int) -> Array:
    """A row for each position 0..n − 1: its vector, or logits of a last query to equal keys."""
    encoding, positions = layer.encoding, layer.positions(0, n)
    if encoding.defines("embed"):  # positions are traced, so that a table gives NaN
        return jax.jit(encoding.vectors)(params, positions)

    def last(params, x, q, k, positions):
        keys = jnp.broadcast_to(k, (n, *k.shape[1:]))
        same = jnp.broadcast_to(x, (n, x.shape[1]))
        bound = encoding_at(encoding, params, same, positions, queries=slice(-1, None))
        return _masked_logits(bound, params, q, keys, positions[-1:], positions)

    logits = jax.jit(last)(params, content.x[:1], content.q[:1], content.k[:1], positions)
    return logits[:, 0, ::-1].T


def _masked_logits(
    encoding: Encoding, params: Any, q: Array, k: Array, *positions: np.ndarray | Array
) -> Array:
    """Logits of queries and keys, lower where masked."""
    pair_positions = {"q_positions": positions[0], "k_positions": positions[-1]}
    logits = attention_logits(encoding, params, q, k, **pair_positions)
    mask = encoded_mask(encoding, params, q, k, **pair_positions)
    return logits if mask is None else jnp.where(mask, logits, jnp.min(logits) - 1)

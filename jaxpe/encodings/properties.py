"""What can be computed about an encoding: parameters, information, gradients, reach and cost."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe.encodings.attention import attend, attention_logits
from jaxpe.encodings.base import Encoding
from jaxpe.encodings.catalogue import CatalogueEntry, EncodingSizes

# Logits closer than this share of their largest are the same.
TOLERANCE = 1e-4
# Tokens of the sequences on which an encoding is tried.
TRIED = 16


class EncodingProperties(NamedTuple):
    """What was computed about one encoding; nothing of it is typed in.

    Attributes:
        trainable: numbers in the parameters that receive a gradient.
        fixed: numbers in the parameters that do not.
        absolute: whether logits change when all positions move by the same amount.
        relative: whether what positions alone put into the logits is a function of the offset
            j − i, and tells offsets apart.
        order: whether logits change when tokens trade places.
        gradient: where the gradient of a loss goes because of the encoding: its parameters by
            name, and "queries", "keys" or "weights" where it changes the gradient of these.
        beyond: what becomes of positions past the training length: "yes" (defined and told
            apart), "constant" (defined, all alike), "repeats" (as those inside) or "no".
        flops: of all hooks together, forward, per token of a sequence of the training length.
        bytes: read and written by them, likewise.
        looped: whether the compiled program has a loop, whose body both counts include only once.
    """

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


def encoding_properties(
    entry: CatalogueEntry, *, sizes: EncodingSizes | None = None
) -> EncodingProperties:
    """Everything that is computed about an encoding of the catalogue.

    It is tried in one attention layer on random content, at its initial parameters with N(0, 0.1²)
    added (tables that start at 0 would hide what they do); costs are those the compiler reports.

    >>> alibi, = catalogue("alibi")
    >>> properties = encoding_properties(alibi, sizes=EncodingSizes(64, 4, 16, 32))
    >>> properties.trainable, properties.absolute, properties.relative, properties.beyond
    (0, False, True, 'yes')
    """
    sizes = EncodingSizes() if sizes is None else sizes
    encoding = entry.make(sizes)
    layer = _Layer(encoding, entry.coordinates, sizes)
    params = _moved(encoding.init(jax.random.key(0)))
    gradients = _parameter_gradients(layer, params)
    receiving = {name: bool(np.any(gradient != 0)) for name, gradient in gradients.items()}
    absolute, relative, order = _information(layer, params)
    flops, moved, looped = _cost(layer, params)
    return EncodingProperties(
        trainable=sum(gradients[name].size for name in gradients if receiving[name]),
        fixed=sum(gradients[name].size for name in gradients if not receiving[name]),
        absolute=absolute,
        relative=relative,
        order=order,
        gradient=(*(name for name in gradients if receiving[name]), *_changed(layer, params)),
        beyond=_beyond(layer, params),
        flops=flops,
        bytes=moved,
        looped=looped,
    )


class _Layer(NamedTuple):
    """An attention layer with an encoding, whose projections are fixed and content random."""

    encoding: Encoding
    coordinates: int
    sizes: EncodingSizes

    def positions(self, start: int, stop: int) -> np.ndarray:
        """start ... stop − 1, equal coordinates where there are several; known when tracing."""
        line = np.arange(start, stop, dtype=np.int32)
        return line if self.coordinates == 1 else np.repeat(line[:, None], self.coordinates, 1)

    def content(self, n: int) -> tuple[Array, Array, Array]:
        """Embeddings `[n, dim]`, and queries and keys `[n, heads, head_dim]`."""
        keys, dtype = jax.random.split(jax.random.key(1), 3), jnp.result_type(float)
        heads = (n, self.sizes.num_heads, self.sizes.head_dim)
        x = jax.random.normal(keys[0], (n, self.sizes.dim), dtype)
        q, k = (jax.random.normal(key, heads, dtype) for key in keys[1:])
        return x, q, k

    def projected(self, params: Any, x: Array, positions: np.ndarray, seed: int) -> Array:
        """Embeddings with the encoding in them, in a random projection to heads."""
        x = self.encoding.embed(params, x, positions)
        shape = (self.sizes.num_heads, self.sizes.head_dim)
        weight = jax.random.normal(jax.random.key(seed), (x.shape[-1], *shape), x.dtype)
        return jnp.einsum("nd,dhe->nhe", x, weight) / np.sqrt(x.shape[-1])

    def logits(self, params: Any, positions: np.ndarray) -> Array:
        """Logits `[heads, n, n]` of random content."""
        x, q, k = self.content(len(positions))
        return attention_logits(
            self.encoding,
            params,
            q + self.projected(params, x, positions, seed=2),
            k + self.projected(params, x, positions, seed=3),
            q_positions=positions,
            k_positions=positions,
        )


def _moved(params: Any) -> Any:
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(7), max(len(leaves), 1))
    pairs = zip(leaves, keys, strict=False)
    return tree.unflatten([x + 0.1 * jax.random.normal(key, x.shape, x.dtype) for x, key in pairs])


def _parameter_gradients(layer: _Layer, params: Any) -> dict[str, np.ndarray]:
    """Gradient of a loss on attention outputs, for each array of the parameters by name."""
    n = min(layer.sizes.length, TRIED)
    positions = layer.positions(0, n)

    def loss(params):
        x, q, k = layer.content(n)
        out = attend(
            layer.encoding,
            params,
            q + layer.projected(params, x, positions, seed=2),
            k + layer.projected(params, x, positions, seed=3),
            layer.projected(params, x, positions, seed=4),
            q_positions=positions,
            k_positions=positions,
            mask=jnp.tril(jnp.ones((n, n), bool)),
        )
        return jnp.sum(jnp.sin(out))

    gradients = jax.jit(jax.grad(loss))(params)
    named = jax.tree_util.tree_leaves_with_path(gradients)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(gradient)
        for path, gradient in named
    }


def _changed(layer: _Layer, params: Any) -> list[str]:
    """Which of queries, keys and weights have their gradient changed by the encoding."""
    n, encoding = min(layer.sizes.length, TRIED), layer.encoding
    positions = layer.positions(0, n)

    @jax.jit
    def pulled(params):
        """What the cotangents become that the hooks let through, and the ones the bias adds."""
        _, q, k = layer.content(n)
        through = [
            jax.vjp(lambda x, hook=hook: hook(params, x, positions), x)[1](k)[0] - k
            for hook, x in ((encoding.query, q), (encoding.key, k))
        ]
        if encoding.defines("bias"):

            def biased(q, k):
                bias = jnp.asarray(encoding.bias(params, q, k, positions, positions))
                return jnp.sum(bias * jax.random.normal(jax.random.key(5), bias.shape, bias.dtype))

            added = jax.grad(biased, argnums=(0, 1))(q, k)
            through = [jnp.abs(a) + jnp.abs(b) for a, b in zip(through, added, strict=True)]
        return through

    changes = [bool(np.max(np.abs(change)) > TOLERANCE) for change in pulled(params)]
    names = [name for name, yes in zip(("queries", "keys"), changes, strict=True) if yes]
    return [*names, *(["weights"] if encoding.defines("value") else [])]


def _information(layer: _Layer, params: Any) -> tuple[bool, bool, bool]:
    """Whether logits carry absolute, relative and order information: see `EncodingProperties`."""
    length = layer.sizes.length
    n = min(length // 2, TRIED)
    places = layer.positions(0, n)
    swapped = places[np.random.default_rng(0).permutation(n)]

    @jax.jit
    def tried(params):
        others = (places, layer.positions(length - n, length), swapped)
        return [layer.logits(params, p) for p in others], _alone(layer, params, places)

    (here, later, disordered), alone = tried(params)
    toeplitz = _same(alone[:, 1:, 1:], alone[:, :-1, :-1])
    # Off the diagonal: an orthonormal basis has products of 0 at every other offset.
    beside = np.asarray(alone)[:, ~np.eye(n, dtype=bool)]
    told_apart = bool(np.ptp(beside, axis=1).max() > TOLERANCE * np.abs(alone).max())
    return not _same(here, later), toeplitz and told_apart, not _same(here, disordered)


def _alone(layer: _Layer, params: Any, positions: np.ndarray) -> Array:
    """What positions alone put into the logits, `[heads, n, n]`.

    Products of position vectors where they are added to embeddings; otherwise the logits of
    content that is the same everywhere.
    """
    encoding, n = layer.encoding, len(positions)
    if encoding.defines("embed"):
        vectors = encoding.vectors(params, positions)
        return (vectors @ vectors.T)[None]
    _, q, k = layer.content(n)
    q, k = (jnp.broadcast_to(x[:1], x.shape) for x in (q, k))
    return attention_logits(encoding, params, q, k, q_positions=positions, k_positions=positions)


def _same(a: Array, b: Array) -> bool:
    return bool(jnp.max(jnp.abs(a - b)) <= TOLERANCE * jnp.max(jnp.abs(a)))


def _beyond(layer: _Layer, params: Any) -> str:
    """Positions (or offsets, where only these matter) of twice the training length and more."""
    if layer.encoding == Encoding():
        return "yes"
    length = layer.sizes.length
    try:
        rows = np.asarray(_profiles(layer, params, 3 * length))
    except ValueError:
        return "no"
    inside, outside = rows[:length], rows[2 * length :]
    if not np.isfinite(outside).all():
        return "no"
    steps = [np.linalg.norm(np.diff(part, axis=0), axis=-1) for part in (inside, outside)]
    resolution = 10 * TOLERANCE * np.max(steps[0])
    if np.max(steps[1]) <= resolution:
        return "constant"
    apart = np.linalg.norm(outside[:1] - inside, axis=-1)
    return "repeats" if np.min(apart) <= resolution else "yes"


def _profiles(layer: _Layer, params: Any, n: int) -> Array:
    """What an encoding makes of positions 0..n − 1, a row each.

    Their vectors; where there are none, the logits that a last query gives to equal keys at these
    offsets before it.
    """
    encoding, positions = layer.encoding, layer.positions(0, n)
    if encoding.defines("vectors"):
        return encoding.vectors(params, positions)
    _, q, k = layer.content(1)
    logits = jax.jit(attention_logits, static_argnums=0)(
        encoding,
        params,
        q,
        jnp.broadcast_to(k, (n, *k.shape[1:])),
        q_positions=positions[-1:],
        k_positions=positions,
    )
    return logits[:, 0, ::-1].T


def _cost(layer: _Layer, params: Any) -> tuple[float, float, bool]:
    """FLOPs and bytes per token of the hooks an encoding defines, and whether they loop."""
    n, encoding = layer.sizes.length, layer.encoding
    x, q, k = jax.eval_shape(lambda: layer.content(n))
    weights = jax.ShapeDtypeStruct((layer.sizes.num_heads, n, n), q.dtype)
    positions = jax.eval_shape(lambda: jnp.asarray(layer.positions(0, n)))
    hooks = {
        "embed": lambda p, i, x, q, k, w: encoding.embed(p, x, i),
        "query": lambda p, i, x, q, k, w: encoding.query(p, q, i),
        "key": lambda p, i, x, q, k, w: encoding.key(p, k, i),
        "bias": lambda p, i, x, q, k, w: encoding.bias(p, q, k, i, i),
        "value": lambda p, i, x, q, k, w: encoding.value(p, w, i, i),
    }
    used = [hook for name, hook in hooks.items() if encoding.defines(name)]
    if not used:
        return 0.0, 0.0, False
    program = jax.jit(lambda *args: [hook(*args) for hook in used])
    compiled = program.lower(params, positions, x, q, k, weights).compile()
    cost, text = compiled.cost_analysis() or {}, compiled.as_text() or ""
    missing = float("nan")  # a backend without an analysis says so
    flops, moved = (cost.get(name, missing) / n for name in ("flops", "bytes accessed"))
    return flops, moved, " while(" in text

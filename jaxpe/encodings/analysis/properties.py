"""Computed properties of encodings: the columns of the catalogue's table."""

import tomllib
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.jaxprs import inner_jaxprs
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_mask import encoded_mask
from jaxpe.encodings.attention_terms import attention_logits
from jaxpe.encodings.base import Encoding, encoding_at
from jaxpe.encodings.registry import CatalogueEntry, EncodingSizes

# Rows or logits nearer than this share of the largest count as equal. Trials are in float64, where
# rounding stays below 1e-9 of it at FAR lengths; 1e-6 is what a sum of a few terms keeps in
# float32, so a model does not tell apart what is nearer.
RESOLUTION = 1e-6
# Share of the smallest step within the training length at which neighbours count as told apart.
KEPT = 0.1
# Training lengths to which positions are tried, and by which they are shifted.
FAR = 8
# Tokens of the test sequences.
TRIED = 16
ALL = slice(None)
# Tokens until a short convolution over constant hidden states becomes constant.
_WARM_UP = 4


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
        gradient: parts of the gradient of a loss that the encoding enters: the names of its
            parameters, and "queries", "keys" or "weights" if it changes their gradient.
        beyond: state of positions (offsets, where only they matter) from the training length T to
            `FAR`·T: "undefined", "constant" (all equal), "repeats" (each equal to one within T) or
            "told apart".
        reach: multiple of T, at most `FAR`, up to which steps between neighbours are at least
            `KEPT` times the smallest step within T; below 1 where neighbours within T are equal.
        flops, bytes: floating-point operations and bytes of all hooks, forward, a token, as the
            compiler counts them in a sequence of T tokens, a loop's body once for every pass; NaN
            from a backend that does not report them.
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
    gradient: tuple[str, ...]
    beyond: str
    reach: float
    flops: float
    bytes: float
    looped: bool
    adopted: tuple[int, ...] | None = None


def encoding_properties(
    entry: CatalogueEntry, *, sizes: EncodingSizes = EncodingSizes()
) -> EncodingProperties:
    """Computed properties of an encoding of the catalogue.

    The encoding is tested in one attention layer on random content. N(0, 0.1²) is added to its
    initial parameters, because tables that start at 0 would have no effect. Where encodings differ
    by layer, the first one is tested.

    Args:
        entry: entry of the catalogue.
        sizes: sizes of the model for which the encoding is built.

    Raises:
        ValueError: a length below 4.

    >>> alibi, = catalogue("alibi")
    >>> properties = encoding_properties(alibi, sizes=EncodingSizes(64, 4, 16, 32))
    >>> properties.trainable, properties.absolute, properties.relative
    (0, False, True)
    >>> properties.beyond, properties.reach
    ('told apart', 8.0)
    """
    if sizes.length < 4:
        raise ValueError(f"length={sizes.length} is too short to try: pass 4 or more")
    flops, moved, loops = token_cost(entry.first_layer(sizes), entry.coordinates, sizes)
    with jax.enable_x64(True):
        layer = _Layer(entry.first_layer(sizes), entry.coordinates, sizes)
        params, content = perturbed_params(layer.encoding.init(jax.random.key(0))), _content(sizes)
        gradients = _parameter_gradients(layer, params, content)
        receiving = [name for name, gradient in gradients.items() if np.any(gradient != 0)]
        absolute, relative = _information(layer, params, content)
        beyond, reach = extrapolation(layer.profiles(params, content), length=sizes.length)
        changed = _changed_gradients(layer, params, content)
    return EncodingProperties(
        **{name: getattr(entry, name) for name in ("name", "family", "source", "vectors")},
        trainable=sum(gradients[name].size for name in receiving),
        fixed=sum(gradients[name].size for name in gradients.keys() - set(receiving)),
        absolute=absolute,
        relative=relative,
        gradient=(*receiving, *changed),
        beyond=beyond,
        reach=reach,
        flops=flops,
        bytes=moved,
        looped=loops > 0,
        adopted=_adoption().get(entry.name),
    )


@cache
def _adoption() -> dict[str, tuple[int, ...]]:
    """Models of each program by encoding, as counted by `tools/adoption.py`."""
    text = files("jaxpe.encodings").joinpath("adoption.toml").read_text("utf-8")
    counts = [program["counts"] for program in tomllib.loads(text).values()]
    return {name: tuple(one[name] for one in counts) for name in counts[0]}


def perturbed_params(params: Any) -> Any:
    """Parameters a little off their initial values."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(x.dtype), params)


def line_of_positions(line: np.ndarray, coordinates: int) -> np.ndarray:
    """Positions `[n]`, or `[n, coordinates]` with equal coordinates."""
    line = np.asarray(line, np.int32)
    return line if coordinates == 1 else np.repeat(line[:, None], coordinates, 1)


Content = tuple[Any, ...]  # embeddings, queries and keys without position, projections


def _content(sizes: EncodingSizes) -> Content:
    rng, heads = np.random.default_rng(0), (sizes.num_heads, sizes.head_dim)
    shapes = ((TRIED, sizes.dim), (TRIED, *heads), (TRIED, *heads), (3, 2 * sizes.dim, *heads))
    return tuple(map(rng.standard_normal, shapes))


class _Layer(NamedTuple):
    """An attention layer with an encoding. Functions of `params` and `content`, to be jitted."""

    encoding: Encoding
    coordinates: int
    sizes: EncodingSizes

    def positions(self, start: int, stop: int) -> np.ndarray:
        """Concrete positions start, ..., stop − 1, with equal coordinates."""
        return line_of_positions(np.arange(start, stop), self.coordinates)

    def projected(self, params: Any, content: Content, positions: ArrayLike) -> list[Array]:
        """Queries, keys and values of embeddings that carry the encoding."""
        n, (x, q, k, projections) = len(positions), content
        x = self.encoding.embed(params, x[:n], positions)
        width = x.shape[-1]  # at most twice the width of the embeddings, if vectors are appended
        for_q, for_k, v = jnp.einsum("nd,pdhe->pnhe", x, projections[:, :width]) / width**0.5
        return [for_q + q[:n], for_k + k[:n], v]

    def logits(self, params: Any, content: Content, positions: ArrayLike) -> Array:
        """Result of `masked_logits` for random content, `[heads, n, n]`."""
        q, k, _ = self.projected(params, content, positions)
        return self.masked_logits(params, content[0][: len(positions)], q, k, positions)

    def position_logits(self, params: Any, content: Content, positions: ArrayLike) -> Array:
        """Logits `[heads, n, n]` of constant content, plus products of position vectors."""
        x, q, k = (jnp.repeat(a[:1], len(positions), axis=0) for a in content[:3])
        logits = self.masked_logits(params, x, q, k, positions)
        if not self.encoding.defines("embed"):
            return logits
        vectors = self.encoding.vectors(params, positions)
        return logits + (vectors @ vectors.T)[None]

    def profiles(self, params: Any, content: Content) -> np.ndarray:
        """A row for each position to `FAR` lengths.

        It is the position's vector, or else the logits, one a head, that the last query gives to an
        equal key so far back.
        """
        positions = self.positions(0, FAR * self.sizes.length)
        if self.encoding.defines("embed"):  # positions are traced, so that a table gives NaN
            return np.asarray(jax.jit(self.encoding.vectors)(params, positions))

        def last(params, x, q, k, positions):
            x, k = (jnp.repeat(a, len(positions), axis=0) for a in (x, k))
            return self.masked_logits(params, x, q, k, positions, slice(-1, None))

        first = (a[:1] for a in content[:3])
        return np.asarray(jax.jit(last)(params, *first, positions)[:, 0, ::-1].T)

    def masked_logits(
        self, params: Any, x: Array, q: Array, k: Array, positions: ArrayLike, queries: slice = ALL
    ) -> Array:
        """Logits of queries and keys from hidden states x, lower where masked."""
        bound = encoding_at(self.encoding, params, x, positions, queries=queries)
        pair_positions = {"q_positions": positions[queries], "k_positions": positions}
        logits = attention_logits(bound, params, q, k, **pair_positions)
        mask = encoded_mask(bound, params, q, k, **pair_positions)
        return logits if mask is None else jnp.where(mask, logits, jnp.min(logits) - 1)


def _parameter_gradients(layer: _Layer, params: Any, content: Content) -> dict[str, np.ndarray]:
    """Gradient of a loss on causal attention, for each array of the parameters by name."""
    positions = layer.positions(0, min(layer.sizes.length, TRIED))

    def loss(params, content):
        q, k, v = layer.projected(params, content, positions)
        pair_positions = {"q_positions": positions, "k_positions": positions}
        bound = encoding_at(layer.encoding, params, content[0][: len(positions)], positions)
        causal = np.tri(len(positions)) > 0
        return jnp.sum(jnp.sin(attend(bound, params, q, k, v, mask=causal, **pair_positions)))

    named = jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(loss))(params, content))
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return {name(path): np.asarray(gradient) for path, gradient in named}


def _changed_gradients(layer: _Layer, params: Any, content: Content) -> list[str]:
    """Names of queries, keys or weights, if the encoding changes their gradient."""
    n, encoding = min(layer.sizes.length, TRIED), layer.encoding
    positions = layer.positions(0, n)

    def terms(q, k, params, x):  # the last one makes it an array where there are no terms
        at = encoding_at(encoding, params, x[:n], positions)
        both = [hook(params, q, k, positions, positions) for hook in (at.bias, at.products)]
        return sum(jnp.sum(jnp.sin(term)) for term in both if term is not None) + 0.0 * jnp.sum(q)

    x, q, k, _ = content
    through = jax.jit(jax.grad(terms, (0, 1)))(q[:n], k[:n], params, x)
    changed = [
        name
        for name, hook, gradient in zip(("queries", "keys"), ("query", "key"), through, strict=True)
        if encoding.defines(hook) or np.any(gradient != 0)
    ]
    return changed + ["weights"] * encoding.defines("value")


def _information(layer: _Layer, params: Any, content: Content) -> tuple[bool, bool]:
    """Whether logits carry absolute and relative information: see `EncodingProperties`."""
    length, n = layer.sizes.length, min(layer.sizes.length // 2, TRIED)
    near = layer.positions(0, n)
    # An odd shift, so that chunks of positions do not align.
    shifts = [length - n - 1]
    if not layer.encoding.defines("embed"):  # a table of vectors may end at the length
        shifts.append(FAR * length)
    # Positions are traced, so that a table gives NaN.
    logits, alone = jax.jit(layer.logits), jax.jit(layer.position_logits)
    first = np.asarray(logits(params, content, near))
    absolute = not all(_equal(first, logits(params, content, near + s)) for s in shifts)
    pairs = np.asarray(alone(params, content, near))
    if layer.encoding.defines("context"):  # the first tokens have fewer preceding ones
        pairs = pairs[:, _WARM_UP:, _WARM_UP:]
    # Off the diagonal: an orthonormal basis has products of 0 at every other offset.
    beside = pairs[:, ~np.eye(pairs.shape[-1], dtype=bool)]
    distinguishable = np.ptp(beside, axis=1).max() > RESOLUTION * np.abs(pairs).max()
    relative = distinguishable and _equal(pairs[:, 1:, 1:], pairs[:, :-1, :-1])
    return absolute, bool(relative)


def _equal(a: np.ndarray, b: np.ndarray | Array) -> bool:
    return bool(np.max(np.abs(a - b)) <= RESOLUTION * np.max(np.abs(a)))


def extrapolation(rows: np.ndarray, *, length: int) -> tuple[str, float]:
    """State and reach of positions beyond a length, as in `EncodingProperties`.

    Args:
        rows: `[FAR·length, d]`, one a position; NaN for undefined ones.
        length: training length.

    >>> extrapolation(np.minimum(np.arange(32.0), 6.0)[:, None], length=4)
    ('told apart', 1.75)
    """
    inside, beyond = rows[:length], rows[length:]
    steps = np.linalg.norm(np.diff(rows, axis=0), axis=-1)  # step i leads from i to i + 1
    alike = RESOLUTION * float(np.linalg.norm(inside, axis=-1).max())
    lost = np.flatnonzero(~(steps > max(alike, KEPT * np.min(steps[: length - 1]))))  # also NaN
    reach = (lost[0] + 1) / length if len(lost) else float(FAR)
    if not np.isfinite(beyond).all():
        state = "undefined"
    elif np.max(steps[length:]) <= alike:
        state = "constant"
    elif _directed_hausdorff(inside, beyond) <= alike:
        state = "repeats"
    else:
        state = "told apart"
    return state, float(reach)


def _directed_hausdorff(rows: np.ndarray, others: np.ndarray) -> float:
    """Directed Hausdorff distance: the largest distance of one of the others to its nearest row."""
    gram = others @ rows.T
    squared = (others**2).sum(axis=-1)[:, None] + (rows**2).sum(axis=-1)[None, :] - 2 * gram
    return float(np.sqrt(np.maximum(squared, 0).min(axis=1).max()))


def hooks_program(
    encoding: Encoding, coordinates: int, sizes: EncodingSizes
) -> tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]:
    """Program of all hooks that an encoding defines, by name, and the shapes of its arguments."""
    n, heads, dtype = sizes.length, (sizes.num_heads, sizes.head_dim), jnp.result_type(float)
    shapes = ((n, sizes.dim), (n, *heads), (n, *heads), (sizes.num_heads, n, n))
    x, q, k, weights = (jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    line = line_of_positions(np.arange(n), coordinates)
    positions = jax.ShapeDtypeStruct(line.shape, line.dtype)
    params = jax.eval_shape(encoding.init, jax.random.key(0))

    def program(p, i, x, q, k, w):
        bound, pair = encoding_at(encoding, p, x, i), (q, k, i, i)
        arguments = {
            **{"embed": (x, i), "query": (q, i), "key": (k, i), "value": (w, i, i)},
            **dict.fromkeys(("products", "bias", "mask"), pair),
        }
        used = {name: args for name, args in arguments.items() if encoding.defines(name)}
        return {name: getattr(bound, name)(p, *args) for name, args in used.items()}

    return program, (params, positions, x, q, k, weights)


def token_cost(
    encoding: Encoding, coordinates: int, sizes: EncodingSizes
) -> tuple[float, float, int]:
    """FLOPs and bytes of all hooks, a token, and loops in their program."""
    program, arrays = hooks_program(encoding, coordinates, sizes)
    traced = jax.jit(program).trace(*arrays)
    loops = list(_loops(traced.jaxpr.jaxpr))
    total = _flops_and_bytes(traced)
    for body, times in loops:  # the compiler's cost counts one round of a loop
        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
        round_cost = _flops_and_bytes(jax.jit(core.jaxpr_as_fun(body)).trace(*shapes))
        total = total + (times - 1) * round_cost
    flops, moved = (total / sizes.length).tolist()
    return flops, moved, len(loops)


def _flops_and_bytes(traced: jax.stages.Traced) -> np.ndarray:
    """FLOPs and bytes of a program that is traced; NaN from a backend that does not report them."""
    if not traced.jaxpr.out_avals:
        return np.zeros(2)
    cost = traced.lower().compile().cost_analysis() or {}
    return np.array([cost.get(name, np.nan) for name in ("flops", "bytes accessed")], float)


def _loops(jaxpr: core.Jaxpr) -> Iterator[tuple[core.ClosedJaxpr, int]]:
    """Bodies of the outermost loops of a program, and how often they run."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["jaxpr"], equation.params["length"]
            continue
        for inner in inner_jaxprs(equation):
            yield from _loops(inner)

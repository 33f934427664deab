"""What an encoding adds and costs, and how that grows with the width and the length of a model."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from jaxpe._core.jaxprs import inner_jaxprs
from jaxpe.encodings._hooks import hooks_program, line_of_positions
from jaxpe.encodings.catalogue import CatalogueEntry, EncodingSizes

# Multiples of the width, and divisors of the length, at which a growth is fitted.
SCALES = (1, 2, 4)
# Training lengths up to which the growth of a bias is followed.
BIAS_SCALES = (1, 2, 4, 8)


class Growth(NamedTuple):
    """A number and the exponents with which it grows.

    Attributes:
        value: at the sizes asked for.
        dim: exponent in the width, of embeddings and of heads alike, fitted at 1, 2 and 4 times
            it; NaN where a value is 0.
        length: exponent in the training length, fitted at a quarter, a half and all of it.
    """

    value: float
    dim: float
    length: float


class Generalisation(NamedTuple):
    """What bounds on the complexity of a transformer depend on, of its encoding as initialised.

    Attributes:
        norm: the largest norm of a vector that is added to embeddings, inside the training length.
        bias: the largest |bias| of logits there, for content of N(0, 1) entries.
        bias_beyond: exponent with which that grows with the length of a sequence, at 1, 2, 4 and 8
            training lengths, the encoding being the same; NaN without a bias.
        parameters: numbers in the parameters.
    """

    norm: Growth
    bias: float
    bias_beyond: float
    parameters: Growth


class Cost(NamedTuple):
    """What an encoding costs.

    Attributes:
        flops: of all hooks together, forward, per token of a sequence of the training length, as
            the compiler counts them, the body of a loop as often as it runs.
        looped: whether it loops.
    """

    flops: Growth
    looped: bool


def encoding_generalisation(
    entry: CatalogueEntry, *, sizes: EncodingSizes | None = None
) -> Generalisation:
    """Norm of what is added, size of the bias, parameters: the terms of generalisation bounds.

    Li (2025), Section 4: a norm of added vectors that does not grow, and a bias that does not grow
    with the length, keep the bounds of Lipschitz transformers as they are.

    Args:
        entry: of the catalogue.
        sizes: of the model, `EncodingSizes()` when None.

    Raises:
        ValueError: for a length below 4.

    >>> from jaxpe.encodings.growth import encoding_generalisation
    >>> sinusoidal, alibi = catalogue("sinusoidal", "alibi")
    >>> sizes = EncodingSizes(32, 2, 8, 32)
    >>> norm = encoding_generalisation(sinusoidal, sizes=sizes).norm
    >>> round(norm.value, 3), round(norm.dim, 3), abs(round(norm.length, 3))
    (4.0, 0.5, 0.0)
    >>> found = encoding_generalisation(alibi, sizes=sizes)
    >>> found.bias, round(found.bias_beyond, 1)
    (1.9375, 1.0)
    """
    sizes = EncodingSizes() if sizes is None else sizes
    norm, parameters = growths(lambda at: _norm_and_parameters(entry, at), sizes)
    return Generalisation(norm, *_bias(entry, sizes), parameters)


def encoding_cost(entry: CatalogueEntry, *, sizes: EncodingSizes | None = None) -> Cost:
    """FLOPs of an encoding per token, and their growth with width and length.

    `encoding_properties` counts the body of a loop once; here it counts as often as it runs.

    Args:
        entry: of the catalogue.
        sizes: of the model, `EncodingSizes()` when None.

    Raises:
        ValueError: for a length below 4.

    >>> from jaxpe.encodings.growth import encoding_cost
    >>> legendre, = catalogue("legendre")
    >>> cost = encoding_cost(legendre, sizes=EncodingSizes(64, 2, 8, 64))
    >>> cost.looped, abs(cost.flops.dim - 1) < 0.1, abs(cost.flops.length) < 0.1
    (True, True, True)
    """
    sizes = EncodingSizes() if sizes is None else sizes
    flops, loops = growths(lambda at: _flops_and_loops(entry, at), sizes)
    return Cost(flops, bool(loops.value))


def growths(
    measure: Callable[[EncodingSizes], Sequence[float | int]], sizes: EncodingSizes
) -> list[Growth]:
    """What is measured at some sizes, with its exponents in the width and in the length.

    Raises:
        ValueError: for a length below 4, whose quarter is no length.

    >>> from jaxpe.encodings.growth import growths
    >>> growths(lambda at: [at.dim * at.length**2, 0], EncodingSizes(2, 1, 4, 8))
    [Growth(value=128.0, dim=1.0, length=2.0), Growth(value=0.0, dim=nan, length=nan)]
    """
    if sizes.length < SCALES[-1]:
        raise ValueError(
            f"length={sizes.length} has no quarter to measure growth from: pass at least "
            f"{SCALES[-1]}"
        )
    wider = [sizes._replace(dim=s * sizes.dim, head_dim=s * sizes.head_dim) for s in SCALES]
    longer = [sizes._replace(length=sizes.length // s) for s in SCALES]
    found = {at: measure(at) for at in dict.fromkeys([*wider, *longer])}
    return [
        Growth(
            float(value),
            exponent([at.dim for at in wider], [found[at][i] for at in wider]),
            exponent([at.length for at in longer], [found[at][i] for at in longer]),
        )
        for i, value in enumerate(found[sizes])
    ]


def exponent(sizes: Sequence[float | int], values: Sequence[float | int]) -> float:
    """The slope of log values over log sizes, rounded; NaN where a value is not positive.

    >>> from jaxpe.encodings.growth import exponent
    >>> exponent([1, 2, 4], [3.0, 6.0, 12.0])
    1.0
    """
    if not (np.isfinite(values).all() and np.min(values) > 0):
        return float("nan")
    slope = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return round(float(slope), 6) + 0.0  # no negative zero


def _norm_and_parameters(entry: CatalogueEntry, sizes: EncodingSizes) -> tuple[float, float]:
    """The largest norm of an added vector inside, and the numbers in the parameters."""
    encoding = entry.make(sizes)
    params = encoding.init(jax.random.key(0))
    norm = 0.0
    if encoding.defines("embed"):
        positions = line_of_positions(np.arange(sizes.length), entry.coordinates)
        rows = jax.jit(encoding.vectors)(params, positions)
        norm = float(np.linalg.norm(np.asarray(rows), axis=-1).max())
    return norm, float(sum(leaf.size for leaf in jax.tree.leaves(params)))


def _bias(entry: CatalogueEntry, sizes: EncodingSizes) -> tuple[float, float]:
    """The largest |bias| to keys before queries at the ends of 1, 2, 4, 8 lengths: first, growth.

    One random query is asked at all four.
    """
    encoding, n = entry.make(sizes), BIAS_SCALES[-1] * sizes.length
    if not encoding.defines("bias"):
        return 0.0, float("nan")
    rng, dtype = np.random.default_rng(0), jnp.result_type(float)
    heads = (sizes.num_heads, sizes.head_dim)
    asked = np.repeat(rng.standard_normal((1, *heads)).astype(dtype), len(BIAS_SCALES), 0)
    keys = rng.standard_normal((n, *heads)).astype(dtype)
    line, ends = np.arange(n), np.array(BIAS_SCALES) * sizes.length - 1
    before = line[None, :] <= ends[:, None]
    ends, line = (line_of_positions(i, entry.coordinates) for i in (ends, line))

    @jax.jit
    def largest(params, q, k, ends, line, before):
        size = jnp.abs(jnp.asarray(encoding.bias(params, q, k, ends, line)))
        return jnp.max(jnp.where(before[None], size, 0), axis=(0, 2))

    found = largest(encoding.init(jax.random.key(0)), asked, keys, ends, line, before)
    found = np.asarray(found, float).tolist()
    return found[0], exponent(BIAS_SCALES, found)


def _flops_and_loops(entry: CatalogueEntry, sizes: EncodingSizes) -> tuple[float, float]:
    """FLOPs of the hooks per token, loops in full, and how many loops there are."""
    program, arrays = hooks_program(entry.make(sizes), entry.coordinates, sizes)
    loops = list(_loops(jax.make_jaxpr(program)(*arrays).jaxpr))
    # Compiled programs count the body of a loop once.
    flops = _counted(program, arrays) + sum(
        (times - 1) * _counted(core.jaxpr_as_fun(body), body.in_avals) for body, times in loops
    )
    return flops / sizes.length, float(len(loops))


def _counted(program: Callable[..., Any], arrays: Sequence[Any]) -> float:
    """FLOPs of a program as compiled; NaN from a backend that does not say."""
    if not jax.eval_shape(program, *arrays):
        return 0.0
    shapes = [jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), a) for a in arrays]
    cost = jax.jit(program).lower(*shapes).compile().cost_analysis() or {}
    return float(cost.get("flops", float("nan")))


def _loops(jaxpr: core.Jaxpr) -> Iterator[tuple[core.ClosedJaxpr, int]]:
    """Bodies of the outermost loops of a program, and how often they run."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["jaxpr"], equation.params["length"]
            continue
        for inner in inner_jaxprs(equation):
            yield from _loops(inner)

"""Terms of Li (2025), Tables 2 and 4: norms, biases, parameters and FLOPs, and how they grow."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings.analysis.properties import line_of_positions, token_cost
from jaxpe.encodings.base import encoding_at
from jaxpe.encodings.registry import CatalogueEntry, EncodingSizes

# Training lengths at which the growth of a bias is measured.
BIAS_SCALES = (1, 2, 4, 8)
SCALES = (1, 2, 4)  # multiples of the width, and divisors of the length, in a fit


class PowerLaw(NamedTuple):
    """A number and the exponents with which it grows, value ∝ dim^a · length^b.

    Attributes:
        value: value at the requested sizes.
        dim: exponent in the width of embeddings and heads together, fitted at 1, 2 and 4 times the
            width; NaN where a value is 0.
        length: exponent in the training length, fitted at a quarter, a half and all of it.
    """

    value: float
    dim: float
    length: float


def power_laws(
    measure: Callable[[EncodingSizes], Sequence[float | int]], sizes: EncodingSizes
) -> list[PowerLaw]:
    """Measured values at some sizes, with their exponents in the width and in the length.

    Raises:
        ValueError: a length below 4, whose quarter is no length.

    >>> power_laws(lambda at: [at.dim * at.length**2, 0], EncodingSizes(2, 1, 4, 8))
    [PowerLaw(value=128.0, dim=1.0, length=2.0), PowerLaw(value=0.0, dim=nan, length=nan)]
    """
    if sizes.length < SCALES[-1]:
        raise ValueError(
            f"length={sizes.length} has no quarter to measure growth from: pass at least "
            f"{SCALES[-1]}"
        )
    wider = [sizes._replace(dim=s * sizes.dim, head_dim=s * sizes.head_dim) for s in SCALES]
    longer = [sizes._replace(length=sizes.length // s) for s in SCALES]
    measured = {at: measure(at) for at in dict.fromkeys([*wider, *longer])}
    return [
        PowerLaw(
            float(value),
            exponent([at.dim for at in wider], [measured[at][i] for at in wider]),
            exponent([at.length for at in longer], [measured[at][i] for at in longer]),
        )
        for i, value in enumerate(measured[sizes])
    ]


def exponent(sizes: Sequence[float | int], values: Sequence[float | int]) -> float:
    """The slope of log values over log sizes, rounded; NaN where a value is not positive.

    >>> exponent([1, 2, 4], [3.0, 6.0, 12.0])
    1.0
    """
    if not (np.isfinite(values).all() and np.min(values) > 0):
        return float("nan")
    slope = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return round(float(slope), 6) + 0.0  # no negative zero


class GeneralisationTerms(NamedTuple):
    """Terms of complexity bounds of a transformer that depend on its encoding, as initialised.

    Attributes:
        norm: the largest norm of a vector added to embeddings, within the training length.
        bias: the largest |bias| of logits within the training length, for content of N(0, 1)
            entries.
        bias_beyond: exponent with which the bias of one encoding grows at 1, 2, 4 and 8 training
            lengths; NaN without a bias.
        parameters: numbers in the parameters.
    """

    norm: PowerLaw
    bias: float
    bias_beyond: float
    parameters: PowerLaw


def generalisation_terms(
    entry: CatalogueEntry, *, sizes: EncodingSizes = EncodingSizes()
) -> GeneralisationTerms:
    """Terms of generalisation bounds: norm of added vectors, size of the bias, parameters.

    Li (2025), Section 4: the bounds of Lipschitz transformers do not change if added vectors and
    biases do not grow with the length. The encoding is built for the sizes of a model,
    `EncodingSizes()` when None.

    Raises:
        ValueError: a length below 4.

    >>> sinusoidal, alibi = catalogue("sinusoidal", "alibi")
    >>> sizes = EncodingSizes(32, 2, 8, 32)
    >>> norm = generalisation_terms(sinusoidal, sizes=sizes).norm
    >>> round(norm.value, 3), round(norm.dim, 3), abs(round(norm.length, 3))
    (4.0, 0.5, 0.0)
    >>> found = generalisation_terms(alibi, sizes=sizes)
    >>> found.bias, round(found.bias_beyond, 1)
    (1.9375, 1.0)
    """
    norm, parameters = power_laws(lambda at: _norm_and_parameters(entry, at), sizes)
    return GeneralisationTerms(norm, *_bias(entry, sizes), parameters)


def _norm_and_parameters(entry: CatalogueEntry, sizes: EncodingSizes) -> tuple[float, float]:
    """The largest norm of an added vector within the training length, and the parameter count."""
    encoding = entry.first_layer(sizes)
    params = encoding.init(jax.random.key(0))
    norm = 0.0
    if encoding.defines("embed"):
        positions = line_of_positions(np.arange(sizes.length), entry.coordinates)
        rows = jax.jit(encoding.vectors)(params, positions)
        norm = float(np.linalg.norm(np.asarray(rows), axis=-1).max())
    return norm, float(sum(leaf.size for leaf in jax.tree.leaves(params)))


def _bias(entry: CatalogueEntry, sizes: EncodingSizes) -> tuple[float, float]:
    """The largest |bias| of a last query at 1 training length, and its growth up to 8 lengths."""
    encoding, n = entry.first_layer(sizes), BIAS_SCALES[-1] * sizes.length
    if not encoding.defines("bias"):
        return 0.0, float("nan")
    rng, dtype = np.random.default_rng(0), jnp.result_type(float)
    heads = (sizes.num_heads, sizes.head_dim)
    queries = np.repeat(rng.standard_normal((1, *heads)).astype(dtype), len(BIAS_SCALES), 0)
    keys = rng.standard_normal((n, *heads)).astype(dtype)
    x = rng.standard_normal((n, sizes.dim)).astype(dtype)
    query_indices = np.array(BIAS_SCALES) * sizes.length - 1
    before = np.arange(n)[None, :] <= query_indices[:, None]
    ends, line = (line_of_positions(i, entry.coordinates) for i in (query_indices, np.arange(n)))

    @jax.jit
    def largest(params, x, q, k, ends, line, before):
        bound = encoding_at(encoding, params, x, line, queries=query_indices)
        size = jnp.abs(jnp.asarray(bound.bias(params, q, k, ends, line)))
        return jnp.max(jnp.where(before[None], size, 0), axis=(0, 2))

    biases = largest(encoding.init(jax.random.key(0)), x, queries, keys, ends, line, before)
    biases = np.asarray(biases, float).tolist()
    return biases[0], exponent(BIAS_SCALES, biases)


def flops_growth(entry: CatalogueEntry, *, sizes: EncodingSizes = EncodingSizes()) -> PowerLaw:
    """FLOPs of an encoding per token, as in `EncodingProperties`, and their growth.

    >>> legendre, = jaxpe.encodings.catalogue("legendre")
    >>> flops = flops_growth(legendre, sizes=EncodingSizes(64, 2, 8, 64))
    >>> abs(flops.dim - 1) < 0.1, abs(flops.length) < 0.1
    (True, True)
    """
    (flops,) = power_laws(
        lambda at: token_cost(entry.first_layer(at), entry.coordinates, at)[:1], sizes
    )
    return flops

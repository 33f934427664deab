"""FLOPs and bytes of an encoding as the compiler counts them, with every pass of a loop."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
from jax.extend import core

from jaxpe._core.jaxprs import inner_jaxprs
from jaxpe.encodings.analysis.hooks import hooks_program
from jaxpe.encodings.analysis.power_law import PowerLaw, power_laws
from jaxpe.encodings.base import Encoding
from jaxpe.encodings.registry import CatalogueEntry, EncodingSizes


class TokenCost(NamedTuple):
    """Forward cost of all hooks of an encoding together, per token.

    Attributes:
        flops: floating-point operations as the compiler counts them, a loop's body once for every
            pass; NaN from a backend that does not report them.
        bytes: bytes read and written, likewise.
        loops: loops in the program.
    """

    flops: float
    bytes: float
    loops: int


class EncodingCost(NamedTuple):
    """Cost of an encoding.

    Attributes:
        flops: floating-point operations of all hooks, as in `TokenCost`, in a sequence of the
            training length.
        looped: whether the hooks have loops.
    """

    flops: PowerLaw
    looped: bool


def encoding_cost(entry: CatalogueEntry, *, sizes: EncodingSizes = EncodingSizes()) -> EncodingCost:
    """FLOPs of an encoding of the catalogue per token, and their growth with width and length.

    It is built for the sizes of a model, `EncodingSizes()` when None.

    Raises:
        ValueError: a length below 4.

    >>> legendre, = catalogue("legendre")
    >>> cost = encoding_cost(legendre, sizes=EncodingSizes(64, 2, 8, 64))
    >>> cost.looped, abs(cost.flops.dim - 1) < 0.1, abs(cost.flops.length) < 0.1
    (True, True, True)
    """

    def measured(at: EncodingSizes) -> tuple[float, int]:
        cost = token_cost(entry.first_layer(at), entry.coordinates, at)
        return cost.flops, cost.loops

    flops, loops = power_laws(measured, sizes)
    return EncodingCost(flops, bool(loops.value))


def token_cost(encoding: Encoding, coordinates: int, sizes: EncodingSizes) -> TokenCost:
    """The cost of an encoding's hooks in a sequence of the training length."""
    program, arrays = hooks_program(encoding, coordinates, sizes)
    traced = jax.jit(program).trace(*arrays)
    loops = list(_loops(traced.jaxpr.jaxpr))
    flops, moved = _flops_and_bytes(traced)
    for body, times in loops:  # loops, of which the compiler's cost counts one round
        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
        per_round = _flops_and_bytes(jax.jit(core.jaxpr_as_fun(body)).trace(*shapes))
        flops, moved = (
            total + (times - 1) * each
            for total, each in zip((flops, moved), per_round, strict=True)
        )
    return TokenCost(flops / sizes.length, moved / sizes.length, len(loops))


def _flops_and_bytes(traced: jax.stages.Traced) -> tuple[float, float]:
    """FLOPs and bytes of a program that is traced; NaN from a backend that does not report them."""
    if not traced.jaxpr.out_avals:
        return 0.0, 0.0
    cost = traced.lower().compile().cost_analysis() or {}
    missing = float("nan")
    return float(cost.get("flops", missing)), float(cost.get("bytes accessed", missing))


def _loops(jaxpr: core.Jaxpr) -> Iterator[tuple[core.ClosedJaxpr, int]]:
    """Bodies of the outermost loops of a program, and how often they run."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["jaxpr"], equation.params["length"]
            continue
        for inner in inner_jaxprs(equation):
            yield from _loops(inner)

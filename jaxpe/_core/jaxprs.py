"""Dependence of outputs on inputs, from the program that JAX traces (jaxpr); public API only."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Var

# Primitives that run one jaxpr once, with the equation's inputs and outputs.
_CALLS = (
    "call", "checkpoint", "closed_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit",
    "remat2", "shard_map",
)  # fmt: skip


def inner_jaxprs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """Jaxprs that an equation runs: a called function, a loop's body, a conditional's branches."""
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(item, "jaxpr", item)  # unwraps a ClosedJaxpr
            if isinstance(jaxpr, Jaxpr):
                yield jaxpr


def used_arguments(f: Callable[..., Any], *args: Any) -> list[bool]:
    """Whether any output depends on each array of the arguments, in the order of the leaves.

    Dependence is dead-code elimination: x·0 depends on x. It is traced through calls, scans and
    conditionals; every output of another loop depends on all inputs of the loop.

    >>> double_first = lambda x, y: jax.lax.map(lambda pair: 2 * pair[0], (x, y))
    >>> used_arguments(double_first, *np.ones((2, 3)))
    [True, False]
    """
    jaxpr = jax.make_jaxpr(f)(*args).jaxpr
    return _input_mask(jaxpr, [True] * len(jaxpr.outvars))


def _input_mask(jaxpr: Jaxpr, wanted: Sequence[bool]) -> list[bool]:
    """Mask of the inputs that the wanted outputs depend on."""
    live = _variables(jaxpr.outvars, wanted)
    for equation in reversed(jaxpr.eqns):
        outputs = [v in live for v in equation.outvars]
        if any(outputs):
            live |= _variables(equation.invars, _operand_mask(equation, outputs))
    return [v in live for v in jaxpr.invars]


def _variables(atoms: Sequence[Any], chosen: Sequence[bool]) -> set[Var]:
    """Chosen variables; literal numbers are left out."""
    pairs = zip(atoms, chosen, strict=True)
    return {atom for atom, is_chosen in pairs if is_chosen and isinstance(atom, Var)}


def _operand_mask(equation: JaxprEqn, wanted: list[bool]) -> list[bool]:
    """Mask of the operands of an equation that its wanted outputs depend on."""
    kind, inner = equation.primitive.name, list(inner_jaxprs(equation))
    if kind in _CALLS and len(inner) == 1:
        return _input_mask(inner[0], wanted)
    if kind == "cond":  # the first operand chooses the branch
        return [True, *map(any, zip(*(_input_mask(j, wanted) for j in inner), strict=True))]
    if kind == "scan":
        return _scan_operand_mask(equation, wanted)
    return [True] * len(equation.invars)


def _scan_operand_mask(equation: JaxprEqn, wanted: list[bool]) -> list[bool]:
    """Mask of the constants, initial carries and rows that the wanted outputs depend on.

    A carry that is wanted at one step is wanted at every step, so the mask grows to a fixed point.
    """
    (body,) = inner_jaxprs(equation)
    # Rows have one more axis outside the body. Their number is a parameter of the equation, whose
    # name differs between versions of JAX.
    rows = _same_axes(equation.invars, body.invars).count(False)
    carries = _same_axes(equation.outvars, body.outvars).count(True)
    start = len(body.invars) - carries - rows
    while True:
        used = _input_mask(body, wanted)
        carried = [a or b for a, b in zip(wanted[:carries], used[start:], strict=False)]
        if carried == wanted[:carries]:
            return [*used[:start], *carried, *used[start + carries :]]
        wanted = carried + wanted[carries:]


def _same_axes(outside: Sequence[Any], inside: Sequence[Any]) -> list[bool]:
    pairs = zip(outside, inside, strict=True)
    return [len(a.aval.shape) == len(b.aval.shape) for a, b in pairs]

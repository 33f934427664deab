"""Programs as JAX traces them (jaxprs), read with what `jax.extend.core` makes public."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Var

# Equations that run one jaxpr once, whose inputs and outputs are theirs.
_CALLS = (
    "call", "checkpoint", "closed_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit",
    "remat2", "shard_map",
)  # fmt: skip


def inner_jaxprs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The jaxprs that an equation runs: of a call, the body of a loop, the branches of a choice."""
    for value in equation.params.values():
        for found in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(found, "jaxpr", found)  # one that is closed over its constants
            if isinstance(jaxpr, Jaxpr):
                yield jaxpr


def used_arguments(f: Callable[..., Any], *args: Any) -> list[bool]:
    """Arrays of the arguments that any output depends on, in the order of their leaves.

    By what is left of the computation without dead code: x·0 is computed from x. Calls, scans and
    conditionals are looked into; from any other loop everything comes that enters it.

    >>> used_arguments(lambda x, y: jax.lax.map(lambda pair: 2 * pair[0], (x, y)), *np.ones((2, 3)))
    [True, False]
    """
    jaxpr = jax.make_jaxpr(f)(*args).jaxpr
    return _used_inputs(jaxpr, [True] * len(jaxpr.outvars))


def _used_inputs(jaxpr: Jaxpr, wanted: Sequence[bool]) -> list[bool]:
    """Mask of the inputs that the wanted outputs are computed from."""
    live = _variables(jaxpr.outvars, wanted)
    for equation in reversed(jaxpr.eqns):
        outputs = [v in live for v in equation.outvars]
        if any(outputs):
            live |= _variables(equation.invars, _used_operands(equation, outputs))
    return [v in live for v in jaxpr.invars]


def _variables(atoms: Sequence[Any], chosen: Sequence[bool]) -> set[Var]:
    """The chosen of these, without literal numbers."""
    pairs = zip(atoms, chosen, strict=True)
    return {atom for atom, is_chosen in pairs if is_chosen and isinstance(atom, Var)}


def _used_operands(equation: JaxprEqn, wanted: list[bool]) -> list[bool]:
    """Mask of the operands of an equation that its wanted outputs are computed from."""
    kind, inner = equation.primitive.name, list(inner_jaxprs(equation))
    if kind in _CALLS and len(inner) == 1:
        return _used_inputs(inner[0], wanted)
    if kind == "cond":  # the first operand chooses the branch
        return [True, *map(any, zip(*(_used_inputs(j, wanted) for j in inner), strict=True))]
    if kind == "scan":
        return _used_by_scan(equation, wanted)
    return [True] * len(equation.invars)


def _used_by_scan(equation: JaxprEqn, wanted: list[bool]) -> list[bool]:
    """Mask of the constants, first carries and rows used; a wanted carry is wanted at each step."""
    (body,) = inner_jaxprs(equation)
    # Rows have an axis more outside of the body. The names of the parameters for their number
    # differ between versions of JAX.
    rows = _same_axes(equation.invars, body.invars).count(False)
    carries = _same_axes(equation.outvars, body.outvars).count(True)
    start = len(body.invars) - carries - rows
    while True:
        used = _used_inputs(body, wanted)
        kept = [a or b for a, b in zip(wanted[:carries], used[start:], strict=False)]
        if kept == wanted[:carries]:
            return [*used[:start], *kept, *used[start + carries :]]
        wanted = kept + wanted[carries:]


def _same_axes(outside: Sequence[Any], inside: Sequence[Any]) -> list[bool]:
    pairs = zip(outside, inside, strict=True)
    return [len(a.aval.shape) == len(b.aval.shape) for a, b in pairs]

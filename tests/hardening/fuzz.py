"""Hostile arrays for every public function of arrays: degenerate shapes, dtypes and scales.

`fuzz(seed, cases)` draws functions from the table of cases (and the one below), spoils their
arguments, and calls them eagerly, under `jit`, `vmap` and `grad`, as users do: without the type
checks and the strict promotion of the tests. An answer is a finite number, one that is documented
not to be, or an error of the library that says what to pass; all else is wrong.
"""

import contextlib
import functools
import sys
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import jaxpe
from jaxpe import encodings
from jaxpe.encodings.base import encoding_at
from tests.cases import CASES, NTK, SPECTRAL, N
from tests.unchecked import unchecked

SIZES = encodings.EncodingSizes(dim=8, num_heads=2, head_dim=4, length=32)
PACKAGE = str(Path(jaxpe.__file__).parent)
KINDS = (bool, np.int8, np.int32, np.uint64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
TRANSFORMS = ("eager", "jit", "jit", "vmap", "grad")
FACTORS = (0.0, 1e-30, 1e30)
REFUSALS = (ValueError, TypeError, OverflowError)


class Outcome(NamedTuple):
    """What came of one call.

    Attributes:
        case: the function's name.
        spoiled: what was done to its arguments.
        transform: how it was called.
        answer: "number", "documented" (not finite, as the function says), "refused" or "wrong".
        detail: the error, or the values.
    """

    case: str
    spoiled: str
    transform: str
    answer: str
    detail: str


class Target(NamedTuple):
    """A function of arrays, and what to know before spoiling them.

    Attributes:
        function: of the arrays.
        make: them, from a generator.
        slope: whether it has a derivative.
        together: whether shapes and kinds are changed in all of them alike, as a function of the
            caller, which is inside, asks for.
        fixed: whether shapes stay.
    """

    function: Callable[..., Any]
    make: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    slope: bool = True
    together: bool = False
    fixed: bool = False


def _tables(rng):
    return (rng.integers(0, 9, (3, N, 7), dtype=np.int32),)


def _of_encoding(entry):
    """All hooks of an encoding of the catalogue, in attention."""

    @functools.cache
    def made():
        encoding = entry.first_layer(SIZES)
        return encoding, encoding.init(jax.random.key(0))

    def call(x, q, k, v, i):
        encoding, params = made()
        bound = encoding_at(encoding, params, x, i)
        found = [encodings.attend(bound, params, q, k, v, q_positions=i, k_positions=i)]
        if encoding.defines("embed"):
            found.append(encoding.embed(params, x, i))
        if encoding.defines("vectors"):
            found.append(encoding.vectors(params, i))
        return found

    def make(rng):
        made()  # here, where nothing is traced
        shape = (N,) if entry.coordinates == 1 else (N, entry.coordinates)
        heads = (rng.standard_normal((N, 2, 4)) for _ in range(3))
        positions = rng.integers(0, SIZES.length, shape, dtype=np.int32)
        return rng.standard_normal((N, SIZES.dim)), *heads, positions

    return Target(call, make)


MORE = {
    "sum_of_counts": Target(
        lambda a, b: (lambda c: (c + c).merged())(
            jaxpe.PositionCounts(a, jnp.int32(9), jnp.int32(0))
            + jaxpe.PositionCounts(b, jnp.int32(9), jnp.int32(0))
        ),
        lambda rng: (*_tables(rng), *_tables(rng)),
    ),
    **{
        f"encoding_{entry.name}": _of_encoding(entry)
        for entry in encodings.catalogue()
        if not entry.variant_of
    },
}
# What the function of the caller inside a case makes of other shapes is the caller's.
FIXED = ("principal_eigenpairs", "ablate_heads", "lanczos_eigenvalues")
# Cases that call JAX with what is spoiled, and those of arrays that other functions made.
LEFT_OUT = ("random_vectors",)
# Functions of a function of the caller, which asks for matching shapes and kinds.
TOGETHER = set(NTK) - {
    *("gradient_flow", "fixed_point", "predict_mse", "max_learning_rate", "lanczos_eigenvalues")
}
SLOPED = {*SPECTRAL, *NTK} - {"operator_norm"}
TARGETS = {
    name: Target(
        case.function,
        case.make,
        slope=case.reduce is not None or name in SLOPED,
        together=name in TOGETHER,
        fixed=name in FIXED,
    )
    for name, case in CASES.items()
    if name not in LEFT_OUT and "sparse" not in name
} | MORE


def fuzz(seed: int, cases: int, *, names: Sequence[str] | None = None) -> list[Outcome]:
    """So many spoiled calls; what a seed draws for a function depends on its name alone.

    Args:
        seed: of what is drawn, and of the order of the functions.
        cases: how many calls.
        names: of `TARGETS`; all when None.
    """
    found: list[Outcome] = []
    draws = {name: zlib.crc32(f"{seed} {name}".encode()) for name in names or TARGETS}
    chosen = sorted(draws, key=draws.__getitem__)
    with as_users_call_it():
        for number in range(cases):
            name = chosen[number % len(chosen)]
            rng = np.random.default_rng((draws[name], number // len(chosen)))
            found.append(_outcome(name, rng))
            if found[-1].answer == "wrong" and LOUD:
                print(number, *found[-1], sep=" | ", flush=True)
            if number % KEPT == KEPT - 1:  # of hundreds of programs, none is called again
                jax.clear_caches()
    return found


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many calls had which answer."""
    return dict(Counter(outcome.answer for outcome in outcomes))


@contextlib.contextmanager
def as_users_call_it() -> Iterator[None]:
    """JAX's defaults, and no type checks; what NumPy and JAX warn of is no news here."""
    with (
        unchecked(),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        yield


def _outcome(name: str, rng: np.random.Generator) -> Outcome:
    target = TARGETS[name]
    args = target.make(rng)
    wide = bool(rng.random() < 0.7)
    args, spoiled = _spoiled(args, target, rng)
    transform = str(rng.choice(TRANSFORMS))
    floats = [k for k, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.floating)]
    if transform == "grad" and not (floats and target.slope):
        transform = "jit"
    label = f"{spoiled}, {'x64' if wide else 'x32'}"
    with jax.enable_x64(wide):
        try:
            result = _called(target.function, args, transform, floats)
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
        except REFUSALS as error:
            answer = "refused" if _is_ours(error) else "wrong"
            return Outcome(name, label, transform, answer, _said(error))
        except Exception as error:
            return Outcome(name, label, transform, "wrong", _said(error))
        answer, detail = _judged(name, leaves, args)
        if (answer, detail) == ("wrong", "NaN") and _refuses(target.function, args):
            answer = "documented"  # inside of `jit` wrong numbers are NaN
        return Outcome(name, label, transform, answer, detail)


def _refuses(function, args) -> bool:
    """Whether a call outside of `jit` is refused by the library."""
    try:
        function(*args)
    except REFUSALS as error:
        return _is_ours(error)
    return False


def _called(function, args, transform: str, floats: list[int]) -> Any:
    if transform == "eager":
        return function(*args)
    if transform == "jit":
        return jax.jit(function)(*args)
    if transform == "vmap":
        return jax.jit(jax.vmap(function))(*(np.stack([x, x]) for x in args))

    def value(*args):
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(function(*args))]
        leaves = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return sum((jnp.sum(leaf.astype(float)) for leaf in leaves), start=jnp.zeros(()))

    return jax.jit(jax.value_and_grad(value, argnums=tuple(floats)))(*args)


def _spoiled(args, target: Target, rng: np.random.Generator) -> tuple[tuple[np.ndarray, ...], str]:
    args, notes = list(args), []
    if not target.fixed and rng.random() < 0.6:
        notes.append(_reshape(args, target.together, rng))
    if rng.random() < 0.5:
        kind = KINDS[rng.integers(len(KINDS))]
        which = range(len(args)) if target.together or rng.random() < 0.5 else [_any(args, rng)]
        for k in which:
            if target.together or args[k].dtype.kind != "b" or rng.random() < 0.2:
                args[k] = _cast(args[k], kind)
        notes.append(f"{np.dtype(kind).name} in {list(which)}")
    if rng.random() < 0.7:
        notes.append(_revalue(args, rng))
    return tuple(args), ", ".join(filter(None, notes)) or "as it is"


def _any(args, rng: np.random.Generator) -> int:
    return int(rng.integers(len(args)))


def _cast(x: np.ndarray, kind) -> np.ndarray:
    return x.astype(kind)


def _reshape(args: list[np.ndarray], together: bool, rng: np.random.Generator) -> str:
    """Axes of one length, in all arrays or one, become 0, 1 or 2 long; or one axis more or less."""
    sizes = sorted({size for x in args for size in x.shape})
    if not together and rng.random() < 0.3:
        k = _any(args, rng)
        fewer = args[k].ndim > 0 and rng.random() < 0.5
        args[k] = args[k][0] if fewer else args[k][None]
        return f"{'an axis less' if fewer else 'an axis more'} in {k}"
    if not sizes:
        return ""
    size, other = int(rng.choice(sizes)), int(rng.integers(3))
    which = range(len(args)) if together or rng.random() < 0.7 else [_any(args, rng)]
    for k in which:
        for axis, own in enumerate(args[k].shape):
            if own == size:
                args[k] = np.take(args[k], np.arange(other) % size, axis=axis)
    return f"{size} -> {other} in {list(which)}"


def _revalue(args: list[np.ndarray], rng: np.random.Generator) -> str:
    """All of one array, or a place in it."""
    k = _any(args, rng)
    x = np.array(args[k])
    how = str(rng.choice(["factor", "factor", "constant", "rows", "nan", "inf"]))
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    if how == "factor" and floating:
        factor = float(rng.choice(FACTORS))
        args[k] = (x.astype(np.float64) * factor).astype(x.dtype)
        return f"{k} times {factor:g}"
    if how == "rows" and x.ndim and x.size:
        args[k] = np.broadcast_to(x[:1], x.shape).copy()
        return f"equal rows in {k}"
    if how in ("nan", "inf") and floating and x.size:
        x.flat[int(rng.integers(x.size))] = float(how)
        args[k] = x
        return f"{how} in {k}"
    args[k] = np.ones_like(x)
    return f"ones in {k}"


def _is_ours(error: BaseException) -> bool:
    """Whether the library itself raised it, not what it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].filename.startswith(PACKAGE)


def _said(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)
    inside = [f for f in where if f.filename.startswith(PACKAGE)]
    last = f" at {Path(inside[-1].filename).name}:{inside[-1].lineno}" if inside else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}{last}"


KEPT = 200
LOUD = __name__ == "__main__"
# Of larger numbers the squares, or sums of them, are no float32 or float64 any more, and what is
# made of them is inf or NaN, as `jaxpe.geometry` says.
LARGEST = {4: 1e15, 8: 1e140}


def _judged(name: str, leaves: list[np.ndarray], args) -> tuple[str, str]:
    floats = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    wild = any(map(_is_wild, args))
    nans = any(np.isnan(x.astype(np.float64)).any() for x in floats)
    infinities = any(np.isinf(x.astype(np.float64)).any() for x in floats)
    if not nans and not infinities:
        return "number", ""
    if wild or (not nans and _of(name, INFINITE)) or (nans and _of(name, UNDEFINED)):
        return "documented", "NaN" if nans else "inf"
    return "wrong", "NaN" if nans else "inf"


def _is_wild(x: np.ndarray) -> bool:
    """Whether there is NaN or inf in it, or what overflows when squared."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return False
    width = 8 if x.dtype == np.float64 and jax.config.jax_enable_x64 else 4
    return not (np.abs(x.astype(np.float64)) < LARGEST[width]).all()


def _of(name: str, names: Sequence[str]) -> bool:
    return any(name.split(".")[-1].startswith(other) for other in names)


# Functions that say they are infinite somewhere, or NaN.
INFINITE = ("stress", "kruskal_stress1", "min_separation", "spectrum", "contraction_ratio")
# NaN is documented where there is no triple of positions, or all are the same.
UNDEFINED = ("nearness", "position_intervals", "variance_shares")
# And between positions that no two documents reach.
UNDEFINED = (*UNDEFINED, "positional_information")
# And where a flow grows beyond floats.
UNDEFINED = (*UNDEFINED, "gradient_flow")
# And inside `jit` for rows that are no distributions.
UNDEFINED = (*UNDEFINED, "fisher_rao_distances", "hellinger")
INFINITE = (
    *INFINITE,
    "gradient_flow",
    "fixed_point",
    "max_learning_rate",
)


if __name__ == "__main__":
    outcomes = fuzz(*map(int, sys.argv[1:3]), names=sys.argv[3:] or None)
    for outcome in outcomes:
        if outcome.answer == "wrong":
            print(*outcome, sep=" | ")
    print(summary(outcomes))

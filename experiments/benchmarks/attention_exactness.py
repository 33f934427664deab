"""Values and gradients of attention in blocks against dense attention, for the whole catalogue.

    python -m experiments.benchmarks.attention_exactness [--only NAME ...] [--quick] [--save]

In float64 on a few tokens, in blocks of four: every encoding of the catalogue with each mask,
grouped heads, and fewer queries than keys. In float32 on more tokens, for some encodings, also
beside the error of dense attention in float32. Gradients are of queries, keys, values, a sink and
the parameters of the encoding, which are moved off their first values. An error is the largest
difference in an array, over the array's largest number or 1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.benchmarks import _contest as contest
from jaxpe.encodings import AttentionMask, CatalogueEntry, EncodingSizes, Rows, catalogue

BATCH, HEADS, GROUPS, WIDTH, DIM, WINDOW = 2, 4, 2, 8, 16, 3
SINGLE = ("rope", "alibi", "t5", "kerple_log", "fire", "fox")


class Case(NamedTuple):
    """One attention: heads of keys, tokens without a query, and what may be seen."""

    groups: int = HEADS
    skipped: int = 0
    causal: bool = False
    packed: bool = False
    padded: bool = False
    window: bool = False


CASES = {
    "none": Case(),
    "causal": Case(causal=True),
    "segments": Case(causal=True, packed=True),
    "padding": Case(padded=True),
    "window": Case(window=True),
    "cross": Case(skipped=4),
    "grouped": Case(GROUPS, causal=True),
}


def mask_of(case: Case, n: int) -> Any:
    """Numbers of single tokens, of which those of other cases exclude nothing."""
    order = np.arange(n) if case.causal else np.zeros(n, int)
    segments = np.arange(n) * 2 // n if case.packed else np.zeros(n, int)
    valid = np.ones((BATCH, n), bool)
    valid[1, n - n // 4 :] = not case.padded
    queries = slice(case.skipped, None)
    return AttentionMask(order[queries], order, segments[queries], segments, valid)


def near_keys(i: Any, j: Any) -> Any:
    return (j <= i) & (i - j < WINDOW)


class Problem:
    """Attention under an encoding, of n tokens."""

    def __init__(
        self, entry: CatalogueEntry, n: int, block_size: int, dtype: Any, *, num_heads: int = HEADS
    ):
        rng = np.random.default_rng(0)

        def normal(*shape: int) -> Any:
            return jnp.asarray(rng.standard_normal(shape), dtype)

        self.encoding = entry.first_layer(EncodingSizes(DIM, num_heads, WIDTH, length=32))
        self.many = entry.coordinates > 1
        self.positions = np.arange(n, dtype=np.int32)
        if self.many:
            self.positions = rng.integers(0, 5, (n, entry.coordinates)).astype(np.int32)
        params = self.encoding.init(jax.random.key(0))
        self.params = jax.tree.map(lambda x: x.astype(dtype) + 0.1 * normal(*x.shape), params)
        self.q, self.k, self.v, self.cotangent = (normal(BATCH, n, HEADS, WIDTH) for _ in range(4))
        self.x, self.sink = normal(BATCH, n, DIM), normal(HEADS)
        self.n, self.block_size = n, block_size
        self.programs: dict[Any, Callable] = {}

    def found(self, name: str, way: str) -> tuple[Any, Any]:
        """Output and gradients in a case; cases that differ in numbers alone share a program."""
        case = CASES[name]
        shapes = way, case.groups, case.skipped, case.window
        if shapes not in self.programs:
            run = partial(self.output, case=case, way=way)

            def loss(inputs: Any, mask: Any) -> Any:
                out = run(*inputs, mask=mask)
                return jnp.vdot(out, self.cotangent[:, case.skipped :]), out

            self.programs[shapes] = jax.jit(jax.value_and_grad(loss, has_aux=True))
        inputs = self.params, self.q, self.k, self.v, self.sink
        (_, out), gradients = self.programs[shapes](inputs, mask_of(case, self.n))
        return out, gradients

    def output(
        self, params: Any, q: Any, k: Any, v: Any, sink: Any, *, mask: Any, case: Case, way: str
    ) -> Any:
        """Attention, in which the last tokens have queries."""
        encoding, queries = self.encoding, slice(case.skipped, None)
        context = None
        if encoding.defines("context"):
            context, _ = encoding.context(params, self.x, self.positions, Rows())
        if case.window:
            index = np.arange(self.n)
            mask = near_keys(index[:, None], index) if self.many else near_keys
        return jaxpe.attend(
            encoding, params, q[:, queries], k[:, :, : case.groups], v[:, :, : case.groups],
            q_positions=self.positions[queries], k_positions=self.positions, mask=mask,
            sink=sink,
            q_context=jax.tree.map(lambda x: x[:, queries], context), k_context=context,
            implementation=way, block_size=self.block_size,  # pyrefly: ignore
        )  # fmt: skip


def double(entry: CatalogueEntry) -> dict[str, float]:
    """Errors of blocks in float64, by case; without grouped heads where the encoding has none."""
    problem, found = Problem(entry, 11, 4, jnp.float64), {}
    for name, case in CASES.items():
        try:
            wanted = problem.found(name, "dense")
        except ValueError:
            if case.groups == HEADS:
                raise
            continue  # each of its heads turns keys in its own way, so that none can be shared
        found[name] = contest.largest_error(problem.found(name, "blocks"), wanted)
    return found


def single(entry: CatalogueEntry) -> dict[str, dict[str, float]]:
    """Errors of blocks and of dense attention in float32, from dense attention in float64."""
    n, size, case = 300, 64, "causal"
    wanted = Problem(entry, n, size, jnp.float64).found(case, "dense")
    problem = Problem(entry, n, size, jnp.float32)
    found = {}
    for way in ("blocks", "dense"):
        pairs = zip(("value", "gradient"), problem.found(case, way), wanted, strict=True)
        found[way] = {name: contest.largest_error(*arrays) for name, *arrays in pairs}
    return found


def main() -> None:
    options = contest.options_of(__doc__, only=("",))
    jax.config.update("jax_enable_x64", True)
    names = [*filter(None, options.only)] or (["rope", "t5", "fox"] if options.quick else [])
    result: dict[str, Any] = {"machine": contest.machine(), "float64": {}, "float32": {}}
    for entry in catalogue(*names):
        if entry.first_layer(EncodingSizes()).whole_rows:
            continue
        result["float64"][entry.name] = double(entry)
        if entry.name in SINGLE:
            result["float32"][entry.name] = single(entry)
        print(entry.name, max(result["float64"][entry.name].values()), flush=True)
    result["without_groups"] = [
        name for name, row in result["float64"].items() if len(row) < len(CASES)
    ]
    result["largest"] = max(error for row in result["float64"].values() for error in row.values())
    contest.finish("attention_exactness", options, result)


if __name__ == "__main__":
    main()

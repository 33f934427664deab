"""What is done many times over: one program for each time, with progress, or one for all.

Called eagerly, each item runs a compiled program, with progress; inside of `jax.jit` or `jax.vmap`
the same is a loop of the program.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe._core.compiled import compiled
from jaxpe._core.progress import Progress
from jaxpe.geometry.counts import PositionCounts, count_tokens

State = TypeVar("State")


def map_items(
    f: Callable[..., PyTree[Array]],
    items: Array,
    *arrays: Any,
    progress: Progress,
    description: str,
) -> PyTree[Array]:
    """`f(item, *arrays)`, of compiled parts, of each item along the leading axis, stacked again."""
    if is_traced(*jax.tree.leaves((items, arrays))):
        return jax.lax.map(lambda item: f(item, *arrays), items)
    # Waited for, so that no two items take memory together, and progress is what is done.
    found = [
        jax.block_until_ready(f(item, *arrays))
        for item in progress.track(items, description, total=len(items))
    ]
    return jax.tree.map(lambda *values: jnp.stack(values), *found)


def fold_items(
    step: Callable[..., State],
    state: State,
    items: Array,
    *arrays: Any,
    progress: Progress,
    description: str,
) -> State:
    """What `state = step(state, item, *arrays)`, compiled, makes of all items in their order."""
    if is_traced(*jax.tree.leaves((state, items, arrays))):
        return jax.lax.scan(lambda state, item: (step(state, item, *arrays), None), state, items)[0]
    for item in progress.track(items, description, total=len(items)):
        state = jax.block_until_ready(step(state, item, *arrays))
    return state


@compiled(static=("vocab_size", "exclude", "folds"))
def counted(
    ids: ArrayLike,
    mask: ArrayLike,
    groups: ArrayLike | None,
    repeats: ArrayLike | None = None,
    **options: Any,
) -> PositionCounts:
    """`count_tokens` as one program, of ids that were looked at before."""
    return count_tokens(ids, mask=mask, groups=groups, repeats=repeats, **options)

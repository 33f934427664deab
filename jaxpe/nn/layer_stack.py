"""Stack of blocks: one scan over layers, whose encodings follow a pattern."""

from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jaxpe.encodings import Encoding, LayerPattern, identity
from jaxpe.nn.attention import (
    BoundEncoding,
    Context,
    Gates,
    LayerCache,
    chain_bound,
    encoding_parameters,
)
from jaxpe.nn.config import TransformerConfig


class Layers(NamedTuple):
    """Arguments that differ between blocks, stacked `[layers, ...]`; None if absent.

    Attributes:
        params: parameters of the blocks.
        gates: gates of heads.
        dropout_keys: random keys.
        source_keys_values: keys and values of an encoder's tokens.
        first: whether each block is the first; None if norms do not depend on that.
    """

    params: Any
    gates: Gates | None
    dropout_keys: Array | None
    source_keys_values: LayerCache | None
    first: Any


class Slot(NamedTuple):
    """Stacked encoding parameters and caches of the layers with one encoding of a pattern."""

    params: Any
    cache: LayerCache | None


class BlockTrace(NamedTuple):
    """Traced arrays of blocks, `[layers, ...]`; None unless traced.

    Attributes:
        entered: inputs of the blocks.
        logits, weights, heads: as in `Attended`.
        cross_logits, cross_weights: as in `Attended`, of cross-attention.
    """

    entered: Array | None
    logits: Array | None
    weights: Array | None
    heads: Array | None
    cross_logits: Array | None
    cross_weights: Array | None


def check_positions(
    graphdef: Any,
    pattern: LayerPattern,
    context: Context,
    x: Array,
    layers: Layers,
    slots: tuple[Slot, ...],
) -> None:
    """Run the hooks of all encodings abstractly, so that they can raise for concrete positions.

    In `run_blocks` positions are traced, so hooks cannot check them.
    """
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), (layers, slots))
    for encoding, slot in zip(pattern.encodings, shapes[1], strict=True):
        jax.eval_shape(partial(_block, graphdef, encoding, context), x, shapes[0], slot)


def run_blocks(
    graphdef: Any,
    config: TransformerConfig,
    pattern: LayerPattern,
    context: Context,
    x: Array,
    layers: Layers,
    slots: tuple[Slot, ...],
) -> tuple[Array, BlockTrace, tuple[Any, ...]]:
    """Output of the last block, the trace of all, and caches by slot of the pattern."""
    cross = None if context.cross is None else context.cross.shared.encoding
    # Blocks do not embed; without the hook, encodings that differ by it share one program.
    encoding = context.shared.encoding._replace(embed=Encoding().embed)
    return _run_blocks(
        x,
        layers,
        slots,
        _context_arrays(context),
        encoding=encoding,
        cross=cross,
        pattern=pattern.encodings,
        graphdef=graphdef,
        config=config,
        trace=context.trace,
    )


@partial(jax.jit, static_argnames=("encoding", "cross", "pattern", "graphdef", "config", "trace"))
def _run_blocks(
    x: Array,
    layers: Layers,
    slots: tuple[Slot, ...],
    context: Any,
    *,
    encoding: Encoding,
    cross: Encoding | None,
    pattern: tuple[Encoding, ...],
    graphdef: Any,
    config: TransformerConfig,
    trace: bool,
) -> tuple[Array, BlockTrace, tuple[Any, ...]]:
    """Scan over groups of layers, with one layer per encoding of the pattern; then the rest."""
    context = _restored_context(context, (encoding, cross), trace)
    period = len(pattern)
    steps = [partial(_block, graphdef, part, context) for part in pattern]
    if config.remat:
        steps = [jax.checkpoint(step) for step in steps]
    groups, rest = divmod(config.num_layers, period)
    count = groups * period
    grouped = jax.tree.map(lambda a: a[:count].reshape(groups, period, *a.shape[1:]), layers)
    last = jax.tree.map(lambda a: a[count:], layers)

    def run_group(x: Array, group: tuple[Any, Any], count: int = period) -> tuple[Array, Any]:
        group_layers, group_slots = group
        traces, caches = [], []
        for i, step in enumerate(steps[:count]):
            x, trace, cache = step(x, jax.tree.map(itemgetter(i), group_layers), group_slots[i])
            traces.append(jax.tree.map(lambda a: a[None], trace))
            caches.append(cache)
        return x, (_joined(traces), tuple(caches))

    grouped_slots = jax.tree.map(lambda a: a[:groups], slots)
    unroll = 1 if config.scan else groups
    x, (traces, caches) = lax.scan(run_group, x, (grouped, grouped_slots), groups, unroll=unroll)
    traces = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), traces)
    if not rest:
        return x, traces, caches
    last_slots = jax.tree.map(itemgetter(groups), slots[:rest])
    x, (last_traces, last_caches) = run_group(x, (last, last_slots), rest)
    traces = _joined([traces, last_traces])
    longer = [
        jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), *pair)
        for pair in zip(caches, last_caches, strict=False)
    ]
    return x, traces, (*longer, *caches[rest:])


def _context_arrays(context: Context) -> Any:
    """Context as arrays: encodings are replaced by their parameters, and `trace` is left out."""
    fields = context._asdict() | {
        "shared": context.shared.params,
        "slot": jnp.asarray(context.slot, jnp.int32),
        "trace": None,
        "cross": None if context.cross is None else _context_arrays(context.cross),
    }
    return Context(**fields)


def _restored_context(context: Any, encodings: tuple[Any, ...], trace: bool) -> Context:
    """Inverse of `_context_arrays`: context with the encodings of both attentions."""
    encoding, *rest = encodings
    cross = context.cross
    cross = None if cross is None else _restored_context(cross, tuple(rest), trace)
    bound = BoundEncoding(encoding, context.shared)
    return context._replace(shared=bound, trace=trace, cross=cross)


def _block(
    graphdef: Any, encoding: Encoding, context: Context, x: Array, layer: Layers, slot: Slot
) -> tuple[Array, BlockTrace, LayerCache | None]:
    """Output, trace and cache of one block, with the encoding of its slot."""
    block = nnx.merge(graphdef, layer.params)
    shared = chain_bound(context.shared, BoundEncoding(encoding, slot.params))
    attended = block(
        x,
        context._replace(shared=shared),
        cache=slot.cache,
        source_keys_values=layer.source_keys_values,
        gates=layer.gates,
        dropout_key=layer.dropout_keys,
        **({} if layer.first is None else {"first": layer.first}),
    )
    cross = attended.cross
    trace = BlockTrace(
        x if context.trace else None,
        attended.logits,
        attended.weights,
        attended.heads,
        None if cross is None else cross.logits,
        None if cross is None else cross.weights,
    )
    return attended.output, trace, attended.cache


def _joined(traces: list[Any]) -> Any:
    """Traces along the axis of layers."""
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *traces)


def split_by_period(
    encoding: Encoding | LayerPattern, num_layers: int
) -> tuple[Encoding, LayerPattern]:
    """Encoding that all blocks share, and the shortest pattern of encodings by layer."""
    alike = LayerPattern((identity(),))
    if isinstance(encoding, Encoding):
        return encoding, alike
    by_layer = [encoding.at(layer) for layer in range(num_layers)]
    period = 1
    while any(part != by_layer[i % period] for i, part in enumerate(by_layer)):
        period += 1
    if period == 1:
        return by_layer[0], alike
    return identity(), LayerPattern(tuple(by_layer[:period]))


def pattern_parameters(
    config: TransformerConfig, pattern: LayerPattern, *, rngs: nnx.Rngs
) -> nnx.Param | None:
    """Parameters by slot of a pattern, stacked over the layers of the slot; None without one."""
    period = len(pattern.encodings)
    if period == 1:
        return None

    def slot_parameters(slot: int, encoding: Encoding) -> Any:
        keys = jax.random.split(rngs.params(), len(range(slot, config.num_layers, period)))
        make = lambda key: encoding_parameters(config, encoding, rngs=nnx.Rngs(key))  # noqa: E731
        return jax.vmap(lambda key: make(key).get_value())(keys)

    return nnx.Param(tuple(slot_parameters(i, part) for i, part in enumerate(pattern.encodings)))

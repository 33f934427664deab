"""Attention statistics: sources of logits and targets of attention, in one pass over documents."""

import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.attention_result import (
    AttentionSinks,
    AttentionStage,
    OffsetBaseline,
    RotaryBands,
)
from jaxpe.analysis.inspect.averages import Means, document_mean, jackknife
from jaxpe.analysis.inspect.documents import Sample, row_batches, shuffled_rows
from jaxpe.analysis.inspect.flax_model import Trace, inspected_model, sample_batch
from jaxpe.analysis.inspect.offset_baseline import baseline_share, even_spread
from jaxpe.analysis.inspect.rotary_bands import SHORT, rotary_bands
from jaxpe.analysis.inspect.sinks import SinkSums, attention_sinks, sink_sums
from jaxpe.analysis.inspect.variance import (
    Halves,
    MeanAndSpread,
    Spread,
    logit_spread,
    position_share,
    variance_decomposition,
)
from jaxpe.data import TokenCorpus
from jaxpe.plans import RopeAnalysis

_GROUPS = 8  # groups of documents; the jackknife leaves out one at a time
_DUMMIES = 4  # dummy documents, each of one token


class _Batch(NamedTuple):
    """Statistics of one batch of documents."""

    logits: Array  # sum over documents, [layers, heads, n, n]
    spread: Spread  # [layers, heads]
    weights: Array  # sum over documents, [layers, heads, n, n] of text positions
    weight_spread: Spread  # around equal weights, [layers, heads]
    sinks: SinkSums
    documents: dict[str, Array]  # statistics of each document, [layers, documents, heads]


def inspect_attention(
    sample: Sample,
    *,
    corpus: TokenCorpus,
    special_ids: Sequence[int] = (),
    rope: RopeAnalysis | None = None,
    context: int = 0,
    progress: Progress = SILENT,
) -> AttentionStage:
    """Position share of the logits, attention by offset, sinks, and attention without content.

    With a context of at least 32 positions, also the rotary frequencies that heads use.

    Args:
        sample: the model, and rows of tokens without padding (`draw_sample`).
        corpus: documents whose token frequencies give the tokens of dummy documents.
        special_ids: ids of special tokens.
        rope: rotary configuration of the model.
        context: positions for which the model was configured; 0 if unknown.
        progress: receiver of progress.

    >>> inspect_attention(sample, corpus=corpus).sink.estimate  # doctest: +SKIP
    0.62
    """
    model = inspected_model(sample.module)
    causal, rng = model.causal, np.random.default_rng([sample.seed, 6])
    method = partial(_statistics, text=sample.text, special=tuple(special_ids), causal=causal)
    ids = _dummies(sample, corpus, rng)
    dummy = model.traced(lambda trace, ids: trace.weights)(ids)
    run, size, documents = model.traced(method), _batch_size(sample), len(sample.rows)

    def statistics(rows: np.ndarray, name: str) -> list[_Batch]:
        batches = progress.track(row_batches(rows, size), name, total=-(-len(rows) // size))
        return [jax.device_get(run(batch, dummy)) for batch in batches]

    batches = statistics(sample.rows, "attention")
    rows = sample.rows[: documents // (2 * size) * size]
    shuffled = statistics(shuffled_rows(rows, sample.text, rng), "random order")
    groups, mapped = _groups(batches, size), _groups(batches, size, of_weights=True)
    variance = variance_decomposition(
        _halves(groups), _halves(_groups(shuffled, size)), causal=causal
    )
    share, overall = _jackknife(groups, partial(position_share, causal=causal))
    baseline = partial(baseline_share, causal=causal)
    values = _document_values(batches)
    overall_mean = {
        name: document_mean(value.mean(axis=(0, 2)), within=(0.0, 1.0))
        for name, value in values.items()
    }
    return AttentionStage(
        variance=variance,
        share=share,
        overall=overall,
        offsets=_offset_weights(batches, documents),
        first=values["first"].mean(axis=1),
        first_by_chance=_equal_weight(sample),
        sink=overall_mean.pop("first"),
        layers=None if (layers := model.sizes.attention_layers) is None else np.asarray(layers),
        sinks=_sinks(batches, sample, corpus.tokens),
        baseline=OffsetBaseline(*_jackknife(mapped, baseline)),
        bands=_bands(sample, size, rope, context),
        **overall_mean,
    )


def _statistics(
    trace: Trace, ids: Array, dummy: Array, *, text: slice, special: tuple[int, ...], causal: bool
) -> _Batch:
    """Statistics of a batch; `dummy` are the weights of dummy documents."""
    logits, weights = trace.logits, trace.weights  # [layers, documents, heads, n, n]
    logits = logits[..., text, text]

    def query_mean(x: Array) -> Array:
        return jnp.mean(x[..., text.start + 1 : text.stop], axis=-1)

    def overlap(other: Array) -> Array:
        return query_mean(jnp.sum(jnp.minimum(weights, other), axis=-1))

    is_special = jnp.isin(ids, jnp.asarray(special, ids.dtype))[None, :, None, None]
    spread = jax.vmap(partial(logit_spread, causal=causal))(logits)
    sinks = sink_sums(trace, causal=causal)
    overlaps = [overlap(dummy[:, k : k + 1]) for k in range(dummy.shape[1])]
    documents = {
        "first": query_mean(weights[..., 0]),
        "special": query_mean(jnp.sum(jnp.where(is_special, weights, 0), axis=-1)),
        "dummy": jnp.mean(jnp.stack(overlaps), axis=0),
        "other": overlap(jnp.roll(weights, 1, axis=1)),
    }
    return _Batch(
        logits=jnp.sum(logits, axis=1),
        spread=spread._replace(count=spread.count[0]),
        weights=jnp.sum(weights[..., text, text], axis=1),
        weight_spread=even_spread(weights[..., text, text], causal=causal),
        sinks=sinks._replace(weight=query_mean(sinks.weight)),
        documents=documents,
    )


def _batch_size(sample: Sample) -> int:
    """Documents in a batch: at least two, for comparisons, and few enough for groups of batches."""
    rows = len(sample.rows)
    most = max(2, min(sample_batch(sample), rows // _GROUPS))
    return max(size for size in range(2, most + 1) if rows % size == 0)


def _dummies(sample: Sample, corpus: TokenCorpus, rng: np.random.Generator) -> np.ndarray:
    """Rows of one repeated token between the special tokens of a row."""
    text = corpus.ids[corpus.mask & ~np.isin(corpus.ids, corpus.exclude)]
    tokens = rng.permutation(np.unique(rng.choice(text, 4 * _DUMMIES)))[:_DUMMIES]
    rows = np.repeat(sample.rows[:1], len(tokens), axis=0)
    rows[:, sample.text] = tokens[:, None]
    return rows


def _document_values(batches: list[_Batch]) -> dict[str, np.ndarray]:
    """Statistics of all documents, `[layers, documents, heads]`."""
    return {
        name: np.concatenate([batch.documents[name] for batch in batches], axis=1, dtype=float)
        for name in batches[0].documents
    }


def _sinks(batches: list[_Batch], sample: Sample, tokens: list[str]) -> AttentionSinks:
    """Sinks in all documents."""
    parts = zip(*(batch.sinks for batch in batches), strict=True)
    values = (np.concatenate(one, axis=1, dtype=float) for one in parts)
    return attention_sinks(SinkSums(*values), sample.rows, tokens)


def _bands(
    sample: Sample, size: int, rope: RopeAnalysis | None, context: int
) -> RotaryBands | None:
    """Rotary frequencies that heads use in the first documents; None without one rotation."""
    found = inspected_model(sample.module).rotations(rope) if context >= SHORT else None
    if found is None:
        return None
    rotation, run = found
    rows = sample.rows[: max(1, _GROUPS // size) * size]
    parts = zip(*(run(batch) for batch in row_batches(rows, size)), strict=True)
    queries, keys = (np.concatenate(one, axis=1) for one in parts)
    return rotary_bands(queries, keys, rotation, context=context)


def _groups(batches: list[_Batch], size: int, *, of_weights: bool = False) -> list[MeanAndSpread]:
    """Mean logits, or weights, and spread of groups of batches, an even number of them."""
    count = max(2, min(_GROUPS, len(batches)) // 2 * 2)
    groups = []
    for group in (batches[k::count] for k in range(count)):
        means = (x.weights if of_weights else x.logits for x in group)
        total = functools.reduce(np.add, (np.asarray(x, np.float64) for x in means))
        spreads = (x.weight_spread if of_weights else x.spread for x in group)
        spread = functools.reduce(operator.add, spreads)
        groups.append(MeanAndSpread(total / (size * len(group)), spread))
    return groups


def _halves(groups: list[MeanAndSpread]) -> Halves:
    return _merged_group(groups[::2]), _merged_group(groups[1::2])


def _merged_group(groups: list[MeanAndSpread]) -> MeanAndSpread:
    """One group of all documents."""
    counts = [float(group.spread.count) for group in groups]
    mean = np.average([group.mean for group in groups], axis=0, weights=counts)
    return MeanAndSpread(mean, functools.reduce(operator.add, (group.spread for group in groups)))


def _jackknife(
    groups: list[MeanAndSpread], share: Callable[[Halves], np.ndarray]
) -> tuple[Means, Interval]:
    """Means over heads of a share, by layer and overall, with intervals by leaving groups out."""
    by_layer, count = share(_halves(groups)).mean(axis=1), len(groups)
    if count < 4:
        unknown = np.full(by_layer.shape, np.nan)
        return Means(by_layer, unknown, unknown), Interval(float(by_layer.mean()), np.nan, np.nan)
    left_out = []
    for out in range(count):
        halves = ([g for k, g in enumerate(groups) if k != out and k % 2 == h] for h in (0, 1))
        one, other = map(_merged_group, halves)
        left_out.append(share((one, other)).mean(axis=1))
    overall = jackknife(by_layer.mean(), np.mean(left_out, axis=1))
    return jackknife(by_layer, np.asarray(left_out)), Interval(*map(float, overall))


def _offset_weights(batches: list[_Batch], documents: int) -> np.ndarray:
    """Mean weight by offset; 0 for keys after the query of a decoder."""
    weights = (np.asarray(batch.weights, np.float64) for batch in batches)
    mean = functools.reduce(np.add, weights) / documents
    n = mean.shape[-1]
    offsets = [np.diagonal(mean, k, -2, -1).mean(axis=-1) for k in range(1 - n, n)]
    return np.stack(offsets, axis=-1)


def _equal_weight(sample: Sample) -> float:
    """Weight on the first token if all keys of a query had equal weights."""
    if not inspected_model(sample.module).causal:
        return 1 / sample.rows.shape[1]
    return float(np.mean(1 / (np.arange(sample.text.start + 1, sample.text.stop) + 1)))

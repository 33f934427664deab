"""Sources of attention logits and targets of attention, in one pass over documents."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe import spectral
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.attention.documents import Sample
from jaxpe.analysis.attention.logit_sums import Spread, batch_size, cut, spread_of
from jaxpe.analysis.attention.variance import (
    Halves,
    MeanAndSpread,
    position_share,
    variance_of,
)
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.averages import jackknife, mean_of
from jaxpe.analysis.inspect.result import AttentionFound, Means
from jaxpe.data import TokenCorpus
from jaxpe.nn import functionalize, trunk

_GROUPS = 8  # of documents, of which a jackknife leaves one out
_DUMMIES = 4  # tokens that a dummy document repeats


class _Looks(NamedTuple):
    """Sums over one batch of documents, and numbers of each."""

    logits: Array  # summed, [layers, heads, n, n]
    spread: Spread  # [layers, heads]
    weights: Array  # summed over documents, [layers, heads, n, n] of places of text
    entropy: Array  # [layers, documents, heads], as are the others
    evenness: Array
    distance: Array
    first: Array
    special: Array
    dummy: Array
    other: Array


def inspect_attention(
    sample: Sample,
    *,
    corpus: TokenCorpus,
    special_ids: Sequence[int] = (),
    progress: Progress = SILENT,
) -> AttentionFound:
    """Share of the logits that is positional, attention by offset, sinks, and the positional prior.

    Args:
        sample: the model, and rows of tokens without padding (`draw_sample`).
        corpus: documents by whose frequencies the tokens of dummy documents are drawn.
        special_ids: ids of special tokens.
        progress: receiver of progress.

    >>> inspect_attention(sample, corpus=corpus).sink.estimate  # doctest: +SKIP
    0.62
    """
    causal, rng = sample.transformer.causal, np.random.default_rng([sample.seed, 6])
    apply, params = functionalize(sample.module, method=_look)
    run = jax.jit(functools.partial(apply, text=sample.text, special=tuple(special_ids)))
    size = _batch(sample)
    ids, names = _dummies(sample, corpus, rng)
    dummy = jax.jit(functionalize(sample.module, method=_weights)[0])(params, ids)
    total = -(-len(sample.rows) // size)
    batches = progress.track(cut(sample.rows, size), "attention", total=total)
    looks = [jax.device_get(run(params, rows, dummy)) for rows in batches]
    moved = sample.rows[: len(sample.rows) // (2 * size) * size].copy()
    moved[:, sample.text] = rng.permuted(moved[:, sample.text], axis=1)
    batches = progress.track(cut(moved, size), "random order", total=len(moved) // size)
    shuffled = [jax.device_get(run(params, rows, dummy)) for rows in batches]
    groups = _groups(looks, size)
    halves = _halves(groups)
    variance = variance_of(halves, _halves(_groups(shuffled, size)), causal=causal)
    share, overall = _jackknife(groups, variance.position, causal=causal)
    return AttentionFound(
        variance=variance,
        share=share,
        overall=overall,
        shuffled=float(variance.shuffled.mean()),
        offsets=_offsets(looks, len(sample.rows), causal=causal),
        first_by_chance=_first_by_chance(sample),
        sink=_overall(looks, "first"),
        special_overall=_overall(looks, "special"),
        dummy_overall=_overall(looks, "dummy"),
        other_overall=_overall(looks, "other"),
        dummies=names,
        **{name: _by_head(looks, name) for name in _BY_HEAD},
    )


_BY_HEAD = ("entropy", "evenness", "distance", "first", "special", "dummy", "other")


def _weights(model: Any, ids: Array) -> Array:
    weights = trunk(model)(ids, trace=True).weights
    assert weights is not None  # it was traced
    return weights


def _look(model: Any, ids: Array, dummy: Array, *, text: slice, special: tuple[int, ...]) -> _Looks:
    """Logits and weights `[layers, documents, heads, n, n]` of a batch, summed or by document.

    `dummy` are the weights of dummy documents; what is shared with each is averaged.
    """
    below = trunk(model)
    found = below(ids, trace=True)
    logits, weights = found.logits, found.weights
    assert logits is not None  # they were traced
    assert weights is not None
    logits = logits[..., text, text]
    queries = slice(text.start + 1, text.stop)

    def averaged(x: Array) -> Array:
        return jnp.mean(x[..., queries], axis=-1)

    def shared(other: Array) -> Array:
        return averaged(jnp.sum(jnp.minimum(weights, other), axis=-1))

    dummies = [shared(dummy[:, k : k + 1]) for k in range(dummy.shape[1])]
    n = ids.shape[-1]
    seen = jnp.tri(n, dtype=bool) if below.causal else jnp.ones((n, n), bool)
    profile = spectral.attention_profile(weights, mask=seen[None, None, None])
    is_special = jnp.isin(ids, jnp.asarray(special, ids.dtype))[None, :, None, None]
    spread = jax.vmap(functools.partial(spread_of, causal=below.causal))(logits)
    return _Looks(
        logits=jnp.sum(logits, axis=1),
        spread=spread._replace(count=spread.count[0]),
        weights=jnp.sum(weights[..., text, text], axis=1),
        entropy=averaged(profile.entropy),
        evenness=averaged(profile.evenness),
        distance=averaged(profile.distance),
        first=averaged(profile.first),
        special=averaged(jnp.sum(jnp.where(is_special, weights, 0), axis=-1)),
        dummy=jnp.mean(jnp.stack(dummies), axis=0),
        other=shared(jnp.roll(weights, 1, axis=1)),
    )


def _batch(sample: Sample) -> int:
    """Documents at once: two at least, to be compared, and few enough for groups of batches."""
    rows, size = len(sample.rows), max(2, batch_size(sample))
    most = max(2, rows // _GROUPS)
    return max(d for d in range(2, max(size, 2) + 1) if rows % d == 0 and d <= most)


def _dummies(
    sample: Sample, corpus: TokenCorpus, rng: np.random.Generator
) -> tuple[np.ndarray, list[str]]:
    """Rows of one repeated token between the special tokens of a row, and the tokens."""
    text = corpus.ids[corpus.mask & ~np.isin(corpus.ids, corpus.exclude)]
    drawn = rng.permutation(np.unique(rng.choice(text, 4 * _DUMMIES)))[:_DUMMIES]
    rows = np.repeat(sample.rows[:1], len(drawn), axis=0)
    rows[:, sample.text] = drawn[:, None]
    return rows, [corpus.tokens[token] for token in drawn]


def _groups(looks: list[_Looks], size: int) -> list[MeanAndSpread]:
    """Mean logits and spread of groups of batches, an even number of them."""
    count = max(2, min(_GROUPS, len(looks)) // 2 * 2)
    found = []
    for group in range(count):
        own = looks[group::count]
        mean = functools.reduce(np.add, (np.asarray(x.logits, np.float64) for x in own))
        spread = functools.reduce(lambda a, b: a + b, (x.spread for x in own))
        found.append(MeanAndSpread(mean / (size * len(own)), spread))
    return found


def _halves(groups: list[MeanAndSpread]) -> Halves:
    one, other = (_merged(groups[half::2]) for half in (0, 1))
    return one, other


def _merged(groups: list[MeanAndSpread]) -> MeanAndSpread:
    """Groups count by the documents in them."""
    counts = np.array([float(group.spread.count) for group in groups])
    mean = sum(
        count * group.mean for count, group in zip(counts / counts.sum(), groups, strict=True)
    )
    spread = functools.reduce(lambda a, b: a + b, (group.spread for group in groups))
    return MeanAndSpread(np.asarray(mean), spread)


def _jackknife(
    groups: list[MeanAndSpread], share: np.ndarray, *, causal: bool
) -> tuple[Means, Interval]:
    """Intervals of the share of position, by layer and overall, by leaving each group out."""
    by_layer, count = share.mean(axis=1), len(groups)
    if count < 4:
        nothing = np.full(by_layer.shape, np.nan)
        return Means(by_layer, nothing, nothing), Interval(float(share.mean()), np.nan, np.nan)
    left = []
    for out in range(count):
        kept = ([g for k, g in enumerate(groups) if k != out and k % 2 == h] for h in (0, 1))
        one, other = map(_merged, kept)
        left.append(position_share((one, other), causal=causal).mean(axis=1))
    whole = np.asarray(left)
    overall = jackknife(by_layer.mean(), whole.mean(axis=1))
    return jackknife(by_layer, whole), Interval(*map(float, overall))


def _offsets(looks: list[_Looks], documents: int, *, causal: bool) -> np.ndarray:
    """Mean weight by offset; 0 where a decoder does not look."""
    mean = functools.reduce(np.add, (np.asarray(x.weights, np.float64) for x in looks)) / documents
    n = mean.shape[-1]
    rows = [np.diagonal(mean, k, -2, -1).mean(axis=-1) for k in range(1 - n, n)]
    return np.stack(rows, axis=-1)


def _stacked(looks: list[_Looks], name: str) -> np.ndarray:
    """A number of each document, `[documents, layers, heads]`."""
    parts = [np.asarray(getattr(one, name), np.float64) for one in looks]
    return np.concatenate(parts, axis=1).swapaxes(0, 1)


def _by_head(looks: list[_Looks], name: str) -> np.ndarray:
    return _stacked(looks, name).mean(axis=0)


def _overall(looks: list[_Looks], name: str) -> Interval:
    return mean_of(_stacked(looks, name).mean(axis=(1, 2)), within=(0.0, 1.0))


def _first_by_chance(sample: Sample) -> float:
    """Weight on the first token where all keys that a query may attend to have the same."""
    queries = np.arange(sample.text.start + 1, sample.text.stop)
    if not sample.transformer.causal:
        return 1 / sample.rows.shape[1]
    return float(np.mean(1 / (queries + 1)))

"""Ablation of attention heads: drop of a score on documents without each head."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.progress import SILENT, Progress, duration
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.attention_result import HeadStage, Score
from jaxpe.analysis.inspect.documents import Sample
from jaxpe.nn import functionalize
from jaxpe.nn.functionalize import parameter_count
from jaxpe.nn.heads import pooled, trunk
from jaxpe.spectral import ablate_heads, deposit
from jaxpe.training.losses import next_in_document
from jaxpe.training.tasks import logits_at

_RESAMPLES = 400
_FLIPS = 999
_LEAST = 4  # documents
_LEAST_TOKENS = 16  # tokens of a document
_CHUNK = 16  # documents ablated together
_ACTIVATIONS = 2**22  # activations of a layer in memory at once
# Largest number of floating-point operations of an ablation, and the approximate rate a second.
_BUDGET = {"cpu": (1e13, 6e10)}
_ELSEWHERE = (2e15, 2e13)


def head_drops(sample: Sample, *, progress: Progress = SILENT) -> HeadStage:
    """Drop of the score without each head, whose output is replaced by zeros.

    Args:
        sample: a model of `jaxpe.nn`, and documents with the targets of its score.
        progress: receiver of progress.

    >>> head_drops(sample).head  # doctest: +SKIP
    (0, 2)
    """
    config = trunk(sample.module).config
    chunks = _affordable(sample, progress)
    apply, params = functionalize(sample.module, method=_SCORES[sample.score])
    if sample.score == "embedding":
        embed = jax.jit(functionalize(sample.module, method=_mean_hidden)[0])
        chunks = [chunk | {"reference": embed(params, chunk)} for chunk in chunks]

    @functools.partial(jax.jit, static_argnames="at_once")
    def ablated(params: Any, documents: Any, *, at_once: int) -> Any:
        def score(gates: Array) -> Array:
            return apply(params, documents, gates=gates)

        sizes = {"layers": config.num_layers, "heads": config.num_heads}
        return ablate_heads(score, **sizes, batch_size=at_once)

    widest, parts = max(config.hidden_width, config.dim), []
    for chunk in progress.track(chunks, "ablating heads"):
        at_once = max(1, _ACTIVATIONS // (chunk["ids"].size * widest))
        parts.append(ablated(params, chunk, at_once=at_once))
    score = np.concatenate([np.asarray(x.score, np.float64) for x in parts])
    drop = np.concatenate([np.asarray(x.drop, np.float64) for x in parts], axis=-1)
    result = _drops(sample.score, score, drop, np.random.default_rng([sample.seed, 2]))
    if sample.score != "accuracy":
        return result
    low, high = _paired_shares(drop)
    return result._replace(low=low, high=high)


def _affordable(sample: Sample, progress: Progress) -> list[Any]:
    """Chunks of documents that the time allows."""
    config = trunk(sample.module).config
    budget, speed = _BUDGET.get(jax.default_backend(), _ELSEWHERE)
    used = parameter_count(sample.module)
    if sample.score in ("accuracy", "embedding"):
        used -= config.vocab_size * config.dim
    heads = config.num_layers * config.num_heads
    a_token = 2.0 * used * (1 + heads)
    chunks = _chunks(sample.documents, tokens=int(budget / a_token))
    seconds = a_token * sum(chunk["ids"].size for chunk in chunks) / speed
    if seconds > 20:
        count = sum(len(chunk["ids"]) for chunk in chunks)
        progress.say(f"ablating {heads} heads on {count} documents may take {duration(seconds)}")
    return chunks


def _chunks(documents: dict[str, np.ndarray], *, tokens: int) -> list[dict[str, np.ndarray]]:
    """Documents in chunks of similar length, at least four, up to a number of tokens."""
    most = min(documents["ids"].shape[1], max(_LEAST_TOKENS, tokens // (2 * _LEAST)))
    lengths = np.minimum(documents["mask"].sum(axis=1), most)

    def cut(count: int) -> list[tuple[np.ndarray, int]]:
        """Rows and their padded length."""
        order = np.argsort(lengths[:count], kind="stable")
        parts = [order[start : start + _CHUNK] for start in range(0, count, _CHUNK)]
        return [(rows, min(most, _padded_length(int(lengths[rows].max())))) for rows in parts]

    count = len(lengths)
    while count > _LEAST and sum(len(rows) * width for rows, width in cut(count)) > tokens:
        count -= 1
    return [_document_rows(documents, *part) for part in cut(count)]


def _padded_length(length: int) -> int:
    """The next of the lengths 8, 16, 32, ...: few shapes compile few programs."""
    return max(8, 1 << (length - 1).bit_length())


def _document_rows(
    documents: dict[str, np.ndarray], rows: np.ndarray, width: int
) -> dict[str, np.ndarray]:
    chunk = {name: array[rows] for name, array in documents.items()}
    chunk |= {name: chunk[name][:, :width] for name in ("ids", "mask")}
    if "places" in chunk:  # masked tokens beyond the cut do not count
        chunk["guessed"] = chunk["guessed"] & (chunk["places"] < width)
        chunk["places"] = np.minimum(chunk["places"], width - 1)
    return chunk


def _drops(
    measure: Score, score: np.ndarray, drop: np.ndarray, rng: np.random.Generator
) -> HeadStage:
    """Means over documents `[layers, heads, documents]`, intervals from resampled ones, a test."""
    layers, heads, count = drop.shape
    # A cosine with the original output can only fall: it is not tested.
    tested = measure != "embedding"
    weights = rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES) / count
    resampled = np.einsum("lhd,rd->rlh", drop, weights)
    dealt = np.broadcast_to(
        drop.reshape(1, layers * heads, count), (_RESAMPLES // 4, layers * heads, count)
    )
    shuffled = rng.permuted(dealt, axis=1).mean(axis=-1)
    drops = [drop.mean(axis=-1)[None], resampled, shuffled.reshape(-1, layers, heads)]
    largest = np.asarray(deposit(np.concatenate(drops)).largest_share)
    share, resampled_share, by_chance = np.split(largest, [1, 1 + _RESAMPLES])
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    least, most = np.quantile(resampled_share, (0.025, 0.975))
    return HeadStage(
        measure=measure,
        documents=count,
        score=float(score.mean()),
        drop=drop.mean(axis=-1),
        low=low,
        high=high,
        p_value=_p_values(drop, rng) if tested else np.full((layers, heads), np.nan),
        largest_share=Interval(float(share[0]), float(least), float(most)),
        share_by_chance=float(np.quantile(by_chance, 0.95)),
    )


def _paired_shares(drop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the adjusted Wald interval of paired proportions, from drops of −1, 0 and 1.

    Agresti and Min (2005) add half a document to each of the four cells. Resamples of documents
    would give an interval without width if a head changes no answer.
    """
    total, count = drop.sum(axis=-1), drop.shape[-1] + 2
    half = 1.96 * np.sqrt((drop**2).sum(axis=-1) + 1 - total**2 / count) / count
    return total / count - half, total / count + half


def _p_values(drop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """P-value of each head, corrected for the choice among all heads, `[layers, heads]`.

    Each head is compared with the largest of all (Westfall & Young 1993, single step). So any head
    is significant by chance in about 5 % of corpora, for any number of heads. The p-value is the
    larger of two tests. Flipped signs are exact for drops symmetric about 0. Resamples allow for
    rare documents with large drops or gains.
    """
    *heads, count = drop.shape
    drop = drop.reshape(-1, count)
    tests = _sign_flips(drop, rng), _bootstrap_t(drop, rng)
    return np.max([_exceedance(*test) for test in tests], axis=0).reshape(heads)


def _exceedance(statistic: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Share of the largest statistics by chance that reach each head's statistic."""
    below = np.searchsorted(np.sort(largest), statistic - 1e-9)
    return (1 + len(largest) - below) / (1 + len(largest))


def _sign_flips(drop: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Σ drop / √Σ drop² of each head, and the largest under flips of the signs of documents.

    A flip applies to all heads of a document at once, which preserves their dependence.
    """
    length = np.sqrt((drop**2).sum(axis=1, keepdims=True))
    unit = np.divide(drop, length, out=np.zeros_like(drop), where=length > 0)
    signs = rng.choice([-1.0, 1.0], size=(drop.shape[1], _FLIPS))
    return unit.sum(axis=1), (unit @ signs).max(axis=0)


def _bootstrap_t(drop: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """mean/deviation of each head, and the largest of centred drops in resampled documents.

    A resample without the few documents for which a head matters has no deviation; half of the
    deviation of all documents is used instead.
    """
    count = drop.shape[1]
    mean = drop.mean(axis=1)
    centred = drop - mean[:, None]
    deviation = drop.std(axis=1)
    weights = rng.multinomial(count, np.full(count, 1 / count), size=_FLIPS) / count
    moved = weights @ centred.T
    spread = np.sqrt(np.maximum(weights @ (centred**2).T - moved**2, 0))
    spread = np.maximum(spread, deviation[None] / 2)
    t = np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)
    alike = np.where(mean > 0, np.inf, 0.0)  # every document has the same drop
    return np.divide(mean, deviation, out=alike, where=deviation > 0), t.max(axis=1)


def _accuracy(model: Any, documents: Any, **gating: Any) -> Array:
    logits = model(documents["ids"], mask=documents["mask"], **gating).logits
    right = jnp.argmax(logits, axis=-1).astype(jnp.int32) == documents["labels"]
    return right.astype(logits.dtype)


def masked_score(model: Any, documents: Any, **options: Any) -> Array:
    """Mean log-likelihood of the masked tokens of each document, in nats a token."""
    options |= {"mask": documents.get("mask")}
    logits = logits_at(model, documents["ids"], documents["places"], **options)
    return _mean_log_likelihood(logits, documents["targets"], documents["guessed"])


def _causal(model: Any, documents: Any, **gating: Any) -> Array:
    ids, mask = documents["ids"], documents["mask"]
    logits = model(ids, mask=mask, **gating).logits
    return _mean_log_likelihood(logits[:, :-1], ids[:, 1:], next_in_document(mask))


def _mean_log_likelihood(logits: Array, targets: Array, counted: Array) -> Array:
    """Mean log-likelihood of each document, in nats a token; 0 without scored tokens."""
    likelihood = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    total = jnp.sum(jnp.where(counted, likelihood[..., 0], 0), axis=-1)
    return total / jnp.maximum(jnp.sum(counted, axis=-1), 1).astype(total.dtype)


def _embedding(model: Any, documents: Any, **gating: Any) -> Array:
    return jnp.sum(_mean_hidden(model, documents, **gating) * documents["reference"], axis=-1)


def _mean_hidden(model: Any, documents: Any, **gating: Any) -> Array:
    """Means of the last hidden states, of length 1."""
    hidden = trunk(model)(documents["ids"], mask=documents["mask"], **gating).hidden
    mean = pooled(hidden, documents["mask"], pooling="mean")
    return mean / jnp.maximum(jnp.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)


_SCORES = {
    "accuracy": _accuracy,
    "masked": masked_score,
    "causal": _causal,
    "embedding": _embedding,
}

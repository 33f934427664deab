"""Position on corpora of known truth: methods compared, and what intervals and tests get right.

Corpora are drawn at many seeds from the generators of `position_corpora.py`. Each is measured as
`jaxpe report` does: 16 folds, 8 halvings, 20 rotated corpora, halves of 8 splits with 4 rotated
ones. Small corpora share one compiled program; large ones take the way of long texts. Of some
corpora the rank is taken against other nulls, too.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import betaincinv

from experiments.beyond.position_corpora import VOCAB, Corpus, Documents, N, large, small
from experiments.common import Run, compacted, main, squared_from_gram
from experiments.position_parts import null_documents
from jaxpe import geometry
from jaxpe.analysis.corpus.held_out import HALVINGS, SPLITS
from jaxpe.analysis.corpus.noise import plug_in_trace
from jaxpe.analysis.corpus.where import where_position_tells
from jaxpe.data.corpora.groups import neighbour_similarity
from jaxpe.geometry.counts.cohorts import cohort_of
from jaxpe.geometry.counts.position_counts import content_labels
from jaxpe.geometry.counts.rotations import moving_tokens
from jaxpe.geometry.counts.token_lists import token_lists
from jaxpe.geometry.distances.matrices import gram_from_squared
from jaxpe.geometry.distances.nearness import position_statistics
from jaxpe.geometry.noise.cross_validation import (
    DEFAULT_HALF_NULLS,
    PositionHalves,
    disjoint_position_geometries,
)
from jaxpe.geometry.noise.half_products import DEFAULT_FOLDS
from jaxpe.geometry.noise.position import PositionGeometry, null_keys, position_part
from jaxpe.geometry.noise.split_half import DEFAULT_SPLITS

SEEDS, QUICK_SEEDS = 200, 2
NULL_KINDS = (
    "unequal lengths", "ended by a word", "ended by a word, later more often", "repeats, 0.5",
    "repeats, 0.5, one length", "bigrams", "local topics", "ended by a word, first word planted",
    "alternating", "steady drift",
)  # fmt: skip
QUICK = ("unequal lengths", "alternating, topic with length")
ROWS = 1500  # documents of a small corpus; fewer are padded with empty ones
# Nulls that were tried, and whether the last token of a document stays.
NULLS = {
    "rotation, last token stays": ("rotation", True),
    "rotation": ("rotation", False),
    "blocks of 3, last token stays": ("blocks", True),
    "shuffle, last token stays": ("shuffle", True),
    "shuffle": ("shuffle", False),
}
FEW_SEEDS = 60  # of what is not compiled
LEVEL = 0.05


def experiment(run: Run) -> dict[str, Any]:
    rows, methods, nulls = {}, {}, {}
    quick = {name: corpus for name, corpus in small().items() if name in QUICK}
    for name, corpus in (quick if run.quick else small() | large()).items():
        if corpus.seeds:
            found = [of_large(corpus, name, seed) for seed in range(corpus.seeds)]
            rows[name] = summary(found, corpus)
            continue
        found = [of_small(corpus, name, s) for s in range(QUICK_SEEDS if run.quick else SEEDS)]
        methods[name] = of_methods([each.pop("methods") for each in found], corpus.effect)
        few = min(len(found), FEW_SEEDS)
        bits = [of_bits(corpus, name, seed) for seed in range(few)]
        similar = np.mean([of_neighbours(corpus, name, seed) for seed in range(few)])
        nulls |= {name: of_nulls(corpus, name, few)} if name in NULL_KINDS else {}
        rows[name] = summary(found, corpus) | {"similar": float(similar)}
        rows[name]["bits"] = of_interval(*np.moveaxis(np.array(bits), 1, 0))
        print(name, rows[name]["rank"], rows[name]["trace"], flush=True)
    sizes = {"documents": ROWS, "n": N, "words": VOCAB}
    known = {"failing": failing(rows), "methods": methods, "nulls": nulls, "sizes": sizes}
    return {"rows": rows, **known}


def of_small(corpus: Corpus, name: str, seed: int) -> dict[str, Any]:
    drawn = padded(corpus.draw(generator(name, seed)))
    return jax.device_get(_small(drawn, jax.random.key(seed), true_squared(corpus)))


def of_large(corpus: Corpus, name: str, seed: int) -> dict[str, Any]:
    ids, mask, *_ = corpus.draw(generator(name, seed))
    ids, vocab_size = compacted(np.where(mask, ids, ids[mask][0]))
    drawn = Documents(ids, mask, np.arange(len(ids), dtype=np.uint32), ~mask[:, -1])
    whole, halves, _ = report_geometries(drawn, jax.random.key(seed), vocab_size)
    observed = _plug_in_trace(ids, mask, whole.present, vocab_size=vocab_size)
    return jax.device_get(_numbers(whole, halves, observed, true_squared(corpus)))


def of_bits(corpus: Corpus, name: str, seed: int) -> tuple[float, ...]:
    """Bits from the start, their interval and the truth, with the weights of the positions."""
    drawn, key = padded(corpus.draw(generator(name, seed))), jax.random.key(seed)
    known = {"mask": drawn.mask, "groups": drawn.groups, "ended": drawn.ended}
    tokens = token_lists(drawn.ids, vocab_size=VOCAB, folds=DEFAULT_FOLDS, **known)
    rotating = null_keys(key)[1][:DEFAULT_HALF_NULLS]
    nulls = [tokens.rotated(each) for each in rotating]
    start = where_position_tells(tokens, nulls, key=jax.random.fold_in(key, 1)).start
    weights = drawn.mask.sum(axis=0) / drawn.mask.sum()
    ratio = np.where(corpus.truth > 0, corpus.truth, 1) / np.maximum(weights @ corpus.truth, 1e-30)
    return (
        *(start.bits if start else (math.nan,) * 3),
        weights @ (corpus.truth * np.log2(ratio)).sum(axis=1),
    )


def of_nulls(corpus: Corpus, name: str, seeds: int) -> dict[str, float]:
    """Share of corpora with a rank above 0, against each null."""
    drawn = [padded(corpus.draw(generator(name, seed))) for seed in range(seeds)]
    return {
        label: float(np.mean([
            _rank_against(each, jax.random.key(seed), null=null, stays=stays) > 0
            for seed, each in enumerate(drawn)
        ]))
        for label, (null, stays) in NULLS.items()
    }  # fmt: skip


@partial(jax.jit, static_argnames=("null", "stays"))
def _rank_against(drawn: Documents, key: jax.Array, *, null: str, stays: bool) -> jax.Array:
    ids, mask, groups, ended = drawn
    known = {"vocab_size": VOCAB, "mask": mask, "folds": DEFAULT_FOLDS, "groups": groups}
    halving, moving = null_keys(key)
    moves = moving_tokens(mask, ended) if stays else mask
    estimate = partial(geometry.split_half_geometry, key=halving, splits=DEFAULT_SPLITS)

    def squared(key: jax.Array) -> jax.Array:
        moved = null_documents(key, ids, moves, groups, null=null)
        return estimate(geometry.count_tokens(moved, **known)).squared_distances

    counts = geometry.count_tokens(ids, **known)
    per_position = jnp.sum(counts.per_position, axis=0)
    squares = jax.lax.map(squared, moving)
    return geometry.position_rank(
        position_part(estimate(counts), squares, per_position=per_position)
    ).rank


def of_neighbours(corpus: Corpus, name: str, seed: int) -> bool:
    """Whether a report warns that neighbouring documents are alike, so that intervals are short."""
    ids, mask, *_ = corpus.draw(generator(name, seed))
    return neighbour_similarity(ids, mask, permutations=199).p_value <= LEVEL


def generator(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def true_squared(corpus: Corpus) -> np.ndarray:
    """True squared distances `[n, n]`."""
    roots = np.sqrt(corpus.truth)
    roots = roots - roots.mean(axis=0)
    return squared_from_gram(roots @ roots.T).astype(np.float32)


def padded(documents: Documents) -> Documents:
    """Documents of one number, with empty ones behind, and labels."""
    ids, mask = more(documents.ids), more(documents.mask)
    ended = more(~documents.mask[:, -1] if documents.ended is None else documents.ended)
    if documents.groups is None:
        return Documents(ids, mask, np.asarray(_content_labels(ids, mask)), ended)
    return Documents(ids, mask, more(documents.groups.astype(np.uint32)), ended)


def more(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.zeros((ROWS - len(x), *x.shape[1:]), x.dtype)])


_content_labels = jax.jit(content_labels)


def report_geometries(drawn: Documents, key: jax.Array, vocab_size: int) -> tuple[Any, ...]:
    """Geometries of all documents and of halves, as a report has them; and what else is needed."""
    halving, rotating = null_keys(key)
    sizes: dict[str, Any] = {"vocab_size": vocab_size, "folds": DEFAULT_FOLDS}
    known: dict[str, Any] = {"mask": drawn.mask, "groups": drawn.groups}
    whole = geometry.position_geometry(
        drawn.ids, key=key, splits=DEFAULT_SPLITS, ended=drawn.ended, **known, **sizes
    )
    rotated = [
        geometry.rotate_within_documents(key, drawn.ids, ended=drawn.ended, **known)
        for key in rotating[:DEFAULT_HALF_NULLS]
    ]
    counts, *nulls = [geometry.count_tokens(ids, **known, **sizes) for ids in (drawn.ids, *rotated)]
    halves = disjoint_position_geometries(
        counts, nulls, key=jax.random.fold_in(key, 1), splits=SPLITS, halvings=HALVINGS
    )
    return whole, halves, halving


@jax.jit
def _small(drawn: Documents, key: jax.Array, true: jax.Array) -> dict[str, Any]:
    """All numbers and all methods of one corpus, as one program."""
    whole, halves, halving = report_geometries(drawn, key, VOCAB)
    counts = geometry.count_tokens(drawn.ids, vocab_size=VOCAB, mask=drawn.mask)
    folded = {"vocab_size": VOCAB, "folds": DEFAULT_FOLDS, "groups": drawn.groups}
    inside = drawn.mask & cohort_of(drawn.mask)[:, None]
    cohort = geometry.count_tokens(drawn.ids, mask=inside, **folded)
    found = {
        "split half": whole.split_half,
        "position": whole,
        "cohort": geometry.split_half_geometry(cohort, key=halving),
    }
    rotated = whole.split_half.gram - whole.gram
    methods = {name: compared(each, true, rotated) for name, each in found.items()}
    observed = plug_in_trace(counts, whole.present)
    return {**numbers(whole, halves, observed, true), "methods": methods}


@partial(jax.jit, static_argnames="vocab_size")
def _plug_in_trace(ids, mask, present, *, vocab_size: int) -> jax.Array:
    return plug_in_trace(geometry.count_tokens(ids, vocab_size=vocab_size, mask=mask), present)


def compared(found: Any, true: jax.Array, rotated: jax.Array) -> dict[str, jax.Array]:
    """Errors of one method, and |cos| of its first vector with others."""
    gram = gram_from_squared(among(true, found.present), found.present)
    own = first_vector(found.gram)
    return {
        "bias": jnp.trace(found.gram) - jnp.trace(gram),
        "error": jnp.linalg.norm(found.gram - gram) / jnp.linalg.norm(gram),
        "with_truth": jnp.abs(own @ first_vector(gram)),
        "with_rotated": jnp.abs(own @ first_vector(rotated)),
    }


def first_vector(gram: jax.Array) -> jax.Array:
    return jnp.linalg.eigh(gram)[1][:, -1]


def among(squared: jax.Array, present: jax.Array) -> jax.Array:
    """Squared distances of the positions that are there, and 0."""
    return jnp.where(present[:, None] & present[None, :], squared, 0.0)


def numbers(
    whole: PositionGeometry, halves: PositionHalves, observed: jax.Array, true: jax.Array
) -> dict[str, Any]:
    """What a report says, `[value, low, high, truth]` of each number; NaN where none is known."""
    found, rank = geometry.position_intervals(whole, halves), geometry.position_rank(whole)
    truth = position_statistics(among(true, whole.present), whole.present)
    near = truth.difference / jnp.where(truth.total > 0, truth.total, jnp.nan)
    share = geometry.variance_shares(whole, halves, observed).position
    told = {
        "trace": (*found.position[:3], truth.trace),
        "nearness": (*found.nearness[:3], near),
        "position share": (*share[:3], truth.trace / observed),
    }
    return {
        "told": {name: jnp.stack(jnp.broadcast_arrays(*each)) for name, each in told.items()},
        "observed": observed,
        "rank": rank.rank,
    }


_numbers = jax.jit(numbers)


def summary(found: list[dict[str, Any]], corpus: Corpus) -> dict[str, Any]:
    """Bias, coverage, level or power of each number over all seeds."""
    stacked = jax.tree.map(lambda *each: np.stack(each), *found)
    row: dict[str, Any] = {
        "seeds": len(found),
        "effect": corpus.effect,
        "rank": {
            "above_0": float(np.mean(stacked["rank"] > 0)),
            "low": monte_carlo(stacked["rank"] > 0)[0],
            "mean": float(np.mean(stacked["rank"])),
            "truth": corpus.rank,
        },
    }
    told = {name: np.moveaxis(each, 1, 0) for name, each in stacked["told"].items()}
    told["position share"][3] = (  # of what is observed on average
        told["position share"][3] * stacked["observed"] / stacked["observed"].mean()
    )
    return row | {name: of_interval(*each) for name, each in told.items()}


def of_interval(
    value: np.ndarray, low: np.ndarray, high: np.ndarray, truth: np.ndarray
) -> dict[str, float]:
    """How often an interval holds the truth and the mean of the estimates; `[seeds, ...]` each."""
    judged, excludes = np.isfinite(value + low + high), (low > 0) | (high < 0)
    covers = (low <= truth) & (truth <= high)
    value = np.where(judged, value, np.nan)
    mean, known = np.nanmean(value, axis=0), np.isfinite(truth).all()

    def rate(holds: np.ndarray) -> float:
        return float(holds[judged].mean())

    return {
        "mean": float(np.mean(mean)),
        "sd": float(np.mean(np.nanstd(value, axis=0, ddof=1))),
        "truth": float(np.mean(truth)) if known else math.nan,
        "covers_truth": rate(covers) if known else math.nan,
        "covers_high": monte_carlo(covers[judged])[1] if known else math.nan,
        "covers_mean": rate((low <= mean) & (mean <= high)),
        "excludes_0": rate(excludes),
        "excludes_low": monte_carlo(excludes[judged])[0],
    }


def monte_carlo(holds: np.ndarray) -> tuple[float, float]:
    """95 % interval of a probability by Clopper and Pearson (1934)."""
    hits, number = int(np.sum(holds)), holds.size
    low = betaincinv(hits, number - hits + 1, 0.025) if hits else 0.0
    high = betaincinv(hits + 1, number - hits, 0.975) if hits < number else 1.0
    return float(low), float(high)


def failing(rows: dict[str, Any]) -> dict[str, list[str]]:
    """Kinds of corpora whose Monte Carlo interval of a level or coverage excludes 5 or 95 %."""
    numbers = ("trace", "nearness", "position share", "bits")
    found: dict[str, list[str]] = {"rank": [], "level": [], "coverage": []}
    for name, row in rows.items():
        told = [row[number] for number in numbers if number in row]
        if not row["effect"]:
            found["rank"] += [name] * (row["rank"]["low"] > LEVEL)
            found["level"] += [name] * any(x["excludes_low"] > LEVEL for x in told)
        else:
            found["coverage"] += [name] * any(x["covers_high"] < 1 - LEVEL for x in told)
    return found


def of_methods(found: list[dict[str, Any]], effect: bool) -> dict[str, Any]:
    """Errors of each method over all seeds; of a geometry of 0, those that are defined."""
    stacked = jax.tree.map(lambda *each: np.stack(each), *found)
    rows = {}
    for name, each in stacked.items():
        row = {key: float(np.mean(values)) for key, values in each.items()}
        row["sd"] = float(np.std(each["bias"], ddof=1))
        unknown = {} if effect else {"error": math.nan, "with_truth": math.nan}
        rows[name] = row | unknown
    return rows


if __name__ == "__main__":
    main(experiment, "position_truth")

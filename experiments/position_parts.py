"""Noise, composition and position in a corpus, as `jaxpe report` has them, with intervals.

What several experiments measure of a corpus: documents over the words that occur, the same
documents with the tokens of each in random order, and the shares of the observed variance.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from experiments.common import compacted
from jaxpe.analysis.corpus.held_out import HALVINGS
from jaxpe.analysis.corpus.noise import defined_intervals, plug_in_trace
from jaxpe.data import TokenCorpus
from jaxpe.geometry import position_geometry, position_intervals, position_rank, variance_shares
from jaxpe.geometry.counts.rotations import rotated_positions
from jaxpe.geometry.counts.token_lists import token_lists
from jaxpe.geometry.noise.cross_validation import (
    DEFAULT_HALF_NULLS,
    PositionHalves,
    disjoint_position_geometries,
)
from jaxpe.geometry.noise.position import PositionGeometry, null_keys
from jaxpe.geometry.noise.significant_rank import weighted_gram

FOLDS = 16


class Documents(NamedTuple):
    """Counted tokens over the words that occur.

    Attributes:
        ids: int `[documents, n]`, renumbered.
        counted: bool `[documents, n]`.
        groups: int `[documents]`, documents that are not independent.
        ended: bool `[documents]`, documents that were not cut.
        vocab_size: rounded up, so that corpora share programs.
    """

    ids: np.ndarray
    counted: np.ndarray
    groups: np.ndarray
    ended: np.ndarray
    vocab_size: int

    def chosen(self, rows: np.ndarray) -> "Documents":
        names = ("ids", "counted", "groups", "ended")
        return self._replace(**{name: getattr(self, name)[rows] for name in names})

    @property
    def counts(self) -> jaxpe.geometry.PositionCounts:
        return jaxpe.geometry.count_tokens(
            self.ids,
            vocab_size=self.vocab_size,
            mask=self.counted,
            folds=FOLDS,
            groups=self.groups,
        )


class Parts(NamedTuple):
    """The geometry of position of all documents and of halves of them."""

    geometry: PositionGeometry
    halves: PositionHalves


def documents_of(corpus: TokenCorpus, *, grouped: bool = True) -> Documents:
    """Documents with pieces of one text in a group, or with copies alone in one."""
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    words = np.unique(corpus.ids[counted])
    ids, size = compacted(np.where(counted, corpus.ids, words[0]))
    if grouped:
        groups = corpus.groups()
    else:
        _, groups = np.unique(np.where(counted, ids, -1), axis=0, return_inverse=True)
    assert corpus.cut is not None
    return Documents(ids, counted, groups.reshape(-1).astype(np.int32), ~corpus.cut, size)


@partial(jax.jit, static_argnames="null")
def null_documents(key: Array, ids: Array, moves: Array, labels: Array, *, null: str) -> Array:
    """Ids where `moves` is true in another order: "rotation", "shuffle", or "blocks" of 3 tokens.

    Blocks of a document come in random order. Documents of one label are moved alike.
    """
    if null == "rotation":
        return jnp.take_along_axis(ids, rotated_positions(key, moves, labels), axis=1)
    size = {"shuffle": 1, "blocks": 3}[null]
    n = moves.shape[1]
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, labels)
    noise = jax.vmap(lambda k: jax.random.uniform(k, (n,), jnp.float32))(keys)
    rank = jnp.cumsum(moves, axis=1, dtype=jnp.int32) - 1
    block = jnp.take_along_axis(noise, jnp.maximum(rank, 0) // size, axis=1)
    order = jnp.argsort(jnp.where(moves, block, 2.0), axis=1, stable=True)
    source = jnp.take_along_axis(order, jnp.maximum(rank, 0), axis=1)
    return jnp.where(moves, jnp.take_along_axis(ids, source, axis=1), ids)


def shuffled_within(documents: Documents, *, seed: int) -> Documents:
    """The same documents, the tokens of each in random order: no effect of position is left."""
    key, (ids, counted, groups) = jax.random.key(seed), documents[:3]
    moved = null_documents(key, ids, counted, groups.astype(np.uint32), null="shuffle")
    return documents._replace(ids=np.asarray(moved))


def parts_of(documents: Documents, *, splits: int = 8, half_splits: int = 8) -> Parts:
    """The geometry of position and the halves its intervals come from, as the report has them."""
    ids, counted, groups, ended, vocab_size = documents
    sizes: dict[str, Any] = {"vocab_size": vocab_size, "mask": counted, "folds": FOLDS}
    sizes |= {"groups": groups, "ended": ended}
    keys = jax.random.split(jax.random.key(0), 3)  # as `analyse_tokens` at seed 0
    geometry = position_geometry(ids, key=keys[0], splits=splits, **sizes)
    tokens = token_lists(ids, **sizes)
    nulls = [tokens.rotated(key) for key in null_keys(keys[0])[1][:DEFAULT_HALF_NULLS]]
    halves = disjoint_position_geometries(
        tokens, nulls, key=keys[2], splits=half_splits, halvings=HALVINGS
    )
    return Parts(geometry, halves)


def measured_parts(documents: Documents, parts: Parts) -> dict[str, Any]:
    """Shares of the observed variance with intervals, rank, nearness, and who reaches a position.

    Of positions that are present in both halves of every split. Correlations are of the first
    vector of position with that of composition, plain and with positions weighted by documents.
    """
    geometry, halves = parts
    merged = documents.counts.merged()
    rank = position_rank(geometry)
    observed = plug_in_trace(merged, geometry.present)
    shares = variance_shares(geometry, halves, observed)
    intervals = position_intervals(geometry, halves)
    reach = np.asarray(geometry.per_position)[np.asarray(geometry.present)]
    composition = geometry.split_half._replace(
        gram=geometry.split_half.gram - geometry.gram,
        squared_distances=geometry.split_half.squared_distances - geometry.squared_distances,
    )
    position = geometry.split_half._replace(
        gram=geometry.gram, squared_distances=geometry.squared_distances
    )
    both = (position, composition)
    own, null = (np.linalg.eigh(np.asarray(x.gram, float)) for x in both)
    weighted = [np.linalg.eigh(np.asarray(weighted_gram(x, merged), float)) for x in both]
    return {
        "documents": len(documents.ids),
        "groups": len(np.unique(documents.groups)),
        "positions": len(reach),
        "reach": {"first": reach[0], "middle": reach[len(reach) // 2], "last": reach[-1]},
        "plug_in_trace": float(observed),
        "split_half_trace": ends(intervals.split_half),
        "composition_trace": ends(intervals.composition),
        "position_trace": ends(intervals.position),
        **{
            name: share._asdict()
            for name, share in defined_intervals(shares, intervals.nearness).items()
        },
        "rank": int(rank.rank),
        "p_value": float(rank.p_value),
        "rank_eigenvalues": np.asarray(rank.eigenvalues)[:12],
        "threshold": float(rank.threshold),
        "eigenvalues": own[0][::-1][:12],
        "composition_eigenvalue": null[0][-1],
        "composition_correlation": abs(own[1][:, -1] @ null[1][:, -1]),
        "weighted_correlation": abs(weighted[0][1][:, -1] @ weighted[1][1][:, -1]),
    }


def ends(estimate: Any) -> dict[str, float]:
    """An estimate of `position_intervals` as a result has it."""
    names = {"estimate": "value", "low": "low", "high": "high", "standard_error": "standard_error"}
    return {name: float(jnp.asarray(getattr(estimate, field))) for name, field in names.items()}

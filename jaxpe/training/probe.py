"""Geometry of an encoding during training, compared with the geometry of the corpus."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.encodings import encoding_distances
from jaxpe.encodings.base import Encoding, Params
from jaxpe.geometry.counts.distributions import EmptyPolicy, positional_distributions
from jaxpe.geometry.counts.position_counts import PositionCounts
from jaxpe.geometry.distances.matrices import (
    Distances,
    as_distances,
    euclidean_distances,
    floating,
    hellinger_distances,
)
from jaxpe.geometry.distances.monotonicity import monotonicity_violation_rate
from jaxpe.geometry.distances.stress import (
    Encoded,
    mantel_correlation,
    min_separation,
    scaled_stress,
    stress,
)
from jaxpe.geometry.mds.entropy_rank import entropy_rank
from jaxpe.geometry.noise.position import PositionGeometry


class ReferenceGeometry(NamedTuple):
    """Geometry of a corpus, which encodings are compared with.

    Attributes:
        plug_in: Hellinger distances of the observed frequencies, over all n positions; under the
            policy "drop", over the occupied ones.
        position: distances of position alone, over the positions with tokens in both halves of
            every split.
        occupied: whether each position holds a token.
    """

    plug_in: Distances
    position: Distances
    occupied: Bool[Array, " n"]


class GeometryScores(NamedTuple):
    """Scores of an encoding against one geometry; each field is a float scalar.

    Attributes:
        min_separation: smallest distance between two positions; inf with fewer than two.
        violation_rate: share of triples whose distances do not grow with the offset, in [0, 1].
        entropy_rank: effective number of dimensions; 0 if all positions coincide.
        correlation: Pearson correlation of distances; 0 if either side is constant.
        stress: Eq. (4) of Cirrincione (2026), which depends on scale.
        scaled_stress: stress at the best scale, in [0, 1]; 1 if all positions coincide.
    """

    min_separation: Float[Array, ""]
    violation_rate: Float[Array, ""]
    entropy_rank: Float[Array, ""]
    correlation: Float[Array, ""]
    stress: Float[Array, ""]
    scaled_stress: Float[Array, ""]


class GeometryProbe(NamedTuple):
    """Scores of an encoding against the plug-in distances, and against position alone.

    Attributes:
        all_positions: scores over all positions.
        occupied: scores over positions with tokens.
        position: scores against the distances of position alone.
    """

    all_positions: GeometryScores
    occupied: GeometryScores
    position: GeometryScores


def reference_geometry(
    counts: PositionCounts, geometry: PositionGeometry, *, empty: EmptyPolicy = "uniform"
) -> ReferenceGeometry:
    """Reference geometry of a corpus: plug-in distances, and distances of position alone.

    Args:
        counts: counts of the corpus.
        geometry: result of `position_geometry` for the same documents.
        empty: treatment of positions without a token in `plug_in`: "uniform" over the vocabulary of
            the counts (Cirrincione 2026), or "drop", "zero", "error" as in
            `positional_distributions`. It affects neither `position` nor `occupied`.

    Raises:
        ValueError: too few documents for any two positions to have tokens in both halves. Under
            `jit` this is not checked: `position` is then empty, and any encoding has stress 0.

    >>> ids = np.random.default_rng(0).integers(0, 5, (200, 4))
    >>> mask = np.broadcast_to(np.arange(4) < 3, ids.shape)
    >>> documents = {"vocab_size": 5, "mask": mask, "groups": np.arange(200)}
    >>> geometry = position_geometry(ids, key=jax.random.key(0), folds=4, **documents)
    >>> reference = reference_geometry(count_tokens(ids, vocab_size=5, mask=mask), geometry)
    >>> reference.plug_in.present.tolist(), reference.position.present.tolist()
    ([True, True, True, True], [True, True, True, False])
    """
    present = geometry.distances.present
    if not is_traced(present) and np.asarray(present).sum() < 2:
        raise ValueError(
            "fewer than two positions hold tokens in both halves of every split: count more "
            "documents, or in more folds"
        )
    return ReferenceGeometry(
        plug_in=hellinger_distances(positional_distributions(counts, empty=empty)),
        position=geometry.distances,
        occupied=counts.merged().per_position > 0,
    )


def probe_geometry(encoded: Encoded, reference: ReferenceGeometry) -> GeometryProbe:
    """Scores of an encoding of the n positions of a reference.

    Args:
        encoded: points `[n, d]`, whose 16-bit floats are widened, or `Distances`.
        reference: geometry of a corpus, from `reference_geometry`.

    Raises:
        ValueError: an encoding of another number of positions.

    >>> D = as_distances(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]))
    >>> reference = ReferenceGeometry(D, D, jnp.array([True, True, False]))
    >>> probe = probe_geometry(2.0 * np.arange(3.0)[:, None], reference)
    >>> probe.all_positions.stress.item(), probe.all_positions.scaled_stress.item()
    (1.0, 0.0)
    >>> probe.occupied.min_separation.item()
    2.0
    """
    n = reference.occupied.shape[-1]
    encoded = as_distances(encoded) if isinstance(encoded, Distances) else floating(encoded)
    rows = len(encoded.values if isinstance(encoded, Distances) else encoded)
    if rows != n:
        raise ValueError(
            f"the encoding has {rows} positions and the reference {n}: encode exactly the "
            f"positions 0 to {n - 1}"
        )
    plug_in = reference.plug_in
    occupied = Distances(plug_in.values, plug_in.present & reference.occupied)
    # One vmapped program for the three geometries compiles in a third of the time.
    geometries = jax.tree.map(lambda *D: jnp.stack(D), plug_in, occupied, reference.position)
    scores = jax.vmap(_scores, in_axes=(None, 0))(encoded, geometries)
    return GeometryProbe(*(jax.tree.map(lambda leaf, k=k: leaf[k], scores) for k in range(3)))


def encoding_probe(
    encoding: Encoding,
    params: Params,
    positions: Int[ArrayLike, " n"],
    reference: ReferenceGeometry,
    *,
    num_heads: int | None = None,
    head_dim: int | None = None,
) -> GeometryProbe:
    """Scores of an encoding by its vectors, or else by the distances that it induces on logits.

    Args:
        encoding, params: encoding that has vectors, or that acts on attention logits
            (`encoding_distances`).
        positions: positions of the reference.
        num_heads, head_dim: sizes of the model, needed for an encoding without vectors.

    Raises:
        ValueError: as in `encoding_distances` and `probe_geometry`.

    >>> from jaxpe import encodings
    >>> D = as_distances(abs(np.arange(3.0)[:, None] - np.arange(3.0)))
    >>> reference = ReferenceGeometry(D, D, jnp.ones(3, bool))
    >>> probe = encoding_probe(encodings.alibi(num_heads=1), (), jnp.arange(3), reference)
    >>> round(probe.position.correlation.item(), 6)
    1.0
    """
    if encoding.defines("vectors"):
        return probe_geometry(encoding.vectors(params, positions), reference)
    heads = {"num_heads": num_heads, "head_dim": head_dim}
    return probe_geometry(encoding_distances(encoding, params, positions, **heads), reference)


def as_record(probe: GeometryProbe) -> dict[str, float]:
    """Probe as a flat record of a log, with keys such as `"occupied/stress"`.

    Args:
        probe: scores of an encoding, from `probe_geometry`.

    >>> scores = GeometryScores(*map(jnp.asarray, (0.5, 0.1, 3.0, 0.9, 2.0, 0.2)))
    >>> as_record(GeometryProbe(scores, scores, scores))["occupied/entropy_rank"]
    3.0
    """
    return {
        f"{where}/{name}": float(value)
        for where, scores in probe._asdict().items()
        for name, value in scores._asdict().items()
    }


def _scores(encoded: Encoded, D: Distances) -> GeometryScores:
    """Scores over the positions present in D."""
    delta = _distances(encoded, D.present)
    return GeometryScores(
        min_separation=min_separation(delta),
        violation_rate=monotonicity_violation_rate(delta),
        entropy_rank=entropy_rank(encoded, present=D.present),
        correlation=mantel_correlation(delta, D),
        stress=stress(delta, D),
        scaled_stress=scaled_stress(delta, D).stress,
    )


def _distances(encoded: Encoded, present: Bool[Array, " n"]) -> Distances:
    if isinstance(encoded, Distances):
        return as_distances(Distances(encoded.values, encoded.present & present))
    return euclidean_distances(encoded, present=present)

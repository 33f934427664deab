"""The statements, evaluated on a model and a corpus."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from jaxpe import theory
from jaxpe._core.compiled import one_call
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.threads import in_threads
from jaxpe.analysis.audit.functions import Geometry, PositionLoss, inner
from jaxpe.geometry import Distances, PositionCounts, as_distances
from jaxpe.theory import Audit, Comparison, boolean, less_equal
from jaxpe.theory.gradients import mean_embeddings, position_gradients

_SWAPS = 24


def statements_on_corpus(
    model: PositionLoss, geometry: Geometry, *, progress: Progress = SILENT
) -> dict[str, Audit]:
    """The statements on distributions and their distances, by name.

    >>> sorted(statements_on_corpus(model, geometry_of(subject)))  # doctest: +SKIP
    ['Conjecture 5', 'Proposition 6', 'Remark 7', 'Remark 8']
    """
    D, P = geometry.D, model.of.vectors
    within = as_distances(inner(D.values, D.present))
    n, dim = within.values.shape[0], P.shape[1]
    few, of_position = (min(16, (m - 1) // 2 * 2) for m in (n, len(geometry.position)))
    ranks = [r for r in (1, 2, 3, 7) if r < n]
    statements = {
        "Conjecture 5": partial(_conjecture_5, D, P, geometry),
        "Proposition 6": partial(one_call, theory.proposition_6, within, dim=few),
        "Remark 7": partial(one_call, theory.remark_7, geometry.position, dim=of_position),
        "Remark 8": partial(one_call, theory.remark_8, within, width=dim, ranks=ranks),
    }
    return _evaluated(statements, progress, "statements on the corpus")


def _evaluated(
    statements: Mapping[str, Callable[[], Audit]], progress: Progress, description: str
) -> dict[str, Audit]:
    found = in_threads(lambda evaluate: evaluate(), statements.values())
    shown = progress.track(found, description, total=len(statements))
    return dict(zip(statements, shown, strict=True))


def _conjecture_5(D: Distances, P: Array, geometry: Geometry) -> Audit:
    """Conjecture 5, with shares of triples that violate or uphold its hypothesis beyond noise.

    Composition, which shuffled documents show, is not counted as a violation. Each triple is tested
    at 5 %. The shares are measured and not judged: triples hang together, so that among ties more
    than 5 % of them come out significant in more than 5 % of corpora.
    """
    found = one_call(_conjecture_5_of_vectors, D, P)
    return found._replace(
        measured=found.measured | one_call(_beyond_noise, geometry.counts, geometry.nulls)
    )


def _conjecture_5_of_vectors(D: Distances, P: Array) -> Audit:
    return theory.conjecture_5(D, jaxpe.euclidean_distances(P, present=D.present))


def _beyond_noise(counts: PositionCounts, nulls: list[PositionCounts]) -> dict[str, Array]:
    test = theory.monotonicity_test(counts, nulls)
    return {
        "positions judged": jnp.sum(test.present, dtype=jnp.int32),
        "triples violated beyond noise": test.significant,
        "triples upheld beyond noise": test.upheld,
    }


def statements_on_model(
    model: PositionLoss,
    geometry: Geometry,
    *,
    seed: int,
    temperature: float = 1.0,
    progress: Progress = SILENT,
) -> dict[str, Audit]:
    """The statements on gradients and attention, at P = 0 but for Theorem 4.

    >>> statements_on_model(model, geometry, seed=0)["Lemma 11"].conclusions  # doctest: +SKIP
    """
    of, mu, D = model.of, geometry.mu, geometry.D
    examples, W = model.examples, of.projections
    start = np.zeros(of.vectors.shape, of.vectors.dtype)

    def loss(P: Array, shift: Array, example: Any) -> Array:
        return model.loss(model.outputs(P, shift, example), example)

    def attention(P: Array, example: Any) -> tuple[Array, Array]:
        below = of.apply(
            P, of.no_shift, example["ids"], mask=example["mask"], trace=True
        ).transformer
        assert below.logits is not None  # it was traced
        assert below.weights is not None
        return below.logits[0], below.weights[0]

    occupied = jnp.asarray(examples["mask"])
    gradients = jax.jit(
        lambda P: position_gradients(loss, attention, P, examples, occupied=occupied)
    )(start)
    means = mean_embeddings(mu, of.tokens)
    statements = {
        "Theorem 1": partial(_without_positions, model, seed=seed),
        "Theorem 4": partial(
            theory.theorem_4,
            lambda P, example: loss(P, of.no_shift, example),
            of.vectors,
            examples,
            means,
            W.query,
            W.key,
            swaps=_swaps(np.asarray(D.present), seed=seed),
            swap=_reordered,
            present=D.present,
        ),
        "Lemma 11": partial(
            one_call, theory.lemma_11, gradients, mu, temperature=temperature
        ),
        "Lemma 12": partial(one_call, theory.lemma_12, gradients, mu, means, W.query, W.key),
        "Lemma 14": partial(one_call, theory.lemma_14, gradients, D, means, W.query, W.key),
        "Corollary 15": partial(
            one_call, theory.corollary_15, gradients, mu, family=model.family
        ),
        "Lemma 16": partial(
            one_call, _lemma_16, _gradient_bound(model), gradients, mu, of.tokens, *W
        ),
    }  # fmt: skip
    found = _evaluated(statements, progress, "statements on the model")
    for name, more in _other_hypotheses(model).items():
        found[name] = found[name]._replace(hypotheses=more | found[name].hypotheses)
    for name in ("τ < 1", "ε_suff"):
        found["Lemma 12"].hypotheses[f"Lemma 11: {name}"] = found["Lemma 11"].hypotheses[name]
    if model.layers > 1:  # a bound for one layer, and no other
        del found["Lemma 16"].instead["(12) of one layer"]
    return found


def _other_hypotheses(model: PositionLoss) -> dict[str, dict[str, Comparison]]:
    """Assumptions of the statements about a model and its loss, in the words of the paper."""
    conditions = (model.of.no_other_order, model.family == "masked", model.reads_first)
    no_other_order, masked, reads_first, sums = one_call(
        _assumptions, model.of.tokens, model.of.embeddings, np.array(conditions)
    )
    return {
        "Theorem 1": {"no other order": no_other_order},
        "Theorem 4": {"attention reads E + p": sums},
        "Lemma 11": {"masked loss": masked},
        "Lemma 12": {"masked loss": masked, "attention reads E + p": sums},
        "Lemma 14": {"attention reads E + p": sums},
        "Lemma 16": {"reads [CLS]": reads_first, "attention reads E + p": sums},
    }


def _assumptions(tokens: Array, embeddings: Array, conditions: Array) -> tuple[Comparison, ...]:
    """The conditions, and that attention reads the sum of embedding and position."""
    size = jnp.max(jnp.abs(tokens))
    apart = jnp.max(jnp.abs(tokens - embeddings)) / jnp.where(size > 0, size, 1.0)
    return *(boolean(condition) for condition in conditions), less_equal(apart, 1e-5)


def _lemma_16(bound: Array, *arrays: Any) -> Audit:
    return theory.lemma_16(*arrays, gradient_bound=bound)


def _without_positions(model: PositionLoss, *, seed: int) -> Audit:
    """Theorem 1 with P = 0 on tokens without padding; rotations and biases stay."""
    of = model.of
    n = of.vectors.shape[0]
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, of.embeddings.shape[0], (4, n)).astype(np.int32)
    orders = np.stack([rng.permutation(n) for _ in range(4)]).astype(np.int32)

    def hidden(row: Array) -> Array:
        return of.apply(jnp.zeros_like(of.vectors), of.no_shift, row).transformer.hidden

    return jax.jit(partial(theory.theorem_1, hidden))(ids, orders)


def _reordered(example: Any, order: Array) -> Any:
    """Tokens in another order; what is to be guessed stays where it was."""
    return example | {name: jnp.asarray(example[name])[order] for name in ("ids", "mask")}


def _swaps(present: np.ndarray, *, seed: int) -> np.ndarray:
    kept = np.flatnonzero(present)
    i, j = np.triu_indices(len(kept), 1)
    chosen = np.random.default_rng(seed).permutation(len(i))[:_SWAPS]
    return np.stack([kept[i[chosen]], kept[j[chosen]]], axis=1).astype(np.int32)


def _gradient_bound(model: PositionLoss) -> Array:
    """Largest ‖∂loss/∂a_i‖, a what the first attention adds to the residual stream."""

    def norm(example: Any) -> Array:
        def loss(added: Array) -> Array:
            return model.loss(model.at_no_shift(start, example, added=added), example)

        start = jnp.zeros_like(model.of.vectors)
        return jnp.max(jnp.linalg.norm(jax.grad(loss)(start), axis=1))

    return jax.jit(lambda rows: jnp.max(jax.lax.map(norm, rows, batch_size=8)))(model.examples)

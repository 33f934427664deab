"""Rows of `jaxpe.theory`."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import theory
from jaxpe.theory import PositionGradients
from tests.cases.base import (
    HEADS,
    LENGTH,
    VOCAB,
    WIDTH,
    Call,
    counts,
    distances,
    key,
    logits,
    mu,
    normal,
    symmetric,
)


def one_row(P, tokens):
    x = tokens[:, None] + P
    return (x @ x.T)[None]


def attention(P, tokens):
    return one_row(P, tokens), jax.nn.softmax(one_row(P, tokens))


def shifted_loss(P, shift, tokens):
    x = tokens[:, None] + P
    return jnp.sum((jax.nn.softmax(one_row(P, tokens) + shift) @ x) ** 2)


def running_sums(ids):
    return jnp.cumsum(ids.astype(float))[:, None]


def swap_tokens(tokens, order):
    return tokens[order]


def position_gradients(rng):
    shapes = (
        (HEADS, LENGTH, LENGTH),
        (HEADS, LENGTH, LENGTH),
        (LENGTH, 3),
        (LENGTH, 3),
        (LENGTH, 3),
    )
    return PositionGradients(*(jnp.asarray(normal(rng, *shape)) for shape in shapes))


def projections(rng, count, dim=3):
    return [normal(rng, dim, HEADS, WIDTH) for _ in range(count)]


def _theorem_4(rng):
    given = (
        normal(rng, LENGTH, 1),
        normal(rng, 9, LENGTH),
        normal(rng, LENGTH, 3),
        *projections(rng, 2),
    )
    swaps = np.array([[0, 1], [2, 3]])
    return theory.theorem_4(_loss_of_row, *given, swaps=swaps, swap=swap_tokens)


def _loss_of_row(P, tokens):
    return jnp.sum((tokens[:, None] + P) ** 2 * jnp.arange(1.0, LENGTH + 1)[:, None])


def _low_rank_descent(rng):
    given = normal(rng, LENGTH, 2), normal(rng, 4, 2), distances(rng)
    return theory.low_rank_descent(*given, steps=3)


def _norms(rng):
    return theory.section_4_norms(
        normal(rng, LENGTH, 4),
        normal(rng, 6, 4),
        normal(rng, 5, 4),
        normal(rng, 3, 2),
        normal(rng, 9, 2),
    )


def _rademacher(rng):
    losses = (rng.random(3) for _ in range(4))
    numbers = {"samples": 100, "largest_loss": 1.0, "loss_lipschitz": 1.0, "trivial_loss": 0.5}
    return theory.section_4_rademacher(*losses, worst_loss=0.9, **numbers)


def _lemma(function, count, *between):
    def call(rng):
        arrays = [make(rng) for make in between]
        return function(position_gradients(rng), *arrays, *projections(rng, count))

    return call


def _means(rng):
    return normal(rng, LENGTH, 3)


def _lemma_16(rng):
    q, k, v = projections(rng, 3)
    output = normal(rng, HEADS, WIDTH, 3)
    given = position_gradients(rng), mu(rng), normal(rng, VOCAB, 3), q, k, v, output
    return theory.lemma_16(*given, gradient_bound=1.0)


def _gradients(rng):
    return theory.position_gradients(
        shifted_loss, attention, normal(rng, LENGTH, 1), normal(rng, 9, LENGTH), batch_size=4
    )


def _hidden(rng):
    return normal(rng, 2, LENGTH, 3), np.asarray(jax.nn.softmax(normal(rng, 2, LENGTH, LENGTH)))


THEORY: dict[str, Call] = {
    "all_less_equal": lambda rng: theory.all_less_equal(normal(rng, LENGTH), normal(rng, LENGTH)),
    "less_equal": lambda rng: theory.less_equal(normal(rng, LENGTH), 3.0),
    "conjecture_5": lambda rng: theory.conjecture_5(distances(rng), normal(rng, LENGTH, 2)),
    "corollary_15": lambda rng: theory.corollary_15(
        position_gradients(rng), mu(rng), family="agnostic"
    ),
    "equation_9": lambda rng: theory.equation_9(
        normal(rng, 3, 8), np.tile(np.arange(8.0), (3, 1)), slope=0.1, length=4
    ),
    "explained_by_chance": lambda rng: theory.explained_by_chance(
        symmetric(rng), symmetric(rng), key=key(), orders=3
    ),
    "forcing_of_means": lambda rng: theory.forcing_of_means(
        logits(rng), _means(rng), *projections(rng, 2)
    ),
    "kl_constant": lambda rng: theory.kl_constant(rng.random(3), rng.random(3)),
    "kl_divergences": lambda rng: theory.kl_divergences(mu(rng)),
    "kl_lower_bound": lambda rng: theory.kl_lower_bound(rng.random(3)),
    "kl_ratio": lambda rng: theory.kl_ratio(rng.random(3)),
    "lemma_11": _lemma(theory.lemma_11, 0, mu),
    "lemma_12": _lemma(theory.lemma_12, 2, mu, _means),
    "lemma_14": _lemma(theory.lemma_14, 2, distances, _means),
    "lemma_16": _lemma_16,
    "lemma_18": lambda rng: theory.lemma_18(symmetric(rng), normal(rng, LENGTH, 2), distances(rng)),
    "low_rank_descent": _low_rank_descent,
    "mean_embeddings": lambda rng: theory.mean_embeddings(mu(rng), normal(rng, VOCAB, 3)),
    "boolean": lambda rng: theory.boolean(rng.random(3) < 0.5),
    "monotone_fit": lambda rng: theory.monotone_fit(normal(rng, 9), normal(rng, 9)),
    "monotonicity_test": lambda rng: theory.monotonicity_test(counts(rng, folds=4)),
    "nope_theorem_1": lambda rng: theory.nope_theorem_1(
        *_hidden(rng), rng.integers(0, 5, (2, LENGTH), dtype=np.int32)
    ),
    "nope_theorem_2": lambda rng: theory.nope_theorem_2(
        normal(rng, 2, LENGTH, LENGTH), normal(rng, 2, LENGTH, LENGTH), normal(rng, 2, LENGTH, 3)
    ),
    "outer_words_loss": lambda rng: theory.outer_words_loss(normal(rng, 3, 2)),
    "pairs": lambda rng: theory.pairs(normal(rng, LENGTH, LENGTH)),
    "position_gradients": _gradients,
    "proposition_6": lambda rng: theory.proposition_6(distances(rng), dim=2, max_iterations=5),
    "remark_20": lambda rng: theory.remark_20(symmetric(rng)),
    "remark_7": lambda rng: theory.remark_7(distances(rng) ** 2, dim=2),
    "remark_8": lambda rng: theory.remark_8(
        distances(rng), width=4, ranks=(1, 2), max_iterations=5
    ),
    "section_4_alibi": lambda rng: theory.section_4_alibi(
        rng.random(3), rng.random(3), rng.random(3), lengths=np.array([8.0, 16.0, 32.0]), slope=0.1
    ),
    "section_4_lipschitz": lambda rng: theory.section_4_lipschitz(
        rng.random((2, 3)), rng.random(3), rng.random((2, 3)), whole=rng.random(2)
    ),
    "section_4_norms": _norms,
    "section_4_rademacher": _rademacher,
    "section_6_legendre": lambda rng: theory.section_6_legendre(
        np.sort(rng.choice(np.arange(17, 128), 20, replace=False)), dim=8, length=16
    ),
    "section_6_wavelet": lambda rng: theory.section_6_wavelet(
        np.sort(rng.choice(np.arange(17, 128), 20, replace=False)), dim=8, length=16
    ),
    "stationary_squared_distances": lambda rng: theory.stationary_squared_distances(
        LENGTH, scale=rng.random()
    ),
    "strain": lambda rng: theory.strain(normal(rng, LENGTH, 2), symmetric(rng)),
    "theorem_1": lambda rng: theory.theorem_1(
        running_sums,
        rng.integers(0, 9, (3, LENGTH), dtype=np.int32),
        np.stack([rng.permutation(LENGTH) for _ in range(2)]),
    ),
    "theorem_4": _theorem_4,
    "total_variation": lambda rng: theory.total_variation(mu(rng)),
    "total_variation_bound": lambda rng: theory.total_variation_bound(rng.random(3)),
    "unexplained_by_offset": lambda rng: theory.unexplained_by_offset(symmetric(rng)),
    "verdict": lambda rng: theory.verdict(theory.remark_20(symmetric(rng))),
}

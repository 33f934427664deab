"""Rows of `jaxpe.spectral`."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import encodings, spectral
from jaxpe.spectral.contraction import amplitude
from jaxpe.spectral.decomposition import LogitParts, pair_logits
from jaxpe.spectral.norms import operator_norm, spectral_norm
from jaxpe.spectral.profile import (
    attention_distance,
    attention_entropy,
    attention_evenness,
    first_share,
    near_share,
)
from jaxpe.spectral.toeplitz import symmetric_part
from tests.cases.base import Case, N, total

ROPE = encodings.rope(head_dim=4)
XPOS = encodings.xpos(head_dim=4)


def _square(rng):
    return (rng.standard_normal((N, N)),)


def _two_squares(rng):
    return (*_square(rng), *_square(rng))


def _masked(rng):
    return *_square(rng), np.tri(N, dtype=bool)


def _diagonals(rng):
    return (rng.standard_normal(2 * N - 1),)


def _weights(rng):
    return (rng.dirichlet(np.ones(N), (2, N)),)


def _heads(rng):
    q, k = (rng.standard_normal((N, 2, 4)) for _ in range(2))
    return q, k, rng.integers(0, 99, N, dtype=np.int32)


def _parts(rng):
    return tuple(rng.standard_normal((3, 2, N, N)) for _ in range(5))


def _means(*parts):
    return spectral.sum_parts(LogitParts(*parts), causal=True).means()


def _logit_parts(q, k, i):
    return spectral.logit_parts(XPOS, (), q, q, k, k, q_positions=i, k_positions=i)


def _ablated(w):
    def score(gates):
        return jnp.sum(gates * w.astype(gates.dtype))

    return spectral.ablate_heads(score, layers=2, heads=3)


def _squares(z):
    return total((z.real, z.imag))


def _pair_logits(q, k, i):
    return pair_logits(ROPE, (), q, k, q_positions=i, k_positions=i)


SPECTRAL: dict[str, Case] = {
    "diagonal_means": Case(lambda A, m: spectral.diagonal_means(A, mask=m), _masked, total),
    "toeplitz_matrix": Case(spectral.toeplitz_matrix, _diagonals, total),
    "symbol": Case(
        spectral.symbol, lambda rng: (*_diagonals(rng), rng.standard_normal(4)), _squares
    ),
    "szego": Case(lambda t: spectral.szego(t, n=N), _diagonals),
    "szego_singular": Case(lambda t: spectral.szego(t, n=3, kind="singular"), _diagonals),
    "symmetric_part": Case(symmetric_part, _square, total),
    "spectrum": Case(lambda A, m: spectral.spectrum(A, mask=m), _masked),
    "spectrum_singular": Case(lambda A: spectral.spectrum(A, kind="singular"), _square),
    "schur_bounds": Case(lambda A, B: spectral.schur_bounds(A, B), _two_squares),
    "contraction_ratio": Case(spectral.contraction_ratio, _two_squares),
    "phase_mixing": Case(
        spectral.phase_mixing, lambda rng: (*_diagonals(rng), np.asarray(rng.random())), total
    ),
    "amplitude": Case(amplitude, _diagonals),
    "spectral_norm": Case(spectral_norm, lambda rng: (rng.standard_normal((2, N, 3)),)),
    "operator_norm": Case(
        lambda x: operator_norm(jnp.sin, x, key=jax.random.key(0), max_iterations=30),
        lambda rng: (rng.standard_normal(N),),
    ),
    "attention_profile": Case(
        lambda w, m: spectral.attention_profile(w, mask=m),
        lambda rng: (*_weights(rng), np.tri(N, dtype=bool)),
        total,
    ),
    "attention_entropy": Case(attention_entropy, _weights, total),
    "attention_evenness": Case(attention_evenness, _weights, total),
    "attention_distance": Case(
        lambda w, i: attention_distance(w, q_positions=i, k_positions=i),
        lambda rng: (*_weights(rng), rng.integers(0, 99, N, dtype=np.int32)),
        total,
    ),
    "near_share": Case(lambda w: near_share(w, window=1), _weights, total),
    "first_share": Case(first_share, _weights, total),
    "deposit": Case(spectral.deposit, lambda rng: (rng.standard_normal((3, 2, 4)),)),
    "sum_heads": Case(
        lambda h, m: spectral.sum_heads(h, m).mean,
        lambda rng: (rng.standard_normal((2, 3, N, 2, 4)), rng.random((3, N)) < 0.8),
    ),
    "ablate_heads": Case(_ablated, lambda rng: (rng.standard_normal((2, 3)),)),
    "logit_parts": Case(_logit_parts, _heads),
    "pair_logits": Case(_pair_logits, _heads, total),
    "sum_parts": Case(_means, _parts),
    "toeplitz_shares": Case(lambda *parts: spectral.toeplitz_shares(_means(*parts)), _parts),
}

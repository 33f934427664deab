"""Limits of options, sizes in the catalogue, and choices by size: a case on each side."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import EncodingSizes, encodings
from jaxpe.encodings import CatalogueEntry, Encoding, encoding_generalisation
from jaxpe.encodings.analysis.length_extrapolation import extrapolation
from jaxpe.encodings.analysis.power_law import power_laws
from jaxpe.encodings.families.rope_scaling import SCALINGS
from jaxpe.encodings.families.rotary import _default_sections, _half_fraction
from jaxpe.encodings.implementations import Call, chosen_implementation, default_block_size
from jaxpe.encodings.registry import short_window

ROPE = jaxpe.rope(head_dim=4)
HEADS = {"num_heads": 2}
# A constructor, options at the limit of what is allowed, and options just beyond.
LIMITS = [
    (partial(encodings.rerope, ROPE, window=2), {"leak": 0.999}, {"leak": 1.0}),
    (partial(encodings.rerope, ROPE, window=2), {"leak": 0.0}, {"leak": -1e-9}),
    (
        partial(encodings.rerope, ROPE, window=2),
        {"training_length": 2},
        {"training_length": 1},
    ),
    (partial(encodings.self_extend, ROPE), {"window": 4, "group": 4}, {"window": 5, "group": 4}),
    (partial(encodings.dual_chunk, ROPE, chunk=2), {"local": 1}, {"local": 2}),
    (partial(encodings.dual_chunk, ROPE, chunk=2), {"local": 0}, {"local": -1}),
    (
        partial(encodings.golden_gate_rope, head_dim=8, num_heads=1),
        {"zero_share": 0.75},
        {"zero_share": 1.0},
    ),
    # Of 4 buckets, 2 are of single distances: the others need another end.
    (
        partial(encodings.deberta, num_heads=1, head_dim=2, num_buckets=4),
        {"max_distance": 4},
        {"max_distance": 3},
    ),
    (partial(encodings.deberta, num_heads=1, head_dim=2), {"num_buckets": 4}, {"num_buckets": 2}),
    # Of 32 buckets 16 are for each side, and 8 of these of single distances.
    (partial(jaxpe.t5, **HEADS), {"max_distance": 9}, {"max_distance": 8}),
    (partial(jaxpe.t5, **HEADS), {"num_buckets": 4}, {"num_buckets": 2}),
    (
        partial(jaxpe.t5, bidirectional=False, **HEADS),
        {"num_buckets": 2},
        {"num_buckets": 1},
    ),
    (partial(jaxpe.alibi, **HEADS), {"slopes": 0.0}, {"slopes": -1e-9}),
    (partial(jaxpe.alibi, learnable=True, **HEADS), {"slopes": 1e-9}, {"slopes": 0.0}),
    (partial(encodings.tapa, head_dim=4), {"amplitude_share": 0.75}, {"amplitude_share": 0.9}),
    (partial(encodings.tapa, head_dim=4), {"amplitude_share": 0.25}, {"amplitude_share": 0.1}),
    (encodings.position_temperature, {"scale": 0.0}, {"scale": -1e-9}),
    (partial(jaxpe.low_rank, length=5, dim=3), {"rank": 3}, {"rank": 4}),
    (partial(jaxpe.from_matrix, np.ones((2, 3))), {"dim": 3}, {"dim": 2}),
    (partial(encodings.liere, head_dim=4), {"block": 2}, {"block": 1}),
    (partial(encodings.mixed_rope, num_heads=1), {"head_dim": 4}, {"head_dim": 2}),
    (partial(jaxpe.mrope, head_dim=4), {"sections": (2, 0, 0)}, {"sections": (3, -1, 0)}),
    (partial(encodings.per_head, [ROPE, ROPE]), {"heads": [1, 1]}, {"heads": [0, 2]}),
    (
        partial(encodings.interleaved_layers, ROPE, ROPE),
        {"period": 1},
        {"period": 0},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "allowed", "refused"), LIMITS)
def test_options_at_and_beyond_their_limits(make, allowed, refused):
    make(**allowed)
    with pytest.raises(ValueError, match=r"pass|must"):
        make(**refused)


def test_sizes_of_the_catalogue():
    assert [short_window(n) for n in (1, 7, 8, 24, 400)] == [1, 1, 2, 6, 8]
    assert EncodingSizes() == (512, 8, 64, 512)
    assert [_half_fraction(n) for n in (2, 8, 12)] == [1.0, 0.5, 0.5]
    assert _default_sections(64) == (16, 24, 24)  # Qwen2-VL
    assert [sum(_default_sections(n)) for n in (1, 2, 3, 5)] == [1, 2, 3, 5]


# How many of 32 frequencies 10,000^(−k/32) change from 512 to 2,048 positions, and by what.
BY_KIND = {
    "linear": (32, 4, 4),
    "ntk": (31, 1, 4),
    "dynamic": (31, 1, 4),
    "ntk_by_parts": (28, 1, 4),  # 32 turns in 512 positions at k = 3.2
    "yarn": (28, 1, 4),
    "llama3": (21, 1, 4),  # 4 turns at k = 10.5
    "longrope": (31, 1, 4),
    "proportional": (8, 1, np.inf),
}


@pytest.mark.parametrize("kind", BY_KIND)
def test_scalings_of_the_catalogue_extend_the_length_four_times(kind):
    scaling = SCALINGS[kind][1](EncodingSizes(length=512))
    omega = encodings.rope_frequencies(head_dim=64, scaling=scaling, length=2048).inverse
    with np.errstate(divide="ignore"):
        divisors = 10_000.0 ** (-np.arange(32) / 32) / np.asarray(omega)
    found = ((np.abs(divisors - 1) > 1e-9).sum(), divisors.min(), divisors.max())
    np.testing.assert_allclose(found, BY_KIND[kind])


def test_implementations_are_chosen_by_size():
    row_wise = Encoding(weights=lambda *_: None)

    def chosen(n_q, n_k, encoding=jaxpe.identity()):  # noqa: B008
        names = []

        def attend(q, k):
            names.append(chosen_implementation(encoding, Call(q, k, k, None, None), None))

        jax.eval_shape(attend, *(jax.ShapeDtypeStruct((n, 1, 1), "float32") for n in (n_q, n_k)))
        return names[0]

    assert [chosen(256, 256), chosen(257, 256)] == ["dense", "blocks"]
    assert [chosen(16, 10**5), chosen(17, 10**5)] == ["dense", "blocks"]
    assert chosen(8192, 8192, row_wise) == "dense"
    with pytest.raises(ValueError, match="implementation='dense'"):
        chosen(8193, 8192, row_wise)
    assert [default_block_size(n) for n in (1, 1024, 2048, 10**5)] == [128, 128, 256, 512]


def test_a_quarter_of_length_1_is_enough_to_measure_growth():
    (law,) = power_laws(lambda sizes: [sizes.length**2 * sizes.dim], EncodingSizes(length=4))
    assert law[1:] == (1.0, 2.0)


def test_a_query_is_among_its_own_keys():
    """A bias of 3 on the diagonal and of 1 elsewhere."""

    def bias(params, q, k, i, j):
        return jnp.where(i[None, :, None] == j[None, None, :], 3.0, 1.0)

    entry = CatalogueEntry("diagonal", "bias", lambda sizes: Encoding(bias=bias))
    assert encoding_generalisation(entry, sizes=EncodingSizes(4, 1, 4, 4)).bias == 3.0


def test_the_step_out_of_the_length_is_none_within_it():
    rows = np.array([0.0, 1.0, 2.0, 3.0, *(3.01 + np.arange(28))])[:, None]
    found = extrapolation(rows, length=4)
    assert found.stretches[0].smallest == pytest.approx(1.0)
    assert found.reach == 1.0

"""Sizes in the catalogue, and choices by size: a case on each side."""

import jax
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.encodings import Encoding, EncodingSizes
from jaxpe.encodings.families.rope_scaling import SCALINGS
from jaxpe.encodings.families.rotary import _default_sections, _half_fraction
from jaxpe.encodings.implementations import Call, chosen_implementation, default_block_size


def test_sizes_of_the_catalogue():
    assert [EncodingSizes(length=n).window for n in (1, 7, 8, 24, 400)] == [1, 1, 2, 6, 8]
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
    row_wise = Encoding(whole_rows=True)

    def chosen(n_q, n_k, encoding=encodings.identity()):
        names = []

        def attend(q, k):
            names.append(chosen_implementation(encoding, Call(q, k, k, None, None), None))

        jax.eval_shape(attend, *(jax.ShapeDtypeStruct((n, 1, 1), "float32") for n in (n_q, n_k)))
        return names[0]

    assert [chosen(512, 512), chosen(513, 512)] == ["dense", "blocks"]
    assert [chosen(16, 10**5), chosen(17, 10**5)] == ["dense", "blocks"]
    assert chosen(8192, 8192, row_wise) == "dense"
    with pytest.raises(ValueError, match="implementation='dense'"):
        chosen(8193, 8192, row_wise)
    sizes = (1, 1024, 2048, 10**5)
    assert [default_block_size(n, pairs=True) for n in sizes] == [128, 128, 256, 512]

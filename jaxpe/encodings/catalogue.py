"""Every encoding in one table; `properties.py` computes what can be said about each of them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxpe.encodings import absolute, bias, orthogonal, relative, rotary
from jaxpe.encodings.base import Encoding, identity
from jaxpe.geometry import PositionCounts, count_tokens


class EncodingSizes(NamedTuple):
    """The model an encoding is built for.

    Attributes:
        dim: width of the token embeddings.
        num_heads: attention heads.
        head_dim: width of a head.
        length: positions of the training context.
    """

    dim: int = 512
    num_heads: int = 8
    head_dim: int = 64
    length: int = 512


class CatalogueEntry(NamedTuple):
    """A row of the catalogue.

    Attributes:
        name: as in reports and on the command line.
        family: absolute, orthogonal, rotary, bias or relative: the file it is in.
        make: builds the encoding for given sizes, with defaults otherwise.
        source: who proposed it.
        vectors: what its position vectors are; empty where it has none.
        coordinates: of a position; 1 unless positions are `[..., n, coordinates]`.
        fitted: whether it is made from a corpus.
    """

    name: str
    family: str
    make: Callable[[EncodingSizes], Encoding]
    source: str
    vectors: str = ""
    coordinates: int = 1
    fitted: bool = False


def _some_counts(sizes: EncodingSizes) -> PositionCounts:
    """Counts of made-up documents whose words drift with position, for `information_optimal`."""
    rng = np.random.default_rng(0)
    place = np.arange(sizes.length) / max(sizes.length - 1, 1)
    ids = (place + 0.3 * rng.random((64, sizes.length))) * 49 / 1.3
    return count_tokens(ids.astype(np.int32), vocab_size=50)


CATALOGUE: tuple[CatalogueEntry, ...] = (
    CatalogueEntry("none", "absolute", lambda s: identity(), "Haviv et al. (2022)"),
    CatalogueEntry(
        "sinusoidal",
        "absolute",
        lambda s: absolute.sinusoidal(dim=s.dim),
        "Vaswani et al. (2017)",
        "its vectors (base 10,000)",
    ),
    CatalogueEntry(
        "learned",
        "absolute",
        lambda s: absolute.learned(length=s.length, dim=s.dim),
        "Gehring et al. (2017)",
        "its table, at initialisation N(0, 0.02²)",
    ),
    CatalogueEntry(
        "random",
        "absolute",
        lambda s: absolute.random_fixed(length=s.length, dim=s.dim),
        "Cirrincione (2026)",
        "N(0, 1)",
    ),
    CatalogueEntry(
        "fourier",
        "absolute",
        lambda s: absolute.fourier(dim=s.dim),
        "Rahimi & Recht (2007)",
        "cos and sin of random frequencies",
    ),
    CatalogueEntry(
        "information_optimal",
        "absolute",
        lambda s: absolute.information_optimal(_some_counts(s), dim=s.dim),
        "Cirrincione (2026)",
        "classical MDS of the corpus",
        fitted=True,
    ),
    CatalogueEntry(
        "low_rank",
        "absolute",
        lambda s: absolute.low_rank(length=s.length, dim=s.dim, rank=min(16, s.length, s.dim)),
        "Cirrincione (2026)",
        "the product A Bᵀ of rank 16, at random initialisation",
    ),
    CatalogueEntry(
        "legendre",
        "orthogonal",
        lambda s: orthogonal.legendre(dim=s.dim, length=s.length),
        "Li (2025)",
        "P_k of tanh(i/L)",
    ),
    CatalogueEntry(
        "legendre_clipped",
        "orthogonal",
        lambda s: orthogonal.legendre(dim=s.dim, length=s.length, position_map="clipped"),
        "Li (2025)",
        "P_k of positions mapped linearly to [−1, 1]",
    ),
    CatalogueEntry(
        "legendre_log",
        "orthogonal",
        lambda s: orthogonal.legendre(dim=s.dim, length=s.length, position_map="log"),
        "Li (2025)",
        "P_k of the logarithm of positions",
    ),
    CatalogueEntry(
        "chebyshev",
        "orthogonal",
        lambda s: orthogonal.chebyshev(dim=s.dim, length=s.length, position_map="clipped"),
        "jaxpe",
        "T_k of positions mapped linearly to [−1, 1]",
    ),
    CatalogueEntry(
        "cosine",
        "orthogonal",
        lambda s: orthogonal.cosine(dim=s.dim, length=s.length),
        "Ahmed et al. (1974)",
        "orthonormal DCT-II basis",
    ),
    CatalogueEntry(
        "wavelet",
        "orthogonal",
        lambda s: orthogonal.wavelet(dim=s.dim, length=s.length),
        "Li (2025)",
        "Daubechies-4 wavelets, rows of unit length",
    ),
    CatalogueEntry(
        "rope",
        "rotary",
        lambda s: rotary.rope(head_dim=s.head_dim),
        "Su et al. (2021)",
        "orbit of a vector with unit pairs",
    ),
    CatalogueEntry(
        "rope_partial",
        "rotary",
        lambda s: rotary.rope(head_dim=s.head_dim, fraction=_about_half(s.head_dim)),
        "Wang & Komatsuzaki (2021)",
        "orbit of a vector with unit pairs, half of them turning",
    ),
    CatalogueEntry(
        "xpos", "rotary", lambda s: rotary.xpos(head_dim=s.head_dim), "Sun et al. (2022)"
    ),
    CatalogueEntry(
        "axial_rope",
        "rotary",
        lambda s: rotary.axial_rope(head_dim=s.head_dim),
        "Heo et al. (2024)",
        "orbit of a vector with unit pairs",
        coordinates=2,
    ),
    CatalogueEntry(
        "mrope",
        "rotary",
        lambda s: rotary.mrope(head_dim=s.head_dim, sections=_thirds(s.head_dim // 2)),
        "Wang et al. (2024)",
        "orbit of a vector with unit pairs",
        coordinates=3,
    ),
    CatalogueEntry(
        "alibi",
        "bias",
        lambda s: bias.alibi(num_heads=s.num_heads),
        "Press et al. (2022)",
        "a line",
    ),
    CatalogueEntry("t5", "bias", lambda s: bias.t5(num_heads=s.num_heads), "Raffel et al. (2020)"),
    CatalogueEntry(
        "kerple_log", "bias", lambda s: bias.kerple(num_heads=s.num_heads), "Chi et al. (2022)"
    ),
    CatalogueEntry(
        "kerple_power",
        "bias",
        lambda s: bias.kerple(num_heads=s.num_heads, kind="power"),
        "Chi et al. (2022)",
    ),
    CatalogueEntry("fire", "bias", lambda s: bias.fire(num_heads=s.num_heads), "Li et al. (2024)"),
    CatalogueEntry(
        "cope",
        "bias",
        lambda s: bias.cope(head_dim=s.head_dim, max_positions=64),
        "Golovneva et al. (2024)",
    ),
    CatalogueEntry(
        "shaw",
        "relative",
        lambda s: relative.shaw(head_dim=s.head_dim, max_distance=16),
        "Shaw et al. (2018)",
    ),
    CatalogueEntry(
        "transformer_xl",
        "relative",
        lambda s: relative.transformer_xl(num_heads=s.num_heads, head_dim=s.head_dim),
        "Dai et al. (2019)",
    ),
)


def catalogue(*names: str) -> tuple[CatalogueEntry, ...]:
    """The entries of these names, or all.

    Raises:
        ValueError: for a name that is not in the catalogue.

    >>> [entry.family for entry in catalogue("rope", "t5")]
    ['rotary', 'bias']
    """
    known = {entry.name: entry for entry in CATALOGUE}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no encoding {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(known[name] for name in names) if names else CATALOGUE


def _about_half(head_dim: int) -> float:
    """The fraction nearest to a half that turns whole pairs."""
    return max(2 * round(head_dim / 4), 2) / head_dim


def _thirds(pairs: int) -> tuple[int, int, int]:
    """Sections of time, height and width, as Qwen2-VL's (16, 24, 24) of 64."""
    rest = pairs - pairs // 4
    return (pairs - 2 * (rest // 2), rest // 2, rest // 2)

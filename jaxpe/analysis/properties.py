"""What is computed of every encoding of the catalogue."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import LARGEST_SIZE, check_range
from jaxpe.encodings import CatalogueEntry, EncodingProperties, EncodingSizes
from jaxpe.encodings.beyond import encoding_extrapolation
from jaxpe.encodings.expressiveness import Expressiveness, encoding_expressiveness
from jaxpe.encodings.growth import BIAS_SCALES, encoding_cost, encoding_generalisation
from jaxpe.encodings.properties import TRIED, encoding_properties

About = Literal["overview", "expressiveness", "generalisation", "extrapolation", "cost"]


class Told(NamedTuple):
    """What Table 1 of Li (2025) asks of an encoding."""

    properties: EncodingProperties
    expressiveness: Expressiveness


def property_rows(about: About, entry: CatalogueEntry, sizes: EncodingSizes) -> Any:
    """What the table computes of one encoding.

    >>> from jaxpe.encodings import catalogue
    >>> alibi, = catalogue("alibi")
    >>> property_rows("cost", alibi, EncodingSizes(16, 2, 8, 32)).flops.length
    1.0
    """
    return _COMPUTED[about](entry, sizes=sizes)


def _told(entry: CatalogueEntry, *, sizes: EncodingSizes) -> Told:
    properties = encoding_properties(entry, sizes=sizes)
    return Told(properties, encoding_expressiveness(entry, sizes=sizes))


_COMPUTED: dict[About, Callable[..., Any]] = {
    "overview": encoding_properties,
    "expressiveness": _told,
    "generalisation": encoding_generalisation,
    "extrapolation": encoding_extrapolation,
    "cost": encoding_cost,
}


def check_sizes(sizes: EncodingSizes, *, about: str = "overview") -> None:
    """Refuse sizes that some encoding cannot have, or that do not fit; raises `InputError`."""
    for option, value in zip(("dim", "heads", "head-dim", "length"), sizes, strict=True):
        check_range(f"--{option}", value, least=1, most=LARGEST_SIZE)
    if sizes.dim % 2:
        raise InputError(f"`dim` must be even, not {sizes.dim}: frequencies come in pairs")
    if sizes.head_dim % 4:
        raise InputError(
            f"`head_dim` must be a multiple of 4, not {sizes.head_dim}: half of a head, or each of "
            "two axes, turns in pairs"
        )
    if sizes.length < 2 * TRIED:
        raise InputError(
            f"`length` must be at least {2 * TRIED}, not {sizes.length}: properties are tried on "
            f"{TRIED} tokens in it"
        )
    dim, heads, head_dim, length = sizes
    check_bytes(
        _needed_bytes(sizes, about),
        what=f"`dim={dim}`, `heads={heads}`, `head_dim={head_dim}`, `length={length}`",
        remedy="pass smaller ones",
    )


def _needed_bytes(sizes: EncodingSizes, about: str) -> int:
    """The least that trying an encoding takes: its table, and what it is tried on."""
    width = sizes.num_heads * sizes.head_dim
    tables = 3 * 8 * sizes.length * sizes.dim
    if about in ("overview", "expressiveness"):
        return tables + (8 + 4) * 3 * 2 * sizes.dim * width  # projections, drawn and rounded
    if about == "generalisation":
        return tables + (8 + 4) * BIAS_SCALES[-1] * sizes.length * width  # keys
    return tables

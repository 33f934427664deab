"""The properties job: computed properties of every encoding of the catalogue, as a table."""

import dataclasses
from typing import Literal, NamedTuple

from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import check_ranges, option
from jaxpe._core.progress import SILENT, Progress
from jaxpe.encodings import EncodingSizes
from jaxpe.encodings.analysis.properties import TRIED, EncodingProperties
from jaxpe.encodings.entries import own_encoding_errors

About = Literal["names", "overview"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PropertyOptions:
    """List the positional encodings, or print computed properties of each.

    Attributes:
        names: encodings to show; all when none is named. One of your own is my_module:my_encoding.
        about: table to print. names: names and sources, at once. overview: parameters,
            information, positions beyond the length and cost, computed in two minutes.
        dim: width of the token embeddings.
        heads: attention heads.
        head_dim: width of a head.
        length: training length, in positions.
    """

    names: tuple[str, ...] = ()
    about: About = "names"
    dim: int = option(512, least=1)
    heads: int = option(8, least=1)
    head_dim: int = option(64, least=1)
    length: int = option(512, least=2 * TRIED)  # properties are tested on TRIED tokens within it

    @property
    def sizes(self) -> EncodingSizes:
        """Sizes of the model."""
        return EncodingSizes(self.dim, self.heads, self.head_dim, self.length)


class NameRow(NamedTuple):
    """Catalogue entry of an encoding, without computed properties."""

    name: str
    family: str
    vectors: str
    source: str


class PropertyTable(NamedTuple):
    """Computed properties of encodings.

    Attributes:
        about: name of the table.
        sizes: sizes of the model for which encodings were built.
        encodings: a row for each encoding, of the type for `about`.
    """

    about: About
    sizes: EncodingSizes
    encodings: tuple[NameRow | EncodingProperties, ...]


def tabulate(options: PropertyOptions, *, progress: Progress = SILENT) -> PropertyTable:
    """Compute the properties of encodings by name.

    Args:
        options: encodings, table, and sizes of the model.
        progress: receiver of progress.

    Raises:
        InputError: an unknown name, or sizes that some encoding does not allow.

    >>> small = {"dim": 16, "heads": 2, "head_dim": 8, "length": 32}
    >>> table = tabulate(PropertyOptions(names=("alibi",), about="overview", **small))
    >>> table.encodings[0].beyond
    'told apart'
    """
    entries = encodings.catalogue(*options.names)
    _check_sizes(options)
    rows: list[NameRow | EncodingProperties] = []
    for index, entry in enumerate(progress.track(entries, "encodings")):
        if options.about == "names":
            rows.append(NameRow(entry.name, entry.family, entry.vectors, entry.source))
            continue
        with own_encoding_errors(options.names[index] if options.names else entry.name):
            rows.append(encodings.encoding_properties(entry, sizes=options.sizes))
    return PropertyTable(options.about, options.sizes, tuple(rows))


def _check_sizes(options: PropertyOptions) -> None:
    """Raise `InputError` for sizes that some encoding does not allow, or beyond memory."""
    check_ranges(options)
    if options.dim % 2:
        raise InputError(f"`dim` must be even, not {options.dim}: frequencies come in pairs")
    if options.head_dim % 4:
        raise InputError(
            f"`head_dim` must be a multiple of 4, not {options.head_dim}: half of a head, or each "
            "of two axes, turns in pairs"
        )
    sizes = ", ".join(
        f"`{name}={getattr(options, name)}`" for name in ("dim", "heads", "head_dim", "length")
    )
    check_bytes(_needed_bytes(options), what=sizes, remedy="pass smaller ones")


def _needed_bytes(options: PropertyOptions) -> int:
    """Lower bound of the bytes to try an encoding: its table and the projections, in float64."""
    width = options.heads * options.head_dim
    table = 8 * options.length * options.dim
    return table if options.about == "names" else table + 8 * 3 * 2 * options.dim * width

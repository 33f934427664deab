"""The properties job: computed properties of every encoding of the catalogue, as a table."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import check_ranges, option
from jaxpe._core.progress import SILENT, Progress
from jaxpe.encodings import CatalogueEntry, EncodingProperties, EncodingSizes, PowerLaw
from jaxpe.encodings.analysis.generalisation import BIAS_SCALES
from jaxpe.encodings.analysis.length_extrapolation import Stretch
from jaxpe.encodings.analysis.properties import TRIED
from jaxpe.encodings.entries import own_encoding_errors

About = Literal["names", "overview", "expressiveness", "generalisation", "extrapolation", "cost"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PropertyOptions:
    """List the positional encodings, or print computed properties of each.

    Attributes:
        names: encodings to show; all when none is named. One of your own is my_module:my_encoding.
        about: table to print. names: names and sources, at once. The others are computed, in about
            a minute. overview: parameters, information and cost; expressiveness: sequences that
            transformers can represent; generalisation: terms of bounds; extrapolation: positions
            beyond the length; cost: growth of the cost.
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


class ExpressivenessRow(NamedTuple):
    """Properties of an encoding that Table 1 of Li (2025) lists."""

    name: str
    properties: EncodingProperties
    expressiveness: encodings.Expressiveness


class GeneralisationRow(NamedTuple):
    """An encoding and its `GeneralisationTerms`."""

    name: str
    norm: PowerLaw
    bias: float
    bias_beyond: float
    parameters: PowerLaw


class ExtrapolationRow(NamedTuple):
    """An encoding and its `LengthExtrapolation`."""

    name: str
    stretches: tuple[Stretch, ...]
    reach: float


class CostRow(NamedTuple):
    """An encoding and its `EncodingCost`."""

    name: str
    flops: PowerLaw
    looped: bool


Row = (
    NameRow
    | EncodingProperties
    | ExpressivenessRow
    | GeneralisationRow
    | ExtrapolationRow
    | CostRow
)


class PropertyTable(NamedTuple):
    """Computed properties of encodings.

    Attributes:
        about: name of the table.
        sizes: sizes of the model for which encodings were built.
        encodings: a row for each encoding, of the type for `about`.
    """

    about: About
    sizes: EncodingSizes
    encodings: tuple[Row, ...]


def tabulate(options: PropertyOptions, *, progress: Progress = SILENT) -> PropertyTable:
    """Compute the properties of encodings by name.

    Args:
        options: encodings, table, and sizes of the model.
        progress: receiver of progress.

    Raises:
        InputError: an unknown name, or sizes that some encoding does not allow.

    >>> small = {"dim": 16, "heads": 2, "head_dim": 8, "length": 32}
    >>> table = tabulate(PropertyOptions(names=("alibi",), about="cost", **small))
    >>> table.encodings[0].flops.length
    1.0
    """
    entries = encodings.catalogue(*options.names)
    _check_sizes(options)
    compute = _ROWS[options.about]
    rows = []
    for index, entry in enumerate(progress.track(entries, "encodings")):
        with own_encoding_errors(options.names[index] if options.names else entry.name):
            rows.append(compute(entry, options.sizes))
    return PropertyTable(options.about, options.sizes, tuple(rows))


def _expressiveness(entry: CatalogueEntry, sizes: EncodingSizes) -> ExpressivenessRow:
    properties = encodings.encoding_properties(entry, sizes=sizes)
    expressiveness = encodings.encoding_expressiveness(entry, sizes=sizes)
    return ExpressivenessRow(entry.name, properties, expressiveness)


def _named_row(row: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    """Function from an encoding to a row: its name and computed properties."""
    return lambda entry, sizes: row(entry.name, **compute(entry, sizes=sizes)._asdict())


_ROWS: Mapping[About, Callable[[CatalogueEntry, EncodingSizes], Any]] = {
    "names": lambda entry, _: NameRow(entry.name, entry.family, entry.vectors, entry.source),
    "overview": lambda entry, sizes: encodings.encoding_properties(entry, sizes=sizes),
    "expressiveness": _expressiveness,
    "generalisation": _named_row(GeneralisationRow, encodings.encoding_generalisation),
    "extrapolation": _named_row(ExtrapolationRow, encodings.encoding_extrapolation),
    "cost": _named_row(CostRow, encodings.encoding_cost),
}


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
    """Lower bound of the bytes to try an encoding: its table and its inputs."""
    width = options.heads * options.head_dim
    tables = 3 * 8 * options.length * options.dim
    if options.about in ("overview", "expressiveness"):
        return tables + (8 + 4) * 3 * 2 * options.dim * width  # projections, drawn and rounded
    if options.about == "generalisation":
        return tables + (8 + 4) * BIAS_SCALES[-1] * options.length * width  # keys
    return tables

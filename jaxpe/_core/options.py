"""Options of jobs: what several share, stated once; their ranges; their command line."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError

LARGEST_SEED = 2**32 - 1  # a larger seed has the key of a smaller one
MOST_STEPS = 2**31 - 1  # largest value of a 32-bit counter
LARGEST_FLOAT = 1e30  # close to the largest float32
LARGEST_SIZE = 2**31 - 1  # largest size of an axis of an array
DEFAULT_SPLITS = 8  # halvings of a corpus
EmptyPolicy = Literal["drop", "uniform", "zero", "error"]  # treatment of positions without tokens
_LENGTH = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)([km]?)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20}


def check_range(
    name: str,
    value: int | float | None,
    *,
    least: int | float | None = None,
    most: int | float | None = None,
) -> None:
    """Raise `InputError` for a number out of range; None passes, and NaN never does.

    >>> check_range("steps", 0, least=1)
    Traceback (most recent call last):
    jaxpe.InputError: `steps` is 0; pass at least 1
    """
    if value is None:
        return
    if least is not None and not value >= least:
        raise InputError(f"`{name}` is {value}; pass at least {least:,}")
    if most is not None and not value <= most:
        raise InputError(f"`{name}` is {value}; pass at most {most:,}")


def option(default: Any, **limits: int | float) -> Any:
    """Field of an options class whose numbers, or those of a tuple, are limited.

    Args:
        default: default value; None passes the check.
        limits: of `least`, `most`, `above` and `below`. An integer is at most LARGEST_SIZE, and a
            float at most LARGEST_FLOAT, unless `most` or `below` says otherwise.
    """
    return dataclasses.field(default=default, metadata=limits)


def check_ranges(options: Any, prefix: str = "") -> None:
    """Raise `InputError` for the first number that exceeds the limits of its `option`.

    >>> @dataclasses.dataclass
    ... class Sizes:
    ...     rates: tuple[float, ...] = option((0.1,), above=0)
    >>> check_ranges(Sizes(rates=(0.1, 0.0)))
    Traceback (most recent call last):
    jaxpe.InputError: `rates` is 0.0; pass more than 0
    """
    for field in dataclasses.fields(options):
        name, value, limits = prefix + field.name, getattr(options, field.name), field.metadata
        if dataclasses.is_dataclass(value):
            check_ranges(value, f"{name}.")
        for number in value if isinstance(value, tuple) else (value,):
            if not limits or not isinstance(number, int | float):
                continue
            largest = LARGEST_SIZE if isinstance(number, int) else LARGEST_FLOAT
            above, below = limits.get("above"), limits.get("below")
            if above is not None and not number > above:
                raise InputError(f"`{name}` is {number}; pass more than {above:,}")
            if below is not None and not number < below:
                raise InputError(f"`{name}` is {number}; pass less than {below:,}")
            most = limits.get("most", largest)
            check_range(name, number, least=limits.get("least"), most=most)


def check_seed(name: str, value: int) -> None:
    """Raise `InputError` for a random seed outside [0, 2**32)."""
    check_range(name, value, least=0, most=LARGEST_SEED)


def parse_length(name: str, text: str) -> int:
    """Parse a length such as 131,072 or 128k; k is 1,024, m is 1,048,576.

    >>> parse_length("length", "128k"), parse_length("length", "131,072")
    (131072, 131072)
    >>> parse_length("length", "1.5k")
    Traceback (most recent call last):
    jaxpe.InputError: `length` is 1.5k; pass a whole number, with k for 1,024 or m for 1,048,576
    """
    match = _LENGTH.fullmatch(text) if len(text) < 30 else None  # int() refuses 4,300 digits
    if match is None:
        raise InputError(
            f"`{name}` is {text}; pass a whole number, with k for 1,024 or m for 1,048,576"
        )
    return int(re.sub("[,_]", "", match[1])) * _UNITS[match[2].lower()]


class Choice(NamedTuple):
    """Automatic choice of a setting that the user did not pass.

    Attributes:
        setting: name of the setting.
        value: value that was chosen.
        why: rule of the choice.
        how: way to set it; arguments are in backticks.

    >>> Choice("length", "64", "5 % of the documents are as long", "pass `length`").value
    '64'
    """

    setting: str
    value: str
    why: str
    how: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """Options of reading documents.

    Attributes:
        tokenizer: words, characters, kmer:3, codons, bytes, or a path: BERT vocab.txt,
            tokenizer.json or .gguf; when absent words, for text with spaces between words, and
            characters for FASTA and FASTQ.
        text_field: column or key with the text, in files with columns.
        skip_nulls: leave out rows whose text is null or missing, and count them.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
        seed: random seed.
    """

    tokenizer: str | None = None
    text_field: str | None = None
    skip_nulls: bool = False
    data_dir: Path | None = None
    seed: int = option(0, least=0, most=LARGEST_SEED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(Reading):
    """Documents, and how they are read.

    Attributes:
        source: stdlib, synthetic, sst2, imdb, or one or several paths and patterns (in quotes) of
            files, folders and datasets that `jaxpe.load_corpus` reads, such as .txt, .csv, .jsonl,
            .parquet or .fasta, or - for lines on standard input. In a .csv, quotation marks quote
            fields; rename a .tsv to have it read so.
        length: number of positions; from the corpus or the model when absent.
    """

    source: str | tuple[str, ...] = "stdlib"
    length: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model that is read.

    Attributes:
        model: folder or .gguf file of a model, folder of a training run, or name on the Hugging
            Face hub.
        revision: branch, tag or commit of a model on the hub; its default branch when absent.
    """

    model: str | None = None
    revision: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Files of a page.

    Attributes:
        out: folder for the page, its numbers, tables and figures.
        figures: format of the figures in files, besides the SVG of the page.
        style: style of the figures in files; paper for the columns of a paper.
    """

    out: Path = Path("report")
    figures: Literal["svg", "png", "pdf"] = "svg"
    style: Literal["screen", "paper"] = "screen"


def command_line(command: str, options: Any, *, positional: tuple[str, ...] = ("source",)) -> str:
    """Command line with the options of a job that differ from their defaults, for a shell.

    Args:
        command: name of the command.
        options: dataclass of its options.
        positional: names of options that have no flag.

    >>> command_line("report", Source(source="my films.tsv", length=40, skip_nulls=True))
    "jaxpe report 'my films.tsv' --skip-nulls --length 40"
    """
    words, flags = ["jaxpe", command], []
    for name, value in _changed(options).items():
        values = [str(x) for x in (value if isinstance(value, tuple) else (value,))]
        if name in positional:
            words += values
        elif isinstance(value, bool):
            flags.append(f"--{'no-' * (not value)}{name.replace('_', '-')}")
        else:
            flags += [f"--{name.replace('_', '-')}", *values]
    return shlex.join(words + flags)


def _changed(options: Any, prefix: str = "") -> dict[str, Any]:
    """Options that differ from their defaults; names of nested ones have a dot."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            changed |= _changed(value, f"{prefix}{field.name}.")
        elif value != field.default:
            changed[prefix + field.name] = value
    return changed

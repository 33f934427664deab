"""Tables on a console, readable at 80 columns."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jaxpe._core.errors import require
from jaxpe.report.text import percent, plural, visible

if TYPE_CHECKING:
    import rich.console
    import rich.table

    from jaxpe.analysis.counts import StoredCounts


# Title, header and rows.
Table: TypeAlias = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def counts_table(stored: "StoredCounts") -> "rich.table.Table":
    """Table of the numbers of counted and omitted documents and tokens.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(counts_table(read_counts("counts")))  # doctest: +SKIP
    """
    header, table = stored.header, stored.table
    settings = header.settings
    read = [shard for shard in header.shards if not shard.unreadable]
    cells = settings.rows * settings.vocab_size
    filled = int(np.count_nonzero(table.any(axis=0)))
    where, together = f"{settings.length:,}", "copies"
    if settings.group_field is not None:
        together = f"documents of the same {settings.group_field!r}"
    if settings.edges is not None:
        where += f" in {settings.rows:,} bins"
    rows = [
        ("documents", f"{header.documents:,}"),
        ("tokens", f"{int(np.sum(table, dtype=np.int64)):,}"),
        ("positions", where),
        ("vocabulary", f"{settings.vocab_size:,} ({visible(settings.tokenizer)})"),
        ("cells in use", f"{filled:,} of {cells:,} ({percent(filled / cells)})"),
        ("folds", f"{settings.folds}, and {settings.nulls} nulls in {settings.null_folds}"),
        ("kept together", f"{together} in a fold"),
        ("shards", f"{len(read):,}"),
    ]
    choices = [(x.setting, visible(f"{x.value}: {x.why}", limit=400)) for x in header.choices]
    if header.text_field and "column of text" not in dict(choices):
        rows.append(("column of text", visible(header.text_field)))
    rows += choices
    if header.null_texts:
        rows.append(("left out", f"{plural(header.null_texts, 'row')} without text"))
    unreadable = [shard for shard in header.shards if shard.unreadable]
    rows += [("left out", f"{x.name}, {x.bytes:,} bytes: {x.unreadable}") for x in unreadable]
    return make_table("Counts", ["", ""], rows, right=())


def make_table(title, header, rows, *, right) -> "rich.table.Table":
    """A rich table. Cells are `Text`, not markup, so a corpus named "[red]" stays a name."""
    text, box = require("rich.text", extra="report").Text, require("rich.box", extra="report")
    table = require("rich.table", extra="report").Table(title=text(title), box=box.SIMPLE_HEAD)
    for index, name in enumerate(header):
        table.add_column(text(name), justify="right" if index in right else "left")
    for row in rows:
        table.add_row(*map(text, row))
    return table


def table_group(tables: Iterable[Table]) -> "rich.console.Group":
    """Tables of title, header and rows, one below another, with right-aligned numbers."""
    rich_tables = [make_table(*table, right=range(1, 99)) for table in tables]
    for table in rich_tables:
        table.padding = (0, 1, 0, 0)  # 100 columns are to do
    return require("rich.console", extra="report").Group(*rich_tables)

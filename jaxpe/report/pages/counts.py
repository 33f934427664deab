"""Page of stored counts: how much was counted and left out."""

import numpy as np

from jaxpe.analysis.counts import StoredCounts
from jaxpe.report.findings import Page, Section, Table
from jaxpe.report.numbers import percent, plural
from jaxpe.report.writing import page


@page.register
def counts_page(stored: StoredCounts) -> Page:
    """Numbers of counted and omitted documents and tokens, and the settings."""
    header, table = stored.header, stored.table
    settings = header.settings
    unreadable = [shard for shard in header.shards if shard.unreadable]
    cells = settings.rows * settings.vocab_size
    filled = int(np.count_nonzero(table.any(axis=0)))
    where, together = f"{settings.length:,}", "copies"
    if settings.group_field is not None:
        together = f"documents of the same {settings.group_field!r}"
    if settings.edges is not None:
        where += f" in {settings.rows:,} bins"
    choices = [(x.setting, f"{x.value}: {x.why}") for x in header.choices]
    rows = [
        ("documents", f"{header.documents:,}"),
        ("tokens", f"{int(np.sum(table, dtype=np.int64)):,}"),
        ("positions", where),
        ("vocabulary", f"{settings.vocab_size:,} ({settings.tokenizer})"),
        ("cells in use", f"{filled:,} of {cells:,} ({percent(filled / cells)})"),
        ("folds", f"{settings.folds}, and {settings.nulls} nulls in {settings.null_folds}"),
        ("kept together", f"{together} in a fold"),
        ("shards", f"{len(header.shards) - len(unreadable):,}"),
    ]
    if header.text_field and "column of text" not in dict(choices):
        rows.append(("column of text", header.text_field))
    rows += choices
    if header.null_texts:
        rows.append(("left out", f"{plural(header.null_texts, 'row')} without text"))
    rows += [("left out", f"{x.name}, {x.bytes:,} bytes: {x.unreadable}") for x in unreadable]
    shown = Table("Counts", ("of", "number or choice"), rows)
    return Page("counts", "Counts", plural(header.documents, "document"), sections=[
        Section("Counts", tables=[shown]),
    ])  # fmt: skip

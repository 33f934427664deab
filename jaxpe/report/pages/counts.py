"""Page of counts, for the console of `jaxpe count` and `jaxpe merge`."""

import numpy as np

from jaxpe.analysis.counts.stored import StoredCounts
from jaxpe.report.findings import Finding, Page, Section, Table
from jaxpe.report.numbers import plural
from jaxpe.report.writing import page


@page.register
def counts_page(stored: StoredCounts) -> Page:
    """Page of counts: documents, tokens and cells, and what was left out."""
    header, settings = stored.header, stored.header.settings
    used = int(np.count_nonzero(stored.table.any(axis=0)))
    cells = settings.rows * settings.vocab_size
    shards = [shard for shard in header.shards if not shard.unreadable]
    left_out = [f"{x.name}, {x.bytes:,} bytes: {x.unreadable}" for x in header.shards
                if x.unreadable]  # fmt: skip
    if header.null_texts:
        left_out = [f"{plural(header.null_texts, 'row')} without text", *left_out]
    together = "copies"
    if settings.group_field is not None:
        together = f"documents of the same {settings.group_field!r}"
    bins = "" if settings.edges is None else f" in {settings.rows:,} bins"
    chosen = {choice.setting for choice in header.choices}
    column = [] if "column of text" in chosen else [("column of text", header.text_field or "")]
    rows = [
        ("positions", f"{settings.length:,}{bins}"),
        ("vocabulary", f"{settings.vocab_size:,} ({settings.tokenizer})"),
        ("folds", f"{settings.folds}, and {settings.nulls} nulls in {settings.null_folds}"),
        ("kept together", f"{together} in a fold"),
        *(column if header.text_field else []),
        *((choice.setting, f"{choice.value}: {choice.why}") for choice in header.choices),
        *(("left out", text) for text in left_out),
    ]
    return Page(
        name="counts",
        title=f"Counts of {plural(len(shards), 'shard')}",
        about=f"tokenizer {settings.tokenizer}",
        lead=[
            Finding("documents", header.documents, unit="count"),
            Finding("tokens", int(stored.table.sum(dtype=np.int64)), unit="count"),
            Finding("cells in use", used, unit="count", reference=cells, against="of"),
        ],
        sections=[Section("Settings", tables=[Table("Settings", ("setting", "value"), rows)])],
    )

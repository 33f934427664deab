"""`jaxpe export`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import parse
from jaxpe.data import check_data_dir, export_corpus, load_corpus
from jaxpe.report.text import without_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Write a corpus as a TFDS dataset (array_record), which can be read by its path.

    Attributes:
        source: corpus, as for `jaxpe report`.
        directory: folder to create for the dataset.
        text_field: column or key with the text, in files with columns.
        skip_nulls: leave out rows whose text is null or missing, and say how many.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """

    source: Positional[str]
    directory: Positional[Path]
    text_field: str | None = None
    skip_nulls: bool = False
    data_dir: Path | None = None


def run(words: Sequence[str]) -> None:
    """Read the corpus and write it."""
    options = parse(Command, words)
    check_data_dir(options.data_dir, options.source)
    corpus = load_corpus(
        options.source,
        text_field=options.text_field,
        skip_nulls=options.skip_nulls,
        data_dir=options.data_dir,
        progress=Bars(Command),
    )
    written = export_corpus(corpus, options.directory)
    left_out = without_text(corpus.null_texts)
    print(f"Exported {len(corpus.documents):,} documents{left_out}: {written}")

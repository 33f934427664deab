"""Counter of documents that another program passes one by one."""

from typing import Any

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import content_hash
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.job import tokenizer_from_options
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.analysis.counts.settings import INT32_MAX, CountSettings
from jaxpe.analysis.counts.state import batch_adder, count_mesh, total, zero_state
from jaxpe.data import Tokenizer


class DocumentCounter:
    """Counter of documents, on the devices of this process.

    Args:
        options: options of the count; words and characters need a `vocab`. Options of sources,
            saving and several processes are ignored.
        opened: tokenizer and settings. Default: from the options.

    Raises:
        InputError: as `tokenizer_from_options`.

    >>> options = CountOptions(sources=(), tokenizer="bytes", length=2, folds=4, nulls=0)
    >>> counter = DocumentCounter(options)
    >>> for text in ("to be", "or not"):
    ...     counter.add(text)
    >>> counter.counts("two texts").documents
    2
    """

    def __init__(
        self, options: CountOptions, *, opened: tuple[Tokenizer, CountSettings] | None = None
    ):
        require("grain", extra="data")
        from jaxpe.data.tokens.batches import Reading  # imports Grain

        self.tokenizer, self.settings = opened or tokenizer_from_options(options)
        self._reading = Reading((), options.text_field, options.group_field, options.batch_size)
        self._mesh = count_mesh()
        self._adder = batch_adder(self.settings, self._mesh, self.tokenizer.tokens)
        self._state = zero_state(self.settings, self._mesh)
        self._documents = self._bytes = 0
        self._content = content_hash()
        self._texts: list[str] = []
        self._groups: list[str | None] = []

    def add(self, text: str, group: str | None = None) -> None:
        """Count a document, if it is not blank.

        Args:
            text: its text.
            group: its author or source, for options with a `group_field`.
        """
        if not text.strip():
            return
        content = text.encode(errors="surrogatepass")
        self._content.update(len(content).to_bytes(8, "little") + content)
        self._bytes += len(content)
        self._texts.append(text)
        self._groups.append(group)
        if len(self._texts) == self._reading.batch_size:
            self._count()

    def counts(self, name: str) -> StoredCounts:
        """Counts of all documents so far, as one shard of that name."""
        self._count()
        table, nulls, documents = total(self._state, self.settings, self._mesh)
        shard = CountedShard(name, self._bytes, self._content.hexdigest(), documents)
        fields = self.settings, list(self.tokenizer.tokens), (shard,), self._reading.text_field
        return StoredCounts(table, nulls, documents, *fields)

    def _count(self) -> None:
        """Add the waiting documents to the state."""
        from jaxpe.data.tokens.batches import tokenized_batch

        if not self._texts:
            return
        self._documents += len(self._texts)
        if self._documents * self.settings.widest > INT32_MAX:
            raise InputError(
                f"{self._documents:,} documents might exceed int32 counts; use several counters, "
                "and add their counts by merge_counts"
            )
        read: Any = (self._texts, self._groups, {})
        batch = tokenized_batch(read, self._reading, self.tokenizer, self.settings.length)
        self._state, _ = self._adder(self._state, batch)
        self._texts, self._groups = [], []

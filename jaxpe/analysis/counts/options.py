"""Options of a count of documents."""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxpe._core.memory import check_bytes
from jaxpe._core.options import Reading, check_range, check_ranges, option
from jaxpe.analysis.counts.settings import INT32_MAX, CountSettings, check_memory, check_settings
from jaxpe.data.tokens.tokenizers import Tokenizer
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.geometry.counts.binning import position_bins

_MOST_WORKERS = 1024
_EDGE_BYTES = 128  # bytes of the edge of a bin, as an array and in the settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountOptions(Reading):
    """Count the tokens at each position of any number of documents, and write the counts.

    Each shard is counted by itself, and `counts.npz` is their sum. Run the same command again to
    resume: shards with a file in the folder `shards` are not counted again. It may be deleted.

    Attributes:
        sources: stdlib, sst2, imdb, or paths and patterns (in quotes) of what `jaxpe.load_corpus`
            and `jaxpe.data.load_tokens` read: text, tables such as .csv or .parquet, folders of
            them, TFDS and Hugging Face datasets, and token ids as .bin, .npy or lists of integers.
            Of a dataset with several splits, train. Rename a .tsv to .csv to have quotation marks
            quote its fields.
        tokenizer: words, characters, kmer:3, codons, bytes, or a path: BERT vocab.txt,
            tokenizer.json or .gguf; when absent words, and characters for FASTA and FASTQ. For
            token ids, the one that made them, or "ids".
        vocab_size: number of ids, for the tokenizer ids.
        separator: id that ends a document in a stream of ids; when absent, every `length` ids are
            a document.
        vocab: vocabulary of words or characters: a folder that `jaxpe count` wrote, a JSON list, or
            text with one a line; [UNK] in it stands for all others. When absent, all that occur.
        max_vocab: largest size of the vocabulary of the sum; rarer words become [UNK]. Leave it out
            for counts to be merged, or pass one `vocab` for all.
        special: add [CLS] and [SEP] and leave them out of the counts, as BERT does.
        length: positions read of each document.
        bins: number of bins of positions, for long contexts; when absent every position is counted.
        spacing: bins of equal widths, or of widths that grow with the position.
        folds: number of folds, in which a hash puts each document; for halves and intervals.
        nulls: number of corpora of rotated documents, for the test of dimensions; 0 for none.
        seed: random seed of the rotations.
        workers: number of processes on this machine, each for a shard at a time; 0 for this one
            alone. When absent, one a core for large corpora.
        part: index of the part of the shards to count, from 0, where several machines count the
            same sources; `jaxpe merge` adds their counts.
        parts: number of parts, one a machine.
        skip_unreadable: leave out and report shards that cannot be read; otherwise the first such
            shard stops the run.
        group_field: column or key such as the author or source, for documents that are not
            independent: those with the same value share a fold. Without one, equal documents do,
            and near-copies count as independent.
    """

    sources: tuple[str, ...]
    vocab_size: int | None = None
    separator: int | None = None
    vocab: Path | None = None
    max_vocab: int | None = option(None, least=2)
    special: bool = False
    length: int = 128
    bins: int | None = option(None, least=1)
    spacing: Literal["equal", "log"] = "equal"
    folds: int = 16
    nulls: int = 20
    workers: int | None = option(None, least=0, most=_MOST_WORKERS)
    part: int = option(0, least=0)
    parts: int = option(1, least=1)
    skip_unreadable: bool = False
    group_field: str | None = None

    def settings(self, tokenizer: Tokenizer) -> CountSettings:
        """Settings of a count with this tokenizer.

        Args:
            tokenizer: opened tokenizer, such as from `open_tokenizer`.

        Raises:
            InputError: an option out of range.

        >>> from jaxpe.data import open_tokenizer
        >>> settings = CountOptions(sources=(), length=32).settings(open_tokenizer("bytes"))
        >>> settings.rows, settings.vocab_size, settings.null_folds
        (32, 256, 4)
        """
        least = max(2, 1 + len(tokenizer.prefix) + len(tokenizer.suffix))
        check_range("length", self.length, least=least, most=INT32_MAX)
        check_ranges(self)
        check_range("part", self.part, most=self.parts - 1)
        edges = None
        if self.bins is not None:
            check_range("bins", self.bins, most=self.length)
            check_bytes(_EDGE_BYTES * self.bins, what=f"`bins={self.bins}`", remedy="pass fewer")
            bins = position_bins(self.length, bins=self.bins, spacing=self.spacing)
            edges = tuple(bins.tolist())
        settings = CountSettings(
            tokenizer=tokenizer.name,
            checksum="" if vocabulary_occurs(tokenizer.name) else tokenizer.checksum,
            length=self.length,
            edges=edges,
            vocab_size=len(tokenizer.tokens),
            exclude=tokenizer.exclude,
            folds=self.folds,
            nulls=self.nulls,
            null_folds=2 if self.folds % 4 else 4,
            seed=self.seed,
            group_field=self.group_field,
        )
        check_settings(settings)
        check_memory(settings)
        return settings

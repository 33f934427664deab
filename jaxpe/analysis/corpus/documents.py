"""Documents and stored counts, as the analysis takes them: `Counted`."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe._core.arrays import rounded_size
from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe._core.progress import Progress
from jaxpe.analysis.corpus.options import MAX_LENGTH, CorpusOptions
from jaxpe.analysis.corpus.result import CorpusFacts, StandingOut
from jaxpe.analysis.corpus.sites import ambiguous_letters, positions_standing_out
from jaxpe.data import TokenCorpus, load_tokens
from jaxpe.data.corpora.groups import NeighbourSimilarity, neighbour_similarity
from jaxpe.data.formats.files import quoted
from jaxpe.data.tokens.tokenizers import DEFAULT_LENGTH
from jaxpe.data.tokens.vocabulary import DEFAULT_TOKENIZER, UNKNOWNS
from jaxpe.geometry import PositionCounts
from jaxpe.geometry.counts.cohorts import cohort_of
from jaxpe.geometry.counts.position_counts import regroup_folds
from jaxpe.geometry.counts.token_lists import TokenLists, token_lists
from jaxpe.geometry.distances.mutual_information import chance_copies
from jaxpe.geometry.noise.half_products import DEFAULT_FOLDS, FoldedCounts
from jaxpe.geometry.noise.position import null_keys

if TYPE_CHECKING:
    from jaxpe.analysis.counts.settings import CountSettings
    from jaxpe.analysis.counts.stored import StoredCounts

# Options that say how the documents are read.
_READING = (
    "tokenizer", "length", "special", "text_field", "group_field", "skip_nulls", "data_dir",
    "limit", "seed",
)  # fmt: skip
LEAST_NULLS = 19  # least number of nulls that can show significance at 5 %
MAX_CELLS = 2**31 - 1  # 8.6 GB of counts, and as much again during the analysis


class Counted(NamedTuple):
    """A corpus as the analysis takes it, whether of documents or of stored counts.

    Attributes:
        counts: counts in folds of the words that occur.
        merged: the same counts, not in folds.
        nulls: counts of rotated documents, in the same folds.
        end_nulls: of documents whose last token is rotated, too; empty for stored counts.
        used: bool `[vocab]`, words that occur and are counted.
        words: text of each of these words.
        facts: what was read.
        choices: settings that were chosen automatically.
        cut: bool `[documents]`, documents that were cut; None if unknown.
        standing_out: positions that differ from the two nearest ones.
        neighbours: whether neighbouring documents are related.
    """

    counts: FoldedCounts
    merged: PositionCounts
    nulls: Sequence[FoldedCounts]
    end_nulls: Sequence[TokenLists]
    used: np.ndarray
    words: list[str]
    facts: CorpusFacts
    choices: tuple[Choice, ...]
    cut: np.ndarray | None = None
    standing_out: list[StandingOut] = []  # noqa: RUF012 (nothing writes to it)
    neighbours: NeighbourSimilarity | None = None


def count_documents(corpus: TokenCorpus, options: CorpusOptions, *, origin: int) -> Counted:
    """Counts of documents, those of rotated documents, and facts that need documents.

    Args:
        corpus: ids and mask `[documents, n]`.
        options: options of the job.
        origin: index of the position that the report calls 0.

    Raises:
        InputError: too many counts for memory, or a cohort without a document that reaches the last
            position.
    """
    compact, used = compacted(corpus)
    cut, ended = _cut_and_ended(corpus)
    if options.cohort:
        inside = _cohort(compact)
        compact, ended, cut = compact.chosen(inside), ended[inside], None
    _check_size(compact)
    groups = document_groups(compact)
    counting: dict[str, Any] = {"vocab_size": compact.vocab_size, "mask": compact.mask}
    folding = {"groups": groups, "folds": DEFAULT_FOLDS, "ended": ended}
    tokens = token_lists(compact.ids, **counting, **folding)
    rotating = prng_keys(options.seed).rotating
    merged = _counts(compact)
    return Counted(
        counts=tokens,
        merged=merged,
        nulls=tokens.rotations(rotating),
        end_nulls=tokens.rotations(rotating, ends_move=True),
        used=used,
        words=compact.tokens,
        facts=CorpusFacts(
            name=corpus.name,
            tokenizer=corpus.tokenizer,
            documents=len(compact.ids),
            groups=len(np.unique(groups)),
            **_sizes(merged, compact.tokens),
            vocab_size=corpus.vocab_size,
            folds=DEFAULT_FOLDS,
            origin=origin,
            cut=None if cut is None else int(np.sum(cut)),
            null_texts=corpus.null_texts,
            group_field=options.group_field,
        ),
        choices=compact.choices,
        cut=cut,
        standing_out=positions_standing_out(compact, groups),
        neighbours=_neighbours(compact, groups),
    )


def _counts(corpus: TokenCorpus) -> PositionCounts:
    """`count_tokens` of a compact corpus, which JAX would compile for each number of documents."""
    shape = corpus.ids.shape[1], corpus.vocab_size
    cell = (np.arange(shape[0]) * shape[1] + corpus.ids)[corpus.mask]
    tokens = np.bincount(cell, minlength=math.prod(shape)).astype(np.int32).reshape(shape)
    documents = np.asarray(len(corpus.ids), np.int32)
    return PositionCounts(*map(jnp.asarray, (tokens, documents, np.int32(0))))


def stored_counts(stored: "StoredCounts") -> Counted:
    """Counts that were stored, of documents and of rotated documents.

    Raises:
        InputError: too many positions, or too few rotated corpora or folds of them.
    """
    header, settings = stored.header, stored.header.settings
    _check_counts(settings)
    used = np.any(stored.table, axis=(0, 1)).reshape(-1)
    used &= ~ambiguous_letters(header.tokens, used)
    folded = stored._replace(table=stored.table[..., used]).counts
    grouped = regroup_folds(folded, folds=settings.null_folds)
    merged, words = folded.merged(), [header.tokens[word] for word in np.flatnonzero(used)]
    names = [shard.name for shard in header.shards if shard.documents]
    return Counted(
        counts=grouped,
        merged=merged,
        nulls=[grouped._replace(tokens=jnp.asarray(null[..., used])) for null in stored.nulls],
        end_nulls=(),
        used=used,
        words=words,
        facts=CorpusFacts(
            name=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
            tokenizer=settings.tokenizer,
            documents=header.documents,
            groups=int(folded.documents),
            **_sizes(merged, words),
            vocab_size=settings.vocab_size,
            folds=settings.null_folds,
            null_texts=header.null_texts,
            group_field=settings.group_field,
            from_counts=True,
            edges=settings.edges,
        ),
        choices=header.choices,
    )


def _sizes(merged: PositionCounts, words: list[str]) -> dict[str, Any]:
    """Numbers of tokens, of positions, and of tokens outside the vocabulary."""
    tokens = np.asarray(merged.tokens)
    unknown = [i for i, word in enumerate(words) if word in UNKNOWNS]
    return {
        "tokens": int(tokens.sum(dtype=np.int64)),
        "length": len(tokens),
        "unknown_tokens": int(tokens[:, unknown].sum()),
    }


class Keys(NamedTuple):
    """PRNG keys of halvings, of each rotated corpus, of encodings, and of held-out halves."""

    halving: jax.Array
    rotating: tuple[jax.Array, ...]
    encodings: jax.Array
    held_out: jax.Array


def prng_keys(seed: int) -> Keys:
    """Keys of a seed, split in three; `position_geometry` takes the first."""
    return _prng_keys(np.uint32(seed))


@jax.jit
def _prng_keys(seed: jax.Array) -> Keys:
    position, encodings, held_out = jax.random.split(jax.random.key(seed), 3)
    halving, rotating = null_keys(position)
    return Keys(halving, tuple(rotating), encodings, held_out)


def read_documents(options: CorpusOptions, progress: Progress) -> tuple[TokenCorpus, int]:
    """The corpus that the options name, and the index of its position 0."""
    reading = {name: getattr(options, name) for name in _READING}
    corpus = load_tokens(options.source, **reading, progress=progress)
    _refuse_single_words(corpus, options)
    if options.align is not None:
        return _aligned(corpus, options, reading, progress)
    _refuse_too_long(corpus, options)
    return corpus, 0


def _aligned(
    corpus: TokenCorpus, options: CorpusOptions, reading: dict[str, Any], progress: Progress
) -> tuple[TokenCorpus, int]:
    """The positions around the site, read again where documents are longer, and its index."""
    site: Any = corpus.longest // 2 if options.align == "middle" else options.align
    if not 0 <= site < corpus.longest:
        raise InputError(
            f"`align={site}` is outside the documents, of which the longest has {corpus.longest:,} "
            "tokens: pass the number of tokens before the site"
        )
    length = min(options.length or DEFAULT_LENGTH, corpus.longest)
    start = min(max(site - length // 2, 0), corpus.longest - length)
    if start + length != corpus.ids.shape[1]:
        read = reading | {"length": start + length}
        corpus = load_tokens(options.source, **read, progress=progress)
    sizes = corpus.mask.sum(axis=1)
    if options.align == "middle" and np.ptp(sizes):
        raise InputError(
            f"`align=middle` needs documents of one length; these have {sizes.min()} to "
            f"{sizes.max()} tokens: pass the number of tokens before the site as `align`"
        )
    inside = corpus._replace(ids=corpus.ids[:, start:], mask=corpus.mask[:, start:])
    return inside.chosen(np.flatnonzero(inside.mask.any(axis=1))), site - start


def _refuse_single_words(corpus: TokenCorpus, options: CorpusOptions) -> None:
    """Raise if most documents are one word by the default tokenizer: none has a second position."""
    single = np.flatnonzero(corpus.mask.sum(axis=1) == 1)
    chosen = options.tokenizer is None and corpus.tokenizer == DEFAULT_TOKENIZER
    if chosen and 2 * len(single) > len(corpus.mask):
        word = corpus.tokens[corpus.ids[single[0], corpus.mask[single[0]]][0]]
        raise InputError(
            f"{len(single):,} of {len(corpus.mask):,} documents are one word, such as "
            f"{quoted(word)}: pass `tokenizer=characters` to read their letters, or "
            "`tokenizer=words` all the same"
        )


def _refuse_too_long(corpus: TokenCorpus, options: CorpusOptions) -> None:
    """Raise for a length beyond every document, unless `empty` is set."""
    length, longest = options.length, corpus.longest
    if length is not None and length > longest and options.empty is None:
        raise InputError(
            f"`length={length}` is longer than any document (the longest has {longest} tokens): "
            f"pass `length={longest}` or less, or say by `empty` drop, uniform or zero what the "
            "empty positions become"
        )


def compacted(corpus: TokenCorpus) -> tuple[TokenCorpus, np.ndarray]:
    """The corpus over the counted words alone, and a mask of these words, bool `[vocab]`.

    Ambiguous letters of sequences, such as N, are not counted: they name no base or residue.
    """
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    used = np.zeros(corpus.vocab_size, bool)
    used[corpus.ids[counted]] = True
    ambiguous, choices = ambiguous_letters(corpus.tokens, used), corpus.choices
    if ambiguous.any():
        left_out = int(np.count_nonzero(counted & ambiguous[corpus.ids]))
        counted, used = counted & ~ambiguous[corpus.ids], used & ~ambiguous
        why = f"{left_out:,} tokens hold letters such as N or X, which name no base or residue"
        how = "write one sequence a line into a .txt, in lower case, to count them"
        choices = (*choices, Choice("ambiguous letters", "left out", why, how))
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    compact = corpus._replace(
        ids=np.where(counted, renumbered[corpus.ids], 0).astype(np.int32),
        mask=counted,
        vocab_size=rounded_size(int(used.sum())),  # words that never occur, few sizes of arrays
        exclude=(),
        tokens=[corpus.tokens[token] for token in np.flatnonzero(used)],
        choices=choices,
    )
    return compact, used


def document_groups(corpus: TokenCorpus) -> np.ndarray:
    """Dependent documents by `TokenCorpus.groups`; short strings may be equal by chance.

    If most documents are so short, or of so few letters, that some would be equal by chance, copies
    are no sign of dependence. Each document then counts, unless groups are named or all are equal.
    """
    groups = corpus.groups()
    if corpus.group_labels is not None or not np.ptp(groups):
        return groups
    by_chance = np.mean(chance_copies(corpus.ids, corpus.mask)) > 0.5
    return np.arange(len(groups), dtype=np.int32) if by_chance else groups


def _cut_and_ended(corpus: TokenCorpus) -> tuple[np.ndarray, np.ndarray]:
    """Documents that were cut, and those whose last token ended them, bool `[documents]`."""
    cut = corpus.cut
    if cut is None:  # not stored with the ids
        cut = corpus.mask[:, -1] & (corpus.longest > corpus.ids.shape[1])
    # Documents of one length did not end because of their last token.
    return cut, ~cut & bool(np.ptp(corpus.mask.sum(axis=1)))


def _cohort(corpus: TokenCorpus) -> np.ndarray:
    """Mask of the documents that have a token at every position where any document has one."""
    inside = np.asarray(cohort_of(corpus.mask))
    if not inside.any():
        raise InputError(
            f"no document has tokens at all {corpus.ids.shape[1]} positions: pass a smaller "
            "`length`, or leave `cohort` out"
        )
    return inside


def _check_size(corpus: TokenCorpus) -> None:
    """Raise for counts in folds that do not fit in memory."""
    n, words = corpus.ids.shape[1], corpus.vocab_size
    if DEFAULT_FOLDS * n * words > MAX_CELLS:
        raise InputError(
            f"{n} positions x {words:,} words x {DEFAULT_FOLDS} folds are more than {MAX_CELLS:,} "
            "counts: pass a shorter `length`, or a `tokenizer` with a smaller vocabulary"
        )


def _check_counts(settings: "CountSettings") -> None:
    """Counts of few enough positions, and of enough rotated corpora."""
    if settings.rows > MAX_LENGTH:
        raise InputError(
            f"{settings.rows:,} positions are more than the {MAX_LENGTH:,} of a report: count "
            "again with `bins`"
        )
    if settings.nulls < LEAST_NULLS or settings.null_folds < 4:
        raise InputError(
            f"the counts hold {settings.nulls} rotated corpora in {settings.null_folds} folds; a "
            f"report needs {LEAST_NULLS} in 4 to tell position from composition: count again, with "
            "20 nulls and 16 folds"
        )


def _neighbours(corpus: TokenCorpus, groups: np.ndarray) -> NeighbourSimilarity | None:
    """Test whether neighbouring documents are related, unless groups are given."""
    if corpus.group_labels is not None or len(np.unique(groups[corpus.mask.any(axis=1)])) < 3:
        return None
    return neighbour_similarity(corpus.ids, corpus.mask, groups=groups, permutations=199)

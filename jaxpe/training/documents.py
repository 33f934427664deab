"""Documents of a run: reading, tokenization, split, counts and batches."""

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data import TokenCorpus, hold_out, load_labelled, load_tokens
from jaxpe.data.corpora.labelled import LabelledTokens, occurring_vocabulary, shared_vocabulary
from jaxpe.data.corpora.published import NAMED
from jaxpe.data.corpora.sources import BUILT_IN, TRAIN, held_out_split, source_paths
from jaxpe.data.formats.files import listed
from jaxpe.data.formats.table import column_names
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.geometry import PositionCounts, count_tokens, position_geometry, rotate_within_documents
from jaxpe.geometry.noise.position import PositionGeometry
from jaxpe.training.batches import Batch, batches, checksum, in_order
from jaxpe.training.config import (
    LABEL,
    MAX_VOCAB,
    Task,
    TrainConfig,
    resolved,
    tokenizer_name,
)
from jaxpe.training.memory import FOLDS

_MASK = ("[MASK]", "<mask>")


class Vocabulary(NamedTuple):
    """Texts of a model's ids and names of its classes; saved with a run."""

    task: Task  # what the model predicts
    tokens: list[str]  # text of each id
    classes: tuple[str, ...] = ()  # names of the classes; empty for language models
    mask_id: int | None = None  # id of [MASK]; None unless the task is mlm
    special_ids: tuple[int, ...] = ()  # ids without text, such as [CLS]


class Data(NamedTuple):
    """Training and held-out documents, with one vocabulary."""

    train: LabelledTokens
    held_out: LabelledTokens
    vocabulary: Vocabulary


def load_data(config: TrainConfig, *, progress: Progress = SILENT) -> Data:
    """Read the documents of a configuration.

    Raises:
        InputError: as `load_labelled`, `load_tokens` and `hold_out`.
    """
    task = config.task or ("classify" if has_labels(config) else "causal")
    share = resolved(config, task).held_out
    labelled = task == "classify" or config.source in NAMED
    train = _read(config, labelled, progress)
    if nulls := train.corpus.null_texts:
        progress.say(f"{nulls:,} rows without text left out")
    if share is None:
        published = held_out_split(config.source) or TRAIN
        held_out = _read(config, labelled, progress, split=published, like=train)
    else:
        train, held_out = hold_out(train, fraction=share, seed=config.seed)
    # A file of ids names as many tokens as its largest id needs.
    tokens, mask_id = max(train.corpus.tokens, held_out.corpus.tokens, key=len), None
    if task == "mlm":
        tokens, mask_id = _with_mask(tokens)
    train, held_out = (_with_tokens(part, tokens) for part in (train, held_out))
    classes = train.names if task == "classify" else ()
    vocabulary = Vocabulary(task, tokens, classes, mask_id, train.corpus.exclude)
    return Data(train, held_out, vocabulary)


def train_batches(config: TrainConfig, labelled: LabelledTokens) -> Any:
    """Endless training batches, which depend on the data seed alone."""
    rows, size = len(labelled.labels), config.batch_size
    if size > rows:
        raise InputError(f"`batch_size={size}` exceeds the {rows} documents to train on")
    return batches(**_batch_options(config, labelled), seed=config.seed)


def evaluation_batches(config: TrainConfig, labelled: LabelledTokens) -> list[Batch]:
    """Batches of `evaluate_rows` held-out documents, drawn by the seed and sorted by length."""
    rows = np.random.default_rng(config.seed).permutation(len(labelled.labels))
    rows = rows[: config.evaluate_rows]
    lengths = labelled.corpus.mask.sum(axis=1)[rows]
    order = rows[np.argsort(lengths, kind="stable")]
    return in_order(**_batch_options(config, labelled, order))


def count_documents(labelled: LabelledTokens) -> PositionCounts:
    """Counts in folds; copies and pieces of a document are in one fold."""
    return count_tokens(labelled.corpus.ids, **_count_options(labelled.corpus))


def count_rotated(labelled: LabelledTokens, *, seed: int, number: int) -> list[PositionCounts]:
    """Counts in folds of the rotated documents, for `number` rotations."""
    ids, options = labelled.corpus.ids, _count_options(labelled.corpus)
    rotated = {name: options[name] for name in ("exclude", "groups")}
    keys = jax.random.split(jax.random.key(seed), number)
    drawn = (rotate_within_documents(k, ids, options["mask"], **rotated) for k in keys)
    return [count_tokens(each, **options) for each in drawn]


def document_geometry(corpus: TokenCorpus, *, seed: int) -> PositionGeometry:
    """Geometry of position, from documents in the folds of `count_documents`."""
    return position_geometry(corpus.ids, key=jax.random.key(seed), **_count_options(corpus))


def _count_options(corpus: TokenCorpus) -> dict[str, Any]:
    groups = {"groups": corpus.groups(), "folds": FOLDS, "vocab_size": corpus.vocab_size}
    return {"mask": corpus.mask, "exclude": corpus.exclude} | groups


def fingerprint(data: Data) -> dict[str, int]:
    """Checksum of the documents; a run is not resumed on changed documents."""
    arrays = [(part.corpus.ids, part.labels) for part in (data.train, data.held_out)]
    return {"documents": int(checksum(arrays), 16)}


def has_labels(config: TrainConfig) -> bool:
    """Whether all of the source has classes: known corpora, and tables with a column of labels.

    Raises:
        InputError: a source without the column `label_field`, if that is set.
    """
    field = config.label_field or LABEL
    for path in source_paths(config.source):
        columns = [field] if path in NAMED else [] if path in BUILT_IN else column_names(path)
        if field in columns:
            continue
        if config.label_field is None:
            return False
        listed_columns = f"its columns are {listed(columns)}" if columns else "it has no columns"
        raise InputError(
            f"`label_field={field!r}`: {path} has no such column ({listed_columns}); pass one of "
            "them, or leave it out to train a language model"
        )
    return True


def _read(
    config: TrainConfig,
    labelled: bool,
    progress: Progress,
    *,
    split: str = TRAIN,
    like: LabelledTokens | None = None,
) -> LabelledTokens:
    """Tokenized documents of a split; without labels, all have class 0, which is not used.

    With `like`, they have its vocabulary and classes.
    """
    options: dict[str, Any] = {"split": split, "progress": progress}
    for name in ("text_field", "skip_nulls", "data_dir"):
        options[name] = getattr(config, name)
    sizes: dict[str, Any] = {
        "tokenizer": config.tokenizer or config.pretrained,  # None: the default of the loader
        "length": config.length,
        "special": config.special or config.pretrained is not None,
    }
    name = tokenizer_name(config)
    if labelled:
        sizes = {} if like else sizes | {"max_vocab": _vocabulary_limit(config, name)}
        label_field = config.label_field or LABEL
        return load_labelled(config.source, like=like, label_field=label_field, **sizes, **options)
    corpus = load_tokens(config.source, **sizes, **options)
    # The tokenizer may differ from the configured one: a file of ids has its own vocabulary.
    if like is None:
        corpus = occurring_vocabulary(corpus, _vocabulary_limit(config, corpus.tokenizer))
    elif corpus.tokenizer != "ids":
        corpus = shared_vocabulary(like.corpus, corpus)
    return LabelledTokens(corpus, np.zeros(len(corpus.ids), np.int32), (), name)


def _vocabulary_limit(config: TrainConfig, tokenizer: str) -> int | None:
    """Largest vocabulary; None for a tokenizer with a fixed vocabulary."""
    if config.max_vocab is None and vocabulary_occurs(tokenizer):
        return MAX_VOCAB
    return config.max_vocab


def _with_mask(tokens: list[str]) -> tuple[list[str], int]:
    """Vocabulary with [MASK], and the id of [MASK]."""
    for name in _MASK:
        if name in tokens:
            return tokens, tokens.index(name)
    return [*tokens, _MASK[0]], len(tokens)


def _with_tokens(labelled: LabelledTokens, tokens: list[str]) -> LabelledTokens:
    corpus = labelled.corpus._replace(tokens=tokens, vocab_size=len(tokens))
    return labelled._replace(corpus=corpus)


def _batch_options(
    config: TrainConfig, labelled: LabelledTokens, rows: Any = slice(None)
) -> dict[str, Any]:
    """Arguments of `batches` and `in_order`: some documents, in batches of a process's share."""
    corpus = labelled.corpus
    arrays = {"ids": corpus.ids, "mask": corpus.mask, "labels": labelled.labels}
    return {
        "arrays": {name: array[rows] for name, array in arrays.items()},
        "batch_size": config.batch_size,
        "lengths": corpus.mask.sum(axis=1)[rows],
        "buckets": _buckets(labelled),
        "share": (jax.process_index(), jax.process_count()),
    }


def _buckets(labelled: LabelledTokens) -> list[int]:
    """Two lengths to cut batches to, since each compiles a step: the full length and a shorter one.

    The shorter one is a half or a quarter of the length, whichever removes more padding.
    """
    # SST-2 at 64 positions: 61 % of the positions are padding, and 84 % without the shorter length.
    length = labelled.corpus.ids.shape[1]
    lengths = labelled.corpus.mask.sum(axis=1)
    shorter = [max(2, length // part) for part in (2, 4)]
    saved = [(length - cut) * np.count_nonzero(lengths <= cut) for cut in shorter]
    return sorted({shorter[int(np.argmax(saved))], max(2, length)})

"""What a run is put together from: documents, a model, a loss, an optimizer, a reference."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxpe._errors import InputError
from jaxpe.data import (
    LabelledTokens,
    Progress,
    containment_groups,
    hold_out,
    load_labelled,
    load_tokens,
)
from jaxpe.data._files import TABLES, text_ending, text_lines
from jaxpe.data._named import NAMED
from jaxpe.data._types import no_progress
from jaxpe.encodings import Encoding, chain
from jaxpe.encodings.absolute import information_optimal
from jaxpe.encodings.catalogue import EncodingSizes
from jaxpe.geometry import PositionCounts, count_tokens
from jaxpe.nn import (
    Bert,
    CausalLM,
    Classifier,
    Decoder,
    Encoder,
    MaskedLM,
    MPNet,
    Transformer,
    TransformerConfig,
    functional,
    load_masked_lm,
)
from jaxpe.nn.huggingface import read_fields
from jaxpe.training.batches import Batch, batches, in_order
from jaxpe.training.config import Task, TrainConfig, encoding_entries
from jaxpe.training.optimizers import adamw, learning_rate_schedule
from jaxpe.training.probe import (
    GeometryProbe,
    ReferenceGeometry,
    encoding_probe,
    reference_geometry,
)
from jaxpe.training.step import LossFunction
from jaxpe.training.tasks import causal_lm, classification, logits_at, masked_lm

Params = Any

MAX_VOCAB = 4000
_FOLDS = 16
_MASK, _UNKNOWN = ("[MASK]", "<mask>"), "[UNK]"
_OWN_VOCABULARY = ("words", "characters")  # made from the corpus, so it can be cut


class Vocabulary(NamedTuple):
    """What a model's ids and classes mean; saved with a run.

    Attributes:
        task: what the model does.
        tokens: the text of each id.
        classes: their names; empty for language models.
        mask_id: of [MASK]; None unless the task is mlm.
        special_ids: ids that stand for no text.
    """

    task: Task
    tokens: list[str]
    classes: tuple[str, ...] = ()
    mask_id: int | None = None
    special_ids: tuple[int, ...] = ()


class Data(NamedTuple):
    """Documents to train on and documents to judge by, with one vocabulary."""

    train: LabelledTokens
    held_out: LabelledTokens
    vocabulary: Vocabulary


def load_data(config: TrainConfig, *, progress: Progress | None = None) -> Data:
    """Read the documents of a configuration.

    Raises:
        InputError: as `load_labelled`, `load_tokens` and `hold_out`.
    """
    task = config.task or ("classify" if _has_labels(config) else "causal")
    labelled = task == "classify" or config.source in NAMED
    train = (_read_labelled if labelled else _read_unlabelled)(config, progress)
    train, mask_id = _with_mask(train) if task == "mlm" else (train, None)
    if config.held_out is None and config.source in NAMED:
        split = next(name for name in NAMED[config.source].splits if name != "train")
        held_out = load_labelled(
            config.source, split=split, like=train, data_dir=config.data_dir, progress=progress
        )
    else:
        share = 0.1 if config.held_out is None else config.held_out
        train, held_out = hold_out(train, fraction=share, seed=config.seed)
    corpus = train.corpus
    vocabulary = Vocabulary(
        task,
        corpus.tokens,
        train.names if task == "classify" else (),
        mask_id,
        corpus.exclude,
    )
    return Data(train, held_out, vocabulary)


def train_batches(config: TrainConfig, labelled: LabelledTokens) -> Any:
    """Endless batches for training, from the data seed alone."""
    rows = len(labelled.labels)
    if config.batch_size > rows:
        raise InputError(
            f"--batch-size {config.batch_size} is more than the {rows} documents to train on"
        )
    lengths = labelled.corpus.mask.sum(axis=1)
    return batches(
        _arrays(labelled),
        batch_size=config.batch_size,
        seed=config.seed,
        lengths=lengths,
        buckets=_buckets(labelled),
    )


def evaluation_batches(config: TrainConfig, labelled: LabelledTokens) -> list[Batch]:
    """The held-out documents, or as many as are to be looked at, short ones together."""
    rows = np.random.default_rng(config.seed).permutation(len(labelled.labels))
    rows = rows[: config.evaluate_rows]
    lengths = labelled.corpus.mask.sum(axis=1)[rows]
    order = np.argsort(lengths, kind="stable")
    arrays = {name: array[rows[order]] for name, array in _arrays(labelled).items()}
    options = {"lengths": lengths[order], "buckets": _buckets(labelled)}
    return list(in_order(arrays, batch_size=config.batch_size, **options))


def count_documents(labelled: LabelledTokens) -> PositionCounts:
    """Counts in folds, in which copies and pieces of a document are together."""
    corpus = labelled.corpus
    groups = containment_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    return count_tokens(
        corpus.ids,
        vocab_size=corpus.vocab_size,
        mask=corpus.mask,
        exclude=corpus.exclude,
        folds=_FOLDS,
        groups=groups,
    )


def build_model(
    config: TrainConfig, vocabulary: Vocabulary, *, counts: PositionCounts | None = None
) -> Any:
    """The model of a configuration, at its start; `init_seed` decides the weights.

    Args:
        config: what was asked for.
        vocabulary: ids, classes and task.
        counts: of the corpus, for encodings that are made from it; without, their tables hold
            something else until a checkpoint fills them.

    Raises:
        InputError: sizes that do not fit each other or the pretrained model.
    """
    rngs = nnx.Rngs(config.init_seed)
    try:
        if config.pretrained is not None:
            return _pretrained(config, config.pretrained, vocabulary, rngs)
        sizes = _transformer_config(config, len(vocabulary.tokens))
        encoding = _encoding(config, sizes, counts)
        if vocabulary.task == "causal":
            return CausalLM(Decoder(sizes, encoding=encoding, rngs=rngs), rngs=rngs)
        encoder = Encoder(sizes, encoding=encoding, rngs=rngs)
        if vocabulary.task == "mlm":
            return MaskedLM(encoder, rngs=rngs)
        pooling = config.model.pooling or "mean"
        classes = len(vocabulary.classes)
        return Classifier(encoder, num_classes=classes, pooling=pooling, rngs=rngs)
    except ValueError as error:
        raise InputError(str(error)) from error


def build_loss(
    config: TrainConfig, model: Any, vocabulary: Vocabulary, *, train: bool
) -> LossFunction:
    """What the task minimises; without `train`, as it is evaluated."""
    if vocabulary.task == "classify":
        return classification(functional(model)[0], train=train)
    if vocabulary.task == "causal":
        return causal_lm(functional(model)[0], train=train)
    return masked_lm(
        functional(model, logits_at)[0],
        vocab_size=len(vocabulary.tokens),
        mask_id=vocabulary.mask_id or 0,
        special_ids=vocabulary.special_ids,
        rate=config.mask_rate,
        train=train,
    )


def steps_of(config: TrainConfig, rows: int) -> int:
    """Updates of the whole run."""
    if config.epochs is None:
        return config.steps or 400
    return max(1, round(config.epochs * (rows // config.batch_size)))


def build_optimizer(
    config: TrainConfig, *, steps: int
) -> tuple[optax.GradientTransformation, Callable[[Any], Any]]:
    """AdamW, and its learning rate as a function of the step."""
    peak = config.learning_rate or (1e-3 if config.pretrained is None else 3e-5)
    warmup = min(round(config.warmup * steps), steps - 1)
    schedule = learning_rate_schedule(peak=peak, steps=steps, warmup=warmup, decay=config.decay)
    return adamw(schedule, weight_decay=config.weight_decay, clip=config.clip), schedule


def build_probe(
    model: Any, counts: PositionCounts, *, seed: int
) -> Callable[[Params], GeometryProbe]:
    """`params -> probe` of the model's encoding against the corpus, compiled.

    Of a chain in which several parts have position vectors, those that are added to the embeddings
    are looked at.

    Raises:
        InputError: too few documents to tell positions apart.
    """
    try:
        reference = reference_geometry(counts, key=jax.random.key(seed))
    except ValueError as error:
        raise InputError(f"{error}; or leave the probe out: --probe-at without a step") from error
    positions = jnp.arange(reference.occupied.shape[0], dtype=jnp.int32)

    def probe(model: Any, reference: ReferenceGeometry) -> GeometryProbe:
        below = transformer(model)
        return encoding_probe(
            below.encoding,
            below.encoding_params.get_value(),
            positions,
            reference,
            num_heads=below.config.num_heads,
            head_dim=below.config.head_width,
        )

    # The reference is an argument: XLA would spend its time folding a constant.
    look = jax.jit(functional(model, probe)[0])
    return lambda params: look(params, reference)


def transformer(model: Any) -> Transformer:
    """What is below a model's head."""
    return model.decoder if isinstance(model, CausalLM) else model.encoder


def _has_labels(config: TrainConfig) -> bool:
    """Whether the source is known to have classes, or is a table with their column."""
    if config.source in NAMED:
        return True
    ending = text_ending(config.source)
    if ending not in TABLES or not Path(config.source).is_file():
        return False
    first = next(iter(text_lines(config.source, progress=no_progress)), "")
    if ending == ".jsonl":
        try:
            return config.label_field in json.loads(first)
        except (ValueError, TypeError):
            return False  # the reader says what is wrong with it
    separator = "\t" if ending == ".tsv" else ","
    return config.label_field in next(csv.reader([first], delimiter=separator), [])


def _read_labelled(config: TrainConfig, progress: Progress | None) -> LabelledTokens:
    options = _reading(config)
    limit = config.max_vocab
    if limit is None and options["tokenizer"] in _OWN_VOCABULARY:
        limit = MAX_VOCAB
    return load_labelled(
        config.source,
        label_field=config.label_field,
        max_vocab=limit,
        progress=progress,
        **options,
    )


def _read_unlabelled(config: TrainConfig, progress: Progress | None) -> LabelledTokens:
    """Documents that all have the same class, which nobody looks at."""
    options = _reading(config)
    corpus = load_tokens(config.source, progress=progress, **options)
    limit = config.max_vocab or MAX_VOCAB
    if corpus.tokenizer in _OWN_VOCABULARY and corpus.vocab_size >= limit:
        # Ids go by descending frequency.
        ids = np.minimum(corpus.ids, limit - 1)
        tokens = [*corpus.tokens[: limit - 1], _UNKNOWN]
        corpus = corpus._replace(ids=ids, tokens=tokens, vocab_size=limit)
    labels = np.zeros(len(corpus.ids), np.int32)
    return LabelledTokens(corpus, labels, (), str(options["tokenizer"]))


def _reading(config: TrainConfig) -> dict[str, Any]:
    return {
        "tokenizer": config.tokenizer or config.pretrained or "words",
        "length": config.length,
        "special": config.special or config.pretrained is not None,
        "text_field": config.text_field,
        "data_dir": config.data_dir,
    }


def _with_mask(labelled: LabelledTokens) -> tuple[LabelledTokens, int]:
    """The same documents over a vocabulary with [MASK], and its id."""
    corpus = labelled.corpus
    for name in _MASK:
        if name in corpus.tokens:
            return labelled, corpus.tokens.index(name)
    tokens = [*corpus.tokens, _MASK[0]]
    corpus = corpus._replace(tokens=tokens, vocab_size=len(tokens))
    return labelled._replace(corpus=corpus), len(tokens) - 1


def _arrays(labelled: LabelledTokens) -> Mapping[str, np.ndarray]:
    corpus = labelled.corpus
    return {"ids": corpus.ids, "mask": corpus.mask, "labels": labelled.labels}


def _buckets(labelled: LabelledTokens) -> list[int]:
    """Lengths to cut batches to: the whole, its half and its quarter."""
    length = labelled.corpus.ids.shape[1]
    return sorted({max(2, length // part) for part in (1, 2, 4)})


def _transformer_config(config: TrainConfig, vocab_size: int) -> TransformerConfig:
    model = config.model
    return TransformerConfig(
        vocab_size=vocab_size,
        dim=model.dim,
        num_layers=model.layers,
        num_heads=model.heads,
        num_kv_heads=model.kv_heads,
        hidden_dim=model.hidden,
        activation=model.activation,
        norm=model.norm,
        norm_position=model.norm_position,
        embedding_scale=model.embedding_scale,
        dropout=model.dropout,
        dtype=jnp.dtype(model.dtype),
        scan=model.scan,
        remat=model.remat,
    )


def _encoding(
    config: TrainConfig, sizes: TransformerConfig, counts: PositionCounts | None
) -> Encoding:
    """The chain of a configuration, for a model of these sizes."""
    dims = EncodingSizes(sizes.dim, sizes.num_heads, sizes.head_width, config.length)

    def made(entry) -> Encoding:
        if entry.name == "information_optimal" and counts is not None:
            return information_optimal(counts.merged(), dim=sizes.dim)
        return entry.make(dims)

    parts = [made(entry) for entry in encoding_entries(config)]
    if len(parts) == 1:
        return parts[0]
    encoding = chain(*parts)
    with_vectors = [i for i, part in enumerate(parts) if part.defines("vectors")]
    if len(with_vectors) < 2:
        return encoding
    chosen = next((i for i in with_vectors if parts[i].defines("embed")), with_vectors[0])

    def vectors(params, positions):
        return parts[chosen].vectors(params[chosen], positions)

    return encoding._replace(vectors=vectors)


def _pretrained(
    config: TrainConfig, directory: str, vocabulary: Vocabulary, rngs: nnx.Rngs
) -> MaskedLM | Classifier:
    """A new head on a pretrained encoder, or the head it was pretrained with for mlm."""
    choices = {
        "dropout": config.model.dropout,
        "dtype": jnp.dtype(config.model.dtype),
        "scan": config.model.scan,
        "remat": config.model.remat,
    }
    if vocabulary.task == "mlm":
        model = load_masked_lm(directory, **choices)
    else:
        family = MPNet if read_fields(directory)[0].model_type == MPNet.model_type else Bert
        bert = family.load(directory, **choices)
        pooling = config.model.pooling or "first"
        pooler = (bert.pooler or True) if pooling == "first" else False
        classes = len(vocabulary.classes)
        model = Classifier(
            bert.encoder, num_classes=classes, pooling=pooling, pooler=pooler, rngs=rngs
        )
    _check_fits(config, directory, model.encoder, len(vocabulary.tokens))
    return model


def _check_fits(config: TrainConfig, directory: str, encoder: Any, vocab_size: int) -> None:
    if config.length > encoder.length:
        raise InputError(
            f"--length {config.length} is more than the {encoder.length} positions of {directory}"
        )
    if vocab_size > encoder.config.vocab_size:
        raise InputError(
            f"--tokenizer has {vocab_size} tokens and {directory} only "
            f"{encoder.config.vocab_size}: leave --tokenizer out to use the model's own"
        )

"""Parts of a run beside its documents: a model, a loss, an optimizer, a probe."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe.data import TokenCorpus
from jaxpe.data.tasks.sequences import BOS
from jaxpe.encodings import Encoding, LayerPattern, chain, identity, information_optimal
from jaxpe.geometry import PositionCounts
from jaxpe.nn import (
    Bert,
    CausalLM,
    Classifier,
    Decoder,
    Encoder,
    EncoderDecoder,
    MaskedLM,
    MPNet,
    Seq2SeqLM,
    TransformerConfig,
    functionalize,
    load_masked_lm,
    trunk,
)
from jaxpe.nn.checkpoints.fields import read_fields
from jaxpe.nn.functionalize import initialised
from jaxpe.training.config import (
    DEFAULT_STEPS,
    TrainConfig,
    encoding_entries,
    longest_row,
    peak_learning_rate,
)
from jaxpe.training.documents import Vocabulary, geometry_of_documents
from jaxpe.training.optimizers import Schedule, adamw, learning_rate_schedule
from jaxpe.training.probe import (
    GeometryProbe,
    ReferenceGeometry,
    encoding_probe,
    reference_geometry,
)
from jaxpe.training.step import LossFunction
from jaxpe.training.tasks import (
    causal_lm,
    classification,
    logits_at,
    masked_lm,
    translation,
)

Params = Any


def build_model(
    config: TrainConfig, vocabulary: Vocabulary, *, counts: PositionCounts | None = None
) -> Any:
    """The model of a configuration, at its start; `init_seed` decides the weights.

    Encodings made from the corpus take its `counts`; without, their tables hold something else
    until a checkpoint fills them.

    Raises:
        InputError: sizes that do not fit each other or the pretrained model.
    """
    try:
        if config.pretrained is not None:
            rngs = nnx.Rngs(config.init_seed)
            return _pretrained(config, config.pretrained, vocabulary, rngs)
        sizes = _transformer_config(config, len(vocabulary.tokens))
        encoding, own = _encodings(config, sizes, counts)
        if vocabulary.task == "translate":
            make = _translator(config, sizes, encoding, own)
        else:
            make = _of_one_row(config, vocabulary, sizes, encoding=encoding, layer_encoding=own)
        return initialised(make, seed=config.init_seed)
    except ValueError as error:
        raise InputError(str(error)) from error


def build_loss(
    config: TrainConfig, model: Any, vocabulary: Vocabulary, *, train: bool
) -> LossFunction:
    """Loss of the task; without `train`, as it is evaluated."""
    if vocabulary.task == "classify":
        return classification(functionalize(model)[0], train=train)
    if vocabulary.task == "causal":
        return causal_lm(functionalize(model)[0], train=train)
    if vocabulary.task == "translate":
        return translation(functionalize(model)[0], bos_id=BOS, train=train)
    return masked_lm(
        functionalize(model, logits_at)[0],
        vocab_size=len(vocabulary.tokens),
        mask_id=vocabulary.mask_id or 0,
        special_ids=vocabulary.special_ids,
        rate=config.mask_rate,
        train=train,
    )


def steps_of(config: TrainConfig, rows: int) -> int:
    """Updates of the whole run."""
    if config.epochs is None:
        return config.steps or DEFAULT_STEPS
    return max(1, round(config.epochs * (rows // config.batch_size)))


def build_optimizer(
    config: TrainConfig, *, steps: int
) -> tuple[optax.GradientTransformation, Schedule]:
    """AdamW, and its learning rate as a function of the step."""
    schedule = schedule_of(config, steps=steps)
    return adamw(schedule, weight_decay=config.weight_decay, clip=config.clip), schedule


def schedule_of(config: TrainConfig, *, steps: int) -> Schedule:
    """The learning rate of each step of a run of so many."""
    warmup = min(round(config.warmup * steps), steps - 1)
    return learning_rate_schedule(
        peak=peak_learning_rate(config), steps=steps, warmup=warmup, decay=config.decay
    )


def build_probe(
    model: Any, corpus: TokenCorpus, counts: PositionCounts, *, seed: int
) -> Callable[[Params], GeometryProbe]:
    """`params -> probe` of the model's encoding against the corpus, compiled.

    Of a chain in which several parts have position vectors, those that are added to the embeddings
    are looked at.

    Raises:
        InputError: too few documents to tell positions apart.
    """
    try:
        reference = reference_geometry(counts, geometry_of_documents(corpus, seed=seed))
    except ValueError as error:
        raise InputError(f"{error}; or leave the probe out: `probe_at=()`") from error
    positions = np.arange(reference.occupied.shape[0], dtype=np.int32)

    def probe(model: Any, reference: ReferenceGeometry) -> GeometryProbe:
        below = trunk(model.transformer.encoder if isinstance(model, Seq2SeqLM) else model)
        heads = {"num_heads": below.config.num_heads, "head_dim": below.config.head_width}
        params = below.encoding_params.get_value()
        return encoding_probe(below.encoding, params, positions, reference, **heads)

    # The reference is an argument: XLA would spend its time folding a constant.
    look = jax.jit(functionalize(model, probe)[0])
    return lambda params: look(params, reference)


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
        embedding_norm=model.embedding_norm,
        embedding_scale=model.embedding_scale,
        dropout=model.dropout,
        dtype=jnp.dtype(model.dtype),
        scan=model.scan,
        remat=model.remat,
    )


def _of_one_row(
    config: TrainConfig, vocabulary: Vocabulary, sizes: TransformerConfig, **encodings: Any
) -> Callable[[nnx.Rngs], CausalLM | MaskedLM | Classifier]:
    """The model of one row of tokens."""

    def make(rngs: nnx.Rngs) -> CausalLM | MaskedLM | Classifier:
        if vocabulary.task == "causal":
            return CausalLM(Decoder(sizes, **encodings, rngs=rngs), rngs=rngs)
        encoder = Encoder(sizes, **encodings, rngs=rngs)
        if vocabulary.task == "mlm":
            return MaskedLM(encoder, rngs=rngs)
        pooling, classes = config.model.pooling or "mean", len(vocabulary.classes)
        return Classifier(encoder, num_classes=classes, pooling=pooling, rngs=rngs)

    return make


def _translator(
    config: TrainConfig,
    sizes: TransformerConfig,
    encoding: Encoding,
    own: Encoding | LayerPattern,
) -> Callable[[nnx.Rngs], Seq2SeqLM]:
    """An encoder–decoder of one width, with the encodings of its sides."""
    layers = config.model.decoder_layers or config.model.layers
    of_decoder = dataclasses.replace(sizes, num_layers=layers)
    second, own_second = _encodings(config, of_decoder, None, "decoder_encoding")
    cross, by_layer = _encodings(config, of_decoder, None, "cross_encoding")
    if by_layer != identity():
        raise InputError(
            f"`cross_encoding={config.cross_encoding}` differs by layer, or depends on the hidden "
            "states of one row of tokens: pass another, or none"
        )
    options: dict[str, Any] = {"layer_encoding": own_second, "cross_encoding": cross}

    def make(rngs: nnx.Rngs) -> Seq2SeqLM:
        encoder = Encoder(sizes, encoding=encoding, layer_encoding=own, rngs=rngs)
        decoder = Decoder(of_decoder, encoding=second, **options, rngs=rngs)
        return Seq2SeqLM(EncoderDecoder(encoder, decoder), rngs=rngs)

    return make


def _encodings(
    config: TrainConfig,
    sizes: TransformerConfig,
    counts: PositionCounts | None,
    side: Literal["encoding", "decoder_encoding", "cross_encoding"] = "encoding",
) -> tuple[Encoding, Encoding | LayerPattern]:
    """The chain of a configuration, and that of its parts with parameters in every layer."""

    def made(entry) -> Encoding | LayerPattern:
        if entry.name == "information_optimal" and counts is not None:
            return information_optimal(counts.merged(), dim=sizes.dim)
        return entry.make(sizes.encoding_sizes(longest_row(config)))

    parts = [made(entry) for entry in encoding_entries(config, side)]
    own = [p for p in parts if isinstance(p, LayerPattern) or p.defines("context")]
    shared: list[Any] = [p for p in parts if not any(p is other for other in own)]
    return _with_vectors(shared) if shared else identity(), chain(*own) if own else identity()


def _with_vectors(parts: list[Encoding]) -> Encoding:
    """The chain, whose vectors are those added to the embeddings where several parts have some."""
    encoding = chain(*parts)
    with_vectors = [i for i, part in enumerate(parts) if part.defines("vectors")]
    if len(parts) == 1 or len(with_vectors) < 2:
        return encoding
    chosen = next((i for i in with_vectors if parts[i].defines("embed")), with_vectors[0])

    def vectors(params, positions):
        return parts[chosen].vectors(params[chosen], positions)

    return encoding._replace(vectors=vectors)


def _pretrained(
    config: TrainConfig, directory: str, vocabulary: Vocabulary, rngs: nnx.Rngs
) -> MaskedLM | Classifier:
    """A new head on a pretrained encoder, or the head it was pretrained with for mlm."""
    asked = config.model
    choices: dict[str, Any] = {"dropout": asked.dropout, "dtype": jnp.dtype(asked.dtype)}
    choices |= {"scan": asked.scan, "remat": asked.remat}
    if vocabulary.task == "mlm":
        model = load_masked_lm(directory, **choices)
    else:
        family = MPNet if read_fields(directory, "bert")[0].model_type == MPNet.model_type else Bert
        bert = family.load(directory, **choices)
        pooling, classes = asked.pooling or "first", len(vocabulary.classes)
        head: dict[str, Any] = {"num_classes": classes, "pooling": pooling}
        head["pooler"] = (bert.pooler or True) if pooling == "first" else False
        model = Classifier(bert.encoder, **head, rngs=rngs)
    _check_fits(config, directory, model.encoder, len(vocabulary.tokens))
    return model


def _check_fits(config: TrainConfig, directory: str, encoder: Any, vocab_size: int) -> None:
    if config.length > encoder.length:
        raise InputError(
            f"`length={config.length}` is more than the {encoder.length} positions of {directory}"
        )
    if vocab_size > encoder.config.vocab_size:
        raise InputError(
            f"`tokenizer` has {vocab_size} tokens and {directory} only "
            f"{encoder.config.vocab_size}: leave `tokenizer` out to use the model's own"
        )

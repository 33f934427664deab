"""Model, loss, optimizer and probe of a configuration."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from jaxpe._core.errors import InputError
from jaxpe.data import TokenCorpus
from jaxpe.encodings import Encoding, LayerPattern, chain, identity, information_optimal
from jaxpe.geometry import PositionCounts
from jaxpe.nn import (
    Bert,
    CausalLM,
    Classifier,
    Decoder,
    Encoder,
    MaskedLM,
    TransformerConfig,
    functionalize,
    init_model,
    load_masked_lm,
    partition_rules,
)
from jaxpe.nn.heads import trunk
from jaxpe.training.config import (
    DEFAULT_STEPS,
    TrainConfig,
    encoding_entries,
    resolved,
)
from jaxpe.training.documents import Vocabulary, document_geometry
from jaxpe.training.optimizers import (
    Schedule,
    adamw,
    learning_rate_schedule,
    parameter_average,
)
from jaxpe.training.probe import (
    GeometryProbe,
    ReferenceGeometry,
    encoding_probe,
    reference_geometry,
)
from jaxpe.training.step import LossFunction, TrainState, averaged_params
from jaxpe.training.tasks import (
    causal_lm,
    classification,
    logits_at,
    masked_lm,
)

Params = Any


def build_model(
    config: TrainConfig,
    vocabulary: Vocabulary,
    *,
    counts: PositionCounts | None = None,
    mesh: Mesh | None = None,
) -> Any:
    """Model of a configuration with initial weights, from `init_seed`, divided over a mesh.

    Encodings that are fitted to the corpus need its `counts`. Without them, their tables are
    placeholders for a checkpoint to fill.

    Raises:
        InputError: sizes that contradict each other or the pretrained model.
    """
    config = resolved(config, vocabulary.task)
    try:
        if config.pretrained is not None:
            model = _pretrained_model(config, config.pretrained, vocabulary)
            if mesh is not None:
                placed = jax.device_put(functionalize(model)[1], partition_rules(model, mesh))
                model = with_params(model, placed)
            return model
        make = _constructor(config, vocabulary, counts)
        return init_model(make, seed=config.init_seed, mesh=mesh)
    except ValueError as error:
        raise InputError(str(error)) from error


def with_params(model: Any, params: Params) -> Any:
    """Model with other values of its parameters."""
    return functionalize(model, lambda merged: merged)[0](params)


def build_loss(
    config: TrainConfig, model: Any, vocabulary: Vocabulary, *, train: bool
) -> LossFunction:
    """Loss of the task, for training or, without `train`, for evaluation."""
    if vocabulary.task == "mlm":
        return masked_lm(
            functionalize(model, logits_at)[0],
            vocab_size=len(vocabulary.tokens),
            mask_id=vocabulary.mask_id or 0,
            special_ids=vocabulary.special_ids,
            rate=config.mask_rate,
            train=train,
        )
    task = classification if vocabulary.task == "classify" else causal_lm
    return task(functionalize(model)[0], train=train)


def total_steps(config: TrainConfig, rows: int) -> int:
    """Number of updates of a complete run on `rows` documents."""
    if config.epochs is None:
        return config.steps or DEFAULT_STEPS
    return max(1, round(config.epochs * (rows // config.batch_size)))


def build_optimizer(
    config: TrainConfig, *, steps: int
) -> tuple[optax.GradientTransformation, Schedule]:
    """AdamW with what the configuration adds to it, and its learning rate by step."""
    schedule = learning_rate_schedule(
        peak=resolved(config).learning_rate or 0.0,
        steps=steps,
        warmup=min(round(config.warmup * steps), steps - 1),
        decay=config.decay,
    )
    optimizer = adamw(schedule, weight_decay=config.weight_decay, clip=config.clip)
    if config.average is not None:
        optimizer = optax.chain(optimizer, parameter_average(config.average))
    if config.skip_nonfinite:
        optimizer = optax.apply_if_finite(optimizer, config.skip_nonfinite)
    return optimizer, schedule


def trained_params(config: TrainConfig, state: TrainState) -> Params:
    """Parameters to evaluate and to save: the average if the configuration has one."""
    return state.params if config.average is None else averaged_params(state)


def build_probe(
    model: Any, corpus: TokenCorpus, counts: PositionCounts, *, seed: int
) -> Callable[[Params], GeometryProbe]:
    """Compiled `params -> probe` of the model's encoding against the corpus.

    In a chain with several position vectors, the vectors that are added to the embeddings are used.

    Raises:
        InputError: too few documents to distinguish positions, or an encoding without distances.
    """

    def probe(model: Any, reference: ReferenceGeometry) -> GeometryProbe:
        below, positions = trunk(model), np.arange(len(reference.occupied), dtype=np.int32)
        heads = {"num_heads": below.config.num_heads, "head_dim": below.config.head_width}
        params = below.encoding_params.get_value()
        return encoding_probe(below.encoding, params, positions, reference, **heads)

    apply, params = functionalize(model, probe)
    compiled = jax.jit(apply)
    try:
        reference = reference_geometry(counts, document_geometry(corpus, seed=seed))
        # The reference is an argument, since XLA would take long to fold it as a constant. In
        # several processes, arrays of JAX would be of one process alone.
        reference = jax.tree.map(np.asarray, reference)
        compiled.eval_shape(params, reference)  # before the first step, and the folder of the run
    except ValueError as error:
        raise InputError(f"{error}; or leave the probe out: `probe_at=()`") from error
    return lambda params: compiled(params, reference)


def _constructor(
    config: TrainConfig, vocabulary: Vocabulary, counts: PositionCounts | None
) -> Callable[[nnx.Rngs], Any]:
    """Constructor of the model of a task, from random keys."""
    sizes = _transformer_config(config, len(vocabulary.tokens))
    encodings = _encodings(config, sizes, counts)
    head: dict[str, Any] = {"num_classes": len(vocabulary.classes)}
    head["pooling"] = config.model.pooling

    def make(rngs: nnx.Rngs) -> CausalLM | MaskedLM | Classifier:
        if vocabulary.task == "causal":
            return CausalLM(Decoder(sizes, **encodings, rngs=rngs), rngs=rngs)
        encoder = Encoder(sizes, **encodings, rngs=rngs)
        if vocabulary.task == "mlm":
            return MaskedLM(encoder, rngs=rngs)
        return Classifier(encoder, **head, rngs=rngs)

    return make


def _transformer_config(config: TrainConfig, vocab_size: int) -> TransformerConfig:
    options: dict[str, Any] = dict(dataclasses.asdict(config.model))
    del options["pooling"]  # of the classifier
    for name in ("layers", "heads", "kv_heads"):
        options[f"num_{name}"] = options.pop(name)
    options |= {"hidden_dim": options.pop("hidden"), "dtype": jnp.dtype(config.model.dtype)}
    return TransformerConfig(vocab_size=vocab_size, **options)


def _encodings(
    config: TrainConfig, sizes: TransformerConfig, counts: PositionCounts | None
) -> dict[str, Any]:
    """Encodings of a configuration: a shared chain, and a chain with parameters in every layer."""

    def make(entry) -> Encoding | LayerPattern:
        if entry.name == "information_optimal" and counts is not None:
            return information_optimal(counts.merged(), dim=sizes.dim)
        return entry.make(sizes.encoding_sizes(config.length))

    parts = [make(entry) for entry in encoding_entries(config)]
    layered = [isinstance(p, LayerPattern) or p.defines("context") for p in parts]
    shared: list[Any] = [p for p, each in zip(parts, layered, strict=True) if not each]
    in_layers = [p for p, each in zip(parts, layered, strict=True) if each]
    return {
        "encoding": _chain(shared) if shared else identity(),
        "layer_encoding": chain(*in_layers) if in_layers else identity(),
    }


def _chain(parts: list[Encoding]) -> Encoding:
    """Chain of encodings; if several have vectors, its vectors are added to the embeddings."""
    encoding = chain(*parts)
    with_vectors = [i for i, part in enumerate(parts) if part.defines("vectors")]
    if len(parts) == 1 or len(with_vectors) < 2:
        return encoding
    chosen = next((i for i in with_vectors if parts[i].defines("embed")), with_vectors[0])

    def vectors(params, positions):
        return parts[chosen].vectors(params[chosen], positions)

    return encoding._replace(vectors=vectors)


def _pretrained_model(
    config: TrainConfig, directory: str, vocabulary: Vocabulary
) -> MaskedLM | Classifier:
    """Pretrained encoder with a new head, or for mlm with its pretrained head."""
    options = config.model
    choices: dict[str, Any] = {"dropout": options.dropout, "dtype": jnp.dtype(options.dtype)}
    choices |= {"scan": options.scan, "remat": options.remat}
    if vocabulary.task == "mlm":
        model = load_masked_lm(directory, **choices)
    else:
        bert = Bert.load(directory, **choices)
        head: dict[str, Any] = {"num_classes": len(vocabulary.classes), "pooling": options.pooling}
        head["pooler"] = (bert.pooler or True) if options.pooling == "first" else False
        model = Classifier(bert.encoder, **head, rngs=nnx.Rngs(config.init_seed))
    length, vocab_size = model.encoder.length, model.encoder.config.vocab_size
    if config.length > length:
        raise InputError(f"`length={config.length}` exceeds the {length} positions of {directory}")
    if len(vocabulary.tokens) > vocab_size:
        raise InputError(
            f"`tokenizer` has {len(vocabulary.tokens)} tokens, but {directory} only {vocab_size}: "
            "leave `tokenizer` out to use the model's tokenizer"
        )
    return model

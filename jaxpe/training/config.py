"""Configuration of a training run: its type, its file, and its checks."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Literal

from jaxpe._core.errors import InputError
from jaxpe._core.files import write_file
from jaxpe._core.json_values import from_json, read_json
from jaxpe._core.options import LARGEST_SEED, MOST_STEPS, Source, check_ranges, option
from jaxpe.data.corpora.corpus import as_sources
from jaxpe.data.corpora.published import check_data_dir
from jaxpe.data.corpora.sources import held_out_split
from jaxpe.data.formats.files import STANDARD_INPUT
from jaxpe.data.formats.table import usual_tokenizer
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.encodings.entries import resolve
from jaxpe.encodings.registry import CatalogueEntry

Task = Literal["classify", "mlm", "causal"]

DEFAULT_STEPS = 400
MAX_VOCAB = 4000
LABEL = "label"  # column of the classes
CONFIG = "config.json"
_LARGEST_FILE = 2**20  # bytes of a config.json
# Options that do not identify a run; a revision is already resolved to the folder of a commit.
# The machine may change from one resumption to the next.
MACHINE = ("devices", "fsdp", "tensor", "distributed")
_NOT_SAVED = (*MACHINE, "out", "resume", "revision")

_MOST_LAYERS = 10_000  # each layer adds to the program that is compiled
_MOST_DROPOUT = 0.999  # as in `TransformerConfig`
_REMOVED = ("decoder_encoding", "cross_encoding", "longer", "pairs")  # in older config.json
# Tasks that an option is for; None is a task chosen by the documents.
_TASKS: dict[str, tuple[str | None, ...]] = {
    "mask_rate": ("mlm",),
    **dict.fromkeys(("label_field", "model.pooling"), ("classify", None)),
}
# Model options that can be set for a pretrained model.
_FREE = ("model.pooling", "model.dropout", "model.dtype", "model.scan", "model.remat")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and choices of the model.

    Attributes:
        dim: width of the embeddings.
        layers: number of blocks.
        heads: number of query heads.
        hidden: width of the feed-forward layer; 4·dim when absent.
        kv_heads: number of key and value heads; as many as query heads when absent.
        activation: activation of the feed-forward layer.
        norm: LayerNorm or RMSNorm.
        norm_position: norms before or after each sublayer.
        embedding_norm: normalise the embeddings; when absent, only if norms are after sublayers.
        embedding_scale: standard deviation of the initial token embeddings.
        pooling: vector to classify, of the first token or the mean; mean when absent, first for a
            pretrained model.
        dropout: dropout rate, of embeddings and of the outputs of sublayers.
        dtype: dtype of the computation; parameters are float32.
        scan: compile one block and loop over it, which compiles faster and runs slower.
        remat: recompute blocks in the backward pass, which saves memory together with scan.
    """

    dim: int = option(128, least=1)
    layers: int = option(2, least=1, most=_MOST_LAYERS)
    heads: int = option(4, least=1)
    hidden: int | None = option(None, least=1)
    kv_heads: int | None = option(None, least=1)
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu", "geglu_tanh"] = (
        "gelu"
    )
    norm: Literal["layer", "rms"] = "layer"
    norm_position: Literal["pre", "post"] = "pre"
    embedding_norm: bool | None = None
    embedding_scale: float = option(0.02, least=0)
    pooling: Literal["first", "mean"] | None = None
    dropout: float = option(0.1, least=0, most=_MOST_DROPOUT)
    dtype: Literal["float32", "bfloat16"] = "float32"
    scan: bool = False
    remat: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(Source):
    """Train a transformer with a positional encoding, and record the geometry of the encoding.

    Attributes:
        source: stdlib, synthetic, sst2, imdb, or one or several paths and patterns (in quotes) of
            files, folders and datasets that `jaxpe.load_corpus` reads, such as .txt, .csv, .jsonl
            or .parquet. Rename a .tsv to .csv to have quotation marks quote its fields.
        task: classify, mlm (masked language model) or causal (next token). When absent, classify if
            the source has labels, otherwise causal.
        label_field: column or key with the class; label when absent.
        held_out: share of the documents to evaluate on. When absent, the published split of
            a dataset (such as dev of sst2, test of imdb), or 0.1 for other sources.
        tokenizer: words, characters, bytes, or a path: BERT vocab.txt, tokenizer.json or .gguf;
            words when absent, or the one of the pretrained model.
        special: add [CLS] and [SEP]; a pretrained model always has them.
        length: number of positions; longer documents are cut.
        max_vocab: largest vocabulary of words or characters; 4000 when absent.
        encoding: names from `jaxpe encodings`, several joined by + (learned+t5); learned when
            absent. A pretrained model has its own.
        pretrained: Hugging Face directory of a BERT or MPNet to start from, or its name on the hub.
        revision: branch, tag or commit of a model on the hub; its default branch when absent.
        model: sizes and choices of the model.
        batch_size: documents per step.
        accumulate: number of parts in which a batch is computed, to save memory.
        epochs: number of passes over the documents, instead of steps.
        steps: number of updates; 400 when neither steps nor epochs are given.
        learning_rate: peak of the learning rate; 0.001 when absent, 0.00003 for a pretrained model.
        warmup: share of the steps in which the learning rate rises.
        decay: decay of the learning rate, to 0 at the last step unless constant.
        weight_decay: weight decay of AdamW, on matrices and embeddings, never on the encoding.
        clip: largest norm of the gradient.
        average: decay of a moving average of the parameters, such as 0.999; no average when absent.
            Evaluations, the probe and the saved model are of the average.
        mask_rate: share of the tokens to predict, for mlm.
        seed: random seed of the held-out split, the order of the documents, dropout and masks.
        init_seed: random seed of the initial parameters. With equal seeds, runs with different
            encodings have the same batches and initial weights.
        evaluate_every: steps between evaluations.
        evaluate_rows: most documents to evaluate on, drawn by the seed.
        checkpoint_every: steps between checkpoints.
        keep: number of newest checkpoints to keep.
        probe_at: steps at which the geometry of the encoding is compared with the corpus, in
            addition to the last step; empty for no probe.
        skip_nonfinite: most steps in a row to leave out because their gradient is not finite; with
            0 the first one ends the run.
        devices: number of devices to divide batches over; all devices when absent.
        fsdp: number of these devices that also divide the parameters and the optimizer's state.
        tensor: number of devices that divide heads and widths of each layer, of one process.
        out: folder of the run.
        distributed: whether this is one of several processes of a cluster manager (SLURM, GKE).
        resume: resume the run in `out` with its saved settings; with more steps or epochs, extend
            it.
    """

    task: Task | None = None
    label_field: str | None = None
    held_out: float | None = option(None, least=0, below=1)
    special: bool = False
    length: int = option(64, least=2)
    max_vocab: int | None = option(None, least=2)
    encoding: str | None = None
    pretrained: str | None = None
    revision: str | None = None
    model: ModelConfig = ModelConfig()
    batch_size: int = option(32, least=1)
    accumulate: int = option(1, least=1)
    epochs: float | None = option(None, above=0, most=MOST_STEPS)
    steps: int | None = option(None, least=1)
    learning_rate: float | None = option(None, above=0)
    warmup: float = option(0.1, least=0, below=1)
    decay: Literal["constant", "linear", "cosine"] = "linear"
    weight_decay: float = option(0.01, least=0)
    clip: float = option(1.0, above=0)
    average: float | None = option(None, above=0, below=1)
    mask_rate: float = option(0.15, least=0, below=1)
    init_seed: int = option(0, least=0, most=LARGEST_SEED)
    evaluate_every: int = option(50, least=1)
    evaluate_rows: int = option(2000, least=1)
    checkpoint_every: int = option(100, least=1)
    keep: int = option(2, least=2)
    probe_at: tuple[int, ...] = option((0, 50, 100, 200, 500, 1000, 2000), least=0)
    skip_nonfinite: int = option(0, least=0)
    devices: int | None = option(None, least=1)
    fsdp: int = option(1, least=1)
    tensor: int = option(1, least=1)
    distributed: bool = False
    out: Path = Path("run")
    resume: bool = False

    def __post_init__(self):
        for name in ("out", "data_dir"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, Path(value))


def check_config(config: TrainConfig) -> None:
    """Check the options of a run, before anything is read.

    Raises:
        InputError: an invalid option, or two that contradict each other; names what to pass.

    >>> check_config(TrainConfig(encoding="rop"))
    Traceback (most recent call last):
    jaxpe.InputError: `encoding`: no encoding 'rop'; did you mean 'rope'? ...
    """
    encoding_entries(config)
    check_ranges(config)
    if config.batch_size % config.accumulate:
        raise InputError(
            f"`accumulate={config.accumulate}` does not divide `batch_size={config.batch_size}`"
        )
    check_data_dir(config.data_dir, config.source)
    for name in differences(config, TrainConfig()):
        if config.task not in (tasks := _TASKS.get(name, (config.task,))):
            listed = " or ".join(filter(None, tasks))
            raise InputError(f"`{name}` is for `task` {listed}: leave it out")
    tokenizer = tokenizer_name(config)
    if config.max_vocab is not None and not vocabulary_occurs(tokenizer):
        raise InputError(
            f"`max_vocab={config.max_vocab}`: {tokenizer} has a fixed vocabulary; leave it out"
        )
    if STANDARD_INPUT in as_sources(config.source):
        raise InputError("standard input cannot be read again to resume: pass a file")
    if config.epochs is not None and config.steps is not None:
        raise InputError("`epochs` and `steps` both set the length of training: pass one of them")
    if config.pretrained is not None:
        _check_pretrained(config)


def resolved(config: TrainConfig, task: Task | None = None) -> TrainConfig:
    """Configuration with defaults for the absent options that its task uses.

    `held_out` stays None for a source with a published split.

    >>> resolved(TrainConfig(), "causal").model.hidden
    512
    """
    task, model = task or config.task, config.model
    pretrained, tokenizer = config.pretrained is not None, tokenizer_name(config)
    defaults: dict[str, Any] = {
        "task": task,
        "held_out": None if held_out_split(config.source) else 0.1,
        "tokenizer": tokenizer,
        "max_vocab": MAX_VOCAB if vocabulary_occurs(tokenizer) else None,
        "label_field": LABEL if task == "classify" else None,
        "learning_rate": 3e-5 if pretrained else 1e-3,
        "encoding": None if pretrained else "learned",
        "steps": DEFAULT_STEPS if config.epochs is None else None,
    }
    sizes: dict[str, Any] = {}
    if task == "classify":
        sizes["pooling"] = "first" if pretrained else "mean"
    if not pretrained:
        sizes |= {"hidden": 4 * model.dim, "kv_heads": model.heads}
        sizes |= {"embedding_norm": model.norm_position == "post"}
    filled = [
        {name: value for name, value in values.items() if getattr(options, name) is None}
        for options, values in ((config, defaults), (model, sizes))
    ]
    return dataclasses.replace(config, **filled[0], model=dataclasses.replace(model, **filled[1]))


def encoding_entries(config: TrainConfig) -> tuple[CatalogueEntry, ...]:
    """Encodings that a configuration chains.

    Raises:
        InputError: an unknown encoding, with the nearest known name, or one that is not for text.
    """
    names = config.encoding
    if not isinstance(names, str | None):
        raise InputError(
            f"`encoding` is {type(names).__name__}: pass a name of the catalogue, your own "
            "encoding as my_module:my_encoding, or a file of vectors"
        )
    try:
        entries = tuple(map(resolve, (names or "learned").split("+")))
    except InputError as error:
        raise InputError(f"`encoding`: {error}") from error
    for entry in entries:
        if entry.coordinates != 1:
            raise InputError(
                f"`encoding`: {entry.name} needs positions with {entry.coordinates} coordinates, "
                "but positions of text have one: pass another"
            )
    return entries


def save_config(config: TrainConfig) -> None:
    """Write config.json into the folder of the run."""
    write_file(config.out / CONFIG, json.dumps(as_json(config), indent=2) + "\n")


def load_config(directory: str | Path) -> TrainConfig:
    """Configuration of the run in a folder, to resume it.

    Args:
        directory: folder of the run.

    Raises:
        InputError: a folder without a run, or a config.json with invalid options.

    >>> load_config("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere holds no run to resume: there is no config.json; ...
    """
    config, path = read_config(directory), Path(directory) / CONFIG
    for name in (config.encoding or "").split("+"):
        module, colon, _ = name.partition(":")
        if colon and module not in sys.modules:  # a file must not choose what is imported
            raise InputError(
                f"{path}: the encoding {name!r} is in a module that is not imported: import "
                f"{module} first, or pass `encoding={name}`"
            )
    try:
        check_config(config)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return config


def read_config(directory: str | Path) -> TrainConfig:
    """Configuration of the run in a folder, for display; its options are not checked.

    Raises:
        InputError: a folder without a run, or a config.json of something else.
    """
    path = Path(directory) / CONFIG
    if not path.is_file():
        raise InputError(
            f"{directory} holds no run to resume: there is no {CONFIG}; pass its `out`"
        )
    fields = read_json(path, remedy="pass another `out` to train anew", largest=_LARGEST_FILE)
    for name in _REMOVED:
        fields.pop(name, None)
    if isinstance(fields.get("model"), dict):
        fields["model"].pop("decoder_layers", None)
    config: TrainConfig = from_json(TrainConfig, fields, where=str(path))
    return dataclasses.replace(config, out=Path(directory), resume=True)


def as_json(config: TrainConfig) -> dict[str, Any]:
    """Configuration as JSON values, without its folder, revision, and whether it resumes."""
    fields = dataclasses.asdict(config)
    kept = {name: value for name, value in fields.items() if name not in _NOT_SAVED}
    return json.loads(json.dumps(kept, default=str))


def flat_fields(config: TrainConfig) -> dict[str, Any]:
    """Options by name as JSON values, model options with a dot; without `out` and `resume`.

    >>> flat_fields(TrainConfig())["model.dim"]
    128
    """
    fields = as_json(config)
    return fields | {f"model.{name}": value for name, value in fields.pop("model").items()}


def differences(config: TrainConfig, other: TrainConfig) -> dict[str, Any]:
    """Options that differ, with their values in the other configuration.

    >>> differences(TrainConfig(model=ModelConfig(dim=8)), TrainConfig())
    {'model.dim': 128}
    """
    values, others = flat_fields(config), flat_fields(other)
    return {name: others[name] for name, value in values.items() if value != others[name]}


def check_resumption(config: TrainConfig, saved: TrainConfig) -> None:
    """Raise if a run is resumed with other settings than steps and epochs."""
    alike = dataclasses.replace(config, steps=saved.steps, epochs=saved.epochs)
    if changed := differences(alike, saved):
        listed = ", ".join(f"`{name}` ({value})" for name, value in changed.items())
        raise InputError(
            f"{config.out} resumes with its own settings, {listed}: leave these "
            "options out, or pass another `out`"
        )


def _check_pretrained(config: TrainConfig) -> None:
    """Raise for sizes and encodings that a pretrained model fixes."""
    if config.task == "causal":
        raise InputError(
            "`pretrained` is for `task` classify and mlm: BERT and MPNet are not causal"
        )
    if config.encoding is not None:
        raise InputError("`encoding`: the pretrained model has its own; leave out one of the two")
    changed = [name for name in differences(config, TrainConfig()) if name not in _FREE]
    if fixed := ", ".join(f"`{name}`" for name in changed if name.startswith("model.")):
        raise InputError(f"{fixed}: the pretrained model fixes these; leave them out")


def tokenizer_name(config: TrainConfig) -> str:
    """Name or path of the tokenizer, by default the pretrained model's or the usual one."""
    named = config.tokenizer or config.pretrained
    return named or usual_tokenizer(as_sources(config.source)) or "words"

"""Configuration of a training run: its type, its file, and its checks."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Literal

from jaxpe._core.errors import InputError
from jaxpe._core.files import write_file
from jaxpe._core.json_values import from_json, read_json
from jaxpe._core.options import LARGEST_SEED, LARGEST_SIZE, MOST_STEPS, Source, check_range
from jaxpe.data import sequence_task
from jaxpe.data.corpora.corpus import as_sources
from jaxpe.data.corpora.published import check_data_dir
from jaxpe.data.corpora.sources import held_out_split
from jaxpe.data.formats.files import STANDARD_INPUT
from jaxpe.data.formats.table import usual_tokenizer
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.encodings import CatalogueEntry, resolve

Task = Literal["classify", "mlm", "causal", "translate"]
Side = Literal["encoding", "decoder_encoding", "cross_encoding"]

DEFAULT_STEPS = 400
MAX_VOCAB = 4000
LABEL = "label"  # column of the classes
TRANSLATED = ("copy", "reverse", "sort", "scan")  # tasks of `sequence_task`
CONFIG = "config.json"
_LARGEST_FILE = 2**20  # bytes of a config.json
SIDES: tuple[Side, ...] = ("encoding", "decoder_encoding", "cross_encoding")
# Options that do not identify a run; a revision is already resolved to the folder of a commit.
# The machine may change from one resumption to the next.
MACHINE = (
    "devices", "fsdp", "tensor", "distributed", "coordinator", "processes", "process",
)  # fmt: skip
_NOT_SAVED = (*MACHINE, "out", "resume", "revision", "trace")

_LARGEST_FLOAT = 1e30  # close to the largest float32
_MOST_LAYERS = 10_000  # each layer adds to the program that is compiled
_MOST_DROPOUT = 0.999  # as in `TransformerConfig`
# Least and largest value of each option, or of its elements.
_RANGES: dict[str, tuple[float | None, float]] = {
    **dict.fromkeys(
        ("batch_size", "accumulate", "steps", "evaluate_every", "evaluate_rows", "devices", "fsdp",
         "tensor", "checkpoint_every", "longer", "model.dim", "model.heads", "model.hidden",
         "model.kv_heads"),
        (1, LARGEST_SIZE),
    ),
    **dict.fromkeys(("length", "keep", "max_vocab", "pairs"), (2, LARGEST_SIZE)),
    **dict.fromkeys(("model.layers", "model.decoder_layers"), (1, _MOST_LAYERS)),
    **dict.fromkeys(("seed", "init_seed"), (0, LARGEST_SEED)),
    **dict.fromkeys(("weight_decay", "model.embedding_scale"), (0, _LARGEST_FLOAT)),
    **dict.fromkeys(("probe_at", "skip_nonfinite"), (0, MOST_STEPS)),
    "epochs": (None, MOST_STEPS),
    "model.dropout": (0, _MOST_DROPOUT),
}  # fmt: skip
# Tasks that an option is for; None is a task chosen by the documents.
_TASKS: dict[str, tuple[str | None, ...]] = {
    "mask_rate": ("mlm",),
    **dict.fromkeys(("label_field", "model.pooling"), ("classify", None)),
    **dict.fromkeys(
        ("longer", "pairs", "decoder_encoding", "cross_encoding", "model.decoder_layers"),
        ("translate",),
    ),
    **dict.fromkeys(
        ("text_field", "skip_nulls", "data_dir", "tokenizer", "special", "max_vocab",
         "pretrained"),
        ("classify", "mlm", "causal", None),
    ),
}  # fmt: skip
# Model options that can be set for a pretrained model.
_FREE = ("pooling", "dropout", "dtype", "scan", "remat")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and choices of the model.

    Attributes:
        dim: width of the embeddings.
        layers: number of blocks.
        decoder_layers: number of blocks of the decoder, for translate; as many as layers when
            absent.
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

    dim: int = 128
    layers: int = 2
    decoder_layers: int | None = None
    heads: int = 4
    hidden: int | None = None
    kv_heads: int | None = None
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu", "geglu_tanh"] = (
        "gelu"
    )
    norm: Literal["layer", "rms"] = "layer"
    norm_position: Literal["pre", "post"] = "pre"
    embedding_norm: bool | None = None
    embedding_scale: float = 0.02
    pooling: Literal["first", "mean"] | None = None
    dropout: float = 0.1
    dtype: Literal["float32", "bfloat16"] = "float32"
    scan: bool = False
    remat: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(Source):
    """Train a transformer with a positional encoding, and record the geometry of the encoding.

    Attributes:
        source: stdlib, synthetic, sst2, imdb, or one or several paths and patterns (in quotes) of
            files, folders and datasets that `jaxpe.load_corpus` reads, such as .txt, .csv, .jsonl
            or .parquet. Rename a .tsv to .csv to have quotation marks quote its fields. For
            translate: copy, reverse, sort or scan, the tasks of
            `sequence_task`, whose rows are drawn by the seed.
        task: classify, mlm (masked language model), causal (next token) or translate (an answer
            for an input, by an encoder-decoder). When absent, classify if the source has labels,
            otherwise causal.
        label_field: column or key with the class; label when absent.
        held_out: share of the documents to evaluate on. When absent, the published split of
            a dataset (such as dev of sst2, test of imdb), or 0.1 for other sources.
        tokenizer: words, characters, bytes, or a path: BERT vocab.txt, tokenizer.json or .gguf;
            words when absent, or the one of the pretrained model.
        special: add [CLS] and [SEP]; a pretrained model always has them.
        length: number of positions; longer documents are cut. For translate, the largest number of
            words of an input (of clauses for scan); inputs have every length up to it.
        longer: larger lengths of inputs to evaluate on, for translate.
        pairs: number of pairs of input and answer, including held-out ones, for translate; 10000
            when absent.
        max_vocab: largest vocabulary of words or characters; 4000 when absent.
        encoding: names from `jaxpe encodings`, several joined by + (learned+t5); learned when
            absent. A pretrained model has its own. For translate, the encoding of the encoder.
        decoder_encoding: encoding of the decoder, for translate; `encoding` when absent.
        cross_encoding: encoding of the attention from decoder to encoder, for translate; none when
            absent.
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
        coordinator: host and port of process 0, of several processes started by hand.
        processes: number of processes.
        process: number of this process, from 0.
        resume: resume the run in `out` with its saved settings; with more steps or epochs, extend
            it.
        trace: folder for a profile of steps 5 to 8, counted from the start or the resumption, which
            TensorBoard and Perfetto show; no profile when absent.
    """

    task: Task | None = None
    label_field: str | None = None
    held_out: float | None = None
    special: bool = False
    length: int = 64
    longer: tuple[int, ...] = ()
    pairs: int | None = None
    max_vocab: int | None = None
    encoding: str | None = None
    decoder_encoding: str | None = None
    cross_encoding: str | None = None
    pretrained: str | None = None
    revision: str | None = None
    model: ModelConfig = ModelConfig()
    batch_size: int = 32
    accumulate: int = 1
    epochs: float | None = None
    steps: int | None = None
    learning_rate: float | None = None
    warmup: float = 0.1
    decay: Literal["constant", "linear", "cosine"] = "linear"
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float | None = None
    mask_rate: float = 0.15
    init_seed: int = 0
    evaluate_every: int = 50
    evaluate_rows: int = 2000
    checkpoint_every: int = 100
    keep: int = 2
    probe_at: tuple[int, ...] = (0, 50, 100, 200, 500, 1000, 2000)
    skip_nonfinite: int = 0
    devices: int | None = None
    fsdp: int = 1
    tensor: int = 1
    distributed: bool = False
    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None
    out: Path = Path("run")
    resume: bool = False
    trace: Path | None = None

    def __post_init__(self):
        for name in ("out", "trace", "data_dir"):
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
    for side in SIDES:
        encoding_entries(config, side)
    _check_numbers(config)
    check_data_dir(config.data_dir, config.source)
    for name in _changed_names(config, TrainConfig()):
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
    if config.task == "translate":
        _check_translation(config)


def resolved(config: TrainConfig, task: Task | None = None) -> TrainConfig:
    """Configuration with defaults for the absent options that its task uses.

    `held_out` stays None for a source with a published split.

    >>> resolved(TrainConfig(), "causal").model.hidden
    512
    """
    task, model = task or config.task, config.model
    pretrained, translates = config.pretrained is not None, task == "translate"
    tokenizer = None if translates else tokenizer_name(config)
    defaults: dict[str, Any] = {
        "task": task,
        "held_out": None if held_out_split(config.source) else 0.1,
        "tokenizer": tokenizer,
        "max_vocab": MAX_VOCAB if tokenizer and vocabulary_occurs(tokenizer) else None,
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
    if translates:
        defaults |= {"decoder_encoding": config.encoding or "learned", "cross_encoding": "none"}
        defaults["pairs"] = 10_000
        sizes["decoder_layers"] = model.layers
    filled = [
        {name: value for name, value in values.items() if getattr(options, name) is None}
        for options, values in ((config, defaults), (model, sizes))
    ]
    return dataclasses.replace(config, **filled[0], model=dataclasses.replace(model, **filled[1]))


def encoding_entries(config: TrainConfig, side: Side = "encoding") -> tuple[CatalogueEntry, ...]:
    """Encodings that a configuration chains, on one side of an encoder–decoder.

    Raises:
        InputError: an unknown encoding, with the nearest known name, or one that is not for text.
    """
    names = getattr(config, side)
    if not isinstance(names, str | None):
        raise InputError(
            f"`{side}` is {type(names).__name__}: pass a name of the catalogue, your own encoding "
            "as my_module:my_encoding, or a file of vectors"
        )
    if names is None and side == "decoder_encoding":
        return encoding_entries(config)
    names = names or ("none" if side == "cross_encoding" else "learned")
    try:
        entries = tuple(map(resolve, names.split("+")))
    except InputError as error:
        raise InputError(f"`{side}`: {error}") from error
    for entry in entries:
        if entry.coordinates != 1:
            raise InputError(
                f"`{side}`: {entry.name} needs positions with {entry.coordinates} coordinates, but "
                "positions of text have one: pass another"
            )
    return entries


def save_config(config: TrainConfig) -> None:
    """Write config.json into the folder of the run."""
    write_file(config.out / CONFIG, json.dumps(as_json(config), indent=2) + "\n")


def load_config(directory: str | Path) -> TrainConfig:
    """Configuration of the run in a folder, to resume it.

    Raises:
        InputError: a folder without a run, or a config.json with invalid options.

    >>> load_config("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere holds no run to resume: there is no config.json; ...
    """
    config, path = read_config(directory), Path(directory) / CONFIG
    _refuse_imports(config, path)
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
    config: TrainConfig = from_json(TrainConfig, fields, where=str(path))
    return dataclasses.replace(config, out=Path(directory), resume=True)


def _refuse_imports(config: TrainConfig, path: Path) -> None:
    """Raise for encodings in modules that are not imported: a file must not choose the imports."""
    for side in SIDES:
        for name in (getattr(config, side) or "").split("+"):
            module, colon, _ = name.partition(":")
            if colon and module not in sys.modules:
                raise InputError(
                    f"{path}: the encoding {name!r} is in a module that is not imported: import "
                    f"{module} first, or pass `{side}={name}`"
                )


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


def differences(config: TrainConfig, saved: TrainConfig) -> list[str]:
    """Options that differ, each with its saved value.

    >>> differences(TrainConfig(model=ModelConfig(dim=8)), TrainConfig())
    ['`model.dim` (128)']
    """
    values = flat_fields(saved)
    return [f"`{name}` ({values[name]})" for name in _changed_names(config, saved)]


def _changed_names(config: TrainConfig, other: TrainConfig) -> list[str]:
    """Names of the options that differ."""
    values, others = flat_fields(config), flat_fields(other)
    return [name for name, value in values.items() if value != others[name]]


def is_longer(config: TrainConfig, saved: TrainConfig) -> bool:
    """Whether a configuration differs only by more steps or epochs.

    >>> is_longer(TrainConfig(steps=500), TrainConfig()), is_longer(TrainConfig(), TrainConfig())
    (True, False)
    """
    if not {"steps", "epochs"}.issuperset(_changed_names(config, saved)):
        return False
    if config.epochs is None or saved.epochs is None:
        steps = [one.steps or DEFAULT_STEPS for one in (config, saved)]
        return config.epochs is saved.epochs is None and steps[0] > steps[1]
    return config.steps is None and config.epochs > saved.epochs


def _check_numbers(config: TrainConfig) -> None:
    options = flat_fields(config) | {name: getattr(config, name) for name in MACHINE}
    for name, (least, most) in _RANGES.items():
        value = options[name]
        for number in value if isinstance(value, list) else [value]:
            check_range(name, number, least=least, most=most)
    if config.average is not None and not 0 < config.average < 1:
        raise InputError(f"`average` is {config.average}; pass a decay below 1, such as 0.999")
    for name in ("learning_rate", "clip", "epochs"):
        value = options[name]
        if value is not None and not 0 < value <= _LARGEST_FLOAT:
            raise InputError(f"`{name}` is {value}; pass a positive number")
    for name in ("warmup", "held_out", "mask_rate"):
        if (value := options[name]) is not None and not 0 <= value < 1:
            raise InputError(f"`{name}` is {value}; pass a share of 1")
    if config.batch_size % config.accumulate:
        raise InputError(
            f"`accumulate={config.accumulate}` does not divide `batch_size={config.batch_size}`"
        )


def _check_translation(config: TrainConfig) -> None:
    """Raise for options that do not fit a sequence task of an encoder–decoder."""
    if config.source not in TRANSLATED:
        raise InputError(
            f"`source={config.source}` does not give inputs with answers: for `task` translate "
            f"pass one of {', '.join(TRANSLATED)}"
        )
    for side in SIDES:
        if fitted := [e.name for e in encoding_entries(config, side) if e.fitted]:
            raise InputError(
                f"`{side}`: {fitted[0]} is fitted to a corpus, and has no vectors for longer "
                "inputs: pass another"
            )
    if short := [length for length in config.longer if length <= config.length]:
        raise InputError(
            f"`longer` has {short[0]}, which does not exceed `length={config.length}`: pass larger "
            "lengths"
        )


def _check_pretrained(config: TrainConfig) -> None:
    """Raise for sizes and encodings that a pretrained model fixes."""
    if config.task == "causal":
        raise InputError(
            "`pretrained` is for `task` classify and mlm: BERT and MPNet are not causal"
        )
    if config.encoding is not None:
        raise InputError("`encoding`: the pretrained model has its own; leave out one of the two")
    fixed = [
        f"`{name}`"
        for name in _changed_names(config, TrainConfig())
        if name.startswith("model.") and name.removeprefix("model.") not in _FREE
    ]
    if fixed:
        fixed = ", ".join(fixed)
        raise InputError(f"{fixed}: the pretrained model fixes these; leave them out")


def longest_row(config: TrainConfig) -> int:
    """Number of positions that a model needs, for the longest document or input with answer.

    >>> longest_row(TrainConfig(task="translate", source="copy", length=4, longer=(6,)))
    15
    """
    if config.task != "translate":
        return config.length
    return sequence_task(str(config.source)).tokens(max((config.length, *config.longer)))


def tokenizer_name(config: TrainConfig) -> str:
    """Name or path of the tokenizer, by default the pretrained model's or the usual one."""
    named = config.tokenizer or config.pretrained
    return named or usual_tokenizer(as_sources(config.source)) or "words"

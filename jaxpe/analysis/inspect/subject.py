"""Model and text of an inspection, read within half of the memory."""

import dataclasses
import importlib.util
import math
import reprlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.gguf import read_gguf
from jaxpe._core.hub import check_model_folder, local_model_options, model_name
from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.attention_result import Score
from jaxpe.analysis.inspect.documents import Sample, draw_sample
from jaxpe.analysis.inspect.flax_model import inspected_model
from jaxpe.analysis.inspect.options import InspectOptions
from jaxpe.analysis.inspect.result import InspectFacts, Kind
from jaxpe.analysis.inspect.torch_model import load_torch
from jaxpe.analysis.subject import Subject, SubjectOptions, check_sizes, is_run, read_subject
from jaxpe.data import TokenCorpus, load_corpus, open_tokenizer, tokenize
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.data.tokens.pretrained import model_tokenizer_file, open_pretrained
from jaxpe.data.tokens.tokenizers import Tokenizer
from jaxpe.nn import (
    Bert,
    CausalLM,
    Encoder,
    load_masked_lm,
    load_model,
)
from jaxpe.nn.checkpoints.gguf_weights import gguf_file
from jaxpe.nn.checkpoints.model_config import find_architecture, read_config
from jaxpe.nn.checkpoints.tensors import open_tensors
from jaxpe.training.documents import Vocabulary

LENGTH = 128  # positions by default
_QUICK_LENGTH = 64
# Floating-point operations of one pass over the documents, or over the texts.
_BUDGET = 1e12
_EXAMPLES = (32, 64)  # documents, at least and at most
_QUICK_EXAMPLES = 16
_LONGEST = (512, 1024)  # tokens of a text, for large and for small models
_QUICK_LONGEST = 256
_LEAST_TEXTS = 4
_MASK = ("[MASK]", "<mask>")
_SCORES: dict[Kind, Score] = {"causal": "causal", "masked": "masked", "encoder": "embedding"}


class InspectSubject(NamedTuple):
    """The model and text of all stages.

    Attributes:
        path: file or folder with the configuration of the model; None for a run.
        subject: the model, with documents of at most the requested length.
        sample: documents of attention, spectral, probe and ablation.
        tokenizer: tokenizer of the model; None for a run.
        stream: ids of whole documents end to end, without special tokens; empty for a run.
        context: positions for which the model was configured; 0 if unknown.
        longest: tokens of the longest text.
        quick: whether to use fewer documents and shorter texts.
        cut: tokens at which the file of the tokenizer truncates texts; 0 if it does not.
    """

    path: Path | None
    subject: Subject
    sample: Sample
    tokenizer: Tokenizer | None
    stream: np.ndarray
    context: int
    longest: int
    quick: bool
    cut: int = 0

    @property
    def module(self) -> Any:
        """The model."""
        return self.subject.module

    @property
    def inspected(self) -> Any:
        """The model as stages see it."""
        return inspected_model(self.module)

    @property
    def kind(self) -> Kind:
        """Kind of the model."""
        return self.inspected.kind

    @property
    def corpus(self) -> TokenCorpus:
        """The documents."""
        return self.subject.documents.corpus

    @property
    def most(self) -> int | None:
        """Number of positions of a model that has no more; None otherwise."""
        return self.context or None if self.inspected.bounded else None

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of special tokens before and after a document."""
        if self.tokenizer is None:
            return tuple(self.subject.vocabulary.special_ids)
        return tuple(sorted({*self.tokenizer.prefix, *self.tokenizer.suffix}))


def read_inspect_subject(
    options: InspectOptions,
    *,
    module: Any = None,
    name: str = "",
    progress: Progress = SILENT,
) -> InspectSubject:
    """Read a model and the text it is inspected by.

    Args:
        options: model and text to read.
        module: model with the configuration and tokenizer of the folder; read from it when None.
        name: name of the model; the folder's when empty.
        progress: receiver of progress in reading the documents.

    Raises:
        InputError: options out of range, a model that cannot be read or is larger than half of the
            memory, no tokenizer, or text that is too short.

    >>> options = InspectOptions(model="all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> subject = read_inspect_subject(options)  # doctest: +SKIP
    >>> subject.kind, subject.context  # doctest: +SKIP
    ('encoder', 512)
    """
    options.check()
    options = local_model_options(options, "model")
    path = Path(str(options.model))
    _check_path(options, path)
    if module is None and is_run(path):
        return _read_run(options, progress)
    program = options.program or ("jax" if module is not None else _program(path))
    tokenizer = options.tokenizer or str(model_tokenizer_file(path))
    pretrained = open_pretrained(tokenizer)
    special = pretrained.model.num_special_tokens_to_add(False) > 0
    if module is None:
        _check_memory(path)
        module = _load(options, path) if program == "jax" else load_torch(path, task=options.task)
    model = inspected_model(module)
    texts = _sampled_corpus(options, progress)
    context = model.context(path)
    length = options.length or (_QUICK_LENGTH if options.quick else LENGTH)
    if model.bounded and context:
        length = min(length, context)
    rows = tokenize(texts, tokenizer=tokenizer, length=length, special=special, progress=progress)
    check_sizes(rows, model.sizes.vocabulary, model.table_length or None, options.model)
    subject = Subject(
        module=module,
        documents=LabelledTokens(rows, np.zeros(len(rows.ids), np.int32), (), tokenizer),
        vocabulary=_vocabulary(rows, model),
        source=texts.name,
        model=name or (path.stem if path.suffix == ".gguf" else model_name(path)),
    )
    try:
        sample = draw_sample(
            subject,
            examples=_examples(options, model),
            score=_SCORES[model.kind],
            seed=options.seed,
        )
    except InputError as error:
        raise InputError(f"the corpus is too short to inspect a model by: {error}") from error
    longest = _longest(options, model, context)
    opened = open_tokenizer(tokenizer, special=special)
    stream = _token_stream(opened, texts.documents, needed=16 * longest)
    return InspectSubject(
        path, subject, sample, opened, stream, context, longest, options.quick, pretrained.cut
    )  # fmt: skip


def inspect_facts(subject: InspectSubject, *, seed: int) -> InspectFacts:
    """Names and sizes of the model and the text.

    >>> inspect_facts(subject, seed=0).layers  # doctest: +SKIP
    6
    """
    model, rows = subject.inspected, subject.sample.rows
    sizes = model.sizes
    return InspectFacts(
        model=subject.subject.model,
        source=subject.subject.source,
        kind=subject.kind,
        encoding=" and ".join(model.encodings) or "none",
        layers=sizes.layers,
        heads=sizes.heads,
        head_width=sizes.head_width,
        width=sizes.dim,
        vocabulary=sizes.vocabulary,
        parameters=sizes.parameters,
        context=subject.context,
        positions=subject.sample.text.stop - subject.sample.text.start,
        examples=len(rows),
        documents=len(subject.corpus.ids),
        longest=subject.longest,
        seed=seed,
        jaxpe=jaxpe.__version__,
        left_out=model.left_out,
        cut=subject.cut,
        trained=subject.subject.trained,
    )


def _check_path(options: InspectOptions, path: Path) -> None:
    if not path.exists():
        raise InputError(
            f"`model`: {options.model} does not exist; pass a Hugging Face directory, a .gguf "
            "file, a folder with one, or a name on the hub, such as Qwen/Qwen3-0.6B"
        )
    if not is_run(path):
        check_model_folder(path)


def _read_run(options: InspectOptions, progress: Progress) -> InspectSubject:
    """A run of `jaxpe train` and its held-out documents."""
    names = {field.name for field in dataclasses.fields(SubjectOptions)}
    shared = {k: v for k, v in vars(options).items() if k in names}
    reading = SubjectOptions(**shared)
    subject = read_subject(reading, new_head=False, held_out=True, progress=progress)
    model, task = inspected_model(subject.module), subject.vocabulary.task
    score: Score = "accuracy" if task == "classify" else _SCORES[model.kind]
    examples = options.examples or (_QUICK_EXAMPLES if options.quick else _EXAMPLES[1])
    sample = draw_sample(subject, examples=examples, score=score, seed=options.seed)
    n = subject.documents.corpus.ids.shape[1]
    context, stream = model.table_length or n, np.zeros(0, np.int32)
    return InspectSubject(None, subject, sample, None, stream, context, n, options.quick)


def _program(path: Path) -> Literal["jax", "torch"]:
    """The program that loads a model: torch for architectures that `jaxpe.nn` does not know."""
    config = path / "config.json"
    if gguf_file(path) is not None or not config.is_file() or find_architecture(path) is not None:
        return "jax"
    if all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        return "torch"
    raise InputError(
        f"{config}: model_type is {reprlib.repr(read_config(config).get('model_type'))}, which "
        "jaxpe.nn does not load; with `pip install 'jaxpe[torch]'` it is inspected through "
        "transformers"
    )


def _check_memory(path: Path) -> None:
    """Raise for a model whose parameters take more than half of the memory, before reading it."""
    if (file := gguf_file(path)) is not None:
        count = sum(math.prod(tensor.shape) for tensor in read_gguf(file)[1].values())
    else:
        with open_tensors(path, "") as tensors:
            count = sum(math.prod(tensors.shape(name)) for name in tensors.files)
    check_bytes(
        8 * count,
        what=f"inspecting {path} ({count / 1e6:,.0f} million parameters, 4 bytes each, and as much "
        "again at work)",
        remedy="take a smaller model, or a machine with more memory",
    )


def _load(options: InspectOptions, path: Path) -> Any:
    """The model: a decoder with its head, an encoder with one if `task` requires it."""
    if options.task == "mlm":
        return load_masked_lm(path, scan=True)
    model = load_model(path, scan=True)
    model = model.encoder if isinstance(model, Bert) else model
    if not isinstance(model, CausalLM | Encoder):
        raise InputError(f"{path} has an encoder and a decoder: pass a model that is one of them")
    return model


def _sampled_corpus(options: InspectOptions, progress: Progress) -> Any:
    corpus = load_corpus(
        options.source,
        text_field=options.text_field,
        skip_nulls=options.skip_nulls,
        data_dir=options.data_dir,
        progress=progress,
    )
    order = np.random.default_rng(options.seed).permutation(len(corpus.documents))
    chosen = np.sort(order[: options.documents])
    columns = [x.value for x in corpus.choices if x.setting == "column of text"]
    name = corpus.name + (f", column {columns[0]}" if columns else "")
    return corpus._replace(name=name, documents=[corpus.documents[i] for i in chosen])


def _vocabulary(rows: TokenCorpus, model: Any) -> Vocabulary:
    task = "causal" if model.kind == "causal" else "mlm"
    mask = next((rows.tokens.index(name) for name in _MASK if name in rows.tokens), None)
    return Vocabulary(task, rows.tokens, (), mask, rows.exclude)


def _operations(model: Any) -> float:
    """Floating-point operations a token, without the embeddings."""
    sizes = model.sizes
    return 2.0 * (sizes.parameters - sizes.vocabulary * sizes.dim)


def _examples(options: InspectOptions, model: Any) -> int:
    if options.examples is not None:
        return options.examples
    if options.quick:
        return _QUICK_EXAMPLES
    least, most = _EXAMPLES
    return int(np.clip(_BUDGET / _operations(model) / LENGTH, least, most)) // 4 * 4


def _longest(options: InspectOptions, model: Any, context: int) -> int:
    """Tokens of the longest text: twice a small context, to exceed it, or as time allows."""
    if options.longest is not None:
        return options.longest
    least, most = _LONGEST
    if model.bounded and context:
        return min(context, _QUICK_LONGEST if options.quick else least)
    if 0 < 2 * context <= most:
        return 2 * context
    if options.quick:
        return _QUICK_LONGEST
    fits = _BUDGET / _operations(model) / _LEAST_TEXTS
    return most if fits >= 2 * most else least


def _token_stream(tokenizer: Tokenizer, texts: list[str], *, needed: int) -> np.ndarray:
    """Ids of documents end to end, up to the number needed."""
    parts, count = [], 0
    for start in range(0, len(texts), 64):
        rows = tokenizer.rows(texts[start : start + 64], None)
        parts += [np.asarray(row, np.int32) for row in rows]
        count += sum(map(len, rows))
        if count >= needed:
            break
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)

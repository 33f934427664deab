"""The commands of `jaxpe`: parse, call, print."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import jax
import rich
from rich.console import Console
from rich.progress import track
from tyro.conf import Positional

import jaxpe
from jaxpe._cache import cache_directory
from jaxpe._errors import InputError, nearest, require
from jaxpe.data import TokenCorpus, export_corpus, load_corpus, load_tokens
from jaxpe.report import (
    About,
    analyse,
    audit_table,
    check_options,
    check_sizes,
    encoding_table,
    extrapolation_table,
    findings,
    prepare_directory,
    property_json,
    property_markdown,
    property_rows,
    property_table,
    spectral_table,
    summary_table,
    write_audit,
    write_extrapolation,
    write_report,
    write_spectral,
)


def report(
    source: Positional[str] = "stdlib",
    *,
    tokenizer: str = "words",
    length: int | None = None,
    dim: int = 64,
    empty: Literal["drop", "uniform", "zero", "error"] | None = None,
    special: bool = False,
    splits: int = 8,
    bootstrap: int = 40,
    seed: int = 0,
    out: Path = Path("report"),
    text_field: str | None = None,
    data_dir: Path | None = None,
) -> None:
    """Measure what position means in a corpus, and write a report on it.

    Args:
        source: stdlib, synthetic, sst2, imdb, or a .txt, .tsv, .csv, .jsonl (each also .gz) or
            .npy file, or - for lines on standard input.
        tokenizer: words, characters, bytes, or the path of a BERT vocab.txt or a tokenizer.json.
        length: positions looked at; from the corpus when absent (at most 128).
        dim: width at which encodings are compared (even).
        empty: what positions without tokens become; "drop" when absent. Needed when the length
            exceeds every document.
        special: add [CLS] and [SEP] and leave them out of the counts, as BERT does.
        splits: halvings of the corpus behind the noise-corrected geometry.
        bootstrap: resamples behind the intervals; 0 for none.
        seed: makes every number reproducible.
        out: folder for report.html, report.json and figures.
        text_field: column or key with the text, in .tsv, .csv and .jsonl.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """
    started = time.perf_counter()
    check_options(length=length, dim=dim, splits=splits, bootstrap=bootstrap, seed=seed)
    require("matplotlib.figure", extra="report")
    require("jinja2", extra="report")
    prepare_directory(out)
    _remember_compilations()
    progress = _progress(Console(stderr=True))
    corpus = load_tokens(
        source,
        tokenizer=tokenizer,
        length=length,
        special=special,
        text_field=text_field,
        data_dir=data_dir,
        progress=progress,
    )
    _refuse_too_long(corpus, length, empty)
    read = time.perf_counter() - started
    analysis = analyse(
        corpus,
        dim=dim,
        empty=empty or "drop",
        splits=splits,
        bootstrap=bootstrap,
        seed=seed,
        progress=progress,
    )
    analysis.timings.update(read=read)
    page = write_report(analysis, out)
    rich.print(summary_table(analysis))
    rich.print(encoding_table(analysis))
    Console(highlight=False).print(findings(analysis)[0], markup=False)
    print(f"\nReport: {page}   ({time.perf_counter() - started:.0f} s)")


def export(
    source: Positional[str],
    directory: Positional[Path],
    *,
    text_field: str | None = None,
    data_dir: Path | None = None,
) -> None:
    """Write a corpus as a TFDS dataset (array_record), to be read back by path.

    Args:
        source: as for `jaxpe report`.
        directory: folder that is made to hold the dataset.
        text_field: column or key with the text, in .tsv, .csv and .jsonl.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """
    progress = _progress(Console(stderr=True))
    corpus = load_corpus(source, text_field=text_field, data_dir=data_dir, progress=progress)
    print(f"Exported {len(corpus.documents):,} documents: {export_corpus(corpus, directory)}")


def encodings(
    names: Positional[tuple[str, ...]] = (),
    *,
    about: About = "overview",
    dim: int = 512,
    heads: int = 8,
    head_dim: int = 64,
    length: int = 512,
    form: Literal["table", "markdown", "json"] = "table",
) -> None:
    """Print what is computed about each positional encoding: parameters, information, cost.

    Args:
        names: encodings to show; all when none is named.
        about: what to say of them: parameters, information and cost at a glance; what transformers
            can express with them; the terms of generalisation bounds; positions beyond the length;
            how cost grows.
        dim: width of the token embeddings.
        heads: attention heads.
        head_dim: width of a head.
        length: training length, in positions.
        form: how to print.
    """
    _remember_compilations()
    sizes = jaxpe.EncodingSizes(dim=dim, num_heads=heads, head_dim=head_dim, length=length)
    check_sizes(sizes)
    progress = _progress(Console(stderr=True))
    chosen = _known_encodings(names)
    rows = {
        entry: property_rows(about, entry, sizes)
        for entry in progress(chosen, "encodings", total=len(chosen))
    }
    if form == "json":
        print(json.dumps(property_json(about, rows, sizes), indent=2))
    elif form == "markdown":
        print(property_markdown(about, rows))
    else:
        rich.print(property_table(about, rows, sizes))


def _known_encodings(names: tuple[str, ...]) -> tuple[jaxpe.CatalogueEntry, ...]:
    """The entries of these names, or the nearest name to one that is unknown."""
    try:
        return jaxpe.catalogue(*names)
    except ValueError as error:
        known = [entry.name for entry in jaxpe.CATALOGUE]
        near = [nearest(name, known) for name in names if name not in known]
        hints = [name for name in near if name is not None]
        hint = f"; did you mean {', '.join(map(repr, hints))}?" if hints else ""
        raise InputError(f"{error}{hint}") from error


def train(words: Positional[tuple[str, ...]] = ()) -> None:
    """Train a transformer with a positional encoding, and watch the encoding's geometry.

    Args:
        words: options, which `jaxpe train --help` lists.
    """
    for module in ("flax", "optax", "orbax.checkpoint", "grain", "safetensors"):
        require(module, extra="train")
    require("matplotlib.figure", extra="report")
    _remember_compilations()
    from jaxpe import _train

    _train.run(words, progress=_progress(Console(stderr=True)))


def audit(
    source: Positional[str] = "stdlib",
    *,
    model: str | None = None,
    examples: int = 256,
    length: int = 64,
    steps: int = 40,
    tokenizer: str | None = None,
    task: Literal["classify", "mlm", "causal"] | None = None,
    seed: int = 0,
    out: Path = Path("audit"),
    text_field: str | None = None,
    label_field: str = "label",
    data_dir: str | None = None,
) -> None:
    """Evaluate every published statement on a corpus and a model: hypotheses and conclusions.

    Args:
        source: as for `jaxpe report`.
        model: folder of a `jaxpe train` run, or a Hugging Face directory of a BERT or MPNet; a
            small transformer as initialised when absent. A run brings its own length and task.
        examples: documents that expectations are over.
        length: positions.
        steps: of gradient descent on positions, real and linearised.
        tokenizer: as for `jaxpe train`.
        task: as for `jaxpe train`; mlm when absent and there are no labels.
        seed: makes every number reproducible.
        out: folder for audit.html, audit.json and figures.
        text_field: column or key with the text, in .tsv, .csv and .jsonl.
        label_field: column or key with the class.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """
    started = time.perf_counter()
    _prepare_models(out)
    from jaxpe.auditing import audit_subject, read_subject

    subject = read_subject(
        source,
        model=model,
        examples=examples,
        length=length,
        seed=seed,
        progress=_progress(Console(stderr=True)),
        tokenizer=tokenizer,
        task=task,
        text_field=text_field,
        label_field=label_field,
        data_dir=data_dir,
    )
    found = audit_subject(subject, steps=steps, seed=seed)
    page = write_audit(found, out)
    rich.print(audit_table(found))
    print(f"Audit: {page}   ({time.perf_counter() - started:.0f} s)")


def spectral(
    source: Positional[str] = "stdlib",
    *,
    model: str | None = None,
    examples: int = 64,
    length: int = 64,
    ablate: bool = True,
    tokenizer: str | None = None,
    task: Literal["classify", "mlm", "causal"] | None = None,
    seed: int = 0,
    out: Path = Path("spectral"),
    text_field: str | None = None,
    label_field: str = "label",
    data_dir: str | None = None,
) -> None:
    """Take a model's attention logits apart into position and content, and ablate its heads.

    Args:
        source: as for `jaxpe report`.
        model: folder of a `jaxpe train` run, a Hugging Face directory of a BERT or MPNet, or a
            Llama: its directory, a .gguf, or a folder with one and a tokenizer.json. A small
            transformer as initialised when absent. A run brings its own documents, length and task.
        examples: documents.
        length: positions, special tokens among them.
        ablate: measure what each head is worth; takes most of the time.
        tokenizer: as for `jaxpe train`; that of the model when absent.
        task: as for `jaxpe train`; that which the model was trained for when absent.
        seed: makes every number reproducible.
        out: folder for spectral.html, spectral.json, mean_logits.npy and figures.
        text_field: column or key with the text, in .tsv, .csv and .jsonl.
        label_field: column or key with the class.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """
    started = time.perf_counter()
    _prepare_models(out)
    from jaxpe.auditing import read_spectral_subject, spectra_of

    console = Console(stderr=True)
    subject = read_spectral_subject(
        source,
        model=model,
        examples=examples,
        length=length,
        seed=seed,
        progress=_progress(console),
        tokenizer=tokenizer,
        task=task,
        text_field=text_field,
        label_field=label_field,
        data_dir=data_dir,
    )
    read = time.perf_counter() - started
    found = spectra_of(
        subject, ablate=ablate, say=lambda line: console.print(line, markup=False, highlight=False)
    )
    found.seconds.update(read=read)
    page = write_spectral(found, out)
    rich.print(spectral_table(found))
    print(f"Spectra: {page}   ({time.perf_counter() - started:.0f} s)")


def extrapolate(
    *,
    preset: str = "smoke",
    tasks: tuple[str, ...] = (),
    encodings: tuple[str, ...] = (),
    seeds: int | None = None,
    steps: int | None = None,
    length: int | None = None,
    batch: int | None = None,
    factors: tuple[int, ...] | None = None,
    seed: int | None = None,
    out: Path = Path("extrapolation"),
) -> None:
    """Train on short inputs, test on longer ones, and rank encodings under equal budgets.

    What is done is kept in the folder: the same command goes on where an earlier one stopped.

    Args:
        preset: smoke (minutes), paper (hours) or full (days): suites of tasks and encodings, whose
            settings the other options replace.
        tasks: those looked at; the preset's when absent.
        encodings: those compared; the preset's when absent.
        seeds: models of each task and encoding.
        steps: updates of each model.
        length: T, of the training inputs.
        batch: rows of an update.
        factors: multiples of T at which models are tested, 1 and larger ones.
        seed: makes every number reproducible.
        out: folder for extrapolation.html, extrapolation.json, figures and what was trained.
    """
    started = time.perf_counter()
    _prepare_models(out)
    from jaxpe import extrapolation
    from jaxpe.extrapolation.presets import chosen

    console = Console(stderr=True)
    suites = chosen(
        preset,
        tasks=tasks,
        encodings=encodings,
        seeds=seeds,
        steps=steps,
        length=length,
        batch=batch,
        factors=factors,
        seed=seed,
    )
    found = extrapolation.extrapolate(
        suites, out, say=lambda line: console.print(line, markup=False, highlight=False)
    )
    page = write_extrapolation(found, out)
    rich.print(extrapolation_table(found))
    print(f"Extrapolation: {page}   ({time.perf_counter() - started:.0f} s)")


def _prepare_models(out: Path) -> None:
    """What is needed to look at models is installed, and the folder can be written."""
    for module in ("flax", "optax", "orbax.checkpoint", "grain", "safetensors"):
        require(module, extra="train")
    require("matplotlib.figure", extra="report")
    require("jinja2", extra="report")
    prepare_directory(out)
    _remember_compilations()


def _progress(console: Console):
    """Bars on standard error; nothing where it is not a terminal."""

    def show(iterable: Iterable[Any], description: str, total: int | None = None) -> Iterable[Any]:
        if not console.is_terminal:
            return iterable
        return track(iterable, description, total=total, console=console, transient=True)

    return show


def _refuse_too_long(corpus: TokenCorpus, length: int | None, empty: str | None) -> None:
    """A length beyond every document is a slip, unless the empty positions were thought of."""
    if length is not None and length > corpus.longest and empty is None:
        raise InputError(
            f"--length {length} is longer than any document (the longest has {corpus.longest} "
            f"tokens): pass --length {corpus.longest} or less, or say by --empty drop, uniform or "
            "zero what the empty positions become"
        )


def _remember_compilations() -> None:
    """Keep compiled programs between runs of the command; the second one starts faster."""
    directory = cache_directory()
    if directory is None or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    jax.config.update("jax_compilation_cache_dir", str(directory / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

"""The commands of `jaxpe`: parse, call, print."""

import contextlib
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import jax
import rich
from rich.console import Console
from rich.progress import track
from tyro.conf import Positional

import jaxpe
from jaxpe._core.cache import cache_directory
from jaxpe._core.errors import InputError, nearest, require
from jaxpe._core.folders import claimed, output_folder
from jaxpe.analysis.corpus.job import analyse, analyse_counts, check_options
from jaxpe.analysis.properties import About, check_sizes, property_rows
from jaxpe.data import TokenCorpus, export_corpus, load_corpus, load_tokens
from jaxpe.data._named import check_data_dir
from jaxpe.report import (
    audit_table,
    counts_table,
    encoding_table,
    extrapolation_table,
    findings,
    property_json,
    property_markdown,
    property_table,
    spectral_table,
    summary_table,
    write_audit,
    write_extrapolation,
    write_report,
    write_spectral,
)

_MOST_MEMORY = 1e9  # gigabytes


def report(
    source: Positional[str] = "stdlib",
    *,
    counts: Path | None = None,
    tokenizer: str = "words",
    length: int | None = None,
    dim: int = 64,
    empty: Literal["drop", "uniform", "zero", "error"] | None = None,
    special: bool = False,
    splits: int = 8,
    bootstrap: int | None = None,
    seed: int = 0,
    out: Path = Path("report"),
    text_field: str | None = None,
    data_dir: Path | None = None,
) -> None:
    """Measure what position means in a corpus, and write a report on it.

    Args:
        source: stdlib, synthetic, sst2, imdb, or a .txt, .tsv, .csv, .jsonl (each
            also .gz) or .npy file, or - for lines on standard input.
        counts: folder that `jaxpe count` or `jaxpe merge` wrote, in place of a source; it brings
            tokenizer and length, and intervals come from its folds.
        tokenizer: words, characters, bytes, or the path of a BERT vocab.txt or a tokenizer.json.
        length: positions looked at; from the corpus when absent (at most 128).
        dim: width at which encodings are compared (even).
        empty: what positions without tokens become; "drop" when absent. Needed when the length
            exceeds every document.
        special: add [CLS] and [SEP] and leave them out of the counts, as BERT does.
        splits: halvings of the corpus behind the noise-corrected geometry.
        bootstrap: resamples behind the intervals; 40 when absent, 0 for none.
        seed: makes every number reproducible.
        out: folder for report.html, report.json and figures.
        text_field: column or key with the text, in .tsv, .csv and .jsonl.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """
    started = time.perf_counter()
    resamples = 40 if bootstrap is None else bootstrap
    check_options(length=length, dim=dim, splits=splits, bootstrap=resamples, seed=seed)
    if counts is None:
        check_data_dir(data_dir, source)
    else:
        _refuse_beside_counts(source, tokenizer, length, special, bootstrap, text_field, data_dir)
    require("matplotlib.figure", extra="report")
    require("jinja2", extra="report")
    _remember_compilations()
    progress = _progress(Console(stderr=True))
    options: dict[str, Any] = {"dim": dim, "empty": empty or "drop", "splits": splits, "seed": seed}
    with output_folder(out):
        if counts is not None:
            from jaxpe.analysis.counts import read_counts

            stored = read_counts(counts)
            read = time.perf_counter() - started
            analysis = analyse_counts(stored, **options, progress=progress)
        else:
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
            analysis = analyse(corpus, **options, bootstrap=resamples, progress=progress)
        analysis.timings.update(read=read)
        page = write_report(analysis, out)
    rich.print(summary_table(analysis))
    rich.print(encoding_table(analysis))
    Console(highlight=False).print(findings(analysis)[0], markup=False)
    print(f"\nReport: {page}   ({time.perf_counter() - started:.0f} s)")


def count(
    sources: Positional[tuple[str, ...]],
    *,
    tokenizer: str = "words",
    vocab: Path | None = None,
    max_vocab: int | None = None,
    special: bool = False,
    length: int = 128,
    bins: int | None = None,
    spacing: Literal["equal", "log"] = "equal",
    folds: int = 16,
    nulls: int = 20,
    seed: int = 0,
    batch_size: int = 4096,
    save_every: int = 200,
    skip_unreadable: bool = False,
    memory: float | None = None,
    out: Path = Path("counts"),
    text_field: str | None = None,
    group_field: str | None = None,
    data_dir: Path | None = None,
    distributed: bool = False,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    trace: Path | None = None,
) -> None:
    """Count which token stands where, in any number of documents, and write the counts.

    Killed, the same command goes on where it stopped.

    Args:
        sources: paths and globs (in quotes) of .txt, .tsv, .csv, .jsonl, each also .gz, of
            .array_record, of `jaxpe export` folders; stdlib, sst2, imdb.
        tokenizer: as for `jaxpe report`.
        vocab: file with the vocabulary of words or characters, such as the vocabulary.json
            that an earlier count wrote, or text with one a line; counts that are to be merged
            need the same one. Made in a first pass over the documents when absent.
        max_vocab: the largest vocabulary made; rarer words become [UNK].
        special: add [CLS] and [SEP] and leave them out of the counts, as BERT does.
        length: positions read of each document.
        bins: count positions in so many bins, for long contexts; each position when absent.
        spacing: bins of equal widths, or of widths that grow with the position.
        folds: documents are kept apart in so many, by a hash: for halves and intervals.
        nulls: corpora with shuffled positions, to tell dimensions from noise; 0 for none.
        seed: of the shuffles.
        batch_size: documents of a step, of each process.
        save_every: steps between saves.
        skip_unreadable: read each shard through first, and leave out and report those that cannot
            be read.
        memory: gigabytes that may be used; what is free when absent.
        out: folder for the counts, and for the state while counting.
        text_field: column or key with the text.
        group_field: column or key with the author or source: documents of one share a fold, where
            they are not independent of each other.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
        distributed: one of several processes, which the cluster manager (SLURM, GKE) knows.
        coordinator: host and port of process 0, of several processes started by hand.
        processes: how many.
        process: which is this, from 0.
        trace: folder for a profile of host and devices.
    """
    started = time.perf_counter()
    for module in ("grain", "orbax.checkpoint"):
        require(module, extra="data")
    _remember_compilations()
    _quiet()
    from jaxpe.analysis import counts as counting
    from jaxpe.analysis.counts import job as _count

    if memory is not None and not 0 < memory <= _MOST_MEMORY:
        raise InputError(f"--memory is {memory}; pass gigabytes, such as 16")
    several = distributed or coordinator or processes is not None or process is not None
    with counting.ending_in_one_line() if several else contextlib.nullcontext():
        if several:
            counting.start_processes(coordinator, processes=processes, process=process)
        console = Console(stderr=True, quiet=jax.process_index() > 0)
        stored = _count.run(
            sources,
            out,
            tokenizer=tokenizer,
            vocab=vocab,
            max_vocab=max_vocab,
            special=special,
            settings={
                "length": length,
                "folds": folds,
                "nulls": nulls,
                "seed": seed,
                "group_field": group_field,
            },
            bins=bins,
            spacing=spacing,
            options={
                "text_field": text_field,
                "batch_size": batch_size,
                "save_every": save_every,
                "skip_unreadable": skip_unreadable,
                "memory": None if memory is None else int(memory * 1e9),
            },
            data_dir=data_dir,
            trace=trace,
            say=lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
        )
    if jax.process_index() == 0:
        rich.print(counts_table(stored))
        print(f"Counts: {out}   ({time.perf_counter() - started:.0f} s)")


def merge(
    folders: Positional[tuple[Path, ...]],
    *,
    out: Path,
) -> None:
    """Add counts of different documents, such as from several machines.

    Args:
        folders: that `jaxpe count` wrote, all with the same tokenizer and settings.
        out: folder for their sum.
    """
    from jaxpe.analysis import counts as counting

    parts = [counting.read_counts(folder) for folder in folders]
    merged = counting.merge_counts(parts, names=[str(folder) for folder in folders])
    with claimed(out):
        if counting.is_counted(out):
            raise InputError(f"{out} holds counts already; pass another folder")
        counting.write_counts(merged, out)
    rich.print(counts_table(merged))
    print(f"Counts: {out}")


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
    check_data_dir(data_dir, source)
    _quiet()
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
    check_sizes(sizes, about=about)
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


def _known_encodings(names: tuple[str, ...]) -> tuple[jaxpe.encodings.CatalogueEntry, ...]:
    """The entries of these names, or the nearest name to one that is unknown."""
    try:
        return jaxpe.catalogue(*names)
    except ValueError as error:
        known = [entry.name for entry in jaxpe.encodings.CATALOGUE]
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
    _quiet()
    from jaxpe.cli import train as _train

    _train.run(words, progress=_progress(Console(stderr=True)))


def audit(
    source: Positional[str] = "stdlib",
    *,
    model: str | None = None,
    examples: int = 256,
    length: int | None = None,
    steps: int = 40,
    tokenizer: str | None = None,
    task: Literal["classify", "mlm", "causal"] | None = None,
    seed: int = 0,
    out: Path = Path("audit"),
    text_field: str | None = None,
    label_field: str | None = None,
    data_dir: str | None = None,
) -> None:
    """Evaluate every published statement on a corpus and a model: hypotheses and conclusions.

    Args:
        source: as for `jaxpe report`.
        model: folder of a `jaxpe train` run, or a Hugging Face directory of a BERT or MPNet; a
            small transformer as initialised when absent. A run brings its own documents, length
            and task.
        examples: documents that expectations are over.
        length: positions; 64 when absent.
        steps: of gradient descent on positions, real and linearised.
        tokenizer: as for `jaxpe train`.
        task: as for `jaxpe train`; mlm when absent and there are no labels.
        seed: makes every number reproducible.
        out: folder for audit.html, audit.json and figures.
        text_field: column or key with the text, in .tsv, .csv and .jsonl.
        label_field: column or key with the class; label when absent.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """
    started = time.perf_counter()
    _prepare_models()
    from jaxpe.analysis.audit import audit_subject, check_audit, read_subject

    check_audit(examples=examples, length=length, steps=steps, seed=seed)
    with output_folder(out):
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
    length: int | None = None,
    ablate: bool = True,
    tokenizer: str | None = None,
    task: Literal["classify", "mlm", "causal"] | None = None,
    seed: int = 0,
    out: Path = Path("spectral"),
    text_field: str | None = None,
    label_field: str | None = None,
    data_dir: str | None = None,
) -> None:
    """Take a model's attention logits apart into position and content, and ablate its heads.

    Args:
        source: as for `jaxpe report`.
        model: folder of a `jaxpe train` run, a Hugging Face directory of a BERT or MPNet, or a
            Llama: its directory, a .gguf, or a folder with one and a tokenizer.json. A small
            transformer as initialised when absent. A run brings its own documents, length and task.
        examples: documents.
        length: positions, special tokens among them; 64 when absent.
        ablate: measure what each head is worth; takes most of the time.
        tokenizer: as for `jaxpe train`; that of the model when absent.
        task: as for `jaxpe train`; that which the model was trained for when absent.
        seed: makes every number reproducible.
        out: folder for spectral.html, spectral.json, mean_logits.npy and figures.
        text_field: column or key with the text, in .tsv, .csv and .jsonl.
        label_field: column or key with the class; label when absent.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
    """
    started = time.perf_counter()
    _prepare_models()
    from jaxpe.analysis.attention import check_spectral, read_spectral_subject, spectra_of

    check_spectral(examples=examples, length=length, seed=seed)
    console = Console(stderr=True)
    with output_folder(out):
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
        found = spectra_of(subject, ablate=ablate, say=_line_by_line(console))
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
    _prepare_models()
    from jaxpe.analysis import extrapolation
    from jaxpe.analysis.extrapolation.presets import chosen

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
    extrapolation.check_memory(suites)
    with output_folder(out):
        found = extrapolation.extrapolate(suites, out, say=_line_by_line(Console(stderr=True)))
        page = write_extrapolation(found, out)
    rich.print(extrapolation_table(found))
    print(f"Extrapolation: {page}   ({time.perf_counter() - started:.0f} s)")


def _prepare_models() -> None:
    """What is needed to look at models is installed."""
    for module in ("flax", "optax", "orbax.checkpoint", "grain", "safetensors"):
        require(module, extra="train")
    require("matplotlib.figure", extra="report")
    require("jinja2", extra="report")
    _remember_compilations()
    _quiet()


def _quiet() -> None:
    """Tell an error once: Orbax logs a traceback for every thread of a save that fails."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)


def _line_by_line(console: Console) -> Callable[[str], None]:
    return lambda line: console.print(line, markup=False, highlight=False)


def _progress(console: Console):
    """Bars on standard error; nothing where it is not a terminal."""

    def show(iterable: Iterable[Any], description: str, total: int | None = None) -> Iterable[Any]:
        if not console.is_terminal:
            return iterable
        return track(iterable, description, total=total, console=console, transient=True)

    return show


def _refuse_beside_counts(
    source: str,
    tokenizer: str,
    length: int | None,
    special: bool,
    bootstrap: int | None,
    text_field: str | None,
    data_dir: Path | None,
) -> None:
    """Counts bring all of these."""
    given = {
        "a source": source != "stdlib",
        "--tokenizer": tokenizer != "words",
        "--length": length is not None,
        "--special": special,
        "--bootstrap": bootstrap is not None,
        "--text-field": text_field is not None,
        "--data-dir": data_dir is not None,
    }
    for name, present in given.items():
        if present:
            raise InputError(f"--counts brings what was counted; leave {name} out")


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
    # A cache that cannot be written only costs time, and says nothing about the run.
    warnings.filterwarnings("ignore", r"Error (reading|writing) persistent compilation cache")
    directory = cache_directory()
    if directory is None or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    jax.config.update("jax_compilation_cache_dir", str(directory / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

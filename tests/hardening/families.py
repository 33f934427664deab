"""Families of hostile input to commands and readers; each makes its attempts from a seed."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import shutil
import subprocess
import sys
import types
import typing
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe.cli.commands import options_class
from tests.data.tfds_builder import TEXTS
from tests.films import make_films
from tests.hardening.attempts import Attempt, command, outcome
from tests.hardening.mutations import json_mutations, mutations

Attempts = Iterator[Attempt]

SMALL_MODEL = ("--model.dim", 8, "--model.layers", 1, "--model.heads", 2, "--length", 8)
# Options that make a command quick; an option under attack comes after them, and wins.
QUICK: dict[str, tuple[object, ...]] = {
    "report": ("--dim", 4, "--splits", 2, "--length", 6),
    "count": ("--length", 6, "--folds", 4, "--nulls", 2),
    "audit": ("--examples", 8, "--length", 6, "--steps", 2),
    "train": (*SMALL_MODEL, "--steps", 2, "--batch-size", 8, "--probe-at", 0),
    "extrapolate": ("--tasks", "parity", "--encodings", "none", "--seeds", 2, "--steps", 2,
                    "--length", 2, "--batch", 4, "--factors", 1, 2),
    "encodings": ("sinusoidal", "--dim", 8, "--heads", 2, "--head-dim", 4, "--length", 32),
}  # fmt: skip


MADE = ("dataset", "counts", "run")


# What is typed where a number is expected.
WORDS = (
    "-1", "-3", "0", "1", "3", "1000000007", "1000000000000", "2147483648", "4294967296",
    "9223372036854775808", "18446744073709551616", "1" + "0" * 30, "9" * 5000, "1.5", "nan", "inf",
    "-inf", "1e11", "1e309", "", " ", "x", "--5", "0x10", "\u0663", "1,000", "None", "True",
)  # fmt: skip


class Materials(NamedTuple):
    """Valid input of every kind, to make hostile ones of; folders are copied before use."""

    films: Path  # .tsv with label and text
    ids: Path  # .npy
    dataset: Path  # of TFDS
    counts: Path
    run: Path
    tokenizer: Path | None  # tokenizer.json of a real model
    vocabulary: Path | None  # vocab.txt


def options(materials: Materials, *, seed: int, number: int) -> Attempts:
    """What is no number, too small or too large, for every number that a command takes."""
    rng = np.random.default_rng(seed)
    pairs = [(name, option) for name in QUICK for option in _numbers_of(name)]
    for index in range(number):
        name, option = pairs[index % len(pairs)]
        word = WORDS[rng.integers(len(WORDS))]
        source = () if name in ("extrapolate", "encodings") else (materials.films,)
        out = () if name == "encodings" else ("--out", "out")
        words = (name, *source, *QUICK[name], *out, f"{option}={word}")
        about = f"{name} {option}={word[:30]}"
        # What is in range is run to its end.
        yield Attempt(f"options of {name}", about, _command(*words), limit_s=240)


def _numbers_of(name: str) -> list[str]:
    """The options of a command that are numbers, or lists of them."""
    hints = typing.get_type_hints(options_class(name))
    if name == "train":
        sizes = typing.get_type_hints(hints["model"])
        hints |= {f"model.{field}": kind for field, kind in sizes.items()}
    numbers = [field for field, kind in hints.items() if {int, float} & _parts(kind)]
    return [f"--{field.replace('_', '-')}" for field in numbers]


def _parts(kind: Any) -> set[Any]:
    arguments = typing.get_args(kind)
    if not arguments or typing.get_origin(kind) is typing.Literal:
        return {kind}
    return set().union(*map(_parts, arguments))


def texts(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Damaged and odd files of text; what is read is what stands there."""
    rows = [line.split("\t") for line in materials.films.read_text().splitlines()[1:40]]
    whole = {
        ".txt": "\n".join(text for _, text in rows),
        ".tsv": "\n".join(["label\ttext", *("\t".join(row) for row in rows)]),
        ".csv": "\n".join(["label,text", *(f'{label},"{text}"' for label, text in rows)]),
        ".jsonl": "\n".join(json.dumps({"label": a, "text": b}) for a, b in rows),
        ".json": json.dumps([{"label": a, "text": b} for a, b in rows]),
        "-quoted.tsv": "\n".join(["label\ttext", *(f'{a}\t"{b}, ""{b}"""' for a, b in rows)]),
        "-semicolon.csv": "\n".join(["sep=;", "label;text", *(f'{a};"{b}"' for a, b in rows)]),
    }
    kinds = [*itertools.product(_PACKERS, whole, ("utf-8", "utf-8", "utf-16", "utf-16-be"))]
    for index in range(number):
        packer, ending, encoding = kinds[index % len(kinds)]
        pack, content = _PACKERS[packer], f"{whole[ending]}\n".encode(encoding)
        inside = index // len(kinds) % 2 == 0  # else the archive itself is damaged
        (found,) = mutations(content if inside else pack(content), seed=seed + index, number=1)
        found = pack(found) if inside else found
        call = partial(_read_text, ending + packer, encoding, found)
        yield Attempt(f"text {ending}{packer} {encoding}", f"number {index}", call)


_PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def _read_text(ending: str, encoding: str, content: bytes, work: Path) -> None:
    from jaxpe.data import find_shards, load_corpus

    path = work / f"odd{ending}"
    path.write_bytes(content)
    corpus = load_corpus(path)
    assert len(corpus.documents) >= 2
    assert all(text.strip() for text in corpus.documents)
    (shard,) = find_shards([path])
    assert [document.text for document in shard.documents()] == corpus.documents
    if (ending, encoding) == (".txt", "utf-8"):
        lines = [line.removeprefix("\ufeff") for line in content.decode().split("\n")]
        assert corpus.documents == [line.rstrip("\r\n") for line in lines if line.strip()]


def columns(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Damaged Parquet and Arrow files; what is read is text, and the same however it is read."""
    made = _columnar(materials)
    for index in range(number):
        ending, content = made[index % len(made)]
        (found,) = mutations(content, seed=seed + index, number=1)
        yield Attempt(f"columns {ending}", f"number {index}", partial(_read_columns, ending, found))


def _columnar(materials: Materials) -> list[tuple[str, bytes]]:
    """The documents as Parquet with and without compression, as an Arrow stream and file."""
    script = (
        "import sys, pyarrow as pa, pyarrow.parquet as parquet; "
        "rows = [line.rstrip('\\n').split('\\t') for line in open(sys.argv[1])][1:40]; "
        "labels, texts = zip(*rows); tags = [[text] for text in texts]; "
        "table = pa.table({'label': labels, 'text': texts, 'tags': tags}); "
        "file = pa.OSFile(sys.argv[2], 'wb'); kind = sys.argv[3]; "
        "new = {'stream': pa.ipc.new_stream, 'file': pa.ipc.new_file}.get(kind); "
        "writer = new(file, table.schema) if new else None; "
        "writer.write_table(table, 10) if new else "
        "parquet.write_table(table, file, compression=kind, row_group_size=10); "
        "writer and writer.close(); file.close()"
    )
    made = []
    for kind in ("none", "zstd", "stream", "file"):
        # A process of its own: attempts are forked, which one with threads should not be.
        path = materials.films.with_suffix(f".{kind}")
        subprocess.run([sys.executable, "-c", script, materials.films, path, kind], check=True)
        ending = ".arrow" if kind in ("stream", "file") else ".parquet"
        made.append((ending, path.read_bytes()))
    return made


def _read_columns(ending: str, content: bytes, work: Path) -> None:
    from jaxpe.data import find_shards, load_corpus

    path = work / f"odd{ending}"
    path.write_bytes(content)
    corpus = load_corpus(path)
    (shard,) = find_shards([path])
    assert [document.text for document in shard.documents()] == corpus.documents
    assert all(text.strip() for text in corpus.documents)


def arrays(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Damaged .npy files; what is read is what NumPy reads."""
    content = materials.ids.read_bytes()
    for index, found in enumerate(mutations(content, seed=seed, number=number * 2 // 3)):
        yield Attempt("ids .npy", f"number {index}", partial(_read_ids, found))
    rng = np.random.default_rng(seed)
    for _ in range(number - number * 2 // 3):
        done, found = _odd_header(rng, content)
        yield Attempt("ids .npy", done, partial(_read_ids, found))


def _odd_header(rng: np.random.Generator, content: bytes) -> tuple[str, bytes]:
    headers = (
        "(" * 5000, "{'descr': '<i8', 'fortran_order': False, 'shape': (400000000000, 1)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (-1, 3)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2.0, 3)}",
        "{'descr': 'O', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': [('a', '<i4')], 'fortran_order': True, 'shape': (2, 3)}",
        "{'descr': '<u8', 'fortran_order': False, 'shape': (4, 3)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': ()}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (0, 3)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3, 4)}",
        "__import__('os').system('touch ran')", "{" * 3000, "[]", "None",
    )  # fmt: skip
    header = headers[rng.integers(len(headers))]
    size = len(header) if rng.random() < 0.8 else int(rng.integers(0, 2**16))
    return header[:40], b"\x93NUMPY\x01\x00" + size.to_bytes(
        2, "little"
    ) + header.encode() + content[128:]


def _read_ids(content: bytes, work: Path) -> None:
    from jaxpe.data import load_tokens

    path = work / "odd.npy"
    path.write_bytes(content)
    corpus = load_tokens(path)
    ids = np.load(path)[:, : corpus.ids.shape[1]]
    np.testing.assert_array_equal(corpus.ids[corpus.mask], ids.reshape(-1))
    assert not (work / "ran").exists()


def folders(materials: Materials, *, seed: int, number: int) -> Attempts:
    """TFDS datasets with any file damaged; what is read is what was written."""
    read = partial(_read_dataset, TEXTS["train"])
    yield from _damaged("TFDS datasets", materials.dataset, read, seed, number)


def _read_dataset(documents: list[str], folder: Path) -> None:
    from jaxpe.data import load_corpus

    (folder.parent / "evil.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    found = load_corpus(folder).documents
    assert not (folder.parent / "ran").exists(), "a module that the folder names was run"
    assert found == documents


def counted(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Folders of counts with any file damaged; what is read is what was counted."""
    yield from _damaged(
        "counts", materials.counts, partial(_read_counts, materials.counts), seed, number
    )


def _read_counts(whole: Path, folder: Path) -> None:
    from jaxpe.analysis import counts as counting

    ours, theirs = counting.read_counts(folder), counting.read_counts(whole)
    np.testing.assert_array_equal(ours.table, theirs.table)
    np.testing.assert_array_equal(ours.nulls, theirs.nulls)
    assert ours.header == theirs.header


def runs(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Folders of trainings with any file damaged, loaded and resumed."""
    yield from _damaged("runs, loaded", materials.run, _load_run, seed, number // 2)
    yield from _damaged("runs, resumed", materials.run, _resume, seed + 1, number - number // 2)


def _load_run(folder: Path) -> None:
    import jax

    from jaxpe.training import load_run

    found = load_run(folder)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.params))


def _resume(folder: Path) -> None:
    command("train", "--resume", "--out", folder)


def tokenizers(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Damaged tokenizer files of real models."""
    paths = [path for path in (materials.vocabulary, materials.tokenizer) if path is not None]
    for index in range(number if paths else 0):
        path = paths[index % len(paths)]
        if path.suffix == ".json" and index % 3:
            content = json.dumps(_shortened(json.loads(path.read_text()))).encode()
            (found,) = json_mutations(content, seed=seed + index, number=1)
        else:
            (found,) = mutations(path.read_bytes(), seed=seed + index, number=1)
        about = f"number {index}"
        yield Attempt(f"tokenizer {path.name}", about, partial(_tokenize, path.name, found))


def _shortened(value: Any) -> Any:
    """A tokenizer.json with few of its words, so that a change hits something else, too."""
    model = value["model"]
    kept = dict(sorted(model["vocab"].items(), key=lambda item: item[1])[:200])
    return value | {"model": model | {"vocab": kept}}


def _tokenize(name: str, content: bytes, work: Path) -> None:
    from jaxpe.data import Corpus, tokenize

    (work / name).write_bytes(content)
    corpus = tokenize(Corpus("two", ["good film", "a bad, bad film"]), tokenizer=work / name)
    assert corpus.ids.min() >= 0
    assert corpus.ids.max() < corpus.vocab_size


def models(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Model folders and GGUF files with a field, a header or a weight that is hostile."""
    for index in range(number):
        yield Attempt("models", f"number {index}", partial(_load_model, seed, index))


def _load_model(seed: int, index: int, work: Path) -> None:
    from tests.hardening import hostile_models

    hostile_models.write_hostile(seed, index, work / "model")
    hostile_models.load(work / "model")


def vectors(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Damaged and crafted .npz files of vectors; what is read is what NumPy reads."""
    from jaxpe.encodings.families.vector_files import vectors_file

    rng = np.random.default_rng(seed)
    P = rng.standard_normal((9, 4)).astype(np.float32)
    content = vectors_file(P)
    for index, found in enumerate(mutations(content, seed=seed, number=number * 2 // 3)):
        yield Attempt("vectors .npz", f"number {index}", partial(_read_vectors, found))
    ids = materials.ids.read_bytes()
    for _ in range(number - number * 2 // 3):
        done, member = _odd_header(rng, ids)
        kind = int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]))
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", kind) as packed:
            packed.writestr("vectors.npy", member)
        found = bytearray(archive.getvalue())
        if rng.random() < 0.5:  # flags, method or sizes of the member
            at = int(rng.integers(4, 30))
            found[at] ^= int(rng.integers(1, 256))
        yield Attempt("vectors .npz", done, partial(_read_vectors, bytes(found)))


def _read_vectors(content: bytes, work: Path) -> None:
    from jaxpe.encodings import from_file

    path = work / "odd.npz"
    path.write_bytes(content)
    table = from_file(path).vectors(*_params_and_positions(from_file(path)))
    np.testing.assert_array_equal(table[:1], np.load(path)["vectors"][:1].astype(np.float32))
    assert not (work / "ran").exists()


def _params_and_positions(encoding: Any) -> tuple[Any, np.ndarray]:
    import jax

    return encoding.init(jax.random.key(0)), np.arange(1)


def configurations(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Rotary configurations of released models, of which values are others or are moved."""
    stored = Path(__file__).parents[1] / "plans"
    released = [
        json.dumps(config).encode()
        for name in ("published.json", "reported.json")
        for config in _configs(json.loads((stored / name).read_text()))
    ]
    for index in range(number):
        content = released[index % len(released)]
        make = mutations if index % 5 == 4 else json_mutations
        (found,) = make(content, seed=seed + index, number=1)
        yield Attempt(
            "rope config.json", f"number {index}", partial(_explain, "config.json", found)
        )


def _configs(value: Any) -> Iterator[dict[str, Any]]:
    """The objects with a model type, wherever they stand."""
    if isinstance(value, dict) and "model_type" in value:
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _configs(item)


def _explain(name: str, content: bytes, work: Path) -> None:
    (work / name).write_bytes(content)
    command("rope", work / name, "--json")


def ggufs(materials: Materials, *, seed: int, number: int) -> Attempts:
    """Damaged GGUF files, read as tokenizers and as rotary configurations."""
    from tests.data.test_gguf_tokenizer import pairs, pieces

    made = [make(materials.films.with_name(f"{make.__name__}.gguf")) for make in (pairs, pieces)]
    for index in range(number):
        path = made[index % 2]
        (found,) = mutations(path.read_bytes(), seed=seed + index, number=1)
        use = _explain if index % 3 == 2 else _tokenize
        about = f"{use.__name__} {path.name}: number {index}"
        yield Attempt("GGUF", about, partial(use, "odd.gguf", found), limit_s=30)


def _damaged(
    family: str, whole: Path, use: Callable[[Path], object], seed: int, number: int
) -> Attempts:
    """Copies of a folder with one file damaged, gone, swapped, or made something else."""
    rng = np.random.default_rng(seed)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    files = [file for file in files if file.suffix not in (".svg", ".png", ".html")]
    for index in range(number):
        name = files[index % len(files)]
        content = (whole / name).read_bytes()
        if index % 10 == 9:
            done, change = _swapped(rng, name, files)
        else:
            typed = name.suffix == ".json" and rng.random() < 0.7
            made = (json_mutations if typed else mutations)(content, seed=seed + index, number=1)
            done, found = f"number {index}", next(made)
            change = partial(_rewritten, name, found)
        yield Attempt(family, f"{name}: {done}", partial(_on_copy, whole, change, use))


def _swapped(
    rng: np.random.Generator, name: Path, files: list[Path]
) -> tuple[str, Callable[[Path], object]]:
    other = files[rng.integers(len(files))]
    kinds: tuple[tuple[str, Callable[[Path], object]], ...] = (
        ("gone", lambda folder: (folder / name).unlink()),
        (f"a copy of {other}", lambda folder: _copied(folder / other, folder / name)),
        ("a folder", lambda folder: _made_folder(folder / name)),
        ("a pipe", lambda folder: _made_pipe(folder / name)),
        ("a link to /dev/zero", lambda folder: _linked(folder / name, "/dev/zero")),
        ("a link to itself", lambda folder: _linked(folder / name, name.name)),
    )
    return kinds[rng.integers(len(kinds))]


def _copied(source: Path, target: Path) -> None:
    content = source.read_bytes()
    target.write_bytes(content)


def _made_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _made_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _linked(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def _rewritten(name: Path, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)


def _on_copy(
    whole: Path, change: Callable[[Path], object], use: Callable[[Path], object], work: Path
) -> None:
    folder = work / "copy"
    shutil.copytree(whole, folder)
    change(folder)
    use(folder)


def _command(*words: object) -> Callable[[Path], object]:
    return lambda work: command(*words)


FAMILIES: dict[str, Callable[..., Attempts]] = {
    family.__name__: family
    for family in (
        options,
        texts,
        columns,
        arrays,
        folders,
        counted,
        runs,
        tokenizers,
        models,
        columns,
        vectors,
        configurations,
        ggufs,
    )
    if isinstance(family, types.FunctionType)
}


def make_materials(folder: Path, *, of: Sequence[str] = MADE) -> Materials:
    """Valid input of every kind, made by the commands themselves; of folders, those named."""
    films = make_films(folder / "films.tsv")
    ids = folder / "ids.npy"
    np.save(ids, np.random.default_rng(1).integers(0, 9, (30, 6)).astype(np.int32))
    made = {name: folder / name for name in MADE}
    words: dict[str, tuple[object, ...]] = {
        "counts": ("count", films, *QUICK["count"], "--out", made["counts"]),
        "run": ("train", films, *QUICK["train"], "--out", made["run"]),
    }
    if "dataset" in of:
        # A process of its own: attempts are forked, which one with threads should not be.
        script = f"from tests.data.tfds_builder import *; tfds_folder({str(folder)!r})"
        subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])
        made["dataset"] = next(folder.glob("news/*"))
    for name in (name for name in words if name in of):
        found = outcome(Attempt("materials", name, _command(*words[name]), limit_s=300))
        if found.verdict != "right":
            raise RuntimeError(f"{name} could not be made: {found.said}")
    data, models = os.environ.get("JAXPE_DATA_DIR"), os.environ.get("JAXPE_MODELS_DIR")
    vocabulary = Path(data) / "bert-base-uncased" / "vocab.txt" if data else None
    tokenizer = Path(models).resolve() / "all-MiniLM-L6-v2" / "tokenizer.json" if models else None
    return Materials(films, ids, **made, tokenizer=tokenizer, vocabulary=vocabulary)

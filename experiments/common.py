"""What the experiments share: corpora, plug-in geometry, where results go, the look of figures.

Every script runs as `python experiments/NAME.py [--out FOLDER] [--quick]`. `--quick` takes fewer
seeds and smaller samples, to see that a script works; the numbers in RESULTS.md are without it.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

import jaxpe
from experiments.provenance import write_result
from jaxpe import geometry
from jaxpe.data import TokenCorpus, load_tokens
from jaxpe.geometry import PositionCounts
from jaxpe.geometry.counts.distributions import EmptyPolicy
from jaxpe.geometry.mds.classical import ClassicalMDS
from jaxpe.geometry.mds.smacof import Smacof

RESULTS = Path(__file__).parent / "results"
LENGTHS = {"sst2": 128, "imdb": 256}
# "C0" to "C6": of Okabe and Ito (2008).
COLOURS = BLUE, VERMILION, GREEN, ORANGE, PINK, SKY, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#777777",
)  # fmt: skip
TITLES = {"sst2": "SST-2", "imdb": "IMDB", "stdlib": "stdlib"}


class DataMissingError(Exception):
    """A corpus or vocabulary is not on this machine."""


class Run(NamedTuple):
    """Where a run writes, and whether it only shows that it works."""

    out: Path
    quick: bool


class PlugIn(NamedTuple):
    """Plug-in Hellinger geometry of a corpus."""

    D: geometry.Distances
    mds: ClassicalMDS


class Truth(NamedTuple):
    """The geometry that a corpus was drawn from."""

    trace: float
    rank: int
    squared: np.ndarray  # [n, n]


def main(experiment: Callable[[Run], dict[str, Any]], name: str, *, grows: bool = False) -> None:
    """Run one experiment from the command line and write what it returns to `NAME.json`.

    One that `grows` returns the rows of all runs.
    """
    parser = argparse.ArgumentParser(description=(sys.modules["__main__"].__doc__ or "").strip())
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for results")
    parser.add_argument("--quick", action="store_true", help="fewer seeds, smaller samples")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    try:
        result = experiment(Run(options.out, options.quick))
    except DataMissingError as error:
        print(f"{name}: skipped, {error}")
        return
    path = options.out / f"{name}.json"
    write_result(path, plain(result), grows=grows)
    print(f"{name}: {time.perf_counter() - start:.0f} s, wrote {path.name}")


def real_corpus(name: str) -> TokenCorpus:
    """SST-2 or IMDB as BERT reads them, with special tokens excluded from the counts."""
    folder = Path(os.environ.get("JAXPE_DATA_DIR", "."))
    vocabulary = folder / "bert-base-uncased" / "vocab.txt"
    if not vocabulary.is_file():
        raise DataMissingError(
            "JAXPE_DATA_DIR names no folder with bert-base-uncased/vocab.txt "
            "(and sst2/train.tsv, imdb/train.jsonl.gz)"
        )
    return load_tokens(name, tokenizer=vocabulary, special=True, length=LENGTHS[name])


def real_counts(name: str) -> PositionCounts:
    corpus = real_corpus(name)
    return geometry.count_tokens(
        corpus.ids, vocab_size=corpus.vocab_size, mask=corpus.mask, exclude=corpus.exclude
    )


def present(read: Callable[[str], Any]) -> dict[str, Any]:
    """What is read of SST-2 and IMDB, where they are on this machine."""
    found = {}
    for name in LENGTHS:
        try:
            found[name] = read(name)
        except DataMissingError as error:
            print(f"{name}: skipped, {error}")
    return found


def plug_in(
    counts: PositionCounts | geometry.PositionalDistributions, *, empty: EmptyPolicy = "drop"
) -> PlugIn:
    """Hellinger distances and classical MDS at full width."""
    if isinstance(counts, PositionCounts):
        counts = geometry.positional_distributions(counts, empty=empty)
    return _plug_in(counts)


@jax.jit
def _plug_in(mu: geometry.PositionalDistributions) -> PlugIn:
    gram = geometry.hellinger_gram(mu)
    mds = geometry.classical_mds_from_gram(gram, dim=len(gram), present=mu.present)
    return PlugIn(geometry.hellinger_distances(mu), mds)


def synthetic_plug_in(seeds: int) -> PlugIn:
    """Plug-in geometry of `three_regimes` at many seeds: one program, vmapped over corpora."""
    ids = np.stack([jaxpe.data.three_regimes(seed=s, separation=0.515).ids for s in range(seeds)])
    counts = jax.jit(jax.vmap(lambda x: geometry.count_tokens(x, vocab_size=200)))(ids)
    return jax.jit(jax.vmap(lambda x: _plug_in(geometry.positional_distributions(x))))(counts)


@jax.jit
def stresses(
    P: jax.Array | geometry.Distances, D: geometry.Distances
) -> tuple[jax.Array, jax.Array]:
    """Stress by Eq. (4), and scaled."""
    return geometry.stress(P, D), geometry.scaled_stress(P, D).stress


def widened(P: jax.Array, width: int) -> jax.Array:
    """Zero columns up to a width: the same distances, one program for every dimension."""
    return jnp.pad(P[:, :width], ((0, 0), (0, max(0, width - P.shape[1]))))


@partial(jax.jit, static_argnames="max_iterations")
def refined(D: geometry.Distances, start: jax.Array, *, max_iterations: int = 300) -> Smacof:
    """SMACOF from a start of any width, padded to n columns (columns of 0 stay 0)."""
    n = D.values.shape[0]
    return geometry.smacof(D, dim=n, init=widened(start, n), max_iterations=max_iterations)


def truth_of(distributions: np.ndarray) -> Truth:
    """Geometry of known distributions `[n, vocab]`."""
    roots = np.sqrt(distributions)
    centred = roots - roots.mean(axis=0)
    gram = centred @ centred.T
    rank = int(np.sum(np.linalg.eigvalsh(gram) > 1e-9))
    return Truth(float(np.trace(gram)), rank, squared_from_gram(gram))


def squared_from_gram(gram: np.ndarray) -> np.ndarray:
    """d²_ij = B_ii + B_jj − 2 B_ij."""
    own = np.diag(gram)
    return own[:, None] + own[None, :] - 2 * gram


def rms_error(gram: np.ndarray, truth: Truth) -> float:
    """Root mean square error of the squared distances of different positions."""
    off = ~np.eye(len(gram), dtype=bool)
    return float(np.sqrt(np.mean((squared_from_gram(gram) - truth.squared)[off] ** 2)))


def compacted(ids: np.ndarray) -> tuple[np.ndarray, int]:
    """Ids renumbered over the words seen; words never seen change nothing and cost time.

    The vocabulary is rounded up, so that corpora of one size share a compiled program.
    """
    words, renumbered = np.unique(ids, return_inverse=True)
    step = 2048 if len(words) > 2048 else 256
    return renumbered.reshape(ids.shape).astype(np.int32), -(-len(words) // step) * step


def mean_sd(values: Any) -> dict[str, float]:
    values = np.asarray(values, float)
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    return {"mean": float(values.mean()), "sd": float(spread)}


def new_figure(
    title: str, *, rows: int = 1, columns: int = 1, width: float = 7.2, height: float = 3.2
) -> tuple[Figure, np.ndarray]:
    """A figure in the style of the reports, and its axes `[rows, columns]`."""
    pyplot.style.use("jaxpe.plot.jaxpe")
    pyplot.rcParams["axes.prop_cycle"] = pyplot.cycler(color=COLOURS)
    figure = Figure((width, height))
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False)


def save_figure(run: Run, name: str, figure: Figure) -> None:
    figure.savefig(run.out / f"{name}.png", dpi=110)


def log_ticks(axis: Any, values: Sequence[float], labels: Sequence[str] | None = None) -> None:
    """A logarithmic x axis with these ticks alone."""
    axis.set_xscale("log")
    axis.set_xticks(values, labels or [f"{value:,}" for value in values])
    axis.minorticks_off()


def plain(value: Any) -> Any:
    """Arrays as lists, floats at six digits, what is not finite as None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value

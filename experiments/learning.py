"""What the learning experiments share: pretrained models, labelled SST-2 and its geometry.

Pretrained models are looked for in the folder that JAXPE_MODELS_DIR names (`fetch_models.py` fills
it): all-MiniLM-L6-v2, all-mpnet-base-v2 and, where it is there, bert-base-uncased. Options of a
script beside `--out` and `--quick` are described in its first lines.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from experiments import common
from jaxpe import encodings, geometry
from jaxpe.data import TokenCorpus, load_labelled
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.geometry import position_geometry
from jaxpe.geometry.noise.position import PositionGeometry
from jaxpe.nn import Bert
from jaxpe.training import batches, in_order
from jaxpe.training.probe import ReferenceGeometry, encoding_probe, reference_geometry

LENGTH = 128  # positions, as the paper has them
FOLDS = 16
PRETRAINED = {
    "minilm": "all-MiniLM-L6-v2",
    "mpnet": "all-mpnet-base-v2",
    "bert": "bert-base-uncased",
}
TITLES = {"minilm": "MiniLM", "mpnet": "MPNet", "bert": "BERT"}


class FoldedCounts(NamedTuple):
    """Counts in folds of documents over the words that occur, and the ids of these words."""

    counts: geometry.PositionCounts
    words: np.ndarray


def take_options(
    *flags: str, folders: Sequence[str] = (), repeated: Sequence[str] = (), minutes: bool = False
) -> argparse.Namespace:
    """Options that only one script has, out of the command line before `common.main` reads it."""
    parser = argparse.ArgumentParser(add_help=False)
    for flag in flags:
        parser.add_argument(f"--{flag}", action="store_true")
    for folder in folders:
        parser.add_argument(f"--{folder}", type=Path)
    for name in repeated:
        parser.add_argument(f"--{name}", action="append")
    if minutes:
        parser.add_argument("--minutes", type=float, default=float("inf"))
    options, sys.argv[1:] = parser.parse_known_args()
    return options


def model_folder(name: str, *, given: Path | None = None) -> Path | None:
    """The folder of a pretrained model; None, and a line that says so, where there is none."""
    folder = given or Path(os.environ.get("JAXPE_MODELS_DIR", ".")) / PRETRAINED[name]
    if (folder / "config.json").is_file():
        return folder
    print(f"{TITLES[name]}: skipped, no {folder.name} in JAXPE_MODELS_DIR", flush=True)
    return None


def pretrained(folder: Path, name: str, **overrides: Any) -> Bert:
    return Bert.load(folder, **overrides)


def tokenizer_of(folder: Path) -> Path:
    """MPNet's special tokens are in its tokenizer.json alone."""
    whole = folder / "tokenizer.json"
    return whole if whole.is_file() else folder / "vocab.txt"


def data_file(*parts: str) -> Path:
    path = Path(os.environ.get("JAXPE_DATA_DIR", "."), *parts)
    if not path.is_file():
        raise common.DataMissingError(f"JAXPE_DATA_DIR names no folder with {'/'.join(parts)}")
    return path


def bert_vocabulary() -> Path:
    return data_file("bert-base-uncased", "vocab.txt")


def labelled_sst2(tokenizer: Path, *, length: int = LENGTH) -> tuple[LabelledTokens, ...]:
    """Training and dev set as BERT reads them."""
    data_file("sst2", "train.tsv")
    train = load_labelled("sst2", tokenizer=tokenizer, length=length, special=True)
    return train, load_labelled("sst2", split="dev", like=train)


@cache
def folded_sst2() -> FoldedCounts:
    return folded(common.real_corpus("sst2"))


def folded(corpus: TokenCorpus) -> FoldedCounts:
    """Counts whose folds keep phrases of one sentence together."""
    ids, words, options = _grouped(corpus)
    return FoldedCounts(geometry.count_tokens(ids, **options), words)


@cache
def sst2_geometry() -> ReferenceGeometry:
    """Plug-in distances with uniform empty positions, as published, and those of position."""
    position = position_of(common.real_corpus("sst2"))
    return reference_geometry(common.real_counts("sst2"), position, empty="uniform")


def position_of(corpus: TokenCorpus) -> PositionGeometry:
    """The geometry of position, with pieces of one text in a group."""
    ids, _, options = _grouped(corpus)
    return position_geometry(ids, key=jax.random.key(0), **options)


def _grouped(corpus: TokenCorpus) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Ids over the words that occur, these words, and how they are counted in folds of groups."""
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    words = np.unique(corpus.ids[counted])
    ids, size = common.compacted(np.where(counted, corpus.ids, words[0]))
    options = {"vocab_size": size, "mask": counted, "folds": FOLDS, "groups": corpus.groups()}
    return ids, words, options


def training_batches(data: LabelledTokens, *, batch_size: int, seed: int, buckets: Sequence[int]):
    return batches(_arrays(data), batch_size=batch_size, seed=seed, **_cut(data, buckets))


def dev_batches(data: LabelledTokens, *, batch_size: int, buckets: Sequence[int]):
    return in_order(_arrays(data), batch_size=batch_size, **_cut(data, buckets))


def position_vectors(encoder: Any, *, length: int = LENGTH) -> jax.Array:
    """The learned table `[length, dim]` of BERT or MPNet."""
    params = encoder.encoding_params.get_value()
    return encoder.encoding.vectors(params, jnp.arange(length))


def once(path: Path, compute: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> Any:
    """What is in the file, or what is computed and then is."""
    if not path.is_file():
        found = compute(*args, **options)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(json.dumps(found))
        path.with_suffix(".new").replace(path)
        held_out = np.mean(found["held_out"])
        print(f"{path.stem}: {held_out:.4f} held out, {found['seconds']:.0f} s", flush=True)
    return json.loads(path.read_text())


def scaled_to_tokens(encoding: Any, length: int) -> encodings.Encoding:
    """What it adds to embeddings, at a root mean square norm of 1 before training."""
    if not encoding.defines("embed"):
        return encoding
    rows = encoding.vectors(encoding.init(jax.random.key(0)), jnp.arange(length))
    factor = float(1 / jnp.sqrt(jnp.mean(jnp.sum(rows**2, axis=-1))))

    def embed(params, x, positions):
        return x + factor * encoding.embed(params, jnp.zeros_like(x), positions)

    def vectors(params, positions):
        return factor * encoding.vectors(params, positions)

    return encoding._replace(embed=embed, vectors=vectors)


def encoding_scores(
    encoding: encodings.Encoding,
    reference: ReferenceGeometry,
    sizes: encodings.EncodingSizes,
    params: Any,
) -> dict[str, Any]:
    """Every stress of an encoding, by its vectors or the distances its logits induce."""
    heads = {"num_heads": sizes.num_heads, "head_dim": sizes.head_dim}
    probe = encoding_probe(encoding, params, jnp.arange(sizes.length), reference, **heads)
    return {
        f"{where}/{name}": value
        for where, found in probe._asdict().items()
        for name, value in found._asdict().items()
    }


def spearman(
    x: np.ndarray, y: np.ndarray, families: Sequence[str] | None = None, *, level: float = 0.95
) -> dict[str, Any]:
    """The rank correlation and the interval of its bootstrap.

    With families whole ones are drawn: encodings of one kind are no independent points.
    """
    rng = np.random.default_rng(0)
    names = np.arange(len(x)) if families is None else np.asarray(families)
    members = [np.flatnonzero(names == name) for name in np.unique(names)]
    draws = []
    for _ in range(2000):
        drawn = rng.integers(0, len(members), len(members))
        chosen = np.concatenate([members[family] for family in drawn])
        if len(np.unique(x[chosen])) > 1 and len(np.unique(y[chosen])) > 1:
            draws.append(stats.spearmanr(x[chosen], y[chosen]).statistic)
    ends = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(draws, ends) if draws else (np.nan, np.nan)
    return {"rho": float(stats.spearmanr(x, y).statistic), "low": float(low), "high": float(high)}


def interval(values: list[float]) -> float:
    """Half of the 95 % interval of the mean, by Student's t."""
    count = len(values)
    if count < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))


def _arrays(data: LabelledTokens) -> dict[str, np.ndarray]:
    return {"ids": data.corpus.ids, "mask": data.corpus.mask, "labels": data.labels}


def _cut(data: LabelledTokens, buckets: Sequence[int]) -> dict[str, Any]:
    return {"lengths": data.corpus.mask.sum(axis=1), "buckets": buckets}

"""The encoding of a corpus itself, fitted to half of its documents and held against the other half.

For the standard library, SST-2, IMDB, and the standard library with its tokens shuffled within each
document, where nothing of position is left, and over all documents: stress of MDS of the geometry
of position of one half against that of the other, by width and at the significant rank, and of
every fixed encoding at widths 8 to 128, with intervals of the differences. Then whether it helps:
next words of IMDB's reviews (`learning_tasks.py`), bits a word on held-out reviews with the fitted
vectors, fixed or as a start, against learned, rotary, sinusoidal and none, 3 seeds on the same
batches until the loss has stopped falling, the rate the best of four for all (0.01).
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    VERMILION,
    Run,
    main,
    new_figure,
    real_corpus,
    save_figure,
)
from experiments.learning import once, scaled_to_tokens
from experiments.learning_tasks import LENGTH, SIZES, Task, next_words, train
from experiments.position_parts import Documents, documents_of, parts_of, shuffled_within
from jaxpe.data import load_tokens
from jaxpe.geometry import HeldOut, PositionGeometry, position_geometry, position_rank

WIDTHS, WIDEST, SPLITS, SEEDS, RATE = (8, 16, 32, 64, 128), 32, 15, 3, 1e-2
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PINK)


def experiment(run: Run) -> dict[str, Any]:
    shuffled = ("shuffled_within", "shuffled")
    names = ("stdlib", *shuffled) if run.quick else ("stdlib", "sst2", "imdb", *shuffled)
    found = {name: held_out(name, quick=run.quick) for name in names}
    result = {"splits": SPLITS, "corpora": found, "training": trained(run)}
    draw(run, result)
    return result


def corpus(name: str, *, quick: bool) -> Documents:
    if name in ("sst2", "imdb"):
        return documents_of(real_corpus(name))
    found = documents_of(load_tokens("stdlib", length=32 if quick else 128))
    if name == "shuffled_within":
        return shuffled_within(found, seed=7)
    if name == "shuffled":
        ids = found.ids.copy()
        ids[found.counted] = np.random.default_rng(7).permutation(ids[found.counted])
        return found._replace(ids=ids)
    return found


def held_out(name: str, *, quick: bool) -> dict[str, Any]:
    """Stress on held-out halves, of MDS by width and of fixed encodings by width."""
    documents = corpus(name, quick=quick)
    parts = parts_of(documents, half_splits=4 if quick else SPLITS)
    rank, halves = int(position_rank(parts.geometry).rank), parts.halves.position
    n = documents.ids.shape[1]
    own = jaxpe.geometry.cross_validated_mds(halves, dim=min(WIDEST, n))
    fixed = {width: jaxpe.geometry.held_out_stress(stacked(width, n), halves) for width in WIDTHS}
    names = [entry.name for entry in fixed_entries()]
    found: dict[str, Any] = {
        "documents": len(documents.ids),
        "significant_rank": rank,
        "by_width": [ends(own, k) for k in range(len(own.mean))],
        "fixed": {
            width: {name: ends(at, k) for k, name in enumerate(names)}
            for width, at in fixed.items()
        },
        "best": {width: names[int(np.argmin(at.mean))] for width, at in fixed.items()},
    }
    if rank:
        at_rank = own.samples[..., rank - 1]
        found["own"] = found["by_width"][rank - 1]
        found["more_than_own"] = {
            name: ends(jaxpe.geometry.half_sample_interval(fixed[64].samples[..., k] - at_rank))
            for k, name in enumerate(names)
        }
    print(name, rank, found.get("own"), found["best"], flush=True)
    return found


def fixed_entries() -> list[jaxpe.encodings.CatalogueEntry]:
    """Encodings with vectors that are the same for every corpus."""
    entries = [
        e
        for e in jaxpe.catalogue()
        if e.vectors and e.coordinates == 1 and not (e.fitted or e.variant_of)
    ]
    sizes = jaxpe.EncodingSizes(dim=8, length=8)
    key = jax.random.key(0)
    return [
        e for e in entries if not jax.tree.leaves(jax.eval_shape(e.first_layer(sizes).init, key))
    ]


def stacked(width: int, n: int) -> jax.Array:
    """Vectors of all fixed encodings, `[encodings, n, widest]`."""
    sizes = jaxpe.EncodingSizes(dim=width, num_heads=8, head_dim=width, length=n)
    positions = jnp.arange(n)
    rows = [
        jaxpe.encodings.alibi_line(positions)
        if entry.name == "alibi"
        else entry.first_layer(sizes).vectors((), positions)
        for entry in fixed_entries()
    ]
    widest = max(row.shape[1] for row in rows)
    return jnp.stack([jnp.pad(row, ((0, 0), (0, widest - row.shape[1]))) for row in rows])


def ends(found: HeldOut, *index: int) -> dict[str, float]:
    mean, low, high = (float(x[index]) for x in (found.mean, found.low, found.high))
    return {"estimate": mean, "low": low, "high": high}


def trained(run: Run) -> dict[str, Any]:
    """Bits a word on held-out reviews."""
    task = next_words(400 if run.quick else None)
    geometry, rank = text_geometry(task)
    own = jaxpe.geometry.classical_mds_from_gram(geometry.gram, dim=max(rank, 1)).coordinates

    def fitted(*, trainable: bool) -> jaxpe.Encoding:
        return jaxpe.encodings.from_matrix(own, dim=SIZES.dim, trainable=trainable)

    made = {
        "fitted": lambda: fitted(trainable=False),
        "fitted, then trained": lambda: fitted(trainable=True),
        **{
            name: (lambda name=name: jaxpe.catalogue(name)[0].make(SIZES))
            for name in ("learned", "rope", "sinusoidal", "none")
        },
    }
    if run.quick:
        made = {name: made[name] for name in ("fitted", "none")}
    kept = run.out / "runs" / ("cross_validated_quick" if run.quick else "cross_validated")
    rows = {
        name: once(kept / f"{name.replace(', ', '_')}.json", cell, task, build(), quick=run.quick)
        for name, build in made.items()
    }
    bits = {name: np.array(row["held_out"]) / np.log(2) for name, row in rows.items()}
    return {
        "rank": rank,
        "rate": RATE,
        "seeds": 2 if run.quick else SEEDS,
        "steps": {name: row["steps"] for name, row in rows.items()},
        "bits_a_word": {name: values.mean() for name, values in bits.items()},
        "sd_of_seeds": {name: values.std(ddof=1) for name, values in bits.items()},
        "seconds": sum(row["seconds"] for row in rows.values()),
    }


def text_geometry(task: Task) -> tuple[PositionGeometry, int]:
    """Geometry of position of the rows learned from, and its significant rank."""
    geometry = position_geometry(
        task.plain, vocab_size=task.vocab_size, mask=task.plain > 0, key=jax.random.key(1)
    )
    return geometry, int(position_rank(geometry).rank)


def cell(task: Task, encoding: jaxpe.Encoding, *, quick: bool) -> dict[str, Any]:
    short: dict[str, Any] = {"most": 20, "window": 5, "tail": 6} if quick else {}
    seeds = 2 if quick else SEEDS
    found = train(task, scaled_to_tokens(encoding, LENGTH), rate=RATE, seeds=seeds, **short)
    return {
        "held_out": found.held_out.tolist(),
        "steps": found.steps,
        "reason": found.reason,
        "seconds": found.seconds,
    }


def draw(run: Run, result: dict[str, Any]) -> None:
    corpora = result["corpora"]
    figure, axes = new_figure(
        "Encodings on documents they were not fitted to", columns=len(corpora), width=15, height=3.6
    )
    for axis, (name, found) in zip(axes[0], corpora.items(), strict=True):
        band(axis, np.arange(1, 1 + len(found["by_width"])), found["by_width"], "black", "fitted")
        for colour, fixed in zip(COLOURS, dict.fromkeys(
            ["sinusoidal", "alibi", *found["best"].values()]), strict=False):  # fmt: skip
            curve = [found["fixed"][width][fixed] for width in WIDTHS]
            band(axis, np.array(WIDTHS), curve, colour, fixed)
        axis.set(xscale="log", ylim=(0, 1), xlabel="width")
        axis.set_title(f"{name.replace('_', ' ')}: rank {found['significant_rank']}")
        axis.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], map(str, [1, 2, 4, 8, 16, 32, 64, 128]))
        axis.minorticks_off()
        axis.legend(fontsize=8)
    axes[0, 0].set_ylabel("scaled stress, held-out halves")
    save_figure(run, "cross_validated_encoding", figure)


def band(axis: Any, x: np.ndarray, curve: list[dict[str, float]], colour: str, label: str) -> None:
    mean, low, high = (np.array([at[end] for at in curve]) for end in ("estimate", "low", "high"))
    axis.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    axis.plot(x, mean, "o-", ms=2.5, color=colour, label=label)


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

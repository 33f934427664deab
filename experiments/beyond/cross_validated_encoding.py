"""The encoding of a corpus itself, fitted to half of its documents and held against the other half.

For the standard library, SST-2, IMDB, and the standard library with its tokens shuffled within each
document, where nothing of position is left, and over all documents: stress of MDS of the geometry
of position of one half against that of the other, by width and at the significant rank, and of
every fixed encoding at widths 8 to 128, with intervals of the differences. Then whether it helps:
next words of IMDB's reviews (`learning_tasks.py`), bits a word on held-out reviews with the fitted
vectors, fixed or as a start, against learned, rotary, sinusoidal and none, 3 seeds on the same
batches until the loss has stopped falling, the rate the best of four for all (0.01).
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import Run, main, real_corpus
from experiments.learning import once, scaled_to_tokens
from experiments.learning_tasks import LENGTH, SIZES, Task, next_words, train
from experiments.position_parts import Documents, documents_of, parts_of, shuffled_within
from jaxpe import encodings
from jaxpe.data import load_tokens
from jaxpe.encodings.registry import CatalogueEntry
from jaxpe.geometry import position_geometry, position_rank
from jaxpe.geometry.noise.cross_validation import HeldOut, half_sample_interval

WIDTHS, WIDEST, SPLITS, SEEDS, RATE = (8, 16, 32, 64, 128), 32, 15, 3, 1e-2


def experiment(run: Run) -> dict[str, Any]:
    shuffled = ("shuffled_within", "shuffled")
    names = ("stdlib", *shuffled) if run.quick else ("stdlib", "sst2", "imdb", *shuffled)
    found = {name: held_out(name, quick=run.quick) for name in names}
    return {"splits": SPLITS, "corpora": found, "training": trained(run)}


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
        "significant_rank": rank,
        "by_width": [ends(own, k) for k in range(len(own.mean))],
        "fixed": {width: dict(zip(names, each(at), strict=True)) for width, at in fixed.items()},
        "best": {width: names[int(np.argmin(at.mean))] for width, at in fixed.items()},
    }
    if rank:
        more = fixed[64].samples - own.samples[..., rank - 1 : rank]
        intervals = each(half_sample_interval(more))
        found["own"] = found["by_width"][rank - 1]
        found["more_than_own"] = dict(zip(names, intervals, strict=True))
    print(name, rank, found.get("own"), found["best"], flush=True)
    return found


def fixed_entries() -> list[CatalogueEntry]:
    """Encodings with vectors that are the same for every corpus."""
    entries = [
        e
        for e in encodings.catalogue()
        if e.vectors and e.coordinates == 1 and not (e.fitted or e.variant_of)
    ]
    sizes = encodings.EncodingSizes(dim=8, length=8)
    key = jax.random.key(0)
    return [
        e for e in entries if not jax.tree.leaves(jax.eval_shape(e.first_layer(sizes).init, key))
    ]


def stacked(width: int, n: int) -> jax.Array:
    """Vectors of all fixed encodings, `[encodings, n, widest]`."""
    sizes = encodings.EncodingSizes(dim=width, num_heads=8, head_dim=width, length=n)
    positions = jnp.arange(n)
    rows = [
        encodings.alibi_line(positions)
        if entry.name == "alibi"
        else entry.first_layer(sizes).vectors((), positions)
        for entry in fixed_entries()
    ]
    widest = max(row.shape[1] for row in rows)
    return jnp.stack([jnp.pad(row, ((0, 0), (0, widest - row.shape[1]))) for row in rows])


def each(found: HeldOut) -> list[dict[str, float]]:
    return [ends(found, k) for k in range(len(found.mean))]


def ends(found: HeldOut, *index: int) -> dict[str, float]:
    mean, low, high = (float(x[index]) for x in (found.mean, found.low, found.high))
    return {"estimate": mean, "low": low, "high": high}


def trained(run: Run) -> dict[str, Any]:
    """Bits a word on held-out reviews."""
    task = next_words(400 if run.quick else None)
    geometry = position_geometry(
        task.plain, vocab_size=task.vocab_size, mask=task.plain > 0, key=jax.random.key(1)
    )
    rank = int(position_rank(geometry).rank)
    own = jaxpe.geometry.classical_mds_from_gram(geometry.gram, dim=max(rank, 1)).coordinates

    fitted = partial(encodings.from_matrix, own, dim=SIZES.dim)
    made = {
        "fitted": partial(fitted, trainable=False),
        "fitted, then trained": partial(fitted, trainable=True),
        **{
            name: partial(encodings.catalogue(name)[0].make, SIZES)
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
        "bits_a_word": {name: values.mean() for name, values in bits.items()},
        "sd_of_seeds": {name: values.std(ddof=1) for name, values in bits.items()},
    }


def cell(task: Task, encoding: encodings.Encoding, *, quick: bool) -> dict[str, Any]:
    short: dict[str, Any] = {"most": 20, "window": 5, "tail": 6} if quick else {}
    seeds = 2 if quick else SEEDS
    found = train(task, scaled_to_tokens(encoding, LENGTH), rate=RATE, seeds=seeds, **short)
    return {
        "held_out": found.held_out.tolist(),
        "steps": found.steps,
        "reason": found.reason,
        "seconds": found.seconds,
    }


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)

"""Erratum 4 on real text: how much of SST-2, IMDB and stdlib is signal.

Theirs: intrinsic dimensions 64 (SST-2) and 254 (IMDB), read off the rank of the plug-in B. Ours:
plug-in and split-half trace, the mean trace under the permutation null, the share of the plug-in
trace that is noise, the effective rank against the null, and violation rates of both geometries.
SST-2's training set holds 67,349 phrases cut from a few thousand sentences: it is also measured
as if they were independent, to show what sharing sentences between halves does.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import (  # pyrefly: ignore
    BLUE,
    GREY,
    TITLES,
    VERMILION,
    DataMissingError,
    Run,
    main,
    new_figure,
    real_corpus,
    save_figure,
)

import jaxpe
from jaxpe.data import TokenCorpus, load_tokens

FOLDS, SPLITS, NULLS = 16, 4, 20


def experiment(run: Run) -> dict[str, Any]:
    rows: dict[str, Any] = {"stdlib": measured(load_tokens("stdlib"), run, grouped=True)}
    print("stdlib", short(rows["stdlib"]), flush=True)
    for name in () if run.quick else ("sst2", "imdb"):
        try:
            corpus = real_corpus(name)
        except DataMissingError as error:
            print(f"{name}: skipped, {error}")
            continue
        rows[name] = measured(corpus, run, grouped=True)
        print(name, short(rows[name]), flush=True)
        if name == "sst2":
            rows["sst2_as_if_independent"] = measured(corpus, run, grouped=False)
            print("ungrouped", short(rows["sst2_as_if_independent"]), flush=True)
    draw(run, rows)
    return rows


def measured(corpus: TokenCorpus, run: Run, *, grouped: bool) -> dict[str, Any]:
    """Plug-in against split-half geometry, over the positions that both halves reach."""
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    groups = None
    if grouped:
        groups = corpus.groups()
    words, renumbered = np.unique(np.where(counted, corpus.ids, -1), return_inverse=True)
    ids = np.maximum(renumbered.reshape(corpus.ids.shape) - 1, 0).astype(np.int32)
    geometry = partial(_measured, counted, groups, vocab_size=len(words))
    halving, *keys = jax.random.split(jax.random.key(0), (5 if run.quick else NULLS) + 1)
    own = geometry(ids, halving)
    null = [geometry(_permuted(key, ids, counted), halving) for key in keys]
    rank = jaxpe.geometry.rank_above_null(own["weighted"], jnp.stack([n["weighted"] for n in null]))
    contrast = jaxpe.geometry.rank_above_null(own["gram"], jnp.stack([n["gram"] for n in null]))
    plug_in, split = float(own["plug_in_trace"]), float(own["split_half_trace"])
    eigenvalues = np.asarray(own["eigenvalues"])
    return {
        "documents": len(ids),
        "groups": len(ids) if groups is None else len(np.unique(groups)),
        "positions": int(own["present"].sum()),
        "plug_in_rank": int(own["plug_in_rank"]),
        "plug_in_trace": plug_in,
        "null_plug_in_trace": float(np.mean([n["plug_in_trace"] for n in null])),
        "split_half_trace": split,
        "null_split_half_trace": float(np.mean([n["split_half_trace"] for n in null])),
        "split_half_share": split / plug_in,
        "noise_share": 1 - split / plug_in,
        "effective_rank": int(rank.rank),
        "unweighted_rank": int(contrast.rank),
        "above_own_noise": int(np.sum(eigenvalues > -eigenvalues.min())),
        "plug_in_violation_rate": float(own["plug_in_violation_rate"]),
        "split_half_violation_rate": float(own["split_half_violation_rate"]),
        "rank_eigenvalues": np.asarray(rank.eigenvalues)[:12],
        "threshold": float(rank.threshold),
    }


_permuted = jax.jit(jaxpe.geometry.permute_within_documents)


@partial(jax.jit, static_argnames="vocab_size")
def _measured(counted, groups, ids, key, *, vocab_size: int) -> dict[str, jax.Array]:
    counts = jaxpe.count_tokens(
        ids, vocab_size=vocab_size, mask=counted, folds=FOLDS, groups=groups
    )
    geometry = jaxpe.split_half_geometry(counts, key=key, splits=SPLITS)
    mu = jaxpe.positional_distributions(counts)
    same = mu._replace(present=geometry.present)
    mds = jaxpe.geometry.classical_mds_from_gram(
        jaxpe.hellinger_gram(mu), dim=1, present=mu.present
    )
    plug_in = jaxpe.hellinger_distances(same)
    return {
        "weighted": jaxpe.geometry.weighted_gram(geometry, counts),
        "gram": geometry.gram,
        "present": geometry.present,
        "eigenvalues": geometry.eigenvalues,
        "plug_in_rank": mds.rank,
        "plug_in_trace": jnp.trace(jaxpe.hellinger_gram(same)),
        "split_half_trace": geometry.trace,
        "plug_in_violation_rate": jaxpe.monotonicity_violation_rate(plug_in),
        "split_half_violation_rate": jaxpe.monotonicity_violation_rate(geometry.distances),
    }


def short(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "rank_eigenvalues"}


def draw(run: Run, rows: dict[str, Any]) -> None:
    named = {name: row for name, row in rows.items() if name in TITLES}
    figure, axes = new_figure(
        "A few dimensions of position are real, not 64 or 254",
        columns=len(named),
        width=8.4,
        height=3.6,
    )
    for axis, (name, row) in zip(axes[0], named.items(), strict=True):
        values = np.maximum(np.asarray(row["rank_eigenvalues"], float), 1e-6)
        number = np.arange(1, len(values) + 1)
        colours = [BLUE if value > row["threshold"] else GREY for value in values]
        axis.bar(number, values, color=colours)
        axis.axhline(row["threshold"], color=VERMILION, ls="--", lw=1.2)
        axis.set(yscale="log", xlabel="eigenvalue number")
        axis.set_ylim(row["threshold"] / 5, values.max() * 2)
        axis.set_title(
            f"{TITLES[name]}: {row['effective_rank']} above chance\n"
            f"(plug-in rank {row['plug_in_rank']})\n{row['noise_share']:.0%} of the trace is noise"
        )
    axes[0, 0].set_ylabel("split-half eigenvalue less null")
    save_figure(run, "erratum_4_real", figure)


if __name__ == "__main__":
    main(experiment, "erratum_4_real")

"""Erratum 4 on real text: how much of SST-2, IMDB and stdlib is noise, composition and position.

The plug-in trace in its three parts, with intervals; the rank of position against shuffled
documents; nearness. And each corpus with the tokens of every document in random order, where
nothing of position is left: rank 0 and a trace of position within its error of 0 are right. SST-2's
training set holds 67,349 phrases cut from a few thousand sentences: it is also measured as if they
were independent, to show what sharing sentences between halves does.
"""

from typing import Any

import numpy as np

from experiments import common
from experiments.position_parts import (
    Documents,
    documents_of,
    measured_parts,
    parts_of,
    shuffled_within,
)
from jaxpe.data import load_tokens

SHUFFLE = 7  # seed of the shuffled corpora


def experiment(run: common.Run) -> dict[str, Any]:
    corpora = {"stdlib": load_tokens("stdlib")}
    corpora |= {} if run.quick else common.present(common.real_corpus)
    rows: dict[str, Any] = {}
    for name, corpus in corpora.items():
        documents = documents_of(corpus)
        rows[name] = measured(documents, run)
        rows[f"{name}_shuffled"] = measured(shuffled_within(documents, seed=SHUFFLE), run)
        if name == "sst2":
            rows["sst2_as_if_independent"] = measured(documents_of(corpus, grouped=False), run)
    draw(run, {name: rows[name] for name in corpora})
    return rows


def measured(documents: Documents, run: common.Run) -> dict[str, Any]:
    """The parts of the plug-in variance, and the rank of the plug-in geometry."""
    parts = parts_of(documents, **({"half_splits": 4} if run.quick else {}))
    mds = common.plug_in(documents.counts.merged()).mds
    return measured_parts(documents, parts) | {"plug_in_rank": int(mds.rank)}


def draw(run: common.Run, rows: dict[str, Any]) -> None:
    title = "A few dimensions of position are real, not 64 or 254"
    figure, axes = common.new_figure(title, columns=len(rows), width=8.4, height=3.4)
    for axis, (name, row) in zip(axes[0], rows.items(), strict=True):
        values = np.maximum(np.asarray(row["rank_eigenvalues"], float), 1e-6)
        colours = np.where(values > row["threshold"], "C0", "C6")
        axis.bar(np.arange(1, len(values) + 1), values, color=colours)
        axis.axhline(row["threshold"], color="C1", ls="--", lw=1.2)
        axis.set(yscale="log", xlabel="eigenvalue number")
        axis.set(ylim=(row["threshold"] / 5, values.max() * 2))
        axis.set_title(f"{common.TITLES[name]}: {row['rank']} above chance")
    axes[0, 0].set_ylabel("eigenvalue of position, weighted")
    common.save_figure(run, "erratum_4_real", figure)


if __name__ == "__main__":
    common.main(experiment, "erratum_4_real")

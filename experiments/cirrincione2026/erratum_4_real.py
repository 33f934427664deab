"""Erratum 4 on real text: how much of SST-2, IMDB and stdlib is noise, composition and position.

Theirs: intrinsic dimensions 64 (SST-2) and 254 (IMDB), read off the rank of the plug-in B. Ours:
the plug-in trace in its three parts, with intervals; the rank of position against shuffled
documents; nearness; the correlation of the first vector of position with that of composition. And
each corpus with the tokens of every document in random order, where nothing of position is left:
rank 0, a trace of position within its error of 0, a nearness whose interval holds 0 are right.
SST-2's training set holds 67,349 phrases cut from a few thousand sentences: it is also measured
as if they were independent, to show what sharing sentences between halves does.
"""

from typing import Any

import numpy as np

import jaxpe
from experiments.common import (
    BLUE,
    GREY,
    TITLES,
    VERMILION,
    DataMissingError,
    Run,
    main,
    new_figure,
    plug_in,
    real_corpus,
    save_figure,
)
from experiments.position_parts import (
    Documents,
    documents_of,
    measured_parts,
    parts_of,
    shuffled_within,
)
from jaxpe.data import load_tokens

SHUFFLE = 7  # seed of the shuffled corpora


def experiment(run: Run) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name in ("stdlib",) if run.quick else ("stdlib", "sst2", "imdb"):
        try:
            corpus = load_tokens(name) if name == "stdlib" else real_corpus(name)
        except DataMissingError as error:
            print(f"{name}: skipped, {error}")
            continue
        documents = documents_of(corpus)
        told(rows, name, documents, run)
        told(rows, f"{name}_shuffled", shuffled_within(documents, seed=SHUFFLE), run)
        if name == "sst2":
            told(rows, "sst2_as_if_independent", documents_of(corpus, grouped=False), run)
    draw(run, rows)
    return rows


def told(rows: dict[str, Any], name: str, documents: Documents, run: Run) -> None:
    rows[name] = measured(documents, run)
    brief = {key: value for key, value in rows[name].items() if np.size(value) == 1}
    print(name, brief, flush=True)


def measured(documents: Documents, run: Run) -> dict[str, Any]:
    """The parts of the plug-in variance, and the plug-in geometry itself."""
    parts = parts_of(documents, **({"half_splits": 4} if run.quick else {}))
    D, mds = plug_in(documents.counts.merged())
    D = D._replace(present=parts.geometry.present)
    return measured_parts(documents, parts) | {
        "plug_in_rank": int(mds.rank),
        "plug_in_violation_rate": float(jaxpe.monotonicity_violation_rate(D)),
    }


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
            f"{TITLES[name]}: {row['rank']} above chance\n"
            f"(plug-in rank {row['plug_in_rank']})\n"
            f"{row['position_share']['estimate']:.1%} of the trace is position"
        )
    axes[0, 0].set_ylabel("eigenvalue of position, weighted")
    save_figure(run, "erratum_4_real", figure)


if __name__ == "__main__":
    main(experiment, "erratum_4_real")

"""Who gets there: noise, composition and position in five corpora, as written and shuffled.

For the standard library, SST-2, IMDB at 64 and 256 words, and the characters of SST-2, each as
written and with the tokens of every document in random order: the three shares of the observed
variance with their intervals, documents at the first, middle and last position, the traces, the
rank of position, and the correlation of the first vector of position with that of composition.
"""

from typing import Any

import numpy as np

from experiments.common import (
    BLUE,
    GREY,
    ORANGE,
    DataMissingError,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.position_parts import (
    Documents,
    documents_of,
    measured_parts,
    parts_of,
    shuffled_within,
)
from jaxpe._core.errors import InputError
from jaxpe.analysis.corpus.result import SHARES
from jaxpe.data import load_tokens
from jaxpe.geometry import cohort_of

CORPORA: dict[str, dict[str, Any]] = {
    "stdlib, 128": {"source": "stdlib", "length": 128},
    "SST-2, 32": {"source": "sst2", "length": 32},
    "IMDB, 64": {"source": "imdb", "length": 64},
    "IMDB, 256": {"source": "imdb", "length": 256},
    "SST-2, 64 characters": {"source": "sst2", "length": 64, "tokenizer": "characters"},
}
SHUFFLE = 7  # seed of the shuffled corpora
COLOURS = dict(zip(SHARES, (GREY, ORANGE, BLUE), strict=True))


def experiment(run: Run) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, options in list(CORPORA.items())[: 1 if run.quick else None]:
        rows[name] = measured(name, options)
    draw(run, rows)
    cohort = of_cohort(CORPORA["stdlib, 128" if run.quick else "IMDB, 256"])
    return {"shuffle_seed": SHUFFLE, "corpora": rows, "cohort": cohort}


def of_cohort(options: dict[str, Any]) -> dict[str, Any]:
    """|Correlations| of first vectors: of documents that reach the last position, where nobody
    gets lost, with those of all documents and of shuffled ones."""
    documents = documents_of(load_tokens(**options))
    inside = np.asarray(cohort_of(documents.counted))
    ids, counted, groups, vocab_size = documents
    whole = parts_of(documents, half_splits=1).geometry
    cohort = Documents(ids[inside], counted[inside], groups[inside], vocab_size)
    own = first_vector(parts_of(cohort, half_splits=1).geometry.gram)
    shuffled = first_vector(whole.split_half.gram - whole.gram)
    return {
        "documents": int(inside.sum()),
        "with_position": abs(own @ first_vector(whole.gram)),
        "with_shuffled": abs(own @ shuffled),
        "position_with_shuffled": abs(first_vector(whole.gram) @ shuffled),
    }


def first_vector(gram: Any) -> np.ndarray:
    return np.linalg.eigh(np.asarray(gram, float))[1][:, -1]


def measured(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The corpus as written and shuffled."""
    try:
        documents = documents_of(load_tokens(**options))
    except InputError as error:
        raise DataMissingError(str(error)) from error
    found = {}
    for state, own in (
        ("as_written", documents),
        ("shuffled", shuffled_within(documents, seed=SHUFFLE)),
    ):
        found[state] = measured_parts(own, parts_of(own))
        print(name, state, {k: found[state].get(k) for k in ("position_share", "rank")}, flush=True)
    return found


def draw(run: Run, rows: dict[str, Any]) -> None:
    """Stacked shares with the interval of each boundary's own share, and documents by position."""
    figure, axes = new_figure(
        "What is observed between positions: noise, composition, position",
        columns=2,
        width=10.4,
        height=0.9 + 0.62 * len(rows),
    )
    stacked, alone = axes[0]
    labels = []
    for number, (name, states) in enumerate(rows.items()):
        for state, shift in (("as_written", -0.2), ("shuffled", 0.2)):
            row, place, start = states[state], number + shift, 0.0
            pale = 1.0 if state == "as_written" else 0.45
            for part in reversed(SHARES):
                share = row[f"{part}_share"]["estimate"]
                stacked.barh(
                    place, max(share, 0), left=start, height=0.36, color=COLOURS[part], alpha=pale
                )
                start += max(share, 0)
            for part, marker in (("composition", "s"), ("position", "o")):
                share = row[f"{part}_share"]
                error = [
                    [100 * (share["estimate"] - share["low"])],
                    [100 * (share["high"] - share["estimate"])],
                ]
                alone.errorbar(
                    100 * share["estimate"], place, xerr=error, fmt=marker, ms=4,
                    color=COLOURS[part], alpha=pale, capsize=2,
                )  # fmt: skip
        reach = states["as_written"]["reach"]
        labels.append(f"{name}\n{reach['first']:,}, {reach['middle']:,}, {reach['last']:,}")
    for axis in (stacked, alone):
        axis.set_yticks(range(len(rows)), labels if axis is stacked else [""] * len(rows))
        axis.set_ylim(len(rows) - 0.5, -0.5)
    stacked.set(xlim=(0, 1), xlabel="share of the observed variance", title="upper: as written\n"
                "lower, pale: shuffled within documents")  # fmt: skip
    alone.axvline(0, color=GREY, lw=1)
    alone.set(xlabel="share, %, with 95 % intervals", title="composition and position alone")
    handles = [stacked.barh(0, 0, color=COLOURS[part], label=part) for part in reversed(SHARES)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    save_figure(run, "who_gets_there", figure)
    figure.savefig(run.out / "who_gets_there.svg")


if __name__ == "__main__":
    main(experiment, "who_gets_there")

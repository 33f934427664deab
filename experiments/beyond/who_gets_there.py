"""Who gets there: noise, composition and position in five corpora, as written and shuffled.

For the standard library, SST-2, IMDB at 64 and 256 words, and the characters of SST-2, each as
written and with the tokens of every document in random order: the three shares of the observed
variance with their intervals, documents at the first, middle and last position, the traces, the
rank of position, and the correlation of the first vector of position with that of composition.
"""

from typing import Any

import numpy as np

from experiments import common
from experiments import position_parts as parts
from experiments.common import BLUE, GREY, ORANGE, Run
from jaxpe._core.errors import InputError
from jaxpe.analysis.corpus.result import SHARES
from jaxpe.data import load_tokens
from jaxpe.geometry.counts.cohorts import cohort_of

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
    gets lost, with those of all documents and of rotated ones."""
    documents = parts.documents_of(load_tokens(**options))
    inside = np.asarray(cohort_of(documents.counted))
    whole = parts.parts_of(documents, half_splits=1).geometry
    cohort = documents.chosen(inside)
    own = first_vector(parts.parts_of(cohort, half_splits=1).geometry.gram)
    rotated = first_vector(whole.split_half.gram - whole.gram)
    return {
        "documents": int(inside.sum()),
        "with_position": abs(own @ first_vector(whole.gram)),
        "with_rotated": abs(own @ rotated),
    }


def first_vector(gram: Any) -> np.ndarray:
    return np.linalg.eigh(np.asarray(gram, float))[1][:, -1]


def measured(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The corpus as written and shuffled."""
    try:
        documents = parts.documents_of(load_tokens(**options))
    except InputError as error:
        raise common.DataMissingError(str(error)) from error
    found = {}
    for state, own in (
        ("as_written", documents),
        ("shuffled", parts.shuffled_within(documents, seed=SHUFFLE)),
    ):
        found[state] = parts.measured_parts(own, parts.parts_of(own))
        print(name, state, {k: found[state].get(k) for k in ("position_share", "rank")}, flush=True)
    return found


def draw(run: Run, rows: dict[str, Any]) -> None:
    """Stacked shares, and the shares of composition and position with their intervals."""
    title = "What is observed between positions: noise, composition, position"
    figure, axes = common.new_figure(title, columns=2, width=10.4, height=0.9 + 0.62 * len(rows))
    stacked, alone = axes[0]
    for number, states in enumerate(rows.values()):
        for state, shift, alpha in (("as_written", -0.2, 1.0), ("shuffled", 0.2, 0.45)):
            place, start = number + shift, 0.0
            for part in reversed(SHARES):
                style: Any = {"color": COLOURS[part], "alpha": alpha}
                found = states[state][f"{part}_share"]
                share, low, high = (found[name] for name in ("estimate", "low", "high"))
                stacked.barh(place, max(share, 0), left=start, height=0.36, **style)
                start += max(share, 0)
                if part != "noise":
                    error = [[share - low], [high - share]]
                    alone.errorbar(share, place, xerr=error, fmt="o", ms=4, capsize=2, **style)
    for axis in (stacked, alone):
        axis.set(yticks=range(len(rows)), ylim=(len(rows) - 0.5, -0.5))
        axis.set_yticklabels(rows if axis is stacked else [""] * len(rows))
    stacked.set(xlim=(0, 1), xlabel="share of the observed variance; pale: shuffled")
    alone.axvline(0, color=GREY, lw=1)
    alone.set_xlabel("share, with 95 % intervals")
    handles = [stacked.barh(0, 0, color=COLOURS[part], label=part) for part in reversed(SHARES)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    common.save_figure(run, "who_gets_there", figure)
    figure.savefig(run.out / "who_gets_there.svg")


if __name__ == "__main__":
    common.main(experiment, "who_gets_there")

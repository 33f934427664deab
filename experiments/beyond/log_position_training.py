"""Does an encoding with the geometry of log position train better? The plan, set before any run.

Arms, added to the embeddings of a decoder of two layers, 32 wide: sinusoids, Legendre polynomials
and one number in one direction, each of the position and of log(1 + i/0.1). Task: the next word,
among the first 48 words of IMDB's reviews (`learning_tasks.py`).

The scale of each arm, 1/4, 1 or 4 times the root mean square norm of the tokens, is the one of
least held-out loss over 2 seeds after 600 steps of Adam at 0.01. Then 8 other seeds are trained
at that scale. The test is of the held-out loss of log position less position, paired by seed:
Student's t, two-sided, with Holm's correction over the three arms at 5 %. All runs see the same
batches, so that seeds differ in the start alone. Nothing is left out.
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from experiments.common import Run, main, plain
from experiments.learning import scaled_to_tokens
from experiments.learning_tasks import LENGTH, SIZES, Task, next_words, train
from experiments.rows import add_row, read_rows, row_of
from jaxpe.encodings import legendre, log_position, sinusoidal, warp_positions
from jaxpe.encodings.families.absolute import from_vectors

RATE, STEPS, CHOICE_SEEDS, SEEDS = 1e-2, 600, 2, 8
SCALES, ALPHA = (0.25, 1.0, 4.0), 0.05
SIZE = {"dim": SIZES.dim, "length": LENGTH}
ARMS = {
    "sinusoids": (
        lambda scale: sinusoidal(dim=SIZES.dim, scale=scale),
        lambda scale: warp_positions(sinusoidal(dim=SIZES.dim, scale=scale), length=LENGTH),
    ),
    "Legendre": (
        lambda scale: legendre(**SIZE, position_map="clipped", scale=scale),
        lambda scale: legendre(**SIZE, position_map="log", s=0.1, scale=scale),
    ),
    "one number": (
        lambda scale: log_position(**SIZE, power=1.0, scale=scale),
        lambda scale: log_position(**SIZE, scale=scale),
    ),
}


def experiment(run: Run) -> dict[str, Any]:
    path = run.out / "log_position_training.json"
    task = next_words(3000 if run.quick else None)
    for arm, pair in ARMS.items():
        for kind, make in zip(("position", "logarithm"), pair, strict=True):
            key = ("tasks", task.name, arm, kind)
            if row_of(read_rows(path), key) is None:
                add_row(path, key, plain(cell(task, make, quick=run.quick)))
    rows = {k: v for k, v in read_rows(path).items() if k == "tasks"}
    return rows | {"comparisons": comparisons(rows["tasks"])}


def cell(task: Task, make: Any, *, quick: bool) -> dict[str, Any]:
    """Held-out losses of the choice of the scale, and of other seeds at that scale."""
    options: Any = {"rate": RATE, "most": 60 if quick else STEPS, "window": 10**6}
    options |= {"tail": 6 if quick else 150}
    unit = scaled_to_tokens(make(1.0), LENGTH)

    def losses(scale: float, seeds: int) -> np.ndarray:
        encoding = from_vectors(lambda _, i: unit.vectors((), i), scale=scale)
        return np.asarray(train(task, encoding, seeds=seeds, **options).held_out)

    choice = {scale: losses(scale, CHOICE_SEEDS).mean() for scale in SCALES}
    best = min(choice, key=choice.__getitem__)
    return {
        "choice": choice,
        "scale": best,
        "held_out": losses(best, CHOICE_SEEDS + SEEDS)[CHOICE_SEEDS:],
    }


def comparisons(rows: Any) -> list[dict[str, Any]]:
    """Log position less position, in nats, with p values corrected after Holm (1979)."""
    found = []
    for task, arms in rows.items():
        for arm, pair in arms.items():
            difference = np.subtract(pair["logarithm"]["held_out"], pair["position"]["held_out"])
            test = scipy.stats.ttest_1samp(difference, 0)
            low, high = test.confidence_interval(1 - ALPHA)
            ends = {"mean": difference.mean(), "low": low, "high": high, "p": test.pvalue}
            found.append({"task": task, "arm": arm} | ends)
    order = np.argsort([row["p"] for row in found])
    corrected = 0.0
    for rank, at in enumerate(order):
        corrected = max(corrected, min(1.0, (len(found) - rank) * found[at]["p"]))
        found[at] |= {"corrected_p": corrected, "significant": bool(corrected < ALPHA)}
    return found


if __name__ == "__main__":
    main(experiment, Path(__file__).stem, grows=True)

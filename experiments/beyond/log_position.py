"""Position in text as one number: logarithm, power, exponential or line?

Held-out scaled stress of one number for each position, over 15 balanced splits of the documents
into halves, against the geometry of position alone. Families, each fitted to the other half, the
first three on a coarse grid:

    logarithm     log(1 + i/τ)
    power         ((1 + i/τ)^a − 1)/a, with a from −2 to 1
    exponential   1 − exp(−i/τ): one boundary whose effect fades
    line          i
    free          any numbers, of least stress

Vectors of several columns, at every width from 2 to 64, the width chosen on the other half:
sinusoids and Legendre polynomials, of the position and of its logarithm. Last, how much of the
squared distances in one half the other half's means at each distance explain, with distances
in position and in log(1 + i/τ).

Ten corpora at up to three lengths (two without a start), words for text and characters for strings,
and at 128 positions characters and WordPiece too. A row needs 300 documents that reach its end, and
100 groups of documents that are independent.
Rows are written as they come: a run goes on where the last one stopped.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.beyond.log_position_corpora import (
    CORPORA,
    LONGEST_CUT,
    STARTLESS,
    STRINGS,
    corpus_of,
    without_start,
)
from experiments.common import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    DataMissingError,
    Run,
    log_ticks,
    main,
    new_figure,
    plain,
    save_figure,
)
from experiments.learning import bert_vocabulary
from experiments.position_parts import documents_of, parts_of
from experiments.rows import add_row, read_rows, row_of
from jaxpe import geometry
from jaxpe._core.errors import InputError
from jaxpe.data import tokenize
from jaxpe.encodings import legendre_vectors, power_positions, sinusoidal_vectors
from jaxpe.geometry.noise.cross_validation import (
    HeldOut,
    cross_validated_choice,
    half_sample_interval,
)
from jaxpe.geometry.noise.split_half import SplitHalfGeometry

LENGTHS = (32, 128, 512)
TAUS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
POWERS = (-2.0, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
RANGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)  # of the exponential
WIDTHS = (2, 4, 8, 16, 32, 64)
ENDS = ("estimate", "low", "high")
COLOURS = {"line": GREY, "logarithm": BLUE, "exponential": GREEN, "power": VERMILION}
SPLITS, DIM, REACH, GROUPS, BINS, RANDOM_ORDERS = 15, 8, 300, 100, 40, 2


def experiment(run: Run) -> dict[str, Any]:
    path = run.out / "log_position.json"
    for name, tokenizer, length in cases(run.quick):
        key = ("corpora", name, tokenizer, str(length))
        if row_of(read_rows(path), key) is None:
            try:
                row = measured(name, tokenizer, length)
            except DataMissingError as error:
                print(f"{name}: skipped, {error}")
                continue
            add_row(path, key, plain(row))
            print(*key[1:], {k: v for k, v in row.items() if k in ("documents", "logarithm")})
    corpora = read_rows(path)["corpora"]
    rows = [*flat(corpora)]
    draw(run, rows)
    kinds = {row["kind"]: [r for r in rows if r["kind"] == row["kind"]] for row in rows}
    return {"corpora": corpora, "splits": SPLITS, "taus": TAUS} | kinds


def flat(corpora: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows that were measured, each with its corpus, tokenizer and length."""
    for name, tokenizers in corpora.items():
        kind = "strings" if name.startswith(STRINGS) else "text"
        kind = "no start" if name.startswith(STARTLESS) else kind
        for tokenizer, lengths in tokenizers.items():
            for length, row in lengths.items():
                if "logarithm" in row:
                    where = {"corpus": name, "tokenizer": tokenizer, "length": int(length)}
                    yield {"kind": kind} | where | row


def draw(run: Run, rows: list[dict[str, Any]]) -> None:
    """Stress by length, of the corpora with the most lengths."""
    shown: dict[str, list[Any]] = {}
    for row in sorted(rows, key=lambda row: row["length"]):
        if row["kind"] == "strings" or (row["kind"], row["tokenizer"]) == ("text", "words"):
            shown.setdefault(row["corpus"], []).append(row)
    most = sorted(shown, key=lambda name: -len(shown[name]))
    figure, axes = new_figure(
        "Held-out stress of one number for each position", columns=4, width=12.5, height=3.4
    )
    for axis, name in zip(axes[0], most, strict=False):
        n = [row["length"] for row in shown[name]]
        for family, colour in COLOURS.items():
            mean, low, high = ([row[family][end] for row in shown[name]] for end in ENDS)
            axis.plot(n, mean, "o-", ms=3, color=colour, label=family)
            axis.fill_between(n, low, high, color=colour, alpha=0.15, lw=0)
        axis.set(ylim=(0, 0.85), xlabel="positions", title=name)
        log_ticks(axis, n)
    axes[0, 0].set_ylabel("scaled stress")
    axes[0, 0].legend(fontsize=8)
    save_figure(run, "log_position", figure)


def cases(quick: bool) -> Iterator[tuple[str, str, int]]:
    if quick:
        yield "documentation (stdlib)", "words", 32
        return
    for length in LENGTHS:
        for name in CORPORA:
            if length <= 128 or not name.startswith(STARTLESS):
                yield name, "characters" if name.startswith(STRINGS) else "words", length
    for tokenizer in ("characters", "wordpiece"):
        yield from ((name, tokenizer, 128) for name in CORPORA if not name.startswith(STRINGS))


def measured(name: str, tokenizer: str, length: int) -> dict[str, Any]:
    reader = bert_vocabulary() if tokenizer == "wordpiece" else tokenizer
    cut = LONGEST_CUT if name.startswith("reviews without") else 0
    try:
        corpus = tokenize(corpus_of(name), tokenizer=reader, length=length + cut)
    except InputError:  # no document is so long
        return {"reach": 0}
    documents = documents_of(without_start(corpus, length) if cut else corpus)
    size = {"reach": int(documents.counted[:, -1].sum())}
    size["groups"] = len(np.unique(documents.groups))
    if size["reach"] < REACH or size["groups"] < GROUPS:
        return size
    geometry_, halves = parts_of(documents, half_splits=SPLITS)
    halves, n = halves.position, documents.ids.shape[1]
    i = np.arange(n, dtype=np.float32)
    grids = {
        "logarithm": [np.log1p(i / tau) for tau in TAUS],
        "power": [power_positions(i, tau=tau, power=a) for tau in TAUS for a in POWERS],
        "exponential": [-np.expm1(-i / tau) for tau in RANGES],
        "line": [i],
    }
    numbers = np.concatenate([np.stack(family) for family in grids.values()])
    samples = held_out(numbers[..., None], halves)
    free = free_numbers(numbers, samples, halves)
    parts = np.split(samples, np.cumsum([len(family) for family in grids.values()])[:-1], axis=2)
    chosen = {
        family: cross_validated_choice(part) for family, part in zip(grids, parts, strict=True)
    }
    best = [int(part.mean(axis=(0, 1)).argmin()) for part in parts]
    tau, logs = TAUS[best[0]], np.log1p(i / TAUS[best[0]])
    fitted = jax.device_get(geometry.cross_validated_mds(halves, dim=DIM))
    laws = ("logarithm", "exponential", "line")
    others = {"free": free.samples} | {family: chosen[family].samples for family in laws}
    found: dict[str, Any] = {family: ends(stress) for family, stress in chosen.items()}
    return found | {
        "documents": len(documents.ids),
        **size,
        "rank": int(geometry.position_rank(geometry_).rank),
        "tau": tau,
        "power of least stress": {
            "tau": TAUS[best[1] // len(POWERS)],
            "power": POWERS[best[1] % len(POWERS)],
        },
        "range of least stress": RANGES[best[2]],
        "more than power": {
            name: ends(half_sample_interval(samples - chosen["power"].samples))
            for name, samples in others.items()
        },
        "free": ends(free),
        "mds": [ends(fitted, k) for k in range(DIM)],
        "vectors": vectors(n, tau, halves),
        "explained": {
            "position": ends(explained(np.abs(i[:, None] - i), halves)),
            "logarithm": ends(explained(np.abs(logs[:, None] - logs), halves)),
        },
    }


def held_out(P: Any, halves: SplitHalfGeometry) -> np.ndarray:
    """Stress on every half, `[splits, 2, encodings]`."""
    return np.asarray(geometry.held_out_stress(jnp.asarray(P), halves).samples)


def free_numbers(numbers: np.ndarray, samples: np.ndarray, halves: SplitHalfGeometry) -> HeldOut:
    """Held-out stress of the numbers of least stress on the other half.

    Starts are the best of `numbers` on the half that is fitted, MDS and random orders.
    """
    rng, splits = np.random.default_rng(0), range(SPLITS)
    gram, squared, present = (np.asarray(x, float) for x in halves)
    fitted = np.zeros((SPLITS, 2, numbers.shape[1], 1))
    for at in np.ndindex(SPLITS, 2):
        d = np.sqrt(np.maximum(squared[at], 0)) * np.outer(present[at], present[at])
        starts = [numbers[samples[at].argmin()], np.linalg.eigh(gram[at])[1][:, -1]]
        starts += [rng.random(len(d)) for _ in range(RANDOM_ORDERS)]
        fitted[at] = least_stress(d, starts)[:, None]
    stress = held_out(fitted, halves)  # [splits, 2, splits, 2], of each fit on each half
    own = stress[splits, 0, splits, 1], stress[splits, 1, splits, 0]
    return half_sample_interval(np.stack(own, axis=1))


def least_stress(d: np.ndarray, starts: list[np.ndarray]) -> np.ndarray:
    """Numbers of least stress: an order of which no move of one position lowers the stress.

    In one dimension the best numbers of an order are x_i, the sum of distances to those below less
    that to those above, up to scale (Defays 1978). Scaled stress of m numbers is then
    1 − |x|²/(m Σ_{i<j} d²), so that the longest x is best.
    """
    return max((_least_stress(d, start) for start in starts), key=np.linalg.norm)


def _least_stress(d: np.ndarray, start: np.ndarray) -> np.ndarray:
    order, moved = np.argsort(start), True
    rank = np.argsort(order)
    x = np.sum(d * np.sign(rank[:, None] - rank), axis=1)
    while moved:
        moved = False
        for i in range(len(d)):
            at = int(np.flatnonzero(order == i)[0])
            for sign, passed in ((1, order[at + 1 :]), (-1, order[:at][::-1])):
                step = 2 * d[i, passed]
                sums = np.cumsum(step)
                # |x|² gained where i moves past these positions, one after the other.
                others = np.cumsum(step * (step - 2 * sign * x[passed]))
                gain = sums * (sums + 2 * sign * x[i]) + others
                if len(gain) and gain.max() > 1e-9 * x @ x:
                    far = gain.argmax() + 1
                    x[passed[:far]] -= sign * step[:far]
                    x[i] += sign * sums[far - 1]
                    order, moved = np.insert(order[order != i], at + sign * far, i), True
                    break
    return x


def vectors(n: int, tau: float, halves: SplitHalfGeometry) -> dict[str, Any]:
    """Families of vectors at each width, and at the width that is best on the other half."""
    i = jnp.arange(n, dtype=jnp.float32)
    moved = (n - 1) * power_positions(i, tau=tau) / power_positions(i[-1:], tau=tau)

    def legendre(positions, width):  # without the constant, which no distance has
        return legendre_vectors(positions, dim=width + 1, length=n, position_map="clipped")[:, 1:]

    families = {
        "sinusoids": lambda width: sinusoidal_vectors(i, dim=width),
        "sinusoids of the logarithm": lambda width: sinusoidal_vectors(moved, dim=width),
        "Legendre": lambda width: legendre(i, width),
        "Legendre of the logarithm": lambda width: legendre(moved, width),
    }
    found = {}
    for name, family in families.items():
        rows = [np.pad(family(w), ((0, 0), (0, WIDTHS[-1] - w))) for w in WIDTHS]
        samples = held_out(np.stack(rows), halves)
        mean = samples.mean(axis=(0, 1))
        found[name] = {
            "best width": ends(cross_validated_choice(samples)),
            "width": WIDTHS[int(mean.argmin())],
            "by width": mean,
        }
    return found


def explained(lag: np.ndarray, halves: SplitHalfGeometry) -> HeldOut:
    """Share of the squared distances of a half that the other's means at each lag explain."""
    upper = np.triu_indices(len(lag), 1)
    edges = np.quantile(lag[upper], np.linspace(0, 1, BINS + 1)[1:-1])
    bins = np.searchsorted(edges, lag[upper])
    squared, present = (np.asarray(x) for x in (halves.squared_distances, halves.present))
    samples = np.zeros(squared.shape[:2])
    for split, half in np.ndindex(*samples.shape):
        both = (present[split, half][:, None] & present[split, half])[upper]
        own, other = (squared[split, which][upper][both] for which in (half, 1 - half))
        count = np.maximum(np.bincount(bins[both], minlength=BINS), 1)
        means = np.bincount(bins[both], other, minlength=BINS) / count
        rest = np.sum((own - means[bins[both]]) ** 2)
        samples[split, half] = 1 - rest / np.sum((own - own.mean()) ** 2)
    return half_sample_interval(samples)


def ends(found: HeldOut, *index: int) -> dict[str, float]:
    mean, low, high = (float(np.asarray(x)[index]) for x in (found.mean, found.low, found.high))
    return {"estimate": mean, "low": low, "high": high}


if __name__ == "__main__":
    main(experiment, Path(__file__).stem, grows=True)

"""Figure 4, Section 6.4 and erratum 9: stress against dimension on SST-2 and IMDB.

Theirs: P_MDS reaches 0 at d = rank(B), 64 and 254 ("the intrinsic dimensionalities"); sinusoidal
and RoPE stress "grows exponentially with d". Ours: the same curves with SMACOF beside them, the
cumulative variance, and least-squares fits of the sinusoidal curve in d = 64..768 by a line
a + b·d and by an exponential a·exp(b·d), both judged by R² of the stress itself.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import curve_fit

import jaxpe
from experiments.common import (
    BLUE,
    ORANGE,
    SKY,
    TITLES,
    VERMILION,
    PlugIn,
    Run,
    log_ticks,
    main,
    new_figure,
    plug_in,
    real_counts,
    refined,
    save_figure,
    widened,
)

DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 640, 768)
FITTED_FROM = 64


def experiment(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in ("sst2", "imdb"):
        counts = real_counts(name)
        result[name] = {policy: curves(plug_in(counts, empty=policy)) for policy in POLICIES}
        for policy in POLICIES:
            result[name][policy]["growth"] = growth(result[name][policy]["sinusoidal"])
    draw(run, result)
    return result


POLICIES = ("uniform", "zero")


def curves(geometry: PlugIn) -> dict[str, Any]:
    D, mds = geometry
    n = len(D.present)
    positions = jnp.arange(n)
    rows: dict[str, Any] = {"dimensions": DIMENSIONS, "rank": int(mds.rank)}
    rows |= {key: [] for key in ("mds", "smacof", "sinusoidal", "rope")}
    for dim in DIMENSIONS:
        start = widened(mds.coordinates, dim)
        rows["mds"].append(float(jaxpe.stress(start, D)))
        exact = dim >= rows["rank"]
        rows["smacof"].append(rows["mds"][-1] if exact else float(refined(D, start).stress))
        sinusoidal = jaxpe.sinusoidal_vectors(positions, dim=dim)
        rows["sinusoidal"].append(float(jaxpe.stress(sinusoidal, D)))
        rows["rope"].append(
            float(jaxpe.stress(jaxpe.encodings.rotary_orbit(positions, dim=dim), D))
        )
    eigenvalues = np.clip(np.asarray(mds.eigenvalues, float), 0, None)
    variance = np.cumsum(eigenvalues) / eigenvalues.sum()
    rows["variance"] = [float(variance[min(dim, n) - 1]) for dim in DIMENSIONS]
    return rows


def growth(stress: list[float]) -> dict[str, Any]:
    """R² of a line and of an exponential in d, over the dimensions from 64 on."""
    d = np.array(DIMENSIONS, float)
    chosen = d >= FITTED_FROM
    d, y = d[chosen], np.asarray(stress)[chosen]
    slope, intercept = np.polyfit(d, y, 1)
    start = (float(y[0]), 1 / 400)
    (a, b), *_ = curve_fit(lambda x, a, b: a * np.exp(b * x), d, y, p0=start, maxfev=20_000)
    return {
        "linear": {"intercept": intercept, "slope": slope, "r2": r2(y, intercept + slope * d)},
        "exponential": {"factor": a, "rate": b, "r2": r2(y, a * np.exp(b * d))},
    }


def r2(y: np.ndarray, fitted: np.ndarray) -> float:
    return float(1 - np.sum((y - fitted) ** 2) / np.sum((y - y.mean()) ** 2))


def draw(run: Run, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Sinusoidal stress grows linearly with d, not exponentially",
        rows=2,
        columns=3,
        width=9.6,
        height=5.4,
    )
    ticks = (2, 16, 128, 768)
    for row, name in zip(axes, ("sst2", "imdb"), strict=True):
        found = result[name]["uniform"]
        stress, growing, variance = row
        for key, colour in (("mds", BLUE), ("smacof", SKY), ("sinusoidal", VERMILION)):
            values = np.maximum(found[key], 1e-6)
            label = {"mds": "P_MDS", "smacof": "SMACOF"}.get(key, key)
            stress.plot(DIMENSIONS, values, "o-", ms=3.5, color=colour, label=label)
        stress.plot(DIMENSIONS, found["rope"], "--", color=ORANGE, label="RoPE orbit")
        stress.set(yscale="log", ylabel=f"{TITLES[name]}: stress")
        log_ticks(stress, ticks)
        growing.plot(DIMENSIONS, found["sinusoidal"], "o", ms=4, color=VERMILION)
        fits, d = found["growth"], np.linspace(FITTED_FROM, 768, 200)
        line, bend = fits["linear"], fits["exponential"]
        growing.plot(
            d,
            line["intercept"] + line["slope"] * d,
            "k-",
            lw=1.2,
            label=f"line, R² = {line['r2']:.4f}",
        )
        growing.plot(
            d,
            bend["factor"] * np.exp(bend["rate"] * d),
            "k:",
            lw=1.2,
            label=f"exponential, R² = {bend['r2']:.3f}",
        )
        growing.set_ylabel("sinusoidal stress")
        growing.legend(fontsize=8.5)
        variance.plot(DIMENSIONS, found["variance"], "o-", ms=3.5, color=BLUE)
        variance.set(ylabel="cumulative variance", ylim=(0, 1.05))
        variance.axvline(found["rank"], color="black", ls="--", lw=1)
        variance.text(found["rank"] * 1.15, 0.1, f"rank {found['rank']}", fontsize=9)
        log_ticks(variance, ticks)
    axes[0, 0].legend(fontsize=8.5)
    for axis in axes[1]:
        axis.set_xlabel("dimension d")
    save_figure(run, "figure_4_dimension", figure)


if __name__ == "__main__":
    main(experiment, "figure_4_dimension")

"""Figure 4, Section 6.4 and erratum 9: stress against dimension on SST-2 and IMDB.

With SMACOF beside P_MDS, sinusoids also at their best scale, and least-squares fits of the
sinusoidal curve in d = 64..768 by a line a + b·d and by an exponential a·exp(b·d), both judged by
R² of the stress itself.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import curve_fit

import jaxpe
from experiments import common
from jaxpe import encodings

DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 640, 768)
FITTED_FROM = 64


def experiment(run: common.Run) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in ("sst2", "imdb"):
        counts = common.real_counts(name)
        result[name] = {p: curves(common.plug_in(counts, empty=p)) for p in ("uniform", "zero")}
    draw(run, result)
    return result


def curves(geometry: common.PlugIn) -> dict[str, Any]:
    D, mds = geometry
    n = len(D.present)
    rows: dict[str, Any] = {"dimensions": DIMENSIONS, "rank": int(mds.rank)}
    rows |= {key: [] for key in ("mds", "smacof", "sinusoidal", "sinusoidal_scaled", "rope")}
    for dim in DIMENSIONS:
        start = common.widened(mds.coordinates, dim)
        rows["mds"].append(float(jaxpe.geometry.stress(start, D)))
        exact = dim >= rows["rank"]
        rows["smacof"].append(rows["mds"][-1] if exact else float(common.refined(D, start).stress))
        sinusoidal = encodings.sinusoidal_vectors(jnp.arange(n), dim=dim)
        rows["sinusoidal"].append(float(jaxpe.geometry.stress(sinusoidal, D)))
        rows["sinusoidal_scaled"].append(float(jaxpe.geometry.scaled_stress(sinusoidal, D).stress))
        orbit = encodings.rotary_orbit(jnp.arange(n), dim=dim)
        rows["rope"].append(float(jaxpe.geometry.stress(orbit, D)))
    eigenvalues = np.clip(np.asarray(mds.eigenvalues, float), 0, None)
    variance = np.cumsum(eigenvalues) / eigenvalues.sum()
    rows["variance"] = [float(variance[min(dim, n) - 1]) for dim in DIMENSIONS]
    return rows | {"growth": growth(rows["sinusoidal"])}


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


def draw(run: common.Run, result: dict[str, Any]) -> None:
    title = "Sinusoidal stress grows linearly with d, not exponentially"
    figure, axes = common.new_figure(title, columns=2, width=8.4, height=3.4)
    for (name, policies), axis in zip(result.items(), axes[0], strict=True):
        found = policies["uniform"]
        line, bend = found["growth"]["linear"], found["growth"]["exponential"]
        d = np.linspace(FITTED_FROM, 768, 200)
        axis.plot(DIMENSIONS, np.maximum(found["mds"], 1e-4), "o-", ms=3.5, label="P_MDS")
        axis.plot(DIMENSIONS, found["sinusoidal"], "o", ms=4, label="sinusoidal, RoPE")
        axis.plot(d, line["intercept"] + line["slope"] * d, "k-", lw=1.2, label="line")
        bent = bend["factor"] * np.exp(bend["rate"] * d)
        axis.plot(d, bent, "k:", lw=1.2, label="exponential")
        axis.set(
            yscale="log", xlabel="dimension d", title=f"{common.TITLES[name]}, rank {found['rank']}"
        )
        common.log_ticks(axis, (2, 16, 128, 768))
    axes[0, 0].set_ylabel("stress")
    axes[0, 0].legend(fontsize=8.5)
    common.save_figure(run, "figure_4_dimension", figure)


if __name__ == "__main__":
    common.main(experiment, "figure_4_dimension")

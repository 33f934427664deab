"""Rows and panels of the page of an inspection: functions of arrays."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.averages import Means
from jaxpe.analysis.inspections import MEASURES, ModelMeasures, usual_range
from jaxpe.plot.axes import ABSENT
from jaxpe.report.findings import Finding
from jaxpe.report.numbers import number


def at(means: Means, *index: int) -> Interval:
    """The mean and interval at an index of the arrays."""
    return Interval(*(float(np.asarray(x)[index]) for x in means))


def row(name: str, value: Any, unit: str = "", verdict: str = "", **fields: Any) -> Finding:
    """A finding on a number, or on an `Interval`.

    >>> row("stress", Interval(0.4, 0.3, 0.5)).texts()[1]
    '0.3 to 0.5'
    """
    ends = tuple(value) if isinstance(value, Interval) else (value,)
    return Finding(name, *ends, unit=unit, verdict=verdict, **fields)


def measure(of: ModelMeasures, name: str, verdict: str = "", **fields: Any) -> Finding:
    """A key measure, beside its range over models that were inspected before.

    Args:
        of: measures of a model.
        name: name of the measure, a key of `MEASURES`.
        verdict: verdict of another rule, which stands before that of the range.
        fields: further fields of the finding.

    >>> from jaxpe.analysis.inspections import inspected_models
    >>> measure(inspected_models()[0], "reach").texts()[0]
    '256 tokens or more'
    """
    label, unit = MEASURES[name]
    value, usual = of.values[name], usual_range(of, name)
    if math.isinf(value.high):
        unit, verdict = f"{unit} or more", f"a bound: tried to {of.tried:,}"
    found = row(label, value, unit, verdict, **fields)
    if usual is None:
        return found
    place = "in their range"
    if value.low > usual.high or value.high < usual.low:
        place = "above them" if value.low > usual.high else "below them"
    low, high = (found._replace(value=x).texts()[0] for x in usual[:2])
    kind = "decoders" if of.kind == "causal" else "encoders"
    others = f"{usual.models} other {kind}{'' if usual.alike else ', on other text'}"
    shown = f"{others}: {low} {'or more' if math.isinf(usual.high) else f'to {high}'}"
    beside = [shown, *filter(None, [found.against])]
    verdicts = "; ".join(filter(None, [verdict, place]))
    return found._replace(against="; ".join(beside), verdict=verdicts)


def cell(interval: Interval) -> str:
    """A number with its interval in two decimals, as a cell of a table.

    >>> cell(Interval(1.234, 1.0, 1.5))
    '1.23 (1.00 to 1.50)'
    """
    value, low, high = (number(x, 2).replace("n/a", "–") for x in interval)
    return value if math.isnan(interval.low) else f"{value} ({low} to {high})"


def hundreds(share: float) -> str:
    """A share in per cent, without the sign, as a cell of a table."""
    return number(100 * float(share), 0).replace("n/a", "–")


def plot_heads(values: np.ndarray, title: str, ax: Any, *, layers: Any = (), **look: Any) -> None:
    """Image of a value of each layer and head, `[layers, heads]`; NaN is grey."""
    image = ax.imshow(values, aspect="auto", interpolation="none", **look)
    count, heads = values.shape
    names, shown = layers or range(count), range(0, count, max(1, -(-count // 6)))
    ax.set(xlabel="head", ylabel="layer", title=title, facecolor=ABSENT)
    ax.set_yticks(shown, [f"{names[index]}" for index in shown])
    ax.set_xticks(range(0, heads, max(1, -(-heads // 6))))
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(image, ax=ax, pad=0.02, format="%.2g")


def plot_curves(
    x: Sequence[Any] | np.ndarray,
    curves: Mapping[str, Sequence[np.ndarray]],
    xlabel: str,
    ylabel: str,
    ax: Any,
    *,
    line: float | None = None,
    **axes: Any,
) -> None:
    """Curves by name, each a mean `[x]` or a mean with the ends of its interval.

    Args:
        x: places, or names of them.
        curves: the curves; one alone has no legend.
        xlabel, ylabel: labels of the axes.
        ax: axes to draw into.
        line: level of a dashed line, such as of chance.
        axes: further properties of the axes, such as `yscale`; xscale "log" has base 2.
    """
    for name, (mean, *ends) in curves.items():
        (curve,) = ax.plot(x, mean, marker="o", ms=3 if len(x) < 40 else 0, label=name)
        if ends:
            ax.fill_between(x, *ends, color=curve.get_color(), alpha=0.2, lw=0)
    if line is not None:
        ax.axhline(line, color="#666666", lw=1.0, ls="--")
    ax.set(xlabel=xlabel, ylabel=ylabel, **axes)
    if axes.get("xscale") == "log":
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:,.0f}")
    if len(curves) > 1:
        ax.legend(fontsize=9)

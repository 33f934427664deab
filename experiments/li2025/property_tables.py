"""Tables 1 to 4 of Li (2025), and Section 7 of Bisset (2026), from computed properties.

Theirs: cells such as "universal", "O(d)". Ours: `jaxpe encodings --about ...` for every encoding of
the catalogue at width 512, 8 heads of 64, length T = 512; and how far ⟨p_i, p_j⟩ of Table 1's
vectors is from a function of j − i.
"""

from typing import Any

import jax.numpy as jnp

import jaxpe
from experiments.common import Run, main
from jaxpe.analysis import to_json
from jaxpe.analysis.properties import About, PropertyOptions, tabulate
from jaxpe.report import page
from jaxpe.report.writing import markdown

ABOUT: tuple[About, ...] = ("expressiveness", "generalisation", "extrapolation", "cost")
QUICK = ("sinusoidal", "learned", "shaw", "alibi", "wavelet", "legendre", "rope")


def experiment(run: Run) -> dict[str, Any]:
    sizes = jaxpe.EncodingSizes(64, 4, 16, 64) if run.quick else jaxpe.EncodingSizes()
    dim, heads, head_dim, length = sizes
    shape = {"dim": dim, "heads": heads, "head_dim": head_dim, "length": length}
    tables = {}
    for about in ABOUT:
        table = tabulate(PropertyOptions(names=QUICK if run.quick else (), about=about, **shape))
        print(markdown(page(table)))
        tables[about] = {row.pop("name"): row for row in to_json(table)["encodings"]}
    vectors = {
        "sinusoidal": jaxpe.sinusoidal(dim=dim),
        "wavelet": jaxpe.wavelet(dim=dim, length=length),
        "legendre": jaxpe.legendre(dim=dim, length=length),
    }
    return {"tables": tables, "toeplitz_residual": {n: residual(e) for n, e in vectors.items()}}


def residual(encoding: jaxpe.Encoding, length: int = 512) -> float:
    """Share of how ⟨p_i, p_j⟩ vary, i ≠ j, that means over each offset leave."""
    P = encoding.vectors((), jnp.arange(length))
    off = ~jnp.eye(length, dtype=bool)
    products = P @ P.T
    varying = jnp.where(off, products - jnp.mean(products, where=off), 0)
    return float(jaxpe.geometry.toeplitz_residual(varying))


if __name__ == "__main__":
    main(experiment, "property_tables")

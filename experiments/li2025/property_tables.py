"""Tables 1 to 4 of Li (2025), and Section 7 of Bisset (2026), from computed properties.

Theirs: cells such as "universal", "O(d)". Ours: `jaxpe encodings --about overview`, whether tokens
of a constant sequence are told apart, and how norms, biases and FLOPs grow, at width 512, 8 heads
of 64, length T = 512; and how far ⟨p_i, p_j⟩ of Table 1's vectors is from a function of j − i.
"""

from typing import Any

import jax.numpy as jnp

import jaxpe
from experiments.common import Run, main
from experiments.li2025.expressiveness import encoding_expressiveness
from experiments.li2025.growth import flops_growth, generalisation_terms
from jaxpe.analysis import to_json

NAMES = (
    "none", "sinusoidal", "learned", "legendre", "legendre_clipped", "wavelet", "rope", "alibi",
    "t5", "kerple_log", "kerple_power", "fire", "cope", "shaw",
)  # fmt: skip


def experiment(run: Run) -> dict[str, Any]:
    sizes = jaxpe.EncodingSizes(64, 4, 16, 64) if run.quick else jaxpe.EncodingSizes()
    dim, length = sizes.dim, sizes.length
    tables: dict[str, dict[str, Any]] = {}
    for entry in jaxpe.catalogue(*NAMES):
        tables[entry.name] = to_json(
            {
                "properties": jaxpe.encoding_properties(entry, sizes=sizes),
                "expressiveness": encoding_expressiveness(entry, sizes=sizes),
                "generalisation": generalisation_terms(entry, sizes=sizes),
                "flops": flops_growth(entry, sizes=sizes),
            }
        )
        print(entry.name, tables[entry.name])
    vectors = {
        "sinusoidal": jaxpe.sinusoidal(dim=dim),
        "wavelet": jaxpe.wavelet(dim=dim, length=length),
        "legendre": jaxpe.legendre(dim=dim, length=length),
    }
    return {"encodings": tables, "toeplitz_residual": {n: residual(e) for n, e in vectors.items()}}


def residual(encoding: jaxpe.Encoding, length: int = 512) -> float:
    """Share of how ⟨p_i, p_j⟩ vary, i ≠ j, that means over each offset leave."""
    P = encoding.vectors((), jnp.arange(length))
    off = ~jnp.eye(length, dtype=bool)
    products = P @ P.T
    varying = jnp.where(off, products - jnp.mean(products, where=off), 0)
    return float(jaxpe.geometry.toeplitz_residual(varying))


if __name__ == "__main__":
    main(experiment, "property_tables")

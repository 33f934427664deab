"""Tables 1 to 4 of Li (2025), and Section 7 of Bisset (2026), from computed properties.

Theirs: cells such as "universal", "O(d)". Ours: `jaxpe encodings --about overview`, whether tokens
of a constant sequence are told apart, and how norms, biases and FLOPs grow, at width 512, 8 heads
of 64, length T = 512; and how far ⟨p_i, p_j⟩ of Table 1's vectors is from a function of j − i.
"""

from typing import Any

import jax.numpy as jnp

from experiments.common import Run, main
from experiments.li2025.expressiveness import encoding_expressiveness
from experiments.li2025.growth import flops_growth, generalisation_terms
from jaxpe import encodings, geometry
from jaxpe.analysis import to_json

NAMES = (
    "none", "sinusoidal", "learned", "legendre", "legendre_clipped", "wavelet", "rope", "alibi",
    "t5", "kerple_log", "kerple_power", "fire", "cope", "shaw",
)  # fmt: skip


def experiment(run: Run) -> dict[str, Any]:
    sizes = encodings.EncodingSizes(64, 4, 16, 64) if run.quick else encodings.EncodingSizes()
    dim, length = sizes.dim, sizes.length
    tables: dict[str, dict[str, Any]] = {}
    for entry in encodings.catalogue(*NAMES):
        tables[entry.name] = to_json(
            {
                "properties": encodings.encoding_properties(entry, sizes=sizes),
                "expressiveness": encoding_expressiveness(entry, sizes=sizes),
                "generalisation": generalisation_terms(entry, sizes=sizes),
                "flops": flops_growth(entry, sizes=sizes),
            }
        )
        print(entry.name, tables[entry.name])
    vectors = {
        "sinusoidal": encodings.sinusoidal(dim=dim),
        "wavelet": encodings.wavelet(dim=dim, length=length),
        "legendre": encodings.legendre(dim=dim, length=length),
    }
    return {"encodings": tables, "toeplitz_residual": {n: residual(e) for n, e in vectors.items()}}


def residual(encoding: encodings.Encoding, length: int = 512) -> float:
    """Share of how ⟨p_i, p_j⟩ vary, i ≠ j, that means over each offset leave."""
    P = encoding.vectors((), jnp.arange(length))
    off = ~jnp.eye(length, dtype=bool)
    products = P @ P.T
    varying = jnp.where(off, products - jnp.mean(products, where=off), 0)
    return float(geometry.toeplitz_residual(varying))


if __name__ == "__main__":
    main(experiment, "property_tables")

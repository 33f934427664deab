"""Li (2025), Section 6.1: norms of wavelet encodings, and how far they move beyond training."""

from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxpe.encodings.families.orthogonal import WaveletBasis, wavelet_basis
from jaxpe.theory.audit import Audit, all_less_equal, boolean


def section_6_wavelet(
    beyond: Int[np.ndarray, " far"], *, dim: int, length: int, order: int = 4
) -> Audit:
    """Compare wavelet encodings at positions beyond T with the one at T.

    Li (2025), Section 6.1; not decided, as its formula is lost. The functions are as in
    `wavelet_vectors`, 2^(−j/2) f(2^(−j) p − k), fine for small j, interpolated in their table.
    Hypothesis "PE(T) ≠ 0", without which there is nothing to stay close to (Haar). Conclusions:
    "stays close", ‖PE(n') − PE(T)‖ ≤ ‖PE(T) − PE(T − 1)‖, one step within training; "decays", it is
    at most half that step at n' ≥ T + 8. Instead, "whatever T": ‖w(p)‖² ≤ Σ_j 2^(−j)(2N − 1) max f²
    over the scales j, for φ and ψ each, since no more supports hold a position; "rows as they are":
    ‖w(n') − w(T)‖² ≤ Σ over columns of the smaller of (2^(−j/2)(max f − min f))² and (2^(−3j/2)
    max|f'| (n' − T))², with the largest slope of the function as interpolated.

    Measured, at T − 1, T and beyond, for the rest of the claim: `norms` of normalised rows, `norms
    as they are`, and `alive`, columns that are not 0; `finest alive`, the smallest 2^j of those
    (inf where there is none); and `difference` of normalised rows, beyond T alone, and `one step`.

    Args:
        beyond: positions above T.
        dim, length, order: number of functions, T, and N of dbN.

    >>> audit = section_6_wavelet(np.arange(17, 64), dim=16, length=16)
    >>> [name for name, c in audit.conclusions.items() if not c.holds]
    ['stays close', 'decays']
    """
    basis = wavelet_basis(dim, length, order)
    positions = np.concatenate([[length - 1, length], beyond])
    values = _values(basis, positions)
    norms = np.linalg.norm(values, axis=1)
    rows = values / np.where(norms > 0, norms, 1.0)[:, None]  # those of wavelet_vectors
    scale = 2.0 ** (-basis.j / 2)
    functions = basis.table[basis.row]
    peak = np.abs(functions).max(axis=1) * scale
    width = functions.max(axis=1) - functions.min(axis=1)
    slope = np.abs(np.diff(functions, axis=1)).max(axis=1) * 2.0**basis.level
    apart = np.linalg.norm(rows[2:] - rows[1], axis=1)
    step = float(np.linalg.norm(rows[1] - rows[0]))
    ahead = (positions[2:] - length)[:, None]
    moved = np.minimum(width * scale, slope * 2.0 ** (-1.5 * basis.j) * ahead)
    difference = np.linalg.norm(values[2:] - values[1], axis=1)
    each = basis.width * sum(max(peak[basis.j == j]) ** 2 for j in np.unique(basis.j)) * 2
    far = positions[2:] >= length + 8
    compare = partial(all_less_equal, noise=1e-12)
    conclusions = {
        "stays close": compare(apart, step),
        "decays": compare(np.where(far, apart, 0.0), step / 2),
    }
    instead = {
        "whatever T": compare(norms**2, each),
        "rows as they are": compare(difference, np.linalg.norm(moved, axis=1)),
    }
    measured = {
        "difference": apart,
        "one step": step,
        "norms": np.linalg.norm(rows, axis=1),
        "norms as they are": norms,
        "alive": (values != 0).sum(axis=1, dtype=float),
        "finest alive": np.where(values != 0, 2.0**basis.j, np.inf).min(axis=1),
    }
    measured = {name: jnp.asarray(value) for name, value in measured.items()}
    return Audit({"PE(T) ≠ 0": boolean(bool(norms[1] > 0))}, conclusions, measured, instead)


def _values(basis: WaveletBasis, positions: np.ndarray) -> np.ndarray:
    """Rows before they are divided by their norms, `[positions, functions]`."""
    grid = np.linspace(0, basis.width, basis.table.shape[1])
    columns = [
        2.0 ** (-j / 2)
        * np.interp(positions * 2.0**-j - k, grid, basis.table[row], left=0, right=0)
        for row, j, k in zip(basis.row, basis.j, basis.k, strict=True)
    ]
    return np.stack(columns, axis=1)

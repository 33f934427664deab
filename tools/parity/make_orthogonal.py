"""Write `orthogonal.npz`: wavelets, orthogonal polynomials, the DCT and sinusoids.

Run by hand, in an environment of its own with NumPy, SciPy, PyWavelets and mpmath (the file says
which versions it came from); the tests need none but NumPy:

    python tools/parity/make_orthogonal.py
"""

from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

WAVELETS = ("db1", "db2", "db4", "db8")
LEVEL = 6
ORDERS = 96


def exact_scaling_function(low: np.ndarray, level: int) -> np.ndarray:
    """φ at k/2^level on its support [0, len(low) - 1], from φ(x) = √2 Σ low[m] φ(2x - m).

    At whole numbers it is the eigenvector to the eigenvalue 1; the rest follows by halving. With
    two taps (Haar) it is the indicator of [0, 1).
    """
    taps = np.sqrt(2.0) * low
    width = len(low) - 1
    matrix = np.zeros((width + 1, width + 1))
    for x in range(width + 1):
        for m in range(len(low)):
            if 0 <= 2 * x - m <= width:
                matrix[x, 2 * x - m] += taps[m]
    if width == 1:
        values = np.array([1.0, 0.0])
    else:
        inner = matrix[1:-1, 1:-1]  # both ends are zeros of φ
        system = np.vstack([inner - np.eye(width - 1), np.ones(width - 1)])
        solution = np.linalg.lstsq(system, np.append(np.zeros(width - 1), 1.0), rcond=None)[0]
        values = np.concatenate([[0.0], solution, [0.0]])
    for step in range(level):
        finer = np.zeros(width * 2 ** (step + 1) + 1)
        for x in range(len(finer)):  # φ(x / 2^(step+1)) = Σ taps[m] φ((x - m·2^step) / 2^step)
            for m in range(len(low)):
                at = x - m * 2**step
                if 0 <= at < len(values):
                    finer[x] += taps[m] * values[at]
        values = finer
    return values


def wavelets(out: dict) -> None:
    """PyWavelets' tables and filters, and exact values beside them.

    `wavefun` gives no values at points: its entry 1 + n is 2^(level/2) times the n-th coefficient
    of the cascade that starts from one impulse (so it lags behind φ by the mean of φ), then zeros.
    """
    import pywt

    for name in WAVELETS:
        wavelet = pywt.Wavelet(name)
        phi, psi, x = wavelet.wavefun(level=LEVEL)
        out[f"{name}_phi"], out[f"{name}_psi"], out[f"{name}_x"] = phi, psi, x
        for filter_name in ("dec_lo", "dec_hi", "rec_lo", "rec_hi"):
            out[f"{name}_{filter_name}"] = np.array(getattr(wavelet, filter_name))
        low, high = out[f"{name}_rec_lo"], out[f"{name}_rec_hi"]
        exact = exact_scaling_function(low, LEVEL)
        mother = np.zeros_like(exact)  # ψ(x) = √2 Σ high[m] φ(2x - m)
        for i in range(len(exact)):
            for m in range(len(high)):
                at = 2 * i - m * 2**LEVEL
                if 0 <= at < len(exact):
                    mother[i] += np.sqrt(2.0) * high[m] * exact[at]
        out[f"explicit_{name}_phi"], out[f"explicit_{name}_psi"] = exact, mother
        out[f"explicit_{name}_x"] = np.arange(len(exact)) / 2**LEVEL


def polynomials(out: dict) -> None:
    from scipy.special import eval_chebyt, eval_legendre

    near = np.array([1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2])
    inner = np.linspace(-0.98, 0.98, 27)
    x = np.concatenate([[-1.0], -1.0 + near, inner, (1.0 - near)[::-1], [1.0]])
    orders = np.arange(ORDERS)
    out["polynomial_x"] = x
    out["legendre"] = eval_legendre(orders[:, None], x)  # [order, x]
    out["chebyshev"] = eval_chebyt(orders[:, None], x)


def cosines(out: dict) -> None:
    from scipy.fft import dct

    out["dct2_orthonormal_24"] = dct(np.eye(24), type=2, norm="ortho", axis=0)  # [frequency, n]


def sinusoids(out: dict) -> None:
    """sin and cos of p · 10000^(-2k/16), [positions, k], rounded once from 60 digits."""
    import mpmath

    positions, dim = [*range(41), 10**6, 10**6 + 1], 16
    with mpmath.workdps(60):
        omega = [mpmath.mpf(10_000) ** (mpmath.mpf(-2 * k) / dim) for k in range(dim // 2)]
        for name, f in (("sin", mpmath.sin), ("cos", mpmath.cos)):
            values = [[float(f(position * w)) for w in omega] for position in positions]
            out[f"sinusoid_{name}"] = np.array(values)
        out["sinusoid_frequencies"] = np.array([float(w) for w in omega])
    out["sinusoid_positions"] = np.array(positions)
    # The same in plain float64, which is what a careful float64 implementation can reach.
    phases = np.array(positions)[:, None] * 10_000.0 ** (-np.arange(0, dim, 2) / dim)
    out["sinusoid_float64_sin"], out["sinusoid_float64_cos"] = np.sin(phases), np.cos(phases)


def main() -> None:
    # Here and above, so that the tests can collect this file without them.
    import mpmath
    import pywt
    import scipy

    # The wheel of PyWavelets 1.9.0 calls itself 1.8.0 inside, so both are written down.
    wavelets_version = f"{version('PyWavelets')} (inside: {pywt.__version__})"
    versions = f"PyWavelets {wavelets_version}, scipy {scipy.__version__}"
    out = {"versions": f"{versions}, mpmath {mpmath.__version__}"}
    for part in (wavelets, polynomials, cosines, sinusoids):
        part(out)
    np.savez_compressed(HERE / "orthogonal.npz", **out)


if __name__ == "__main__":
    main()

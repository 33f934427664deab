"""Write `papers.npz`: FIRE, KERPLE and CoPE entry by entry, from their papers' formulas.

Run by hand, with NumPy alone; no peer has the first two, so every name begins with `explicit_`:

    python tools/parity/make_papers.py

Loops over single entries in float64, slow and plain on purpose. Positions count from 0; entries
with key > query are NaN where the paper defines only the causal half.
"""

import json
import math
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

HEADS, N = 3, 12


def fire(i, j, c, threshold, w1, b1, w2, b2) -> np.ndarray:
    """Li et al. 2024: f(ψ(i-j) / ψ(max(L, i))), ψ(x) = log(cx + 1), f an MLP with 32 units."""
    x = math.log(c * (i - j) + 1.0) / math.log(c * max(threshold, i) + 1.0)
    hidden = [max(0.0, w1[u] * x + b1[u]) for u in range(len(w1))]
    return np.array(
        [sum(w2[h, u] * hidden[u] for u in range(len(w1))) + b2[h] for h in range(len(b2))]
    )


def fire_cases(out: dict) -> None:
    rng = np.random.default_rng(0)
    w1, b1, b2 = rng.standard_normal(32), rng.standard_normal(32), rng.standard_normal(HEADS)
    w2 = rng.standard_normal((HEADS, 32)) / math.sqrt(32)
    arrays = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
    cases = [
        {"name": "long_threshold", "c": 0.1, "threshold": 512.0},
        {"name": "short_threshold", "c": 1.0, "threshold": 4.5},
        {"name": "middle", "c": 0.5, "threshold": 8.0},
    ]
    for case in cases:
        bias = np.full((HEADS, N, N), np.nan)
        for i in range(N):
            for j in range(i + 1):
                bias[:, i, j] = fire(i, j, case["c"], case["threshold"], w1, b1, w2, b2)
        arrays[f"{case['name']}_bias"] = bias
    out["explicit_fire_cases"] = json.dumps(cases)
    out.update({f"explicit_fire_{name}": array for name, array in arrays.items()})


def kerple(out: dict) -> None:
    """Chi et al. 2022: -r1·log(1 + r2·|i-j|) and -r1·|i-j|^r2, one pair of r's per head."""
    r1, r2 = np.array([0.5, 1.0, 2.5]), np.array([0.3, 1.0, 1.8])
    out["explicit_kerple_r1"], out["explicit_kerple_r2"] = r1, r2
    log, power = np.zeros((HEADS, N, N)), np.zeros((HEADS, N, N))
    for h in range(HEADS):
        for i in range(N):
            for j in range(N):
                log[h, i, j] = -r1[h] * math.log(1.0 + r2[h] * abs(i - j))
                power[h, i, j] = -r1[h] * abs(i - j) ** r2[h]
    out["explicit_kerple_log_bias"], out["explicit_kerple_power_bias"] = log, power


def cope_row(q, keys, table, i) -> tuple[list[float], list[float]]:
    """Golovneva et al. 2024: positions and biases of query i and its keys 0..i."""
    scale = 1.0 / math.sqrt(len(q))
    gates = [1.0 / (1.0 + math.exp(-scale * (q @ keys[m]))) for m in range(i + 1)]
    positions, biases = [], []
    for j in range(i + 1):
        p = min(sum(gates[m] for m in range(j, i + 1)), len(table) - 1)
        low, high = math.floor(p), math.ceil(p)
        positions.append(p)
        biases.append((p - low) * (q @ table[high]) + (1.0 - (p - low)) * (q @ table[low]))
    return positions, biases


def cope(out: dict) -> None:
    rng = np.random.default_rng(1)
    dim = 8
    q, k = rng.standard_normal((N, HEADS, dim)), rng.standard_normal((N, HEADS, dim))
    out["explicit_cope_q"], out["explicit_cope_k"] = q, k  # [positions, heads, dim]
    for rows in (3, 16):
        table = rng.standard_normal((rows, dim))
        positions, bias = np.full((2, HEADS, N, N), np.nan)
        for h in range(HEADS):
            for i in range(N):
                row = cope_row(q[i, h], k[:, h], table, i)
                positions[h, i, : i + 1], bias[h, i, : i + 1] = row
        arrays = {"table": table, "positions": positions, "bias": bias}
        out.update({f"explicit_cope_{rows}_{name}": array for name, array in arrays.items()})


def main() -> None:
    out = {"versions": f"explicit loops, numpy {np.__version__}"}
    for part in (fire_cases, kerple, cope):
        part(out)
    np.savez_compressed(HERE / "papers.npz", **out)


if __name__ == "__main__":
    main()

"""What two texts say of positional encodings, computed: gradients, parameters, reach, precision.

Theirs: "Positional Encodings via the Method of Fluxions" (Bisset 2026; sections 2 to 12) and
"Theoretical Analysis of Positional Encodings in Transformer Models" (Li 2025; Tables 1 and 3).
Ours: `encoding_properties` for width 512, 8 heads of 64, length 512, and what is measured below.
Phases are compared with 80-bit arithmetic, the rest is in float64.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import Run, main
from jaxpe.encodings.phases import phases

# Name in our catalogue: what is published, in the words of our columns where they have such words.
GRADIENT = {"sinusoidal": (), "learned": ("table",), "rope": ("queries", "keys"), "alibi": ()}
PARAMETERS = {"sinusoidal": 0, "learned": 512 * 512, "rope": 0, "alibi": 0}
# (absolute, relative): Li (2025), Table 1; its own two proposals were left open there.
INFORMATION = {
    "sinusoidal": (True, True),
    "learned": (True, None),
    "shaw": (False, True),
    "alibi": (False, True),
    "wavelet": (None, True),
    "legendre": (None, True),
}
BEYOND = {
    "sinusoidal": "yes",
    "learned": "no",
    "shaw": "constant",
    "alibi": "yes",
    "rope": "yes",
    "wavelet": "yes",
    "legendre": "yes",
    "legendre_clipped": "constant",
}


def experiment(run: Run) -> dict[str, Any]:
    sizes = jaxpe.EncodingSizes(64, 4, 16, 64) if run.quick else jaxpe.EncodingSizes()
    names = sorted({*GRADIENT, *INFORMATION, *BEYOND})
    found = {e.name: jaxpe.encoding_properties(e, sizes=sizes) for e in jaxpe.catalogue(*names)}
    result = {
        "gradient": {n: compared(list(t), list(found[n].gradient)) for n, t in GRADIENT.items()},
        "parameters": {n: compared(t, found[n].trainable) for n, t in PARAMETERS.items()},
        "information": {
            n: compared(list(t), [found[n].absolute, found[n].relative])
            for n, t in INFORMATION.items()
        },
        "beyond": {n: compared(t, found[n].beyond) for n, t in BEYOND.items()},
        "shift_is_a_rotation": shift_is_a_rotation(),
        "alibi_slopes_of_8_heads": jaxpe.encodings.alibi_slopes(8),
        "layout_of_the_code": layout_of_the_code(),
        "backward_of_the_code": backward_of_the_code(),
        "smallest_frequency": smallest_frequency(),
        "ntk": ntk_base(),
        "sinusoids_far_apart": sinusoids_far_apart(5 if run.quick else 7),
        "legendre_beyond": legendre_beyond(),
        "wavelet_rows": wavelet_rows(),
        "legendre_columns": legendre_columns(),
        "phases": [phase_errors(10**k) for k in (3, 4, 5, 6)] + [phase_errors(2**31 - 1)],
    }
    for name, value in result.items():
        print(name, value)
    return result


def compared(theirs: Any, ours: Any) -> dict[str, Any]:
    return {"theirs": theirs, "ours": ours}


def shift_is_a_rotation() -> float:
    """Bisset, Sec. 2.3: PE(i + k) = R(k) PE(i). Largest deviation over offsets to 1,000."""
    with jax.enable_x64(True):
        turn = jaxpe.rope(head_dim=64, layout="interleaved")
        i, k = np.arange(256), np.array([1, 17, 1000])
        rows = jaxpe.sinusoidal_vectors(i, dim=64)
        # sin comes first, so a shift by k turns (sin, cos) by −ω k.
        turned = [turn.query((), rows[:, None], -np.full(256, s))[:, 0] for s in k]
        moved = [jaxpe.sinusoidal_vectors(i + s, dim=64) for s in k]
        return float(np.max(np.abs(np.stack(turned) - np.stack(moved))))


def layout_of_the_code() -> dict[str, float]:
    """Bisset, Sec. 11: pairs (2k, 2k+1), results concatenated in halves."""
    with jax.enable_x64(True):
        q, k = np.random.default_rng(0).standard_normal((2, 32, 8))
        i = np.arange(32)
        cos, sin = _their_tables(32, 8)
        interleaved = jaxpe.rope(head_dim=8, layout="interleaved")
        ours, keys = (np.asarray(interleaved.query((), x[:, None], i)[:, 0]) for x in (q, k))
        half = np.asarray(jaxpe.rope(head_dim=8).key((), k[:, None], i)[:, 0])
        order = jaxpe.encodings.rotary_permutation(
            rotary_dim=8, source="interleaved", target="half_split"
        )
        theirs, logits = _their_rope(q, cos, sin), ours @ keys.T
        return {
            "after_the_permutation": np.max(np.abs(theirs - ours[:, order])),
            "logits_if_both_share_it": np.max(np.abs(theirs @ _their_rope(k, cos, sin).T - logits)),
            "logits_if_keys_are_half_split": np.max(np.abs(theirs @ half.T - logits)),
        }


def backward_of_the_code() -> dict[str, Any]:
    """Bisset, Sec. 11.1: `rope_backward` against the derivative of `apply_rope`, and its shapes."""
    rng = np.random.default_rng(0)
    cos, sin = _their_tables(32, 8)
    x, gradient = rng.standard_normal((2, 32, 8))
    with jax.enable_x64(True):
        true = np.asarray(jax.vjp(lambda x: _their_rope(x, cos, sin), x)[1](gradient)[0])
    # The listing as printed; then what would be right: it is laid out in halves, as the output is.
    printed = _their_backward(gradient[..., 0::2], gradient[..., 1::2], cos, sin)
    first, second = np.split(gradient, 2, axis=-1)
    halves = _their_backward(first, second, cos, sin)
    mended = np.empty_like(gradient)
    mended[..., 0::2], mended[..., 1::2] = first * cos + second * sin, second * cos - first * sin
    documented = rng.standard_normal((2, 32, 4, 8))  # [batch, seq_len, n_heads, head_dim]
    try:
        _their_rope(documented, cos, sin)
        broadcasts = True
    except (TypeError, ValueError):
        broadcasts = False
    return {
        "relative_error": np.linalg.norm(printed - true) / np.linalg.norm(true),
        "relative_error_split_in_halves": np.linalg.norm(halves - true) / np.linalg.norm(true),
        "relative_error_of_halves_interleaved": np.linalg.norm(mended - true)
        / np.linalg.norm(true),
        "shape_of_the_docstring_broadcasts": broadcasts,
        "columns_of_cos": cos.shape[-1],  # the docstring: head_dim, here 8
    }


def _their_tables(length: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    angles = np.arange(length)[:, None] / (10000 ** (np.arange(0, dim, 2) / dim))
    return np.cos(angles), np.sin(angles)


def _their_rope(x: Any, cos: np.ndarray, sin: np.ndarray) -> Any:
    a, b = x[..., 0::2], x[..., 1::2]
    both = [a * cos - b * sin, a * sin + b * cos]
    return (np if isinstance(x, np.ndarray) else jnp).concatenate(both, axis=-1)


def _their_backward(a: np.ndarray, b: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    return np.concatenate([a * cos + b * sin, -a * sin + b * cos], axis=-1)


def ntk_base() -> dict[str, float]:
    """Bisset, Sec. 8.2: θ·s^(d/(d−2)) keeps the fastest frequency and divides the slowest by s."""
    plain = jaxpe.encodings.inverse_frequencies(64)
    scaled = jaxpe.encodings.inverse_frequencies(64, base=1e4 * 4.0 ** (64 / 62))
    return {"fastest": float(scaled[0] / plain[0]), "slowest": float(plain[-1] / scaled[-1])}


def smallest_frequency() -> dict[str, dict[str, float]]:
    """Bisset, Sec. 2.2, and the geometry paper: 10000⁻¹. The formula gives 10000^(−(d − 2)/d)."""
    widths = (4, 64, 512)
    found = {str(d): float(jaxpe.encodings.inverse_frequencies(d)[-1]) for d in widths}
    return {d: {"smallest": w, "over_1e-4": w / 1e-4} for d, w in found.items()}


def sinusoids_far_apart(digits: int) -> dict[str, dict[str, float]]:
    """Li, Sec. 5.1: ambiguous beyond 10,000. The least distance of rows so many positions apart.

    By width and largest offset, to 10^digits, over every offset from 10,000 on, in steps between
    neighbours: rows differ by √Σ_k (2 − 2 cos ω_k offset), wherever they stand.
    """
    return {str(dim): _nearest_far(dim, digits) for dim in (4, 8, 16, 32, 64, 512)}


def _nearest_far(dim: int, digits: int) -> dict[str, float]:
    omega = jaxpe.encodings.inverse_frequencies(dim)
    step = np.sqrt(np.sum(2 - 2 * np.cos(omega)))
    found: dict[str, float] = {}
    block = 2**16
    ends = [10**k for k in range(5, (min(digits, 6) if dim > 64 else digits) + 1)]
    for start in range(10_000, ends[-1], block):
        offsets = np.arange(start, min(start + block, ends[-1]), dtype=float)
        squares = sum((2 - 2 * np.cos(w * offsets) for w in omega), np.zeros_like(offsets))
        for end in ends:
            inside = squares[offsets < end]
            if inside.size:
                nearest = float(np.sqrt(inside.min()) / step)
                found[str(end)] = min(found.get(str(end), np.inf), nearest)
    return found


def legendre_beyond() -> dict[str, float]:
    """Li, Sec. 6.2: distance between neighbours at 1, 2, 4 and 8 lengths over that inside."""
    with jax.enable_x64(True):
        rows = np.asarray(
            jaxpe.encodings.legendre_vectors(np.arange(8 * 512 + 2), dim=64, length=512)
        )
        steps = np.linalg.norm(np.diff(rows, axis=0), axis=-1)
        return {str(m): float(steps[m * 512] / np.median(steps[:512])) for m in (1, 2, 4, 8)}


def wavelet_rows() -> dict[str, dict[str, float]]:
    """Li, Sec. 6.1.2: "the vectors ... are orthonormal up to scaling". Of unit rows, by order."""
    found, place = {}, np.arange(64)
    for order in (1, 2, 3, 4, 8):
        with jax.enable_x64(True):
            rows = np.asarray(
                jaxpe.encodings.wavelet_vectors(place, dim=64, length=64, order=order)
            )
        between = np.abs(rows @ rows.T - np.eye(64))
        found[str(order)] = {
            "largest_product": between.max(),
            "rank": int(np.linalg.matrix_rank(rows)),
        }
    return found


def legendre_columns() -> dict[str, dict[str, float]]:
    """Li, Sec. 6.2.2: "a nearly orthonormal basis". Of unit columns, T = d = 64, by T/s."""
    found = {}
    for over in (1, 2, 4, 5, 8):
        with jax.enable_x64(True):
            columns = np.asarray(
                jaxpe.encodings.legendre_vectors(np.arange(64), dim=64, length=64, s=64 / over)
            )
        unit = columns / np.linalg.norm(columns, axis=0)
        products = (unit.T @ unit)[~np.eye(64, dtype=bool)]
        found[str(over)] = {
            "rms": np.sqrt(np.mean(products**2)),
            "largest": np.abs(products).max(),
            "rank": int(np.linalg.matrix_rank(columns)),
            "last_x": np.tanh(63 / 64 * over),
        }
    return found


def phase_errors(top: int) -> dict[str, float]:
    """Largest error in radians of float32 phases below position `top`: ours, the plain product."""
    i = np.random.default_rng(0).integers(top // 2, top, 4000, dtype=np.int32)
    frequencies = jaxpe.encodings.inverse_frequencies(64)
    turns = i[:, None].astype(np.longdouble) * (frequencies / (2 * np.pi)).astype(np.longdouble)
    exact = (turns - np.rint(turns)).astype(np.float64) * 2 * np.pi
    plain = jnp.asarray(i, jnp.float32)[:, None] * jnp.asarray(frequencies, jnp.float32)

    def error(angles):
        return float(np.max(np.abs(np.angle(np.exp(1j * (np.asarray(angles, float) - exact))))))

    ours = error(phases(jnp.asarray(i), frequencies, jnp.float32))
    return {"position": top, "ours": ours, "product": error(plain)}


if __name__ == "__main__":
    main(experiment, "encodings_claims")

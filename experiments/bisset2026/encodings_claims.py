"""What two texts say of encodings, computed: gradients, parameters, layouts, reach.

"Positional Encodings via the Method of Fluxions" (Bisset 2026), and Tables 1 and 3 and Sections 5
and 6 of "Theoretical Analysis of Positional Encodings in Transformer Models" (Li 2025), by
`encoding_properties` for width 512, 8 heads of 64 and length 512, and by what is below.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import Run, main
from jaxpe import encodings
from jaxpe.encodings.families.bias import alibi_slopes
from jaxpe.encodings.families.rotary import rotary_permutation

GRADIENTS = ("sinusoidal", "learned", "rope", "alibi")
INFORMATION = ("sinusoidal", "learned", "shaw", "alibi", "wavelet", "legendre")
BEYOND = (*INFORMATION, "rope", "legendre_clipped")


def experiment(run: Run) -> dict[str, Any]:
    sizes = encodings.EncodingSizes(64, 4, 16, 64) if run.quick else encodings.EncodingSizes()
    found = {
        e.name: encodings.encoding_properties(e, sizes=sizes) for e in encodings.catalogue(*BEYOND)
    }
    result: dict[str, Any] = {
        "gradient": {n: {"ours": list(found[n].gradient)} for n in GRADIENTS},
        "parameters": {n: {"ours": found[n].trainable} for n in GRADIENTS},
        "information": {n: {"ours": [found[n].absolute, found[n].relative]} for n in INFORMATION},
        "beyond": {n: {"ours": found[n].beyond} for n in BEYOND},
        "alibi_slopes_of_8_heads": alibi_slopes(8),
        "smallest_frequency": smallest_frequency(),
        "ntk": ntk_base(),
        "sinusoids_far_apart": sinusoids_far_apart(5 if run.quick else 7),
    }
    with jax.enable_x64(True):
        for part in (
            shift_is_a_rotation, layout_of_the_code, backward_of_the_code, permuted_attention,
            added_and_appended, bias_gradients, t5_encoder, legendre_beyond, wavelet_rows,
            legendre_columns, rope_identity, fourier_basis, moved_logits, functions_of_the_offset,
        ):  # fmt: skip
            result[part.__name__] = part()
    for name, value in result.items():
        print(name, value)
    return result


def relative_error(found: Any, true: Any) -> float:
    return float(np.linalg.norm(np.subtract(found, true)) / np.linalg.norm(true))


def shift_is_a_rotation() -> float:
    """Bisset, Sec. 2.3: PE(i + k) = R(k) PE(i). Largest deviation over offsets to 1,000."""
    turn = encodings.rope(head_dim=64, layout="interleaved")
    i, k = np.arange(256), np.array([1, 17, 1000])
    rows = encodings.sinusoidal_vectors(i, dim=64)
    # sin comes first, so a shift by k turns (sin, cos) by −ω k.
    turned = [turn.query((), rows[:, None], -np.full(256, s))[:, 0] for s in k]
    moved = [encodings.sinusoidal_vectors(i + s, dim=64) for s in k]
    return float(np.max(np.abs(np.stack(turned) - np.stack(moved))))


def layout_of_the_code() -> dict[str, float]:
    """Bisset, Sec. 11: pairs (2k, 2k+1), results concatenated in halves."""
    q, k = np.random.default_rng(0).standard_normal((2, 32, 8))
    i = np.arange(32)
    cos, sin = _their_tables(32, 8)
    interleaved = encodings.rope(head_dim=8, layout="interleaved")
    ours, keys = (np.asarray(interleaved.query((), x[:, None], i)[:, 0]) for x in (q, k))
    half = np.asarray(encodings.rope(head_dim=8).key((), k[:, None], i)[:, 0])
    order = rotary_permutation(rotary_dim=8, source="interleaved", target="half")
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
    true = np.asarray(jax.vjp(lambda x: _their_rope(x, cos, sin), x)[1](gradient)[0])
    # The listing as printed; then what would be right: it is laid out in halves, as the output is.
    printed = _their_backward(gradient[..., 0::2], gradient[..., 1::2], cos, sin)
    first, second = np.split(gradient, 2, axis=-1)
    halves = _their_backward(first, second, cos, sin)
    mended = halves.reshape(32, 2, 4).swapaxes(1, 2).reshape(32, 8)
    try:
        _their_rope(
            rng.standard_normal((2, 32, 4, 8)), cos, sin
        )  # [batch, seq_len, n_heads, head_dim]
        broadcasts = True
    except (TypeError, ValueError):
        broadcasts = False
    return {
        "relative_error": relative_error(printed, true),
        "relative_error_split_in_halves": relative_error(halves, true),
        "relative_error_of_halves_interleaved": relative_error(mended, true),
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


def attention(x: Any, weights: Any) -> Any:
    """One head of width d over rows `[n, d]`."""
    q, k, v = (x @ w for w in weights)
    return jax.nn.softmax(q @ k.T / np.sqrt(x.shape[-1])) @ v


def permuted_attention() -> dict[str, float]:
    """Bisset, Sec. 1.1: rows shuffled, against the output shuffled, and against the output."""
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((16, 8)), rng.standard_normal((3, 8, 8))
    order = rng.permutation(16)
    straight, shuffled = attention(x, weights), attention(x[order], weights)
    return {
        "from_the_output_shuffled": relative_error(shuffled, straight[order]),
        "from_the_output": relative_error(shuffled, straight),
    }


def rope_identity() -> dict[str, float]:
    """Bisset, Sec. 5.3: relative changes of products of rotated pairs where m and n grow by 5.

    The sum as printed has the first entries of the pairs alone, the second ones are its "+ ...".
    """
    q, k = (x[:, 0::2] + 1j * x[:, 1::2] for x in np.random.default_rng(0).normal(size=(2, 32, 64)))
    angles = np.arange(64)[:, None] / 10000 ** (np.arange(0, 64, 2) / 64)
    found = []
    for at in (angles[:32], angles[5:37]):
        m, n = (x * np.exp(1j * at) for x in (q, k))
        found.append((m.real @ n.real.T, m.real @ n.real.T + m.imag @ n.imag.T))
    (first, both), (first_moved, both_moved) = found
    return {
        "first_entries": relative_error(first_moved, first),
        "both": relative_error(both_moved, both),
    }


def fourier_basis() -> dict[str, dict[str, float]]:
    """Bisset, Sec. 2.2: the d columns of sinusoids over d positions, in float64.

    Rank; the largest product of two columns of unit length; their condition number, at most 10^16
    or so.
    """
    found = {}
    for d in (4, 8, 64, 512):
        columns = np.asarray(encodings.sinusoidal_vectors(np.arange(d), dim=d))
        unit = columns / np.linalg.norm(columns, axis=0)
        found[str(d)] = {
            "rank": int(np.linalg.matrix_rank(columns)),
            "largest_product": float(np.max(np.abs(unit.T @ unit - np.eye(d)))),
            "condition": float(np.linalg.cond(unit)),
        }
    return found


def moved_logits() -> dict[str, float]:
    """Bisset, Sec. 7: relative changes of one head's logits where all positions grow by 7.

    For absolute encodings also what the best linear map of p_i leaves of p_(i+7), over 256 rows.
    """
    rng, i = np.random.default_rng(0), np.arange(64)
    x, weights = rng.standard_normal((64, 64)), rng.standard_normal((2, 64, 64)) / 8
    found = {}
    table = encodings.learned(length=263, dim=64, stddev=1.0)
    absolute = {"sinusoidal": encodings.sinusoidal(dim=64), "learned": table}
    relative = {
        "rope": encodings.rope(head_dim=64),
        "alibi": encodings.alibi(num_heads=1),
    }
    for name, e in (absolute | relative).items():
        params, logits = e.init(jax.random.key(0)), []
        for at in (i, i + 7):
            q, k = ((e.embed(params, x, at) @ w)[:, None] for w in weights)
            both = {"q_positions": at, "k_positions": at}
            logits.append(encodings.attention_logits(e, params, q, k, **both))
        found[name] = relative_error(logits[1], logits[0])
        if name in absolute:
            rows = np.asarray(e.vectors(params, np.arange(263)))
            best = np.linalg.lstsq(rows[:-7], rows[7:])[0]
            found[f"{name}_map"] = relative_error(rows[:-7] @ best, rows[7:])
    return found


def functions_of_the_offset() -> dict[str, float]:
    """Bisset, Sec. 6.6: what offsets of 0 to 511 add to the logit of a query and a key, width 64.

    The rank of these functions over 128 queries and keys, and the largest error of the least
    squares that gives ALiBi's line of slope ½ by functions of RoPE, singular values above 1e-6.
    """
    q, k = np.random.default_rng(0).standard_normal((2, 128, 1, 1, 64))
    q, offsets, functions = np.broadcast_to(q, (128, 512, 1, 64)), np.arange(512), {}
    for name, e in {
        "rope": encodings.rope(head_dim=64),
        "alibi": encodings.alibi(num_heads=1),
    }.items():
        logits = encodings.attention_logits(
            e, (), q, k, q_positions=offsets, k_positions=offsets[:1]
        )
        functions[name] = np.asarray(logits[:, 0, :, 0] - logits[:, 0, :1, 0])
    rope = functions["rope"]
    best = np.linalg.lstsq(rope.T, -0.5 * offsets, rcond=1e-6)[0]
    ranks = {name: int(np.linalg.matrix_rank(rows)) for name, rows in functions.items()}
    return ranks | {"line": float(np.max(np.abs(best @ rope + 0.5 * offsets)))}


def added_and_appended() -> dict[str, float]:
    """Bisset, Sec. 2.5 and 3.2: positions added or appended, at the input of one head."""
    rng = np.random.default_rng(0)
    x, table = rng.standard_normal((2, 16, 8))
    i, target = np.arange(16), rng.standard_normal((16, 8))
    modes = [encodings.learned(length=16, dim=8, mode=mode) for mode in ("add", "concat")]
    add, append = ((lambda x, t, m=m: m.embed({"table": t}, x, i)) for m in modes)
    small, wide = rng.standard_normal((3, 8, 8)), rng.standard_normal((3, 16, 16))

    def loss(x: Any, table: Any) -> Any:
        return jnp.sum(attention(add(x, table), small) * target)

    of_tokens, of_positions = jax.grad(loss, argnums=(0, 1))(x, table)
    both = append(x, table)
    mapped = x @ wide[0][:8] + table @ wide[0][8:]  # the same map of positions, added
    return {
        "gradients_of_tokens_and_positions": relative_error(of_positions, of_tokens),
        "width": both.shape[-1] / x.shape[-1],
        "tokens_kept": relative_error(both[:, :8], x),
        "query_as_a_sum": relative_error(both @ wide[0], mapped),
    }


def bias_gradients() -> dict[str, float]:
    """Bisset, Sec. 4.3: relative errors of L̇R as printed, and over √d; 6.4, of ALiBi's L̇Q."""
    rng = np.random.default_rng(0)
    n, d = 12, 16
    q, k, target = rng.standard_normal((3, n, d))
    R, offsets = rng.standard_normal((2 * n - 1, d)), np.subtract.outer(np.arange(n), np.arange(n))

    def scores(q: Any, R: Any) -> Any:
        return (q @ k.T + jnp.einsum("id,ijd->ij", q, R[offsets + n - 1])) / np.sqrt(d)

    def loss(S: Any) -> Any:
        return jnp.sum(jax.nn.softmax(S) @ k * target)

    S = scores(q, R)
    of_scores = np.asarray(jax.grad(loss)(S))
    true = jax.grad(lambda R: loss(scores(q, R)))(R)
    printed = np.stack([(of_scores * (offsets == m)).sum(axis=1) @ q for m in range(-n + 1, n)])
    biased = lambda q: q @ k.T / np.sqrt(d) - 0.5 * np.abs(offsets)  # noqa: E731
    alibi = jax.grad(loss)(biased(q)) @ k / np.sqrt(d)
    return {
        "relative_embedding": relative_error(printed, true),
        "relative_embedding_over_root_d": relative_error(printed / np.sqrt(d), true),
        "alibi_queries": relative_error(alibi, jax.grad(lambda q: loss(biased(q)))(q)),
    }


def t5_encoder() -> dict[str, float]:
    """Bisset, Sec. 10.3: T5's encoder adds a bias by offset. Moved by 1,000, and reversed."""
    t5 = encodings.t5(num_heads=4)
    params, q, i = t5.init(jax.random.key(0)), jnp.zeros((16, 4, 8)), np.arange(16)
    bias = t5.bias(params, q, q, i, i)
    moved, turned = (t5.bias(params, q, q, at, at) for at in (i + 1000, i[::-1]))
    return {"moved": relative_error(moved, bias), "reversed": relative_error(turned, bias)}


def ntk_base() -> dict[str, float]:
    """Bisset, Sec. 8.2: θ·s^(d/(d−2)) keeps the fastest frequency and divides the slowest by s."""
    plain = encodings.inverse_frequencies(64)
    scaled = encodings.inverse_frequencies(64, base=1e4 * 4.0 ** (64 / 62))
    return {"fastest": float(scaled[0] / plain[0]), "slowest": float(plain[-1] / scaled[-1])}


def smallest_frequency() -> dict[str, dict[str, float]]:
    """Bisset, Sec. 2.2, and the geometry paper: 10000⁻¹. The formula gives 10000^(−(d − 2)/d)."""
    found = {d: float(encodings.inverse_frequencies(d)[-1]) for d in (4, 64, 512)}
    return {str(d): {"smallest": w, "over_1e-4": w / 1e-4} for d, w in found.items()}


def sinusoids_far_apart(digits: int) -> dict[str, dict[str, float]]:
    """Li, Sec. 5.1: ambiguous beyond 10,000. The least distance of rows so many positions apart.

    By width and largest offset, to 10^digits, over every offset from 10,000 on, in steps between
    neighbours: rows differ by √Σ_k (2 − 2 cos ω_k offset), wherever they stand.
    """
    return {str(dim): _nearest_far(dim, digits) for dim in (4, 8, 16, 32, 64, 512)}


def _nearest_far(dim: int, digits: int) -> dict[str, float]:
    omega = encodings.inverse_frequencies(dim)
    step = np.sqrt(np.sum(2 - 2 * np.cos(omega)))
    ends = [10**k for k in range(5, (min(digits, 6) if dim > 64 else digits) + 1)]
    found, nearest = {}, np.inf
    for start, end in zip([10_000, *ends], ends, strict=False):
        for at in range(start, end, 2**16):
            offsets = np.arange(at, min(at + 2**16, end), dtype=float)
            squares = sum((2 - 2 * np.cos(w * offsets) for w in omega), np.zeros_like(offsets))
            nearest = min(nearest, squares.min())
        found[str(end)] = float(np.sqrt(nearest) / step)
    return found


def legendre_beyond() -> dict[str, float]:
    """Li, Sec. 6.2: distance between neighbours at 1, 2, 4 and 8 lengths over that inside."""
    rows = np.asarray(encodings.legendre_vectors(np.arange(8 * 512 + 2), dim=64, length=512))
    steps = np.linalg.norm(np.diff(rows, axis=0), axis=-1)
    return {str(m): float(steps[m * 512] / np.median(steps[:512])) for m in (1, 2, 4, 8)}


def wavelet_rows() -> dict[str, dict[str, float]]:
    """Li, Sec. 6.1.2: "the vectors ... are orthonormal up to scaling". Of unit rows, by order."""
    found = {}
    for order in (1, 2, 3, 4, 8):
        rows = encodings.wavelet_vectors(np.arange(64), dim=64, length=64, order=order)
        between = np.abs(rows @ rows.T - np.eye(64))
        rank = int(np.linalg.matrix_rank(rows))
        found[str(order)] = {"largest_product": float(between.max()), "rank": rank}
    return found


def legendre_columns() -> dict[str, dict[str, float]]:
    """Li, Sec. 6.2.2: "a nearly orthonormal basis". Of unit columns, T = d = 64, by T/s."""
    found = {}
    for over in (1, 2, 4, 5, 8):
        columns = np.asarray(
            encodings.legendre_vectors(np.arange(64), dim=64, length=64, s=64 / over)
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


if __name__ == "__main__":
    main(experiment, "encodings_claims")

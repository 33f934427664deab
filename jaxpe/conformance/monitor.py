"""Statistics of positions in attention and loss during training, for any logger."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.conformance.arrays import to_numpy
from jaxpe.conformance.reference import Inputs, layer_attention, plan_rotation
from jaxpe.plans.result import LayerPlan

SINK_RATIO, SINK_VOTERS = 10, 8
BANDS = ("under_1", "1-10", "10-100", "100-1000", "over_1000")  # rounds in the trained length
# For the two scores: queries of a row, keys of each, and offsets of the positional one.
CELL_QUERIES, CELL_KEYS, MOST_SHIFTS = 8, 16, 256


class PositionMonitor:
    """Monitor of positions during training: a look at a few rows, once in many steps.

    Numbers are means over a fixed sample of rows, heads and queries. Nothing is kept between two
    looks, neither arrays nor programs. The names of the numbers begin with `name`:

    - `attention_share/offset_4-7`: share of the attention to keys at these distances.
    - `sinks/heads`: share of heads with a sink. `sinks/share` and `sinks/share_after_first`:
      attention to sinks, and to sinks at positions after 0. `sinks/position`: position of the
      strongest sink, if any.
    - `band_energy/rounds_1-10`: share of |q||k| in the frequencies that complete this many rounds
      in the trained length.
    - `scores/semantic`, `scores/positional`: `semantic_score` and `positional_score` of Wu et al.
      (2026), for offsets up to the length of a row.
    - `loss/position_4-7`: mean loss at these positions.

    A sink is a key to which more than half of its queries give over 10 times the uniform share and
    over 10 times what other keys get at this distance. Queries at the key itself and those that see
    under 20 keys do not vote. A key needs 8 votes. So local attention alone has no sinks.

    Attributes:
        plan: plan of the layer, such as `jaxpe.plans.simple_plan(head_dim=64, base=1e4)`.
        every: steps between two looks.
        log: function of the numbers and the step, such as `run.log` of W&B; None for none.
        name: first part of all names, such as "layer_3".
        rows, heads, queries: largest sizes of the sample.
        causal: whether queries ignore later keys.
        scale: factor on logits; None for 1/√head_dim.

    >>> import numpy as np, jaxpe.plans
    >>> monitor = PositionMonitor(jaxpe.plans.simple_plan(head_dim=8, base=1e4), every=100)
    >>> q, k = np.random.default_rng(0).normal(size=(2, 2, 32, 4, 8))
    >>> numbers = monitor.look(0, queries=q, keys=k) if monitor.due(0) else {}
    >>> numbers["position/sinks/heads"]
    0.0
    """

    def __init__(
        self, plan: LayerPlan, *, every: int = 100,
        log: Callable[[dict[str, float], int], Any] | None = None, name: str = "position",
        rows: int = 2, heads: int = 4, queries: int = 64, causal: bool = True,
        scale: float | None = None,
    ):  # fmt: skip
        if min(every, rows, heads, queries) < 1:
            raise InputError("every, rows, heads and queries must be at least 1")
        self.plan, self.every, self.log, self.name, self.causal = plan, every, log, name, causal
        self.rows, self.heads, self.queries, self.scale = rows, heads, queries, scale

    def due(self, step: int) -> bool:
        """Whether to look at a step: every `every` steps, from 0."""
        return step % self.every == 0

    def look(
        self, step: int, *, queries: Any = None, keys: Any = None, weights: Any = None,
        losses: Any = None, positions: Any = None, segments: Any = None,
    ) -> dict[str, float]:  # fmt: skip
        """Numbers of one step, which also go to the logger.

        Arrays are of any framework. Numbers whose arrays are missing are left out. A score is NaN
        if it is not defined, as of queries that are 0.

        Args:
            step: number of the step.
            queries: `[batch, n, heads, head_dim]`, before rotation and after any norm; for latent
                attention the content, then the rotated part.
            keys: `[batch, n, key_heads, head_dim]`, likewise.
            weights: `[batch, heads, n, n]`; None to compute them from queries and keys, which needs
                layers without bias, cap and learned sink.
            losses: `[batch, n]` or `[batch, n - 1]`, one per token; NaN for
                tokens without one. A bin of them alone is NaN.
            positions: `[batch, n]` or `[n]`; None for 0, 1, 2, ...
            segments: `[batch, n]`, number of the document, 0 for padding; a mask of tokens will do.

        Raises:
            InputError: shapes that do not fit, or a kind of layers that needs `weights`.
        """
        numbers: dict[str, Any] = {}
        if queries is not None or keys is not None or weights is not None:
            numbers = self._attention(queries, keys, weights, positions, segments)
        if losses is not None:
            losses = np.atleast_2d(to_numpy(losses))
            places = _tokens(positions, losses.shape, np.arange(losses.shape[1]))
            real = _tokens(segments, losses.shape, np.ones(losses.shape[1])) > 0
            for label, chosen in _by_distance(places, real):
                known = chosen & ~np.isnan(losses)
                numbers[f"loss/position_{label}"] = losses[known if known.any() else chosen].mean()
        numbers = {f"{self.name}/{k}": float(x) for k, x in numbers.items()}
        if self.log is not None:
            self.log(numbers, step)
        return numbers

    def _attention(self, queries, keys, weights, positions, segments) -> dict[str, Any]:
        """Numbers of the sample; slices are taken before arrays become NumPy's."""
        sizes: dict[str, int] = {}
        for axes, array in (("bnhd", queries), ("bnkd", keys), ("bhnn", weights)):
            shape = () if array is None else np.shape(array)
            fits = [sizes.setdefault(a, size) == size for a, size in zip(axes, shape, strict=False)]
            if array is not None and (len(shape) != 4 or not all(fits)):
                raise InputError(f"shape {shape} is not [{', '.join(axes)}] with {sizes}")
        if (queries is None) != (keys is None) or sizes["h"] % sizes.get("k", 1):
            raise InputError("pass queries and keys, for a multiple of the heads of keys")
        batch, n, heads = (sizes[axis] for axis in "bnh")
        places = _tokens(positions, (batch, n), np.arange(n))[: self.rows]
        documents = _tokens(segments, (batch, n), np.ones(n))[: self.rows]
        every, stride = -(-n // self.queries), -(-heads // self.heads)
        at = slice((n - 1) % every, None, every)  # the last query is one of them
        few, q, k = -(-heads // stride), np.zeros(0), np.zeros(0)
        plan = self.plan._replace(kind="none" if queries is None else self.plan.kind)
        if queries is not None:
            skip = stride if sizes["k"] == heads else 1
            q, k = (
                to_numpy(queries[: self.rows, at, ::stride]),
                to_numpy(keys[: self.rows, :, ::skip]),
            )
            k = k[:, :, np.arange(0, heads, stride) * sizes["k"] // heads // skip]
        scale = (self.scale or sizes.get("d", 1) ** -0.5) * plan.logit_factor
        attention = layer_attention(plan, few, few, scale=scale, causal=self.causal)
        own = places[:, at]
        inputs = Inputs(q, k, k, own, places, documents[:, at], documents, own, places)
        visible = attention.visible(inputs) & (inputs.segments[..., None] > 0)
        if not visible.any():
            return {}
        numbers = {} if queries is None else self._bands_and_scores(inputs, visible)
        if weights is None:
            weights = attention.weights(inputs)
        else:
            weights = to_numpy(weights[: self.rows, ::stride, at])
        return numbers | _shares_and_sinks(weights, places, at, visible)

    def _bands_and_scores(self, inputs: Inputs, visible: np.ndarray) -> dict[str, float]:
        """Energy by band of frequencies, and two scores of a few queries and keys."""
        q, k, plan = self._pairs(inputs.q), self._pairs(inputs.k), self.plan
        if not plan.turns:
            return {}
        frequencies = np.asarray(plan.frequencies)
        rounds = frequencies * plan.trained / (2 * np.pi)
        bands = np.searchsorted([1, 10, 100, 1000], rounds, side="right")
        tokens = q[inputs.segments > 0], k[inputs.key_segments > 0]
        energy = np.prod([np.abs(x).mean(0) for x in tokens], 0)[:, : len(rounds)]
        energy = (energy / np.maximum(energy.sum(-1, keepdims=True), 1e-30)).mean(0)
        shares = zip(BANDS, np.bincount(bands, energy, len(BANDS)), strict=True)
        # The scores are of random keys that are the same each time, visible ones first.
        few = slice(None, None, -(-q.shape[1] // CELL_QUERIES))
        order = np.random.default_rng(0).random(visible[:, few].shape) + visible[:, few]
        chosen = np.argsort(-order, -1)[..., : min(CELL_KEYS, len(k[0]) // 2 * 2)]
        products = q[:, few, None] * k[np.arange(len(k))[:, None, None], chosen].conj()
        seen = np.take_along_axis(visible[:, few], chosen, -1)
        differences = (products[:, :, ::2] - products[:, :, 1::2])[seen[..., 1::2]]
        turning, n = len(rounds), k.shape[1]
        padded = np.pad(frequencies, (0, q.shape[-1] - turning))  # others do not turn
        return {
            **{f"band_energy/rounds_{name}": share for name, share in shares},
            "scores/semantic": semantic_score(differences, padded, n),
            "scores/positional": positional_score(products[seen][..., :turning], frequencies, n),
        }

    def _pairs(self, array: Any) -> np.ndarray:
        """Rotated pairs as complex numbers, then the other entries."""
        rotation, x = plan_rotation(self.plan), to_numpy(array)
        pairs = np.zeros((0, 2), int) if rotation is None else rotation.pairs
        if self.plan.kind not in ("rotary", "none") or x.shape[-1] <= pairs.max(initial=-1):
            raise InputError(
                f"{self.plan.kind} layers with {x.shape[-1]} entries: pass `weights` in place of "
                "queries and keys"
            )
        turning = (x[..., pairs[:, 0]] + 1j * x[..., pairs[:, 1]]) * self.plan.attention_factor
        return np.concatenate([turning, np.delete(x, pairs.ravel(), -1)], -1)


def semantic_score(differences: np.ndarray, frequencies: np.ndarray, window: int) -> float:
    """Semantic score: 1 - probability that another offset reverses a preference between two keys.

    The difference of two logits at offset δ is s(δ) = Re Σ_k d_k exp(iω_k δ). Take δ uniform over 0
    to window - 1. If s were normal, its sign would differ from the sign of s(0) with probability
    Φ(-sign(s(0)) μ/σ). μ and σ are exact, by sums of geometric series.

    `differences` is `[..., pairs]`: d_k is q_k conj(k_k − k'_k) for two keys k and k'.
    """

    def mean_phase(angle: np.ndarray) -> np.ndarray:
        """Mean of exp(i angle δ)."""
        turns = angle / (2 * np.pi)
        return np.sinc(window * turns) / np.sinc(turns) * np.exp(0.5j * (window - 1) * angle)

    mean = mean_phase(frequencies)
    minus = mean_phase(frequencies[:, None] - frequencies) - np.outer(mean, mean.conj())
    plus = mean_phase(frequencies[:, None] + frequencies) - np.outer(mean, mean)
    center, now = (differences @ mean).real, differences.real.sum(-1)
    squares = (differences @ minus) * differences.conj() + (differences @ plus) * differences
    spread = np.sqrt(np.maximum(squares.sum(-1).real, 1e-300))  # √2 σ
    untied = np.abs(now) > 1e-12 * np.abs(differences).sum(-1)
    reversals = [math.erfc(x) / 2 for x in (np.sign(now) * center / spread)[untied]]
    return 1 - sum(reversals) / len(reversals) if reversals else math.nan


def positional_score(products: np.ndarray, frequencies: np.ndarray, window: int) -> float:
    """Positional score: mean |s(δ + 1) - s(δ)| of a logit over the norm of its coefficients.

    s(δ) = Re Σ_k c_k exp(iω_k δ), for the δ from 0 to window - 2, or for 256 random ones.
    `products` is `[..., pairs]`: c_k is q_k conj(k_k).
    """
    shifts = np.random.default_rng(0).permutation(window - 1)[:MOST_SHIFTS]
    steps = (products * np.expm1(1j * frequencies)) @ np.exp(1j * np.outer(frequencies, shifts))
    norms = np.linalg.norm(products, axis=-1)
    sizes = np.abs(steps.real).sum(-1)[norms > 0] / norms[norms > 0]
    return sizes.sum() / (sizes.size * shifts.size) if sizes.size * shifts.size else math.nan


def _shares_and_sinks(weights, places, at: slice, visible) -> dict[str, Any]:
    """Attention by distance, and sinks, of weights `[rows, heads, queries, n]`."""
    distances = np.abs(places[:, at, None] - places[:, None])
    weights = np.where(visible[:, None], weights, 0)
    total, keys = weights.sum(), visible.sum(-1, keepdims=True)
    numbers: dict[str, Any] = {}
    expected = np.broadcast_to(1 / np.maximum(keys, 1)[:, None], weights.shape)
    for label, seen in _by_distance(distances, visible):
        got, count = np.where(seen[:, None], weights, 0).sum(2), seen.sum(1)[:, None]
        numbers[f"attention_share/offset_{label}"] = got.sum() / total
        others, rest = (x.sum(-1, keepdims=True) - x for x in (got, count))
        others = (others / np.maximum(rest, 1))[:, :, None]
        expected = np.where(seen[:, None], np.maximum(expected, others), expected)
    voters = visible & (distances > 0) & (keys >= 2 * SINK_RATIO)
    votes = voters.sum(1)[:, None]
    if votes.max(initial=0) < SINK_VOTERS:
        return numbers  # rows too short to tell
    above = (voters[:, None] & (weights > SINK_RATIO * expected)).sum(2)
    sinks = (votes >= SINK_VOTERS) & (2 * above > votes)
    received = np.where(sinks, weights.sum(2), 0).sum(1) / total
    numbers |= {"sinks/heads": sinks.any(-1).mean(), "sinks/share": received.sum()}
    numbers["sinks/share_after_first"] = received[places > 0].sum()
    if sinks.any():
        numbers["sinks/position"] = places.flat[received.argmax()]
    return numbers


def _tokens(array: Any, shape: tuple[int, ...], default: np.ndarray) -> np.ndarray:
    """Numbers of tokens, `[batch, n]`."""
    numbers = default if array is None else to_numpy(array)
    if numbers.shape[-1] == shape[1] + 1:  # losses lack the last token
        numbers = numbers[..., :-1]
    if numbers.shape not in (shape, shape[1:], (1, *shape[1:])):
        raise InputError(f"positions or segments of shape {numbers.shape}, not {shape}")
    return np.broadcast_to(numbers, shape)


def _by_distance(distances: np.ndarray, valid: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Names of the bins 0, 1, 2-3, 4-7, ... and masks of what is in each."""
    bins = np.frexp(distances.astype(float))[1]
    for one in np.unique(bins[valid]):
        yield str(one) if one < 2 else f"{2 ** (one - 1)}-{2**one - 1}", valid & (bins == one)

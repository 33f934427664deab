"""Expressiveness: which positions of a constant sequence a transformer can distinguish."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings import attend
from jaxpe.encodings.analysis.properties import RESOLUTION, line_of_positions
from jaxpe.encodings.base import Encoding, encoding_at
from jaxpe.encodings.registry import CatalogueEntry, EncodingSizes

# Training lengths up to which positions must be distinct for "any" length.
FARTHEST = 64
# Model for constant sequences (its size does not matter), and number of random weights.
SMALL = EncodingSizes(dim=32, num_heads=2, head_dim=16, length=64)
DRAWS = 3
# Tested positions before each of 2, 4, ... lengths.
WINDOW = 16


class Spread(NamedTuple):
    """Distances of the two furthest and the two nearest rows, relative to the largest row."""

    largest: float
    nearest: float

    @property
    def apart(self) -> bool:
        """Whether no two rows are the same."""
        return self.nearest > RESOLUTION


class Expressiveness(NamedTuple):
    """Positions that a transformer with an encoding can distinguish.

    Attributes:
        bidirectional: spread of the states of a constant sequence after a layer of attention
            without a mask, for the most spread of `DRAWS` random weights.
        causal: spread under a causal mask.
        causal_bos: spread under a causal mask with a different first token, a <bos>.
        reach: training lengths up to which all tested positions are distinct without a mask, at
            most `FARTHEST`; 0 where positions within the training length are not.
    """

    bidirectional: Spread
    causal: Spread
    causal_bos: Spread
    reach: int

    @property
    def universal(self) -> bool:
        """Whether transformers approximate every continuous map of sequences of fixed length.

        True holds for finitely many tokens, or embeddings that can be scaled; False holds for any.
        """
        return self.reach >= 1

    @property
    def universal_any(self) -> bool:
        """Whether they approximate maps of sequences of up to `FARTHEST` training lengths."""
        return self.reach >= FARTHEST


def encoding_expressiveness(
    entry: CatalogueEntry, *, sizes: EncodingSizes = EncodingSizes()
) -> Expressiveness:
    """Whether the tokens of a constant sequence get distinct states, which universality needs.

    Softmax weights sum to one, so equal values give equal outputs. An encoding that acts on
    queries, keys and logits alone therefore maps constant sequences to constant ones, masked or
    not. It is not universal (Luo et al. 2022, "Your Transformer May Not Be as Powerful as You
    Expect"). Other encodings put a vector p_i of the position into the states, added to embeddings
    x or by a value term. Distinct vectors suffice for finitely many tokens, or where embeddings can
    be scaled, so that x + p_i = x' + p_j only for i = j (as in the proof of Theorem 3 of Yun et al.
    2020). On a fixed compact domain they may not suffice: embeddings (p_1 − p_0, 0) give the states
    p_1, p_1. Under a causal mask a <bos> distinguishes positions even without an encoding
    (Kazemnejad et al. 2023, Theorem 1). Universality among causal maps is does not apply.

    States are embeddings and attention outputs of one layer of at most the sizes `SMALL`, in
    float64, with random weights and parameters. Reach is tested on all positions of the training
    length, and on the `WINDOW` positions before each of 2, 4, ..., `FARTHEST` lengths. Added
    vectors are compared at the given sizes (`EncodingSizes()` when None), in float32; otherwise
    states are compared.

    >>> rope, wavelet = catalogue("rope", "wavelet")
    >>> sizes = EncodingSizes(16, 2, 8, 32)
    >>> found = encoding_expressiveness(rope, sizes=sizes)
    >>> found.universal, found.causal.largest < 1e-12, found.causal_bos.nearest > 1e-4
    (False, True, True)
    >>> encoding_expressiveness(wavelet, sizes=sizes).reach
    4
    """
    with jax.enable_x64(True):
        small = EncodingSizes(*map(min, sizes, SMALL))
        constant = _Constant(entry.first_layer(small), entry.coordinates, small)
        causal = np.tril(np.ones((small.length, small.length), bool))
        masks = np.stack([np.ones_like(causal), causal, causal])
        states = constant.states(np.arange(small.length), masks, bos=[False, False, True])
        spreads = [spread(rows) for rows in states]
        reach = constant.reach() if spreads[0].apart else 0
    if constant.encoding.defines("embed"):
        reach = _vector_reach(entry, sizes)
    return Expressiveness(*spreads, reach=reach)


def spread(rows: np.ndarray) -> Spread:
    """Largest and smallest distances of rows `[draws, n, d]`, from the draw that spreads them most.

    NaN where a draw has a row that is not finite.

    >>> spread(np.array([[[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]]]))
    Spread(largest=1.0, nearest=0.0)
    """
    distances = np.stack([_distances(draw) for draw in rows])
    off = ~np.eye(rows.shape[1], dtype=bool)
    nearest = distances[:, off].min(axis=1, initial=np.inf)
    # np.max, unlike max, lets NaN pass from any draw.
    return Spread(float(np.max(distances)), float(np.max(nearest)))


def _distances(rows: np.ndarray) -> np.ndarray:
    """Distances of rows over the largest norm of a row."""
    rows = np.asarray(rows, np.float64)
    centred = rows - rows.mean(axis=0)
    gram = centred @ centred.T
    norms = np.diag(gram)
    squared = np.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0.0)
    return np.sqrt(squared) / max(float(np.linalg.norm(rows, axis=-1).max()), 1e-300)


class _Constant(NamedTuple):
    """A layer of attention with an encoding, on constant sequences."""

    encoding: Encoding
    coordinates: int
    sizes: EncodingSizes

    def states(self, rows: np.ndarray, masks: np.ndarray, *, bos: list[bool]) -> np.ndarray:
        """States `[masks, draws, rows, d]`; masks `[masks, rows, n]`, bos where <bos> is first."""
        n, sizes = masks.shape[-1], self.sizes
        params, weights, tokens = _random_draws(self.encoding, sizes)
        line = line_of_positions(np.arange(n), self.coordinates)

        def state(params, weights, tokens, bos, mask, positions):
            same = jnp.broadcast_to(tokens[:1], (n, sizes.dim))
            x = same.at[0].set(jnp.where(bos, tokens[1], tokens[0]))
            x = self.encoding.embed(params, x, positions)
            q, k, v = jnp.einsum("nd,pdhe->pnhe", x, weights[:, : x.shape[-1]])
            pair_positions = {"q_positions": positions[rows], "k_positions": positions}
            hidden = x[:, : sizes.dim]
            bound = encoding_at(self.encoding, params, hidden, positions, queries=rows)
            out = attend(bound, params, q[rows], k, v, mask=mask, **pair_positions)
            return jnp.concatenate([x[rows], out.reshape(len(rows), -1)], axis=-1)

        over_draws = jax.vmap(state, in_axes=(0, 0, 0, None, None, None))
        over_masks = jax.vmap(over_draws, in_axes=(None, None, None, 0, 0, None))
        return np.asarray(jax.jit(over_masks)(params, weights, tokens, np.array(bos), masks, line))

    def reach(self) -> int:
        """`FARTHEST` where a sequence of that length has distinct states, otherwise 1."""
        length = self.sizes.length
        rows = np.concatenate([np.arange(WINDOW), _windows(length)])
        mask = np.ones((len(rows), FARTHEST * length), bool)
        (states,) = self.states(rows, mask[None], bos=[False])
        return FARTHEST if spread(states).apart else 1


def _random_draws(encoding: Encoding, sizes: EncodingSizes) -> tuple[Any, np.ndarray, np.ndarray]:
    """Perturbed parameters, random projections and two random tokens, for every draw."""
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: np.asarray(x)[None] + 0.1 * rng.standard_normal((DRAWS, *x.shape)),
        encoding.init(jax.random.key(0)),
    )
    # Up to twice as wide as the embeddings, if vectors are appended to them.
    shape = (DRAWS, 3, 2 * sizes.dim, sizes.num_heads, sizes.head_dim)
    weights = rng.standard_normal(shape) * sizes.dim**-0.5
    return params, weights, rng.standard_normal((DRAWS, 2, sizes.dim))


def _vector_reach(entry: CatalogueEntry, sizes: EncodingSizes) -> int:
    """Training lengths up to which the added vectors are distinct in float32."""
    with jax.enable_x64(False):
        encoding, length = entry.first_layer(sizes), sizes.length
        indices = np.concatenate([np.arange(length), _windows(length)])
        positions = line_of_positions(indices, entry.coordinates)
        # Positions are traced, so that a table gives NaN instead of raising.
        rows = np.asarray(jax.jit(encoding.vectors)(encoding.init(jax.random.key(0)), positions))
    reach, multiple = 0, 1
    while multiple <= FARTHEST:
        before = rows[indices < multiple * length]
        if not np.isfinite(before).all() or not spread(before[None]).apart:
            break
        reach, multiple = multiple, 2 * multiple
    return reach


def _windows(length: int) -> np.ndarray:
    """`WINDOW` positions before each of 2, 4, ..., `FARTHEST` lengths."""
    ends = length * 2 ** np.arange(1, FARTHEST.bit_length())
    return (ends[:, None] + np.arange(-WINDOW, 0)[None, :]).ravel()

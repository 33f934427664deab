"""What the pictures of encodings show, computed from an encoding's hooks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings import EncodingSizes
from jaxpe.encodings.attention_mask import encoded_mask
from jaxpe.encodings.attention_terms import attention_logits, attention_weights
from jaxpe.encodings.base import encoding_at
from jaxpe.encodings.registry import CatalogueEntry

SIZES = EncodingSizes(dim=32, num_heads=4, head_dim=32, length=32)
SHOWN = 4 * SIZES.length  # positions, so that three quarters are beyond the training length


class Trial(NamedTuple):
    """An encoding at work on random content, at its initial parameters.

    Attributes:
        vectors: position vectors `[SHOWN, d]`, or what a query with all entries 1 becomes.
        distances: distances of these from the vector of position 0.
        bias: bias on the logits of the last query `[heads, SHOWN]`, by distance of the key.
        logits: logits of the last query to equal keys, `[heads, SHOWN]`, by distance of the key.
        attention: weights `[length, length]` of random content in the first head, causal.
    """

    vectors: np.ndarray | None
    distances: np.ndarray | None
    bias: np.ndarray | None
    logits: np.ndarray
    attention: np.ndarray


def trial(entry: CatalogueEntry) -> Trial:
    """All of it as one program."""
    encoding = entry.first_layer(SIZES)
    rng = np.random.default_rng(0)
    heads = (SIZES.num_heads, SIZES.head_dim)
    content = rng.standard_normal((SHOWN, SIZES.dim)).astype(np.float32)
    shape = (2, 2 * SIZES.dim, *heads)
    projections = rng.standard_normal(shape).astype(np.float32) / SIZES.dim**0.5
    line = np.arange(SHOWN, dtype=np.int32)
    places = line if entry.coordinates == 1 else np.repeat(line[:, None], entry.coordinates, 1)
    params = jax.jit(encoding.init)(jax.random.key(0))

    # Arrays are arguments: XLA folds what is closed over, which takes longer than the program.
    def run(params: Any, positions: Any, content: Any, projections: Any) -> dict[str, Any]:
        def projected(params: Any, x: Any, positions: Any) -> Any:
            x = encoding.embed(params, x, positions)
            return jnp.einsum("nd,pdhe->pnhe", x, projections[:, : x.shape[-1]])

        found: dict[str, Any] = {}
        alike = jnp.broadcast_to(content[:1], content.shape)
        at = encoding_at(encoding, params, alike, positions)
        if encoding.defines("vectors"):
            found["vectors"] = encoding.vectors(params, positions)
        elif encoding.defines("query"):
            found["vectors"] = at.query(params, jnp.ones((SHOWN, *heads)), positions)[:, 0]
        q, k = projected(params, alike, positions)
        both = {"q_positions": positions, "k_positions": positions}
        logits = attention_logits(at, params, q, k, **both)
        seen = encoded_mask(at, params, q, k, **both)
        logits = logits if seen is None else jnp.where(seen, logits, jnp.nan)
        found["logits"] = logits[:, -1, ::-1]
        if encoding.defines("bias"):
            bias = at.bias(params, q, k, positions, positions)
            shape = (SIZES.num_heads, SHOWN, SHOWN)
            found["bias"] = jnp.broadcast_to(bias, shape)[:, -1, ::-1]
        inside = positions[: SIZES.length]
        both = {"q_positions": inside, "k_positions": inside}
        at = encoding_at(encoding, params, content[: SIZES.length], inside)
        q, k = projected(params, content[: SIZES.length], inside)
        causal = np.tril(np.ones((SIZES.length, SIZES.length), bool))
        mask = encoded_mask(at, params, q, k, causal, **both)
        logits = attention_logits(at, params, q, k, **both)
        found["attention"] = attention_weights(logits, mask)[0]
        return found

    computed = jax.jit(run)(params, places, content, projections)
    found = {name: np.asarray(value) for name, value in computed.items()}
    vectors = found.get("vectors")
    distances = None if vectors is None else np.linalg.norm(vectors - vectors[:1], axis=1)
    return Trial(vectors, distances, found.get("bias"), found["logits"], found["attention"])

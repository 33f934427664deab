"""Right implementations in NumPy and JAX, in the layouts of other programs, and the checks of each.

`IMPLEMENTATIONS` maps a name to a function that checks it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import encodings
from jaxpe.conformance import alibi_bias, check_attention, check_rotary
from jaxpe.conformance.result import Conformance
from jaxpe.plans import simple_plan

HEADS, KEYS, WIDTH = 4, 2, 32


def llama_cpp(x: np.ndarray, positions: np.ndarray, *, neox: bool) -> np.ndarray:
    """llama.cpp's two types: angles by repeated products in float32, pairs near or half apart."""
    scale, theta = np.float32(10_000.0 ** (-2 / WIDTH)), positions.astype(np.float32)
    out = x.copy()
    for k in range(WIDTH // 2):
        i, j = (k, k + WIDTH // 2) if neox else (2 * k, 2 * k + 1)
        cos, sin = np.cos(theta)[..., None], np.sin(theta)[..., None]
        out[..., i] = x[..., i] * cos - x[..., j] * sin
        out[..., j] = x[..., i] * sin + x[..., j] * cos
        theta = theta * scale
    return out


def complex_numbers(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Pairs as complex numbers, as in Meta's first Llama."""
    omega = 1 / 10_000.0 ** (np.arange(0, WIDTH, 2, dtype=np.float32) / WIDTH)
    turns = np.exp(1j * (positions[..., None].astype(np.float32) * omega)).astype(np.complex64)
    pairs = np.ascontiguousarray(x).view(np.complex64) * turns[:, :, None]
    return pairs.view(np.float32)


@jax.jit
def timescales(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Sines and cosines of positions over timescales, halves in a row, as JAX programs write it."""
    timescale = 10_000.0 ** (2 * jnp.arange(WIDTH // 2) / WIDTH)
    angle = positions[:, :, None, None] / timescale
    sin, cos = jnp.sin(angle).astype(x.dtype), jnp.cos(angle).astype(x.dtype)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def timescales_attention(q, k, v, positions, *, segments=None):
    """The same rotation before `jax.nn.dot_product_attention`."""
    seen = positions[:, :, None] >= positions[:, None]
    if segments is not None:
        seen &= (segments[:, :, None] == segments[:, None]) & (segments > 0)[:, None]
    q, k = timescales(q, positions), timescales(k, positions)
    return jax.nn.dot_product_attention(q, k, jnp.asarray(v), mask=jnp.asarray(seen)[:, None])


ENCODING = encodings.rope(head_dim=WIDTH)


@partial(jax.jit, static_argnames="dtype")
def own_rotation(x: jax.Array, positions: jax.Array, *, dtype: str = "float32") -> jax.Array:
    """Rotation of this library."""
    return ENCODING.query((), x.astype(dtype), positions)


def own_attention(q, k, v, positions, *, key_positions=None, segments=None, key_segments=None):
    """Attention of this library with a mask of documents."""
    places = positions if key_positions is None else key_positions
    seen = positions[:, :, None] >= places[:, None]
    if segments is not None:
        other = segments if key_segments is None else key_segments
        seen &= (segments[:, :, None] == other[:, None]) & (other > 0)[:, None]
    return encodings.attend(
        ENCODING, (), q, k, v, q_positions=positions, k_positions=places, mask=seen[:, None]
    )


def own_shards(q, k, v, positions):
    """Attention of this library over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("shard",))
    return encodings.attend(
        ENCODING, (), q, k, v, q_positions=positions, k_positions=positions,
        mask=(positions[:, :, None] >= positions[:, None])[:, None], mesh=mesh, axis="shard",
    )  # fmt: skip


def shifted(q, k, v, positions, *, segments=None):
    """Positions from 1 of queries and keys, which cancel."""
    return timescales_attention(q, k, v, positions + 1, segments=segments)


def alibi_by_key(q, k, v, positions, *, segments=None):
    """ALiBi as slope times the key's position, which differs by a constant for each query."""
    seen = positions[:, :, None] >= positions[:, None]
    if segments is not None:
        seen &= (segments[:, :, None] == segments[:, None]) & (segments > 0)[:, None]
    slopes = 2.0 ** (-2.0 * np.arange(1, HEADS + 1))
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH)
    logits = logits + slopes[:, None, None] * positions[:, None, None]
    logits = np.where(seen[:, None], logits, -1e30)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(axis=-1, keepdims=True), v)


def rotation(apply: Callable[..., Any], pairing: str = "half", **options: Any):
    plan = simple_plan(head_dim=WIDTH, pairing=pairing)
    return lambda: check_rotary(apply, plan, **options)


def attention(attend: Callable[..., Any], **options: Any) -> Callable[[], Conformance]:
    plan = simple_plan(head_dim=WIDTH)
    return lambda: check_attention(attend, plan, heads=HEADS, key_value_heads=KEYS, **options)


def alibi() -> Conformance:
    plan = simple_plan(head_dim=WIDTH)._replace(kind="bias", turning=0)
    return check_attention(alibi_by_key, plan, heads=HEADS, bias=alibi_bias(HEADS))


IMPLEMENTATIONS: dict[str, Callable[[], Conformance]] = {
    "llama.cpp, NORM": rotation(partial(llama_cpp, neox=False), "interleaved"),
    "llama.cpp, NEOX": rotation(partial(llama_cpp, neox=True)),
    "complex numbers": rotation(complex_numbers, "interleaved"),
    "JAX, timescales": rotation(timescales),
    "JAX, dot_product_attention": attention(timescales_attention),
    "JAX, positions from 1": attention(shifted),
    "ALiBi by key": alibi,
    "jaxpe, float32": rotation(own_rotation),
    "jaxpe, bfloat16": rotation(partial(own_rotation, dtype="bfloat16")),
    "jaxpe, attention": attention(own_attention),
    "jaxpe, shards": attention(own_attention, paths={"shards": own_shards}),
}

"""Encodings by name: the catalogue's, and some that change between training and testing."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError, nearest
from jaxpe.encodings import CatalogueEntry, Encoding, EncodingSizes, LayerPattern
from jaxpe.encodings.base import centered_positions, encoding_at


class Variant(NamedTuple):
    """An encoding of a comparison.

    Attributes:
        trained: makes the encoding that models are trained with, from the sizes and whether
            attention is causal.
        tested: makes the encoding for tests beyond the training length, from the sizes and the
            tested length; None for no change. Variants with equal `trained` share their models.
    """

    trained: Callable[[EncodingSizes, bool], Encoding | LayerPattern]
    tested: Callable[[EncodingSizes, int], Encoding | LayerPattern] | None = None

    def at(self, sizes: EncodingSizes, length: int, *, causal: bool) -> Encoding | LayerPattern:
        """The encoding for inputs of `length` positions."""
        if self.tested is None or length <= sizes.length:
            return _cached_encoding(self.trained, sizes, causal)
        return self.tested(sizes, length)


@functools.lru_cache(maxsize=64)
def _cached_encoding(
    make: Callable[[EncodingSizes, bool], Encoding | LayerPattern],
    sizes: EncodingSizes,
    causal: bool,
) -> Encoding | LayerPattern:
    """One encoding for all lengths, so its programs are compiled once."""
    return make(sizes, causal)


def _rope(sizes: EncodingSizes, causal: bool) -> Encoding:
    return jaxpe.rope(head_dim=sizes.head_dim)


def _t5(sizes: EncodingSizes, causal: bool) -> Encoding:
    """T5 bias; a decoder needs no buckets for later keys."""
    return jaxpe.t5(num_heads=sizes.num_heads, bidirectional=not causal)


def _shaw(sizes: EncodingSizes, causal: bool) -> Encoding:
    """Shaw's relative positions, clipped at a distance that occurs in training."""
    return jaxpe.shaw(head_dim=sizes.head_dim, max_distance=max(1, min(16, sizes.length - 1)))


def _stretched(change: Callable[[Encoding, int, int], Encoding]) -> Variant:
    """RoPE that changes for tests on longer inputs, without more training.

    `change` takes the encoding, the training length and the tested length.
    """
    return Variant(_rope, lambda sizes, n: change(_rope(sizes, True), sizes.length, n))


def _scaled(scaling: Callable[[float, int], Any]) -> Variant:
    """RoPE with a scaling made from the stretch factor and the training length.

    The length is passed, so that a prefix is encoded as in greedy decoding of the whole row.
    """

    def tested(sizes: EncodingSizes, length: int) -> Encoding:
        change = scaling(length / sizes.length, sizes.length)
        return jaxpe.rope(head_dim=sizes.head_dim, scaling=change, length=length)

    return Variant(_rope, tested)


def _rerope_leaky(rope: Encoding, trained: int, tested: int) -> Encoding:
    """Leaky ReRoPE, whose largest offset occurs in training."""
    window = max(1, trained // 2)
    leak = max(trained - 1 - window, 0) / max(tested - 1 - window, 1)
    return jaxpe.encodings.rerope(rope, window=window, leak=leak)


def _self_extend(rope: Encoding, trained: int, tested: int) -> Encoding:
    """SelfExtend with the smallest groups whose largest offset occurs in training, if any."""
    windows = {group: group * max(1, trained // 2 // group) for group in range(2, max(3, trained))}
    reach = {group: group * (trained - window) + window for group, window in windows.items()}
    enough = [group for group in reach if reach[group] >= tested]
    group = enough[0] if enough else max(reach, key=reach.__getitem__)
    return jaxpe.encodings.self_extend(rope, window=windows[group], group=group)


def _dual_chunk(rope: Encoding, trained: int, tested: int) -> Encoding:
    """Dual chunk attention, whose offsets stay below the training length."""
    chunk = max(2, trained - 1)
    return jaxpe.encodings.dual_chunk(rope, chunk=chunk, local=max(1, chunk // 4))


# Variants that replace entries of the catalogue or add to it. Variants that share models come after
# the one that trains them.
_VARIANTS: dict[str, Variant] = {
    "rope": Variant(_rope),
    "t5": Variant(_t5),
    "shaw": Variant(_shaw),
    "alibi_over_length": Variant(  # Li (2025), Section 5.3: m = c/L, with c = 1
        lambda sizes, _: jaxpe.alibi(num_heads=sizes.num_heads, slopes=1.0 / sizes.length)
    ),
    "rope_linear": _scaled(lambda factor, length: jaxpe.encodings.LinearScaling(factor)),
    "rope_ntk": _scaled(lambda factor, length: jaxpe.encodings.NtkScaling(factor)),
    # With factor 1 the base would be NTK's at the current length; 2, as used in practice, stretches
    # more.
    "rope_dynamic": _scaled(lambda factor, length: jaxpe.encodings.DynamicScaling(2.0, length)),
    "rope_yarn": _scaled(lambda factor, length: jaxpe.YarnScaling(factor, length)),
    "rerope": _stretched(
        lambda rope, trained, _: jaxpe.encodings.rerope(rope, window=max(1, trained // 2))
    ),
    "rerope_leaky": _stretched(_rerope_leaky),
    "self_extend": _stretched(_self_extend),
    "dual_chunk": _stretched(_dual_chunk),
}


def variant_names() -> tuple[str, ...]:
    """Names of the variants: the catalogue's, then the others.

    >>> "rope" in variant_names(), "mrope" in variant_names(), variant_names()[-1]
    (True, False, 'alibi_over_length')
    """
    suited = [entry.name for entry in jaxpe.catalogue() if _why_not(entry) is None]
    return tuple(dict.fromkeys([*suited, *_VARIANTS]))


def variant(name: str) -> Variant:
    """The variant of a name.

    Args:
        name: name of `variant_names()`, or `my_module:my_encoding` for one of your own.

    Raises:
        InputError: an unknown name, or an encoding that does not fit sequences.

    >>> variant("mrope")
    Traceback (most recent call last):
    jaxpe.InputError: encoding 'mrope' has positions of 3 coordinates: pass another
    """
    if name in _VARIANTS:
        return _VARIANTS[name]
    if ":" not in name and name not in [entry.name for entry in jaxpe.catalogue()]:
        near = nearest(name, variant_names())
        meant = f"did you mean {near!r}? " if near else ""
        raise InputError(f"unknown encoding {name!r}: {meant}`jaxpe encodings` lists them")
    entry = jaxpe.encodings.resolve(name)
    if (why := _why_not(entry)) is not None:
        raise InputError(f"encoding {name!r} {why}: pass another")
    return Variant(lambda sizes, causal: entry.make(sizes))


def _why_not(entry: CatalogueEntry) -> str | None:
    """Reason why an encoding does not fit tasks of one sequence; empty if it does."""
    if entry.coordinates != 1:
        return f"has positions of {entry.coordinates} coordinates"
    return "is made from a corpus" if entry.fitted else None


def trained_as(name: str) -> str:
    """The variant whose models this one shares: the first with equal training."""
    trained = variant(name).trained
    return next((other for other, one in _VARIANTS.items() if one.trained is trained), name)


def defined_at(encoding: Encoding | LayerPattern, sizes: EncodingSizes, length: int) -> bool:
    """Whether the encoding is defined at the last of `length` positions, seen from the first.

    A learned table ends at its length; beyond, it gives NaN for traced positions.
    """
    if isinstance(encoding, LayerPattern):
        return all(defined_at(part, sizes, length) for part in encoding.encodings)
    return bool(_finiteness(encoding, sizes)(np.array([0, length - 1], np.int32)))


@functools.lru_cache(maxsize=64)
def _finiteness(encoding: Encoding, sizes: EncodingSizes) -> Callable[[ArrayLike], Array]:
    """Program that tells whether all results of an encoding at given positions are finite."""

    @jax.jit
    def is_finite(positions: Array) -> Array:
        x = jnp.ones((2, sizes.dim))
        heads = jnp.ones((2, sizes.num_heads, sizes.head_dim))
        params = encoding.init(jax.random.key(0))
        i, j = centered_positions(encoding, positions, positions)
        bound = encoding_at(encoding, params, x, positions)
        values = [
            bound.embed(params, x, positions),
            bound.query(params, heads, i),
            bound.key(params, heads, j),
        ]
        if bound.defines("bias"):
            values.append(jnp.asarray(bound.bias(params, heads, heads, positions, positions)))
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(y)) for y in values]))

    return is_finite

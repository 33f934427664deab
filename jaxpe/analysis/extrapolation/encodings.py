"""Encodings of a comparison by name; some of RoPE's change between training and testing."""

from collections.abc import Callable
from typing import Any

from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe.encodings import Encoding, EncodingSizes, LayerPattern
from jaxpe.encodings.entries import resolve
from jaxpe.encodings.registry import CatalogueEntry


def entry_of(name: str) -> CatalogueEntry:
    """Catalogue entry of an encoding for tasks of one sequence.

    Args:
        name: name in the catalogue, or `my_module:my_encoding` for one of your own.

    Raises:
        InputError: an unknown name, or an encoding that does not fit sequences.

    >>> entry_of("mrope")
    Traceback (most recent call last):
    jaxpe.InputError: encoding 'mrope' has positions of 3 coordinates: pass another
    """
    entry = resolve(name)
    if entry.coordinates != 1:
        raise InputError(
            f"encoding {name!r} has positions of {entry.coordinates} coordinates: pass another"
        )
    if entry.fitted:
        raise InputError(f"encoding {name!r} is made from a corpus: pass another")
    return entry


def trained_as(name: str) -> str:
    """The encoding whose models this one shares: RoPE's, if it only changes for tests."""
    return "rope" if name in (*_SCALINGS, *_MAPPED) else name


def trained_encoding(
    name: str, sizes: EncodingSizes, *, causal: bool = True
) -> Encoding | LayerPattern:
    """The encoding that models are trained with.

    Args:
        name: argument of `entry_of`.
        sizes: sizes of the model.
        causal: whether attention is causal.
    """
    name = trained_as(name)
    if name == "t5":  # a decoder needs no buckets for later keys
        return encodings.t5(num_heads=sizes.num_heads, bidirectional=not causal)
    if name == "shaw":  # clipped at a distance that occurs in training
        longest = max(1, min(16, sizes.length - 1))
        return encodings.shaw(head_dim=sizes.head_dim, max_distance=longest)
    return entry_of(name).make(sizes)


def stretched_encoding(
    name: str, sizes: EncodingSizes, length: int, *, causal: bool = True
) -> Encoding | LayerPattern:
    """The encoding for inputs of `length` positions, which may exceed those of training.

    A scaled RoPE gets the length, so that a prefix is encoded as in greedy decoding of the whole
    row. Mapped ones have windows and groups whose largest offset occurs in training, if any do.
    """
    trained, rope = sizes.length, encodings.rope(head_dim=sizes.head_dim)
    half, chunk = max(1, trained // 2), max(2, trained - 1)
    if length <= trained or trained_as(name) == name:
        return trained_encoding(name, sizes, causal=causal)
    if name in _SCALINGS:
        scaling = _SCALINGS[name](length / trained, trained)
        return encodings.rope(head_dim=sizes.head_dim, scaling=scaling, length=length)
    if name == "dual_chunk":
        return encodings.dual_chunk(rope, chunk=chunk, local=max(1, chunk // 4))
    if name == "self_extend":
        windows = {group: group * max(1, half // group) for group in range(2, max(3, trained))}
        reach = {group: group * (trained - window) + window for group, window in windows.items()}
        enough = [group for group in reach if reach[group] >= length]
        group = enough[0] if enough else max(reach, key=reach.__getitem__)
        return encodings.self_extend(rope, window=windows[group], group=group)
    leak = max(trained - 1 - half, 0) / max(length - 1 - half, 1)
    leak = leak if name == "rerope_leaky" else 0.0
    return encodings.rerope(rope, window=half, leak=leak)


# RoPE that changes for tests on longer inputs, without more training: by a scaling, made from the
# stretch factor and the training length, or by mapped offsets. With factor 1 the base of
# rope_dynamic would be NTK's at the current length; 2, as used in practice, stretches more.
_SCALINGS: dict[str, Callable[[float, int], Any]] = {
    "rope_linear": lambda factor, length: encodings.LinearScaling(factor),
    "rope_ntk": lambda factor, length: encodings.NtkScaling(factor),
    "rope_dynamic": lambda factor, length: encodings.DynamicScaling(2.0, length),
    "rope_yarn": encodings.YarnScaling,
}
_MAPPED = ("rerope", "rerope_leaky", "self_extend", "dual_chunk")

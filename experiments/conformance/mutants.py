"""Faults of public threads, as one changed method of a port each.

`mutants.toml` says where a mutant lives, which thread reports it, and what a check may call it.
`METHODS` holds the methods that replace those of `Port`.
"""

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from experiments.conformance.models import LAYERS, Port
from jaxpe.conformance.result import Conformance

TABLE = Path(__file__).with_name("mutants.toml")


class Mutant(NamedTuple):
    """A port with one fault.

    Attributes:
        name: short name.
        layer: layer of `LAYERS`.
        path: "rotary" for `rotary(x, positions)`, "attend", or the name of another path.
        expected: names of faults that are right.
        thread: public thread that reports it.
        text: what happened there.
        says: words that the sentence of the fault has.
    """

    name: str
    layer: str
    path: str
    expected: list[str]
    thread: str
    text: str
    says: str = ""

    def port(self) -> Port:
        """Port with the fault."""
        return type("Mutant", (Port,), METHODS[self.name])(LAYERS[self.layer])

    def names(self, result: Conformance) -> bool:
        """Whether the first fault of a result is the mutant's."""
        first = result.faults[:1]
        return any(one.name in self.expected and self.says in one.text for one in first)


def port(self: Port, **fields: Any) -> Port:
    """Right port of a layer with other fields."""
    return Port(self.layer._replace(**fields))


def pairs_of(**fields: Any) -> Callable[..., Any]:
    return lambda self: port(self, **fields).pairs()


# Rotation.


def evens_then_odds(self, x, cos, sin):
    out = Port.turned(self, x, cos, sin)
    n = self.layer.rotated
    return np.concatenate([out[..., 0:n:2], out[..., 1:n:2], out[..., n:]], axis=-1)


def tables_of_neighbours(self, x, cos, sin):
    half = self.layer.rotated // 2
    cos, sin = (np.repeat(one, 2, axis=-1) for one in (cos, sin))
    swapped = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos + swapped * sin


def backwards(self, x, cos, sin):
    return Port.turned(self, x, cos, -sin)


def all_entries(self, x, positions):
    return port(self, rotated=self.layer.width).rotary(x, positions)


def half_of_entries(self, x, positions):
    layer = self.layer
    narrow = layer._replace(rotated=layer.rotated // 2)
    start = layer.width - layer.rotated
    part = Port(narrow._replace(width=layer.rotated, last=False)).rotary(x[..., start:], positions)
    return np.concatenate([x[..., :start], part], axis=-1)


def frequencies_of_the_head(self):
    return port(self, scaling=("proportional", 1.0, 0)).frequencies()


def first_head_alone(self, x, positions):
    out = x.copy()
    out[:, :, :1] = Port.rotary(self, x[:, :, :1], positions)
    return out


def heads_as_sequence(self, x, positions):
    heads = np.broadcast_to(np.arange(x.shape[2]), (len(x), x.shape[2]))
    return np.swapaxes(Port.rotary(self, np.swapaxes(x, 1, 2), heads), 1, 2)


def row_0_for_all(self, x, positions):
    return Port.rotary(self, x, np.broadcast_to(positions[:1], positions.shape))


def rows_as_one_sequence(self, x, positions):
    rows = np.arange(len(x)).reshape(-1, *[1] * (positions.ndim - 1))
    return Port.rotary(self, x, positions + rows * positions.shape[1])


def index_of_token(self, x, positions):
    return Port.rotary(self, x, np.broadcast_to(np.arange(x.shape[1]), positions.shape))


def rows_after_0_empty(self, x, positions):
    out = Port.rotary(self, x, positions)
    if x.shape[1] == 1:
        out[1:] = 0
    return out


def crossed_halves(self, q, k, v, positions, key_positions):
    """Second halves of queries are those of the keys of the same tokens."""
    turned, keys, v = Port.rotated(self, q, k, v, positions, key_positions)
    if q.shape[1] == k.shape[1]:
        half = q.shape[-1] // 2
        turned[..., half:] = self.grouped(keys)[..., half:]
    return turned, keys, v


def in_dtype(name: str, what: str) -> Callable[..., Any]:
    """Phases from positions or frequencies that were rounded to a type."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))

    def phases(self, positions):
        frequencies = self.frequencies().astype(np.float32)
        positions = positions[..., None].astype(np.float32)
        if what in ("frequencies", "all"):
            frequencies = frequencies.astype(dtype)
        with np.errstate(all="ignore"):  # float16 ends at 65,504
            if what in ("positions", "all"):
                positions = positions.astype(dtype)
            low = frequencies if what == "all" else frequencies.astype(np.float32)
            product = (positions * low).astype(np.float32)
        return np.where(np.isfinite(product), product, np.nan)

    return phases


def table_of(length: int, rule: str) -> Callable[..., Any]:
    """Angles from a table of `length` positions, "clamped" or "wrapped" beyond."""
    inside = np.mod if rule == "wrapped" else lambda at, n: np.minimum(at, n - 1)
    return lambda self, positions: Port.phases(self, inside(positions, length))


def yarn_factor_in_exponent(self, frequencies):
    inner = (8.0 * self.base()) ** -(np.arange(0, self.layer.rotated, 2) / self.layer.rotated)
    right = Port.scaled(self, frequencies)
    ramp = (frequencies - right) / (frequencies * (1 - 1 / 8.0))
    return inner * ramp + frequencies * (1 - ramp)


def yarn_of_ntk_base(self, frequencies):
    d = self.layer.rotated
    stretched = (self.base() * 8.0 ** (d / (d - 2))) ** -(np.arange(0, d, 2) / d)
    ramp = (frequencies - Port.scaled(self, frequencies)) / (frequencies * (1 - 1 / 8.0))
    return frequencies / 8.0 * ramp + stretched * (1 - ramp)


def swap_of_keys_and_values(self, q, k, v, positions, key_positions):
    width = min(k.shape[-1], v.shape[-1])
    keys, values = k.copy(), v.copy()
    keys[..., :width], values[..., :width] = v[..., :width], k[..., :width]
    return self.queries(q, positions), self.keys(keys, key_positions), values


# Paths.


def step_of_padded_width(self, own, positions, index, prompt):
    return np.full_like(own, index)


def doubled_chunks(self, positions, start, stop):
    return positions[:, start:stop] + start


def upper_left(self, order, key_order):
    n, m = order.shape[1], key_order.shape[1]
    return np.broadcast_to(np.tri(n, m, dtype=bool), (len(order), n, m))


def window_of_the_chunk(self, order, key_order):
    """Every query of a chunk sees what its first query sees, up to itself."""
    seen = order[:, :1, None] - key_order[:, None] < self.window()
    return (order[:, :, None] >= key_order[:, None]) & seen


def round_robin(self, n):
    return [np.arange(r, n, 4) for r in range(4)]


def contiguous_positions(self, positions, layout, rank):
    start = sum(len(one) for one in layout[:rank])
    return positions[:, start : start + len(layout[rank])]


def zigzag_positions(self, positions, layout, rank):
    pieces = np.array_split(np.arange(positions.shape[1]), 8)
    at = np.concatenate([pieces[rank], pieces[7 - rank]])
    return positions[:, at[np.arange(len(layout[rank])) % len(at)]]


def local_positions(self, positions, layout, rank):
    return positions[:, : len(layout[rank])]


def move_of_row_0(self, positions):
    out = np.zeros_like(positions)
    out[0] = -6
    return out


# Masks, biases and scales.


def window_plus(more: int) -> dict[str, Any]:
    return {"window": lambda self: self.layer.window + more}


def no_documents(self, segments, key_segments):
    return np.broadcast_to((key_segments > 0)[:, None], (*segments.shape, key_segments.shape[1]))


def no_padding(self, segments, key_segments):
    same = segments[:, :, None] == key_segments[:, None, :]
    return same | (key_segments == 0)[:, None, :]


def uniform_slopes(self):
    return 2.0 ** (-8 * np.arange(1, self.layer.heads + 1) / self.layer.heads)


def buckets_of_encoder(self, offsets):
    distance = np.abs(offsets)
    far = 8 + (np.log(np.maximum(distance, 1) / 8) / math.log(128 / 8) * 8).astype(int)
    near = np.where(distance < 8, distance, np.minimum(far, 15))
    return near + np.where(offsets > 0, 16, 0)


def linear_buckets(self, offsets):
    return np.clip(-offsets, 0, 31)


def bias_of_window_alone(self, positions, key_positions):
    """Positions of queries from 0, as if nothing were cached."""
    n = positions.shape[1]
    return self.bias(np.broadcast_to(np.arange(n), positions.shape), key_positions)


def no_bias(self, positions, key_positions):
    return 0.0


def flat_axes(self, x, positions):
    flat = np.broadcast_to(np.arange(x.shape[1])[:, None], positions.shape)
    return Port.rotary(self, x, flat)


def stride_beyond_sections(self):
    return tuple(k % 3 for k in range(16))


def contiguous_axes(self):
    return (0,) * 8 + (1,) * 4 + (2,) * 4


def queries_lost(self, q, k, v, positions, key_positions):
    keys = self.keys(self.keys(k, key_positions), key_positions)
    return q, keys, v


def layer(**fields: Any) -> dict[str, Any]:
    """Rotation of a layer with other fields."""
    return {"rotary": lambda self, x, positions: port(self, **fields).rotary(x, positions)}


DEFAULT = ("default", 1.0, 0)
LINEAR, YARN = ("linear", 8.0, 0), ("yarn", 8.0, 512)

METHODS: dict[str, dict[str, Callable[..., Any]]] = {
    # Pairs and layout.
    "neighbours instead of halves": {"pairs": pairs_of(pairing="interleaved")},
    "halves instead of neighbours": {"pairs": pairs_of(pairing="half")},
    "halves in latent attention": {"pairs": pairs_of(pairing="half")},
    "output in another order": {"turned": evens_then_odds},
    "table of one pairing, pairs of the other": {"turned": tables_of_neighbours},
    "inverse rotation": {"turned": backwards},
    # Base and scaling.
    "base 10,000": {"base": lambda self: 1e4},
    "base of the other layers": {"base": lambda self: 1e6},
    "linear scaling lost": layer(scaling=DEFAULT),
    "linear scaling twice": layer(scaling=("linear", 64.0, 0)),
    "scaling of unscaled layers": layer(scaling=LINEAR),
    "linear instead of YaRN": {"scaled": lambda self, frequencies: frequencies / 8.0},
    "YaRN lost": layer(scaling=DEFAULT),
    "YaRN's factor in the exponent": {"scaled": yarn_factor_in_exponent},
    "YaRN over a stretched base": {"scaled": yarn_of_ntk_base},
    "attention factor lost": {"attention_factor": lambda self: 1.0},
    "attention factor twice": {"attention_factor": lambda self: Port.attention_factor(self) ** 2},
    # Part of the head.
    "whole head rotated": {"rotary": all_entries},
    "whole head rotated, halves": {"rotary": all_entries},
    "half of the rotary part": {"rotary": half_of_entries},
    "frequencies and pairs of the whole head": {
        "pairs": pairs_of(scaling=("proportional", 1.0, 0)),
        "frequencies": frequencies_of_the_head,
    },
    "pairs of the whole head": {"pairs": pairs_of(scaling=("proportional", 1.0, 0))},
    "pairs within the part": {"pairs": pairs_of(scaling=DEFAULT)},
    # Which tensors, rows and heads.
    "first head alone": {"rotary": first_head_alone},
    "heads taken as the sequence": {"rotary": heads_as_sequence},
    "positions of row 0 for all rows": {"rotary": row_0_for_all},
    "rows as one sequence": {"rotary": rows_as_one_sequence},
    "index instead of positions": {"rotary": index_of_token},
    "keys not rotated": {"keys": lambda self, k, positions: k},
    "queries not rotated, keys twice": {"rotated": queries_lost},
    "nothing rotated": {"rotary": lambda self, x, positions: x},
    "values rotated instead of keys": {"rotated": swap_of_keys_and_values},
    "halves of queries and keys crossed": {"rotated": crossed_halves},
    "layers without positions rotated": layer(scheme="rotary"),
    # Precision and tables.
    "positions in bfloat16": {"phases": in_dtype("bfloat16", "all")},
    "frequencies in bfloat16": {"phases": in_dtype("bfloat16", "frequencies")},
    "angles in float16": {"phases": in_dtype("float16", "all")},
    "table too short, last row": {"phases": table_of(4096, "clamped")},
    "table too short, from the start": {"phases": table_of(4096, "wrapped")},
    # Decoding.
    "every token at position 0": {
        "step": lambda self, own, positions, index, prompt: np.zeros_like(own)
    },
    "one too far": {"step": lambda self, own, positions, index, prompt: own + 1},
    "length of the prompt twice": {
        "step": lambda self, own, positions, index, prompt: own + (prompt if index > prompt else 0)
    },
    "index of the padded row": {"step": step_of_padded_width},
    "other rows empty": {"rotary": rows_after_0_empty},
    "cached keys rotated again": {"cached": lambda self, keys, places: self.keys(keys, places)},
    "all of a window at its first position": {
        "chunk": lambda self, positions, start, stop: np.repeat(
            positions[:, start : start + 1], stop - start, axis=1
        )
    },
    "row of a stale offset": {
        "step": lambda self, own, positions, index, prompt: (
            own + np.arange(len(own))[:, None, None] * 5
        )
    },
    # Chunks, shards, moved keys.
    "chunks from 0": {"chunk": lambda self, positions, start, stop: positions[:, : stop - start]},
    "offset of chunks twice": {"chunk": doubled_chunks},
    "causal mask of the corner": {"causal_in_cache": upper_left},
    "window of the chunk": {"causal_in_cache": window_of_the_chunk},
    "shards from 0": {"shard": local_positions},
    "zigzag positions for contiguous shards": {"shard": zigzag_positions},
    "contiguous positions for round-robin shards": {
        "layout": round_robin,
        "shard": contiguous_positions,
    },
    "last move alone": {"move": lambda self, positions: np.full_like(positions, -4)},
    "first row moved alone": {"move": move_of_row_0},
    # Masks.
    "documents see each other": {"documents": no_documents},
    "padding is seen": {"documents": no_padding},
    "window one too long": window_plus(1),
    "window one too short in steps": {
        "causal_in_cache": lambda self, order, key_order: port(self, window=7).causal(
            order, key_order
        )
    },
    "window where none is": {"window": lambda self: 8},
    "no window": {"window": lambda self: None},
    "groups tiled": {"grouped": lambda self, x: np.tile(x, (1, 1, 2, 1))},
    # Scale.
    "scale of the compressed width": {
        "scale": lambda self: (32 + 16 + 512) ** -0.5 * self.layer.logit_factor
    },
    "factor of all logits lost": {"scale": lambda self: self.layer.width**-0.5},
    # Biases.
    "slopes from 1": {"slopes": lambda self: Port.slopes(self) * 4},
    "slopes of one sequence": {"slopes": uniform_slopes},
    "sign of the bias": {
        "offsets": lambda self, positions, key_positions: (
            -Port.offsets(self, positions, key_positions)
        )
    },
    "bias lost in steps": {"bias_in_cache": no_bias},
    "bias divided by √d": {"slopes": lambda self: Port.slopes(self) / math.sqrt(self.layer.width)},
    "buckets of an encoder": {"buckets": buckets_of_encoder},
    "buckets without logarithm": {"buckets": linear_buckets},
    "query minus key": {
        "offsets": lambda self, positions, key_positions: (
            -Port.offsets(self, positions, key_positions)
        )
    },
    "logits of T5 scaled": {"scale": lambda self: self.layer.width**-0.5},
    "bias without the cache": {"bias_in_cache": bias_of_window_alone},
    "bias of T5 lost in steps": {"bias_in_cache": no_bias},
    # Positions of three axes.
    "contiguous sections": {"axes": contiguous_axes},
    "stride beyond the sections": {"axes": stride_beyond_sections},
    "one axis for all": {"rotary": flat_axes},
    "first axis for all": {"axes": lambda self: (0,) * 16},
}

MUTANTS = tuple(
    Mutant(name, **row) for name, row in tomllib.loads(TABLE.read_text(encoding="utf-8")).items()
)

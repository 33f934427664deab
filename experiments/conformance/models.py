"""Attention of released models in plain NumPy, written as a port would write it.

`Port` has a small method for each step from positions to outputs, and a path for each way in which
engines run it: at once, token by token through a cache, in chunks, in shards, with moved keys. A
mutant (`mutants.py`) replaces one of these methods. Nothing is shared with `jaxpe.conformance`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

CHUNK, SHARDS = 4, 4  # tokens of a chunk; number of shards
MOVES = (-2, -4)  # how the cache's keys move, one move after the other


class Layer(NamedTuple):
    """Sizes and positional scheme of one layer.

    Attributes:
        config: fields of its config.json, for `jaxpe.plans.read_config`.
        plan: index of its group of layers.
        scheme: "rotary", "none", "alibi" or "t5".
        width: width of a head of queries and keys; `rotated`: entries that rotate.
        last: whether they are the last entries of the head.
        scaling: type, factor and length before scaling.
        axes: axis of positions by frequency; empty for one axis.
    """

    config: dict[str, Any]
    plan: int = 0
    scheme: str = "rotary"
    heads: int = 4
    key_value_heads: int = 2
    width: int = 32
    rotated: int = 32
    base: float = 10_000.0
    pairing: str = "half"
    last: bool = False
    scaling: tuple[str, float, int] = ("default", 1.0, 0)
    logit_factor: float = 1.0
    window: int | None = None
    axes: tuple[int, ...] = ()


COMMON = {"hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
          "max_position_embeddings": 4096}  # fmt: skip
GROUPED = COMMON | {"num_key_value_heads": 2, "head_dim": 32}
GEMMA = GROUPED | {
    "model_type": "gemma4_text", "num_hidden_layers": 6, "global_head_dim": 64, "sliding_window": 8,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512}
LATENT = COMMON | {
    "model_type": "deepseek_v3", "num_key_value_heads": 4, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32, "v_head_dim": 32, "kv_lora_rank": 32, "q_lora_rank": None,
    "rope_interleave": True,
    "rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1},
}  # fmt: skip


def qwen_vl(name: str, sections: list[int], **scaling: Any) -> dict[str, Any]:
    """Configuration of a text model with positions of three axes."""
    return GROUPED | {
        "model_type": name,
        "rope_theta": 1e4,
        "rope_scaling": {"mrope_section": sections, **scaling},
    }


LAYERS = {
    "llama": Layer(GROUPED | {"model_type": "llama", "rope_theta": 1e6}, base=1e6),
    "llama_linear": Layer(
        GROUPED | {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        scaling=("linear", 8.0, 0),
    ),
    "llama_yarn": Layer(
        GROUPED | {"model_type": "llama", "rope_scaling": YARN}, scaling=("yarn", 8.0, 512)
    ),
    "glm": Layer(
        GROUPED | {"model_type": "glm", "partial_rotary_factor": 0.5}, rotated=16,
        pairing="interleaved",
    ),
    "phi": Layer(
        COMMON | {"model_type": "phi", "partial_rotary_factor": 0.5}, rotated=16, key_value_heads=4
    ),
    "gemma_sliding": Layer(GEMMA, window=8),
    "gemma_full": Layer(
        GEMMA, plan=1, width=64, rotated=16, base=1e6, scaling=("proportional", 1.0, 0)
    ),
    "deepseek": Layer(
        LATENT, width=48, rotated=16, last=True, pairing="interleaved", key_value_heads=4,
        scaling=("yarn", 8.0, 512), logit_factor=(0.1 * math.log(8) + 1) ** 2,
    ),
    "smollm3_nope": Layer(
        GROUPED | {"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
        plan=1, scheme="none",
    ),
    "qwen2_vl": Layer(
        qwen_vl("qwen2_vl_text", [4, 6, 6], type="mrope"), axes=(0,) * 4 + (1,) * 6 + (2,) * 6
    ),
    "qwen3_vl": Layer(
        qwen_vl("qwen3_vl_text", [8, 4, 4], mrope_interleaved=True), axes=(0, 1, 2) * 4 + (0,) * 4
    ),
    "bloom": Layer(
        {"model_type": "bloom", "hidden_size": 128, "n_head": 4}, scheme="alibi", key_value_heads=4
    ),
    "bloom_six": Layer(
        {"model_type": "bloom", "hidden_size": 192, "n_head": 6}, scheme="alibi", heads=6,
        key_value_heads=6,
    ),
    "t5": Layer({"model_type": "t5", "d_model": 128, "d_kv": 32, "num_heads": 4}, scheme="t5",
                key_value_heads=4),
}  # fmt: skip


class Port:
    """One layer of attention, in float32."""

    def __init__(self, layer: Layer):
        self.layer = layer
        self.table = np.random.default_rng(5).normal(0, 1, (32, layer.heads)).astype(np.float32)

    # From the configuration to the table of angles.

    def base(self) -> float:
        return self.layer.base

    def frequencies(self) -> np.ndarray:
        """ω of each pair, `[pairs]`."""
        proportional = self.layer.scaling[0] == "proportional"
        width = self.layer.width if proportional else self.layer.rotated
        return self.scaled(self.base() ** -(np.arange(0, self.layer.rotated, 2) / width))

    def scaled(self, frequencies: np.ndarray) -> np.ndarray:
        kind, factor, original = self.layer.scaling
        if kind == "linear":
            return frequencies / factor
        if kind != "yarn":
            return frequencies
        turns = original / (2 * math.pi * np.array([32.0, 1.0]))
        low, high = self.layer.rotated * np.log(turns) / (2 * math.log(self.base()))
        low, high = max(math.floor(low), 0), min(math.ceil(high), self.layer.rotated - 1)
        ramp = np.clip((np.arange(len(frequencies)) - low) / max(high - low, 1e-3), 0, 1)
        return frequencies / factor * ramp + frequencies * (1 - ramp)

    def attention_factor(self) -> float:
        kind, factor, _ = self.layer.scaling
        has_factor = kind == "yarn" and self.layer.logit_factor == 1
        return 0.1 * math.log(factor) + 1 if has_factor else 1.0

    def axes(self) -> tuple[int, ...]:
        return self.layer.axes

    def phases(self, positions: np.ndarray) -> np.ndarray:
        """Angles, `[batch, n, pairs]`."""
        frequencies = self.frequencies().astype(np.float32)
        if positions.ndim == 3:
            return positions[..., self.axes()].astype(np.float32) * frequencies
        return positions[..., None].astype(np.float32) * frequencies

    # Rotation.

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices in the head of the first and second entries of the pairs."""
        layer, k = self.layer, np.arange(self.layer.rotated // 2)
        start = layer.width - layer.rotated if layer.last else 0
        if layer.pairing == "interleaved":
            return start + 2 * k, start + 2 * k + 1
        distance = layer.width if layer.scaling[0] == "proportional" else layer.rotated
        return start + k, start + k + distance // 2

    def turned(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        first, second = self.pairs()
        a, b, out = x[..., first], x[..., second], x.copy()
        out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
        return out

    def rotary(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Rotated vectors, `[batch, n, heads, width]`."""
        if self.layer.scheme != "rotary":
            return x
        phases = self.phases(positions)[:, :, None]
        factor = np.float32(self.attention_factor())
        return self.turned(x, factor * np.cos(phases), factor * np.sin(phases))

    def queries(self, q: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return self.rotary(q, positions)

    def keys(self, k: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return self.rotary(k, positions)

    def rotated(self, q: Any, k: Any, v: Any, positions: Any, key_positions: Any) -> tuple:
        """Queries, keys and values as attention takes them."""
        return self.queries(q, positions), self.keys(k, key_positions), v

    # Biases.

    def slopes(self) -> np.ndarray:
        """Slopes of ALiBi, `[heads]`."""
        heads = self.layer.heads
        whole = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (h + 1) / whole) for h in range(whole)]
        return np.array(slopes + [2 ** (-4 * (2 * h + 1) / whole) for h in range(heads - whole)])

    def buckets(self, offsets: np.ndarray) -> np.ndarray:
        """Buckets of T5's decoder for offsets key − query."""
        distance = np.maximum(-offsets, 0)
        far = 16 + (np.log(np.maximum(distance, 1) / 16) / math.log(128 / 16) * 16).astype(int)
        return np.where(distance < 16, distance, np.minimum(far, 31))

    def bias(self, positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray | float:
        """Bias on the logits, `[batch, heads, n_q, n_k]`."""
        if self.layer.scheme not in ("alibi", "t5"):
            return 0.0
        offsets = self.offsets(positions, key_positions)
        if self.layer.scheme == "alibi":
            return (self.slopes()[:, None, None] * offsets[:, None]).astype(np.float32)
        return np.moveaxis(self.table[self.buckets(offsets)], -1, 1)

    def offsets(self, positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        return key_positions[:, None, :] - positions[:, :, None]

    # Attention.

    def window(self) -> int | None:
        return self.layer.window

    def causal(self, order: np.ndarray, key_order: np.ndarray) -> np.ndarray:
        """Keys that the order of the text and the window allow, `[batch, n_q, n_k]`."""
        distance, window = order[:, :, None] - key_order[:, None, :], self.window()
        return (distance >= 0) & (distance < window if window else True)

    def documents(self, segments: np.ndarray, key_segments: np.ndarray) -> np.ndarray:
        """Keys of the query's document, without padding, `[batch, n_q, n_k]`."""
        same = segments[:, :, None] == key_segments[:, None, :]
        return same & (key_segments > 0)[:, None, :]

    def scale(self) -> float:
        if self.layer.scheme == "t5":
            return 1.0
        return self.layer.width**-0.5 * self.layer.logit_factor

    def grouped(self, x: np.ndarray) -> np.ndarray:
        return np.repeat(x, self.layer.heads // self.layer.key_value_heads, axis=2)

    def core(self, q: Any, k: Any, v: Any, bias: Any, visible: np.ndarray) -> np.ndarray:
        """Outputs, `[batch, n_q, heads, value width]`; zero for a query that sees nothing."""
        k, v = self.grouped(k), self.grouped(v)
        logits = np.einsum("bqhd,bkhd->bhqk", q, k) * np.float32(self.scale()) + bias
        logits = np.where(visible[:, None], logits, -np.inf)
        most = logits.max(axis=-1, keepdims=True)
        weights = np.exp(logits - np.where(np.isfinite(most), most, 0))
        weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1e-30)
        return np.einsum("bhqk,bkhd->bqhd", weights, v).astype(np.float32)

    # Paths.

    def attend(self, q, k, v, positions, *, key_positions=None, segments=None, key_segments=None):
        """Everything at once."""
        q, k, v = (np.asarray(x, np.float32) for x in (q, k, v))
        key_positions = positions if key_positions is None else key_positions
        segments = np.ones(positions.shape[:2], int) if segments is None else segments
        if key_segments is None:
            same = segments.shape == key_positions.shape[:2]
            key_segments = segments if same else np.ones(key_positions.shape[:2], int)
        order, key_order = order_of(positions, key_positions)
        visible = self.causal(order, key_order) & self.documents(segments, key_segments)
        q, k, v = self.rotated(q, k, v, positions, key_positions)
        return self.core(q, k, v, self.bias(positions, key_positions), visible)

    def in_steps(self, stops: list[int], place: Any, q, k, v, positions, segments) -> np.ndarray:
        """Outputs of pieces that end at `stops`, through a cache of keys and values.

        `place(positions, start, stop)` are the positions of a piece as the engine counts them.
        """
        q, k, v = (np.asarray(x, np.float32) for x in (q, k, v))
        segments = np.ones(positions.shape[:2], int) if segments is None else segments
        order = order_of(positions, positions)[0]
        keys, values, places, outputs, start = k[:, :0], v[:, :0], positions[:, :0], [], 0
        for stop in stops:
            now = slice(start, stop)
            own = place(positions, start, stop)
            turned, new, value = self.rotated(q[:, now], k[:, now], v[:, now], own, own)
            keys = np.concatenate([keys, new], axis=1)
            values = np.concatenate([values, value], axis=1)
            places = np.concatenate([places, own], axis=1)
            causal = self.causal_in_cache(order[:, now], order[:, :stop])
            visible = causal & self.documents(segments[:, now], segments[:, :stop])
            bias = self.bias_in_cache(own, places)
            outputs.append(self.core(turned, self.cached(keys, places), values, bias, visible))
            start = stop
        return np.concatenate(outputs, axis=1)

    def cached(self, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Keys as the cache gives them back."""
        return keys

    def causal_in_cache(self, order: np.ndarray, key_order: np.ndarray) -> np.ndarray:
        return self.causal(order, key_order)

    def bias_in_cache(self, positions: np.ndarray, key_positions: np.ndarray) -> Any:
        return self.bias(positions, key_positions)

    def decode(self, q, k, v, positions, *, segments=None, prompt=None):
        """A prompt at once, by default half of the row, then token by token."""
        n = positions.shape[1]
        prompt = max(1, n // 2) if prompt is None else prompt
        stops = [prompt, *range(prompt + 1, n + 1)]

        def place(positions, start, stop):
            own = positions[:, start:stop]
            return own if start == 0 else self.step(own, positions, start, prompt)

        return self.in_steps(stops, place, q, k, v, positions, segments)

    def step(self, own: Any, positions: Any, index: int, prompt: int) -> np.ndarray:
        """Positions of the generated token with this index in the row, `[batch, 1]`."""
        return own

    def chunked(self, q, k, v, positions, *, segments=None):
        """Chunks of `CHUNK` tokens, one after the other."""
        n = positions.shape[1]
        stops = [*range(CHUNK, n, CHUNK), n]
        return self.in_steps(stops, self.chunk, q, k, v, positions, segments)

    def chunk(self, positions: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Positions of a chunk, `[batch, stop - start]`."""
        return positions[:, start:stop]

    def layout(self, n: int) -> list[np.ndarray]:
        """Indices of the tokens of each shard."""
        return np.array_split(np.arange(n), SHARDS)

    def shard(self, positions: np.ndarray, layout: list[np.ndarray], rank: int) -> np.ndarray:
        """Positions of a shard, `[batch, its tokens]`."""
        return positions[:, layout[rank]]

    def sharded(self, q, k, v, positions, *, segments=None):
        """Shards of the sequence, of which each rotates its part; keys and values are gathered."""
        q, k, v = (np.asarray(x, np.float32) for x in (q, k, v))
        segments = np.ones(positions.shape[:2], int) if segments is None else segments
        layout = self.layout(positions.shape[1])
        at = np.concatenate(layout)
        own = np.concatenate(
            [self.shard(positions, layout, rank) for rank in range(len(layout))], axis=1
        )
        order = order_of(positions, positions)[0][:, at]
        visible = self.causal(order, order) & self.documents(segments[:, at], segments[:, at])
        turned, keys, values = self.rotated(q[:, at], k[:, at], v[:, at], own, own)
        outputs = self.core(turned, keys, values, self.bias(own, own), visible)
        return outputs[:, np.argsort(at)]

    def moved(self, q, k, v, positions, *, segments=None):
        """Keys that were cached further on, and moved back by another rotation."""
        q, k, v = (np.asarray(x, np.float32) for x in (q, k, v))
        segments = np.ones(positions.shape[:2], int) if segments is None else segments
        turned, keys, v = self.rotated(q, k, v, positions, positions - sum(MOVES))
        keys = self.rotary(keys, self.move(positions))
        order = order_of(positions, positions)[0]
        visible = self.causal(order, order) & self.documents(segments, segments)
        return self.core(turned, keys, v, self.bias(positions, positions), visible)

    def move(self, positions: np.ndarray) -> np.ndarray:
        """How far the keys move, `[batch, n]`."""
        return np.full_like(positions, sum(MOVES))

    def paths(self) -> dict[str, Any]:
        """Paths besides `attend`, by name."""
        names = ["decode", "chunked", "sharded"]
        if self.layer.scheme == "rotary" and self.attention_factor() == 1 and not self.layer.axes:
            names.append("moved")
        return {name: getattr(self, name) for name in names}


def order_of(positions: np.ndarray, key_positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order of queries and keys, `[batch, n]` each; the index for whole rows with axes."""
    if positions.ndim == 2:
        return positions, key_positions
    if positions is not key_positions:
        return positions[..., 0], key_positions[..., 0]
    index = np.broadcast_to(np.arange(positions.shape[1]), positions.shape[:2])
    return index, index

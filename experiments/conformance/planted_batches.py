"""Faults of batches that public threads report, planted in right batches; and right batches.

A right batch has rows of whole documents: ids, segments, positions, a mask of pairs, and labels as
Hugging Face has them. Each fault changes it as the program in its thread did.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

PAD, EOS, FIRST_ID = 0, 1, 10
Arrays = dict[str, np.ndarray]


class Planted(NamedTuple):
    """One fault: its name in `check_batch`, the thread, what was done, and the check's options."""

    name: str
    thread: str
    plant: Callable[[np.random.Generator], Arrays]
    options: Mapping[str, Any] = {}


def packed(rng: np.random.Generator, *, rows: int = 4, n: int = 48, padding: int = 4) -> Arrays:
    """Rows of documents of 1 to 16 tokens, the last one cut, with padding after them."""
    segments = np.zeros((rows, n), int)
    for row in segments:
        lengths = rng.integers(1, 17, n)
        whole = np.repeat(np.arange(n) + 1, lengths)[: n - int(rng.integers(0, padding + 1))]
        row[: len(whole)] = whole
    return completed(rng, segments)


def alone(rng: np.random.Generator, *, rows: int = 4, n: int = 48, side: str = "left") -> Arrays:
    """One document a row, of n/2 to n tokens; the first fills its row."""
    lengths = np.array([n, *rng.integers(n // 2, n - 2, rows - 1)])
    columns = np.arange(n)
    real = columns >= n - lengths[:, None] if side == "left" else columns < lengths[:, None]
    return completed(rng, real.astype(int))


def completed(rng: np.random.Generator, segments: np.ndarray) -> Arrays:
    """All arrays of a right batch of these documents."""
    rows, n = segments.shape
    real = segments > 0
    new = np.diff(segments, axis=1, prepend=-1) != 0
    columns = np.tile(np.arange(n), (rows, 1))
    positions = (columns - np.maximum.accumulate(np.where(new, columns, 0), axis=1)) * real
    ends = real & (np.diff(segments, axis=1, append=0) != 0)
    ids = np.where(real, np.where(ends, EOS, rng.integers(FIRST_ID, 1000, segments.shape)), PAD)
    same = (segments[:, :, None] == segments[:, None, :]) & real[:, :, None]
    pairs = same & np.tri(n, dtype=bool)
    labels = np.where(real & ~new, ids, -100)
    names = ("ids", "segments", "positions", "mask", "labels")
    return dict(zip(names, (ids, segments, positions, pairs, labels), strict=True))


def running(batch: Arrays) -> np.ndarray:
    """Numbers of the columns in each row."""
    return np.tile(np.arange(batch["segments"].shape[1]), (len(batch["segments"]), 1))


def not_reset(rng):
    batch = packed(rng)
    return batch | {"positions": running(batch)}


def images_not_reset(rng):
    """Two documents of text, an image of one row and text, whose positions run on."""
    row, segments, following = [], [], 0
    for number in (1, 2):
        before, wide = rng.integers(2, 6, 2)
        axes = [np.full(wide, following + before)] * 2
        row += [np.tile(following + np.arange(before), (3, 1))]
        row += [np.stack([*axes, axes[0] + np.arange(wide)])]
        row += [np.tile(following + before + wide + np.arange(3), (3, 1))]
        segments += [number] * (before + wide + 3)
        following += before + wide + 3
    return {"positions": np.concatenate(row, axis=1)[:, None], "segments": np.array([segments])}


def restarts_in_chunks(rng):
    batch = alone(rng, side="right")
    return batch | {"positions": batch["positions"] % 20}


def padding_counted(rng):
    batch = alone(rng)
    return batch | {"positions": running(batch), "mask": batch["segments"]}


def shared_by_rows(rng):
    """The first prompt has 3 tokens of padding, and its positions are used for all."""
    batch = alone(rng)
    segments = batch["segments"].copy()
    segments[0, :3] = 0
    batch = completed(rng, segments)
    return batch | {"positions": np.tile(batch["positions"][:1], (len(segments), 1))}


def padding_inside(rng):
    """Documents padded to a multiple of 8 in a row; positions are the columns."""
    lengths = rng.integers(1, 8, (4, 6))
    inside = np.arange(8) < lengths[:, :, None]
    segments = np.where(inside, np.arange(1, 7)[:, None], 0).reshape(4, 48)
    batch = completed(rng, segments)
    return batch | {"positions": running(batch)}


def one_based(rng):
    batch = packed(rng)
    return batch | {"positions": batch["positions"] + 1}


def beyond_the_table(rng):
    batch = alone(rng, side="right")
    return batch | {"positions": batch["positions"] + 2}


def rounded(kind: Any, length: int) -> Callable[[np.random.Generator], Arrays]:
    def plant(rng):
        positions = np.arange(length)[None].astype(kind).astype(float)
        return {"positions": np.concatenate([positions, positions])}

    return plant


def documents_visible(rng):
    batch = packed(rng)
    real = batch["segments"] > 0
    return batch | {"mask": np.tri(real.shape[1], dtype=bool) & real[:, :, None] & real[:, None]}


def future_visible(rng):
    batch = alone(rng, side="right")
    real = batch["segments"] > 0
    return batch | {"mask": real[:, :, None] & real[:, None]}


def padding_visible(rng):
    batch = alone(rng)
    n = batch["segments"].shape[1]
    return batch | {"mask": np.tile(np.tri(n, dtype=bool), (len(batch["segments"]), 1, 1))}


def loss_across(rng):
    batch = packed(rng)
    return batch | {"labels": np.where(batch["segments"] > 0, batch["ids"], -100)}


def loss_on_padding(rng):
    batch = alone(rng, side="right")
    return batch | {"labels": batch["ids"]}


def second_document_constant(rng):
    """Only tokens with mask 1 get positions; the others keep 1, the value of the empty array."""
    batch = packed(rng)
    kept = np.where(batch["segments"] == 1, batch["positions"], 1)
    return batch | {"positions": np.stack([kept] * 3)}


def axes_second(rng):
    batch = packed(rng)
    return batch | {"positions": np.stack([batch["positions"]] * 3, axis=1)}


def shorter_than_ids(rng):
    batch = packed(rng)
    return batch | {"positions": batch["positions"][:, :-8]}


def zigzag(n: int, count: int, rank: int) -> np.ndarray:
    chunks = np.arange(n).reshape(2 * count, -1)
    return np.concatenate([chunks[rank], chunks[-1 - rank]])


def zigzag_of_contiguous(rng):
    batch = packed(rng, padding=0)
    order = np.concatenate([zigzag(48, 2, 0), zigzag(48, 2, 1)])
    return {"segments": batch["segments"], "positions": batch["positions"][:, order]}


def local_to_the_shard(rng):
    return {"positions": np.tile(np.arange(24), (4, 1))}


def gap_of_the_bucket(rng):
    """Shards of 20 tokens, padded to 24; the second begins at 24."""
    positions = np.concatenate([np.arange(20), np.arange(24, 44)])
    return {"positions": positions[None], "segments": np.ones((1, 40), int)}


def single_tokens_merged(rng):
    """Boundaries only where positions fall: 0 after 0 is none."""
    segments = np.repeat(np.arange(1, 9), [5, 1, 4, 1, 1, 6, 1, 5])[None]
    batch = completed(rng, segments)
    falls = np.diff(batch["positions"], axis=1, prepend=0) < 0
    return batch | {"segments": 1 + np.cumsum(falls, axis=1)}


def last_never_trained(rng):
    """Rows of n tokens lose one to the labels: position n - 1 is never an input."""
    batch = alone(rng, rows=2, side="right")
    cut = {name: array[:, :-1] for name, array in batch.items() if name != "mask"}
    return cut | {"labels": batch["labels"][:, 1:]}


def padding_left_for_right(rng):
    return alone(rng)


def padding_as_text(rng):
    batch = packed(rng)
    batch["segments"][:, -1] = 0
    batch = completed(rng, batch["segments"])
    return batch | {"segments": np.maximum.accumulate(batch["segments"], axis=1)}


def continued(rng):
    """Documents cut at the end of a row go on in the next one, at the position they had."""
    ends = np.cumsum(rng.integers(5, 31, 40))
    segments = 1 + np.searchsorted(ends, np.arange(4 * 48), side="right")
    positions = completed(rng, segments[None])["positions"]
    batch = completed(rng, segments.reshape(4, 48))
    return batch | {"positions": positions.reshape(4, 48)}


FAULTS = (
    Planted("not reset", "pytorch/torchtitan#2559", not_reset),
    Planted("chunks", "pytorch/torchtitan#2849", restarts_in_chunks),
    Planted("padding counted", "huggingface/transformers#33095", padding_counted),
    Planted("rows alike", "unslothai/unsloth#3795", shared_by_rows),
    Planted("not reset", "huggingface/nanoVLM#201", padding_inside),
    Planted("not reset", "radixark/miles#1268", images_not_reset, {"axes": 3}),
    Planted("first position", "PrimeIntellect-ai/prime-rl#3466", one_based),
    Planted("first position", "huggingface/sentence-transformers#3879", packed, {"first": 2}),
    Planted(
        "too large", "huggingface/transformers#9116", beyond_the_table, {"first": 2, "longest": 49}
    ),
    Planted("rounded", "Nerogar/OneTrainer#1177", rounded(ml_dtypes.bfloat16, 512)),
    Planted("rounded", "openvinotoolkit/openvino#33214", rounded(np.float16, 5000)),
    Planted("documents visible", "huggingface/transformers#46634", documents_visible),
    Planted("future visible", "huggingface/candle#3567", future_visible),
    Planted("padding visible", "jingyaogong/minimind-v#76", padding_visible),
    Planted("loss across documents", "pytorch/torchtitan#4075", loss_across),
    Planted("loss on padding", "arcee-ai/DAM#16", loss_on_padding),
    Planted("constant", "hiyouga/LlamaFactory#7754", second_document_constant, {"axes": 3}),
    Planted("axes", "axolotl-ai-cloud/axolotl#3817", packed, {"axes": 4}),
    Planted("axes", "verl-project/verl#3653", axes_second, {"axes": 3}),
    Planted("lengths", "hiyouga/LlamaFactory#10660", shorter_than_ids),
    Planted(
        "shard order",
        "modelscope/ms-swift#10071",
        zigzag_of_contiguous,
        {"shards": ("contiguous", 2, None)},
    ),
    Planted(
        "shard local", "huggingface/trl#6812", local_to_the_shard, {"shards": ("contiguous", 2, 1)}
    ),
    Planted("gap", "lightseekorg/TorchSpec#93", gap_of_the_bucket),
    Planted("restart", "modelscope/ms-swift#9904", single_tokens_merged),
    Planted(
        "never trained",
        "simple-stories/simple_stories_train#46",
        last_never_trained,
        {"trained": 48},
    ),
    Planted(
        "padding side",
        "bigscience-workshop/t-zero#32",
        padding_left_for_right,
        {"padding": "right"},
    ),
    Planted("padding not masked", "mit-han-lab/fastrl#14", padding_as_text, {"pad": PAD}),
    Planted("continued", "huggingface/trl#1850", continued),
)

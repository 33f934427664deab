"""`check_batch` on faults that public threads report, on right batches, and the worth of its noise.

Each fault is planted in batches of many seeds. Right batches are drawn with all options, and packed
by Grain; those of other libraries are in `tests/conformance`. Intervals of offset shares are tried
on documents whose lengths have a known law, so that the true shares are known.
"""

import time
from collections import Counter
from typing import Any

import grain
import numpy as np
from grain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset

from experiments.common import Run, main
from experiments.conformance.planted_batches import EOS, FAULTS, PAD, alone, packed, zigzag
from jaxpe.conformance import check_batch, check_batches
from jaxpe.conformance.offsets import OffsetHistogram, offset_counts, offset_histogram

SEEDS, STREAMS = 200, 2000
DOCUMENTS = (20, 50, 200, 400, 700, 1000)
LONGEST = 512
ROW = 48  # tokens in a row of packed Grain batches


def experiment(run: Run) -> dict[str, Any]:
    seeds, streams = (2, 20) if run.quick else (SEEDS, STREAMS)
    return {
        "faults": planted(seeds),
        "right": right(seeds),
        "coverage": {number: coverage(number, streams) for number in DOCUMENTS},
        "seconds": {"positions": seconds(8, 8192), "pairs": seconds(2, 2048, pairs=True)},
        "sizes": {"seeds": seeds, "streams": streams, "longest": LONGEST},
    }


def planted(seeds: int) -> list[dict[str, Any]]:
    """For each thread, the share of batches in which its fault is found, and named."""
    rows = []
    for fault in FAULTS:
        names = Counter[str]()
        found = 0
        for seed in range(seeds):
            batch = fault.plant(np.random.default_rng(seed))
            told = {one.name for one in check_batch(**batch, **fault.options).faults}
            found += bool(told)
            names.update(told)
        others = sorted(set(names) - {fault.name})
        named = names[fault.name] / seeds
        row: dict[str, Any] = {"name": fault.name, "thread": fault.thread}
        rows.append(row | {"found": found / seeds, "named": named, "also": others})
        print(fault.thread, fault.name, found / seeds, named, others, flush=True)
    return rows


def right(seeds: int) -> dict[str, dict[str, int]]:
    """Batches and alarms of right batches, by their kind."""
    kinds: dict[str, dict[str, int]] = {}

    def tally(kind: str, result: Any) -> None:
        known = kinds.setdefault(kind, {"batches": 0, "alarms": 0})
        known["batches"] += 1
        known["alarms"] += not result.passed

    every = {"longest": 48, "padding": "right", "pad": PAD, "eos": EOS}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        batch = packed(rng)
        tally("packed", check_batch(**batch, **every))
        known = {name: batch[name] for name in ("ids", "mask", "labels")}
        tally("packed, ends of text", check_batch(batch["positions"], **known, pad=PAD, eos=EOS))
        tally("packed, nothing else", check_batch(batch["positions"], ids=batch["ids"], pad=PAD))
        for side in ("left", "right"):
            tally(f"padded {side}", check_batch(**alone(rng, side=side), padding=side))
        batch = packed(rng, padding=0)
        whole = {"segments": batch["segments"]}
        for rank in range(3):
            own = batch["positions"][:, zigzag(48, 3, rank)]
            tally("zigzag shards", check_batch(own, **whole, shards=("zigzag", 3, rank)))
            own = batch["positions"][:, rank * 16 : rank * 16 + 16]
            tally("contiguous shards", check_batch(own, **whole, shards=("contiguous", 3, rank)))
        for packer in (FirstFitPackIterDataset, BestFitPackIterDataset):
            tally(packer.__name__, check_batches(grain_batches(rng, packer), padding="right"))
    return kinds


def grain_batches(rng: np.random.Generator, packer: Any) -> Any:
    texts = [rng.integers(10, 99, n) for n in rng.integers(2, 20, 40)]
    source = grain.MapDataset.source([{"inputs": x[:-1], "targets": x[1:]} for x in texts])
    sizes = {"inputs": ROW, "targets": ROW}
    rows = packer(source.to_iter_dataset(), length_struct=sizes, num_packing_bins=3)
    return rows.batch(4, drop_remainder=False)


def lengths_law() -> np.ndarray:
    """Probabilities of lengths 1 to LONGEST: a geometric law with a long tail."""
    lengths = np.arange(1, LONGEST + 1)
    law = 0.9 * np.exp(-lengths / 30) / 30 + 0.1 * np.exp(-lengths / 200) / 200
    return law / law.sum()


def coverage(number: int, streams: int) -> dict[str, Any]:
    """Shares of streams whose intervals hold the true share, by range of offsets."""
    law, rng = lengths_law(), np.random.default_rng(number)
    by_length = offset_counts(np.tril(np.ones((LONGEST, LONGEST), int)))  # one document a row
    truth = offset_histogram((law @ by_length)[None]).pairs
    truth = truth / truth.sum()
    ranges = int(np.flatnonzero(truth)[-1]) + 1
    by_one = [offset_histogram(one[None]) for one in by_length]
    fields = [np.stack(x) for x in zip(*by_one, strict=True)]
    held, widths, seen = np.zeros(ranges), np.zeros(ranges), np.zeros(ranges)
    for _ in range(streams):
        drawn = np.bincount(rng.choice(LONGEST, number, p=law), minlength=LONGEST)
        sums: list[Any] = [drawn @ x for x in fields]
        for k, one in enumerate(OffsetHistogram(*sums).shares()):
            held[k] += one.low <= truth[k] <= one.high
            widths[k] += one.high - one.low
            seen[k] += 1
    firsts = [0, *(1 << k for k in range(ranges - 1))]
    return {
        "first": firsts,
        "truth": truth[:ranges],
        "seen": seen / streams,
        "held": held / seen,
        "width": widths / seen,
        "reach": [float(law[first:].sum()) for first in firsts],  # documents that have the range
    }


def seconds(rows: int, n: int, *, pairs: bool = False) -> float:
    """Seconds of one check, the least of three."""
    batch = packed(np.random.default_rng(0), rows=rows, n=n)
    if not pairs:
        del batch["mask"]
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        check_batch(**batch, eos=EOS)
        taken.append(time.perf_counter() - start)
    return min(taken)


if __name__ == "__main__":
    main(experiment, "batch_checks")

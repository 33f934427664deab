"""Checks of batches: faults of public threads are named, and right batches raise no alarm."""

from functools import cache
from pathlib import Path

import grain
import jax.numpy as jnp
import numpy as np
import pytest
from grain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset
from scipy import special, stats

from experiments.conformance.planted_batches import FAULTS, alone, packed, zigzag
from jaxpe._core.errors import InputError
from jaxpe.conformance import BatchOptions, batch_offsets, check_batch, check_batches
from jaxpe.conformance.batches import FAULTS as NAMES
from jaxpe.conformance.offsets import OffsetHistogram, offset_counts, offset_histogram
from jaxpe.nn import packed_positions
from jaxpe.training import batches, in_order

ROW, EOS, BOS = 32, 1, 2


def names(result):
    return {fault.name for fault in result.faults}


def assert_passed(result):
    assert result.passed, result.text()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.name} {fault.thread}")
def test_fault_of_a_thread_is_named(fault):
    for seed in (0, 1):
        batch = fault.plant(np.random.default_rng(seed))
        result = check_batch(**batch, **fault.options)
        assert not result.passed
        assert fault.name in names(result)


def test_every_fault_has_a_section_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "batches.md").read_text()
    sections = [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")]
    assert sections == list(NAMES)
    assert [fault.thread for fault in FAULTS if f"[{fault.thread}]" not in page] == []


@pytest.mark.parametrize("seed", range(3))
def test_right_batches_raise_no_alarm(seed):
    rng = np.random.default_rng(seed)
    assert_passed(check_batch(**packed(rng), eos=EOS, pad=0, padding="right", longest=48))
    assert_passed(check_batch(**alone(rng), padding="left", longest=48, trained=47))
    batch = packed(rng)
    assert_passed(check_batch(batch["positions"] + 2, segments=batch["segments"], first=2))
    del batch["segments"]
    assert_passed(check_batch(**batch, pad=0))


ONES, TWO_ROWS = [[1, 1, 1]] * 2, [[1, 1, 2, 2, 2], [3, 3, 3, 4, 4]]
CONTINUED = [[5, 6, 0, 1, 2], [3, 4, 5, 0, 1]]
# Positions, options, and names of the faults.
SMALL = {
    "rows that continue": ([[5, 6, 7], [9, 10, 11]], {"segments": ONES}, {"continued"}),
    "rows from 5": ([[5, 6, 7]] * 2, {"segments": ONES}, {"first position"}),
    "before the first": (
        [[1, 2, 3, 2, 3]], {"segments": [[1, 1, 1, 2, 2]], "first": 2}, {"first position"}),
    "after the first": (
        [[5, 6, 7, 2, 3]], {"segments": [[1, 1, 1, 2, 2]], "first": 2}, {"continued"}),
    "running on is meant": ([[0, 1, 2, 3, 4]] * 2, {"segments": TWO_ROWS, "resets": False}, set()),
    "continuing is meant": (CONTINUED, {"segments": TWO_ROWS, "continued": True}, set()),
    "continuing is not": (CONTINUED, {"segments": TWO_ROWS}, {"continued"}),
    "padding is not judged": ([[0, 1, 99]], {"segments": [[1, 1, 0]], "longest": 2}, set()),
    "negative padding": ([[0, 1, -7]], {"segments": [[1, 1, 0]]}, set()),
    "padding alone": ([[0, 0, 0]], {"mask": [[0, 0, 0]]}, set()),
    "shards of documents": (
        [[0, 1, 6, 7, 0, 3]],
        {"segments": np.repeat([1, 2], [8, 4])[None], "shards": ("zigzag-documents", 2, 0)}, set()),
    "other shards": (
        [[0, 1, 6, 7, 0, 3]],
        {"segments": np.repeat([1, 2], [8, 4])[None], "shards": ("contiguous", 2, 0)},
        {"shard order"}),
    "ends of documents": ([[0, 1, 2, 3, 4]], {"cu_seqlens": np.array([0, 3, 5])}, {"not reset"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_batches(name):
    positions, options, faults = SMALL[name]
    ends = {"cu_seqlens": options.pop("cu_seqlens")} if "cu_seqlens" in options else {}
    arrays = {key: options.pop(key) for key in ("segments", "mask") if key in options}
    result = check_batches([{"position_ids": positions, **arrays, **ends}], **options)
    assert names(result) == faults, result.text()


# Packers of other libraries.


@cache
def stored_packers():
    stored = np.load(Path(__file__).with_name("packers.npz"))
    packers = {}
    for key in stored.files:
        if key != "versions":
            packer, number, name = key.split("/")
            packers.setdefault(packer, {}).setdefault(number, {})[name] = stored[key]
    return {packer: list(batches.values()) for packer, batches in packers.items()}


OPTIONS = {
    "trl bfd": {},
    "trl bfd_split": {},
    "trl padded": {"padding": "right", "pad": 0},
    "transformers": {"eos": EOS},
    "torchtitan": {"bos": BOS},
    "datatrove index": {"eos": EOS},
    "datatrove eos": {"eos": EOS},
}


@pytest.mark.parametrize("packer", OPTIONS)
def test_packers_of_other_libraries_raise_no_alarm(packer):
    assert set(OPTIONS) == set(stored_packers())
    batches, options = stored_packers()[packer], OPTIONS[packer]
    result = check_batches(batches, longest=ROW + 9, **options)
    assert_passed(result)
    assert int(result.subject.split()[0]) >= 4
    if options and packer != "trl padded":
        key = "position_ids" if "position_ids" in batches[0] else "positions"
        spoilt = [{**one, key: np.tile(np.arange(one[key].shape[1]), (len(one[key]), 1))}
                  for one in batches]  # fmt: skip
        assert names(check_batches(spoilt, **options)) >= {"not reset"}


@pytest.mark.parametrize("packer", [FirstFitPackIterDataset, BestFitPackIterDataset])
def test_packers_of_grain_raise_no_alarm(packer):
    rng = np.random.default_rng(0)
    texts = [rng.integers(10, 99, n) for n in rng.integers(2, 20, 60)]
    source = grain.MapDataset.source([{"inputs": x[:-1], "targets": x[1:]} for x in texts])
    rows = packer(
        source.to_iter_dataset(), length_struct={"inputs": ROW, "targets": ROW}, num_packing_bins=4
    )
    result = check_batches(rows.batch(4), padding="right", longest=ROW)
    assert_passed(result)
    assert {check.name for check in result.checks if check.status == "passed"} >= {"positions"}


def test_our_packed_and_padded_batches_raise_no_alarm():
    batch = packed(np.random.default_rng(0))
    segments = batch["segments"] - 1  # from 0
    positions, mask = packed_positions(jnp.asarray(segments)), segments >= 0
    assert_passed(check_batch(positions, segments=segments, mask=mask, ids=batch["ids"], eos=EOS))
    batch = alone(np.random.default_rng(0), rows=8, side="right")
    arrays = {name: batch[name] for name in ("ids", "positions")} | {"mask": batch["segments"] > 0}
    assert_passed(check_batches(in_order(arrays, batch_size=3), padding="right"))
    lengths = arrays["mask"].sum(axis=1)
    cut = {"batch_size": 2, "seed": 0, "lengths": lengths, "buckets": (32, 48)}
    assert_passed(check_batches(batches(arrays, **cut), take=8, padding="right"))


# Options.


@pytest.mark.parametrize("order", ["contiguous", "zigzag", "round-robin"])
def test_shards_of_right_rows(order):
    batch = packed(np.random.default_rng(0), padding=0)
    columns = {
        "contiguous": lambda rank: np.arange(48).reshape(3, -1)[rank],
        "zigzag": lambda rank: zigzag(48, 3, rank),
        "round-robin": lambda rank: np.arange(48)[rank::3],
    }[order]
    right = {name: batch[name] for name in ("segments", "labels", "ids")}
    other = "zigzag" if order != "zigzag" else "contiguous"
    for index in (0, 1, 2, None):
        ranks = range(3) if index is None else [index]
        positions = batch["positions"][:, np.concatenate([columns(rank) for rank in ranks])]
        assert_passed(check_batch(positions, **right, shards=(order, 3, index)))
        result = check_batch(positions, **right, shards=(other, 3, index))
        assert names(result) == {"shard order"}


def row_of_images(*, running=False):
    """Three documents with images in a row; each restarts, or starts after the one before.

    The first has four tokens of text, an image of 2 × 3 patches, and three tokens of text.
    """
    parts, following = [], 0
    for before, high, wide, after in ((4, 2, 3, 3), (2, 3, 3, 4), (0, 2, 2, 2)):
        image = np.stack([np.zeros(high * wide, int), *np.indices((high, wide)).reshape(2, -1)])
        texts = [np.tile(np.arange(n), (3, 1)) for n in (before, after)]
        part = [texts[0], image + before, texts[1] + before + max(high, wide)]
        parts.append(np.concatenate(part, axis=1) + following)
        following = parts[-1].max() + 1 if running else 0
    positions = np.concatenate(parts, axis=1)[:, None]
    return positions, np.repeat([1, 2, 3], [part.shape[1] for part in parts])[None]


def test_images_of_mrope():
    positions, vision = row_of_images()[0][:, :, :13], np.zeros((1, 13), bool)
    vision[0, 4:10] = True
    assert_passed(check_batch(positions, vision=vision, axes=3))
    four = np.concatenate([np.arange(13)[None, None], positions])
    assert_passed(check_batch(four, vision=vision, axes=4))
    wrong = positions.copy()
    wrong[:, :, 10:] += 3  # the text goes on after the number of patches
    assert not check_batch(wrong, vision=vision, axes=3).passed
    wrong = positions.copy()
    wrong[2, :, 10:] += 1
    assert names(check_batch(wrong, vision=vision, axes=3)) == {"axes differ"}
    # Documents cut within the image.
    segments = np.repeat([1, 2, 3, 4, 5], [3, 3, 2, 2, 3])[None]
    pieces = [positions[:, :, segments[0] == k] for k in range(1, 6)]
    restarted = np.concatenate([one - one.min() for one in pieces], axis=2)
    known = {"segments": segments, "axes": 3}
    for more in ({}, {"vision": vision}):
        assert_passed(check_batch(positions, **known, **more, resets=False))
        assert_passed(check_batch(restarted, **known, **more))
        assert names(check_batch(positions, **known, **more)) == {"not reset"}


@pytest.mark.parametrize("axes", [3, 4])
def test_packed_images_that_run_on_are_not_reset(axes):
    """Images are told by positions where no array marks them."""
    (right, segments), (positions, _) = row_of_images(), row_of_images(running=True)
    text = np.arange(positions.shape[2])
    if axes == 4:
        restarted = np.concatenate([text[: np.sum(segments == k)] for k in (1, 2, 3)])
        right = np.concatenate([restarted[None, None], right])
        positions = np.concatenate([text[None, None], positions])
    result = check_batch(right, segments=segments, axes=axes)
    assert_passed(result)
    assert {c.name: c.status for c in result.checks}["images"] == "not checked"
    starts = [0, *np.flatnonzero(np.diff(segments)) + 1]  # though images take fewer positions
    by_column = right + np.repeat(starts, np.bincount(segments[0])[1:])
    faults = {"not reset": (positions, by_column), "first position": (right + 1,)}
    for name, wrong in faults.items():
        for one in wrong:
            assert names(check_batch(one, segments=segments, axes=axes)) == {name}


def test_masks_in_all_forms():
    batch = packed(np.random.default_rng(3))
    allowed = batch.pop("mask")
    lowest = np.where(allowed, 0, np.finfo(np.float32).min)[:, None].astype(np.float32)
    added = np.where(allowed, 0.0, -1e9)
    for mask in (allowed, allowed[:, None], allowed.astype(int), added, lowest):
        assert_passed(check_batch(**batch, mask=mask))
    flat = {"mask": batch.pop("segments")}  # 1 1 2 2 0
    assert_passed(check_batch(**batch, **flat))
    narrow = allowed & (np.subtract.outer(np.arange(48), np.arange(48)) < 4)
    assert_passed(check_batch(**batch, mask=narrow, window=4, pad=0))
    assert names(check_batch(**batch, mask=narrow, window=5, pad=0)) == {"keys hidden"}
    assert names(check_batch(**batch, mask=allowed, window=4, pad=0)) == {"window"}


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("fill", [0, 1])
def test_padding_that_nothing_tells_is_not_judged(side, fill):
    ids = np.array([[11, 12, EOS, 21, 22, EOS]])
    padding, filled = np.zeros((1, 3), int), np.full((1, 3), fill)
    row = [ids, padding][::side], [np.array([[0, 1, 2, 0, 1, 2]]), filled][::side]
    ids, positions = (np.concatenate(parts, axis=1) for parts in row)
    result = check_batch(positions, ids=ids, eos=EOS)
    assert_passed(result)
    assert {c.name: c.status for c in result.checks}["ends of rows"] == "not checked"
    running = np.where(ids == 0, fill, np.cumsum(ids > 0) - 1)
    assert names(check_batch(running, ids=ids, eos=EOS)) == {"not reset"}
    assert names(check_batch(positions * 0, ids=ids, eos=EOS)) == {"constant"}


def test_labels_shifted_within_documents_may_equal_the_next_id():
    ids, segments = np.array([[5, 6, 7, 8, 9]]), [[1, 1, 2, 2, 2]]
    known = {"ids": ids, "segments": segments}
    own = np.array([[6, 7, 8, 9, 3]])  # 7 ends the first document, and begins the second
    assert_passed(check_batch([[0, 1, 0, 1, 2]], **known, labels=own))
    crossing = check_batch([[0, 1, 0, 1, 2]], **known, labels=ids)
    assert names(crossing) == {"loss across documents"}
    batch = packed(np.random.default_rng(0))
    following = np.where(batch["segments"] > 0, np.roll(batch["ids"], -1, axis=1), -100)
    assert names(check_batch(**batch | {"labels": following})) == {"loss across documents"}


def test_what_is_checked_and_the_smallest_example():
    result = check_batch([[0, 1, 2]])
    status = {check.name: check.status for check in result.checks}
    assert status["mask"] == status["loss"] == status["trained"] == "not checked"
    result = check_batch([[0, 1, 2, 0, 1], [0, 1, 3, 4, 5]], segments=[[1, 1, 1, 2, 2], [1] * 5])
    (fault,) = result.faults
    assert (fault.name, fault.example.splitlines()[0]) == ("gap", "row 1, column 2")
    assert "3 of 10" in fault.text
    assert result.json()
    assert result.junit()
    named = check_batches([{"position_ids": [[0, 1]], "max_length": [3]}])
    assert {check.name: check.text for check in named.checks}["other arrays"] == "max_length"


def test_streams_add_and_may_be_endless():
    def endless():
        while True:
            yield {"positions": [[0, 1, 2, 3]], "segments": [[1, 1, 2, 2]]}

    result = check_batches(endless(), take=3)
    assert names(result) == {"not reset"}
    assert "6 of 12" in result.faults[0].text
    assert batch_offsets(endless(), take=3).pairs[:2].tolist() == [12, 6]


def test_positions_that_no_row_reaches():
    short = [{"positions": [np.arange(n)] * rows} for n, rows in ((3, 1), (5, 2), (4, 1))]
    result = check_batches(short, trained=8)
    assert names(result) == {"never trained"}
    assert "3 of 8" in result.faults[0].text
    assert f"{1 - 0.05 ** (1 / 4):.2g}" in result.faults[0].text  # four documents reach none
    assert result.faults[0].example == "position 5"
    assert_passed(check_batches(short, trained=5))


# Offsets.


def test_intervals_of_offsets_hold_the_true_shares():
    """Documents of 1 to 40 tokens, equally often; a thousand streams of 400 of them."""
    counts = offset_counts(np.tril(np.ones((40, 40), int)))
    truth = offset_histogram(counts).pairs
    one_by_one = [offset_histogram(row[None]) for row in counts]
    by_length = [np.stack(x) for x in zip(*one_by_one, strict=True)]
    truth, held, rng = truth[:7] / truth.sum(), np.zeros(7), np.random.default_rng(0)
    for _ in range(1000):
        drawn = np.bincount(rng.integers(0, 40, 400), minlength=40)
        shares = OffsetHistogram(*(drawn @ x for x in by_length)).shares()
        held += [one.low <= t <= one.high for one, t in zip(shares, truth, strict=True)]
    assert 0.93 < held.min() / 1000 < 0.97


def test_intervals_of_equal_documents_are_students_of_the_logit():
    """Half of the documents have a third of their pairs at distance 0, the others two thirds."""
    few, enough = (
        offset_histogram(np.resize([[1, 2], [2, 1]], (count, 2))).shares()[0] for count in (40, 42)
    )
    assert (few.low, few.high) == (0, 1)
    half = stats.t.ppf(0.975, 41) * np.std(np.resize([1 / 3, 2 / 3], 42), ddof=1) / 42**0.5
    ends = special.expit([-half / 0.25, half / 0.25])  # of a share of one half
    np.testing.assert_allclose((enough.low, enough.high), ends, rtol=1e-5)


def test_offsets_by_windows_masks_and_both_sides():
    segments = np.array([[1, 1, 1, 1, 2, 2, 0]])
    assert offset_counts(segments, window=2).sum(axis=0).tolist() == [6, 4]
    assert offset_counts(segments, causal=False)[0].tolist() == [4, 6, 4, 2]
    pairs = np.zeros((1, 7, 7), bool)
    pairs[0, 3, 1] = pairs[0, 5, 0] = True  # the second is not of the query's document
    assert offset_counts(segments, mask=pairs).sum(axis=0).tolist() == [0, 0, 1, 0]
    weights = np.array([[0, 0, 0, 1, 0, 1, 1]])
    assert offset_counts(segments, weights=weights)[0].tolist() == [1, 1, 1, 1]
    positions = np.array([[0, 1, 5, 6, 0, 1, 0]])
    found = offset_counts(segments, positions=positions)[0]
    assert found.tolist() == [4, 2, 0, 0, 1, 2, 1]
    with pytest.raises(InputError, match="weights"):
        offset_counts(segments, weights=weights[:, :3])


@pytest.mark.parametrize("bad", [
    {"first": -1}, {"longest": 0}, {"shards": ("zigzag", 2, 2)}, {"shards": ("zigzag", 0, None)},
])  # fmt: skip
def test_options_out_of_range(bad):
    with pytest.raises(InputError):
        BatchOptions(**bad)


@pytest.mark.parametrize(("stream", "options", "error"), [
    ([{"ids": [[1, 2]]}], {}, InputError),
    ([{"positions": np.zeros((0, 4), int)}], {}, InputError),
    ([], {}, InputError),
    ([{"positions": [[0, 1, 2]], "segments": [[1] * 6]}], {"shards": ("zigzag", 2, 0)}, InputError),
    ([{"positions": [[0, 1]]}], {"lenght": 3}, TypeError),
])  # fmt: skip
def test_input_that_is_no_batch(stream, options, error):
    with pytest.raises(error):
        check_batches(stream, **options)

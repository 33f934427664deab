"""Checks of training batches: positions, padding, documents, masks, losses and what is trained."""

import dataclasses
import itertools
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.conformance.arrays import to_numpy
from jaxpe.conformance.batch_faults import Axis, name_rows
from jaxpe.conformance.batch_layout import (
    BatchOptions,
    image_tokens,
    number_documents,
    shard_columns,
    true_positions,
)
from jaxpe.conformance.offsets import OffsetHistogram, offset_counts, offset_histogram
from jaxpe.conformance.result import Check, Conformance, Fault

TABLE = tomllib.loads(Path(__file__).with_name("batches.toml").read_text("utf-8"))
ARRAYS, CHECKS, FAULTS = TABLE["arrays"], TABLE["checks"], TABLE["faults"]
_ENDS = ("cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q")  # ends of documents in one row, from 0
_NONE = np.zeros((0, 0), int)
_UNTOLD = (  # what told the documents, a check that cannot be made, and what it needs
    ("positions", "resets", "needs segments, or ids with `eos` or `bos`"),
    ("images", "images", "tokens whose axes differ; pass `vision`"),
    ("ids without padding", "ends of rows",
     "tokens of one id and one position; if they are padding, pass `pad` or a mask"),
)  # fmt: skip
_SHOWN = 4  # columns on either side of the smallest example
_Found = tuple[str, str, tuple[int, ...], np.ndarray]  # name, detail, leading indices, wrong places


class _Batch(NamedTuple):
    """Arrays of a batch in one form; whole rows, but for positions, true and columns."""

    given: Mapping[str, np.ndarray]
    exact: np.ndarray  # [axes, batch, n], positions as they are given
    positions: np.ndarray  # [axes, batch, n], rounded to integers
    true: np.ndarray  # [axes, batch, n]
    whole: np.ndarray  # [axes, batch, length], right positions
    running: np.ndarray  # [axes, batch, n], positions that run on over documents
    columns: np.ndarray  # [batch, n], of the positions in whole rows
    documents: np.ndarray  # [batch, length]
    guessed: bool  # whether positions told which tokens are of images
    told: str  # what told the documents
    carries: np.ndarray  # [batch, length], queries with loss
    shifted: bool  # whether labels were the ids of their own tokens

    def text(self) -> np.ndarray:
        """Tokens that are not padding, at the columns of the positions."""
        return np.take_along_axis(self.documents, self.columns, axis=1) > 0


def check_batch(positions: Any, **arrays_and_options: Any) -> Conformance:
    """Check of one batch: every fault by name, with its smallest example.

    Args:
        positions: positions, integers `[batch, n]`, or `[axes, batch, n]` with `axes`.
        **arrays_and_options: arrays of `check_batches` by name, such as `segments`, and fields of
            `BatchOptions`, such as `longest`.

    Raises:
        InputError: options out of range.
        TypeError: a name that is neither.

    >>> found = check_batch([[0, 1, 2, 3, 4]], segments=[[1, 1, 1, 2, 2]])
    >>> found.faults[0].name, found.faults[0].text
    ('not reset', 'positions run on over the documents of a row: 2 of 5')
    """
    arrays = {name: arrays_and_options.pop(name) for name in ARRAYS if name in arrays_and_options}
    return check_batches([{"positions": positions, **arrays}], **arrays_and_options)


def check_batches(
    batches: Iterable[Any], *, take: int | None = None, **options: Any
) -> Conformance:
    """Check of a stream of batches: faults by name, and the offsets that the loss sees.

    A batch is a mapping, or a pair of one and labels. All arrays but the positions are optional;
    names of Grain, PyTorch and transformers are known (`position_ids`, `inputs_segment_ids`, ...).

    - positions, integers `[batch, n]`, or `[axes, batch, n]` with `axes`;
    - ids of tokens `[batch, n]`;
    - segments: numbers of documents `[batch, n]`; 0 is padding, unless a mask tells it;
    - mask: `[batch, n]` with 0 at padding, or of pairs, `[batch, n, n]` or `[batch, 1, n, n]`,
      with true or 0.0 where a query sees a key;
    - labels `[batch, n]`, negative without loss: the ids, or the next ids of each token;
    - weights of the loss of each query, `[batch, n]`;
    - vision: bool `[batch, n]`, tokens of images.

    Args:
        batches: batches, such as a Grain or PyTorch iterator.
        take: number of batches to read; all when absent.
        **options: fields of `BatchOptions`.

    Raises:
        InputError: no batch, a batch without positions, or options out of range.

    >>> right = {"position_ids": [[0, 1, 0, 1, 2]], "segment_ids": [[1, 1, 2, 2, 2]]}
    >>> check_batches([right, right], longest=512).passed
    True
    """
    intended = BatchOptions(**options)
    compared, told = Counter[str](), set[str]()
    found: dict[str, list[Any]] = {}  # number, detail and example of each fault
    unread = set[str]()
    carried, histogram, count = np.zeros(intended.trained or 0, int), offset_histogram(_NONE), 0
    for count, batch in enumerate(itertools.islice(batches, take), 1):  # noqa: B007
        given = _arrays(batch)
        unread |= _unread(batch)
        compared["shapes"] += len(given)
        if misfit := _misfit(given, intended):
            found.setdefault(misfit[0], [0, "", misfit[1]])[0] += 1
            continue
        form = _form(given, intended)
        told |= {form.told, "images"} if form.guessed else {form.told}
        for check, size, rows in _checks(form, intended):
            compared[check] += size
            for name, detail, lead, wrong in rows:
                if wrong.any():
                    example = _example(form, name, *lead, *np.argwhere(wrong)[0].tolist())
                    found.setdefault(name, [0, detail, example])[0] += int(wrong.sum())
        learnt = np.take_along_axis(_learnt(form), form.columns, axis=1)
        reached = np.clip(form.positions[0][learnt], 0, len(carried))
        carried += np.bincount(reached, minlength=len(carried) + 1)[:-1]
        histogram += _histogram(form, intended)
    if not count:
        raise InputError("`batches` is empty: pass at least one batch")
    compared["trained"] = len(carried)
    if not carried[intended.first :].all():
        most = 1 - 0.05 ** (1 / max(histogram.documents, 1))
        never = np.flatnonzero(carried[intended.first :] == 0) + intended.first
        detail = f"at most {most:.2g} of documents reach one (95 %)"
        found["never trained"] = [len(never), detail, f"position {never[0]}"]
    skipped = {"other arrays": ", ".join(sorted(unread))} if unread else {}
    skipped |= {name: reason for source, name, reason in _UNTOLD if source in told}
    result = _result(count, compared, found, histogram)
    unchecked = [Check(name, "not checked", reason) for name, reason in skipped.items()]
    return result._replace(checks=(*result.checks, *unchecked))


def batch_offsets(
    batches: Iterable[Any], *, take: int | None = None, **options: Any
) -> OffsetHistogram:
    """Histogram of the offsets that the loss of a stream sees.

    Args:
        batches, take, **options: arguments of `check_batches`.

    >>> batch_offsets([{"positions": [[0, 1, 2, 0, 1]]}]).pairs[:3]
    array([5., 3., 1.])
    """
    intended, histogram = BatchOptions(**options), offset_histogram(_NONE)
    for batch in itertools.islice(batches, take):
        given = _arrays(batch)
        if _misfit(given, intended) is None:
            histogram += _histogram(_form(given, intended), intended)
    return histogram


def _arrays(batch: Any) -> dict[str, np.ndarray]:
    """Arrays of a batch by our names."""
    if isinstance(batch, tuple | list):
        batch = {**batch[0], "labels": batch[1]}
    found = {}
    for name, others in ARRAYS.items():
        ends = tuple(other for other in others if other.startswith("_"))
        keys = [key for key in (name, *others) if key in batch]
        keys += [key for key in batch if ends and key.endswith(ends)]
        if keys and (array := batch[keys[0]]) is not None:
            found[name] = np.atleast_2d(to_numpy(array))
    ends = next((batch[key] for key in _ENDS if key in batch), None)
    if ends is not None and "positions" in found and "segments" not in found:
        cells = np.arange(found["positions"].shape[-1])
        found["segments"] = np.searchsorted(to_numpy(ends).ravel(), cells, side="right")[None]
    if "positions" not in found or not found["positions"].size:
        raise InputError(f"no positions among {', '.join(batch)}: name an array `positions`")
    if "mask" in found and found["mask"].ndim > 2:
        mask = found["mask"][:, 0] if found["mask"].ndim == 4 else found["mask"]
        least = float(mask.min(initial=0))  # negative in a mask that is added to logits
        found["mask"] = mask if mask.dtype == bool else mask > (least / 2 if least < 0 else 0.5)
    return found


def _unread(batch: Any) -> set[str]:
    """Names of a batch that no check reads."""
    names = batch[0] if isinstance(batch, tuple | list) else batch
    known = (*ARRAYS, *_ENDS, *itertools.chain.from_iterable(ARRAYS.values()))
    return {name for name in names if not name.endswith(known)}


def _misfit(given: Mapping[str, np.ndarray], options: BatchOptions) -> tuple[str, str] | None:
    """Fault of shapes and its example."""
    got, (_, count, index) = given["positions"].shape, options.shards or ("", 1, 0)
    rows = _rows(given, options)
    wanted = (rows[0], rows[1] // (1 if index is None else count))
    axes = () if options.axes is None else (options.axes,)
    if len(got) != len(axes) + 2 or got[:-2] != axes:
        return "axes", f"wanted {[*axes, *wanted]}, got {list(got)}"
    if got[-1] != wanted[1] or got[-2] not in (1, wanted[0]):
        return "lengths", f"wanted {[*axes, *wanted]}, got {list(got)}"
    for name, array in given.items():
        if name != "positions" and array.shape not in (rows, (*rows, rows[1])):
            return "lengths", f"{name}: wanted {list(rows)}, got {list(array.shape)}"
    return None


def _rows(given: Mapping[str, np.ndarray], options: BatchOptions) -> tuple[int, ...]:
    """Shape `[batch, length]` of whole rows."""
    for name, array in given.items():
        if name != "positions":
            return array.shape[:2]
    (batch, n), (_, count, index) = given["positions"].shape[-2:], options.shards or ("", 1, 0)
    return batch, n * (1 if index is None else count)


def _form(given: Mapping[str, np.ndarray], options: BatchOptions) -> _Batch:
    """Arrays in one form, with the positions that follow from them."""
    rows, exact = _rows(given, options), np.asarray(given["positions"], float)
    exact = np.broadcast_to(exact, (options.axes or 1, rows[0], exact.shape[-1]))
    positions = np.nan_to_num(np.rint(exact), posinf=0, neginf=0).astype(np.int64)
    documents, told = number_documents({**given, "positions": positions}, options, rows)
    columns, vision = shard_columns(documents, options.shards), given.get("vision")
    if options.shards and (vision is not None or options.continued):
        raise InputError("`shards` go without images and `continued`: check whole rows")
    guessed = options.axes is not None and vision is None and not options.shards
    if guessed:
        vision = image_tokens(positions[-3:], options.first)
    vision = np.zeros(rows, bool) if vision is None else vision.astype(bool)
    of_text = int(options.axes == 4)  # the first of four axes numbers patches as tokens
    parts = ((positions[:of_text], vision & False), (positions[of_text:], vision))
    whole, running = (
        np.concatenate([true_positions(documents, x, seen, one) for x, seen in parts if len(x)])
        for one in (options, dataclasses.replace(options, resets=False))
    )
    true, running = (np.take_along_axis(x, columns[None], axis=2) for x in (whole, running))
    labels, ids, carries = given.get("labels"), given.get("ids"), documents > -1
    shifted = labels is not None and ids is not None and (labels == ids)[labels >= 0].all()
    if labels is not None:
        if shifted:  # the model shifts them
            labels = np.pad(labels[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
        given, carries = {**given, "labels": labels}, labels >= 0
    carries = carries & (given.get("weights", carries) > 0)
    return _Batch(
        given, exact, positions, true, whole, running, columns, documents,
        guessed and bool(vision.any()), told, carries, bool(shifted),
    )  # fmt: skip


def _checks(form: _Batch, options: BatchOptions) -> Iterator[tuple[str, int, Iterable[_Found]]]:
    """Checks that the arrays allow: how much each compares, and its faults with wrong places."""
    given, exact, text, numbers = form.given, form.exact, form.text(), form.documents
    ids, labels, mask = (given.get(name) for name in ("ids", "labels", "mask"))
    before, after, size = numbers[:, :-1], numbers[:, 1:], int(text.sum())
    longest = np.inf if options.longest is None else options.longest
    rows = [
        ("fractions", "", (), (exact != form.positions) & text),
        ("negative", "", (), (exact < 0) & text),
        ("too large", f"it has {longest:,}", (), (exact >= longest) & text),
    ]
    yield "values", size, rows
    known = options.pad is not None and ids is not None
    if options.padding or known:
        step = -1 if options.padding == "left" else 1
        begun = np.cumsum(numbers[:, ::step] > 0, axis=1)[:, ::step] > 0
        counted = (ids == options.pad) & (numbers > 0) & (known and options.pad != options.eos)
        rows = [
            ("padding side", "", (), (numbers == 0) & ~begun & bool(options.padding)),
            ("padding not masked", "", (), counted),
        ]
        yield "padding", numbers.size, rows
    if ids is not None and options.eos is not None and form.told == "segments":
        ended = (ids[:, :-1] == options.eos) & (ids[:, 1:] != options.eos)
        went_on = ended & (before == after) & (after > 0)
        yield "documents", int((numbers > 0).sum()), [("document after its end", "", (), went_on)]
    yield "positions", size * len(form.true), _wrong_positions(form, options)
    for row, sees in enumerate(mask if mask is not None and mask.ndim == 3 else ()):
        yield "mask", sees.size, _wrong_pairs(sees, numbers[row], row, options)
    if "labels" in given or "weights" in given:
        carries = int(form.carries.sum())
        yield "loss", carries, [("loss on padding", "", (), form.carries & (numbers == 0))]
    if ids is not None and labels is not None:
        last = (before != after) & (before > 0) & (after > 0)
        crossing = last & form.carries[:, :-1] & (labels[:, :-1] == ids[:, 1:])
        if not form.shifted:  # the label may be the document's own end, or equal by chance
            crossing &= (ids[:, 1:] != options.eos) & (crossing.sum() > max(2, last.sum() / 2))
        yield "loss", 0, [("loss across documents", "", (), crossing)]


def _wrong_positions(form: _Batch, options: BatchOptions) -> Iterator[_Found]:
    """Faults of positions, a row at a time; axes with the fault of the axis before are left out."""
    text = form.text()
    wrong = (form.positions != form.true) & text
    for k, (got, true) in enumerate(zip(form.positions, form.true, strict=True)):
        whole = np.stack([form.documents, form.whole[k]])
        axis = Axis(got, true, form.running[k], whole, form.columns)
        for row, fault in name_rows(axis, options).items():
            other = got[row] != form.positions[k - 1, row] if k else text[row]
            if k and not wrong[k - 1, row].any() and other[wrong[k, row]].all():
                fault = ("axes differ", "")
            yield fault[0], fault[1], (k, row), wrong[k, row] & other


def _wrong_pairs(
    sees: np.ndarray, numbers: np.ndarray, row: int, options: BatchOptions
) -> Iterator[_Found]:
    """Faults of the mask of one row."""
    text = numbers > 0
    queries, same = text[:, None], (numbers[:, None] == numbers) & text
    offset = np.subtract.outer(np.arange(len(text)), np.arange(len(text)))
    later, far = (offset < 0) & options.causal, offset >= (options.window or len(text))
    yield "padding visible", "", (row,), sees & queries & ~text
    yield "documents visible", "", (row,), sees & queries & text & ~same
    yield "future visible", "", (row,), sees & same & later
    yield "window", "", (row,), sees & same & far
    yield "keys hidden", "", (row,), ~sees & same & ~later & ~far


def _example(form: _Batch, name: str, *at: int) -> str:
    """Wrong place, with the documents and positions around it."""
    *_, row, column = at
    if FAULTS[name][0] == "mask":
        return "row {}, query {}, key {}".format(*at)
    shown = slice(max(column - _SHOWN, 0), column + _SHOWN + 1)
    documents = np.take_along_axis(form.documents, form.columns, axis=1)
    rows = {"documents": documents[row]}
    for k, (true, got) in enumerate(zip(form.true, form.exact, strict=True)):
        axis = f" {k}" if len(form.true) > 1 else ""
        rows |= {f"wanted{axis}": true[row], f"got{axis}": got[row]}
    lines = [f"row {row}, column {column}"]
    for name, line in rows.items():
        lines.append(f"{name:<9} " + " ".join(f"{x:>4g}" for x in line[shown]))
    return "\n".join(lines)


def _learnt(form: _Batch) -> np.ndarray:
    """Tokens that the loss of their document reaches: up to the last query with loss."""
    documents, n = form.documents, form.documents.shape[1]
    at = np.where(form.carries, np.arange(n), n - 1)
    following = np.minimum.accumulate(at[:, ::-1], axis=1)[:, ::-1]  # query with loss, or the last
    same = np.take_along_axis(documents, following, axis=1) == documents
    return same & np.take_along_axis(form.carries, following, axis=1) & (documents > 0)


def _histogram(form: _Batch, options: BatchOptions) -> OffsetHistogram:
    """Offsets that the loss sees in one batch."""
    mask, total = form.given.get("mask"), offset_histogram(_NONE)
    for row in range(len(form.documents)):  # counts are as wide as the longest document
        pairs = mask[[row]] if mask is not None and mask.ndim == 3 else None
        known = {"positions": form.whole[0, [row]], "weights": form.carries[[row]], "mask": pairs}
        meant = {"causal": options.causal, "window": options.window}
        total += offset_histogram(offset_counts(form.documents[[row]], **known, **meant))
    return total


def _result(
    count: int, compared: Counter[str], found: dict[str, list[Any]], histogram: OffsetHistogram
) -> Conformance:
    """Result from numbers by check, and from number, detail and example by fault."""
    faults = []
    for name, (number, detail, example) in found.items():
        check, sentence = FAULTS[name]
        text = f"{sentence} ({detail})" if detail else sentence
        faults.append(Fault(name, f"{text}: {number:,} of {compared[check]:,}", check, example))
    failed, checks = {fault.check for fault in faults}, []
    for name, (unit, needs) in CHECKS.items():
        status = "failed" if name in failed else "passed" if compared[name] else "not checked"
        text = f"{compared[name]:,} {unit}" if compared[name] else f"needs {needs}"
        checks.append(Check(name, status, text))
    if shares := histogram.shares():
        *_, (first, _, share, low, high) = shares
        interval = f" ({low:.2g} to {high:.2g})" if high - low < 1 else ""
        text = f"{share:.2g}{interval} of them at offset {first:,} or more"
        checks.append(Check("offsets", "passed", f"{histogram.pairs.sum():,.0f} pairs, {text}"))
    subject = f"{count:,} batch{'es' * (count > 1)}"
    title = "Are the positions in my batches right?"
    return Conformance(subject, tuple(checks), tuple(faults), title)

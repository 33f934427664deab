"""Ablation of positions: change of the output when tokens get other positions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.averages import document_mean
from jaxpe.analysis.inspect.documents import Sample, guessed_tokens, row_batches
from jaxpe.analysis.inspect.flax_model import inspected_model, sample_batch
from jaxpe.analysis.inspect.result import AblationStage, PositionMove
from jaxpe.nn.heads import pooled

_FAR = 1000  # shift of the positions of a model without a table
_LEAST = 1e-12


def moved_positions(
    n: int, *, text: slice, most: int | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Original positions of n tokens, and ablations that preserve less and less of them.

    "shifted" adds one number to all positions, and "doubled" doubles all offsets. "reversed" and
    "shuffled" change the order of the text, and "same" gives all of it its middle position. The
    last three do not change special tokens.

    Args:
        n: number of tokens.
        text: positions of the text, without the special tokens.
        most: number of positions of the model; unlimited when None.
        seed: random seed of the order.

    >>> moved = moved_positions(4, text=slice(1, 4), most=6)
    >>> {name: positions.tolist() for name, positions in moved.items() if name != "shuffled"}
    {'own': [0, 1, 2, 3], 'shifted': [2, 3, 4, 5], 'reversed': [0, 3, 2, 1], 'same': [0, 2, 2, 2]}
    """
    original = np.arange(n, dtype=np.int32)
    shift = _FAR if most is None else min(_FAR, most - n)
    moved = {"own": original}
    if shift > 0:
        moved["shifted"] = original + np.int32(shift)
    if most is None or 2 * (n - 1) < most:
        moved["doubled"] = 2 * original
    moved |= {name: original.copy() for name in ("reversed", "shuffled", "same")}
    moved["reversed"][text] = original[text][::-1]
    moved["shuffled"][text] = np.random.default_rng([seed, 9]).permutation(original[text])
    moved["same"][text] = original[text][len(original[text]) // 2]
    return moved


def ablate_positions(
    sample: Sample,
    *,
    most: int | None = None,
    mask_id: int | None = None,
    progress: Progress = SILENT,
) -> AblationStage:
    """Position ablation: loss of a language model, or change of an encoder's output.

    A causal model is judged by the loss of all tokens but the first, a masked one by the loss of 15
    % masked tokens, both in nats a token. An encoder without a head is judged by two cosines with
    the original output: of its mean last hidden state, and the mean over tokens.

    Args:
        sample: the model and rows of tokens without padding.
        most: number of positions of the model; unlimited when None.
        mask_id: id of [MASK], for a masked language model.
        progress: receiver of progress.

    Raises:
        InputError: a masked language model without `mask_id`.

    >>> ablate_positions(sample).moved[-1].change  # doctest: +SKIP
    Interval(estimate=4.8, low=4.5, high=5.1)
    """
    n = sample.rows.shape[1]
    moved = moved_positions(n, text=sample.text, most=most, seed=sample.seed)
    if inspected_model(sample.module).kind != "encoder":
        return _loss_ablation(sample, moved, mask_id, progress)
    return _embedding_ablation(sample, moved, progress)


def _loss_ablation(
    sample: Sample, moved: dict[str, np.ndarray], mask_id: int | None, progress: Progress
) -> AblationStage:
    """Change of a language model's loss, paired by document."""
    model = inspected_model(sample.module)
    causal = model.kind == "causal"
    batches = [{"ids": ids} for ids in row_batches(sample.rows, sample_batch(sample))]
    if not causal:
        rng = np.random.default_rng([sample.seed, 10])
        text = np.zeros(sample.rows.shape[1], bool)
        text[sample.text] = True
        batches = [
            guessed_tokens(ids, np.tile(text, (len(ids), 1)), mask_id=mask_id, rng=rng)
            for ids in (batch["ids"] for batch in batches)
        ]
    run = model.losses() if causal else model.masked_losses()

    def mean_loss(batch: dict[str, np.ndarray], positions: np.ndarray) -> np.ndarray:
        if not causal:
            return np.asarray(run(batch, positions), np.float64)
        return np.asarray(run(batch["ids"], positions), np.float64).mean(axis=-1)

    values = _document_values(mean_loss, batches, moved, progress)
    return AblationStage(
        measure="causal" if causal else "masked",
        documents=len(values["own"]),
        shift=_shift(moved),
        moved=[
            PositionMove(name, document_mean(value), document_mean(value - values["own"]), None)
            for name, value in values.items()
        ],
        reference=float(np.log(model.sizes.vocabulary)),
    )


def _embedding_ablation(
    sample: Sample, moved: dict[str, np.ndarray], progress: Progress
) -> AblationStage:
    """Cosines of an encoder's output with the original one."""
    run = inspected_model(sample.module).hidden()
    batches = [
        {"ids": ids, "original": np.asarray(run(ids, moved["own"]))}
        for ids in row_batches(sample.rows, sample_batch(sample))
    ]
    cosines = jax.jit(_cosines)
    values = _document_values(
        lambda batch, at: cosines(run(batch["ids"], at), batch["original"]),
        batches, moved, progress,
    )  # fmt: skip
    bounds, original = (-1.0, 1.0), values["own"][:, 0]
    hidden = np.concatenate([batch["original"] for batch in batches])
    return AblationStage(
        measure="embedding",
        documents=len(original),
        shift=_shift(moved),
        moved=[
            PositionMove(
                name,
                document_mean(value[:, 0], within=bounds),
                document_mean(value[:, 0] - original),
                document_mean(value[:, 1], within=bounds),
            )
            for name, value in values.items()
        ],
        reference=_mean_cosine(hidden.mean(axis=1)),
    )


def _document_values(
    run: Callable[[Any, np.ndarray], Any],
    batches: list[dict[str, np.ndarray]],
    moved: dict[str, np.ndarray],
    progress: Progress,
) -> dict[str, np.ndarray]:
    """Numbers of each document, under each change of its positions."""
    outputs: dict[str, list[np.ndarray]] = {name: [] for name in moved}
    pairs = [(name, batch) for name in moved for batch in batches]
    for name, batch in progress.track(pairs, "moving positions", total=len(pairs)):
        outputs[name].append(np.asarray(run(batch, moved[name]), np.float64))
    return {name: np.concatenate(parts) for name, parts in outputs.items()}


def _cosines(hidden: Array, original: Array) -> Array:
    """Cosines of mean hidden states and mean cosines of single tokens, `[documents, 2]`."""
    mean = _cosine(pooled(hidden), pooled(original))
    return jnp.stack([mean, jnp.mean(_cosine(hidden, original), axis=-1)], axis=-1)


def _cosine(a: Array, b: Array) -> Array:
    sizes = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    return jnp.sum(a * b, axis=-1) / jnp.maximum(sizes, _LEAST)


def _mean_cosine(vectors: np.ndarray) -> float:
    """Mean cosine of vectors of different documents."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST)
    gram, count = unit @ unit.T, len(unit)
    return float((gram.sum() - np.trace(gram)) / (count * (count - 1)))


def _shift(moved: dict[str, np.ndarray]) -> int:
    return int(moved["shifted"][0]) if "shifted" in moved else 0

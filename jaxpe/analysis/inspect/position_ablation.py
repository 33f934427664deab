"""Ablation of positions: what becomes of a model's output where tokens get other positions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.attention.documents import Sample
from jaxpe.analysis.attention.logit_sums import batch_size, cut
from jaxpe.analysis.inspect.averages import mean_of
from jaxpe.analysis.inspect.result import AblationFound, Moved
from jaxpe.analysis.inspect.token_loss import token_losses
from jaxpe.nn import CausalLM, MaskedLM, functionalize, pooled, trunk
from jaxpe.training.masking import some_places, with_mask
from jaxpe.training.tasks import logits_at

_FAR = 1000  # positions that a model without a table is shifted by
_LEAST = 1e-12


def moved_positions(
    n: int, *, text: slice, most: int | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Positions of n tokens: their own, and moved in ways that keep less and less of them.

    "shifted" moves all tokens alike, "doubled" doubles all offsets, "reversed" and "shuffled"
    change the order at places of text, "same" gives these one position in their middle. Special
    tokens keep theirs in the last three.

    Args:
        n: number of tokens.
        text: places of text, without the special tokens.
        most: positions that the model has; any when None.
        seed: random seed of the order.

    >>> moved = moved_positions(4, text=slice(1, 4), most=6)
    >>> {name: positions.tolist() for name, positions in moved.items() if name != "shuffled"}
    {'own': [0, 1, 2, 3], 'shifted': [2, 3, 4, 5], 'reversed': [0, 3, 2, 1], 'same': [0, 2, 2, 2]}
    """
    own = np.arange(n, dtype=np.int32)
    shift = _FAR if most is None else min(_FAR, most - n)
    found = {"own": own}
    if shift > 0:
        found["shifted"] = own + np.int32(shift)
    if most is None or 2 * (n - 1) < most:
        found["doubled"] = 2 * own

    def with_text(positions: np.ndarray) -> np.ndarray:
        moved = own.copy()
        moved[text] = positions
        return moved

    order = np.random.default_rng([seed, 9]).permutation(own[text])
    middle = own[text][len(own[text]) // 2]
    return found | {
        "reversed": with_text(own[text][::-1]),
        "shuffled": with_text(order),
        "same": with_text(np.full_like(own[text], middle)),
    }


def ablate_positions(
    sample: Sample,
    *,
    most: int | None = None,
    mask_id: int | None = None,
    progress: Progress = SILENT,
) -> AblationFound:
    """Loss of a language model, or shift of an encoder's output, under moved positions.

    Of a causal model the loss of all tokens but the first, of a masked one that of tokens masked at
    15 % of the places, both in nats a token. Of an encoder without a head the cosine of the mean of
    its last hidden states with the mean at own positions, and the mean of each token's cosine.

    Args:
        sample: the model and rows of tokens without padding.
        most: positions that the model has; any when None.
        mask_id: id of [MASK], for a masked language model.
        progress: receiver of progress.

    Raises:
        InputError: a masked language model without `mask_id`.

    >>> ablate_positions(sample).moved[-1].change  # doctest: +SKIP
    Interval(estimate=4.8, low=4.5, high=5.1)
    """
    rows, module = sample.rows, sample.module
    moved = moved_positions(
        rows.shape[1],
        text=sample.text,
        most=most,
        seed=sample.seed,
    )
    if isinstance(module, CausalLM | MaskedLM):
        return _of_losses(sample, moved, mask_id, progress)
    return _of_embeddings(sample, moved, progress)


def _of_losses(
    sample: Sample, moved: dict[str, np.ndarray], mask_id: int | None, progress: Progress
) -> AblationFound:
    causal = isinstance(sample.module, CausalLM)
    batches = [{"ids": ids} for ids in cut(sample.rows, batch_size(sample))]
    if not causal:
        rng = np.random.default_rng([sample.seed, 10])
        batches = [_masked(batch["ids"], sample.text, mask_id, rng) for batch in batches]
    apply, params = functionalize(sample.module, method=_causal if causal else _masked_loss)
    run = jax.jit(apply)
    values = _by_kind(lambda batch, at: run(params, batch, at), batches, moved, progress)
    own = values["own"]
    found = [
        Moved(name, mean_of(value), mean_of(value - own), None) for name, value in values.items()
    ]
    vocabulary = sample.transformer.config.vocab_size
    return AblationFound(
        measure="causal" if causal else "masked",
        documents=len(own),
        shift=_shift(moved),
        moved=found,
        reference=float(np.log(vocabulary)),
    )


def _of_embeddings(
    sample: Sample, moved: dict[str, np.ndarray], progress: Progress
) -> AblationFound:
    apply, params = functionalize(sample.module, method=_hidden)
    run, size = jax.jit(apply), batch_size(sample)
    own = [np.asarray(run(params, ids, moved["own"])) for ids in cut(sample.rows, size)]
    batches = [
        {"ids": ids, "own": hidden} for ids, hidden in zip(cut(sample.rows, size), own, strict=True)
    ]
    cosines = jax.jit(functionalize(sample.module, method=_cosines)[0])
    values = _by_kind(lambda batch, at: cosines(params, batch, at), batches, moved, progress)
    whole = values["own"][:, 0]
    bounds = (-1.0, 1.0)
    found = [
        Moved(
            name,
            mean_of(value[:, 0], within=bounds),
            mean_of(value[:, 0] - whole),
            mean_of(value[:, 1], within=bounds),
        )
        for name, value in values.items()
    ]
    return AblationFound(
        measure="embedding",
        documents=len(whole),
        shift=_shift(moved),
        moved=found,
        reference=_between(np.concatenate(own).mean(axis=1)),
    )


def _by_kind(
    run: Callable[[Any, Array], Array],
    batches: list[dict[str, np.ndarray]],
    moved: dict[str, np.ndarray],
    progress: Progress,
) -> dict[str, np.ndarray]:
    """Output of a program for each document, by the kind of move of its tokens."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in moved}
    pairs = [(name, batch) for name in moved for batch in batches]
    for name, batch in progress.track(pairs, "moving positions", total=len(pairs)):
        found[name].append(np.asarray(run(batch, jnp.asarray(moved[name])), np.float64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _causal(model: CausalLM, batch: dict[str, Array], positions: Array) -> Array:
    return jnp.mean(token_losses(model, batch["ids"], positions=positions), axis=-1)


def _masked(
    ids: np.ndarray, text: slice, mask_id: int | None, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """[MASK] at some places of text, and what stood there."""
    there = np.zeros(ids.shape, bool)
    there[:, text] = True
    places, counted = some_places(there, rng=rng)
    return {
        "ids": with_mask(ids, places, mask_id=mask_id, counted=counted),
        "places": places,
        "counted": counted,
        "targets": np.take_along_axis(ids, places, axis=1),
    }


def _masked_loss(model: MaskedLM, batch: dict[str, Array], positions: Array) -> Array:
    logits = logits_at(model, batch["ids"], batch["places"], positions=positions)
    likelihood = jnp.take_along_axis(
        jax.nn.log_softmax(logits), batch["targets"][..., None], axis=-1
    )[..., 0]
    kept = jnp.where(batch["counted"], likelihood, 0)
    return -jnp.sum(kept, axis=-1) / jnp.sum(batch["counted"], axis=-1).astype(kept.dtype)


def _hidden(model: Any, ids: Array, positions: Array) -> Array:
    return trunk(model)(ids, positions=positions).hidden


def _cosines(model: Any, batch: dict[str, Array], positions: Array) -> Array:
    """Cosines of mean hidden states and mean cosines of single tokens, `[documents, 2]`."""
    hidden, own = _hidden(model, batch["ids"], positions), batch["own"]
    of_means = _cosine(pooled(hidden), pooled(own))
    return jnp.stack([of_means, jnp.mean(_cosine(hidden, own), axis=-1)], axis=-1)


def _cosine(a: Array, b: Array) -> Array:
    sizes = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    return jnp.sum(a * b, axis=-1) / jnp.maximum(sizes, _LEAST)


def _between(vectors: np.ndarray) -> float:
    """Mean cosine of vectors of different documents."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST)
    gram, count = unit @ unit.T, len(unit)
    return float((gram.sum() - np.trace(gram)) / (count * (count - 1)))


def _shift(moved: dict[str, np.ndarray]) -> int:
    return int(moved["shifted"][0]) if "shifted" in moved else 0

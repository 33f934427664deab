"""Training tasks, as loss functions `(params, batch, key) -> (tally, tallies)`.

Batches hold `ids` and `mask` `[batch, n]`. Further arrays are optional. `labels` `[batch]` are
needed by some tasks; `valid` `[batch]` is false on rows that only fill a batch. `segments`,
`positions` and `token_types` `[batch, n]` are passed to the model as keywords. With `train=False`
there is no dropout.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe.training.losses import (
    MeanMetric,
    accuracy,
    causal_lm_loss,
    cross_entropy,
    mean_squared_error,
    next_in_document,
)
from jaxpe.training.masking import loss_positions, mask_tokens
from jaxpe.training.step import Batch, LossFunction

# `(params, ids, *, mask, dropout_key)` to something with `logits`, as of `functionalize`.
Apply = Callable[..., Any]

_TOKEN_ARRAYS = ("segments", "positions", "token_types")


def classification(apply: Apply, *, train: bool = True) -> LossFunction:
    """Cross-entropy of the class of a sequence; tallies: accuracy.

    Args:
        apply: `(params, ids, *, mask, dropout_key)` to an object with `logits` `[batch, classes]`,
            such as the output of a `Classifier`.
        train: whether to apply dropout.

    >>> from types import SimpleNamespace as Output
    >>> apply = lambda params, ids, **options: Output(logits=params[ids[:, 0]])
    >>> batch = {"ids": jnp.array([[0], [1]]), "mask": jnp.ones((2, 1), bool),
    ...          "labels": jnp.array([0, 1])}
    >>> tally, tallies = classification(apply)(9.0 * jnp.eye(2), batch, jax.random.key(0))
    >>> tally.weight.item(), tallies["accuracy"].mean.item()
    (2.0, 1.0)
    """

    def loss(params, batch, key):
        logits = _output(apply, params, batch, key if train else None).logits
        labels, valid = batch["labels"], batch.get("valid")
        tally = cross_entropy(logits, labels, mask=valid)
        return tally, {"accuracy": accuracy(logits, labels, mask=valid)}

    return loss


def regression(apply: Apply, *, train: bool = True) -> LossFunction:
    """Squared error of one number per sequence, the first logit; labels are floats.

    Args:
        apply: `(params, ids, *, mask, dropout_key)` to an object with `logits` `[batch, outputs]`,
            such as the output of a `Classifier`.
        train: whether to apply dropout.

    >>> from types import SimpleNamespace as Output
    >>> apply = lambda params, ids, **options: Output(logits=params[ids[:, :1]])
    >>> batch = {"ids": jnp.array([[0], [1]]), "mask": jnp.ones((2, 1), bool),
    ...          "labels": jnp.array([1.0, 5.0])}
    >>> regression(apply)(jnp.array([1.0, 3.0]), batch, jax.random.key(0))[0].mean.item()
    2.0
    """

    def loss(params, batch, key):
        logits = _output(apply, params, batch, key if train else None).logits
        return mean_squared_error(logits[..., 0], batch["labels"], mask=batch.get("valid")), {}

    return loss


def causal_lm(apply: Apply, *, train: bool = True) -> LossFunction:
    """Cross-entropy of each next token; tallies: accuracy of the likeliest token.

    In packed rows, `segments` separates documents: no document predicts the first token of the
    next.

    Args:
        apply: `(params, ids, *, mask, dropout_key)` to an object with `logits` `[batch, n, vocab]`,
            such as the output of a `CausalLM`.
        train: whether to apply dropout.

    >>> from types import SimpleNamespace as Output
    >>> apply = lambda params, ids, **options: Output(logits=params[ids])
    >>> batch = {"ids": jnp.array([[0, 1, 0, 1]]), "mask": jnp.ones((1, 4), bool)}
    >>> other = jnp.array([[0.0, 9.0], [9.0, 0.0]])
    >>> tally, tallies = causal_lm(apply)(other, batch, jax.random.key(0))
    >>> tally.weight.item(), tallies["accuracy"].mean.item()
    (3.0, 1.0)
    """

    def loss(params, batch, key):
        logits = _output(apply, params, batch, key if train else None).logits
        ids, mask, segments = batch["ids"], _loss_mask(batch), batch.get("segments")
        following = next_in_document(mask, segments)
        right = accuracy(logits[..., :-1, :], ids[..., 1:], mask=following)
        return causal_lm_loss(logits, ids, mask=mask, segments=segments), {"accuracy": right}

    return loss


def translation(
    apply: Apply, *, bos_id: int, padding_id: int = 0, train: bool = True
) -> LossFunction:
    """Cross-entropy of the tokens of an answer, given the input and the answer's earlier tokens.

    Tallies: "accuracy" of the likeliest token; "exact", the share of rows with every token correct,
    which greedy decoding answers correctly.

    Args:
        apply: `(params, ids, decoder_ids, *, mask, dropout_key)` to an object with `logits`, such
            as the output of a `Seq2SeqLM`. The `labels` of a batch are the answers `[batch, n]`.
        bos_id: token before the answer.
        padding_id: token after the answers, which does not count.
        train: whether to apply dropout.

    >>> from types import SimpleNamespace as Output
    >>> apply = lambda params, ids, answer, **options: Output(logits=params[answer])
    >>> batch = {"ids": jnp.array([[2, 3]]), "mask": jnp.ones((1, 2), bool),
    ...          "labels": jnp.array([[2, 3, 0]])}
    >>> following = 9.0 * jnp.roll(jnp.eye(4), 1, axis=1)
    >>> tally, tallies = translation(apply, bos_id=1)(following, batch, jax.random.key(0))
    >>> tally.weight.item(), tallies["exact"].mean.item()
    (2.0, 1.0)
    """

    def loss(params, batch, key):
        labels = jnp.asarray(batch["labels"])
        first = jnp.full_like(labels[:, :1], bos_id)
        read = jnp.concatenate([first, labels[:, :-1]], axis=1)
        logits = apply(params, batch["ids"], read, **_options(batch, key if train else None)).logits
        rows = jnp.asarray(batch.get("valid", jnp.ones(len(labels), bool)))
        answer_mask = (labels != padding_id) & rows[:, None]
        likeliest = jnp.argmax(logits, axis=-1).astype(labels.dtype)
        right = (likeliest == labels) | ~answer_mask
        share = jnp.all(right, axis=-1).astype(logits.dtype)
        exact = MeanMetric(jnp.where(rows, share, 0).sum(), rows.sum(dtype=logits.dtype))
        tallies = {"accuracy": accuracy(logits, labels, mask=answer_mask), "exact": exact}
        return cross_entropy(logits, labels, mask=answer_mask), tallies

    return loss


def masked_lm(
    apply: Apply,
    *,
    vocab_size: int,
    mask_id: int,
    special_ids: Sequence[int] = (),
    rate: float = 0.15,
    train: bool = True,
) -> LossFunction:
    """Cross-entropy of the tokens that `mask_tokens` selects; tallies: accuracy.

    Logits are computed at a fixed number of positions per row, three standard deviations above the
    expected number of selected tokens. One row in a thousand has more selected tokens. Its loss is
    over a random choice of them; the others stay masked but do not count.

    Args:
        apply: `(params, ids, places, *, mask, dropout_key)` to logits `[batch, places, vocab]`,
            from `functionalize(model, logits_at)`.
        vocab_size, mask_id, special_ids, rate: arguments of `mask_tokens`.
        train: whether to apply dropout; tokens are masked in either case.

    >>> apply = lambda params, ids, places, **options: jnp.zeros((*places.shape, 50))
    >>> batch = {"ids": jnp.ones((4, 20), jnp.int32), "mask": jnp.ones((4, 20), bool)}
    >>> loss = masked_lm(apply, vocab_size=50, mask_id=0)
    >>> round(loss((), batch, jax.random.key(0))[0].mean.item(), 3)  # log 50
    3.912
    """

    masking_options: dict[str, Any] = {"vocab_size": vocab_size, "mask_id": mask_id, "rate": rate}

    def loss(params, batch, key):
        masking, drawing, dropping = jax.random.split(key, 3)
        mask = _loss_mask(batch)
        masked = mask_tokens(
            masking, batch["ids"], mask=mask, special_ids=special_ids, **masking_options
        )
        positions, guessed = loss_positions(drawing, masked.selected, rate=rate)
        options = _options(batch, dropping if train else None)
        logits = apply(params, masked.ids, positions, **options)
        targets = jnp.take_along_axis(masked.targets, positions, axis=-1)
        right = accuracy(logits, targets, mask=guessed)
        return cross_entropy(logits, targets, mask=guessed), {"accuracy": right}

    return loss


def logits_at(
    model: Any, ids: Int[Array, "batch n"], places: Int[Array, "batch places"], **options: Any
) -> Float[Array, "batch places vocab"]:
    """Logits of a `jaxpe.nn.MaskedLM` at some places alone, since the head dominates the cost.

    >>> from flax import nnx
    >>> from jaxpe import nn
    >>> config = nn.TransformerConfig(vocab_size=50, dim=8, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> model = nn.MaskedLM(encoder, rngs=nnx.Rngs(1))
    >>> apply, params = nn.functionalize(model, logits_at)
    >>> apply(params, jnp.ones((2, 6), jnp.int32), jnp.array([[0], [3]])).shape
    (2, 1, 50)
    """
    hidden = model.encoder(ids, **options).hidden
    return model.head(jnp.take_along_axis(hidden, places[..., None], axis=-2))


def _output(apply: Apply, params: Any, batch: Batch, key: Array | None) -> Any:
    return apply(params, batch["ids"], **_options(batch, key))


def _options(batch: Batch, key: Array | None) -> dict[str, Any]:
    """Keyword arguments of a model: mask, dropout key, and optional arrays of the tokens."""
    others = {name: batch[name] for name in _TOKEN_ARRAYS if name in batch}
    return {"mask": batch["mask"], "dropout_key": key} | others


def _loss_mask(batch: Batch) -> Bool[Array, "batch n"]:
    """Mask of tokens that count: neither padding nor in a row that only fills a batch."""
    mask = jnp.asarray(batch["mask"])
    return mask & jnp.asarray(batch["valid"])[..., None] if "valid" in batch else mask

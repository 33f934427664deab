"""Rows of `jaxpe.training` and `jaxpe.data`."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxpe
from jaxpe import encodings, nn, training
from tests.cases.base import HEADS, LENGTH, VOCAB, WIDTH, Call, key, normal
from tests.cases.nn import model, token_ids

ALIBI = encodings.alibi(num_heads=HEADS)
ADAM = optax.adam(0.1)


def train_loss(params, batch, key):
    out = batch["x"] @ params["w"]
    return training.MeanMetric(jnp.sum((out - 1) ** 2), jnp.asarray(6.0)), {}


def noisy_loss(params, batch, key):
    noise = jax.random.normal(key, batch["x"].shape)
    return train_loss(params, {"x": batch["x"] + noise}, key)


STEP_IN_PARTS = training.train_step(noisy_loss, ADAM, accumulate=2)
AVERAGED = optax.chain(ADAM, training.parameter_average(0.9))
AVERAGE_STEP = training.train_step(train_loss, AVERAGED)
STEP, PLAIN_STEP = (f(train_loss, ADAM) for f in (training.train_step, training.step_function))


def state(rng):
    return training.init_state({"w": jnp.asarray(normal(rng, 3))}, ADAM, key=key())


def batch(rng):
    return {"x": normal(rng, 6, 3)}


def _averaged(rng):
    return training.init_state({"w": jnp.asarray(normal(rng, 3))}, AVERAGED, key=key())


def reference(rng):
    ids = rng.integers(0, 5, (40, LENGTH), dtype=np.int32)
    drawn = {"key": key(), "folds": 4, "splits": 2, "nulls": 2}
    geometry = jaxpe.position_geometry(ids, vocab_size=5, **drawn)
    return training.reference_geometry(jaxpe.count_tokens(ids, vocab_size=5), geometry)


class Logits(NamedTuple):
    logits: jax.Array


def of_first_token(params, ids, **options):
    return Logits(params[ids[:, 0]])


def of_each_token(params, ids, **options):
    return Logits(params[ids])


def of_each_answer(params, ids, answer, **options):
    return Logits(params[answer])


def at_places(params, ids, places, **options):
    return jnp.take_along_axis(params[ids], places[..., None], axis=1)


LOSSES = {
    "causal_lm": training.causal_lm(of_each_token),
    "classification": training.classification(of_first_token),
    "masked_lm": training.masked_lm(at_places, vocab_size=VOCAB, mask_id=1),
    "regression": training.regression(lambda params, ids, **options: Logits(params[ids[:, :1], 0])),
    "translation": training.translation(of_each_answer, bos_id=1),
}


def task(name):
    def call(rng):
        ids = rng.integers(0, VOCAB, (6, LENGTH), dtype=np.int32)
        rows = {"ids": ids, "mask": np.ones_like(ids, bool), "labels": ids[:, 1]}
        if name == "regression":
            rows["labels"] = normal(rng, 6)
        if name == "translation":
            rows["labels"] = ids
        return LOSSES[name](jnp.asarray(normal(rng, VOCAB, VOCAB)), rows, key())

    return call


@functools.cache
def task_of_sequences():
    return jaxpe.data.sequence_task("copy", vocabulary=5)


def _probed(rng):
    place = np.arange(LENGTH, dtype=np.int32)
    sizes = {"num_heads": HEADS, "head_dim": WIDTH}
    return training.encoding_probe(ALIBI, (), place, reference(rng), **sizes)


def _fitted(rng):
    data = training.batches(batch(rng), batch_size=2, seed=0)
    return training.fit(state(rng), STEP, data, steps=2).state


def _updated(rng):
    with jax.numpy_dtype_promotion("standard"):  # Optax does not know the strict one
        return ADAMW.update({"kernel": jnp.asarray(normal(rng, 3))}, *ADAMW_STATE)


TRAINING: dict[str, Call] = {
    "accuracy": lambda rng: training.accuracy(normal(rng, 6, 3), rng.integers(0, 3, 6)),
    "adamw": _updated,
    "as_record": lambda rng: training.as_record(
        training.probe_geometry(normal(rng, LENGTH, 3), reference(rng))
    ),
    "averaged_params": lambda rng: training.averaged_params(_averaged(rng)),
    "causal_lm": task("causal_lm"),
    "causal_lm_loss": lambda rng: training.causal_lm_loss(
        normal(rng, 2, LENGTH, VOCAB), rng.integers(0, VOCAB, (2, LENGTH), dtype=np.int32)
    ),
    "classification": task("classification"),
    "cross_entropy": lambda rng: training.cross_entropy(normal(rng, 6, 3), rng.integers(0, 3, 6)),
    "encoding_probe": _probed,
    "evaluate": lambda rng: training.evaluate(train_loss, {"w": normal(rng, 3)}, [batch(rng)] * 2),
    "fit": _fitted,
    "init_state": state,
    "learning_rate_schedule": lambda rng: SCHEDULE(jnp.asarray(rng.integers(0, 9))),
    "logits_at": lambda rng: training.logits_at(
        masked_lm(), jnp.asarray(token_ids(rng, 2, LENGTH)), jnp.array([[0], [3]])
    ),
    "mask_tokens": lambda rng: training.mask_tokens(
        key(), rng.integers(2, VOCAB, (3, LENGTH), dtype=np.int32), vocab_size=VOCAB, mask_id=1
    ),
    "masked_lm": task("masked_lm"),
    "mean_squared_error": lambda rng: training.mean_squared_error(normal(rng, 6), normal(rng, 6)),
    "parameter_average": lambda rng: AVERAGE_STEP(_averaged(rng), batch(rng)),
    "perplexity": lambda rng: training.perplexity(
        training.cross_entropy(normal(rng, 6, 3), rng.integers(0, 3, 6))
    ),
    "probe_geometry": lambda rng: training.probe_geometry(normal(rng, LENGTH, 3), reference(rng)),
    "reference_geometry": reference,
    "regression": task("regression"),
    "translation": task("translation"),
    "step_function": lambda rng: PLAIN_STEP(state(rng), batch(rng)),
    "train_step": lambda rng: STEP(state(rng), batch(rng)),
    "train_step in parts": lambda rng: STEP_IN_PARTS(state(rng), batch(rng)),
}
SCHEDULE = training.learning_rate_schedule(peak=1.0, steps=10, warmup=2)
ADAMW = training.adamw(0.1, weight_decay=0.5)
ADAMW_STATE = ADAMW.init({"kernel": jnp.ones(3)}), {"kernel": jnp.ones(3)}


@functools.cache
def masked_lm():
    return nn.MaskedLM(model("encoder"), rngs=nnx.Rngs(1))


DATA: dict[str, Call] = {
    "sequence_pairs": lambda rng: jaxpe.data.sequence_pairs(
        np.array([[1, 5, 2, 4 + rng.integers(2), 3, 0]], np.int32)
    ),
    "sequence_task": lambda rng: task_of_sequences().sample(
        jax.random.key(rng.integers(99)), rows=2, length=3, exact=False
    ),
}

"""Functions that are called in loops, or that draw: a second call compiles nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxpe
from jaxpe import encodings, geometry, nn, ntk, spectral, theory, training
from jaxpe.geometry.distances.pairs import sum_over_pairs
from jaxpe.geometry.mds.krylov import principal_eigenpairs
from jaxpe.training.losses import MeanMetric
from jaxpe.training.masking import mask_tokens
from tests.cases.base import Call, key
from tests.nn import models

LENGTH, VOCAB = 5, 7
ROPE = encodings.rope(head_dim=4)
OPERATOR = np.random.default_rng(0).standard_normal((LENGTH, LENGTH))
ADAM = optax.adam(0.1)


def normal(rng, *shape):
    return rng.standard_normal(shape)


def token_ids(rng, *shape):
    return rng.integers(0, VOCAB, shape, dtype=np.int32)


def counts(rng, **options):
    return geometry.count_tokens(token_ids(rng, 40, LENGTH), vocab_size=VOCAB, **options)


# Functions of the caller, the same ones in both calls.


def score(gates):
    return jnp.sum(gates * jnp.arange(4.0).reshape(2, 2))


def error(delta, d):
    return (delta - d) ** 2


def apply_operator(x):
    return jnp.matmul(OPERATOR + OPERATOR.T, x)


def train_loss(params, batch, key):
    out = batch["x"] @ params["w"]
    return MeanMetric(jnp.sum((out - 1) ** 2), jnp.asarray(6.0)), {}


def noisy_loss(params, batch, key):
    noise = jax.random.normal(key, batch["x"].shape)
    return train_loss(params, {"x": batch["x"] + noise}, key)


def at_places(params, ids, places, **options):
    return jnp.take_along_axis(params[ids], places[..., None], axis=1)


STEP = training.train_step(train_loss, ADAM)
STEP_IN_PARTS = training.train_step(noisy_loss, ADAM, accumulate=2)
MASKED = training.masked_lm(at_places, vocab_size=VOCAB, mask_id=1)


def _many_points(rng):
    cloud = geometry.PointCloud(jnp.asarray(normal(rng, LENGTH, 3)), jnp.arange(LENGTH) != 1)
    return sum_over_pairs(error, normal(rng, LENGTH, 2), cloud, block=2)


def _compared(rng):
    both = counts(rng, folds=4), counts(rng, folds=4)
    return geometry.compare_geometries(*both, key=key(), dim=2, permutations=3)


@functools.cache
def language_model():
    """A small model, built once, without the programs of its initialisation."""
    with jax.debug_key_reuse(False):  # all parameters have one key, since only shapes are asked
        shapes = models.shapes_of(
            lambda: nn.CausalLM(
                nn.Decoder(models.config(), encoding=ROPE, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1)
            )
        )
    _, params = models.filled(shapes)
    return nnx.merge(nnx.graphdef(shapes), params)


def _generated(rng, **options):
    return nn.generate(language_model(), token_ids(rng, 2, 3), steps=3, **options)


def _cached(rng):
    decoder, ids = language_model().decoder, token_ids(rng, 2, 4)
    first = decoder(ids[:, :2], cache=decoder.empty_cache(batch=2, slots=4))
    return decoder(ids[:, 2:], cache=first.cache)


@functools.cache
def task_of_sequences():
    return jaxpe.data.sequence_task("copy", vocabulary=5)


def state(rng):
    return training.init_state({"w": jnp.asarray(normal(rng, 3))}, ADAM, key=key())


def batch(rng):
    return {"x": normal(rng, 6, 3)}


def _masked_task(rng):
    ids = token_ids(rng, 6, LENGTH)
    rows = {"ids": ids, "mask": np.ones_like(ids, bool), "labels": ids[:, 1]}
    return MASKED(jnp.asarray(normal(rng, VOCAB, VOCAB)), rows, key())


def _fitted(rng):
    data = training.batches(batch(rng), batch_size=2, seed=0)
    return training.fit(state(rng), STEP, data, steps=2).state


CALLS: dict[str, Call] = {
    "compare_geometries": _compared,
    "principal_eigenpairs": lambda rng: principal_eigenpairs(
        apply_operator, LENGTH, dim=2, tolerance=1e-6
    ),
    "sum_over_pairs": _many_points,
    "ablate_heads": lambda rng: spectral.ablate_heads(score, layers=2, heads=2),
    "lanczos_eigenvalues": lambda rng: ntk.lanczos_eigenvalues(
        apply_operator, normal(rng, LENGTH), num=2, key=jax.random.key(rng.integers(99))
    ),
    "explained_by_chance": lambda rng: theory.explained_by_chance(
        OPERATOR @ OPERATOR.T, np.cov(normal(rng, LENGTH, 9)), key=key(), orders=3
    ),
    "decoder with a cache": _cached,
    "generate": _generated,
    "generate sampled": lambda rng: _generated(rng, key=key(), temperature=0.7, top_k=3),
    "nope_decoder": lambda rng: nn.nope_decoder(
        vocab_size=9, dim=4, num_layers=1, num_heads=1, length=LENGTH, key=key()
    ),
    "evaluate": lambda rng: training.evaluate(train_loss, {"w": normal(rng, 3)}, [batch(rng)] * 2),
    "fit": _fitted,
    "init_state": state,
    "mask_tokens": lambda rng: mask_tokens(
        key(), rng.integers(2, VOCAB, (3, LENGTH), dtype=np.int32), vocab_size=VOCAB, mask_id=1
    ),
    "masked_lm": _masked_task,
    "train_step in parts": lambda rng: STEP_IN_PARTS(state(rng), batch(rng)),
    "sequence_task": lambda rng: task_of_sequences().sample(
        jax.random.key(rng.integers(99)), rows=2, length=3, exact=False
    ),
}

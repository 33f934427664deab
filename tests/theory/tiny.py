"""A tiny corpus, models on it as plain functions, and one attention layer written out."""

import dataclasses
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxpe import encodings, geometry, nn
from jaxpe.nn.positions import position_functions
from jaxpe.theory.gradients import mean_embeddings, position_gradients
from tests.nn.models import config

VOCAB, N, DIM, COUNT = 9, 5, 8, 12  # word 0 stands at position 0 alone, as [CLS] does; 1 is [MASK]
EXACT = {"norm_position": "post", "embedding_norm": False, "use_bias": False}  # Eq. (1) as it is


def corpus(seed=0):
    """Token ids `[COUNT, N]` and labels; what is likely changes along positions."""
    rng = np.random.default_rng(seed)
    words = np.minimum(2 + np.arange(N) + rng.integers(0, 3, (COUNT, N)), VOCAB - 1)
    words[:, 0] = 0
    return words.astype(np.int32), rng.integers(0, 2, COUNT).astype(np.int32)


def distributions(ids, vocab=VOCAB):
    mu = np.eye(vocab)[ids].mean(axis=0)
    return geometry.PositionalDistributions(jnp.asarray(mu), jnp.ones(len(mu), bool))


def filled(make, *, seed=0):
    """A model with random parameters, of which only the shapes were compiled."""
    graphdef, shapes = nnx.split(jax.eval_shape(make), nnx.Param)
    rng = np.random.default_rng(seed)

    def fill(path, leaf):
        around = 1.0 if "scale" in jax.tree_util.keystr(path) else 0.0
        return jnp.asarray(around + 0.5 * rng.standard_normal(leaf.shape), leaf.dtype)

    return nnx.merge(graphdef, jax.tree_util.tree_map_with_path(fill, shapes))


def encoder(**changes):
    sizes = config(vocab_size=VOCAB, dim=DIM, **changes)
    return nn.Encoder(sizes, encoding=encodings.learned(length=N, dim=DIM), rngs=nnx.Rngs(0))


def classifier(*, pooling="first", **changes):
    return filled(
        lambda: nn.Classifier(encoder(**changes), num_classes=2, pooling=pooling, rngs=nnx.Rngs(1))
    )


def masked_lm(**changes):
    return filled(lambda: nn.MaskedLM(encoder(**changes), rngs=nnx.Rngs(1)))


def functions(model):
    """`(of, loss, attention)`: classification or masked language modelling on one example."""
    of = position_functions(model, length=N)

    masked = isinstance(model, nn.MaskedLM)

    def shown(example):
        return jnp.where(example["hidden"] & masked, jnp.int32(1), example["ids"])

    def loss(P, shift, example):
        rows = -jax.nn.log_softmax(of.apply(P, shift, shown(example)).logits)
        if not masked:
            return rows[example["labels"]]
        own = jnp.take_along_axis(rows, example["ids"][:, None], axis=1)[:, 0]
        return jnp.sum(jnp.where(example["hidden"], own, 0.0))

    def attention(P, example):
        below = of.apply(P, of.no_shift, shown(example), trace=True).transformer
        return below.logits[0], below.weights[0]

    return of, loss, attention


def examples(seed=0):
    ids, labels = corpus(seed)
    hidden = np.random.default_rng(seed).integers(1, N, COUNT)[:, None] == np.arange(N)
    return {"ids": ids, "labels": labels, "hidden": hidden}


def quickly(function):
    """Compiled with as little effort as possible: these tests mostly wait for the compiler."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(function, compiler_options=options)


@cache
def flax_case(kind):
    """`(gradients at P = 0, mu, means, of)` of a small Flax model on the corpus."""
    model = classifier(**EXACT) if kind == "classifier" else masked_lm(**EXACT)
    of, loss, attention = functions(model)
    rows = examples()
    found = quickly(lambda P, rows: position_gradients(loss, attention, P, rows))(
        jnp.zeros((N, DIM)), rows
    )
    mu = distributions(rows["ids"])
    return found, mu, mean_embeddings(mu, of.embeddings), of


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["embeddings", "query", "key", "value"],
    meta_fields=["read"],
)
@dataclasses.dataclass(frozen=True)
class Layer:
    """One head of Eq. (1) with a residual, written out: for counterexamples.

    `read(rows, example)` is the loss of what leaves the layer, and an example its token ids.
    """

    embeddings: jax.Array  # [vocab, d]
    query: jax.Array  # [d, d_k]
    key: jax.Array
    value: jax.Array  # W_V W_O, [d, d]
    read: Callable

    def attention(self, P, ids):
        x = self.embeddings[ids] + P
        logits = (x @ self.query) @ (x @ self.key).T / self.query.shape[1] ** 0.5
        return logits[None], jax.nn.softmax(logits)[None]

    def rows(self, P, shift, ids):
        x = self.embeddings[ids] + P
        return x + jax.nn.softmax(self.attention(P, ids)[0] + shift)[0] @ (x @ self.value)

    def loss(self, P, shift, ids):
        return self.read(self.rows(P, shift, ids), ids)

    def case(self, ids):
        """`(gradients at P = 0, mu, means, W_Q, W_K)` of a corpus, with an axis of heads."""
        ids = np.asarray(ids, np.int32)
        found = gradients_of_layer(self, jnp.zeros((ids.shape[1], self.value.shape[0])), ids)
        mu = distributions(ids, vocab=len(self.embeddings))
        means = mean_embeddings(mu, self.embeddings)
        return found, mu, means, self.query[:, None], self.key[:, None]


@quickly
def gradients_of_layer(layer, P, ids):
    return position_gradients(layer.loss, layer.attention, P, ids)


def layer_of(embeddings, query, key, value, read):
    return Layer(*(jnp.asarray(x, float) for x in (embeddings, query, key, value)), read)


def random_layer(read, *, seed=0, vocab=VOCAB, d=3, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = ((vocab, d), (d, 2), (d, 2), (d, d))
    return layer_of(*(scale * rng.standard_normal(shape) for shape in shapes), read)

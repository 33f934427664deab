"""Remark 19: must positions with the same distribution get the same embedding?

Sequences (a, b, a, c) of independent uniform tokens a, b, c, so that all distances are 0, and
masked words over all sequences and all places (nothing is sampled). The forcing b_i = −∂L/∂p_i at
P = 0 and initialisation, over seeds; and what a trained model loses if the rows of P must be equal.
One layer, width 16, one head, weights of BERT's initialisation (0.02) and of ten times that.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments.common import Run, main, mean_sd
from jaxpe import encodings, geometry
from jaxpe.nn import Encoder, MaskedLM, TransformerConfig, functionalize

TOKENS, LENGTH, WIDTH = 4, 4, 16
# Two of four tokens can be known from the others, two cannot.
LEAST_LOSS = 0.5 * np.log(TOKENS)


def experiment(run: Run) -> dict[str, Any]:
    seeds, steps = (1, 50) if run.quick else (10, 4000)
    counts = geometry.count_tokens(sequences()[0], vocab_size=TOKENS)
    distances = geometry.hellinger_distances(geometry.positional_distributions(counts)).values
    result: dict[str, Any] = {"largest_distance": float(distances.max()), "least_loss": LEAST_LOSS}
    result["forcing"] = {
        str(scale): spread([forcing(seed, scale) for seed in range(seeds)]) for scale in (0.02, 0.2)
    }
    result["trained"] = {
        name: spread([trained(seed, steps, equal=equal) for seed in range(seeds)])
        for name, equal in (("rows free", False), ("rows equal", True))
    }
    print(result)
    return result


def spread(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of every number."""
    return {name: mean_sd([row[name] for row in rows]) for name in rows[0]}


def sequences() -> tuple[np.ndarray, np.ndarray]:
    """All sequences (a, b, a, c), once for each place that is masked: ids and places."""
    every = np.array([(a, b, a, c) for a, b, c in itertools.product(range(TOKENS), repeat=3)])
    return np.repeat(every, LENGTH, axis=0), np.tile(np.arange(LENGTH), len(every))


def model_of(seed: int, scale: float) -> tuple[Any, Any]:
    config = TransformerConfig(
        vocab_size=TOKENS + 1, dim=WIDTH, num_layers=1, num_heads=1, init_scale=scale
    )
    encoding = encodings.learned(length=LENGTH, dim=WIDTH)
    encoder = Encoder(config, encoding=encoding, rngs=nnx.Rngs(seed))
    return functionalize(MaskedLM(encoder, rngs=nnx.Rngs(100 + seed)))


def loss_of(apply: Any) -> Any:
    """Expected cross-entropy of the masked token, as a function of parameters and P."""
    ids, place = sequences()
    rows = np.arange(len(ids))
    given = ids.copy()
    given[rows, place] = TOKENS  # [MASK]

    def loss(params: Any, P: jax.Array) -> jax.Array:
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: P if "table" in jax.tree_util.keystr(path) else leaf, params
        )
        logits = apply(params, jnp.asarray(given)).logits[rows, place]
        return optax.softmax_cross_entropy_with_integer_labels(logits, ids[rows, place]).mean()

    return loss


def forcing(seed: int, scale: float) -> dict[str, float]:
    """How b_0 differs from b_2, which differ by nothing, and from b_1, of no other position."""
    apply, params = model_of(seed, scale)
    b = -jax.jit(jax.grad(loss_of(apply), argnums=1))(params, jnp.zeros((LENGTH, WIDTH)))
    largest = jnp.linalg.norm(b, axis=1).max()
    return {
        "copied_and_copied": float(jnp.linalg.norm(b[0] - b[2]) / largest),
        "copied_and_alone": float(jnp.linalg.norm(b[0] - b[1]) / largest),
    }


def trained(seed: int, steps: int, *, equal: bool) -> dict[str, float]:
    """Loss and least distance of rows after Adam; with `equal` P is one row, repeated."""
    apply, params = model_of(seed, 0.2)
    loss, optimizer = loss_of(apply), optax.adam(3e-3)
    P = 0.2 * jax.random.normal(jax.random.key(seed), (1 if equal else LENGTH, WIDTH))

    def value(free: Any) -> jax.Array:
        return loss(free[0], jnp.broadcast_to(free[1], (LENGTH, WIDTH)))

    @jax.jit
    def run(free: Any) -> tuple[Any, jax.Array]:
        def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
            free, state = carry
            found, gradient = jax.value_and_grad(value)(free)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(free, updates), state), found

        (free, _), losses = jax.lax.scan(step, (free, optimizer.init(free)), length=steps)
        return free, losses

    (_, P), losses = run((params, P))
    rows = jnp.broadcast_to(P, (LENGTH, WIDTH))
    return {
        "loss": float(losses[-1]),
        "least_distance": float(geometry.min_separation(rows)),
    }


if __name__ == "__main__":
    main(experiment, "remark_19_equal_marginals")

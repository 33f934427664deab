"""Does the linearised model train as the real one does? Over time, and over width.

Transformers of two layers, 32 to 512 wide, of standard parametrisation (kernels N(0, 1/width)), on
32 sentences of SST-2 of up to 12 tokens and the squared error of ±1, by full-batch gradient descent
at half the largest stable rate, for 100 steps, 4 seeds: the real model, and its linearisation from
the same start. Once all parameters are trained, once the learned table of positions alone, which is
the case of the geometry paper.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments.common import Run, compacted, main
from experiments.learning import bert_vocabulary, labelled_sst2
from jaxpe import encodings
from jaxpe.nn import Classifier, Encoder, TransformerConfig, functionalize
from jaxpe.ntk import empirical_ntk, linearised_training, max_learning_rate

WIDTHS, SEEDS, STEPS = (32, 64, 128, 256, 512), 4, 100
SENTENCES, LENGTH = 32, 12
TRAINED = ("all", "positions")


def experiment(run: Run) -> dict[str, Any]:
    widths, seeds = ((16, 32), 2) if run.quick else (WIDTHS, SEEDS)
    batch, y, size = sentences()
    result: dict[str, Any] = {"steps": STEPS, "seeds": seeds, "trained": {}}
    for what in TRAINED:
        rows = []
        for width in widths:
            rows.append(trained(what, width, seeds, batch, y, size))
            print(what, width, rows[-1]["gap"][[1, 10, -1]], flush=True)
        result["trained"][what] = {"widths": rows, "power": powers(rows)}
        print(what, result["trained"][what]["power"], flush=True)
    return result


def sentences() -> tuple[dict[str, jax.Array], jax.Array, int]:
    """Tokens and masks, ±1, and the number of words in them."""
    train, _ = labelled_sst2(bert_vocabulary(), length=LENGTH)
    ids, mask = train.corpus.ids, train.corpus.mask
    long = np.flatnonzero(mask.sum(axis=1) >= LENGTH - 4)
    rows = np.sort(np.random.default_rng(0).permutation(long)[:SENTENCES])
    ids, size = compacted(ids[rows])
    batch = {"ids": jnp.asarray(ids), "mask": jnp.asarray(mask[rows])}
    return batch, jnp.asarray(2.0 * train.labels[rows, None] - 1.0, jnp.float32), size


def trained(
    what: str, width: int, seeds: int, batch: dict[str, jax.Array], y: jax.Array, size: int
) -> dict[str, Any]:
    """Both trainings from each start: the gap ‖f − f_lin‖/‖y‖, and how far parameters move."""
    run = jax.jit(partial(both, what, classifier(width, 0, size)))
    starts = [functionalize(classifier(width, seed, size))[1] for seed in range(seeds)]
    gaps, moved = zip(*(run(start, batch, y) for start in starts), strict=True)
    largest = np.max(gaps, axis=1)
    return {"width": width, "largest_gap": largest, "moved": moved, "gap": np.median(gaps, axis=0)}


def classifier(width: int, seed: int, size: int) -> Classifier:
    """With one output, the mean over tokens."""
    config = TransformerConfig(
        vocab_size=size,
        dim=width,
        num_layers=2,
        num_heads=4,
        init_scale=width**-0.5,
        embedding_scale=1.0,
    )
    encoding = encodings.learned(length=LENGTH, dim=width, stddev=1.0)
    encoder = Encoder(config, encoding=encoding, rngs=nnx.Rngs(2 * seed))
    return Classifier(encoder, num_classes=1, pooling="mean", rngs=nnx.Rngs(2 * seed + 1))


def both(
    what: str, model: Classifier, start: Any, batch: dict[str, jax.Array], y: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The model and its linearisation, from one start: gaps by step, and how far it moved."""
    graphdef, _ = nnx.split(model, nnx.Param)

    def f(params: Any, x: dict[str, jax.Array]) -> jax.Array:
        if what == "all":
            whole = nnx.merge(graphdef, params)
        else:
            whole = nnx.merge(graphdef, start)
            whole.encoder.encoding_params = nnx.Param({"table": params})
        return whole(x["ids"], mask=x["mask"]).logits

    def loss(outputs: jax.Array) -> jax.Array:
        return 0.5 * jnp.mean((outputs - y) ** 2)

    table = nnx.merge(graphdef, start).encoder.encoding_params.get_value()["table"]
    params = start if what == "all" else table
    kernel = empirical_ntk(f, batch, None, params, trace_axes=(), warn=False)
    optimizer = optax.sgd(0.5 * max_learning_rate(kernel))
    run = linearised_training(f, loss, params, batch, optimizer=optimizer, steps=STEPS)
    gap = run.output_distance * jnp.linalg.norm(f(params, batch)) / jnp.linalg.norm(y)
    return gap, run.moved[-1]


def powers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The exponent of width in the largest gap and in how far parameters move, by least squares."""
    x = np.log([row["width"] for row in rows])
    found = {}
    for name, key in (("gap", "largest_gap"), ("moved", "moved")):
        slopes = np.polyfit(x, np.log([row[key] for row in rows]), 1)[0]
        found[name] = {"mean": np.mean(slopes), "sd": np.std(slopes, ddof=1)}
    return found


if __name__ == "__main__":
    main(experiment, "linearised_training")

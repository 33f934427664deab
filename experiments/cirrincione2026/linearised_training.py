"""Does the linearised model train as the real one does? Over time, and over width.

Theirs (geometry paper, Sections 3 and A.4): the flow on positions is studied in the linearised
model, "exact in the infinite-width limit". Ours: transformers of two layers, 32 to 512 wide, of
standard parametrisation (kernels N(0, 1/width)), on 32 sentences of SST-2 of up to 12 tokens and
the squared error of ±1, by full-batch gradient descent (`optax.sgd`) at half the largest stable
rate, for 100 steps, 4 seeds: the real model, its linearisation from the same start, and the closed
form of gradient flow on its empirical kernel (`jaxpe.ntk.predict_mse`). Once all parameters are
trained, once the learned table of positions alone, which is the case of the paper.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxpe
from experiments.common import (
    BLUE,
    GREEN,
    GREY,
    SKY,
    VERMILION,
    Run,
    compacted,
    log_ticks,
    main,
    new_figure,
    save_figure,
)
from experiments.learning import bert_vocabulary, labelled_sst2
from jaxpe.nn import Classifier, Encoder, TransformerConfig, functionalize
from jaxpe.ntk import empirical_ntk, linearised_training, max_learning_rate, predict_mse

WIDTHS, SEEDS, STEPS = (32, 64, 128, 256, 512), 4, 100
SENTENCES, LENGTH = 32, 12
TRAINED = {"all": "all parameters", "positions": "positions alone"}


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
    draw(run, result)
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
    """Three trainings from each start: medians over starts of losses and of the gap by step.

    The gap is ‖f − f_lin‖/‖y‖.
    """
    run = jax.jit(partial(three, what, classifier(width, 0, size)))
    starts = [functionalize(classifier(width, seed, size))[1] for seed in range(seeds)]
    runs = [run(start, batch, y) for start in starts]
    found: dict[str, np.ndarray] = {k: np.asarray([run[k] for run in runs]) for k in runs[0]}
    return {
        "width": width,
        "largest_gap": found["gap"].max(axis=1),
        "moved": found["moved"],
        "rate": found["rate"],
        **{k: np.median(found[k], axis=0) for k in found if k == "gap" or k.endswith("losses")},
    }


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
    encoding = jaxpe.learned(length=LENGTH, dim=width, stddev=1.0)
    encoder = Encoder(config, encoding=encoding, rngs=nnx.Rngs(2 * seed))
    return Classifier(encoder, num_classes=1, pooling="mean", rngs=nnx.Rngs(2 * seed + 1))


def three(
    what: str, model: Classifier, start: Any, batch: dict[str, jax.Array], y: jax.Array
) -> dict[str, jax.Array]:
    """The model, its linearisation and the flow of its kernel, from one start."""
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
    rate = 0.5 * max_learning_rate(kernel)
    both = linearised_training(f, loss, params, batch, optimizer=optax.sgd(rate), steps=STEPS)
    outputs = f(params, batch)
    times = rate * jnp.arange(STEPS + 1, dtype=jnp.float32)
    flow = predict_mse(kernel, y, trace_axes=())(times, outputs).train
    return {
        "gap": both.output_distance * jnp.linalg.norm(outputs) / jnp.linalg.norm(y),
        "rate": rate,
        "moved": both.moved[-1],
        "losses": both.losses,
        "linear_losses": both.linear_losses,
        "flow_losses": jax.vmap(loss)(flow),
    }


def powers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The exponent of width in the largest gap and in how far parameters move, by least squares."""
    x = np.log([row["width"] for row in rows])
    found = {}
    for name, values in (
        ("gap", [row["largest_gap"] for row in rows]),
        ("moved", [row["moved"] for row in rows]),
    ):
        slopes = [np.polyfit(x, np.log(column), 1)[0] for column in np.transpose(values)]
        found[name] = {"mean": np.mean(slopes), "sd": np.std(slopes, ddof=1)}
    return found


def draw(run: Run, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "The gap to the linearised model falls with width, slower for positions alone",
        columns=3,
        width=10.2,
        height=3.5,
    )
    over_time, over_width, curves = axes[0]
    colours = {"all": BLUE, "positions": VERMILION}
    for what, colour in colours.items():
        rows = result["trained"][what]["widths"]
        for row, shade in zip(rows, np.linspace(0.3, 1, len(rows)), strict=True):
            label = TRAINED[what] if row is rows[-1] else None
            over_time.plot(row["gap"], color=colour, alpha=shade, lw=1.3, label=label)
        widths = [row["width"] for row in rows]
        largest = np.array([row["largest_gap"] for row in rows])
        over_width.loglog(widths, largest, ".", color=colour, alpha=0.6)
        over_width.loglog(
            widths,
            np.exp(np.log(largest).mean(axis=1)),
            color=colour,
            label=f"{TRAINED[what]}: width^{result['trained'][what]['power']['gap']['mean']:.2f}",
        )
        log_ticks(over_width, widths)
    over_time.set(xlabel="step", ylabel="‖f − f_lin‖/‖y‖", title="pale: narrow", ylim=(0, None))
    over_time.legend(fontsize=8.5)
    over_width.set(xlabel="width", ylabel="largest ‖f − f_lin‖/‖y‖")
    over_width.legend(fontsize=8.5)
    narrow, wide = (result["trained"]["positions"]["widths"][k] for k in (0, -1))
    for row, pair in ((narrow, (SKY, "--")), (wide, (GREEN, "-"))):
        real, linear, flow = (row[k] for k in ("losses", "linear_losses", "flow_losses"))
        curves.semilogy(real, pair[1], color=pair[0], label=f"{row['width']} wide")
        curves.semilogy(linear, pair[1], color=pair[0], alpha=0.5, lw=1)
        curves.semilogy(flow, ":", color=GREY, lw=1)
    curves.set(
        xlabel="step", ylabel="loss", title="positions alone\n(thin: linearised, dots: flow)"
    )
    curves.legend(fontsize=8.5)
    save_figure(run, "linearised_training", figure)


if __name__ == "__main__":
    main(experiment, "linearised_training")

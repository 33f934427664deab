"""Share of training that `PositionMonitor` takes with its default `every`, and what it holds.

    python -m experiments.benchmarks.monitor [--rounds N] [--quick] [--save]

The model, the batch and the step are those of `experiments.benchmarks.training_options` without
options: a causal decoder of 4 layers, 256 wide, with RoPE, AdamW, 8 rows of 256 tokens. A look runs
the model on 2 rows, and has all numbers of one layer, or of all four. The share is the time of a
look over that of `every` steps.
"""

import gc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxpe
from experiments.benchmarks import _contest as contest
from experiments.benchmarks.training_options import (
    DIM,
    HEADS,
    LAYERS,
    LENGTH,
    PLAIN,
    ROWS,
    VOCAB,
    training_step,
)
from jaxpe import nn
from jaxpe.conformance import PositionMonitor
from jaxpe.plans import simple_plan

WIDTH, LOOKED_AT = DIM // HEADS, 2
STEP, ONE, ALL = "step", "one layer", "all layers"


def looks(length: int) -> tuple[dict[str, Callable[[], Any]], int]:
    """Looks at one layer and at all, and the default `every`."""
    config = nn.TransformerConfig(vocab_size=VOCAB, dim=DIM, num_layers=LAYERS, num_heads=HEADS)
    decoder = nn.Decoder(config, encoding=jaxpe.rope(head_dim=WIDTH), rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(nn.CausalLM(decoder, rngs=nnx.Rngs(1)), nnx.Param)
    ids = np.random.default_rng(0).integers(0, VOCAB, (LOOKED_AT, length), dtype=np.int32)
    plan = simple_plan(head_dim=WIDTH, context=length)
    monitors = [PositionMonitor(plan, name=f"layer_{i}") for i in range(LAYERS)]

    @jax.jit
    def activations(params: Any, ids: Any) -> tuple[list[Any], Any]:
        model = nnx.merge(graphdef, params)
        output = model(ids, trace=True)
        hidden: Any = output.transformer.hidden_states
        pairs = []
        for i in range(LAYERS):
            block = jax.tree.map(lambda leaf, i=i: leaf[i], model.decoder.layers)
            x = block.attention_norm(hidden[i])
            heads = [part(x) for part in (block.attention.query, block.attention.key)]
            pairs.append([y.reshape(*ids.shape, HEADS, WIDTH) for y in heads])
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels
        return pairs, cross_entropy(output.logits[:, :-1], ids[:, 1:])

    def look(layers: int) -> dict[str, float]:
        pairs, losses = activations(params, jnp.asarray(ids))
        numbers: dict[str, float] = {}
        for monitor, (q, k) in zip(monitors[:layers], pairs, strict=False):
            numbers |= monitor.look(0, queries=q, keys=k, losses=losses)
        return numbers

    return {ONE: lambda: look(1), ALL: lambda: look(LAYERS)}, monitors[0].every


def arrays_held(run: Callable[[], Any]) -> int:
    """Number of arrays on the device after a call that were not there before."""
    run()
    gc.collect()
    before = {id(array) for array in jax.live_arrays()}
    run()
    gc.collect()
    return len({id(array) for array in jax.live_arrays()} - before)


def main() -> None:
    options = contest.options_of(__doc__, rounds=20)
    contest.keep_freed_memory()
    rows, length = (4, 64) if options.quick else (ROWS, LENGTH)
    step, _ = training_step(PLAIN, rows=rows, length=length)
    looked, every = looks(length)
    seconds = contest.measure({STEP: step, **looked}, options.rounds)
    found = contest.medians(seconds)
    result: dict[str, Any] = {"machine": contest.machine("flax", "optax"), "rounds": options.rounds}
    result["sizes"] = {"dim": DIM, "layers": LAYERS, "rows": rows, "length": length}
    result |= {"every": every, "seconds": found, "numbers": len(looked[ALL]())}
    result["share"] = {name: found[name] / (every * found[STEP]) for name in looked}
    result["arrays_held"] = arrays_held(looked[ALL])
    contest.finish("monitor", options, result)


if __name__ == "__main__":
    main()

"""What options of training cost: time and memory of a step, with one option at a time.

    python -m experiments.benchmarks.training_options [--rounds N] [--quick] [--save]

A causal decoder of 4 layers, 256 wide, with RoPE, AdamW and 8 rows of 256 tokens, float32 unless
said. Memory is what the compiled step allocates besides its arguments and results; the state is
what it keeps from step to step.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments.benchmarks import _contest as contest
from jaxpe import encodings, nn, training

VOCAB, DIM, LAYERS, HEADS, ROWS, LENGTH = 4000, 256, 4, 4, 8, 256
PLAIN = "plain"
# Options of the model, and those of the step.
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    PLAIN: ({}, {}),
    "accumulate=4": ({}, {"accumulate": 4}),
    "remat": ({"remat": True}, {}),
    "scan": ({"scan": True}, {}),
    "remat and scan": ({"remat": True, "scan": True}, {}),
    "bfloat16": ({"dtype": jnp.bfloat16}, {}),
    "average": ({}, {"average": 0.999}),
}
MIB = 2**20


def training_step(name: str, *, rows: int, length: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A step of one option, and its memory and the seconds to compile it."""
    model_options, step_options = OPTIONS[name]
    config = nn.TransformerConfig(
        vocab_size=VOCAB, dim=DIM, num_layers=LAYERS, num_heads=HEADS, **model_options
    )
    encoding = encodings.rope(head_dim=DIM // HEADS)
    model = nn.CausalLM(nn.Decoder(config, encoding=encoding, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
    apply, params = nn.functionalize(model)
    optimizer, options = training.adamw(1e-4), dict(step_options)
    if decay := options.pop("average", None):
        optimizer = optax.chain(optimizer, training.parameter_average(decay))
    step = training.step_function(training.causal_lm(apply), optimizer, **options)
    state = training.init_state(params, optimizer, key=jax.random.key(0))
    ids = np.random.default_rng(0).integers(0, VOCAB, (rows, length), dtype=np.int32)
    batch = {"ids": jnp.asarray(ids), "mask": jnp.ones(ids.shape, bool)}
    lowered = jax.jit(step, donate_argnums=0).lower(state, batch)
    run, seconds = contest.timed(lowered.compile)
    facts = {
        "seconds_to_compile": seconds,
        "mebibytes": run.memory_analysis().temp_size_in_bytes / MIB,
        "state_mebibytes": sum(x.nbytes for x in jax.tree.leaves(state)) / MIB,
    }

    def once() -> Any:
        nonlocal state
        state, metrics = run(state, batch)
        return metrics

    return once, facts


def main() -> None:
    options = contest.options_of(__doc__, rounds=12)
    contest.keep_freed_memory()
    jax.config.update("jax_enable_compilation_cache", False)  # compiling is measured
    rows, length = (4, 16) if options.quick else (ROWS, LENGTH)
    steps = {name: training_step(name, rows=rows, length=length) for name in OPTIONS}
    seconds = contest.measure({name: run for name, (run, _) in steps.items()}, options.rounds)
    result: dict[str, Any] = {"machine": contest.machine("flax", "optax"), "rounds": options.rounds}
    result["sizes"] = {"dim": DIM, "layers": LAYERS, "rows": rows, "length": length}
    result["seconds"] = contest.medians(seconds)[PLAIN]
    result["over_plain"] = contest.ratios(seconds, PLAIN)
    result["facts"] = {name: facts for name, (_, facts) in steps.items()}
    contest.finish("training_options", options, result)


if __name__ == "__main__":
    main()

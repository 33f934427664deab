"""Warm start: SmolLM2-135M-Instruct with another encoding and its own weights, trained a little.

The loss on held-out reviews of IMDB is measured before the swap, right after it, and after a few
updates of all parameters. RoPE, which is not swapped, is trained too: what it gains is the text's.
The model is looked for in JAXPE_MODELS_DIR, the texts in JAXPE_DATA_DIR.
"""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpe
from experiments.common import DataMissingError, Run, main
from jaxpe import nn, training
from jaxpe.data import load_corpus, tokenize

MODEL = "SmolLM2-135M-Instruct"
LENGTH, ROWS, HELD_OUT = 128, 2, 32
STEPS, RATE, WARMUP = 40, 2e-4, 4
YARN = (4.0, 8192)  # factor, and the context of the model


def rows(folder: Path, *, count: int) -> dict[str, np.ndarray]:
    """The first tokens of reviews that are long enough."""
    (tokenizer,) = [*folder.glob("*.gguf")] or [None]
    if tokenizer is None or not os.environ.get("JAXPE_DATA_DIR"):
        raise DataMissingError(f"{folder} or the folder JAXPE_DATA_DIR is not there")
    texts = load_corpus("imdb")
    drawn = np.random.default_rng(0).permutation(len(texts.documents))[: 3 * count]
    chosen = texts._replace(documents=[texts.documents[i] for i in drawn])
    tokens = tokenize(chosen, tokenizer=tokenizer, length=LENGTH)
    full = np.flatnonzero(tokens.mask.all(axis=1))[:count]
    return {"ids": tokens.ids[full], "mask": tokens.mask[full]}


def swapped(model: nn.CausalLM, encoding: jaxpe.encodings.Encoding | None) -> nn.CausalLM:
    if encoding is None:
        return model
    return nn.with_encoding(model, encoding, key=jax.random.key(0))


def trained(model: nn.CausalLM, data: dict[str, np.ndarray], *, steps: int) -> dict[str, Any]:
    """Held-out losses before and after training, and the loss of each step."""
    apply, params = nn.functionalize(model)
    held_out = training.in_order({k: x[:HELD_OUT] for k, x in data.items()}, batch_size=ROWS)
    rate = training.learning_rate_schedule(peak=RATE, steps=steps + 1, warmup=min(WARMUP, steps))
    optimizer = training.adamw(rate)
    step = training.train_step(training.causal_lm(apply), optimizer)
    state = training.init_state(params, optimizer, key=jax.random.key(0))
    batches = training.batches({k: x[HELD_OUT:] for k, x in data.items()}, batch_size=ROWS, seed=0)
    test = training.causal_lm(apply, train=False)
    before = training.evaluate(test, params, held_out)["loss"]
    end = training.fit(state, step, batches, steps=steps)
    after = training.evaluate(test, end.state.params, held_out)["loss"]
    return {"before": before, "after": after, "losses": [r["loss"] for r in end.history]}


def experiment(run: Run) -> dict[str, Any]:
    steps = 3 if run.quick else STEPS
    folder = Path(os.environ.get("JAXPE_MODELS_DIR", "."), MODEL)
    data = rows(folder, count=HELD_OUT + STEPS * ROWS)
    model = nn.load_causal_lm(folder)
    config = model.decoder.config
    fields = {"base": 100_000.0, "scaling": jaxpe.encodings.YarnScaling(*YARN)}
    encodings = {
        "rope": None,
        "yarn": jaxpe.encodings.rope(head_dim=config.head_width, **fields),
        "alibi": jaxpe.encodings.alibi(num_heads=config.num_heads),
        "none": jaxpe.encodings.identity(),
    }
    result: dict[str, Any] = {"sizes": {"length": LENGTH, "rows": ROWS, "steps": steps}}
    result["sizes"] |= {"held_out": HELD_OUT, "rate": RATE, "yarn": YARN[0]}
    for name, encoding in encodings.items():
        result[name] = trained(swapped(model, encoding), data, steps=steps)
        print(name, result[name]["before"], result[name]["after"], flush=True)
    return result


if __name__ == "__main__":
    main(experiment, "warm_start")

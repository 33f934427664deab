"""NoPE Theorems 1 and 2 (Kazemnejad et al. 2023) as running models, and what training finds.

Theirs: there are weights with which a causal decoder without positional encoding has absolute
positions after its first layer, and relative ones in the logits of every later layer. Ours: these
weights, set, with random content (`nn.nope_decoder`); the largest errors in three precisions; what
is in the third row where a hypothesis fails. Then whether training finds such weights: the R² of a
linear probe for positions, layer by layer, of small decoders with NoPE and RoPE as initialised,
half way and at the end of training on the next byte of the standard library's documentation.

Constructions: 3 layers, 16 wide, 2 heads. Trained models: 4 layers, 64 wide, 4 heads, rows of
<bos> and 63 bytes cut from running text wherever they fall, so that content does not tell the
position; 3 seeds, 1,000 steps of AdamW at 2e-3 with cosine decay, batches of 16. The probe leaves
out the place of <bos>, and sees rows that were not trained on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.common import (
    Run,
    main,
)
from experiments.learning import interval
from jaxpe import encodings, geometry, nn, theory, training
from jaxpe.data import load_tokens
from jaxpe.nn.constructions import content_logits
from jaxpe.theory.audit import Audit

DTYPES = {"bfloat16": jnp.bfloat16, "float32": jnp.float32, "float64": jnp.float64}
VOCABULARY, WIDTH = 50, 16
BOS, LENGTH, HEADS, DIM, LAYERS = 256, 64, 4, 64, 4  # of the trained models; bytes are 0 … 255
SEEDS, STEPS, BATCH = 3, 1000, 16


def experiment(run: Run) -> dict[str, Any]:
    lengths = (16,) if run.quick else (16, 64, 256, 1024, 2048)
    dtypes = ("float32",) if run.quick else DTYPES
    result = {
        "constructions": {
            name: {
                str(n): construction(n, DTYPES[name], keys=1 if run.quick else 3) for n in lengths
            }
            for name in dtypes
        },
        "controls": controls(8 if run.quick else 64),
        "probe": probes(quick=run.quick),
    }
    print(result["controls"])
    return result


def constructed(length: int, dtype: Any, key: jax.Array, **sizes: Any) -> nn.Decoder:
    sizes = {"vocab_size": VOCABULARY, "dim": WIDTH, "num_layers": 3, "num_heads": 2} | sizes
    return nn.nope_decoder(length=length, key=key, dtype=dtype, param_dtype=dtype, **sizes)


def random_rows(count: int, length: int) -> np.ndarray:
    """Random words, <bos> first."""
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (count, length), dtype=np.int32)
    ids[:, 0] = 0
    return ids


def construction(length: int, dtype: Any, *, keys: int) -> dict[str, Any]:
    """Both theorems, the worst of several random contents."""
    with jax.enable_x64(dtype == jnp.float64):
        audit = jax.jit(partial(audits, length, dtype))
        found = [audit(jax.random.key(k), random_rows(1, length)) for k in range(keys)]
    of_first, of_second = zip(*found, strict=True)
    return {
        "positions": max(float(audit.conclusions["h_3 = t"].lhs) for audit in of_first),
        "first_told_wrong": min(int(audit.measured["first told wrong"]) for audit in of_first),
        "logits": max(float(audit.conclusions["(36)"].lhs) for audit in of_second),
    }


def audits(length: int, dtype: Any, key: jax.Array, ids: jax.Array) -> tuple[Audit, Audit]:
    decoder = constructed(length, dtype, key)
    hidden, logits, weights = inside(decoder, ids)
    content = content_logits(decoder, hidden)
    return (
        theory.nope_theorem_1(hidden[1], weights[0, :, 0], ids),
        theory.nope_theorem_2(logits[1:], content, hidden[1:-1]),
    )


def inside(model: Any, ids: Any) -> tuple[Any, Any, Any]:
    """Hidden states, logits and weights of attention, by layer."""
    seen = model(ids, trace=True)
    return seen.hidden_states, seen.logits, seen.weights


def controls(length: int) -> dict[str, Any]:
    """What the third row holds after the first layer where a hypothesis fails."""
    decoder = constructed(length, jnp.float32, jax.random.key(0))
    encoder = nn.Encoder(decoder.config, rngs=nnx.Rngs(0))
    nnx.update(encoder, nnx.state(decoder))
    ids, half = random_rows(1, length), length // 2
    none, middle, second = ids.copy(), ids.copy(), ids.copy()
    none[:, 0] = middle[:, 0] = 1
    middle[:, half] = second[:, half] = 0
    causal, maskless = (jax.jit(partial(inside, model)) for model in (decoder, encoder))
    cases = {
        "as it should be": (causal, ids),
        "no <bos>": (causal, none),
        "<bos> in the middle": (causal, middle),
        "a second <bos>": (causal, second),
        "no causal mask": (maskless, ids),
    }
    found = {}
    for name, (run, row) in cases.items():
        hidden, _, weights = run(row)
        audit = theory.nope_theorem_1(hidden[1], weights[0, :, 0], row)
        found[name] = {
            "error": float(audit.conclusions["h_3 = t"].lhs),
            "told_wrong": float(audit.measured["positions told wrong"]),
        }
    return found


def probes(*, quick: bool) -> dict[str, Any]:
    """R² of position by layer: trained decoders, the same as initialised, and controls."""
    seeds, steps = (2, 4) if quick else (SEEDS, STEPS)
    train, judged = text_rows()
    found: dict[str, Any] = {}
    for name, encoding in (
        ("nope", encodings.identity()),
        ("rope", encodings.rope(head_dim=DIM // HEADS)),
    ):
        apply, params, losses = trained(encoding, train, seeds=seeds, steps=steps)
        for when, kept, loss in zip(("new", "half", "trained"), params, losses, strict=True):
            found[f"{name}_{when}"] = decodability(apply, kept, judged) | {"loss": loss}
        print(name, found[f"{name}_trained"], flush=True)
        if quick:
            return found
        if name == "nope":
            encoder = nn.functionalize(language_model(nn.Encoder, encoding, jax.random.key(0)))[0]
            found["encoder_new"] = decodability(encoder, params[0], judged)
    sizes = {"vocab_size": BOS + 1, "dim": DIM, "num_layers": LAYERS, "num_heads": HEADS}
    decoder = constructed(LENGTH, jnp.float32, jax.random.key(0), bos=BOS, **sizes)
    apply, params = nn.functionalize(decoder)
    found["constructed"] = decodability(apply, jax.tree.map(lambda x: x[None], params), judged)
    return found


def text_rows(length: int = LENGTH) -> tuple[np.ndarray, np.ndarray]:
    """Rows of <bos> and bytes `[rows, length]` from running text: to train on, and others."""
    corpus = load_tokens("stdlib", tokenizer="bytes", length=512)
    text, own = corpus.ids[corpus.mask], length - 1
    rows = text[: len(text) // own * own].reshape(-1, own)
    rows = np.pad(rows, ((0, 0), (1, 0)), constant_values=BOS)
    cut = len(rows) * 9 // 10
    apart = len(rows[cut:]) // 512  # so that neighbours are not of one document
    return rows[:cut], rows[cut :: max(apart, 1)][:512]


def language_model(kind: Any, encoding: encodings.Encoding, key: jax.Array) -> nn.CausalLM:
    config = nn.TransformerConfig(
        vocab_size=BOS + 1, dim=DIM, num_layers=LAYERS, num_heads=HEADS, scan=True
    )
    rngs = nnx.Rngs(key)
    return nn.CausalLM(kind(config, encoding=encoding, rngs=rngs), rngs=rngs)


def start_params(encoding: encodings.Encoding, seeds: int) -> Any:
    def one(key):
        return nn.functionalize(language_model(nn.Decoder, encoding, key))[1]

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), seeds))


def trained(
    encoding: encodings.Encoding, rows: np.ndarray, *, seeds: int, steps: int
) -> tuple[Callable[..., Any], list[Any], list[Any]]:
    """The model, parameters `[seeds, ...]` before, half way and after, losses in nats a byte."""
    apply = nn.functionalize(language_model(nn.Decoder, encoding, jax.random.key(0)))[0]
    schedule = training.learning_rate_schedule(
        peak=2e-3, steps=steps, warmup=steps // 20, decay="cosine"
    )
    optimizer = training.adamw(schedule, weight_decay=0.01)
    step = jax.vmap(training.step_function(training.causal_lm(apply), optimizer), in_axes=(0, None))
    params = start_params(encoding, seeds)
    keys = jax.random.split(jax.random.key(1), seeds)
    states = jax.vmap(lambda p, key: training.init_state(p, optimizer, key=key))(params, keys)

    @jax.jit
    def run(states, batches):
        def one(states, ids):
            states, metrics = step(states, {"ids": ids, "mask": jnp.ones(ids.shape, bool)})
            return states, metrics["loss"]

        return jax.lax.scan(one, states, batches)

    drawn = np.random.default_rng(2).integers(0, len(rows), (2, steps // 2, BATCH))
    kept, said = [params], []
    for half in drawn:
        states, losses = run(states, rows[half])
        kept.append(states.params)
        said += [losses[:1], losses[-max(steps // 10, 1) :]]
    return apply, kept, [summary(said[k].mean(axis=0)) for k in (0, 1, 3)]


def decodability(apply: Callable[..., Any], params: Any, rows: np.ndarray) -> dict[str, Any]:
    """R² of a linear probe, by layer: 0 is the embeddings."""
    r2 = np.array([by_layer(apply, one, rows)[0] for one in each(params)])  # [seeds, layers]
    return {"r2": [summary(layer) for layer in r2.T]}


@partial(jax.jit, static_argnums=0)
def by_layer(apply: Callable[..., Any], params: Any, rows: jax.Array) -> Any:
    seen = apply(params, rows, trace=True)
    hidden = getattr(seen, "transformer", seen).hidden_states
    # Without the place of <bos>, which its embedding tells.
    mask = jnp.broadcast_to(jnp.arange(rows.shape[1])[None, :] > 0, rows.shape)
    return jax.lax.map(lambda x: geometry.position_decodability(x, mask=mask), hidden)


def each(params: Any) -> list[Any]:
    seeds = len(jax.tree.leaves(params)[0])
    return [jax.tree.map(lambda x, k=k: x[k], params) for k in range(seeds)]


def summary(values: Any) -> dict[str, float]:
    """Mean over seeds and half of its 95 % interval."""
    values = [float(value) for value in values]
    return {"mean": float(np.mean(values)), "interval": interval(values)}


if __name__ == "__main__":
    main(experiment, "nope_constructions")

"""Encoder–decoder: Theorem 1 on each side, and reversal of strings at lengths not trained on.

Theorem 1 of Cirrincione (2026) is about an encoder. Ours: the largest deviation, relative to the
largest hidden state of the decoder, where the input is permuted (the decoder should not change) and
where the answer is permuted (the decoder without its causal mask should be permuted alike), with no
encoding, and with RoPE or T5's bias in the encoder, in the decoder's attention to itself, and
between the two. Width 64, 4 heads, two layers a side, random weights of standard deviation 0.2,
float64.

Reversal: strings of 1 to 8 of 8 words, answers scored whole, at length 8 and at 9, 10, 12 and 16,
for three triples of encodings (encoder, decoder, between), three seeds each. The width is 64, two
layers a side. Runs of a triple are trained side by side.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from scipy import stats

import jaxpe
from experiments.common import Run, main
from jaxpe import nn
from jaxpe.data import sequence_pairs, sequence_task
from jaxpe.training import adamw, init_state, learning_rate_schedule, step_function, translation

HEADS, HEAD_DIM, DIM = 4, 16, 64
ENCODINGS = {
    "none": jaxpe.identity(),
    "rope": jaxpe.rope(head_dim=HEAD_DIM),
    "t5": jaxpe.t5(num_heads=HEADS, stddev=0.5),
    "sinusoidal": jaxpe.sinusoidal(dim=DIM),
}
# Of the permutations: rows, tokens of the input and of the answer.
ROWS, INPUT, ANSWER, ORDERS = 4, 12, 9, 8
# Of the training.
WORDS, LONGEST, HELD_OUT = 8, 8, (8, 9, 10, 12, 16)
TRIPLES = {
    "T5's bias, T5's bias, none": ("t5", "t5", "none"),
    "RoPE, RoPE, RoPE": ("rope", "rope", "rope"),
    "sinusoidal, sinusoidal, none": ("sinusoidal", "sinusoidal", "none"),
}
STEPS, BATCH, RATE, SEEDS, EVERY, TESTED = 1500, 32, 3e-3, 3, 125, 512
BOS = 1


def experiment(run: Run) -> dict[str, Any]:
    with jax.enable_x64(True):
        invariance = {name: deviations(*sides) for name, sides in placed().items()}
    print(invariance, flush=True)
    trained = {}
    for name, sides in TRIPLES.items():
        trained[name] = reversal(sides, quick=run.quick)
        print(name, {n: found["mean"] for n, found in trained[name]["exact"].items()}, flush=True)
    sizes = {"permutations": ORDERS, "trained_lengths": LONGEST, "steps": STEPS, "seeds": SEEDS}
    return sizes | {"deviations": invariance, "reversal": trained}


def placed() -> dict[str, tuple[str, ...]]:
    """Encodings of the encoder, of the decoder and between them, one at a time."""
    found: dict[str, tuple[str, ...]] = {"none": ("none",) * 3}
    for place, where in enumerate(("encoder", "decoder", "cross")):
        for name in ("rope", "t5"):
            sides = tuple(name if side == place else "none" for side in range(3))
            found[f"{where}: {name}"] = sides
    return found


def deviations(encoder: str, decoder: str, cross: str) -> dict[str, float]:
    """How far the decoder's hidden states are from what a permutation of either side makes them."""
    config = nn.TransformerConfig(
        vocab_size=20,
        dim=DIM,
        num_layers=2,
        num_heads=HEADS,
        init_scale=0.2,
        embedding_scale=1.0,
        dtype=jnp.float64,
        param_dtype=jnp.float64,
        scan=True,
    )
    below = nn.Encoder(config, encoding=ENCODINGS[encoder], rngs=nnx.Rngs(0))
    own: Any = {"encoding": ENCODINGS[decoder], "cross_encoding": ENCODINGS[cross]}
    own["rngs"] = nnx.Rngs(1)  # of both, one after the other
    rng = np.random.default_rng(0)
    ids, answers = (rng.integers(0, 20, (ROWS, n)) for n in (INPUT, ANSWER))
    orders = [rng.permutation(INPUT) for _ in range(ORDERS)]
    others = [rng.permutation(ANSWER) for _ in range(ORDERS)]

    def hidden(side: Any, ids: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return np.asarray(side(answers, memory=nn.Memory(below(ids).hidden)).hidden)

    found = {}
    for name, kind in (("causal", nn.Decoder), ("no mask", nn.Encoder)):
        side = kind(config, **own)
        whole = hidden(side, ids, answers)
        size = np.abs(whole).max()
        moved = [hidden(side, ids[:, order], answers) - whole for order in orders]
        found[f"input, {name}"] = float(np.abs(moved).max() / size)
        moved = [hidden(side, ids, answers[:, order]) - whole[:, order] for order in others]
        found[f"answer, {name}"] = float(np.abs(moved).max() / size)
    return found


def model(sides: tuple[str, ...]) -> nn.Seq2SeqLM:
    """An encoder–decoder for the words of the task."""
    config = nn.TransformerConfig(
        vocab_size=TASK.vocab_size,
        dim=DIM,
        num_layers=2,
        num_heads=HEADS,
        hidden_dim=2 * DIM,
        norm="rms",
        use_bias=False,
        init_scale=DIM**-0.5,
        embedding_scale=1.0,
        logit_scale=DIM**-0.5,
    )
    encoder, decoder, cross = (ENCODINGS[name] for name in sides)
    if sides[1] == "t5":  # in a decoder no key is behind the query
        decoder = jaxpe.t5(num_heads=HEADS, bidirectional=False)
    below = nn.Encoder(config, encoding=encoder, rngs=nnx.Rngs(0))
    above = nn.Decoder(config, encoding=decoder, cross_encoding=cross, rngs=nnx.Rngs(1))
    return nn.Seq2SeqLM(nn.EncoderDecoder(below, above), rngs=nnx.Rngs(2))


TASK = sequence_task("reverse", vocabulary=WORDS)


def drawn(key: jax.Array, rows: int, length: int, *, exact: bool) -> dict[str, jax.Array]:
    """Inputs and answers of strings, without the padding that no row needs."""
    pairs = sequence_pairs(TASK.sample(key, rows=rows, length=length, exact=exact)["ids"])
    return {name: array[:, : length + 1] for name, array in pairs.items()}


def reversal(sides: tuple[str, ...], *, quick: bool) -> dict[str, Any]:
    """Share of strings reversed at each length: every seed, mean and interval."""
    seeds, steps = (2, 20) if quick else (SEEDS, STEPS)
    every = min(EVERY, steps)

    @jax.vmap
    def start(key: jax.Array) -> Any:
        return init_state(_initial(key, sides), optimizer, key=key)

    apply, _ = nn.functionalize(model(sides))
    schedule = learning_rate_schedule(peak=RATE, steps=steps, warmup=min(200, steps - 1))
    optimizer = adamw(schedule, weight_decay=0.0)
    step = step_function(translation(apply, bos_id=BOS), optimizer)

    def one(state: Any, _: None) -> tuple[Any, jax.Array]:
        key = jax.random.fold_in(state.key, 10**6 + state.step)
        state, metrics = step(state, drawn(key, BATCH, LONGEST, exact=False))
        return state, metrics["loss"]

    @jax.jit
    @jax.vmap
    def stretch(state: Any) -> tuple[Any, jax.Array]:
        return jax.lax.scan(one, state, None, every)

    judge = translation(apply, bos_id=BOS, train=False)

    @partial(jax.jit, static_argnames="length")
    def exact(params: Any, length: int) -> jax.Array:
        batch = drawn(jax.random.key(10**6 + length), TESTED, length, exact=True)
        return jax.vmap(lambda p: judge(p, batch, jax.random.key(0))[1]["exact"].mean)(params)

    state = start(jax.random.split(jax.random.key(0), seeds))
    for _ in range(steps // every):
        state, losses = stretch(state)
        print("-".join(sides), np.asarray(losses).mean(axis=1), flush=True)
    exactly = {str(n): interval(np.asarray(exact(state.params, n))) for n in HELD_OUT}
    return {"exact": exactly}


def _initial(key: jax.Array, sides: tuple[str, ...]) -> Any:
    """Parameters of a seed: those of the model, with normal numbers drawn anew for its matrices."""
    _, params = nnx.split(model(sides))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))

    def again(leaf: jax.Array, key: jax.Array) -> jax.Array:
        spread = jnp.std(leaf)
        return jnp.where(spread > 0, spread * jax.random.normal(key, leaf.shape), leaf)

    return jax.tree.unflatten(tree, [again(*pair) for pair in zip(leaves, keys, strict=True)])


def interval(values: np.ndarray) -> dict[str, Any]:
    """Mean over seeds with its 95 % interval, of Student's t, cut to shares."""
    mean = values.mean()
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    ends = [max(0.0, mean - half), min(1.0, mean + half)]
    return {"mean": float(mean), "interval": ends, "seeds": values.tolist()}


if __name__ == "__main__":
    main(experiment, "encoder_decoder")

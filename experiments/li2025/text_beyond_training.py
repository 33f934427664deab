"""Running text beyond the training length: encodings that Li (2025) names for later work.

Theirs: "Benchmark wavelet and Legendre encodings on real-world tasks", slopes of ALiBi adapted to
the length, convolutions "to encode local positional information"; a learned table that is read
beyond its end. Ours: the next byte of the standard library's documentation, decoders of
`nope_constructions` (4 layers, 64 wide) trained for 400 steps on rows of T = 64 and read at 2T and
4T. Rows of results that are there are kept.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import Run, main, plain
from experiments.kazemnejad2023.nope_constructions import (
    DIM,
    HEADS,
    LENGTH,
    SEEDS,
    each,
    language_model,
    summary,
    text_rows,
    trained,
)
from experiments.rows import add_row, read_rows
from jaxpe import encodings, nn
from jaxpe.encodings.base import Rows
from jaxpe.encodings.families.bias import alibi_slopes

STEPS, FACTORS, ROWS, WIDTH = 400, (1, 2, 4), 256, 4


def alibi(slowed: int = 1) -> encodings.Encoding:
    """ALiBi, its slopes divided by how many times T the rows are, as m = c/n has it."""
    return encodings.alibi(num_heads=HEADS, slopes=alibi_slopes(HEADS) / slowed)


def convolution() -> encodings.Encoding:
    """Embeddings plus a learned depthwise convolution over the last `WIDTH` of them."""

    def init(key):
        return {"kernel": 0.1 * jax.random.normal(key, (WIDTH, DIM))}

    def embed(params, x, positions):
        rows = Rows()
        return x + encodings.context.causal_convolution(x, params["kernel"], rows)[0]

    return encodings.Encoding(init=init, embed=embed)


def like_tokens(make: Any, **sizes: int) -> encodings.Encoding:
    """An encoding whose vectors are as long as token embeddings before training."""
    rows = make(dim=DIM, **sizes).vectors((), jnp.arange(LENGTH))
    norm = float(jnp.sqrt(jnp.mean(jnp.sum(rows**2, axis=-1))))
    return make(dim=DIM, **sizes, scale=nn.TransformerConfig.embedding_scale * DIM**0.5 / norm)


def table(step: float = 1.0, start: float = 0.0) -> encodings.Encoding:
    """A learned table of T rows; position i reads row step·i + start, between two or the last."""
    learned = encodings.learned(length=LENGTH, dim=DIM, interpolate=True)

    def embed(params, x, positions):
        return learned.embed(params, x, jnp.minimum(step * positions + start, LENGTH - 1))

    return learned._replace(embed=embed)


SLOTS = {"first": (1, 1), "moved": (1, LENGTH // 2), "spread": (2, 1)}  # step and start
ENCODINGS = {
    "none": encodings.identity(),
    "wavelet": like_tokens(encodings.wavelet, length=LENGTH),
    "legendre": like_tokens(encodings.legendre, length=LENGTH),
    "sinusoidal": like_tokens(encodings.sinusoidal),
    "alibi": alibi(),
    "convolution": convolution(),
    "learned": table(),
}
# How trained models are read at a multiple of T, where it is not as they were trained.
READ: dict[str, dict[str, Callable[[int], encodings.Encoding]]] = {
    "alibi": {"alibi": lambda factor: alibi(), "alibi, slopes c/n": alibi},
    "learned": {
        "learned, last row": lambda factor: table(),
        "learned, stretched": lambda factor: table((LENGTH - 1) / (factor * LENGTH - 1)),
    },
}


def experiment(run: Run) -> dict[str, Any]:
    path, seeds = run.out / "text_beyond_training.json", 2 if run.quick else SEEDS
    train, judged = text_rows(LENGTH)[0], text_rows(LENGTH * FACTORS[-1])[1][:ROWS]
    for name, encoding in list(ENCODINGS.items())[: 2 if run.quick else None]:
        read = READ.get(name, {name: lambda factor, e=encoding: e})
        if read.keys() <= read_rows(path).keys():
            continue
        params = trained(encoding, train, seeds=seeds, steps=4 if run.quick else STEPS)[1][-1]
        if name == "learned":
            add_row(path, ("slots",), plain(by_slots(params, judged)))
        for reading, encoding_at in read.items():
            add_row(path, (reading,), plain(beyond(encoding_at, params, judged)))
            print(reading, read_rows(path)[reading], flush=True)
    return read_rows(path)


def by_slots(params: Any, judged: np.ndarray) -> dict[str, Any]:
    """Nats a byte of rows of T/2 without <bos>, by the rows of the table they are given."""
    rows = judged[:, 1 : LENGTH // 2 + 1]
    by_slot = {
        name: [losses_at(table(*place), one, rows).mean() for one in each(params)]
        for name, place in SLOTS.items()
    }
    return {name: summary(losses) | {"seeds": losses} for name, losses in by_slot.items()}


def beyond(encoding_at: Any, params: Any, judged: np.ndarray) -> dict[str, Any]:
    """Nats a byte over seeds: of rows of T, of the second half of rows of 2T and of 4T."""
    parts = {}
    for factor in FACTORS:
        rows, first = judged[:, : factor * LENGTH], factor // 2 * LENGTH
        losses = [losses_at(encoding_at(factor), one, rows)[first:].mean() for one in each(params)]
        parts[str(factor)] = summary(losses) | {"seeds": losses}
    return parts


def losses_at(encoding: encodings.Encoding, params: Any, rows: np.ndarray) -> np.ndarray:
    """Mean loss of the byte that follows each place but the last."""
    apply = nn.functionalize(language_model(nn.Decoder, encoding, jax.random.key(0)))[0]

    @jax.jit
    def losses(params, ids):
        logs = jax.nn.log_softmax(apply(params, ids).logits[:, :-1].astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(logs, ids[:, 1:, None], axis=-1)[..., 0], axis=0)

    parts = [np.asarray(losses(params, part)) for part in np.split(rows, len(rows) // 64)]
    return np.mean(parts, axis=0)


if __name__ == "__main__":
    main(experiment, "text_beyond_training", grows=True)

"""Wavelets and Legendre polynomials on running text beyond the training length (Li 2025, outlook).

Theirs: "Benchmark wavelet and Legendre encodings on real-world tasks", and slopes of ALiBi adapted
to the length. Ours: the next byte of the standard library's documentation, decoders of
`nope_constructions` (4 layers, 64 wide) trained on rows of T = 64, read at 2T and 4T.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.common import Run, main
from experiments.kazemnejad2023.nope_constructions import (
    DIM,
    HEADS,
    LENGTH,
    SEEDS,
    STEPS,
    each,
    language_model,
    summary,
    text_rows,
    trained,
)
from jaxpe import nn

FACTORS = (1, 2, 4)
ROWS = 256


def alibi(slowed: int = 1) -> jaxpe.Encoding:
    """ALiBi, its slopes divided by how many times T the rows are, as m = c/n has it."""
    return jaxpe.alibi(num_heads=HEADS, slopes=jaxpe.encodings.alibi_slopes(HEADS) / slowed)


ENCODINGS = {
    "none": jaxpe.identity(),
    "sinusoidal": jaxpe.sinusoidal(dim=DIM),
    "wavelet": jaxpe.wavelet(dim=DIM, length=LENGTH),
    "legendre": jaxpe.legendre(dim=DIM, length=LENGTH),
    "alibi": alibi(),
}


def experiment(run: Run) -> dict[str, Any]:
    seeds, steps = (2, 4) if run.quick else (SEEDS, STEPS)
    train, judged = text_rows(LENGTH)[0], text_rows(LENGTH * FACTORS[-1])[1][:ROWS]
    found: dict[str, Any] = {}
    for name, encoding in list(ENCODINGS.items())[: 2 if run.quick else None]:
        params = trained(encoding, train, seeds=seeds, steps=steps)[1][-1]
        found[name] = beyond(lambda factor, e=encoding: e, params, judged)
        if name == "alibi":
            found["alibi, slopes c/n"] = beyond(alibi, params, judged)
        print(name, found[name], flush=True)
    return found


def beyond(encoding_at: Any, params: Any, judged: np.ndarray) -> dict[str, Any]:
    """Nats a byte at places up to T, T to 2T and 2T to 4T of rows of that length, over seeds."""
    parts = {}
    for factor in FACTORS:
        losses = [losses_at(encoding_at(factor), one, judged[:, : factor * LENGTH])
                  for one in each(params)]  # fmt: skip
        last = slice(0 if factor == 1 else (factor // 2 * LENGTH - 1), None)
        parts[str(factor)] = summary([loss[last].mean() for loss in losses])
        parts[str(factor)]["seeds"] = [float(loss[last].mean()) for loss in losses]
    return parts


def losses_at(encoding: jaxpe.Encoding, params: Any, rows: np.ndarray) -> np.ndarray:
    """Mean loss of the byte that follows each place but the last."""
    apply = nn.functionalize(language_model(nn.Decoder, encoding, jax.random.key(0)))[0]

    @jax.jit
    def losses(params, ids):
        logs = jax.nn.log_softmax(apply(params, ids).logits[:, :-1].astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(logs, ids[:, 1:, None], axis=-1)[..., 0], axis=0)

    parts = [np.asarray(losses(params, part)) for part in np.split(rows, len(rows) // 64)]
    return np.mean(parts, axis=0)


if __name__ == "__main__":
    main(experiment, "text_beyond_training")

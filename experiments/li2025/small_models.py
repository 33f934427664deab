"""Two remarks of Li (2025), tried on models of its Section 7 (`theory_bounds.py`), five seeds.

Theirs: a relative encoding may struggle to label the first quarter of a sequence (Section 3.4);
learned tables need regularisation, such as weight decay (Section 4.2). Ours: labels of the first
quarter of T = 16 random numbers, with and without a first number that marks the start, read on
such rows and on rows of one number; running sums from 20 or 200 rows, with decay of the table.
"""

from typing import Any

import jax
import numpy as np
import optax

from experiments.common import Run, main
from experiments.kazemnejad2023.nope_constructions import summary
from experiments.li2025.theory_bounds import DIM, ENCODINGS, STEPS, T, Trained, data, train
from jaxpe import encodings

SEEDS, ROWS, TESTS, MARK = 5, 10_000, 1_000, 3.0
KINDS = {name: ENCODINGS[name] for name in ("none", "alibi", "shaw", "sinusoidal")}
KINDS["shaw, logits alone"] = lambda: encodings.shaw(head_dim=DIM, max_distance=T, values=False)
DECAYS, FEW = (0.0, 0.1, 1.0, 10.0), (20, 200)


def experiment(run: Run) -> dict[str, Any]:
    sizes = {"steps": 5, "seeds": 2} if run.quick else {"steps": STEPS, "seeds": SEEDS}
    names, decays = (list(KINDS)[:1], DECAYS[:2]) if run.quick else (KINDS, DECAYS)
    return {
        "first_quarter": {name: first_quarter(name, **sizes) for name in names},
        "weight_decay": {
            str(few): {str(by): weight_decay(few, by, **sizes) for by in decays} for few in FEW
        },
    }


def first_quarter(name: str, **sizes: Any) -> dict[str, Any]:
    """Shares of labels that are right, trained without a marked start and with one."""
    labels = np.arange(T)[:, None] < T / 4
    found = {}
    for start in ("plain", "marked"):
        x, random, equal = (data(rows, seed=k)[0] for k, rows in enumerate((ROWS, TESTS, TESTS)))
        equal[:] = equal[:, :1]
        for rows in (x, random, equal) * (start == "marked"):
            rows[:, 0] = MARK
        y = np.broadcast_to(labels, x.shape).astype(np.float32)
        trained = train(KINDS[name], False, rows=(x, y), **sizes)
        right = [(outputs(trained, rows) > 0.5) == labels for rows in (random, equal)]
        shares = [summary(values.mean(axis=(1, 2, 3))) for values in right]
        found[start] = dict(zip(("random", "equal"), shares, strict=True))
        print(name, start, found[start], flush=True)
    return found


def outputs(trained: Trained, x: np.ndarray) -> np.ndarray:
    """Outputs `[seeds, rows, T, 1]`."""
    return np.asarray(jax.jit(jax.vmap(lambda p: trained.apply(p, x).logits))(trained.params))


def weight_decay(few: int, weight: float, **sizes: Any) -> dict[str, Any]:
    """Errors on running sums, and the norm of the largest row of the table."""

    def of_table(params: Any) -> Any:
        names = jax.tree_util.keystr
        return jax.tree.map_with_path(lambda at, _: "encoding_params" in names(at), params)

    seen, test = data(few, seed=0), data(TESTS, seed=1)
    decay = optax.masked(optax.add_decayed_weights(weight), of_table)
    trained = train(ENCODINGS["learned"], False, rows=seen, transform=decay, **sizes)
    table = trained.params["transformer"]["encoding_params"].get_value()["table"]
    found = {"row": np.linalg.norm(table, axis=2).max(axis=1)}
    for name, (x, y) in (("train", seen), ("test", test)):
        found[name] = np.mean((outputs(trained, x) - y) ** 2, axis=(1, 2, 3))
    print(few, weight, found, flush=True)
    return {name: summary(values) for name, values in found.items()}


if __name__ == "__main__":
    main(experiment, "small_models")

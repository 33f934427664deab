"""What the checks of `jaxpe.conformance` find of 80 faults, and the usual test beside them.

Each fault is one of a public thread (`mutants.toml`), put into a port of a layer in plain NumPy. It
is found if a check fails, and named right if the first named fault is one that is expected. The
usual test compares logits of a small random model on a prompt of 8 tokens, in one row, to 10⁻³. A
longer one also generates 8 tokens greedily through a cache. Right ports, and implementations of
others (`right.py`), must give no alarm. Those of torch were checked at commit 57ed9de, by a script
that it has; their rows are kept.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import RESULTS, Run, main
from experiments.conformance.models import LAYERS, Layer, Port
from experiments.conformance.mutants import MUTANTS, Mutant
from experiments.conformance.right import IMPLEMENTATIONS
from experiments.rows import read_rows
from jaxpe.conformance import alibi_bias, check_attention, check_rotary, t5_bias
from jaxpe.conformance.result import Conformance
from jaxpe.plans import read_config
from jaxpe.plans.result import LayerPlan

TORCH = ("transformers, ", "x-transformers, ", "rotary-embedding-torch")
PROMPT, WORDS, WIDTH, CLOSE = 8, 24, 64, 1e-3


def plan_of(layer: Layer) -> LayerPlan:
    """Plan of a layer from its configuration; biases need the width of the head."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(layer.config))
        return read_config(path).plan()[layer.plan]._replace(head_dim=layer.width)


def rotary_result(port: Port) -> Conformance:
    """Checks of a port's rotation."""
    return check_rotary(port.rotary, plan_of(port.layer))


def attention_result(port: Port, *, path: str | None = None) -> Conformance:
    """Checks of a port's attention, with one other path or all of them."""
    layer, bias = port.layer, None
    if layer.scheme in ("alibi", "t5"):
        bias = alibi_bias(layer.heads) if layer.scheme == "alibi" else t5_bias(Port(layer).table)
    paths = {name: call for name, call in port.paths().items() if path in (None, name)}
    return check_attention(
        port.attend, plan_of(layer), heads=layer.heads, key_value_heads=layer.key_value_heads,
        paths=paths, bias=bias, scale=1.0 if layer.scheme == "t5" else None,
    )  # fmt: skip


def result_of(mutant: Mutant) -> Conformance:
    """Checks of a mutant where its fault lives."""
    if mutant.path == "rotary":
        return rotary_result(mutant.port())
    return attention_result(mutant.port(), path=mutant.path)


class Model:
    """Small random language model around a port."""

    def __init__(self, port: Port):
        rng, layer = np.random.default_rng(3), port.layer
        keys = layer.key_value_heads * layer.width

        def weights(*shape: int) -> np.ndarray:
            return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

        self.port, self.words = port, 8 * weights(WORDS, WIDTH)
        self.projections = (
            weights(WIDTH, layer.heads * layer.width),
            weights(WIDTH, keys),
            weights(WIDTH, keys),
        )
        self.out, self.last = weights(layer.heads * layer.width, WIDTH), weights(WIDTH, WORDS)

    def logits(self, ids: np.ndarray, attend: Callable[..., Any]) -> np.ndarray:
        """Logits of a row of tokens, `[n, words]`."""
        n, layer, x = len(ids), self.port.layer, self.words[ids]
        counts = layer.heads, layer.key_value_heads, layer.key_value_heads
        q, k, v = (
            (x @ w).reshape(1, n, heads, -1)
            for w, heads in zip(self.projections, counts, strict=True)
        )
        positions = np.arange(n)[None]
        positions = np.repeat(positions[..., None], 3, -1) if layer.axes else positions
        return attend(q, k, v, positions)[0].reshape(n, -1) @ self.out @ self.last

    def generated(self, ids: np.ndarray, count: int) -> np.ndarray:
        """Tokens that it generates greedily through its cache."""
        decode = partial(self.port.decode, prompt=len(ids))
        for _ in range(count):
            ids = np.append(ids, self.logits(ids, decode)[-1].argmax())
        return ids


def usual_tests(mutant: Mutant) -> dict[str, bool]:
    """Whether the usual test finds a mutant: logits of a prompt, and generated tokens as well."""
    right, wrong = Model(Port(LAYERS[mutant.layer])), Model(mutant.port())
    ids = np.random.default_rng(4).integers(0, WORDS, PROMPT)
    one, other = (model.logits(ids, model.port.attend) for model in (right, wrong))
    logits = not np.allclose(one, other, atol=CLOSE, rtol=CLOSE)
    tokens = (right.generated(ids, PROMPT) != wrong.generated(ids, PROMPT)).any()
    return {"logits": logits, "tokens": bool(logits or tokens)}


def row_of(mutant: Mutant) -> dict[str, Any]:
    """What the checks and the usual test say of one mutant."""
    result = result_of(mutant)
    return {
        "layer": mutant.layer, "path": mutant.path, "thread": mutant.thread, "text": mutant.text,
        "found": not result.passed, "named": mutant.names(result),
        "faults": [one.text for one in result.faults[:2]], **usual_tests(mutant),
    }  # fmt: skip


def right_rows() -> dict[str, Any]:
    """Right implementations: ports, others in NumPy and JAX, and those of torch as stored."""
    results: dict[str, Conformance] = {}
    for name, layer in LAYERS.items():
        if layer.scheme == "rotary":
            results[f"port of {name}, rotation"] = rotary_result(Port(layer))
        results[f"port of {name}, attention"] = attention_result(Port(layer))
    results |= {name: check() for name, check in IMPLEMENTATIONS.items()}
    rows = {
        name: {"passed": one.passed, "faults": [fault.text for fault in one.faults]}
        for name, one in results.items()
    }
    stored = read_rows(RESULTS / "mutation.json")["right"]
    return rows | {name: row for name, row in stored.items() if name.startswith(TORCH)}


def experiment(run: Run) -> dict[str, Any]:
    start = time.perf_counter()
    rows = {one.name: row_of(one) for one in MUTANTS}
    seconds = time.perf_counter() - start
    for name, row in rows.items():
        if not row["named"]:
            print(name, row["found"], row["faults"], flush=True)
    count = {
        key: sum(row[key] for row in rows.values())
        for key in ("found", "named", "logits", "tokens")
    }
    right = right_rows()
    return {
        "mutants": rows,
        "count": {"mutants": len(rows), "threads": len({m.thread for m in MUTANTS}), **count},
        "paths": dict(Counter(one.path for one in MUTANTS)),
        "right": right,
        "alarms": sum(not row["passed"] for row in right.values()),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    main(experiment, "mutation")

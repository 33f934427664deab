"""How far tiny checkpoints are from what transformers and llama.cpp compute of them."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxpe.nn import (
    load_causal_lm,
    load_masked_lm,
    load_model,
    padded_positions,
    save_huggingface,
)
from jaxpe.nn.checkpoints.architecture import text_fields
from tests.nn.stored import tensors
from tools.parity.make_gguf_models import CASES, write_gguf_model
from tools.parity.make_models import ALONE, FOLDER, HERE, IDS, MASK, PADS, N

HF = dict(np.load(HERE / "models.npz"))
GGUF = dict(np.load(HERE / "gguf_models.npz"))
ROWS = IDS.astype(np.int32)
WIDTH = 2  # tokens that enter a cache at once
Errors = dict[str, float]


@functools.partial(jax.jit, static_argnums=0)
def _run(graphdef, params, ids, mask, positions, cache=None):
    """Logits, the last hidden states, those after the first layer, and the cache."""
    model = nnx.merge(graphdef, params)
    options = {"mask": mask, "positions": positions}
    if cache is not None:
        out = model(ids, cache=cache, **options)
        return out.logits, None, None, out.transformer.cache
    out = model(ids, trace=True, **options)
    below = getattr(out, "transformer", out)
    logits = below.hidden if below is out else out.logits
    return logits, below.hidden, below.hidden_states[1], None


def _both_sides(model, first) -> tuple:
    """Rows with a first mask, and the same with padding on the left."""
    mask = np.concatenate([first, MASK])
    ids = np.where(mask, np.concatenate([ROWS, ROWS]), 0)
    return _run(*nnx.split(model), ids, mask, np.asarray(padded_positions(mask)))[:3]


def _apart(ours: Any, theirs: np.ndarray) -> float:
    """The largest difference; that of NaN is infinite."""
    difference = np.abs(np.asarray(ours, np.float64) - theirs)
    return float(np.nan_to_num(difference, nan=np.inf).max())


def decoder_errors(name: str, scratch: Path, *, cached: bool = True) -> Errors:
    """Largest differences of hidden states, logits, through a cache, with padding, saved again."""
    model = load_causal_lm(FOLDER / name)
    logits, hidden, state = _both_sides(model, np.ones_like(MASK))
    layers = (_apart(hidden[:2], HF[f"{name}_hidden"]), _apart(state[:2], HF[f"{name}_state"]))
    steps = _cached(model, HF[f"{name}_logits"]) if cached else [(0.0, False), (0.0, True)]
    return {
        "hidden": max(layers),
        "logits": _apart(logits[:2], HF[f"{name}_logits"]),
        "cache": max(error for error, padded in steps if not padded),
        "padding_right": max(error for error, padded in steps if padded),
        "padding_left": _apart(logits[3, PADS:], HF[f"{name}_left"]),
        "saved": _saved(name, model, load_model, scratch),
    }


def _cached(model: Any, wanted: np.ndarray) -> list[tuple[float, bool]]:
    """Differences by row of each step; the second row is padded, and one token behind from there.

    Padding is on the right of the tokens that enter first.
    """
    cache = model.decoder.empty_cache(batch=2, slots=N)
    rows, behind = np.arange(2)[:, None], np.array([[0], [1]])
    valid = np.array([[True, True], [True, False]])
    found = []
    for start in range(0, N, WIDTH):
        at = start + np.arange(WIDTH) - (behind if start else 0)
        ids = np.where(valid, ROWS[rows, at], 0)
        inputs = (ids, valid, at.astype(np.int32), cache)
        logits, _, _, cache = _run(*nnx.split(model), *inputs)
        ours, theirs = np.asarray(logits), wanted[rows, at]
        found += [(_apart(ours[i, valid[i]], theirs[i, valid[i]]), i == 1) for i in range(2)]
        valid = np.ones_like(valid)
    return found


@functools.partial(jax.jit, static_argnums=0)
def _logits(graphdef, params, ids):
    return nnx.merge(graphdef, params)(ids).logits


def gguf_errors(name: str, scratch: Path) -> Errors:
    """Largest differences of logits from transformers, of log-probabilities from llama.cpp."""
    found = tensors(FOLDER / CASES[name][0])
    model = load_causal_lm(write_gguf_model(scratch / f"{name}.gguf", name, found))
    logits = np.asarray(_logits(*nnx.split(model), ROWS), np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return {
        "transformers": _apart(logits, GGUF[f"{name}_transformers"]),
        "llama_cpp": _apart(logprobs, GGUF[f"{name}_llama_cpp"]),
    }


def encoder_errors(name: str, scratch: Path) -> Errors:
    """The same of an encoder, which has no cache."""
    load = load_model if name in ALONE else load_masked_lm
    model = load(FOLDER / name)
    found = dict(zip(("logits", "hidden", "state"), _both_sides(model, MASK[:, ::-1]), strict=True))
    by_side: Errors = {}
    for side, mask, rows in (("", MASK[:, ::-1], slice(2)), ("left_", MASK, slice(2, 4))):
        for key, ours in found.items():
            stored = "hidden" if name in ALONE and key == "logits" else key
            theirs = HF[f"{name}_{side}{stored}"][mask]
            by_side[side + key] = _apart(np.asarray(ours)[rows][mask], theirs)
    return {
        "hidden": max(by_side["hidden"], by_side["state"]),
        "logits": by_side["logits"],
        "padding_right": max(by_side[key] for key in ("hidden", "logits")),
        "padding_left": max(by_side[f"left_{key}"] for key in ("hidden", "logits")),
        "saved": _saved(name, model, load, scratch),
    }


def _saved(name: str, model: Any, load: Any, scratch: Path) -> float:
    """The largest difference of a parameter, saved and loaded again; infinite for other fields."""
    save_huggingface(model, scratch / name)
    written, given = (json.loads((f / name / "config.json").read_text()) for f in (scratch, FOLDER))
    again = load(scratch / name)
    same = written == text_fields(given) | {"dtype": "float32"}
    leaves = [jax.tree.leaves(nnx.state(m, nnx.Param)) for m in (model, again)]
    return max(_apart(a, np.asarray(b)) for a, b in zip(*leaves, strict=True)) if same else np.inf

"""Released decoders and a small T5 against transformers, in one run: values and times.

    python -m experiments.benchmarks.models [--peer PYTHON] [--rounds 5] [--quick] [--save]

The models of `experiments/fetch_models.py` in JAXPE_MODELS_DIR that are .gguf files, which both
read, on the first reviews of IMDB in JAXPE_DATA_DIR. Differences are of logits in float32, at once
over a row longer than the windows of Gemma. Prefill is one pass over a prompt that fills a cache,
and the logits of the next token; generation is that and so many tokens more. T5 has random weights;
its prefill is the encoder. Seconds are by the clock and of the processors.

The peer runs under a Python with torch, transformers, accelerate and gguf (`--peer`; this one by
default), each stage in a process of its own.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.benchmarks import _contest as contest
from jaxpe.data import load_corpus, open_tokenizer
from jaxpe.nn import CausalLM, generate, load_causal_lm, load_seq2seq_lm

NAMES = ("SmolLM2-135M-Instruct", "gemma-3-270m")
LENGTH, PROMPT, STEPS, DOCUMENTS = 640, 128, 32, 32
T5_VOCABULARY = 8000
KINDS = ("clock", "cpu")


class Peer:
    """Stages of one model in transformers."""

    def __init__(self, python: str, model: str, folder: Path) -> None:
        self.python, self.model, self.folder = python, model, folder
        self.versions: dict[str, str] = {}

    def worker(self, stage: str, ids: np.ndarray) -> tuple[contest.Worker, np.ndarray]:
        """A process that runs a stage, and what it computes."""
        given, out = self.folder / "ids.npy", self.folder / "out.npy"
        np.save(given, ids)
        sizes = {"model": self.model, "stage": stage, "ids": str(given), "out": str(out)}
        sizes |= {"folder": str(self.folder), "steps": STEPS}
        worker = contest.torch_worker(self.python, "_torch_models", sizes)
        self.versions = {name: worker.about[name] for name in ("torch", "transformers")}
        return worker, np.load(out)

    def values(self, stage: str, ids: np.ndarray) -> np.ndarray:
        worker, values = self.worker(stage, ids)
        worker.close()
        return values

    def ratios(
        self, stage: str, ids: np.ndarray, ours: Callable[[], Any], rounds: int
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Medians of rounds that take turns, how many times as long it takes, and its values."""
        worker, values = self.worker(stage, ids)
        runs = {"transformers": worker, "jaxpe": partial(contest.cost, ours)}
        taken = contest.take_turns(runs, rounds, warm_up=1)
        worker.close()
        by_round = taken["transformers"] / taken["jaxpe"]
        named = lambda pair: dict(zip(KINDS, map(float, pair), strict=True))  # noqa: E731
        return {
            "seconds": {name: named(np.median(pairs, axis=0)) for name, pairs in taken.items()},
            "ratio": named(np.median(by_round, axis=0)),
            "rounds": [named(pair) for pair in by_round],
        }, values


def differences(found: Any, wanted: np.ndarray) -> dict[str, float]:
    """Of logits: the largest one, beside the largest logit, and where the likeliest is the same."""
    found = np.asarray(found)
    return {
        "largest": float(np.abs(found - wanted).max()),
        "largest_logit": float(np.abs(wanted).max()),
        "same_likeliest": float((found.argmax(-1) == wanted.argmax(-1)).mean()),
    }


def reader(model: CausalLM, slots: int) -> Callable[[np.ndarray], Any]:
    """Logits of the next token `[1, vocab]`, and the cache that a prompt fills."""
    graphdef, params = nnx.split(model)

    @jax.jit
    def read(params, ids):
        model = nnx.merge(graphdef, params)
        below = model.decoder(ids, cache=model.decoder.empty_cache(batch=1, slots=slots))
        return model.head(below.hidden[:, -1]), below.cache

    return partial(read, params)


def decoder(folder: Path, peer: Peer, rounds: int) -> dict[str, Any]:
    """Differences and ratios of a released decoder."""
    (path,) = folder.glob("*.gguf")
    text = "\n".join(load_corpus("imdb").documents[:DOCUMENTS])
    row = open_tokenizer(path).encode([text], length=LENGTH)[0]
    prompt = row[:, :PROMPT]
    ours = load_causal_lm(folder)
    graphdef, params = nnx.split(ours)
    at_once = jax.jit(lambda p, ids: nnx.merge(graphdef, p)(ids).logits)
    found: dict[str, Any] = differences(at_once(params, row), peer.values("logits", row))
    read = partial(reader(ours, PROMPT + STEPS), prompt)
    found["prefill"], _ = peer.ratios("prefill", prompt, read, rounds)
    generation = partial(generate, ours, prompt, steps=STEPS)
    found["generation"], text = peer.ratios("generation", prompt, generation, rounds)
    found["same_generated"] = int((text[0] == np.asarray(generation())[0]).sum())
    return found


def t5(peer: Peer, rounds: int) -> dict[str, Any]:
    """An encoder–decoder with random weights; its prefill is the encoder."""
    row = np.random.default_rng(0).integers(2, T5_VOCABULARY, (1, PROMPT)).astype(np.int32)
    wanted = peer.values("logits", row)
    ours, start = load_seq2seq_lm(peer.folder), np.zeros((1, 1), np.int32)
    graphdef, params = nnx.split(ours)
    logits = jax.jit(lambda p: nnx.merge(graphdef, p)(row, start).logits)(params)
    encode = jax.jit(lambda p, ids: nnx.merge(graphdef, p).transformer.encode(ids))
    calls: dict[str, Callable[[], Any]] = {
        "prefill": partial(encode, params, row),
        "generation": partial(generate, ours, row, steps=STEPS, start_id=0),
    }
    times = {name: peer.ratios(name, row, call, rounds)[0] for name, call in calls.items()}
    return differences(logits, wanted) | times


def main() -> None:
    options = contest.options_of(__doc__, rounds=5, peer=sys.executable)
    rounds = 1 if options.quick else options.rounds
    models = Path(os.environ["JAXPE_MODELS_DIR"])
    result: dict[str, Any] = {"machine": contest.machine(), "rounds": rounds}
    result |= {"prompt": PROMPT, "steps": STEPS, "models": {}}
    for name in [name for name in NAMES if any((models / name).glob("*.gguf"))] + ["t5"]:
        with tempfile.TemporaryDirectory() as folder:
            model = "t5" if name == "t5" else str(models / name)
            peer = Peer(options.peer, model, Path(folder))
            found = t5(peer, rounds) if name == "t5" else decoder(models / name, peer, rounds)
        result["models"][name] = found
        result["versions"] = peer.versions
        print(name, json.dumps(result["models"][name]), flush=True)
    contest.finish("models", options, result)


if __name__ == "__main__":
    main()

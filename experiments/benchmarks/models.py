"""Released decoders and a small T5 against transformers, in one run: values and times.

    python -m experiments.benchmarks.models [--rounds 5] [--quick] [--save]

The models of `experiments/fetch_models.py` in JAXPE_MODELS_DIR that are .gguf files, which both
read, on the first reviews of IMDB in JAXPE_DATA_DIR. Differences are of logits in float32, at once
over a row longer than the windows of Gemma. Prefill is one pass over a prompt that fills a cache,
and the logits of the next token; generation is that and so many tokens more. T5 has random weights;
its prefill is the encoder. Seconds are by the clock and of the processors. Decoders also prefill
long prompts, and read a longer one alone, in processes that tell their peak memory. It needs torch,
transformers, accelerate and gguf.
"""

import importlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.benchmarks import _contest as contest
from jaxpe.data import load_corpus
from jaxpe.nn import CausalLM, generate, load_causal_lm, load_seq2seq_lm

NAMES = ("SmolLM2-135M-Instruct", "gemma-3-270m")
LENGTH, PROMPT, STEPS, DOCUMENTS = 640, 128, 32, 32
LONG_PROMPTS, READ = (512, 2048, 4096), 32768
T5 = {"vocab_size": 8000, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}
GREEDY = {"max_new_tokens": STEPS, "min_new_tokens": STEPS, "do_sample": False}
KINDS = ("clock", "cpu")


def ratios(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Medians of rounds that take turns, and how many times as long transformers takes."""

    def timed(run: Callable[[], Any]) -> Callable[[], tuple[float, float]]:
        def seconds() -> tuple[float, float]:
            cpu = time.process_time()
            clock = contest.seconds_of(run)
            return clock, time.process_time() - cpu

        return seconds

    runs = {name: timed(call) for name, call in calls.items()}
    taken = contest.take_turns(runs, rounds, warm_up=1)
    by_round = taken["transformers"] / taken["jaxpe"]
    named = lambda pair: dict(zip(KINDS, map(float, pair), strict=True))  # noqa: E731
    return {
        "seconds": {name: named(np.median(pairs, axis=0)) for name, pairs in taken.items()},
        "ratio": named(np.median(by_round, axis=0)),
        "rounds": [named(pair) for pair in by_round],
    }


def compared(found: Any, wanted: Any, rounds: int, **calls: dict[str, Callable]) -> dict[str, Any]:
    """Differences of logits, and ratios of each pair of calls."""
    found, wanted = np.asarray(found), wanted.numpy()
    values = {"largest": np.abs(found - wanted).max(), "largest_logit": np.abs(wanted).max()}
    values["same_likeliest"] = (found.argmax(-1) == wanted.argmax(-1)).mean()
    times = {name: ratios(pair, rounds) for name, pair in calls.items()}
    return {name: float(value) for name, value in values.items()} | times


def reader(model: CausalLM, slots: int | None) -> Callable[[np.ndarray], Any]:
    """Logits of the next token `[1, vocab]`, and the cache; none is filled when slots are None."""
    graphdef, params = nnx.split(model)

    @jax.jit
    def read(params, ids):
        model = nnx.merge(graphdef, params)
        cache = None if slots is None else model.decoder.empty_cache(batch=1, slots=slots)
        below = model.decoder(ids, cache=cache)
        return model.head(below.hidden[:, -1]), below.cache

    return partial(read, params)


def prefill(ours: CausalLM, theirs: Any, row: np.ndarray) -> dict[str, Callable[[], Any]]:
    torch = importlib.import_module("torch")
    ids, filled = torch.tensor(row).long(), reader(ours, row.shape[1] + STEPS)
    return {
        "transformers": lambda: theirs(ids, use_cache=True, logits_to_keep=1),
        "jaxpe": lambda: filled(row),
    }


def long_prefill(ours: CausalLM, theirs: Any, row: np.ndarray, rounds: int) -> dict[str, Any]:
    """Ratios of prefill, and the largest difference of the logits of the next token."""
    calls = prefill(ours, theirs, row)
    wanted = calls["transformers"]().logits[:, -1].numpy()
    difference = float(np.abs(np.asarray(calls["jaxpe"]()[0]) - wanted).max())
    return {"tokens": row.shape[1], "largest": difference} | ratios(calls, rounds)


def read_alone(folder: Path, tokens: int) -> dict[str, Any]:
    """Seconds and peak memory of a process that reads one long row, with loading and compiling."""
    ours = load_causal_lm(folder)
    row = np.random.default_rng(0).integers(ours.decoder.config.vocab_size, size=(1, tokens))
    (logits, _), seconds = contest.timed(lambda: reader(ours, None)(row.astype(np.int32)))
    finite = bool(np.isfinite(np.asarray(logits)).all())
    return {"seconds": seconds, "peak_gb": contest.peak_bytes() / 1e9, "finite": finite}


def reading(folder: Path, tokens: int) -> dict[str, Any]:
    words = [f"--read={folder}", f"--tokens={tokens}"]
    return {"tokens": tokens} | contest.in_fresh_process(__spec__.name, *words)


def decoder(folder: Path, rounds: int, *, quick: bool) -> dict[str, Any]:
    torch, transformers = (importlib.import_module(n) for n in ("torch", "transformers"))
    (path,) = folder.glob("*.gguf")
    source = {"gguf_file": path.name}
    options = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, **options, **source).eval()
    text = "\n".join(load_corpus("imdb").documents[:DOCUMENTS])
    tokens = transformers.AutoTokenizer.from_pretrained(folder, **source)(text)["input_ids"]
    row = np.asarray([tokens], np.int32)
    ours = load_causal_lm(folder)
    graphdef, params = nnx.split(ours)
    at_once = jax.jit(lambda p, ids: nnx.merge(graphdef, p)(ids).logits)
    long, row, prompt = row, row[:, :LENGTH], row[:, :PROMPT]
    ids = torch.tensor(prompt).long()
    generation = {
        "transformers": lambda: theirs.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY),
        "jaxpe": lambda: generate(ours, prompt, steps=STEPS),
    }
    wanted = theirs(torch.tensor(row).long(), use_cache=False).logits
    calls = {"prefill": prefill(ours, theirs, prompt), "generation": generation}
    found = compared(at_once(params, row), wanted, rounds, **calls)
    texts = generation["transformers"]()[0, PROMPT:].numpy(), np.asarray(generation["jaxpe"]())[0]
    found["same_generated"] = int((texts[0] == texts[1]).sum())
    prompts = LONG_PROMPTS[:1] if quick else LONG_PROMPTS
    assert long.shape[1] >= prompts[-1]
    found["long_prefill"] = {
        str(n): long_prefill(ours, theirs, long[:, :n], rounds) for n in prompts
    }
    return found | {"reading": reading(folder, LENGTH if quick else READ)}


def t5(rounds: int) -> dict[str, Any]:
    """An encoder–decoder with random weights; its prefill is the encoder."""
    torch, transformers = (importlib.import_module(n) for n in ("torch", "transformers"))
    torch.manual_seed(0)
    config = transformers.T5Config(**T5, decoder_start_token_id=0)
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_seq2seq_lm(folder)
    row = np.random.default_rng(0).integers(2, T5["vocab_size"], (1, PROMPT)).astype(np.int32)
    start, ids = np.zeros((1, 1), np.int32), torch.tensor(row).long()
    graphdef, params = nnx.split(ours)
    encode = jax.jit(lambda p, ids: nnx.merge(graphdef, p).transformer.encode(ids))
    mask = torch.ones_like(ids)
    prefill = {"transformers": lambda: theirs.encoder(ids), "jaxpe": lambda: encode(params, row)}
    generation = {
        "transformers": lambda: theirs.generate(ids, attention_mask=mask, **GREEDY),
        "jaxpe": lambda: generate(ours, row, steps=STEPS, start_id=0),
    }
    found = jax.jit(lambda p: nnx.merge(graphdef, p)(row, start).logits)(params)
    wanted = theirs(ids, decoder_input_ids=torch.tensor(start).long()).logits
    return compared(found, wanted, rounds, prefill=prefill, generation=generation)


def main() -> None:
    more = {"read": None, "tokens": READ}
    options = contest.options_of(__doc__, rounds=5, **more)
    if options.read:
        found = read_alone(Path(options.read), options.tokens)
        print(json.dumps(found))
        return
    torch = importlib.import_module("torch")
    torch.set_grad_enabled(False)
    torch.set_num_threads(contest.CORES)
    models, rounds = Path(os.environ["JAXPE_MODELS_DIR"]), options.rounds
    info = contest.machine("torch", "transformers")
    result = {"cores": contest.CORES, "prompt": PROMPT, "steps": STEPS, **info}
    folders = {name: models / name for name in NAMES if (models / name).is_dir()}
    result["models"] = {
        name: decoder(folder, rounds, quick=options.quick) for name, folder in folders.items()
    }
    result["models"]["t5"] = t5(rounds)
    contest.finish("models", options, result)


if __name__ == "__main__":
    main()

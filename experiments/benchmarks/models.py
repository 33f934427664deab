"""Released decoders and a small T5 against transformers, in one run: values and times.

    python -m experiments.benchmarks.models [--rounds 5] [--save]

The models of `experiments/fetch_models.py` in JAXPE_MODELS_DIR that are .gguf files, which both
read, on the first reviews of IMDB in JAXPE_DATA_DIR. Differences are of logits in float32, at once
over a row longer than the windows of Gemma. Prefill is one pass over a prompt that fills a cache,
and the logits of the next token; generation is that and so many tokens more. T5 has random weights;
its prefill is the encoder. Seconds are by the clock and of the processors. It needs torch,
transformers, accelerate and gguf.
"""

import importlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.benchmarks import _contest as contest
from jaxpe.data import load_corpus
from jaxpe.nn import generate, load_causal_lm, load_seq2seq_lm

NAMES = ("SmolLM2-135M-Instruct", "gemma-3-270m")
LENGTH, PROMPT, STEPS = 640, 128, 32
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


def decoder(folder: Path, rounds: int) -> dict[str, Any]:
    torch, transformers = (importlib.import_module(n) for n in ("torch", "transformers"))
    (path,) = folder.glob("*.gguf")
    read = {"gguf_file": path.name}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **read)
    theirs = theirs.eval()
    text = "\n".join(load_corpus("imdb").documents[:8])
    tokens = transformers.AutoTokenizer.from_pretrained(folder, **read)(text)["input_ids"]
    row = np.asarray([tokens[:LENGTH]], np.int32)
    ours = load_causal_lm(folder)
    graphdef, params = nnx.split(ours)
    at_once = jax.jit(lambda p, ids: nnx.merge(graphdef, p)(ids).logits)

    @jax.jit
    def filled(params, ids):
        model = nnx.merge(graphdef, params)
        cache = model.decoder.empty_cache(batch=1, slots=PROMPT + STEPS)
        below = model.decoder(ids, cache=cache)
        return model.head(below.hidden[:, -1]), below.cache

    prompt = row[:, :PROMPT]
    ids = torch.tensor(prompt).long()
    mask = torch.ones_like(ids)
    generation = {
        "transformers": lambda: theirs.generate(ids, attention_mask=mask, **GREEDY),
        "jaxpe": lambda: generate(ours, prompt, steps=STEPS),
    }
    prefill = {
        "transformers": lambda: theirs(ids, use_cache=True, logits_to_keep=1),
        "jaxpe": lambda: filled(params, prompt),
    }
    wanted = theirs(torch.tensor(row).long(), use_cache=False).logits
    calls = {"prefill": prefill, "generation": generation}
    found = compared(at_once(params, row), wanted, rounds, **calls)
    texts = generation["transformers"]()[0, PROMPT:].numpy(), np.asarray(generation["jaxpe"]())[0]
    return found | {"same_generated": int((texts[0] == texts[1]).sum())}


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
    options = contest.options_of(__doc__, rounds=5)
    torch = importlib.import_module("torch")
    torch.set_grad_enabled(False)
    torch.set_num_threads(contest.CORES)
    models = Path(os.environ["JAXPE_MODELS_DIR"])
    info = contest.machine("torch", "transformers")
    result = {"cores": contest.CORES, "prompt": PROMPT, "steps": STEPS, **info}
    names = [name for name in NAMES if (models / name).is_dir()]
    result["models"] = {name: decoder(models / name, options.rounds) for name in names}
    result["models"]["t5"] = t5(options.rounds)
    contest.finish("models", options, result)


if __name__ == "__main__":
    main()

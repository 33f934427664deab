"""Released decoders and a small T5 against transformers, in one run: values and times.

The models of `experiments/fetch_models.py` in JAXPE_MODELS_DIR that are .gguf files, which both
read, on the first reviews of IMDB in JAXPE_DATA_DIR. Differences are of logits in float32, at once
over a row longer than the windows of Gemma. Prefill is one pass over a prompt that fills a cache,
and the logits of the next token; generation is that and so many tokens more. T5 has random weights
and the sizes of `T5`; its prefill is the encoder. Rounds of the two take turns; seconds are by the
clock and of the processors. It needs torch, transformers, accelerate and gguf.

    python -m experiments.benchmarks.models [--rounds 5]
"""

import argparse
import gzip
import importlib
import importlib.metadata
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.benchmarks._machine import CORES, write_result
from jaxpe.nn import generate, load_causal_lm, load_seq2seq_lm

NAMES = ("SmolLM2-135M-Instruct", "gemma-3-270m")
LENGTH, PROMPT, STEPS = 640, 128, 32
T5 = {"vocab_size": 8000, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}
RESULTS = Path(__file__).parent.parent / "results"


def text() -> str:
    """Reviews, one after another."""
    path = Path(os.environ["JAXPE_DATA_DIR"]) / "imdb" / "train.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return "\n".join(json.loads(next(file))["text"] for _ in range(8))


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of the processors."""
    start = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start[0], time.process_time() - start[1]


def ratios(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Medians of rounds that take turns, and how many times as long transformers takes."""
    for call in calls.values():
        call()
    taken = [{name: timed(call) for name, call in calls.items()} for _ in range(rounds)]
    seconds = {name: np.median([r[name] for r in taken], axis=0) for name in calls}
    by_round = [np.divide(r["transformers"], r["jaxpe"]) for r in taken]
    return {
        "seconds": {name: {"clock": s[0], "cpu": s[1]} for name, s in seconds.items()},
        "ratio": dict(zip(("clock", "cpu"), np.median(by_round, axis=0), strict=True)),
        "rounds": [dict(zip(("clock", "cpu"), r, strict=True)) for r in by_round],
    }


def measured(folder: Path, rounds: int) -> dict[str, Any]:
    """One model: differences of logits, and seconds."""
    torch, transformers = (importlib.import_module(n) for n in ("torch", "transformers"))
    torch.set_grad_enabled(False)
    torch.set_num_threads(CORES)
    (path,) = folder.glob("*.gguf")
    read = {"gguf_file": path.name}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **read)
    theirs = theirs.eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder, **read)(text())["input_ids"]
    row = np.asarray([tokens[:LENGTH]], np.int32)
    ours = load_causal_lm(folder)
    graphdef, params = nnx.split(ours)
    at_once = jax.jit(lambda p, ids: nnx.merge(graphdef, p)(ids).logits)
    wanted = theirs(torch.tensor(row).long(), use_cache=False).logits.numpy()
    found = np.asarray(at_once(params, row))
    prompt = row[:, :PROMPT]

    @jax.jit
    def filled(params, ids):
        model = nnx.merge(graphdef, params)
        cache = model.decoder.empty_cache(batch=1, slots=PROMPT + STEPS)
        below = model.decoder(ids, cache=cache)
        return model.head(below.hidden[:, -1]), below.cache

    ids = torch.tensor(prompt).long()
    options = {"max_new_tokens": STEPS, "min_new_tokens": STEPS, "do_sample": False}
    prefill = {
        "transformers": lambda: theirs(ids, use_cache=True, logits_to_keep=1),
        "jaxpe": lambda: jax.block_until_ready(filled(params, prompt)),
    }
    mask = torch.ones_like(ids)
    generation = {
        "transformers": lambda: theirs.generate(ids, attention_mask=mask, **options),
        "jaxpe": lambda: jax.block_until_ready(generate(ours, prompt, steps=STEPS)),
    }
    texts = generation["transformers"]()[0, PROMPT:].numpy(), np.asarray(generation["jaxpe"]())[0]
    return {
        "tokens": LENGTH,
        "largest": np.abs(found - wanted).max(),
        "largest_logit": np.abs(wanted).max(),
        "same_likeliest": (found.argmax(-1) == wanted.argmax(-1)).mean(),
        "same_generated": int((texts[0] == texts[1]).sum()),
        "prefill": ratios(prefill, rounds),
        "generation": ratios(generation, rounds),
    }


def t5(rounds: int) -> dict[str, Any]:
    """An encoder–decoder with random weights: logits, the encoder's time, and greedy decoding."""
    torch, transformers = (importlib.import_module(n) for n in ("torch", "transformers"))
    torch.manual_seed(0)
    config = transformers.T5Config(**T5, decoder_start_token_id=0)
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_seq2seq_lm(folder)
    row = np.random.default_rng(0).integers(2, T5["vocab_size"], (1, PROMPT)).astype(np.int32)
    start = np.zeros((1, 1), np.int32)
    ids = torch.tensor(row).long()
    graphdef, params = nnx.split(ours)
    found = jax.jit(lambda p: nnx.merge(graphdef, p)(row, start).logits)(params)
    wanted = theirs(ids, decoder_input_ids=torch.tensor(start).long()).logits.numpy()
    encode = jax.jit(lambda p, ids: nnx.merge(graphdef, p).transformer.encode(ids))
    options = {"max_new_tokens": STEPS, "min_new_tokens": STEPS, "do_sample": False}
    mask = torch.ones_like(ids)
    prefill = {
        "transformers": lambda: theirs.encoder(ids),
        "jaxpe": lambda: jax.block_until_ready(encode(params, row)),
    }
    generation = {
        "transformers": lambda: theirs.generate(ids, attention_mask=mask, **options),
        "jaxpe": lambda: jax.block_until_ready(generate(ours, row, steps=STEPS, start_id=0)),
    }
    return {
        "tokens": 1,
        "largest": np.abs(np.asarray(found) - wanted).max(),
        "largest_logit": np.abs(wanted).max(),
        "prefill": ratios(prefill, rounds),
        "generation": ratios(generation, rounds),
    }


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    models = Path(os.environ["JAXPE_MODELS_DIR"])
    packages = ("jax", "torch", "transformers")
    result: dict[str, Any] = {
        "cores": CORES,
        "prompt": PROMPT,
        "steps": STEPS,
        "load_average": os.getloadavg()[0],
        "versions": {package: importlib.metadata.version(package) for package in packages},
        "models": {},
    }
    for name in NAMES:
        if (models / name).is_dir():
            result["models"][name] = plain(measured(models / name, rounds))
            print(name, json.dumps(result["models"][name], indent=1), flush=True)
    result["models"]["t5"] = plain(t5(rounds))
    print(json.dumps(result["models"]["t5"], indent=1))
    write_result(RESULTS / "benchmark_models.json", result)


if __name__ == "__main__":
    main()

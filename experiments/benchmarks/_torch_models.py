"""A worker that runs a model of transformers on the CPU, one round a line; see `_torch_worker`.

`model` is a folder with a .gguf file, or "t5", of random weights, which are saved in `folder`. It
reads ids from `ids`, writes what it computes to `out`, and a round is [clock, CPU] seconds of
`stage`: all logits, the prefill of a cache, or greedy generation. The prefill of T5 is its encoder.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyrefly: ignore[missing-import]
import transformers  # pyrefly: ignore[missing-import]

from experiments.benchmarks._torch_worker import serve

T5 = {"vocab_size": 8000, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}


def decoder(sizes: Any, ids: Any) -> dict[str, Callable[[], Any]]:
    (path,) = Path(sizes.model).glob("*.gguf")
    options = {"dtype": torch.float32, "attn_implementation": "sdpa", "gguf_file": path.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(sizes.model, **options).eval()
    return {
        "logits": lambda: model(ids, use_cache=False).logits,
        "prefill": lambda: model(ids, use_cache=True, logits_to_keep=1).logits[:, -1],
        "generation": lambda: generated(model, ids, sizes.steps)[:, ids.shape[1] :],
    }


def t5(sizes: Any, ids: Any) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    config = transformers.T5Config(**T5, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.save_pretrained(sizes.folder)
    start = torch.zeros((1, 1), dtype=torch.long)
    return {
        "logits": lambda: model(ids, decoder_input_ids=start).logits,
        "prefill": lambda: model.encoder(ids).last_hidden_state,
        "generation": lambda: generated(model, ids, sizes.steps)[:, 1:],
    }


def generated(model: Any, ids: Any, steps: int) -> Any:
    options = {"max_new_tokens": steps, "min_new_tokens": steps, "do_sample": False}
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)


def round_of(sizes: Any) -> Callable[[], Any]:
    """A function that runs the stage once, and returns its seconds."""
    torch.set_grad_enabled(False)
    ids = torch.tensor(np.load(sizes.ids)).long()
    run = (t5 if sizes.model == "t5" else decoder)(sizes, ids)[sizes.stage]
    np.save(sizes.out, run().numpy())

    def seconds() -> list[float]:
        clock, cpu = time.perf_counter(), time.process_time()
        run()
        return [time.perf_counter() - clock, time.process_time() - cpu]

    return seconds


if __name__ == "__main__":
    serve(round_of, transformers)

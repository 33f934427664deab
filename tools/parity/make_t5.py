"""Write `tiny_t5/`, `tiny_t5_gated/` and `t5.npz`: T5 as transformers computes it.

Run by hand, in an environment of its own with torch, transformers and safetensors (`t5.npz` says
which versions it came from); the tests need safetensors alone:

    python tools/parity/make_t5.py
    python tools/parity/make_t5.py DIRECTORY    # logits of a directory that jaxpe wrote

The first is T5 1.0: a ReLU, a tied head whose input is scaled. The second is T5 1.1: a gated GELU,
a head of its own, and here another number of layers in the decoder. Both are random in every
tensor. transformers 5 ties the head of a T5 that it makes, and no longer reads
`tie_word_embeddings` but to tell whether the input of the head is scaled; so the head is set after
the model is made.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"
SIZES = {
    "vocab_size": 40,
    "d_model": 32,
    "d_kv": 6,  # not d_model / num_heads
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "dropout_rate": 0.1,
    "decoder_start_token_id": 0,
}
CASES: dict[str, dict[str, Any]] = {
    "tiny_t5": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "tiny_t5_gated": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "num_decoder_layers": 3,
    },
}
RANDOM = np.random.default_rng(0)
ROWS, LONG, SHORT = 3, 26, 7  # longer than the largest distance that has a bucket of its own
IDS = RANDOM.integers(2, SIZES["vocab_size"], (ROWS, LONG), np.int32)
ANSWERS = np.concatenate(
    [np.zeros((ROWS, 1), np.int32), RANDOM.integers(2, 40, (ROWS, SHORT - 1), np.int32)], axis=1
)
PLACES = np.arange(LONG)
# Row 0 is whole, row 1 has padding on the right, row 2 on the left.
MASK = np.stack([PLACES >= 0, PLACES < LONG - 5, PLACES >= 4])
# Of the decoder, by case: none, on the right, on the left.
DECODER_MASK = np.stack([np.arange(SHORT) >= 0, np.arange(SHORT) < SHORT - 2, np.arange(SHORT) > 0])


def config(case: str) -> dict[str, Any]:
    """The config.json of a case."""
    given = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
    return {**given, **SIZES, **CASES[case]}


def model_of(fields: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """The model of transformers with these tensors, in float64."""
    import torch
    import transformers

    fields = {k: v for k, v in fields.items() if k not in ("model_type", "architectures")}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**fields))
    if "lm_head.weight" in tensors:
        model.lm_head.weight = torch.nn.Parameter(tensors["lm_head.weight"].float())
    found = model.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    tied = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}
    if set(found.missing_keys) - tied or found.unexpected_keys:
        raise SystemExit(f"{found}")
    return model.double().eval()


def outputs(model: Any) -> dict[str, np.ndarray]:
    """Hidden states of both sides, logits, and greedy tokens."""
    import torch

    def tensor(x: np.ndarray) -> Any:
        return torch.from_numpy(x.astype(np.int64))

    given = {"input_ids": tensor(IDS), "attention_mask": tensor(MASK)}
    with torch.no_grad():
        encoder = model.encoder(**given).last_hidden_state
        seen = model(
            **given,
            decoder_input_ids=tensor(ANSWERS),
            decoder_attention_mask=tensor(DECODER_MASK),
            output_hidden_states=True,
            use_cache=False,
        )
        # Its cache has num_layers layers, also where the decoder has more.
        options = {"do_sample": False, "eos_token_id": None, "use_cache": False}
        greedy = model.generate(**given, max_new_tokens=SHORT, **options)
    return {
        "encoder": encoder.numpy(),
        "decoder": seen.decoder_hidden_states[-1].numpy(),
        "logits": seen.logits.numpy(),
        "greedy": greedy[:, 1:].numpy().astype(np.int32),
    }


def write() -> None:
    """The directories and what transformers computes with them."""
    import safetensors.torch
    import torch
    import transformers

    stored: dict[str, Any] = {
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}"
    }
    for case in CASES:
        fields = config(case)
        shapes = transformers.T5ForConditionalGeneration(
            transformers.T5Config(**SIZES, **CASES[case])
        ).state_dict()
        torch.manual_seed(0)
        tied = fields["tie_word_embeddings"]
        left_out = ("embed_tokens", *(("lm_head",) if tied else ()))
        tensors = {
            name: (float("norm" in name) + 0.25 * torch.randn(tensor.shape)).bfloat16()
            for name, tensor in sorted(shapes.items())
            if not any(part in name for part in left_out)
        }
        folder = HERE / case
        folder.mkdir(exist_ok=True)
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
        found = outputs(model_of(fields, tensors))
        stored |= {f"{case}_{name}": array for name, array in found.items()}
    np.savez_compressed(HERE / "t5.npz", **stored)


def compare(directory: str) -> None:
    """How far a directory is from the stored outputs, read as transformers reads it."""
    import transformers

    fields = json.loads((Path(directory) / "config.json").read_text())
    gated = fields["feed_forward_proj"].startswith("gated")
    case = "tiny_t5_gated" if gated else "tiny_t5"
    model = transformers.T5ForConditionalGeneration.from_pretrained(directory)
    found, stored = outputs(model.double().eval()), np.load(HERE / "t5.npz")
    for name, array in found.items():
        print(case, name, np.abs(array - stored[f"{case}_{name}"]).max())


if __name__ == "__main__":
    compare(sys.argv[1]) if len(sys.argv) > 1 else write()

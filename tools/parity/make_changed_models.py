"""Write `changed_models.npz`: logits of the stored tiny checkpoints with other fields or heads.

Run by hand, in an environment of its own with torch, transformers, safetensors and ml_dtypes (the
file says which versions it came from); the tests need safetensors alone:

    python tools/parity/make_changed_models.py

A case is a copy of a directory of `models/`, or of a T5 beside it, with other fields in its
config.json, and a head that is left out, equal to the embeddings or another matrix. Fields that a
family stores and does not use are among them: their logits are those of the directory itself.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors.numpy

HERE = Path(__file__).parents[2] / "tests" / "parity"
IDS = np.random.default_rng(0).integers(3, 40, (2, 10))
ANSWERS = IDS[:, :7]
Head = Literal["as it is", "without", "embeddings", "other"]


class Case(NamedTuple):
    """A directory, what is changed in its config.json, and the head its file has then."""

    base: str
    changes: dict[str, Any]
    head: Head = "as it is"


HALF = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0}
YARN |= {"original_max_position_embeddings": 16}
LAYERS = ("full_attention", "sliding_attention")
BY_LAYER = {kind: {**HALF, "rope_theta": 9.0} for kind in LAYERS}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
MT5 = {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"]}
NAMES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "smollm3")
CASES = {
    **{f"{name} share": Case(name, {"rope_parameters": HALF}) for name in NAMES},
    "gemma3 share": Case("gemma3", {"rope_parameters": BY_LAYER}),
    "modernbert share": Case("modernbert", {"rope_parameters": BY_LAYER}),
    "gpt_neox share": Case("gpt_neox", {"rope_parameters": HALF}),
    "gemma3 cap": Case("gemma3", {"attn_logit_softcapping": 0.5}),
    "opt epsilon": Case("opt", {"layer_norm_eps": 0.5}),
    "smollm3 windows": Case(
        "smollm3",
        {"layer_types": [*LAYERS, *LAYERS], "sliding_window": 3, "use_sliding_window": False},
    ),
    "llama yarn": Case("llama", {"rope_parameters": YARN}),
    "gpt2 untied": Case("gpt2", UNTIED, "other"),
    "gptj tied": Case("gptj", TIED, "without"),
    "phi tied": Case("phi", TIED, "without"),
    "phi tied with a copy": Case("phi", TIED, "embeddings"),
    "mt5 tied": Case("tiny_t5_gated", MT5 | TIED, "without"),
    "mt5 tied with a copy": Case("tiny_t5_gated", MT5 | TIED, "embeddings"),
    "mt5 with another head": Case("tiny_t5_gated", MT5 | TIED),
    "mt5 of transformers 4": Case("tiny_t5_gated", MT5 | UNTIED),
    "t5 scaled": Case("tiny_t5", {"scale_decoder_outputs": True} | TIED),
    "t5 not scaled": Case("tiny_t5", {"scale_decoder_outputs": False} | TIED),
}


def write_case(case: Case, folder: Path) -> Path:
    """A changed copy of a directory."""
    source = HERE / case.base if case.base.startswith("tiny") else HERE / "models" / case.base
    shutil.copytree(source, folder)
    config, weights = folder / "config.json", folder / "model.safetensors"
    config.write_text(json.dumps(json.loads(config.read_text()) | case.changes))
    if case.head != "as it is":
        tensors = safetensors.numpy.load_file(weights)
        ends = ("wte.weight", "embed_tokens.weight", "shared.weight")
        table = next(tensors[name] for name in tensors if name.endswith(ends))
        tensors.pop("lm_head.weight", None)
        if case.head != "without":
            factor = table.dtype.type(1 if case.head == "embeddings" else -0.5)
            tensors["lm_head.weight"] = (table * factor).astype(table.dtype)
        safetensors.numpy.save_file(tensors, weights, {"format": "pt"})
    return folder


def logits(folder: Path) -> np.ndarray:
    """What transformers computes; T5, whose attention is not scaled, in float64."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0])
    model = cls.from_pretrained(folder, attn_implementation="eager").float().eval()
    ids, options = torch.tensor(IDS), {}
    if "t5" in config.model_type:
        options = {"decoder_input_ids": torch.tensor(ANSWERS), "use_cache": False}
        model = model.double()
    return model(ids, **options).logits.numpy()


def main() -> None:
    import ml_dtypes  # noqa: F401 (for NumPy, which has no bfloat16 itself)
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    out = {"versions": np.array(json.dumps(versions))}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            out[name] = logits(write_case(case, Path(folder) / "case"))
        print(name, np.abs(out[name]).max())
    np.savez_compressed(HERE / "changed_models.npz", **out)


if __name__ == "__main__":
    main()

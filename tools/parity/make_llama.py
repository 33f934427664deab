"""Write `tiny_llama/` and `llama.npz`: Llamas as transformers and llama.cpp compute them.

Run by hand, in an environment of its own with torch, transformers, accelerate, safetensors, gguf
and xllamacpp (the file says which versions it came from); the tests need gguf and safetensors. The
real model comes from `experiments/fetch_models.py`:

    JAXPE_MODELS_DIR=... python tools/parity/make_llama.py

llama.cpp multiplies quantised weights with activations that it quantises too. So that its numbers
can be compared, it is given the same weights as float32; those of the quantised file, which differ
by 0.4, are not kept. The tiny model is random in every tensor.
"""

import json
import os
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"
REAL = "SmolLM2-135M-Instruct"
TINY = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}
# What else the tiny model's config.json may say.
CASES: dict[str, dict[str, Any]] = {
    "own": {},
    "tied": {"tie_word_embeddings": True},
    "linear": {
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0},
    },
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 100.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
}
IDS = np.random.default_rng(0).integers(0, TINY["vocab_size"], (2, 12), np.int32)
TEXTS = (
    "The capital of France is",
    "In 1789, the people of Paris didn't wait:\n\n  they took   the Bastille (14 July)!",
    "na\u00efve caf\u00e9 \u2014 \u6771\u4eac 12.5% \U0001f600, x\u00b2 \u00bd \u0663\u0664",
)
SHOWN = (3, 12, 25)  # places of the second text
COUNT = 40  # likeliest tokens that are stored there


def write_tiny() -> None:
    """A directory with random tensors."""
    # Here and below, so that the tests can import this file without them.
    import torch
    import transformers
    from safetensors.torch import save_file

    sizes = transformers.LlamaConfig(**TINY, architectures=["LlamaForCausalLM"])
    shapes = transformers.LlamaForCausalLM(sizes).state_dict()
    torch.manual_seed(0)
    random = {
        name: (float("norm" in name) + 0.3 * torch.randn(tensor.shape)).bfloat16()
        for name, tensor in sorted(shapes.items())
    }
    (HERE / "tiny_llama").mkdir(exist_ok=True)
    sizes.save_pretrained(HERE / "tiny_llama")
    path = HERE / "tiny_llama" / "model.safetensors"
    save_file(random, path, metadata={"format": "pt"})
    path.chmod(0o644)


def tiny_logits(changes: dict[str, Any]) -> np.ndarray:
    """Logits `[2, 12, vocab]` of the tiny model with another config.json."""
    import torch
    import transformers
    from safetensors.torch import load_file

    config = transformers.LlamaConfig(**(TINY | changes), attn_implementation="eager")
    tensors = load_file(HERE / "tiny_llama" / "model.safetensors")
    if config.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model = transformers.LlamaForCausalLM(config).eval().float()
    model.load_state_dict(tensors)
    return model(torch.tensor(IDS)).logits.numpy()


def as_float32(source: Path, target: Path) -> None:
    """The same .gguf with every tensor dequantised."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    own = {"general.architecture", "general.file_type"}
    for name, field in reader.fields.items():
        if name not in own and not name.startswith("GGUF."):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, weights.reshape(tensor.shape[::-1]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_cpp(path: Path):
    """A function that asks llama.cpp, which has a server and nothing else in Python."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.fit_params = 256, 1, False, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)

    def ask(what: str, **body: Any) -> dict[str, Any]:
        url = f"{server.listening_address}/{what}"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(body).encode(), headers)
        ) as answer:
            return json.load(answer)

    return ask


def real(folder: Path) -> dict[str, np.ndarray]:
    """Tokens of the texts, and what comes next in the second one."""
    import torch
    import transformers

    (path,) = folder.glob("*.gguf")
    out = {}
    with tempfile.TemporaryDirectory() as scratch:
        as_float32(path, Path(scratch) / "float32.gguf")
        ask = llama_cpp(Path(scratch) / "float32.gguf")
        tokens = [ask("tokenize", content=text)["tokens"] for text in TEXTS]
        found = []
        options = {"n_predict": 1, "n_probs": COUNT, "temperature": 0.0, "cache_prompt": False}
        for place in SHOWN:
            answer = ask("completion", prompt=tokens[1][: place + 1], **options)
            found.append(answer["completion_probabilities"][0]["top_logprobs"])
    for number, ids in enumerate(tokens):
        out[f"tokens_{number}"] = np.array(ids, np.int32)
    out["likeliest"] = np.array([[one["id"] for one in row] for row in found], np.int32)
    out["llama_cpp"] = np.array([[one["logprob"] for one in row] for row in found], np.float32)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    logits = model(torch.tensor([tokens[1]])).logits[0, list(SHOWN)].numpy()
    out["transformers"] = np.take_along_axis(logits, out["likeliest"].astype(int), axis=1)
    return out


def main() -> None:
    import importlib.metadata

    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    write_tiny()
    out = {f"tiny_{name}": tiny_logits(changes) for name, changes in CASES.items()}
    out |= real(Path(os.environ["JAXPE_MODELS_DIR"]) / REAL)
    packages = ("torch", "transformers", "safetensors", "gguf", "xllamacpp")
    versions = {package: importlib.metadata.version(package) for package in packages}
    out["versions"] = np.array(json.dumps(versions))
    np.savez_compressed(HERE / "llama.npz", **out)


if __name__ == "__main__":
    main()

"""Write `gguf_models.npz`: what llama.cpp computes of a tiny model of each of its families.

Run by hand, in an environment of its own with torch, transformers, safetensors, gguf and xllamacpp
(the file says which versions it came from); the tests need gguf and safetensors:

    python tools/parity/make_gguf_models.py [names of new ones]

Files are written from `models/`, as float32, with the names of tensors that the package gguf has
and the entries and changes of llama.cpp's converter. Log-probabilities of llama.cpp have to be
those of transformers; then the file is right, and the test writes it again and reads it.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"
FOLDER = HERE / "models"
Tensors = Mapping[str, np.ndarray]
LOCAL, GLOBAL = "sliding_attention", "full_attention"
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
# llama.cpp takes the long list of LongRoPE for contexts, not texts, beyond the original length.
WIDE = {"max_position_embeddings": 512, "sliding_window": None}
WIDE |= {"original_max_position_embeddings": 256}
# Directory, and fields of its config.json that llama.cpp has otherwise: it knows no windows of
# Qwen2 and neither norms nor groups of Phi's heads, scales queries of Gemma by the width of a head,
# leaves out RoPE in every fourth layer of SmolLM3, and has a global layer in every six of Gemma 3
# and every four of Cohere 2. It has no windows in Phi-3, StarCoder2 and small EXAONEs.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama3": ("llama", {"rope_parameters": LLAMA3}),
    "qwen2": ("qwen2", {"use_sliding_window": False, "layer_types": [GLOBAL] * 2}),
    "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 8}),
    "gemma3": (
        "gemma3",
        {"query_pre_attn_scalar": 8, "num_hidden_layers": 7}
        | {"layer_types": [*[LOCAL] * 5, GLOBAL, LOCAL]},
    ),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0]}),
    "gptneox": ("gpt_neox", {}),
    "gpt2": ("gpt2", {}),
    "bloom": ("bloom", {}),
    "phi2": ("phi", {"qk_layernorm": False, "num_key_value_heads": 2}),
    "olmo2": ("olmo2", {}),
    "phi3": ("phi3", WIDE),
    "granite": ("granite", {}),
    "command-r": ("cohere", {}),
    "cohere2": ("cohere2", {"layer_types": [*[LOCAL] * 3, GLOBAL]}),
    "glm4": ("glm4", {}),
    "exaone4": ("exaone4", {"sliding_window": None, "layer_types": [GLOBAL] * 4}),
    "starcoder2": ("starcoder2", {"sliding_window": None}),
    "nemotron": ("nemotron", {}),
    "arcee": ("arcee", {}),
}
# A number that is rounded to the next one of half precision moves all that follow.
TOLERANCE, TYPICAL = 5e-4, 2e-6


def config_of(name: str) -> dict[str, Any]:
    """The config.json of a case."""
    folder, changes = CASES[name]
    return json.loads((FOLDER / folder / "config.json").read_text()) | changes


def tensors_of(name: str, found: Tensors) -> dict[str, np.ndarray]:
    """Tensors of a case, from those of its directory: what it has more of is there again."""
    if name == "phi2":
        return {
            key: np.concatenate([tensor, tensor]) if _is_key_or_value(key) else tensor
            for key, tensor in found.items()
            if ".q_layernorm." not in key and ".k_layernorm." not in key
        }
    if name != "gemma3":
        return dict(found)
    more = {
        key.replace(f".layers.{i % 4}.", f".layers.{i}."): tensor
        for i in range(4, config_of(name)["num_hidden_layers"])
        for key, tensor in found.items()
        if f".layers.{i % 4}." in key
    }
    return {**found, **more}


def _is_key_or_value(name: str) -> bool:
    return ".k_proj." in name or ".v_proj." in name


def write_gguf_model(
    path: Path, name: str, found: Tensors, *, fused: bool = False, without: tuple[str, ...] = ()
) -> Path:
    """The .gguf of a case, from the tensors of its directory.

    Projections that stand alone are fused if asked for; entries of the metadata are left out.
    """
    kind, config = "llama" if name == "llama3" else name, config_of(name)
    writer = gguf.GGUFWriter(path, kind)
    _add_sizes(writer, config)
    _add_rotation(writer, kind, config)
    _add_vocabulary(writer)
    for entry in without:
        del writer.kv_data[0][f"{kind}.{entry}"]
    tensors = _named(kind, config, tensors_of(name, found))
    for theirs, tensor in (_fused(tensors) if fused else tensors).items():
        writer.add_tensor(theirs, np.ascontiguousarray(tensor, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _named(kind: str, config: dict[str, Any], found: Tensors) -> dict[str, np.ndarray]:
    """Tensors as llama.cpp has them, by the names of the package gguf."""
    kinds = {title: number for number, title in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(kinds[kind], _first(config, "num_hidden_layers", "n_layer"))
    named = {}
    for theirs, tensor in found.items():
        short = theirs.removeprefix("transformer.") if kind == "bloom" else theirs
        name = table.get_name(short, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise KeyError(f"{theirs} has no name in {kind}")
        named[name] = _changed(kind, config, theirs, tensor)
    rope = config.get("rope_parameters", {})
    if "short_factor" in rope:
        lists = {key: np.array(rope[f"{key}_factor"]) for key in ("short", "long")}
        named |= {f"rope_factors_{key}.weight": value for key, value in lists.items()}
    return named | ({"rope_freqs.weight": _divisors(rope)} if "low_freq_factor" in rope else {})


def _divisors(rope: dict[str, Any]) -> np.ndarray:
    """Divisors of the frequencies in the scaling of Llama 3."""
    frequencies = rope["rope_theta"] ** -np.linspace(0, 1, HEAD_DIM // 2, endpoint=False)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / (kept + (1 - kept) / rope["factor"])


def _fused(tensors: Tensors) -> dict[str, np.ndarray]:
    """The same with query, key and value in one matrix, as the first files of Phi have them."""
    out = {name: x for name, x in tensors.items() if name.split(".")[2:3] not in _PARTS}
    for name in tensors:
        if ".attn_q." in name:
            parts = [tensors[name.replace("attn_q", f"attn_{part}")] for part in "qkv"]
            out[name.replace("attn_q", "attn_qkv")] = np.concatenate(parts)
    return out


HEAD_DIM, VOCAB = 8, 48
# The converter interleaves the rotated pairs of these.
PERMUTED = ("llama", "smollm3", "granite", "arcee")
_PARTS = (["attn_q"], ["attn_k"], ["attn_v"])


def _first(config: Mapping[str, Any], *names: str) -> Any:
    """The first of the fields that is there."""
    return next(config[name] for name in names if name in config)


def _add_sizes(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    dim, heads = _first(config, "hidden_size", "n_embd"), _heads(config)
    writer.add_context_length(_first(config | {"none": 32}, "max_position_embeddings", "none"))
    writer.add_embedding_length(dim)
    writer.add_block_count(_first(config, "num_hidden_layers", "n_layer"))
    writer.add_feed_forward_length(_first({"none": 4 * dim} | config, *_WIDTHS))
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        writer.add_layer_norm_eps(_first(config, *_EPSILONS))
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if "use_parallel_residual" in config:
        writer.add_parallel_residual(config["use_parallel_residual"])
    if config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if LOCAL in config.get("layer_types", ()):
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "phi3":
        writer.add_sliding_window(config["sliding_window"] or 0)
    if "logits_scaling" in config:
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
    if "logits_scaling" in config or "logit_scale" in config:
        writer.add_logit_scale(_first(config, "logits_scaling", "logit_scale"))


_EPSILONS = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
_WIDTHS = ("intermediate_size", "n_inner", "none")


def _heads(config: Mapping[str, Any]) -> int:
    return _first(config, "num_attention_heads", "n_head")


def _add_rotation(writer: gguf.GGUFWriter, name: str, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters")
    if rope is None:
        return
    if LOCAL in rope:
        writer.add_rope_freq_base_swa(rope[LOCAL]["rope_theta"])
        rope = rope[GLOBAL]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    width = config.get("head_dim", config["hidden_size"] // _heads(config))
    if rope["rope_type"] == "longrope":
        original = config["original_max_position_embeddings"]
        stretch = np.log(config["max_position_embeddings"] / original)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + stretch / np.log(original))))
    if name in (*PERMUTED, "gptneox", "phi2", "phi3", "glm4", "nemotron", "cohere2"):
        writer.add_rope_dimension_count(int(width * rope.get("partial_rotary_factor", 1)))


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Tokens of SentencePiece that no text needs: prompts are ids."""
    special = ["<unk>", "<s>", "</s>"]
    tokens = special + [f"t{i}" for i in range(len(special), VOCAB)]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types(kinds + [gguf.TokenType.NORMAL] * (VOCAB - len(kinds)))


def _changed(name: str, config: dict[str, Any], theirs: str, tensor: np.ndarray) -> np.ndarray:
    """A tensor as llama.cpp has it."""
    heads, module = _heads(config), theirs.rsplit(".", 1)[0]
    if name in PERMUTED and module.endswith(("q_proj", "k_proj")):
        heads = heads if module.endswith("q_proj") else config["num_key_value_heads"]
        halves = tensor.reshape(heads, 2, -1, *tensor.shape[1:])
        return halves.swapaxes(1, 2).reshape(tensor.shape)
    if module.endswith("query_key_value"):  # of each head its query, key and value
        parts = tensor.reshape(heads, 3, -1, *tensor.shape[1:])
        return parts.swapaxes(0, 1).reshape(tensor.shape)
    if name.startswith(("gemma", "nemotron")) and theirs.endswith("norm.weight"):
        return tensor + 1
    if name == "gpt2" and tensor.ndim == 2 and ".h." in theirs:
        return tensor.T
    return tensor


def transformers_model(name: str, found: Tensors) -> Any:
    """A case as transformers reads it."""
    import torch
    import transformers
    from safetensors.torch import save_file

    state = {key: torch.tensor(tensor) for key, tensor in tensors_of(name, found).items()}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config_of(name)))
        save_file(state, Path(folder, "model.safetensors"), metadata={"format": "pt"})
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    assert not info["missing_keys"], info
    assert not info["unexpected_keys"], info
    return model.eval()


def with_table(model: Any) -> Any:
    """The model with GELU as llama.cpp has it: that by tanh, of and as float16."""
    import torch

    class Table(torch.nn.Module):
        def forward(self, x):
            wide = torch.nn.functional.gelu(x.half().float(), approximate="tanh")
            return wide.half().float()

    for module in model.modules():
        for key, child in module.named_children():
            if "gelu" in type(child).__name__.lower():
                setattr(module, key, Table())
    return model


def llama_cpp_logprobs(path: Path, ids: np.ndarray) -> np.ndarray:
    """Log-probabilities `[2, n, vocab]` of what follows each token."""
    from make_llama import llama_cpp  # pyrefly: ignore

    ask = llama_cpp(path)
    out = np.full((*ids.shape, VOCAB), np.nan, np.float32)
    options = {"n_predict": 1, "n_probs": VOCAB, "temperature": 0.0, "cache_prompt": False}
    for row, place in np.ndindex(*ids.shape):
        answer = ask("completion", prompt=ids[row, : place + 1].tolist(), **options)
        for one in answer["completion_probabilities"][0]["top_logprobs"]:
            out[row, place, one["id"]] = one["logprob"]
    return out


def case(name: str, ids: np.ndarray, scratch: Path) -> dict[str, np.ndarray]:
    """What both compute of a case."""
    import torch
    from safetensors.torch import load_file

    stored = load_file(FOLDER / CASES[name][0] / "model.safetensors")
    found = {key: tensor.float().numpy() for key, tensor in stored.items()}
    path = write_gguf_model(scratch / f"{name}.gguf", name, found)
    theirs = llama_cpp_logprobs(path, ids)
    if name == "phi2":
        path = write_gguf_model(scratch / "fused.gguf", name, found, fused=True)
        np.testing.assert_allclose(llama_cpp_logprobs(path, ids), theirs, rtol=0, atol=1e-6)
    model, places = transformers_model(name, found), torch.tensor(ids)
    logits = model(places, use_cache=False).logits
    like = with_table(model)(places, use_cache=False).logits
    like, exact = (np.abs(torch.log_softmax(x, -1).numpy() - theirs) for x in (like, logits))
    about = f"{like.max():.1e} apart, median {np.median(like):.1e}"
    print(f"{name}: {path.stat().st_size} bytes, {about}; {exact.max():.1e} with its own GELU")
    assert like.max() < TOLERANCE
    assert np.median(like) < TYPICAL
    return {f"{name}_transformers": logits.numpy(), f"{name}_llama_cpp": theirs}


def main(names: list[str]) -> None:
    import importlib.metadata

    import torch
    from make_models import IDS  # pyrefly: ignore

    torch.set_grad_enabled(False)
    out: dict[str, np.ndarray] = dict(np.load(HERE / "gguf_models.npz")) if names else {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or CASES:
            out |= case(name, IDS, Path(scratch))
    packages = ("torch", "transformers", "safetensors", "gguf", "xllamacpp")
    versions = {package: importlib.metadata.version(package) for package in packages}
    out["versions"] = np.array(json.dumps(versions))
    np.savez_compressed(HERE / "gguf_models.npz", **out)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Write what llama.cpp computes of tiny models, of Llamas, and of tokenizers.

It makes `gguf_models.npz`, `llama.npz` with `tiny_llama/`, and `gguf_tokenizers.json`. It needs
torch, transformers, accelerate, safetensors, gguf and xllamacpp; the tests need gguf and
safetensors. Real models come from `experiments/fetch_models.py --gemma`, in JAXPE_MODELS_DIR. Names
of new families as arguments leave all else as it is.

- A tiny model of each family: files are written from `models/`, as float32, with the names of
  tensors that the package gguf has and the entries and changes of llama.cpp's converter.
  Log-probabilities of llama.cpp have to be those of transformers; then the file is right, and the
  test writes it again and reads it.
- Llamas: a tiny one, random in every tensor, with other fields of config.json, and SmolLM2.
  llama.cpp multiplies quantised weights with activations that it quantises too. So that its numbers
  can be compared, it is given the same weights as float32; those of the quantised file, which
  differ by 0.4, are not kept.
- Ids of texts by the tokenizers of .gguf files. The rules by which text is split into words are
  tried on the vocabulary of SmolLM2, of which files are written that name another rule.
"""

import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tools.parity.goldens import HERE, read_arrays, write_arrays
from tools.parity.make_models import FOLDER
from tools.parity.make_models import IDS as MODEL_IDS

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
    return finished(writer, path)


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


def llama_cpp_logprobs(path: Path, ids: np.ndarray) -> np.ndarray:
    """Log-probabilities `[2, n, vocab]` of what follows each token."""
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


# Llamas.


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
LLAMA_CASES: dict[str, dict[str, Any]] = {
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
PROMPTS = (
    "The capital of France is",
    "In 1789, the people of Paris didn't wait:\n\n  they took   the Bastille (14 July)!",
    "na\u00efve caf\u00e9 \u2014 \u6771\u4eac 12.5% \U0001f600, x\u00b2 \u00bd \u0663\u0664",
)
SHOWN = (3, 12, 25)  # places of the second text
COUNT = 40  # likeliest tokens that are stored there


def write_tiny() -> None:
    """A directory with random tensors."""
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


def copied(source: Path, target: Path, *, wide: bool = False, **changes: Any) -> Path:
    """A copy of a .gguf file with other metadata, or `wide`, with every tensor dequantised."""
    reader = gguf.GGUFReader(source)
    fields = {n: field for n, field in reader.fields.items() if not n.startswith("GGUF.")}
    writer = gguf.GGUFWriter(target, fields.pop("general.architecture").contents())
    for name, field in fields.items():
        if wide and name == "general.file_type":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        value = changes.get(name, field.contents())
        writer.add_key_value(name, value, field.types[0], inner)
    for tensor in reader.tensors:
        if wide:
            weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, weights.reshape(tensor.shape[::-1]))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    return finished(writer, target)


def finished(writer: gguf.GGUFWriter, path: Path) -> Path:
    """The file, after all that the writer has is in it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def real(folder: Path) -> dict[str, np.ndarray]:
    """Tokens of the texts, and what comes next in the second one."""
    import torch
    import transformers

    (path,) = folder.glob("*.gguf")
    out = {}
    with tempfile.TemporaryDirectory() as scratch:
        ask = llama_cpp(copied(path, Path(scratch) / "float32.gguf", wide=True))
        tokens = [ask("tokenize", content=text)["tokens"] for text in PROMPTS]
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


# Tokenizers.


TEXTS = (
    "In 1789, the people of Paris didn't wait:\n\n  they took   the Bastille (14 July)!",
    "naïve café — 東京 12.5% 😀, x² ½ ٣٤",
    "<|im_start|>user\n\n\nwhat\t\tis <b>this</b>? I'LL 'Re 12345678",
    "  leading\r\n \n x",
    "\u2581x \ue000 zz _foo.bar(baz) \u00a0 e\u0301 don’t",
)
RULES = ("smollm", "gpt-2", "qwen2", "llama-bpe")


def tokenized(path: Path) -> list[list[int]]:
    ask = llama_cpp(path)
    options = {"add_special": False, "parse_special": True}
    return [ask("tokenize", content=text, **options)["tokens"] for text in TEXTS]


def tokenizers(models: Path, scratch: Path) -> dict[str, list[list[int]]]:
    """Ids of the texts by tokenizer."""
    smollm, gemma = (next((models / name).glob("*.gguf")) for name in (REAL, "gemma-3-270m"))
    found = {"gemma": tokenized(gemma)}
    for rule in RULES:
        changes = {"tokenizer.ggml.pre": rule}
        found[rule] = tokenized(copied(smollm, scratch / f"{rule}.gguf", **changes))
    changes = {"tokenizer.ggml.add_space_prefix": True}
    prefixed = copied(gemma, scratch / "prefixed.gguf", **changes)
    return found | {"gemma with a space in front": tokenized(prefixed)}


def main(names: list[str]) -> None:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    packages = ("torch", "transformers", "safetensors", "gguf", "xllamacpp")
    out = read_arrays(HERE / "gguf_models.npz") if names else {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or CASES:
            out |= case(name, MODEL_IDS, Path(scratch))
    write_arrays(HERE / "gguf_models.npz", out, *packages)
    if names:
        return
    models = Path(os.environ["JAXPE_MODELS_DIR"])
    write_tiny()
    llamas = {f"tiny_{name}": tiny_logits(changes) for name, changes in LLAMA_CASES.items()}
    write_arrays(HERE / "llama.npz", llamas | real(models / REAL), *packages)
    with tempfile.TemporaryDirectory() as scratch:
        found = tokenizers(models, Path(scratch))
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(of)}" for name, of in found.items())
    (HERE / "gguf_tokenizers.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

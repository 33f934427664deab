"""Write `models/`, `models.npz` and `changed_models.npz`: tiny checkpoints of each architecture.

It needs torch, transformers, safetensors and ml_dtypes; the tests need safetensors alone. Names of
new models as arguments leave the others as they are.

The models are random in every tensor (as they are initialised, biases would be 0 and norms 1, and a
name mixed up would not show), in bfloat16 on disk and float32 when they compute. Rows are longer
than windows and chunks. What transformers gives step by step through its cache, and with padding on
the right, is asserted here to be what it gives at once.

Changed models are copies of these directories, or of a T5 beside them, with other fields in their
config.json, and a head that is left out, equal to the embeddings or another matrix. Fields that a
family stores and does not use are among them: their logits are those of the directory itself.
"""

import copy
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors.numpy

from tools.parity.goldens import HERE, read_arrays, write_arrays

FOLDER = HERE / "models"
VOCAB, N, PREFIX, PADS = 48, 10, 6, 3
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
WHOLE = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "n_inner": 24}
GPT |= {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FOUR = {"num_hidden_layers": 4}
LOCAL, GLOBAL = "sliding_attention", "full_attention"
WINDOWS = {"layer_types": [LOCAL, GLOBAL, LOCAL, GLOBAL], "sliding_window": 4}
TWO_BASES = {
    GLOBAL: {"rope_type": "linear", "factor": 2.0, "rope_theta": 400.0},
    LOCAL: {"rope_type": "default", "rope_theta": 50.0},
}
VISION = {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "head_dim": 8}
VISION |= {"num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 8, "patch_size": 4}
PARTIAL = {"partial_rotary_factor": 0.25}
LONGROPE = {"rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
LONGROPE |= {"short_factor": [1.5], "long_factor": [4.0]}
# Class, and what its configuration says.
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", GROUPED | ROPE | {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", GROUPED | ROPE | {"sliding_window": 4}),
    "mistral3": (
        "Mistral3",
        {"text_config": GROUPED | ROPE | {"model_type": "mistral", "sliding_window": 4}}
        | {"vision_config": VISION, "image_token_index": 1, "tie_word_embeddings": True},
    ),
    "qwen2": (
        "Qwen2",
        {**SIZES, "num_key_value_heads": 1, **ROPE}
        | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", GROUPED | ROPE | {"tie_word_embeddings": True}),
    "gemma": ("Gemma", GROUPED | ROPE),
    "gemma2": (
        "Gemma2",
        GROUPED
        | ROPE
        | FOUR
        | WINDOWS
        | {"query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0}
        | {"final_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "Gemma3",
        GROUPED | FOUR | WINDOWS | {"rope_parameters": TWO_BASES, "query_pre_attn_scalar": 12},
    ),
    "smollm3": ("SmolLM3", GROUPED | ROPE | FOUR | {"no_rope_layer_interval": 2}),
    "gpt_neox": (
        "GPTNeoX",
        SIZES
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}
        | {"rotary_pct": 0.5},
    ),
    "gptj": ("GPTJ", GPT | {"rotary_dim": 4}),
    "gpt2": ("GPT2", GPT),
    "opt": (
        "OPT",
        {k: v for k, v in SIZES.items() if k != "intermediate_size"}
        | {"ffn_dim": 24, "word_embed_proj_dim": 16},
    ),
    "opt_post": (
        "OPT",
        {k: v for k, v in SIZES.items() if k != "intermediate_size"}
        | {"ffn_dim": 24, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
    ),
    "bloom": (
        "Bloom",
        {"vocab_size": VOCAB, "hidden_size": 16, "n_layer": 2, "n_head": 2, "pad_token_id": 0},
    ),
    "phi": ("Phi", SIZES | ROPE | {"num_key_value_heads": 1, "qk_layernorm": True}),
    "olmo2": ("Olmo2", WHOLE | ROPE),
    "olmo3": ("Olmo3", GROUPED | FOUR | WINDOWS | {"rope_parameters": TWO_BASES}),
    "exaone4": ("Exaone4", WHOLE | ROPE | FOUR | WINDOWS),
    "phi3": (
        "Phi3",
        WHOLE
        | {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16}
        | {"sliding_window": 4},
    ),
    "granite": (
        "Granite",
        GROUPED
        | ROPE
        | {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4}
        | {"logits_scaling": 2.0, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "glm": ("Glm", GROUPED | ROPE),
    "glm4": ("Glm4", GROUPED | {"rope_parameters": ROPE["rope_parameters"] | PARTIAL}),
    "cohere": ("Cohere", WHOLE | ROPE | {"logit_scale": 0.4}),
    "cohere2": ("Cohere2", WHOLE | ROPE | FOUR | WINDOWS | {"logit_scale": 0.6}),
    "stablelm": ("StableLm", SIZES | ROPE | {"num_key_value_heads": 1, "use_qkv_bias": True}),
    "starcoder2": ("Starcoder2", WHOLE | ROPE | {"sliding_window": 4}),
    "nemotron": ("Nemotron", WHOLE | ROPE | {"mlp_bias": True}),
    "arcee": ("Arcee", GROUPED | ROPE),
    "helium": ("Helium", WHOLE | ROPE | {"head_dim": 4, "attention_bias": True}),
    "ernie4_5": ("Ernie4_5", GROUPED | ROPE | {"use_bias": True}),
    "seed_oss": ("SeedOss", GROUPED | ROPE | {"mlp_bias": True}),
    "ministral": ("Ministral", GROUPED | ROPE | FOUR | WINDOWS),
    "vaultgemma": ("VaultGemma", GROUPED | ROPE | {"sliding_window": 4}),
}
ESM = {k: v for k, v in SIZES.items() if k != "pad_token_id"}
ESM |= {"pad_token_id": 1, "mask_token_id": 31, "eos_token_id": 2}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("Roberta", SIZES | {"pad_token_id": 1, "type_vocab_size": 1}),
    "modernbert": (
        "ModernBert",
        SIZES
        | {"num_hidden_layers": 3, "local_attention": 4, "cls_token_id": 1, "sep_token_id": 2}
        | {"layer_types": [GLOBAL, LOCAL, GLOBAL]}
        | {"rope_parameters": TWO_BASES},
    ),
    "xlm_roberta": ("XLMRoberta", SIZES | {"pad_token_id": 1, "type_vocab_size": 1}),
    "camembert": ("Camembert", SIZES | {"pad_token_id": 1, "type_vocab_size": 2}),
    "esm": ("Esm", ESM | {"position_embedding_type": "rotary", "token_dropout": True}),
    "esm_table": ("Esm", ESM | {"emb_layer_norm_before": True}),
    "nomic_bert": ("NomicBert", SIZES | ROPE | {"head_dim": 6}),
    "jina": ("JinaEmbeddingsV3", SIZES | ROPE | {"pad_token_id": 1}),
    "eurobert": ("EuroBert", GROUPED | ROPE | {"attention_bias": True}),
    "embedding_gemma": (
        "Gemma3Text",
        GROUPED
        | FOUR
        | WINDOWS
        | {"rope_parameters": TWO_BASES, "query_pre_attn_scalar": 12}
        | {"sliding_window": 5, "use_bidirectional_attention": True},
    ),
}
# Encoders without a head.
ALONE = ("eurobert", "embedding_gemma")
# Their norms add 1 to the scale themselves.
ADD_ONE = ("gemma", "embedding_gemma", "vaultgemma", "nemotron")
# Positions that these take from the mask themselves.
BY_MASK = ("opt", "opt_post", "bloom")
RNG = np.random.default_rng(0)
IDS = RNG.integers(3, VOCAB, (2, N), np.int64)
MASK = np.ones((2, N), bool)
MASK[1, :PADS] = False


def write(name: str, model: Any) -> None:
    """A directory with random tensors, as transformers saves it."""
    import torch

    torch.manual_seed(sum(map(ord, name)))
    for key, value in sorted(model.named_parameters()):
        norm = ("norm" in key.lower() or "ln_" in key) and key.endswith("weight")
        value.copy_(float(norm and not name.startswith(ADD_ONE)) + 0.25 * torch.randn(value.shape))
    model.bfloat16().save_pretrained(FOLDER / name)
    (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
    (FOLDER / name / "model.safetensors").chmod(0o644)


def made(name: str, title: str, changes: dict[str, Any], kind: str) -> Any:
    """The model of a directory, after it is written."""
    import transformers

    text = "Text" if title == "Gemma3" else ""
    own = copy.deepcopy(changes)  # a configuration adds to its entries of RoPE
    config = getattr(transformers, f"{title}{text}Config")(**own, attn_implementation="eager")
    heads = {"GPT2": "LMHeadModel", "Mistral3": "ForConditionalGeneration"}
    kind = heads.get(title, kind)
    cls = getattr(transformers, f"{title}{kind}")
    config.architectures = [cls.__name__]
    write(name, cls(config))
    return cls.from_pretrained(FOLDER / name, attn_implementation="eager").float().eval()


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=1e-5)


def decoder(name: str, title: str, changes: dict[str, Any]) -> dict[str, np.ndarray]:
    import torch

    model = made(name, title, changes, "ForCausalLM")
    ids, mask = torch.tensor(IDS), torch.tensor(MASK).long()
    found = model(ids, output_hidden_states=True, use_cache=False)
    out = {
        "logits": found.logits.numpy(),
        "state": found.hidden_states[1].numpy(),
        "hidden": found.hidden_states[-1].numpy(),
    }
    part = model(ids[:, :PREFIX], use_cache=True)
    close(part.logits, out["logits"][:, :PREFIX])
    for i in range(PREFIX, N):
        part = model(ids[:, i : i + 1], past_key_values=part.past_key_values, use_cache=True)
        close(part.logits[:, 0], out["logits"][:, i])
    right = torch.flip(mask, (1,))
    padded = model(torch.where(right == 1, ids, 0), attention_mask=right, use_cache=False).logits
    valid = right.bool().numpy()
    close(padded.numpy()[valid], out["logits"][valid])
    options = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    options = {} if name in BY_MASK else options
    padded = torch.where(mask == 1, ids, 0)
    left = model(padded, attention_mask=mask, use_cache=False, **options).logits.numpy()
    out["left"] = left[1, PADS:]  # the row that has padding
    return out


def encoder(name: str, title: str, changes: dict[str, Any]) -> dict[str, np.ndarray]:
    import torch

    model = made(name, title, changes, "Model" if name in ALONE else "ForMaskedLM")
    ids, left = torch.tensor(IDS), torch.tensor(MASK).long()
    out = {}
    pad = changes["pad_token_id"]
    for side, mask in (("", torch.flip(left, (1,))), ("left_", left)):
        padded = torch.where(mask == 1, ids, pad)
        found = model(padded, attention_mask=mask, output_hidden_states=True)
        out |= {} if name in ALONE else {f"{side}logits": found.logits.numpy()}
        out |= {
            f"{side}state": found.hidden_states[1].numpy(),
            f"{side}hidden": found.hidden_states[-1].numpy(),
        }
    return out


CHANGED_IDS = np.random.default_rng(0).integers(3, 40, (2, 10))
ANSWERS = CHANGED_IDS[:, :7]
Head = Literal["as it is", "without", "embeddings", "other"]


class Changed(NamedTuple):
    """A directory, what is changed in its config.json, and the head its file has then."""

    base: str
    changes: dict[str, Any]
    head: Head = "as it is"


HALF = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0}
YARN |= {"original_max_position_embeddings": 16}
LAYERS = (GLOBAL, LOCAL)
BY_LAYER = {kind: {**HALF, "rope_theta": 9.0} for kind in LAYERS}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
MT5 = {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"]}
NAMES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "smollm3")
CHANGED = {
    **{f"{name} share": Changed(name, {"rope_parameters": HALF}) for name in NAMES},
    "gemma3 share": Changed("gemma3", {"rope_parameters": BY_LAYER}),
    "modernbert share": Changed("modernbert", {"rope_parameters": BY_LAYER}),
    "gpt_neox share": Changed("gpt_neox", {"rope_parameters": HALF}),
    "gemma3 cap": Changed("gemma3", {"attn_logit_softcapping": 0.5}),
    "opt epsilon": Changed("opt", {"layer_norm_eps": 0.5}),
    "smollm3 windows": Changed(
        "smollm3",
        {"layer_types": [*LAYERS, *LAYERS], "sliding_window": 3, "use_sliding_window": False},
    ),
    "llama yarn": Changed("llama", {"rope_parameters": YARN}),
    "gpt2 untied": Changed("gpt2", UNTIED, "other"),
    "gptj tied": Changed("gptj", TIED, "without"),
    "phi tied": Changed("phi", TIED, "without"),
    "phi tied with a copy": Changed("phi", TIED, "embeddings"),
    "mt5 tied": Changed("tiny_t5_gated", MT5 | TIED, "without"),
    "mt5 tied with a copy": Changed("tiny_t5_gated", MT5 | TIED, "embeddings"),
    "mt5 with another head": Changed("tiny_t5_gated", MT5 | TIED),
    "mt5 of transformers 4": Changed("tiny_t5_gated", MT5 | UNTIED),
    "t5 scaled": Changed("tiny_t5", {"scale_decoder_outputs": True} | TIED),
    "t5 not scaled": Changed("tiny_t5", {"scale_decoder_outputs": False} | TIED),
}


def write_changed(case: Changed, folder: Path) -> Path:
    """A changed copy of a directory."""
    source = HERE / case.base if case.base.startswith("tiny") else FOLDER / case.base
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


def changed_logits(folder: Path) -> np.ndarray:
    """What transformers computes; T5, whose attention is not scaled, in float64."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0])
    model = cls.from_pretrained(folder, attn_implementation="eager").float().eval()
    ids, options = torch.tensor(CHANGED_IDS), {}
    if "t5" in config.model_type:
        options = {"decoder_input_ids": torch.tensor(ANSWERS), "use_cache": False}
        model = model.double()
    return model(ids, **options).logits.numpy()


def main(names: list[str]) -> None:
    import ml_dtypes  # noqa: F401 (for NumPy, which has no bfloat16 itself)
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    packages = ("torch", "transformers", "safetensors")
    out = read_arrays(HERE / "models.npz") if names else {}
    for cases, outputs in ((DECODERS, decoder), (ENCODERS, encoder)):
        for name in [name for name in cases if not names or name in names]:
            found = outputs(name, *cases[name])
            out |= {f"{name}_{key}": value.astype(np.float32) for key, value in found.items()}
            print(name, {key: float(np.abs(value).max().round(2)) for key, value in found.items()})
    write_arrays(HERE / "models.npz", out, *packages)
    changed = {}
    for name, case in CHANGED.items():
        with tempfile.TemporaryDirectory() as folder:
            changed[name] = changed_logits(write_changed(case, Path(folder) / "case"))
        print(name, np.abs(changed[name]).max())
    write_arrays(HERE / "changed_models.npz", changed, *packages)


if __name__ == "__main__":
    main(sys.argv[1:])

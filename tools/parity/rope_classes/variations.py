"""Configurations that are measured: what each class needs, and how it is varied."""

import json
import re

from transformers import PreTrainedConfig

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
SECTIONS = {
    "rope_parameters": {**PLAIN, "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5}
}
NEEDED = {  # fields without which a model of the class cannot be built or run
    "chameleon": {"vocabulary_map": {"<image>": 4}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": PLAIN}},
    "dbrx": {"attn_config": {"rope_theta": 500000.0, "clip_qkv": 8.0}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense"] * 32},
    "diffusion_gemma_text": {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 704},
    "dots1": {"n_routed_experts": 16, "n_shared_experts": 2, "num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "gemma4_assistant": {
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
        }
    },
    "glm4v_text": SECTIONS,
    "glm4v_moe_text": {**SECTIONS, "head_dim": 128},
    "glm4_moe": {"head_dim": 128},
    "glm_image_text": SECTIONS,
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl_text": {
        "head_dim": 128,
        "rope_parameters": {**PLAIN, "mrope_section": [16, 16, 16, 16]},
    },
    "moonshine_streaming": {"num_key_value_heads": 8},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 1024},
    "step3p5": {"sliding_window": 512},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_encoder": {"dropout_rate": 0.0},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 2048,
        "indexer_compress_ratio": 16,
    },
    "lfm2_moe": {"layer_types": ["full_attention" if i % 4 == 2 else "conv" for i in range(32)]},
}
EXTRA = {  # kinds of layer that defaults do not show
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "lfm2": {"full_attn_idxs": [2, 5, 8, 10, 12, 14, 20, 26]},
    "granitemoehybrid": {
        "position_embedding_type": "rope",
        "layer_types": ["mamba"] * 5 + ["attention"] + ["mamba"] * 6,
        "num_hidden_layers": 12,
    },
    "falcon": {"new_decoder_architecture": True, "alibi": True},
}
FLAGS = re.compile(
    r"^(rope_interleave|use_mem_rope|alibi|use_rotary_embedding|rotary_value|mla_use_nope|use_rope|use_nope)$"
)
NAMES = {"granitemoehybrid": "rope"}  # of the rotary kind in position_embedding_type
SPARSE = re.compile(
    r"^(index_topk|indexer_topk|sparse_topk)$"
)  # an indexer runs where there are more tokens
TOWERS = re.compile(
    "vision|audio|image|vq|encoder_config|speech|perceiver|backbone|codec|tokenizer"
)
TEXTS = re.compile("text|thinker|language|llm|decoder")
CLASSES = {}  # by type
SIZES = (
    "share layers window head",
    "share layers head",
    "share window head",
    "layers head",
    "share head",
    "share layers window",
    "share layers",
    "share",
    "",
)


def new(cls, **kwargs):
    """The class's defaults, with what it and the classes inside it need."""
    return cls(**merged(needed(cls), kwargs))


def needed(cls):
    fields = dict(NEEDED.get(cls.model_type, {}))
    for name, spec in cls.sub_configs_defaults.items():
        inner = CLASSES.get(spec.model_type)
        if inner is not None and (more := needed(inner)):
            fields[name] = {"model_type": spec.model_type, **more}
    return fields


def merged(first, second):
    both = {
        k: merged(first[k], v)
        for k, v in second.items()
        if isinstance(v, dict) and isinstance(first.get(k), dict)
    }
    return {**first, **second, **both}


def changed(config, change):
    """Arguments of the class that change the configuration with rotary parameters inside it."""
    subs = [n for n in config.sub_configs_defaults if not TOWERS.search(n)]
    for name in sorted(subs, key=lambda n: not TEXTS.search(n)):
        sub = getattr(config, name, None)
        if isinstance(sub, PreTrainedConfig) and (inner := changed(sub, change)):
            return {name: {"model_type": sub.model_type, **inner}}
    if getattr(config, "rope_parameters", None):
        return change(config)
    return {}


def nested(parameters):
    return [k for k, v in parameters.items() if isinstance(v, dict)]


def scaling(name, factor, original, count):
    if name == "llama3":
        extra = {
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": original,
        }
    elif name == "longrope":
        extra = {
            "short_factor": [round(1 + 0.01 * i, 2) for i in range(count)],
            "long_factor": [round(1 + 0.5 * i, 1) for i in range(count)],
            "original_max_position_embeddings": original,
        }
    else:
        extra = {"original_max_position_embeddings": original} if name == "yarn" else {}
    return {"rope_type": name, "factor": factor, **extra}


def scaled(name, count):
    def change(config):
        parameters = json.loads(json.dumps(dict(config.rope_parameters)))
        longest = getattr(config, "max_position_embeddings", None)
        longest = longest if isinstance(longest, int) else 2048
        factor = {"yarn": 4.0, "llama3": 8.0, "linear": 2.0, "dynamic": 4.0, "longrope": 4.0}[name]
        new = scaling(name, factor, longest, count)
        keys = nested(parameters)
        for key in ["full_attention"] if "full_attention" in keys else keys:
            own = parameters[key].get("rope_type") == "proportional" and name == "linear"
            parameters[key] = {**parameters[key], **({"factor": factor} if own else new)}
        out = {"rope_parameters": parameters if keys else {**parameters, **new}}
        if hasattr(config, "max_position_embeddings") and name != "dynamic":
            out["max_position_embeddings"] = int(longest * factor)
        return out

    return change


def with_head(change):
    """The change with head_dim written out: some scalings fail where it is null."""

    def both(config):
        width = config.hidden_size // config.num_attention_heads
        return {**change(config), "head_dim": width}

    return both


def resized(parts):
    def change(config):
        names = set(type(config).__dataclass_fields__)
        value = lambda n: config.__dict__.get(n)  # noqa: E731
        out = {}
        parameters = json.loads(json.dumps(dict(config.rope_parameters or {})))
        for n, entry in enumerate([parameters[k] for k in nested(parameters)] or [parameters]):
            if entry.get("rope_theta"):
                entry["rope_theta"] = entry["rope_theta"] * (3 + 2 * n)
            if "share" in parts and isinstance(entry.get("partial_rotary_factor"), float):
                entry["partial_rotary_factor"] = (
                    0.25 if entry["partial_rotary_factor"] == 0.5 else 0.5
                )
        if parameters:
            out["rope_parameters"] = parameters
        if "layers" in parts:
            for name in ("num_hidden_layers", "depth"):
                if name in names and isinstance(value(name), int):
                    out[name] = 14 if value(name) > 14 else value(name) + 3
        if "window" in parts:
            for name in names:
                if (
                    re.search(r"pattern|interval|every_n", name)
                    and type(value(name)) is int
                    and value(name) > 1
                ):
                    out[name] = 3 if value(name) != 3 else 2
            for name in ("sliding_window", "local_attention"):
                if type(value(name)) is int:
                    out[name] = 5 + (name == "local_attention")
        if "head" in parts and not any("mrope_section" in p for p in [parameters]):
            heads = value("num_attention_heads")
            if type(value("qk_rope_head_dim")) is int:
                out |= {"qk_rope_head_dim": 32, "qk_nope_head_dim": 96}
            elif "head_dim" in names and type(value("head_dim")) is int:
                out["head_dim"] = 96 if value("head_dim") != 96 else 80
            elif type(heads) is int and type(value("hidden_size")) is int:
                out["hidden_size"] = heads * (96 if value("hidden_size") != 96 * heads else 80)
        return out

    return change


def flags(config):
    """Fields that switch rotary embeddings, each with its other value."""
    for name in sorted(type(config).__dataclass_fields__):
        value = config.__dict__.get(name)
        if FLAGS.search(name) and isinstance(value, bool):
            yield name, not value
        elif name in ("position_embedding_type", "position_embeddings_type") and value != "sine":
            yield name, NAMES.get(config.model_type, "rotary")
        elif SPARSE.search(name) and isinstance(value, int):
            yield name, 4


def cases_of(cls, number, counts):
    """(name, ways to build it) of each variation; of ways the first that works is taken."""
    yield "defaults", [dict]
    try:
        config = new(cls)
    except Exception:  # the case of the defaults holds the error
        return
    if cls.model_type in EXTRA:
        yield "layers", [lambda: EXTRA[cls.model_type]]
    for field, value in flags(config):
        yield f"flag_{field}", [lambda f=field, v=value: {f: v}]
    if not changed(config, lambda c: {"found": 1}):
        return
    yield (
        "scaled",
        [
            lambda: changed(new(cls), scaled("yarn", 0)),
            lambda: changed(new(cls), with_head(scaled("yarn", 0))),
        ],
    )
    names = ["linear"] if "proportional" in str(getattr(config, "rope_parameters", "")) else []
    names += ["longrope"] if cls.model_type.startswith("phi") else []
    names += (
        [("llama3", "linear", "longrope", "dynamic")[number // 3 % 4]] if number % 3 == 0 else []
    )
    for name in dict.fromkeys(names):
        change = scaled(name, counts[0])
        yield (
            f"scaled_{name}",
            [
                lambda c=change: changed(new(cls), c),
                lambda c=change: changed(new(cls), with_head(c)),
            ],
        )
    yield "sizes", [lambda p=parts: changed(new(cls), resized(p.split())) for parts in SIZES]

"""The table of architectures: names of tensors, fields of a config.json, encodings.

A row is a `Family`. Formulas are those of Hugging Face's classes, version 5.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from jaxpe.encodings import (
    Encoding,
    LayerPattern,
    alibi,
    attention_chunks,
    chain,
    deberta,
    identity,
    learned,
    position_temperature,
    rope,
    rope_from_hf,
    sliding_window,
)
from jaxpe.encodings.base import compute_dtype
from jaxpe.nn.checkpoints.families import Family, Fused, Gguf, Modules
from jaxpe.nn.checkpoints.huggingface import Fields
from jaxpe.nn.config import Activation, TransformerConfig

# Fields that change the computation of some family; one that ignores them refuses others.
UNUSUAL: Mapping[str, tuple] = {
    "alibi": (False,),
    "attention_bias": (False,),
    "attention_multiplier": (),
    "attn_logit_softcapping": (),
    "embedding_multiplier": (),
    "final_logit_softcapping": (),
    "layer_types": (),
    "logit_scale": (),
    "logits_scaling": (),
    "mlp_bias": (False,),
    "no_rope_layers": (),
    "num_experts": (0, 1),
    "num_local_experts": (0, 1),
    "partial_rotary_factor": (1.0,),
    "quantization_config": (),
    "query_pre_attn_scalar": (),
    "residual_multiplier": (),
    "sliding_window": (),
    "use_bidirectional_attention": (False,),
    "use_sliding_window": (False,),
}

GATED: dict[str, Activation] = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_fast": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
}
PLAIN: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

_COMMON: Fields = {
    "num_key_value_heads": None,
    "head_dim": None,
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}


# Encodings.


def _by_layer(keys: Iterable[Hashable], make: Callable[[Any], Encoding]) -> Encoding | LayerPattern:
    """The encoding of each layer's key; layers of one key have the same."""
    keys = list(keys)
    made = {key: make(key) for key in dict.fromkeys(keys)}
    if len(made) == 1:
        return made[keys[0]]
    return LayerPattern(tuple(made[key] for key in keys))


def _rope(fields: Fields, config: TransformerConfig, kind: str | None = None, **options: Any):
    """RoPE by `rope_parameters` (those of a kind of layers), or by the fields of before."""
    return rope_from_hf(
        rope_entry(fields, kind),
        head_dim=config.head_width,
        max_position_embeddings=fields["max_position_embeddings"],
        **options,
    )


def rope_entry(fields: Fields, kind: str | None = None) -> Fields:
    """The entry of RoPE in the fields: that of a kind of layers where they have several."""
    entry = fields.get("rope_parameters") or {}
    if kind is not None and (kind in entry or _LOCAL in entry or _GLOBAL in entry):
        entry = entry.get(kind) or {}
    elif not entry and kind != _LOCAL:
        entry = fields.get("rope_scaling") or {}
    base = fields["rope_local_base_freq"] if kind == _LOCAL else fields["rope_theta"]
    share = fields.get("partial_rotary_factor")
    start = {"rope_theta": base} | ({} if share is None else {"partial_rotary_factor": share})
    entry = start | {name: value for name, value in entry.items() if value is not None}
    return entry if share is not None else _without_share(entry)


def _without_share(entry: Fields) -> Fields:
    """An entry of a family that stores `partial_rotary_factor` and turns whole heads by default."""
    kind, share = entry.get("rope_type", entry.get("type", "default")), "partial_rotary_factor"
    if kind == "proportional" or entry.get(share, 1.0) == 1.0:
        return entry
    if kind != "default":
        raise ValueError(f"{share} is {entry[share]!r}; families that turn whole heads take only 1")
    return {name: value for name, value in entry.items() if name != share}


def rope_kinds(fields: Fields) -> tuple[str | None, ...]:
    """Kinds of layers that have an entry of RoPE each; None alone where there is one entry."""
    if "rope_theta" not in fields:
        return ()
    return (_GLOBAL, _LOCAL) if "rope_local_base_freq" in fields else (None,)


_GLOBAL, _LOCAL, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def _llama_rope(fields: Fields, config: TransformerConfig) -> Encoding:
    return _rope(fields, config)


def _mistral_window(fields: Fields, config: TransformerConfig) -> Encoding:
    return _windowed(_rope(fields, config), fields["sliding_window"])


def _windowed(encoding: Encoding, window: int | None) -> Encoding:
    return encoding if window is None else chain(encoding, sliding_window(size=window))


def _qwen_windows(fields: Fields, config: TransformerConfig) -> Encoding | LayerPattern:
    turned = _rope(fields, config)
    window = fields["sliding_window"] if fields["use_sliding_window"] else None
    kinds = fields["layer_types"]
    if kinds is None:
        first = fields["max_window_layers"] if window else config.num_layers
        kinds = [_LOCAL if i >= first else _GLOBAL for i in range(config.num_layers)]
    # An entry alone, where there is no window, has no effect there either.
    return _by_layer(kinds, lambda kind: _windowed(turned, window if kind == _LOCAL else None))


def _gemma2_windows(fields: Fields, config: TransformerConfig) -> Encoding | LayerPattern:
    turned, kinds = _rope(fields, config), fields["layer_types"]
    if kinds is None:
        kinds = [_GLOBAL if i % 2 else _LOCAL for i in range(config.num_layers)]
    window = fields["sliding_window"]
    return _by_layer(kinds, lambda kind: _windowed(turned, window if kind == _LOCAL else None))


def _gemma3_windows(fields: Fields, config: TransformerConfig) -> Encoding | LayerPattern:
    period, kinds = fields["sliding_window_pattern"], fields["layer_types"]
    if kinds is None:
        kinds = [_LOCAL if (i + 1) % period else _GLOBAL for i in range(config.num_layers)]

    def of_kind(kind: str) -> Encoding:
        window = fields["sliding_window"] if kind == _LOCAL else None
        return _windowed(_rope(fields, config, kind), window)

    return _by_layer(kinds, of_kind)


def _some_without_rope(fields: Fields, config: TransformerConfig) -> Encoding | LayerPattern:
    turned, window = _rope(fields, config), fields["sliding_window"]
    turns = _turning_layers(fields, config)
    kinds = fields["layer_types"]
    if kinds is None:  # which the windows follow, whatever `use_sliding_window` says beside them
        slides = window is not None and fields["use_sliding_window"]
        kinds = [_LOCAL if slides and not turn else _GLOBAL for turn in turns]

    def of_layer(key: tuple[bool, str]) -> Encoding:
        local = window if key[1] == _LOCAL else None
        if local is None:
            return turned if key[0] else identity()
        return chain(turned, sliding_window(size=local)) if key[0] else sliding_window(size=local)

    return _by_layer(zip(turns, kinds, strict=True), of_layer)


def _turning_layers(fields: Fields, config: TransformerConfig) -> list[bool]:
    """Whether each layer has RoPE: 1 in `no_rope_layers`, in spite of its name."""
    period = fields["no_rope_layer_interval"]
    given = fields["no_rope_layers"] or [(i + 1) % period for i in range(config.num_layers)]
    return [bool(turn) for turn in given]


def _llama4_layers(fields: Fields, config: TransformerConfig) -> Encoding | LayerPattern:
    turned = _rope(fields, config, layout="interleaved")
    if fields["use_qk_norm"]:
        # After the rotation, whose attention factor it takes out.
        turned = chain(turned, _unit_rms(fields["rms_norm_eps"]))
    turns, size = _turning_layers(fields, config), fields["attention_chunk_size"]
    kinds = fields["layer_types"] or [_CHUNKED if turn else _GLOBAL for turn in turns]
    sharper = identity()
    if fields["attn_temperature_tuning"]:
        sharper = position_temperature(scale=fields["attn_scale"], period=fields["floor_scale"])

    def of_layer(key: tuple[bool, str]) -> Encoding:
        base = turned if key[0] else sharper
        return chain(base, attention_chunks(size=size)) if key[1] == _CHUNKED else base

    return _by_layer(zip(turns, kinds, strict=True), of_layer)


def _unit_rms(epsilon: float) -> Encoding:
    """Queries and keys divided by their root mean square."""

    def turn(params, x, positions):
        wide = x.astype(compute_dtype(x))
        mean = (wide**2).mean(axis=-1, keepdims=True)
        return (wide * (mean + np.asarray(epsilon, mean.dtype)) ** -0.5).astype(x.dtype)

    return Encoding(query=turn, key=turn)


def _gptj_rope(fields: Fields, config: TransformerConfig) -> Encoding:
    width = config.head_width
    share = (fields["rotary_dim"] or width) / width
    return rope(head_dim=width, fraction=share, layout="interleaved")


def _table(fields: Fields, config: TransformerConfig) -> Encoding:
    return learned(length=fields["max_position_embeddings"], dim=config.dim)


def shifted(encoding: Encoding, by: int) -> Encoding:
    """An encoding of embeddings at positions that start `by` later."""

    def embed(params, x, positions):
        return encoding.embed(params, x, positions + by)

    def vectors(params, positions):
        return encoding.vectors(params, positions + by)

    return Encoding(init=encoding.init, embed=embed, vectors=vectors)


def _opt_table(fields: Fields, config: TransformerConfig) -> Encoding:
    length = fields["max_position_embeddings"] + _OPT_OFFSET
    return shifted(learned(length=length, dim=config.dim), _OPT_OFFSET)


_OPT_OFFSET = 2  # rows of the table before that of position 0


def _alibi(fields: Fields, config: TransformerConfig) -> Encoding:
    return alibi(num_heads=config.num_heads)


# Fields of `TransformerConfig`.


def _biases(fields: Fields, **parts: Any) -> tuple[str, ...]:
    """`use_bias` of parts by what is true of each."""
    return tuple(name for name, there in parts.items() if there)


def _llama_like(fields: Fields, **more: Any) -> Fields:
    attention, mlp = fields.get("attention_bias"), fields.get("mlp_bias")
    biased = {"query_key_value": attention, "attention_output": attention, "feed_forward": mlp}
    return {
        "activation": GATED[fields["hidden_act"]],
        "norm": "rms",
        "norm_epsilon": fields["rms_norm_eps"],
        "use_bias": _biases(fields, **biased),
        **more,
    }


def _qwen2(fields: Fields) -> Fields:
    return _llama_like(fields, use_bias=("query_key_value",))


def _qwen3(fields: Fields) -> Fields:
    return _llama_like(fields, query_key_norm=True)


def _gemma(fields: Fields, **more: Any) -> Fields:
    # In the first configurations "gelu" means its approximation.
    act = "gelu_pytorch_tanh" if fields["hidden_act"] == "gelu" else fields["hidden_act"]
    factor = fields["hidden_size"] ** 0.5
    return _llama_like(fields | {"hidden_act": act}, embedding_factor=factor, **more)


def _gemma2(fields: Fields, **more: Any) -> Fields:
    own = {
        "embedding_factor": fields["hidden_size"] ** 0.5,
        "norm_position": "both",
        "attention_scale": fields["query_pre_attn_scalar"] ** -0.5,
        "attention_cap": fields["attn_logit_softcapping"],
        "logit_cap": fields["final_logit_softcapping"],
    }
    return _llama_like(fields, **own, **more)


def _gemma3(fields: Fields) -> Fields:
    # It stores a cap of attention and does not use it.
    return _gemma2(fields | {"attn_logit_softcapping": None}, query_key_norm=True)


def _layer_norms(fields: Fields, **more: Any) -> Fields:
    """Fields of families with LayerNorms and a feed-forward layer without a gate."""
    return {
        "activation": PLAIN[fields["hidden_act"]],
        "norm_epsilon": fields["layer_norm_eps"],
        "use_bias": ("query_key_value", "attention_output", "feed_forward", "norm"),
        **more,
    }


def _neox(fields: Fields) -> Fields:
    parallel = "parallel" if fields["use_parallel_residual"] else "sequential"
    attention = fields["attention_bias"]
    biased = {"query_key_value": attention, "attention_output": attention}
    parts = _biases(fields, **biased, feed_forward=True, norm=True)
    return _layer_norms(fields, residual=parallel, use_bias=parts, dropout=fields["hidden_dropout"])


def _gptj(fields: Fields) -> Fields:
    biased = ("feed_forward", "norm", "head")
    rates = {"dropout": fields["resid_pdrop"]}
    return _layer_norms(fields, residual="parallel_one_norm", use_bias=biased, **rates)


def _phi(fields: Fields) -> Fields:
    own = {"residual": "parallel_one_norm", "query_key_norm": fields["qk_layernorm"]}
    return _layer_norms(fields, use_bias=True, dropout=fields["resid_pdrop"], **own)


def _gpt2(fields: Fields) -> Fields:
    return _layer_norms(fields, dropout=fields["resid_pdrop"])


def _bloom(fields: Fields) -> Fields:
    return _layer_norms(
        fields, embedding_norm=True, activation="gelu_tanh", dropout=fields["hidden_dropout"]
    )


def _opt(fields: Fields) -> Fields:
    dense = fields["enable_bias"]
    biased = {"query_key_value": dense, "attention_output": dense, "feed_forward": dense}
    return _layer_norms(
        fields,
        norm_position="pre" if fields["do_layer_norm_before"] else "post",
        norm_epsilon=1e-5,  # of torch, whatever the configuration says
        embedding_norm=False,
        use_bias=_biases(fields, **biased, norm=True),
        dropout=fields["dropout"],
    )


# Names of modules.


def _layers(there: str, names: Mapping[str, str | Fused]) -> Modules:
    """Modules of a layer, whose names there follow one prefix."""

    def below(name: str | Fused) -> str | Fused:
        if isinstance(name, Fused):
            return name._replace(theirs=f"{there}{name.theirs}")
        return f"{there}{name}"

    return {f"layers.{ours}": below(name) for ours, name in names.items()}


def _fused(theirs: str, *, by_head: bool) -> Modules:
    parts = ("query", "key", "value")
    return {f"attention.{name}": Fused(theirs, i, 3, by_head) for i, name in enumerate(parts)}


def _projections(output: str = "o_proj", there: str = "self_attn.") -> Modules:
    named = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": output}
    return {f"attention.{ours}": f"{there}{theirs}" for ours, theirs in named.items()}


def _llama_modules(mlp: str = "mlp.", **norms: str) -> Modules:
    norms = norms or {"mlp_norm": "post_attention_layernorm"}
    return {
        "tokens": "embed_tokens",
        **_layers(
            "layers.{layer}.",
            {
                "attention_norm": "input_layernorm",
                **_projections(),
                **norms,
                **{f"mlp.{name}": f"{mlp}{name}_proj" for name in ("gate", "up", "down")},
            },
        ),
        "final_norm": "norm",
        "head.output": "lm_head",
    }


_NORMS_OF_HEADS = {
    "layers.attention.query_norm": "layers.{layer}.self_attn.q_norm",
    "layers.attention.key_norm": "layers.{layer}.self_attn.k_norm",
}
_GEMMA2_NORMS = {
    "mlp_norm": "pre_feedforward_layernorm",
    "attention_output_norm": "post_attention_layernorm",
    "mlp_output_norm": "post_feedforward_layernorm",
}
_NEOX_MODULES: Modules = {
    "tokens": "embed_in",
    **_layers(
        "layers.{layer}.",
        {
            "attention_norm": "input_layernorm",
            **_fused("attention.query_key_value", by_head=True),
            "attention.output": "attention.dense",
            "mlp_norm": "post_attention_layernorm",
            "mlp.up": "mlp.dense_h_to_4h",
            "mlp.down": "mlp.dense_4h_to_h",
        },
    ),
    "final_norm": "final_layer_norm",
    "head.output": "embed_out",
}
_BLOOM_MODULES: Modules = {
    "tokens": "word_embeddings",
    "embedding_norm": "word_embeddings_layernorm",
    **_layers(
        "h.{layer}.",
        {
            "attention_norm": "input_layernorm",
            **_fused("self_attention.query_key_value", by_head=True),
            "attention.output": "self_attention.dense",
            "mlp_norm": "post_attention_layernorm",
            "mlp.up": "mlp.dense_h_to_4h",
            "mlp.down": "mlp.dense_4h_to_h",
        },
    ),
    "final_norm": "ln_f",
    "head.output": "lm_head",
}
_GPT2_MODULES: Modules = {
    "tokens": "wte",
    "encoding_params.table": "wpe",
    **_layers(
        "h.{layer}.",
        {
            "attention_norm": "ln_1",
            **_fused("attn.c_attn", by_head=False),
            "attention.output": "attn.c_proj",
            "mlp_norm": "ln_2",
            "mlp.up": "mlp.c_fc",
            "mlp.down": "mlp.c_proj",
        },
    ),
    "final_norm": "ln_f",
    "head.output": "lm_head",
}
_GPTJ_MODULES: Modules = {
    "tokens": "wte",
    **_layers(
        "h.{layer}.",
        {
            "attention_norm": "ln_1",
            **_projections("out_proj", "attn."),
            "mlp.up": "mlp.fc_in",
            "mlp.down": "mlp.fc_out",
        },
    ),
    "final_norm": "ln_f",
    "head.output": "lm_head",
}
_PHI_MODULES: Modules = {
    "tokens": "embed_tokens",
    **_layers(
        "layers.{layer}.",
        {
            "attention_norm": "input_layernorm",
            **_projections("dense"),
            "attention.query_norm": "self_attn.q_layernorm",
            "attention.key_norm": "self_attn.k_layernorm",
            "mlp.up": "mlp.fc1",
            "mlp.down": "mlp.fc2",
        },
    ),
    "final_norm": "final_layernorm",
    "head.output": "lm_head",
}
_OPT_MODULES: Modules = {
    "tokens": "decoder.embed_tokens",
    "encoding_params.table": "decoder.embed_positions",
    **_layers(
        "decoder.layers.{layer}.",
        {
            "attention_norm": "self_attn_layer_norm",
            **_projections("out_proj"),
            "mlp_norm": "final_layer_norm",
            "mlp.up": "fc1",
            "mlp.down": "fc2",
        },
    ),
    "final_norm": "decoder.final_layer_norm",
    "head.output": "lm_head",
}

# Fields that a config.json may leave out.
_LLAMA: Fields = _COMMON | {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
}
_ATTENTION_BIAS: Fields = {"attention_bias": False}
_WINDOWS: Fields = {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
_QWEN2 = (
    _LLAMA
    | _WINDOWS
    | {
        "vocab_size": 151936,
        "num_key_value_heads": 32,
        "intermediate_size": 22016,
        "max_position_embeddings": 32768,
    }
)
_NOPE_LAYERS: Fields = {
    "no_rope_layers": None,
    "no_rope_layer_interval": 4,
    "layer_types": None,
}
_GEMMA: Fields = (
    _LLAMA
    | _ATTENTION_BIAS
    | {
        "vocab_size": 256000,
        "hidden_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "intermediate_size": 24576,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }
)
_GEMMA2: Fields = _GEMMA | {
    "hidden_size": 2304,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 9216,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "layer_types": None,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
_GPT: Fields = _COMMON | {
    "vocab_size": 50257,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": None,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 1024,
    "layer_norm_eps": 1e-5,
}
_GPT_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_inner": "intermediate_size",
    "activation_function": "hidden_act",
    "attn_pdrop": "attention_dropout",
    "layer_norm_epsilon": "layer_norm_eps",
}
LLAMA = Family(
    model_type="llama",
    title="Llama",
    prefix="model.",
    modules=_llama_modules(),
    defaults=_LLAMA | _ATTENTION_BIAS | {"mlp_bias": False},
    options=_llama_like,
    encoding=_llama_rope,
    gguf=Gguf("llama", interleaved=True, divided=True),
)
MISTRAL = Family(
    model_type="mistral",
    title="Mistral",
    prefix="model.",
    modules=_llama_modules(),
    defaults=_LLAMA
    | {
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "max_position_embeddings": 4096 * 32,
        "sliding_window": 4096,
    },
    options=_llama_like,
    encoding=_mistral_window,
)
QWEN2 = Family(
    model_type="qwen2",
    title="Qwen2",
    prefix="model.",
    modules=_llama_modules(),
    defaults=_QWEN2,
    options=_qwen2,
    encoding=_qwen_windows,
    gguf=Gguf("qwen2"),
)
QWEN3 = Family(
    model_type="qwen3",
    title="Qwen3",
    prefix="model.",
    modules=_llama_modules() | _NORMS_OF_HEADS,
    defaults=_QWEN2 | _ATTENTION_BIAS | {"head_dim": 128},
    options=_qwen3,
    encoding=_qwen_windows,
    gguf=Gguf("qwen3"),
)
SMOLLM3 = Family(
    model_type="smollm3",
    title="SmolLM3",
    prefix="model.",
    modules=_llama_modules(),
    defaults=_LLAMA
    | _ATTENTION_BIAS
    | _NOPE_LAYERS
    | {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rope_theta": 2_000_000.0,
        "use_sliding_window": False,
        "sliding_window": None,
        "mlp_bias": False,
        "tie_word_embeddings": True,
    },
    options=_llama_like,
    encoding=_some_without_rope,
    gguf=Gguf("smollm3", interleaved=True),
)
LLAMA4 = Family(
    model_type="llama4_text",
    title="Llama4",
    prefix="model.",
    modules=_llama_modules("feed_forward."),
    defaults=_LLAMA
    | _ATTENTION_BIAS
    | _NOPE_LAYERS
    | {
        "vocab_size": 202048,
        "hidden_size": 5120,
        "intermediate_size": 16384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 4096 * 32,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "use_qk_norm": True,
        "attention_chunk_size": 8192,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "attn_scale": 0.1,
        "num_local_experts": 16,
    },
    options=_llama_like,
    encoding=_llama4_layers,
    # The width of its experts is `intermediate_size`, that of its dense layers the other.
    renamed={"intermediate_size_mlp": "intermediate_size"},
    allowed={"moe_layers": ([],)},
)
GEMMA = Family(
    model_type="gemma",
    title="Gemma",
    prefix="model.",
    modules=_llama_modules(),
    defaults=_GEMMA,
    options=_gemma,
    encoding=_llama_rope,
    allowed={"hidden_activation": ("gelu", "gelu_pytorch_tanh")},
    plus=1.0,
    gguf=Gguf("gemma"),
)
GEMMA2 = Family(
    model_type="gemma2",
    title="Gemma2",
    prefix="model.",
    modules=_llama_modules(**_GEMMA2_NORMS),
    defaults=_GEMMA2,
    options=_gemma2,
    encoding=_gemma2_windows,
    renamed={"hidden_activation": "hidden_act"},
    plus=1.0,
    gguf=Gguf("gemma2"),
)
GEMMA3 = Family(
    model_type="gemma3_text",
    title="Gemma3",
    prefix="model.",
    modules=_llama_modules(**_GEMMA2_NORMS) | _NORMS_OF_HEADS,
    defaults=_GEMMA2
    | {
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window_pattern": 6,
        "final_logit_softcapping": None,
        "attn_logit_softcapping": None,
    },
    options=_gemma3,
    encoding=_gemma3_windows,
    renamed={"hidden_activation": "hidden_act"},
    plus=1.0,
    gguf=Gguf("gemma3", required=("attention.sliding_window",)),  # no local layers without it
)
GPT_NEOX = Family(
    model_type="gpt_neox",
    title="GPTNeoX",
    prefix="gpt_neox.",
    modules=_NEOX_MODULES,
    defaults=_GPT
    | {
        "vocab_size": 50432,
        "hidden_size": 6144,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "intermediate_size": 24576,
        "hidden_act": "gelu",
        "hidden_dropout": 0.0,
        "max_position_embeddings": 2048,
        "attention_bias": True,
        "use_parallel_residual": True,
        "partial_rotary_factor": 0.25,
        "rope_theta": 10_000.0,
    },
    options=_neox,
    encoding=_llama_rope,
    renamed={"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"},
    gguf=Gguf("gptneox"),
)
GPTJ = Family(
    model_type="gptj",
    title="GPTJ",
    prefix="transformer.",
    modules=_GPTJ_MODULES,
    defaults=_GPT
    | {
        "vocab_size": 50400,
        "hidden_size": 4096,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "max_position_embeddings": 2048,
        "rotary_dim": 64,
        "resid_pdrop": 0.0,
    },
    options=_gptj,
    encoding=_gptj_rope,
    renamed=_GPT_NAMES,
    allowed={"scale_attn_weights": (True,)},
)
GPT2 = Family(
    model_type="gpt2",
    title="GPT2",
    prefix="transformer.",
    modules=_GPT2_MODULES,
    defaults=_GPT | {"resid_pdrop": 0.1, "attention_dropout": 0.1, "tie_word_embeddings": True},
    options=_gpt2,
    encoding=_table,
    renamed=_GPT_NAMES,
    allowed={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    transposed=False,  # Conv1D, in all but the head
    gguf=Gguf("gpt2"),
)
OPT = Family(
    model_type="opt",
    title="OPT",
    prefix="model.",
    modules=_OPT_MODULES,
    defaults=_GPT
    | {
        "vocab_size": 50272,
        "intermediate_size": 3072,
        "hidden_act": "relu",
        "dropout": 0.1,
        "max_position_embeddings": 2048,
        "do_layer_norm_before": True,
        "enable_bias": True,
        "tie_word_embeddings": True,
    },
    options=_opt,
    encoding=_opt_table,
    renamed={
        "ffn_dim": "intermediate_size",
        "activation_function": "hidden_act",
        "init_std": "initializer_range",
    },
    same={"word_embed_proj_dim": "hidden_size"},
    allowed={"_remove_final_layer_norm": (False,), "layer_norm_elementwise_affine": (True,)},
)
BLOOM = Family(
    model_type="bloom",
    title="Bloom",
    prefix="transformer.",
    modules=_BLOOM_MODULES,
    defaults=_GPT
    | {
        "vocab_size": 250880,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "hidden_dropout": 0.0,
        "tie_word_embeddings": True,
    },
    options=_bloom,
    encoding=_alibi,
    renamed={
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "layer_norm_epsilon": "layer_norm_eps",
    },
    allowed={"apply_residual_connection_post_layernorm": (False,)},
    gguf=Gguf("bloom"),
)
PHI = Family(
    model_type="phi",
    title="Phi",
    prefix="model.",
    modules=_PHI_MODULES,
    defaults=_GPT
    | {
        "vocab_size": 51200,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "intermediate_size": 8192,
        "max_position_embeddings": 2048,
        "resid_pdrop": 0.0,
        "partial_rotary_factor": 0.5,
        "rope_theta": 10_000.0,
        "qk_layernorm": False,
    },
    options=_phi,
    encoding=_llama_rope,
    gguf=Gguf("phi2"),
)

_ENCODER: Fields = _COMMON | {
    "vocab_size": 50265,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
    "tie_word_embeddings": True,
}
_BERT_NAMES = {
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
_NO_DECODER: dict[str, tuple] = {"is_decoder": (False,), "add_cross_attention": (False,)}


def _post_norms(fields: Fields, **more: Any) -> Fields:
    """Fields of encoders like BERT."""
    return {
        "activation": PLAIN[fields["hidden_act"]],
        "norm_position": "post",
        "norm_epsilon": fields["layer_norm_eps"],
        "token_types": fields["type_vocab_size"],
        "dropout": fields["dropout"],
        **more,
    }


def _bert_modules(*attention: str) -> Modules:
    names = ("query", "key", "value", "output")
    return {
        "tokens": "embeddings.word_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        **_layers(
            "encoder.layer.{layer}.",
            {
                **{f"attention.{o}": t for o, t in zip(names, attention, strict=True)},
                "attention_norm": "attention.output.LayerNorm",
                "mlp.up": "intermediate.dense",
                "mlp.down": "output.dense",
                "mlp_norm": "output.LayerNorm",
            },
        ),
    }


def _modern_bert(fields: Fields) -> Fields:
    attention = fields["attention_bias"]
    parts = _biases(
        fields,
        query_key_value=attention,
        attention_output=attention,
        feed_forward=fields["mlp_bias"],
        norm=fields["norm_bias"],
        head=fields["classifier_bias"],
    )
    return {
        "activation": GATED[fields["hidden_act"]],
        "norm_epsilon": fields["layer_norm_eps"],
        "embedding_norm": True,
        "first_norm": False,
        "use_bias": parts,
        "dropout": fields["dropout"],
    }


def _modern_bert_windows(fields: Fields, config: TransformerConfig) -> Encoding | LayerPattern:
    period, kinds = fields["global_attn_every_n_layers"], fields["layer_types"]
    if kinds is None:
        kinds = [_LOCAL if i % period else _GLOBAL for i in range(config.num_layers)]
    window = fields["local_attention"] // 2 + 1  # half of it on each side, and the token itself

    def of_kind(kind: str) -> Encoding:
        return _windowed(_rope(fields, config, kind), window if kind == _LOCAL else None)

    return _by_layer(kinds, of_kind)


def _disentangled(fields: Fields, config: TransformerConfig) -> Encoding:
    most = fields["max_relative_positions"]
    return deberta(
        num_heads=config.num_heads,
        head_dim=config.head_width,
        num_buckets=fields["position_buckets"],
        max_distance=fields["max_position_embeddings"] if most < 1 else most,
    )


def _roberta_table(fields: Fields, config: TransformerConfig) -> Encoding:
    offset = fields["pad_token_id"] + 1
    return shifted(learned(length=fields["max_position_embeddings"], dim=config.dim), offset)


ROBERTA = Family(
    model_type="roberta",
    title="Roberta",
    prefix="roberta.",
    modules={
        **_bert_modules(
            *(f"attention.self.{name}" for name in ("query", "key", "value")),
            "attention.output.dense",
        ),
        "encoding_params.table": "embeddings.position_embeddings",
        "head.transform": "lm_head.dense",
        "head.norm": "lm_head.layer_norm",
        "head.bias": "lm_head.bias",
    },
    defaults=_ENCODER | {"type_vocab_size": 2, "pad_token_id": 1},
    options=_post_norms,
    encoding=_roberta_table,
    renamed=_BERT_NAMES,
    allowed={**_NO_DECODER, "position_embedding_type": ("absolute",), "hidden_act": ("gelu",)},
)
DEBERTA = Family(
    model_type="deberta-v2",
    title="DebertaV2",
    prefix="deberta.",
    modules={
        **_bert_modules(
            *(f"attention.self.{name}_proj" for name in ("query", "key", "value")),
            "attention.output.dense",
        ),
        "head.transform": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head.bias": "cls.predictions.bias",
    },
    defaults=_ENCODER
    | {
        "vocab_size": 128100,
        "layer_norm_eps": 1e-7,
        "type_vocab_size": 0,
        "position_buckets": -1,  # without, which is not here
        "max_relative_positions": -1,
        "relative_attention": False,
        "share_att_key": False,
        "position_biased_input": True,
        "norm_rel_ebd": "none",
        "pos_att_type": None,
    },
    options=_post_norms,
    encoding=_disentangled,
    renamed=_BERT_NAMES,
    allowed={
        "relative_attention": (True,),
        "share_att_key": (True,),
        "position_biased_input": (False,),
        "pos_att_type": (["p2c", "c2p"], ["c2p", "p2c"], "p2c|c2p", "c2p|p2c"),
        "norm_rel_ebd": ("layer_norm",),
        "conv_kernel_size": (0,),
        "z_steps": (0, 1),
        "embedding_size": (),
        "attention_head_size": (),
    },
)
MODERNBERT = Family(
    model_type="modernbert",
    title="ModernBert",
    prefix="model.",
    modules={
        "tokens": "embeddings.tok_embeddings",
        "embedding_norm": "embeddings.norm",
        **_layers(
            "layers.{layer}.",
            {
                "attention_norm": "attn_norm",
                **_fused("attn.Wqkv", by_head=False),
                "attention.output": "attn.Wo",
                "mlp_norm": "mlp_norm",
                "mlp.gate": Fused("mlp.Wi", 0, 2),
                "mlp.up": Fused("mlp.Wi", 1, 2),
                "mlp.down": "mlp.Wo",
            },
        ),
        "final_norm": "final_norm",
        "head.transform": "head.dense",
        "head.norm": "head.norm",
        "head.bias": "decoder.bias",
    },
    defaults=_ENCODER
    | _ATTENTION_BIAS
    | {
        "vocab_size": 50368,
        "num_hidden_layers": 22,
        "intermediate_size": 1152,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "norm_bias": False,
        "mlp_bias": False,
        "classifier_bias": False,
        "layer_types": None,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "rope_theta": 160_000.0,
        "rope_local_base_freq": 10_000.0,
    },
    options=_modern_bert,
    encoding=_modern_bert_windows,
    renamed={
        "norm_eps": "layer_norm_eps",
        "hidden_activation": "hidden_act",
        "mlp_dropout": "dropout",
        "global_rope_theta": "rope_theta",
        "local_rope_theta": "rope_local_base_freq",
    },
    allowed={"decoder_bias": (True,), "classifier_activation": ("gelu",), "hidden_act": ("gelu",)},
)

DECODERS: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        *(LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA, GEMMA2, GEMMA3, SMOLLM3, LLAMA4),
        *(GPT_NEOX, GPTJ, GPT2, OPT, BLOOM, PHI),
    )
}
# BERT and MPNet, which also have poolers and classifiers, are rows of `jaxpe.nn.huggingface`.
ENCODERS: Mapping[str, Family] = {
    family.model_type: family for family in (ROBERTA, DEBERTA, MODERNBERT)
}

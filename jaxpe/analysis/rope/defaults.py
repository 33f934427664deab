"""Defaults of configuration classes for entries that config.json lacks.

From transformers 4.57.6 and 5.23.0 (class attributes and arguments). A model type that is not here
has a base of 10,000 in both, and turns whole heads.
"""

from typing import NamedTuple

BASE = 10_000.0  # of every class that has none of its own, of vLLM and of llama.cpp


class ClassDefault(NamedTuple):
    """Defaults of one class of configurations.

    Attributes:
        base_4, base_5: θ in transformers 4 and 5.
        local: θ of layers with a sliding window, where they have their own.
        fraction: share of a head that turns.
        head_dim: width of a head, where it does not follow from the hidden size.
        context: `max_position_embeddings`.
    """

    base_4: float = BASE
    base_5: float = BASE
    local: float | None = None
    fraction: float = 1.0
    head_dim: int | None = None
    context: int = 2048


def _both(base: float, **others) -> ClassDefault:
    return ClassDefault(base, base, **others)


_GEMMA_3 = _both(1e6, local=1e4, head_dim=256, context=131_072)
_DEFAULTS = {
    "apertus": _both(1.2e7, context=65_536),
    "cohere": ClassDefault(1e4, 5e5, context=8192),
    "deepseek_v2": _both(1e4),
    "deepseek_v3": _both(1e4, context=4096),
    "ernie4_5": _both(5e5, context=131_072),
    "flex_olmo": _both(5e5),
    "gemma": _both(1e4, head_dim=256, context=8192),
    "gemma2": _both(1e4, head_dim=256, context=8192),
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "gemma3n_text": _GEMMA_3._replace(context=32_768),
    "glm": _both(1e4, fraction=0.5, context=131_072),
    "glm4": _both(1e4, fraction=0.5, context=131_072),
    "glm4_moe": _both(1e4, fraction=0.5, context=131_072),
    "gpt_neox": _both(1e4, fraction=0.25),
    "gpt_oss": _both(1.5e5, head_dim=64, context=131_072),
    "helium": _both(1e5, context=4096),
    "lfm2": _both(1e6, context=128_000),
    "llama": _both(1e4),
    "llama4_text": _both(5e5, head_dim=128, context=131_072),
    "longcat_flash": _both(1e7, context=131_072),
    "minimax": _both(1e6, context=131_072),
    "ministral3": _both(1e6, head_dim=128, context=262_144),
    "mistral": _both(1e4, context=131_072),
    "mixtral": _both(1e6, context=131_072),
    "modernbert": _both(1.6e5, local=1e4, context=8192),
    "modernbert-decoder": _both(1.6e5, local=1e4, context=8192),
    "nemotron": _both(1e4, fraction=0.5, context=4096),
    "olmo3": ClassDefault(1e4, 5e5),
    "persimmon": _both(2.5e4, fraction=0.5, context=16_384),
    "phi": _both(1e4, fraction=0.5),
    "phi3": _both(1e4, context=4096),
    "phimoe": _both(1e6, context=131_072),
    "qwen2": _both(1e4, context=32_768),
    "qwen2_vl_text": _both(1e6, context=32_768),
    "qwen2_5_vl_text": _both(1e6, context=32_768),
    "qwen3": _both(1e4, head_dim=128, context=32_768),
    "qwen3_next": _both(1e4, fraction=0.25, head_dim=256, context=32_768),
    "qwen3_vl_text": ClassDefault(5e6, 5e5, head_dim=128, context=128_000),
    "qwen3_vl_moe_text": ClassDefault(5e6, 5e5, head_dim=128, context=128_000),
    "smollm3": _both(2e6, context=32_768),
    "stablelm": _both(1e4, fraction=0.25, context=4096),
}
# Model types whose positions are not rotary.
NOT_ROTARY = (
    "albert", "bart", "bert", "bloom", "deberta", "deberta-v2", "distilbert", "electra", "gpt2",
    "gpt_bigcode", "gpt_neo", "mpnet", "mpt", "mt5", "opt", "roberta", "t5", "umt5", "whisper",
    "xlm-roberta", "xlnet",
)  # fmt: skip
# Model types that came with version 5: version 4 refuses them, or takes code of the checkpoint.
ONLY_5 = (
    "deepseek_v32", "deepseek_v4", "gemma4_text", "glm4_moe_lite", "laguna", "lfm2_moe",
    "minimax_m2", "ministral3", "mistral4", "qwen3_5", "qwen3_5_text",
)  # fmt: skip


def class_default(model_type: str) -> ClassDefault:
    """Defaults of a model type; those of Llama for one that is not known.

    >>> class_default("gpt_oss").base_5, class_default("of my own").base_5
    (150000.0, 10000.0)
    """
    return _DEFAULTS.get(model_type, ClassDefault())


def is_known(model_type: str) -> bool:
    """Whether the defaults of a model type are listed here."""
    return model_type in _DEFAULTS
